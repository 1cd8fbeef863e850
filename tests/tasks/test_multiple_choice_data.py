"""Questions with choices as feature files."""

from inputs import feature_files
from tasks import multiple_choice_data
import tiny


def open_set(folder, kind, numbers, **others):
  """Returns a set whose features are made."""
  tiny.write_model(folder)
  path = folder / f"{kind}.csv"
  tiny.write_swag(path, numbers)
  settings = feature_files.FeatureSettings(
    str(folder / "vocab.txt"), True, max_seq_length=16
  )
  examples = multiple_choice_data.find_set(kind, str(path), settings, **others)
  multiple_choice_data.make_features(examples, str(folder))
  return examples


def test_training_can_be_limited_to_the_first_questions(tmp_path):
  examples = open_set(tmp_path, "train", range(20), max_train_examples=3)
  assert len(examples.features) == examples.features.counts["labelled"] == 3
  assert examples.describe(2).endswith("train.csv:4")
  whole = open_set(tmp_path, "train", range(20))
  assert len(whole.features) == 20 and whole.key != examples.key
  others = open_set(tmp_path, "eval", range(20), max_train_examples=3)
  assert len(others.features) == 20
