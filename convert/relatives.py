"""Models of other names whose encoder is a BERT's: ELECTRA, DistilBERT.

What differs is said here in two tables, from their names to BERT's: of the
fields of config.json and of the variables. BERT-wwm, RoBERTa-wwm-ext and
MacBERT need no table: they are BERTs, in files and in name.
"""

from collections.abc import Mapping
import functools
from typing import Any, NamedTuple

from convert import readers
from weights import checkpoints


class Relative(NamedTuple):
  """A model as transformers has it."""

  fields: Mapping[str, str]  # From config.json to BERT's.
  names: readers.Renaming  # From variables to those of BERT's.


_RELATIVES = {
  "electra": Relative(
    {},
    (
      (r"^electra\.", "bert."),
      (r"^(bert\.)?embeddings_project\.", "bert.embeddings.project."),
    ),
  ),
  "distilbert": Relative(
    {
      "dim": "hidden_size",
      "hidden_dim": "intermediate_size",
      "n_layers": "num_hidden_layers",
      "n_heads": "num_attention_heads",
      "activation": "hidden_act",
      "dropout": "hidden_dropout_prob",
      "attention_dropout": "attention_probs_dropout_prob",
    },
    (
      (r"^(distilbert\.)?(embeddings|transformer)\.", r"bert.\2."),
      (r"^bert\.transformer\.", "bert.encoder."),
      (r"\.attention\.([qkv])_lin\.", r".attention.self.\1."),
      (r"\.self\.q\.", ".self.query."),
      (r"\.self\.k\.", ".self.key."),
      (r"\.self\.v\.", ".self.value."),
      (r"\.attention\.out_lin\.", ".attention.output.dense."),
      (r"\.sa_layer_norm\.", ".attention.output.LayerNorm."),
      (r"\.ffn\.lin1\.", ".intermediate.dense."),
      (r"\.ffn\.lin2\.", ".output.dense."),
      (r"\.output_layer_norm\.", ".output.LayerNorm."),
      (r"^vocab_transform\.", "cls.predictions.transform.dense."),
      (r"^vocab_layer_norm\.", "cls.predictions.transform.LayerNorm."),
      (r"^vocab_projector\.", "cls.predictions.decoder."),
    ),
  ),
}
_BYTE_PAIRS = "its tokens are byte pairs or SentencePiece's, not word pieces"
_REFUSED = {
  "albert": "its layers share weights, its tokens are SentencePiece's",
  "roberta": _BYTE_PAIRS,
  "xlm-roberta": _BYTE_PAIRS,
  "camembert": _BYTE_PAIRS,
  "deberta": _BYTE_PAIRS,
  "deberta-v2": _BYTE_PAIRS,
  "mobilebert": "its layers have bottlenecks",
}


def names(model_type: str) -> readers.Renaming:
  """Returns how to rename a relative's variables; nothing for a BERT."""
  return _RELATIVES[model_type].names if model_type in _RELATIVES else ()


def to_bert_settings(path: str, settings: Mapping[str, Any]) -> dict[str, Any]:
  """Returns the config.json of the BERT that a model's encoder is.

  Raises:
    ValueError: it is a relative that differs too much; the reason is given.
  """
  model_type = str(settings.get("model_type"))
  if model_type in _REFUSED:
    raise ValueError(
      f"{path}: model_type is {model_type!r}: {_REFUSED[model_type]}"
    )
  if model_type not in _RELATIVES:
    return dict(settings)
  renamed = _RELATIVES[model_type].fields
  fields = {renamed.get(k, k): v for k, v in settings.items()}
  fields["model_type"] = "bert"
  if fields.get("embedding_size") == fields.get("hidden_size"):
    fields.pop("embedding_size", None)
  return fields


def open_electra(
  weights: checkpoints.Weights, folder: str
) -> readers.ModelFolder:
  """Gives a checkpoint of google-research/electra Google's names.

  The discriminator becomes the encoder. The checkpoint does not say how many
  heads it has: a bert_config.json has to.
  """
  variables, unread = {}, []
  for name, shape in weights.shapes.items():
    if name.startswith("electra/") and not readers.STATE.search(name):
      ours = name.replace("electra/", "bert/", 1)
      ours = ours.replace("/embeddings_project/", "/embeddings/project/")
      load = functools.partial(weights.read, name)
      variables[ours] = readers.StoredVariable(load, shape)
    else:
      unread.append(name)
  return readers.ModelFolder(
    weights.source,
    (folder,),
    readers.make_weights(weights.source, variables, unread),
    library="google-research/electra",
    unread=tuple(map(readers.show, unread)),
  )
