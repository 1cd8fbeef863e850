"""Reads the bert_config.json of any encoder."""

from data import files
from encoders import encoder_table
import modeling


def read_config(path: str) -> modeling.EncoderConfig:
  """Reads a bert_config.json of any encoder.

  Raises:
    ValueError: with the path and the fault, if it is not a valid config.
  """
  fields = files.read_json(path)
  try:
    return encoder_table.make_config(fields)
  except (ValueError, RecursionError) as error:  # Deeply nested lists.
    raise ValueError(f"{path}: {error}") from error
