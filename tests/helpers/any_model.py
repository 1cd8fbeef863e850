"""Opens models of any library, as the programs do."""

from cli import model_folder
from convert import conversion
from weights import checkpoints


def read(path, bert_config_file=None, **overrides):
  """Returns the `conversion.Model` of a folder or a prefix."""
  folder = model_folder.open(str(path), bert_config_file)
  return conversion.read(folder, **overrides)


def values(path):
  """Returns all values by Google's names."""
  weights = model_folder.open(str(path)).weights
  return {name: weights.read(name) for name in weights.shapes}


def load(path, model, optional=lambda name: False):
  """Loads weights into a model; returns `checkpoints.Loaded`."""
  weights = model_folder.open(str(path)).weights
  return checkpoints.assign(
    weights, checkpoints.model_variables(model), optional
  )
