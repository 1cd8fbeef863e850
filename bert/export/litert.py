"""A trained model as a graph of LiteRT, for one input of the full length."""

import os
import warnings

import tensorflow as tf

from bert.data import files, remote
from bert.export import model_functions
from bert.serving import export_card, exported_model

_FILE = "model.tflite"


def save(
  folder: str,
  functions: model_functions.ModelFunctions,
  quantizes: bool = False,
) -> None:
  """Writes the graph as model.tflite.

  Args:
    folder: to write to.
    functions: of the model.
    quantizes: is False, as this format has no products of int8.

  Raises:
    ValueError: TensorFlow cannot convert the graph.
  """
  # One input of the full length is the only shape that the graph takes.
  specs = functions.input_specs(has_one_shape=True)
  serve = tf.function(functions.compute, specs)
  converter = tf.lite.TFLiteConverter.from_concrete_functions(
    [serve.get_concrete_function()],
    model_functions.Variables(functions.trained.model),
  )

  try:
    content = converter.convert()
  except Exception as error:
    # The converter has no class of errors of its own, and long texts.
    lines = [line for line in str(error).splitlines() if line.strip()]
    raise ValueError(
      f"--format=litert: TensorFlow cannot convert this model: {lines[0]}"
    ) from error
  files.write_bytes(os.path.join(folder, _FILE), content)


def load(folder: str, card: export_card.Card) -> exported_model.Run:
  """Opens a new export, to compare it."""
  with warnings.catch_warnings():
    # TensorFlow's interpreter is to become a package of its own.
    warnings.simplefilter("ignore")
    path = remote.local_copy(os.path.join(folder, _FILE))
    interpreter = tf.lite.Interpreter(path)
  compute = interpreter.get_signature_runner()
  return lambda inputs: compute(**inputs)
