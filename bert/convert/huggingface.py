"""The folders of Hugging Face's transformers: BERT's, ELECTRA's, DistilBERT's.

Weights come and go under the names and in the layout of Google's checkpoints: a
dense kernel is [in, out], Hugging Face's [out, in].

What transformers has no place for (Adam's slots, the global step, a pooler that
a head does not use) travels in a file of its own, google_only.safetensors,
under Google's names; what a training recorded in google_only.json.
"""

from collections.abc import Iterable, Mapping
import dataclasses
import functools
import json
import os
import re
from typing import Any

import numpy as np
import safetensors
import safetensors.numpy

from bert import modeling
from bert.convert import models, weight_files
from bert.data import files
from bert.weights import checkpoints

WEIGHTS = weight_files.SAFETENSORS.whole
GOOGLE_ONLY = "google_only.safetensors"
RECORD = "google_only.json"
CONFIG = "config.json"
_BELONGS_TO = "sha256 of model.safetensors"
# Files of PyTorch's whose names do not say that they are a model's weights.
_OTHER_TORCH_FILES = re.compile(r"pytorch_model.*\.bin|.*\.(pt|pth|pkl)")
# Constants that older folders store: the numbers of positions, and zeros.
_IGNORED = re.compile(r"(.*\.)?embeddings\.(position_ids|token_type_ids)")
# Copies: the first of the word embeddings, the second of `_BIAS`.
_TIED_WEIGHT = "cls.predictions.decoder.weight"
_TIED_BIAS = "cls.predictions.decoder.bias"
_BIAS = "cls.predictions.bias"
_TABLE = "bert/embeddings/word_embeddings"
# Google's names of activations, and transformers'.
TO_THEIRS = {
  "gelu": "gelu_pytorch_tanh",
  "gelu_erf": "gelu",
  "gelu_exact": "gelu",
}
# The other way. Their "gelu" is not Google's, which is the tanh form.
_FROM_THEIRS = {
  **dict.fromkeys(("gelu", "gelu_python"), "gelu_erf"),
  **dict.fromkeys(("gelu_pytorch_tanh", "gelu_new", "gelu_fast"), "gelu"),
  **{name: name for name in ("linear", "relu", "tanh")},
}
# Settings that change what a model computes: the values of a BERT, which are
# also the defaults.
_SETTINGS = {
  "model_type": "bert",
  "add_cross_attention": False,
  "is_decoder": False,
  "is_encoder_decoder": False,
  "position_embedding_type": "absolute",
  "pruned_heads": {},
  "quantization_config": None,
  "tie_word_embeddings": True,
}
_BERT_FIELDS = {field.name for field in dataclasses.fields(modeling.BertConfig)}
# Hugging Face's words for the problems of run_classifier.py.
PROBLEM_TYPES = {
  "single_label": "single_label_classification",
  "multi_label": "multi_label_classification",
  "regression": "regression",
}
# Classes whose heads have the variables of a classifier.
_PROBLEMS = {
  head.architecture: name
  for name, head in models.HEADS.items()
  if "output_" in head.prefixes and name != "classifier"
}
# From Google's names to those of today.
_NAMES = (
  (r"layer_(?=\d)", "layer."),
  ("/", "."),
  (r"(?<=_embeddings)$", ".weight"),
  (r"\.(kernel|gamma)$", ".weight"),
  (r"\.beta$", ".bias"),
  (r"^cls\.squad\.", "qa_outputs."),
  (r"^output_", "classifier.output_"),
  (r"\.output_weights$", ".weight"),
  (r"\.output_bias$", ".bias"),
)
# A BertModel saved by itself has no "bert." before its names; weights converted
# years ago have LayerNorm.gamma and .beta.
_OLD_NAMES = (
  (r"^(embeddings|encoder|pooler)\.", r"bert.\1."),
  (r"LayerNorm\.gamma$", "LayerNorm.weight"),
  (r"LayerNorm\.beta$", "LayerNorm.bias"),
)
# ELECTRA and DistilBERT have the encoder of a BERT under other names; BERT-wwm,
# RoBERTa-wwm-ext and MacBERT are BERTs. From their variables to BERT's:
_RELATIVES = {
  "electra": (
    (r"^electra\.", "bert."),
    (r"^(bert\.)?embeddings_project\.", "bert.embeddings.project."),
  ),
  "distilbert": (
    (r"^(distilbert\.)?embeddings\.", "bert.embeddings."),
    (r"^(distilbert\.)?transformer\.", "bert.encoder."),
    (r"\.attention\.q_lin\.", ".attention.self.query."),
    (r"\.attention\.k_lin\.", ".attention.self.key."),
    (r"\.attention\.v_lin\.", ".attention.self.value."),
    (r"\.attention\.out_lin\.", ".attention.output.dense."),
    (r"\.sa_layer_norm\.", ".attention.output.LayerNorm."),
    (r"\.ffn\.lin1\.", ".intermediate.dense."),
    (r"\.ffn\.lin2\.", ".output.dense."),
    (r"\.output_layer_norm\.", ".output.LayerNorm."),
    (r"^vocab_transform\.", "cls.predictions.transform.dense."),
    (r"^vocab_layer_norm\.", "cls.predictions.transform.LayerNorm."),
    (r"^vocab_projector\.", "cls.predictions.decoder."),
  ),
}
_DISTILBERT_FIELDS = {
  "dim": "hidden_size",
  "hidden_dim": "intermediate_size",
  "n_layers": "num_hidden_layers",
  "n_heads": "num_attention_heads",
  "activation": "hidden_act",
  "dropout": "hidden_dropout_prob",
  "attention_dropout": "attention_probs_dropout_prob",
}
# A classifier on top of such a layer, which BERT lacks, is not BERT's.
_ON_DENSE_LAYER = ("pre_classifier.", "sequence_summary.")
_BYTE_PAIRS = "its tokens are byte pairs or SentencePiece's, not word pieces"
_REFUSED = {
  **dict.fromkeys(("roberta", "xlm-roberta", "camembert"), _BYTE_PAIRS),
  **dict.fromkeys(("deberta", "deberta-v2"), _BYTE_PAIRS),
  "albert": "its layers share weights, its tokens are SentencePiece's",
  "mobilebert": "its layers have bottlenecks",
}


