"""The table of encoders: a config file names one by its `encoder_type`."""

from typing import Any, NamedTuple

from data import files
from encoders import bilstm
from encoders import huggingface_config
from encoders import text_cnn
from encoders import variant
import modeling


class EncoderClasses(NamedTuple):
  """The two classes of an encoder; docs/encoders.md says what they need."""

  config_class: type[modeling.EncoderConfig]
  model_class: type[modeling.BertModel]


ENCODERS = {
  "transformer": EncoderClasses(modeling.BertConfig, modeling.BertModel),
  "text_cnn": EncoderClasses(text_cnn.TextCnnConfig, text_cnn.TextCnnModel),
  "bilstm": EncoderClasses(bilstm.BiLstmConfig, bilstm.BiLstmModel),
  "variant": EncoderClasses(variant.VariantConfig, variant.VariantModel),
}


def read_config(path: str) -> modeling.EncoderConfig:
  """Reads a bert_config.json of any encoder, or Hugging Face's config.json.

  Raises:
    ValueError: with the path and the fault, if it is not a valid config.
  """
  fields = files.read_json(path)
  try:
    return make_config(fields)
  except (ValueError, RecursionError) as error:  # Deeply nested lists.
    raise ValueError(f"{path}: {error}") from error


def make_config(fields: dict[str, Any]) -> modeling.EncoderConfig:
  """Makes a config from the contents of a file that `read_config` reads.

  Raises:
    ValueError: for an unknown encoder or key, or a value out of range.
  """
  if "model_type" in fields:
    return huggingface_config.to_bert_config(fields)
  is_variant = not variant.KEYS.isdisjoint(fields)
  name = fields.get("encoder_type", "variant" if is_variant else "transformer")
  if not isinstance(name, str) or name not in ENCODERS:
    raise ValueError(
      f"encoder_type is {name!r:.80}; known: {', '.join(ENCODERS)}"
    )
  config_class = ENCODERS[name].config_class
  return config_class.from_dict(
    fields | {"encoder_type": config_class.encoder_type}
  )


def make_encoder(
  config: modeling.EncoderConfig, dtype: str = "float32"
) -> modeling.BertModel:
  """Makes the encoder of a config; arguments as of `modeling.BertModel`."""
  encoder = ENCODERS[config.encoder_type or "transformer"]
  return encoder.model_class(config, dtype)
