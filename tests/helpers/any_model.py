"""Models of any library: written, opened as the programs do, and converted."""

import json
import pathlib

import numpy as np
import tensorflow as tf

from bert import convert_checkpoint, heads, modeling
from bert.cli import model_folder
from bert.convert import conversion
from bert.weights import checkpoints
import program_flags

# The models in tests/fixtures that the tests compare with have these sizes.
SIZES = {
  "vocab_size": 30,
  "hidden_size": 8,
  "num_hidden_layers": 2,
  "num_attention_heads": 2,
  "intermediate_size": 12,
  "max_position_embeddings": 12,
}
CONFIG = modeling.BertConfig(**SIZES, type_vocab_size=2)
TOKENS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
TOKENS += [f"word{number}" for number in range(25)]


def make_inputs():
  """Returns ids, mask and segments; each row is padded from another place."""
  source = np.random.default_rng(1)
  mask = np.arange(12) < np.array([[12], [7], [3]])
  ids = source.integers(5, 30, [3, 12]) * mask
  segments = (np.arange(12) >= 4) & mask
  return [np.int32(x) for x in (ids, mask, segments)]


def assert_near(ours, theirs, rows=slice(None), atol=1e-5):
  """Compares outputs, which differ from each other, with another library's."""
  ours = np.asarray(ours)
  theirs = np.asarray(theirs)

  # Two models that both answer nearly constants would agree, too.
  assert np.std(theirs) > 0.1
  assert ours.shape == theirs.shape
  np.testing.assert_allclose(ours[rows], theirs[rows], atol=atol, rtol=1e-5)


def draw(variables):
  """Adds large random numbers to variables, biases included."""
  source = np.random.default_rng(2)
  for variable in variables:
    variable.assign(variable + source.normal(0, 0.3, variable.shape))


def write_google(
  folder, model=None, config=CONFIG, tokens=TOKENS, slots=(), **texts
):
  """Writes a checkpoint of step 7 and the files beside it.

  Args:
    folder: to write to.
    model: whose variables get random numbers; a `PretrainingModel` of `config`
      if None.
    config: of the model.
    tokens: of vocab.txt.
    slots: names of the optimizer's variables for each variable, such as adam_m.
    **texts: contents of more files: labels_txt becomes labels.txt.

  Returns:
    What the checkpoint holds.
  """
  folder = pathlib.Path(folder)
  folder.mkdir(exist_ok=True)
  model = model or heads.PretrainingModel(config)
  variables = dict(checkpoints.model_variables(model))
  draw(variables.values())
  source = np.random.default_rng(1)
  for name, variable in list(variables.items()):
    for slot in slots:
      drawn = source.normal(size=variable.shape).astype("f4")
      variables[f"{name}/{slot}"] = tf.Variable(drawn)
  if slots:
    variables["global_step"] = tf.Variable(7, dtype=tf.int64)
  prefix = checkpoints.save(str(folder), 7, variables, keep=1)
  (folder / "bert_config.json").write_text(config.to_json_string())
  (folder / "vocab.txt").write_text("\n".join(tokens) + "\n")
  for name, text in texts.items():
    (folder / name.replace("_", ".")).write_text(text)
  return dict(checkpoints.read(prefix))


def edit_json(path, **fields):
  """Changes fields of a JSON file; "drop" removes one."""
  contents = json.loads(path.read_text()) | fields
  contents = {k: v for k, v in contents.items() if v != "drop"}
  path.write_text(json.dumps(contents))


def convert(**values):
  """Runs convert_checkpoint.py in this process."""
  return program_flags.run_main(
    convert_checkpoint, convert_checkpoint.ConversionSettings, **values
  )


def read(path, bert_config_file=None, **overrides):
  """Returns the `models.Model` of a folder or a prefix."""
  folder = model_folder.open_model(str(path), bert_config_file)
  return conversion.read(folder, **overrides)


def values(path):
  """Returns all values by Google's names."""
  weights = model_folder.open_model(str(path)).weights
  return {name: weights.read(name) for name in weights.shapes}


def load(path, model, optional=lambda name: False):
  """Loads weights into a model; returns `fitting.Differences`."""
  weights = model_folder.open_model(str(path)).weights
  return checkpoints.assign(
    weights, checkpoints.model_variables(model), optional
  )
