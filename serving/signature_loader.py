"""Calls the signatures of a SavedModel."""

import tensorflow as tf

try:
  import tensorflow_text  # noqa: F401  Operations of the graphs with tokenizer.
except ImportError as error:
  raise ImportError(
    "the export's graph holds operations of tensorflow-text: pip install -r "
    f"requirements.txt ({error})"
  ) from None


class Signatures:
  """The signatures of a SavedModel.

  `tf.saved_model.load` makes functions of all of them. A loader that imported
  only those that are called took 2.5 s of CPU time instead of 3.0 for a
  BERT-Base (medians of 4 in turns, after importing TensorFlow): too little for
  its 200 lines.

  Args:
    folder: of the SavedModel.

  Raises:
    OSError, ValueError, tf.errors.OpError: it cannot be read.
  """

  def __init__(self, folder: str):
    try:
      # Without a reference to the model its variables would be deleted.
      self._model = tf.saved_model.load(folder)
    except (IndexError, RuntimeError) as error:  # Of weights cut short.
      raise ValueError(str(error)) from None

  def prepare(self, name: str, **inputs: tf.Tensor) -> None:
    """Makes the first call of a signature fast: its graph is optimized."""
    self(name, **inputs)

  def __call__(self, name: str, **inputs: tf.Tensor) -> dict[str, tf.Tensor]:
    """Calls a signature."""
    return self._model.signatures[name](**inputs)
