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
# Older versions wrote no encoder_type. A config with one of these fields is of
# the encoder that is named here.
_OLD_CONFIGS = {
  "causal_attention": "variant",
  "embedding_layer_norm": "variant",
}
_POLICIES = ("float32", "mixed_bfloat16", "mixed_float16")


def find_encoder(name: str) -> EncoderClasses:
  """Returns the classes of an encoder; a ValueError if it does not exist."""
  # The name may come from a file, and be of any type.
  if isinstance(name, str) and name in ENCODERS:
    return ENCODERS[name]
  if name not in EXTRAS:
    known = ", ".join([*ENCODERS, *EXTRAS])
    raise ValueError(f"encoder_type is {name!r:.80}; known: {known}")

  # Modules of contrib are imported only when a config asks for them.
  return EncoderClasses(
    imports.find_extra(name, "CONFIG_CLASS"),
    imports.find_extra(name, "MODEL_CLASS"),
  )


def make_config(fields: dict[str, Any]) -> modeling.EncoderConfig:
  """Makes the config of any encoder; a ValueError names what is wrong.

  Args:
    fields: the content of a bert_config.json, of this or an older version.
  """
  # A file without an encoder_type is of a Transformer, unless an older version
  # of this project wrote it.
  name = "transformer"
  for field, encoder_type in _OLD_CONFIGS.items():
    if field in fields:
      name = encoder_type
      break

  config_class = find_encoder(fields.get("encoder_type", name)).config_class
  fields = fields | {"encoder_type": config_class.encoder_type}
  return config_class.from_dict(fields)


def make_encoder(
  config: modeling.EncoderConfig, dtype: str | None = None, name: str = "bert"
) -> modeling.BertModel:
  """Makes the encoder of a config.

  Args:
    config: of any encoder; its class decides which.
    dtype: "float32", "mixed_bfloat16" or "mixed_float16"; None: the policy of
      `keras.config`. A ValueError names any other.
    name: the first part of every variable's path.
  """
  # Keras knows more policies; the encoders support these.
  policy = keras.dtype_policies.get(dtype).name
  if policy not in _POLICIES:
    raise ValueError(f"dtype is {policy}; known: {', '.join(_POLICIES)}")
  encoder = find_encoder(config.encoder_type or "transformer")
  return encoder.model_class(config, dtype, name)