_to_theirs = functools.partial(models.rename, renaming=_NAMES)


def refuse_other_files(path: str, entries: Iterable[str]) -> None:
  """Raises a ValueError if one of the names at a path is PyTorch's alone."""
  if found := sorted(filter(_OTHER_TORCH_FILES.fullmatch, entries)):
    raise ValueError(
      f"{path}: {found[0]} may hold anything that PyTorch saves: if it holds "
      f"the weights of the model in {CONFIG}, name it pytorch_model.bin"
    )


def open_folder(path: str, marker: str) -> models.ModelFolder:
  """Opens a folder by the name of its file of weights, or of their index.

  `_match` says what becomes of variables that BERT lacks.
  """
  # The config says whether this is a BERT, before weights are looked at.
  format_ = weight_files.BY_FILE[marker]
  config_path, settings = _read_settings(path, format_)
  to_bert_config(config_path, settings)
  stored = weight_files.open_shards(path, format_)
  return name_tensors(path, config_path, settings, stored)


def name_tensors(
  path: str,
  config_path: str,
  settings: Mapping[str, Any],
  stored: Mapping[str, models.StoredVariable],
) -> models.ModelFolder:
  """Makes a model of tensors, whatever file they are from.

  Args:
    path: of the folder or file, for messages.
    config_path: of the config, likewise.
    settings: what a config.json holds.
    stored: the tensors by Hugging Face's names, in its shapes.
  """
  config = to_bert_config(config_path, settings)
  model_type = settings["model_type"]

  # From the stored names to the names of today, by which they are matched.
  models.check_layers(path, config, len(stored))
  renaming = (*_RELATIVES.get(model_type, ()), *_OLD_NAMES)
  current = {name: models.rename(name, renaming) for name in sorted(stored)}
  matched, unread = _match(path, config, current, model_type != "bert")
  _check_tied(path, stored, current)

  # Their dense layers have [out, in], Google's [in, out]. A variable that keeps
  # its name is not BERT's, and stays as it is.
  variables = _open_google_only(path)
  for google, name in matched.items():
    is_kernel = google.endswith("/kernel") and google != name
    variable = stored[name]
    variables[google] = variable.transposed() if is_kernel else variable
  if model_type == "distilbert":
    # It has no segments: every one is the same, which zeros are.
    shape = (config.type_vocab_size, config.hidden_size)
    zeros = models.StoredVariable(lambda: np.zeros(shape, np.float32), shape)
    variables.setdefault("bert/embeddings/token_type_embeddings", zeros)

  # Their config has no word for a task of ours that transformers lacks.
  recorded = _read_record(path)
  problem = recorded.get(models.SETTINGS, {}).get("problem")
  labels = _read_labels(config_path, settings)
  if not problem or problem in (*PROBLEM_TYPES, *models.HEADS):
    problem = _read_problem(settings, labels, variables)
  return models.ModelFolder(
    models.make_weights(path, variables, unread),
    (path,),
    config,
    problem=problem,
    labels=labels,
    library="a Hugging Face folder",
    recorded=recorded,
  )


