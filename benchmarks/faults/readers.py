"""What a child does to a folder or a file: it needs TensorFlow at work.

readers.py restore OUT WHOLE: the newest good checkpoint, against a whole run.
readers.py records FILE...: all records, as training reads them.
readers.py write FOLDER: an output folder with checkpoints 30 and 40.
"""

import json
import pathlib
import sys

import numpy as np
import tensorflow as tf

from bert.inputs import records, training_input
from bert.weights import checkpoints
import tiny
import tiny_models


def restore(out: str, whole: str) -> None:
  """Prints which checkpoint it got, if that is the whole run's of its step.

  Args:
    out: a folder whose checkpoint of step 40 is damaged.
    whole: the output folder of the same run without a fault.
  """
  shapes = checkpoints.open_weights(f"{whole}/model.ckpt-40").shapes
  variables = {
    name: tf.Variable(
      tf.zeros(shape, tf.int64 if name == "global_step" else tf.float32)
    )
    for name, shape in shapes.items()
  }

  # Restoring and finding have to agree, and every value is compared.
  step = checkpoints.restore(out, variables)
  prefix = checkpoints.find_checkpoint(out)
  assert prefix == f"{out}/model.ckpt-{step}", (prefix, step)
  for name, value in checkpoints.read(f"{whole}/model.ckpt-{step}"):
    np.testing.assert_array_equal(variables[name].numpy(), value, name)

  # This process prints to the log itself: the fall-back is said there, once.
  text = pathlib.Path(f"{out}/../read.log").read_text()
  if step == 40:
    assert not text.count("; trying"), text
    print("unharmed: the bit has no use")
  else:
    line = f"; trying {out}/model.ckpt-{step}\n"
    assert step == 30 and text.count(line) == 1, text
    assert text.startswith(f"{out}/model.ckpt-40"), text
    print("fell back")


def read_records(paths: list[str]) -> None:
  """Prints the line in which a training would end, or how many there are."""
  # The parts of an input that name a bad record.
  spec = records.pretraining_spec(tiny.SEQUENCE, tiny.PREDICTIONS)
  source = training_input.TrainingInput(
    rows=None,
    parse=None,
    describe_row=None,
    find_fault=lambda: records.find_fault(paths, spec, {}),
  )

  # As a training reads: lengths before it begins, then the records.
  try:
    records.check_files(paths, spec, {})
    with training_input.naming_bad_record(source.find_fault):
      rows = records.training_dataset(paths, seed=1).take(300)
      contents = sorted(row.numpy() for _, row in rows)
  except ValueError as error:
    print(f"error: {error}")
    return

  # 300 records, as `damages.damage_records` wrote them.
  good = [tiny.make_values(number) for number in range(300)]
  assert contents == sorted(map(tiny.encode, good))
  print("unharmed")


def write(name: str) -> None:
  """Writes what fill_mask.py and others read."""
  folder = pathlib.Path(name)
  folder.mkdir()
  model = tiny_models.write_masked_lm(folder)
  for path in folder.glob("*ckpt-0*"):
    path.unlink()
  for step in (30, 40):
    checkpoints.save(name, step, checkpoints.model_variables(model), 0)
  (folder / "texts.txt").write_text("the film was good\n")
  json.loads((folder / "config.json").read_text())


if __name__ == "__main__":
  what, *arguments = sys.argv[1:]
  if what == "restore":
    restore(*arguments)
  elif what == "records":
    read_records(arguments)
  else:
    write(*arguments)
