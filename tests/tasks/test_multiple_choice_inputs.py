"""Questions with choices as feature files."""

import pytest

from inputs import feature_files
from tasks import multiple_choice_inputs
import tiny


def open_split(folder, kind, numbers, **others):
  """Returns a split whose features are made."""
  tiny.write_model(folder)
  path = folder / f"{kind}.csv"
  tiny.write_swag(path, numbers)
  settings = feature_files.Settings(
    str(folder / "vocab.txt"), True, max_seq_length=16
  )
  split = multiple_choice_inputs.Split(
    kind, str(path), settings, str(folder), **others
  )
  assert len(split.features)
  return split


def test_a_file_that_changes_during_the_run_is_refused(tmp_path):
  split = open_split(tmp_path, "predict", range(4))
  tiny.write_swag(tmp_path / "predict.csv", range(1, 5))
  with pytest.raises(
    ValueError, match="predict.csv: changed while the program"
  ):
    list(split.examples())


def test_training_can_be_limited_to_the_first_questions(tmp_path):
  split = open_split(tmp_path, "train", range(20), max_train_examples=3)
  assert (len(split.features), split.features.facts["labelled"]) == (3, 3)
  assert split.describe(2).endswith("train.csv:4")
  whole = open_split(tmp_path, "train", range(20))
  assert len(whole.features) == 20 and whole.key != split.key
  others = open_split(tmp_path, "eval", range(20), max_train_examples=3)
  assert len(others.features) == 20