def _read_settings(
  folder: str, format_: weight_files.Format
) -> tuple[str, dict[str, Any]]:
  """Returns the path of a folder's config, and what it says."""
  path = os.path.join(folder, CONFIG)
  if format_ is weight_files.SAFETENSORS:
    return path, files.read_json(path)

  # Until 2019, configs did not state whose they are, and those of
  # pytorch-pretrained-bert had Google's name. Models other than BERT have other
  # variables, and are refused for that.
  older = os.path.join(folder, "bert_config.json")
  if not files.exists(path) and files.exists(older):
    path = older
  return path, {"model_type": "bert", **files.read_json(path)}


def _match(
  path: str,
  config: modeling.BertConfig,
  current: Mapping[str, str],
  is_relative: bool,
) -> tuple[dict[str, str], list[str]]:
  """Matches stored variables with those of a BERT.

  Args:
    path: the folder, for messages.
    config: of the encoder.
    current: names of today by those that are stored.
    is_relative: whether the model is not a BERT, but one with BERT's encoder.

  Returns:
    The stored names by Google's, and the names that stay unread. A variable of
    a head that is not BERT's stays unread in a relative; in a BERT it keeps its
    name.

  Raises:
    ValueError: the encoder itself has variables that BERT lacks.
  """
  # The variables that a BERT may have, by their names here. The bias of masked
  # words is stored once or twice.
  google_names = {_to_theirs(name): name for name in models.variables(config)}
  copies = {_TIED_WEIGHT, _TIED_BIAS}
  if _BIAS not in current.values():  # Then its copy is the only one.
    copies = {_TIED_WEIGHT}
    google_names[_TIED_BIAS] = google_names[_BIAS]

  # A classifier on one of `_ON_DENSE_LAYER` has the names of BERT's classifier,
  # but reads that layer instead of the pooler.
  if is_relative and any(n.startswith(_ON_DENSE_LAYER) for n in current):
    for name in ("classifier.weight", "classifier.bias"):
      del google_names[name]

  matched = {}  # Stored names by Google's.
  unread = []
  unknown = []  # In the encoder, but in no BERT's.
  for stored, theirs in current.items():
    # Constants and copies hold nothing of their own.
    google = google_names.get(theirs)
    if _IGNORED.fullmatch(stored) or theirs in copies:
      continue
    if google in matched:
      raise ValueError(
        f"{path}: {matched[google]} and {stored} are the same variable"
      )

    # A variable of BERT; or of another encoder; or of a head that is not
    # BERT's, which stays unread in a relative and keeps its name in a BERT.
    if google:
      matched[google] = stored
    elif theirs.startswith("bert."):
      unknown.append(stored)
    elif is_relative:
      unread.append(stored)
    else:
      matched[stored] = stored
  models.refuse_unknown(path, unknown)
  return matched, unread


def _check_tied(path, stored, current) -> None:
  """Refuses output weights that are not the table of the word embeddings."""
  # BERT's head multiplies by the table itself, so a copy must be equal.
  names = {theirs: name for name, theirs in current.items()}
  tied, table = names.get(_TIED_WEIGHT), names.get(_to_theirs(_TABLE))
  if tied and table:
    if not np.array_equal(stored[tied].load(), stored[table].load()):
      raise ValueError(
        f"{path}: {tied} is not the table of the word embeddings, as in BERT"
      )


def _open_google_only(folder: str) -> dict[str, models.StoredVariable]:
  """Returns the variables that only Google's checkpoints have."""
  path = os.path.join(folder, GOOGLE_ONLY)
  if not files.exists(path):
    return {}

  variables, metadata = weight_files.open_safetensors(path)
  _check_belongs(path, metadata)
  return variables


