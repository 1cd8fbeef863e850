"""Models of other names whose encoder is a BERT's: ELECTRA, DistilBERT.

What differs is said here in two tables, from their names to BERT's: of the
fields of config.json and of the variables. BERT-wwm, RoBERTa-wwm-ext and
MacBERT need no table: they are BERTs, in files and in name.
"""

from collections.abc import Callable
from collections.abc import Mapping
from collections.abc import Sequence
import functools
import re
from typing import Any, NamedTuple

import numpy as np

from weights import readers


class Relative(NamedTuple):
  """A model as transformers has it."""

  fields: Mapping[str, str]  # Of config.json, to those of BERT's.
  names: tuple[tuple[str, str], ...]  # Of variables: patterns, replacements.


RELATIVES = {
  "electra": Relative(
    {},
    (
      (r"^electra\.", "bert."),
      (r"^(embeddings|embeddings_project|encoder)\.", r"bert.\1."),
      (r"^bert\.embeddings_project\.", "bert.embeddings.project."),
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
REFUSED = {
  "albert": "its layers share weights, its tokens are SentencePiece's",
  **dict.fromkeys(
    ("roberta", "xlm-roberta", "camembert", "deberta", "deberta-v2"),
    _BYTE_PAIRS,
  ),
  "mobilebert": "its layers have bottlenecks",
}


def refuse(path: str, model_type: Any) -> None:
  """Refuses a relative that is too different.

  Raises:
    ValueError: with the reason.
  """
  reason = REFUSED.get(model_type) if isinstance(model_type, str) else None
  if reason:
    raise ValueError(f"{path}: model_type is {model_type!r}: {reason}")


def to_bert_settings(settings: Mapping[str, Any]) -> dict[str, Any]:
  """Returns the config.json of the BERT that a relative's encoder is."""
  model_type = settings.get("model_type")
  if not isinstance(model_type, str) or model_type not in RELATIVES:
    return dict(settings)
  relative = RELATIVES[model_type]
  fields = {relative.fields.get(k, k): v for k, v in settings.items()}
  fields["model_type"] = "bert"
  if fields.get("embedding_size") == fields.get("hidden_size"):
    fields.pop("embedding_size", None)
  return fields


def to_bert_name(model_type: str, name: str) -> str:
  """Returns what transformers' BERT calls a variable of a relative's."""
  relative = RELATIVES.get(model_type)
  for pattern, replacement in relative.names if relative else ():
    name = re.sub(pattern, replacement, name)
  return name


def open_electra(
  shapes: Mapping[str, Sequence[int]], read: Callable[[str], np.ndarray]
) -> readers.Reader:
  """Wraps a checkpoint of google-research/electra.

  The discriminator becomes the encoder. The checkpoint does not say how many
  heads it has: a bert_config.json has to.
  """
  places, unread = {}, []
  for name, shape in shapes.items():
    if name.startswith("electra/") and not readers.STATE.search(name):
      ours = name.replace("electra/", "bert/", 1)
      ours = ours.replace("/embeddings_project/", "/embeddings/project/")
      places[ours] = readers.Place(functools.partial(read, name), tuple(shape))
    else:
      unread.append(name)
  return readers.Reader("google-research/electra", places, unread=unread)
