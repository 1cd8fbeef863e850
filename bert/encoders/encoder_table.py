"""The table of encoders: a config file names one by its `encoder_type`."""

from typing import Any, NamedTuple

import keras

from bert import modeling
from bert.data import imports
from bert.encoders import compiled


class EncoderClasses(NamedTuple):
  """The two classes of an encoder; docs/encoders.md says what they need."""

  config_class: type[modeling.EncoderConfig]
  model_class: type[modeling.BertModel]


ENCODERS = {
  "transformer": EncoderClasses(modeling.BertConfig, compiled.BertModel)
}
# Modules of contrib, whose classes are CONFIG_CLASS and MODEL_CLASS.
EXTRAS = ("text_cnn", "bilstm", "variant")
# Fields that name the encoder of an old config, which has no encoder_type.
_OLD_CONFIGS = {
  "causal_attention": "variant",
  "embedding_layer_norm": "variant",
}
_POLICIES = ("float32", "mixed_bfloat16", "mixed_float16")


def find_encoder(name: str) -> EncoderClasses:
  """Returns the classes of an encoder; a ValueError if it does not exist."""
  if isinstance(name, str) and name in ENCODERS:
    return ENCODERS[name]
  if name not in EXTRAS:
    known = ", ".join([*ENCODERS, *EXTRAS])
    raise ValueError(f"encoder_type is {name!r:.80}; known: {known}")
  return EncoderClasses(
    imports.find_extra(name, "CONFIG_CLASS"),
    imports.find_extra(name, "MODEL_CLASS"),
  )


def make_config(fields: dict[str, Any]) -> modeling.EncoderConfig:
  """Makes the config of any encoder; a ValueError names what is wrong.

  This is the door for configs from before each but BERT's named its encoder.
  """
  old = (name for field, name in _OLD_CONFIGS.items() if field in fields)
  name = fields.get("encoder_type", next(old, "transformer"))
  kind = find_encoder(name).config_class
  return kind.from_dict(fields | {"encoder_type": kind.encoder_type})


def make_encoder(
  config: modeling.EncoderConfig, dtype: str | None = None, name: str = "bert"
) -> modeling.BertModel:
  """Makes the encoder of a config; arguments as of `modeling.BertModel`."""
  policy = keras.dtype_policies.get(dtype).name
  if policy not in _POLICIES:
    raise ValueError(f"dtype is {policy}; known: {', '.join(_POLICIES)}")
  encoder = find_encoder(config.encoder_type or "transformer")
  return encoder.model_class(config, dtype, name)