def _read_record(folder: str) -> dict[str, Any]:
  """Returns what a training recorded, as `models.ModelFolder` has it."""
  path = os.path.join(folder, RECORD)
  if not files.exists(path):
    return {}

  content = files.read_json(path)
  _check_belongs(path, content)
  allowed = {models.SETTINGS: (dict,), models.PREDICTION: (dict,)}
  with checkpoints.naming_damage(path):
    files.check_values(content, allowed)
  return {name: content[name] for name in allowed}


def _check_belongs(path: str, stated: Mapping[str, Any]) -> None:
  """Refuses a file that states another digest than its folder's weights."""
  # After other weights were trained and saved here, Adam's slots and the step
  # would be of the old ones, and so would what is recorded.
  weights = os.path.join(os.path.dirname(path), WEIGHTS)
  digest = files.exists(weights) and files.hash_file(weights)
  if stated.get(_BELONGS_TO) != digest:
    raise ValueError(
      f"{path}: does not belong to the {WEIGHTS} beside it; move it away"
    )


def to_bert_config(
  path: str, settings: Mapping[str, Any]
) -> modeling.BertConfig:
  """Makes the config of an encoder; a ValueError if it is not a BERT's."""
  if "model_type" not in settings:
    # Google's and Hugging Face's "gelu" differ: whose file it is must be said.
    raise ValueError(
      f'{path}: no model_type; add "model_type": "bert" if it is of a BERT'
    )

  # Other families, by their names: some are refused with the reason, some have
  # BERT's encoder with other names of fields.
  model_type = str(settings["model_type"])
  fields = dict(settings)
  if model_type in _REFUSED:
    raise ValueError(
      f"{path}: model_type is {model_type!r}: {_REFUSED[model_type]}"
    )
  if model_type in _RELATIVES:
    fields["model_type"] = "bert"
  if model_type == "distilbert":
    renamed = _DISTILBERT_FIELDS
    fields = {renamed.get(name, name): v for name, v in fields.items()}
  # An ELECTRA always states it; here it is stated only of narrower tables.
  if fields.get("embedding_size") == fields.get("hidden_size"):
    fields.pop("embedding_size", None)

  # Settings that change the computation must have a BERT's values.
  for name, expected in _SETTINGS.items():
    if fields.get(name, expected) != expected:
      raise ValueError(
        f"{path}: {name} is {fields[name]!r:.80}; this BERT has {expected!r}"
      )

  name = fields.get("hidden_act", "gelu")
  if not isinstance(name, str) or name not in _FROM_THEIRS:
    raise ValueError(
      f"{path}: hidden_act is {name!r:.80}; known of Hugging Face's: "
      f"{', '.join(_FROM_THEIRS)}"
    )

  # The other fields are about training, generating text or naming labels.
  kept = {n: value for n, value in fields.items() if n in _BERT_FIELDS}
  kept.setdefault("type_vocab_size", 2)  # Theirs; Google's is 16.
  kept["hidden_act"] = _FROM_THEIRS[name]
  if kept.get("layer_norm_eps") == modeling.LAYER_NORM_EPSILON:
    del kept["layer_norm_eps"]  # Google's files do not state it.

  try:
    return modeling.BertConfig.from_dict(kept)
  except (ValueError, RecursionError) as error:
    raise ValueError(f"{path}: {error}") from None


def _read_problem(
  settings, labels: tuple[str, ...], variables: Mapping[str, Any]
) -> str | None:
  """Returns the task of the head that a config.json states, if any."""
  names = {theirs: ours for ours, theirs in PROBLEM_TYPES.items()}
  problem = names.get(str(settings.get("problem_type")))

  # Where it is not stated, transformers goes by the number of outputs.
  bias = variables.get("output_bias")
  outputs = bias.shape if bias else ()
  if not problem and (len(labels) > 1 or outputs > (1,)):
    problem = "single_label"
  elif not problem and outputs == (1,):
    problem = "regression"

  # The class of a tagger or of multiple choice says more.
  classes = settings.get("architectures")
  for name in classes if isinstance(classes, list) else ():
    name = re.sub("^(DistilBert|Electra)", "Bert", str(name))
    problem = _PROBLEMS.get(name, problem)
  return problem


