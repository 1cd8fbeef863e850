"""The folders of Hugging Face's transformers: names, weights, vocabulary.

A folder holds config.json, model.safetensors (or several, with an index), and
the tokenizer's files. Here its weights have the names and the layout of
Google's checkpoints: a dense kernel is [in, out], Hugging Face's [out, in].

What transformers has no place for (Adam's slots, the global step, a pooler that
a head does not use) travels in a file of its own, google_only.safetensors,
under Google's names.
"""

from collections.abc import Iterable
from collections.abc import Mapping
import functools
import json
import os
import re
from typing import Any

import numpy as np

from data import files
from encoders import huggingface_config
import modeling
from vocabularies import vocabulary_table
from weights import architecture
from weights import readers
from weights import relatives
from weights import safetensors_files

WEIGHTS = "model.safetensors"
GOOGLE_ONLY = "google_only.safetensors"
CONFIG = "config.json"
_INDEX = "model.safetensors.index.json"
_BELONGS_TO = "sha256 of model.safetensors"
# Weights that only running code could read.
_PICKLES = re.compile(r"pytorch_model.*\.bin|.*\.(pt|pth|pkl)")
_IGNORED = re.compile(r"(.*\.)?embeddings\.(position_ids|token_type_ids)")
# With the word embeddings, and the bias of the head.
_TIED_WEIGHT = "cls.predictions.decoder.weight"
_TIED_BIAS = "cls.predictions.decoder.bias"
_TABLE = "bert/embeddings/word_embeddings"
# Google's names of activations, and transformers'.
ACTIVATIONS = {
  "gelu": "gelu_pytorch_tanh",
  "gelu_erf": "gelu",
  "gelu_exact": "gelu",
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


def to_theirs(name: str) -> str:
  """Returns what transformers calls a variable of Google's name."""
  return readers.rename(name, _NAMES)


def is_folder(path: str) -> bool:
  """Tells whether a path is a folder with weights that `open_folder` reads."""
  return any(files.exists(os.path.join(path, n)) for n in (WEIGHTS, _INDEX))


def refuse_pickles(path: str, entries: Iterable[str]) -> None:
  """Refuses a folder, or a file, whose weights are Python objects.

  Args:
    path: of it.
    entries: the names in the folder, or that of the file.

  Raises:
    ValueError: it is one.
  """
  found = sorted(filter(_PICKLES.fullmatch, entries))
  if found:
    raise ValueError(
      f"{path}: {found[0]} is a pickle: reading one runs the code it holds; "
      f"make {WEIGHTS} of it where PyTorch is, in its folder: python -c "
      '"import torch, safetensors.torch as s; '
      f"w = torch.load('{found[0]}', weights_only=True); "
      "s.save_file({k: v.clone() for k, v in w.items()}, "
      f"'{WEIGHTS}', {{'format': 'pt'}})\""
    )


def open_folder(path: str) -> readers.Reader:
  """Opens a folder's weights.

  A variable that BERT's classes in transformers do not have keeps its name;
  with a relative of BERT it stays unread.

  Raises:
    ValueError: a file is missing, damaged, or not of a BERT.
    OSError: a file cannot be read.
  """
  model_type, config = read_settings(path)["model_type"], read_config(path)
  stored = _open_shards(path)
  readers.check_layers(path, config, len(stored))
  theirs = relatives.names(model_type)
  renaming = (*theirs, *_OLD_NAMES)
  current = {name: readers.rename(name, renaming) for name in sorted(stored)}
  found, unread = _match(path, config, current, is_relative=bool(theirs))
  table = stored[found[_TABLE]].read(found[_TABLE]) if _TABLE in found else None
  for name, now in current.items():
    if now == _TIED_WEIGHT and table is not None:
      if not np.array_equal(stored[name].read(name), table):
        raise ValueError(
          f"{path}: {name} is not the table of the word embeddings, as it is "
          "in BERT (section A.2 of the paper)"
        )
  places = _open_google_only(path)
  for google, name in found.items():
    read = functools.partial(stored[name].read, name)
    shape = stored[name].entries[name].shape
    is_kernel = google.endswith("/kernel") and google != name
    places[google] = readers.make_place(google, shape, read, is_kernel)
  if model_type == "distilbert":
    # It has no segments: every one is the same, which zeros are.
    shape = (config.type_vocab_size, config.hidden_size)
    zeros = readers.Place(lambda: np.zeros(shape, np.float32), shape)
    places.setdefault("bert/embeddings/token_type_embeddings", zeros)
  do_lower_case, _ = vocabulary_table.read_casing(path) or (None, "")
  return readers.Reader(
    "a Hugging Face folder",
    places,
    config,
    do_lower_case=do_lower_case,
    unread=unread,
    config_file=os.path.join(path, CONFIG) if model_type == "bert" else None,
  )


def _open_shards(folder: str) -> dict[str, safetensors_files.SafetensorsFile]:
  """Returns the file of each tensor, by its name there."""
  path = os.path.join(folder, WEIGHTS)
  if files.exists(path):
    file = safetensors_files.SafetensorsFile(path)
    return dict.fromkeys(file.entries, file)
  stored = {}
  shards = readers.find_shards(folder, _INDEX, ".safetensors")
  for path, names in shards.items():
    file = safetensors_files.SafetensorsFile(path)
    if missing := sorted(names - set(file.entries)):
      raise ValueError(
        f"{path}: does not hold {missing[0]!r:.80}, as in {_INDEX}"
      )
    stored |= dict.fromkeys(names, file)
  return stored


def _match(path, config, current, is_relative):
  """Returns the stored names by Google's, and those that stay unread."""
  known = {to_theirs(name): name for name in architecture.variables(config)}
  # A classifier on a dense layer that BERT lacks is not BERT's.
  others = ("pre_classifier.", "sequence_summary.")
  is_other = any(name.startswith(others) for name in current)
  found, unread, unknown = {}, [], []
  for name, theirs in current.items():
    if theirs == _TIED_BIAS and "cls.predictions.bias" not in current:
      theirs = "cls.predictions.bias"
    if _IGNORED.fullmatch(name) or theirs in (_TIED_WEIGHT, _TIED_BIAS):
      continue
    google = known.get(theirs)
    if google is None and theirs.startswith("bert."):
      unknown.append(name)
    elif is_relative and (
      google is None or (is_other and theirs.startswith("classifier."))
    ):
      unread.append(name)
    elif google in found:
      raise ValueError(
        f"{path}: {found[google]} and {name} are the same variable"
      )
    else:
      found[google or name] = name
  readers.refuse_unknown(path, unknown)
  return found, unread


def _open_google_only(folder: str) -> dict[str, readers.Place]:
  """Returns the places of what only Google's checkpoints have."""
  path = os.path.join(folder, GOOGLE_ONLY)
  if not files.exists(path):
    return {}
  file = safetensors_files.SafetensorsFile(path)
  weights = os.path.join(folder, WEIGHTS)
  found = files.exists(weights) and files.hash_file(weights)
  if file.metadata.get(_BELONGS_TO) != found:
    raise ValueError(
      f"{path}: does not belong to the {WEIGHTS} beside it, which was changed "
      "later; delete it, or move it away"
    )
  return {
    name: readers.Place(functools.partial(file.read, name), entry.shape)
    for name, entry in file.entries.items()
  }


def read_settings(folder: str) -> dict[str, Any]:
  """Reads config.json.

  Raises:
    ValueError: it is missing, or does not name its model.
  """
  path = os.path.join(folder, CONFIG)
  if not files.exists(path):
    raise ValueError(f"{folder}: holds weights, but no {CONFIG}")
  settings = files.read_json(path)
  if "model_type" not in settings:
    # Google's and Hugging Face's "gelu" differ: whose file it is must be said.
    raise ValueError(
      f'{path}: no model_type; add "model_type": "bert" if it is of a BERT'
    )
  return settings


def read_config(folder: str) -> modeling.BertConfig:
  """Returns the architecture in a config.json.

  Raises:
    ValueError: it is not that of a BERT, or of a relative of it.
  """
  path = os.path.join(folder, CONFIG)
  settings = relatives.to_bert_settings(path, read_settings(folder))
  try:
    return huggingface_config.to_bert_config(settings)
  except (ValueError, RecursionError) as error:
    raise ValueError(f"{path}: {error}") from None


def read_labels(settings: Mapping[str, Any]) -> list[str]:
  """Returns the names of labels in a config.json; none if they are numbers.

  Raises:
    ValueError: they are not numbered from 0.
  """
  names = settings.get("id2label") or {}
  try:
    labels = [str(names[str(number)]) for number in range(len(names))]
  except (KeyError, TypeError):
    raise ValueError(
      f'{CONFIG}: id2label is {names!r:.80}; expected {{"0": "name", ...}}'
    ) from None
  is_default = labels == [f"LABEL_{number}" for number in range(len(labels))]
  return [] if is_default else labels


def read_tokens(path: str) -> list[str]:
  """Reads a vocab.txt, one token a line; a ValueError if it is empty."""
  tokens = list(files.read_lines(path))
  if not any(tokens):
    raise ValueError(f"{path}: empty; expected one token a line")
  tokens[0] = tokens[0].removeprefix("\ufeff")
  return tokens


def read_vocabulary(folder: str) -> list[str] | None:
  """Returns the tokens of vocab.txt or, without it, of tokenizer.json.

  Returns:
    The tokens by id, with those added later; None if there is neither file.

  Raises:
    ValueError: tokenizer.json is not that of a WordPiece vocabulary.
  """
  for name in ("vocab.txt", "vocabulary.txt"):  # The latter is KerasHub's.
    path = os.path.join(folder, name)
    if files.exists(path):
      tokens = read_tokens(path)
      return tokens + vocabulary_table.added_tokens(folder, len(tokens))
  path = os.path.join(folder, "tokenizer.json")
  if not files.exists(path):
    return None
  contents = files.read_json(path)
  model = contents.get("model")
  try:
    prefix = model.get("continuing_subword_prefix", "##")
    if (model.get("type", "WordPiece"), prefix) != ("WordPiece", "##"):
      raise ValueError
    ids = dict(model["vocab"])
    added = {t["content"]: t["id"] for t in contents.get("added_tokens") or []}
    vocabulary_table.note_added(added)
    ids |= added
    tokens = {id_: token for token, id_ in ids.items()}
    size = max(tokens) + 1
    if min(tokens) < 0 or size > 2 * len(tokens) + 1000:
      raise ValueError
    # An id without a token gets a name that no text has: it holds spaces.
    return [tokens.get(id_, f"[no token {id_}]") for id_ in range(size)]
  except (KeyError, TypeError, ValueError, AttributeError):
    raise ValueError(
      f"{path}: does not hold the vocabulary of a BERT (model: of type "
      "WordPiece with the prefix ##; its vocab: tokens and their ids)"
    ) from None


def write(
  folder: str,
  config: modeling.BertConfig,
  head: str,
  values: Mapping[str, np.ndarray],
  do_lower_case: bool,
  **settings: Any,
) -> list[str]:
  """Writes a folder for a class of transformers: all but the vocabulary.

  Args:
    folder: there already.
    head: a key of `architecture.HEADS`: what goes to model.safetensors.
    values: by Google's names.
    **settings: to add to config.json.

  Returns:
    The names in google_only.safetensors.
  """
  known = architecture.variables(config, head)
  # A BertModel by itself has no "bert." before its names.
  prefix = "bert." if head == "encoder" else ""
  tensors = {
    to_theirs(name).removeprefix(prefix): values[name].T
    if name.endswith("/kernel")
    else values[name]
    for name in known
  }
  path = os.path.join(folder, WEIGHTS)
  # transformers asks for the format before it reads.
  safetensors_files.write(path, tensors, {"format": "pt"})
  rest = {name: values[name] for name in sorted(set(values) - set(known))}
  if rest:
    belongs_to = {_BELONGS_TO: files.hash_file(path)}
    path = os.path.join(folder, GOOGLE_ONLY)
    safetensors_files.write(path, rest, belongs_to)
  contents = {
    "architectures": [architecture.HEADS[head].architecture],
    "model_type": "bert",
    **json.loads(config.to_json_string()),
    "hidden_act": ACTIVATIONS.get(config.hidden_act, config.hidden_act),
    "layer_norm_eps": 1e-12,
    "position_embedding_type": "absolute",
    "tie_word_embeddings": True,
    **settings,
  }
  files.write_json(os.path.join(folder, CONFIG), contents)
  special = ("unk", "sep", "pad", "cls", "mask")
  contents = {
    "tokenizer_class": "BertTokenizer",
    "do_lower_case": do_lower_case,
    "model_max_length": config.max_position_embeddings,
    "strip_accents": None,
    "tokenize_chinese_chars": True,
    **{f"{name}_token": f"[{name.upper()}]" for name in special},
  }
  files.write_json(os.path.join(folder, "tokenizer_config.json"), contents)
  return list(rest)
