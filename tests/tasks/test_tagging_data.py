"""Sentences as feature files, the labels of a model, and predictions."""

import json
import types

import numpy as np
import pytest
import tensorflow as tf

from bert.tasks import tagging, tagging_data
import tiny

LABELS = ("O", "B-LOC", "I-LOC", "B-PER", "I-PER")


def open_set(folder, kind, numbers, **others):
  """Returns a set whose features are made."""
  tiny.write_model(folder)
  path = str(tiny.write_tags(folder / f"{kind}.txt", numbers))
  settings = tagging_data.TaggingFeatureSettings(
    str(folder / "vocab.txt"), True, 16, False, LABELS, "iob2"
  )
  source = tagging.inspect_file(path, 0, -1, "auto", True)
  examples = tagging_data.find_set(kind, source, settings, **others)
  tagging_data.make_features(examples, str(folder))
  return examples


def test_records_are_padded(tmp_path):
  words = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "a"]
  (tmp_path / "vocab.txt").write_text("\n".join(words) + "\n")
  path = tmp_path / "train.txt"
  path.write_text("a B-X\n")
  settings = tagging_data.TaggingFeatureSettings(
    str(tmp_path / "vocab.txt"), True, 5, False, ("O", "B-X", "I-X"), "iob2"
  )
  source = tagging.Source(str(path))
  examples = tagging_data.find_set("train", source, settings)
  tagging_data.make_features(examples, str(tmp_path))
  [record] = examples.features.read([0])
  found = tf.train.Example.FromString(record).features.feature
  values = {name: list(v.int64_list.value) for name, v in found.items()}
  assert values == {
    "input_ids": [2, 4, 3, 0, 0],
    "input_mask": [1, 1, 1, 0, 0],
    "segment_ids": [0, 0, 0, 0, 0],
    "label_ids": [0, 1, 0, 0, 0],
    "label_mask": [0, 1, 0, 0, 0],
  }


def choose(folder, head, train=None):
  sources = {"train": train} if train else {}
  settings = types.SimpleNamespace(
    labels_file=str(folder / "labels.txt"), tag_scheme="auto"
  )
  return tagging_data.choose_labels(sources, settings, head)


def test_labels_have_the_order_of_the_head_to_start_from(tmp_path, capsys):
  train = tagging.Source(
    str(tiny.write_tags(tmp_path / "train.txt", range(9))), scheme="iob1"
  )
  assert choose(tmp_path, (), train) == (LABELS, "iob2")
  head = LABELS[::-1]
  assert choose(tmp_path, head, train) == (head, "iob2")
  assert "labels in the order of --init_checkpoint" in capsys.readouterr().out
  # Later runs in the folder keep it, and predictions need no training file.
  (tmp_path / "labels.txt").write_text("\n".join(head) + "\n")
  assert choose(tmp_path, (), train) == (head, "iob2")
  (tmp_path / "labels.txt").unlink()
  assert choose(tmp_path, head) == (head, "iob2")
  message = "has a head for the labels O, B-ORG; th"
  with pytest.raises(ValueError, match=message):
    choose(tmp_path, ("O", "B-ORG"), train)


def test_a_file_that_changes_during_the_run_is_refused(tmp_path):
  examples = open_set(tmp_path, "predict", range(4))
  outputs = tagging_data.Outputs([["O"] * 6] * 4, 0.0)
  tiny.write_tags(tmp_path / "predict.txt", range(1, 5))
  changed = "predict.txt: changed while the program ran"
  with pytest.raises(ValueError, match=changed):
    tagging_data.write_predictions(str(tmp_path), examples, outputs.labels)
  with pytest.raises(ValueError, match=changed):
    tagging_data.score(examples, outputs)
  assert not list(tmp_path.glob("predictions*"))


