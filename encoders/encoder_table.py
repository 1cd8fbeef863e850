"""The table of encoders: a config file names one by its `encoder_type`."""

import importlib
from typing import Any, NamedTuple

from encoders import compiled, other_encoders
import modeling


class EncoderClasses(NamedTuple):
  """The two classes of an encoder; docs/encoders.md says what they need."""

  config_class: type[modeling.EncoderConfig]
  model_class: type[modeling.BertModel]


ENCODERS = {
  "transformer": EncoderClasses(modeling.BertConfig, compiled.BertModel),
  "text_cnn": EncoderClasses(
    other_encoders.TextCnnConfig, other_encoders.TextCnnModel
  ),
  "bilstm": EncoderClasses(
    other_encoders.BiLstmConfig, other_encoders.BiLstmModel
  ),
}
# The fields of a Transformer that may be causal; any of them names the encoder.
_VARIANT = ("causal_attention", "layer_norm_eps", "embedding_layer_norm")


def find_encoder(name: str) -> EncoderClasses:
  """Returns the classes of an encoder; a ValueError if it does not exist.

  Those of contrib are `CONFIG_CLASS` and `MODEL_CLASS` of a module of its name.
  """
  if isinstance(name, str) and name in ENCODERS:
    return ENCODERS[name]
  try:
    module = importlib.import_module(f"contrib.{name}")
    return EncoderClasses(module.CONFIG_CLASS, module.MODEL_CLASS)
  except (ImportError, AttributeError):
    raise ValueError(
      f"encoder_type is {name!r:.80}; known: {', '.join(ENCODERS)}"
    ) from None


def make_config(fields: dict[str, Any]) -> modeling.EncoderConfig:
  """Makes the config of any encoder; a ValueError names what is wrong."""
  is_variant = any(name in fields for name in _VARIANT)
  name = fields.get("encoder_type", "variant" if is_variant else "transformer")
  config_class = find_encoder(name).config_class
  return config_class.from_dict(
    fields | {"encoder_type": config_class.encoder_type}
  )


def make_encoder(
  config: modeling.EncoderConfig, dtype: str = "float32"
) -> modeling.BertModel:
  """Makes the encoder of a config; arguments as of `modeling.BertModel`."""
  encoder = find_encoder(config.encoder_type or "transformer")
  return encoder.model_class(config, dtype)


def is_causal(config: modeling.EncoderConfig) -> bool:
  """Returns whether tokens see only the tokens before them, as in GPT."""
  return getattr(config, "causal_attention", False)


def layer_norm_epsilon(config: modeling.EncoderConfig) -> float:
  """Returns the number that layer normalisation adds to variances."""
  return getattr(config, "layer_norm_eps", modeling.LAYER_NORM_EPSILON)