def _read_labels(path: str, settings: Mapping[str, Any]) -> tuple[str, ...]:
  """Returns the names of labels in a config.json; () if they are numbers."""
  names = settings.get("id2label") or {}
  try:
    labels = tuple(str(names[str(number)]) for number in range(len(names)))
  except (KeyError, TypeError):
    raise ValueError(
      f'{path}: id2label is {names!r:.80}; expected {{"0": "name", ...}}'
    ) from None

  # transformers writes LABEL_0, LABEL_1 if nobody named them.
  is_default = all(x == f"LABEL_{number}" for number, x in enumerate(labels))
  return () if is_default else labels


def _write_file(path, tensors, metadata) -> None:
  # The package writes the memory of an array, whatever its strides.
  plain = {name: np.asarray(x, order="C") for name, x in tensors.items()}
  try:
    files.write_bytes(path, safetensors.numpy.save(plain, metadata))
  # The package lacks some types, such as text. Only variables that belong to no
  # BERT can have one: `conversion` has checked all others to be floats.
  except safetensors.SafetensorError as error:
    raise ValueError(
      f"{path}: {error}: pass the --head to keep; others are left out"
    ) from None


def write(folder: str, model: models.Model) -> list[str]:
  """Writes all but the vocabulary; returns the names in GOOGLE_ONLY."""
  values = model.values
  names = models.variables(model.config, model.head)

  # A BertModel by itself has no "bert." before its names.
  prefix = "bert." if model.head == "encoder" else ""
  tensors = {}
  for name in names:
    value = values[name].T if name.endswith("/kernel") else values[name]
    tensors[_to_theirs(name).removeprefix(prefix)] = value

  path = os.path.join(folder, WEIGHTS)
  # transformers asks for the format before it reads.
  _write_file(path, tensors, {"format": "pt"})

  # The files with the rest name the weights that they belong to.
  belongs_to = {_BELONGS_TO: files.hash_file(path)}
  rest = {name: values[name] for name in sorted(set(values) - set(names))}
  if rest:
    _write_file(os.path.join(folder, GOOGLE_ONLY), rest, belongs_to)
  if recorded := model.recorded:
    path = os.path.join(folder, RECORD)
    files.write_json(path, {**belongs_to, **recorded})

  files.write_json(os.path.join(folder, CONFIG), _make_config(model))

  # strip_accents None: accents are stripped if text is lower-cased, as in the
  # original, unless the vocabulary asks for something else.
  special = ("unk", "sep", "pad", "cls", "mask")
  tokenizer = {
    "tokenizer_class": model.kind.tokenizer_class,
    "model_max_length": model.config.max_position_embeddings,
    "strip_accents": None,
    "tokenize_chinese_chars": True,
    **{f"{name}_token": f"[{name.upper()}]" for name in special},
    **model.kind.asks,
    "do_lower_case": model.do_lower_case,
  }
  files.write_json(os.path.join(folder, "tokenizer_config.json"), tokenizer)
  return list(rest)


def _make_config(model: models.Model) -> dict[str, Any]:
  """Returns the contents of config.json."""
  config = model.config
  head = models.HEADS[model.head]
  fields = json.loads(config.to_json_string())
  contents = {
    "architectures": [head.architecture],
    "model_type": "bert",
    **{n: x for n, x in fields.items() if n in _BERT_FIELDS},
    "hidden_act": TO_THEIRS.get(config.hidden_act, config.hidden_act),
    "layer_norm_eps": config.layer_norm_epsilon,
    "position_embedding_type": "absolute",
    "tie_word_embeddings": True,
    "dtype": model.values[_TABLE].dtype.name,
  }

  # A classifier's labels always have names there, if only LABEL_0.
  if "output_" in head.prefixes:
    contents["classifier_dropout"] = 0.1  # As in heads.py.
    if head.has_labels:
      count = len(model.values["output_bias"])
      labels = model.labels or [f"LABEL_{number}" for number in range(count)]
      contents["id2label"] = {str(i): label for i, label in enumerate(labels)}
      contents["label2id"] = {label: i for i, label in enumerate(labels)}
    if model.problem in PROBLEM_TYPES:
      contents["problem_type"] = PROBLEM_TYPES[model.problem]

  if "[PAD]" in model.vocabulary:
    contents["pad_token_id"] = model.vocabulary.index("[PAD]")
  return contents
