"""A trained model as a graph of LiteRT, for one input of the full length."""

from collections.abc import Callable, Mapping
import os
import warnings

import numpy as np
import tensorflow as tf

from bert.data import files, remote
from bert.export import signatures
from bert.serving import export_card

_FILE = "model.tflite"


def save(folder: str, graph: signatures.Graph, quantizes: bool = False) -> None:
  """Writes the graph; a ValueError if TensorFlow cannot convert it."""
  specs = graph.input_specs(has_one_shape=True)
  serve = tf.function(graph.compute, specs)
  converter = tf.lite.TFLiteConverter.from_concrete_functions(
    [serve.get_concrete_function()],
    signatures.Variables(graph.trained.model),
  )
  try:
    content = converter.convert()
  except Exception as error:
    lines = [line for line in str(error).splitlines() if line.strip()]
    raise ValueError(
      f"--format=litert: TensorFlow cannot convert this model: {lines[0]}"
    ) from error
  files.write_bytes(os.path.join(folder, _FILE), content)


def load(
  folder: str, card: export_card.Card
) -> Callable[[Mapping[str, np.ndarray]], Mapping[str, np.ndarray]]:
  """Returns the function from named inputs to named outputs."""
  with warnings.catch_warnings():
    # TensorFlow's interpreter is to become a package of its own.
    warnings.simplefilter("ignore")
    path = remote.local_copy(os.path.join(folder, _FILE))
    interpreter = tf.lite.Interpreter(path)
  compute = interpreter.get_signature_runner()
  return lambda inputs: compute(**inputs)