def test_training_can_be_limited_to_the_first_sentences(tmp_path):
  examples = open_set(tmp_path, "train", range(20), limit=3)
  facts = examples.features.facts
  assert (len(examples.features), facts["sentences"]) == (3, 3)
  assert examples.describe(1) == f"{tmp_path / 'train.txt'}:10"
  whole = open_set(tmp_path, "train", range(20))
  assert len(whole.features) == 20 and whole.key != examples.key
  others = open_set(tmp_path, "eval", range(20), limit=3)
  assert len(others.features) == 20


@pytest.mark.parametrize(
  ("labels", "scheme", "tags", "expected"),
  [
    (("DT", "NN"), "none", "O", "DT"),
    (("O", "B-X", "M-X", "E-X", "S-X"), "bmes", "O", "O"),
    (("O", "B-X", "M-X", "E-X", "S-X"), "bmes", "S-X", "O"),
    (("O", "B-X", "I-X"), "iob2", "O", "O"),
    (("B-X", "I-X"), "iob2", "S-X", "S-X"),
  ],
)
def test_predictions_are_in_the_scheme_of_the_file_if_it_tells(
  tmp_path, labels, scheme, tags, expected
):
  tiny.write_model(tmp_path)
  path = tmp_path / "predict.txt"
  path.write_text(f"the {tags}\n\nfilm {tags}\n")
  settings = tagging_data.TaggingFeatureSettings(
    str(tmp_path / "vocab.txt"), True, 16, False, labels, scheme
  )
  source = tagging.inspect_file(str(path), 0, -1, "auto", False)
  examples = tagging_data.find_set("predict", source, settings)
  tagging_data.make_features(examples, str(tmp_path))
  assert len(examples.features) == 2
  results = {"predicted": np.array([[-1, 0], [-1, 0]])}
  results |= {"losses": np.array([1.0, 2.0]), "known": np.array([1, 1])}
  outputs = tagging_data.read_outputs(examples, results)
  assert outputs == ([[labels[0]]] * 2, 1.5)
  tagging_data.write_predictions(str(tmp_path), examples, outputs.labels)
  written = (tmp_path / "predictions.txt").read_text().split()
  assert written[2::3] == [expected, expected]


def describe(folder, words, labels, scheme):
  """Returns the row of one sentence in predictions.jsonl."""
  tiny.write_model(folder)
  path = folder / "predict.txt"
  path.write_text("\n".join(words.split()) + "\n")
  settings = tagging_data.TaggingFeatureSettings(
    str(folder / "vocab.txt"), True, 16, False, tuple(labels.split()), scheme
  )
  source = tagging.Source(str(path), scheme=scheme, is_tagged=False)
  examples = tagging_data.find_set("predict", source, settings)
  tagging_data.write_predictions(str(folder), examples, [labels.split()])
  return json.loads((folder / "predictions.jsonl").read_text())


def test_spans_have_offsets_into_the_text(tmp_path):
  assert describe(tmp_path, "A d Z", "B-X I-X B-Y", "iob2") == {
    "id": 0,
    "text": "AdZ",
    "entities": [
      {"type": "X", "start": 0, "end": 2, "text": "Ad"},
      {"type": "Y", "start": 2, "end": 3, "text": "Z"},
    ],
  }
  assert describe(tmp_path, "the cat", "DT NN", "none") == {
    "id": 0,
    "text": "the cat",
    "words": [
      {"label": "DT", "start": 0, "end": 3, "text": "the"},
      {"label": "NN", "start": 4, "end": 7, "text": "cat"},
    ],
  }


def test_one_longer_word_anywhere_makes_words_of_a_file(tmp_path):
  """Texts are then split as in the training, wherever that word was."""
  path = tmp_path / "zh.txt"
  characters = "\u4e2d O\n\u56fd O\n\n" * 1001
  for rest, expected in (("", True), ("IBM B-ORG\n", False)):
    path.write_text(characters + rest, encoding="utf-8")
    source = tagging.inspect_file(str(path), 0, -1, "auto", True)
    assert tagging_data.is_by_character(source) == expected
