"""Translates the config.json of a BERT of Hugging Face."""

import dataclasses
from typing import Any

import modeling

# Names of activations. Their "gelu" is not Google's, which is the tanh form.
ACTIVATIONS = {
  "gelu": "gelu_erf",
  "gelu_python": "gelu_erf",
  "gelu_pytorch_tanh": "gelu",
  "gelu_new": "gelu",
  "gelu_fast": "gelu",
  "linear": "linear",
  "relu": "relu",
  "tanh": "tanh",
}

# Settings that change what a model computes: the values of a BERT, which are
# also the defaults.
_SETTINGS = {
  "model_type": "bert",
  "add_cross_attention": False,
  "is_decoder": False,
  "is_encoder_decoder": False,
  "layer_norm_eps": modeling.LAYER_NORM_EPSILON,
  "position_embedding_type": "absolute",
  "pruned_heads": {},
  "quantization_config": None,
  "tie_word_embeddings": True,
}


def to_bert_config(fields: dict[str, Any]) -> modeling.BertConfig:
  """Makes a config from the contents of a config.json.

  Raises:
    ValueError: it is not of a BERT, or a value is out of range.
  """
  for name, expected in _SETTINGS.items():
    if fields.get(name, expected) != expected:
      raise ValueError(
        f"{name} is {fields[name]!r:.80}; this BERT has {expected!r} only"
      )
  name = fields.get("hidden_act", "gelu")
  if not isinstance(name, str) or name not in ACTIVATIONS:
    raise ValueError(
      f"hidden_act is {name!r:.80}; known of Hugging Face's: "
      f"{', '.join(ACTIVATIONS)}"
    )
  # The rest is about training, generating text or naming labels.
  known = {field.name for field in dataclasses.fields(modeling.BertConfig)}
  kept = {name: value for name, value in fields.items() if name in known}
  kept.setdefault("type_vocab_size", 2)  # Its default is not Google's.
  return modeling.BertConfig.from_dict(kept | {"hidden_act": ACTIVATIONS[name]})
