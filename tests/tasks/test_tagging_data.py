"""Sentences as feature files, the labels of a model, and their scores."""

import random

import numpy as np
import pytest

import program_flags
from tasks import tagging, tagging_data
import tiny

LABELS = ("O", "B-LOC", "I-LOC", "B-PER", "I-PER")


def open_set(folder, kind, numbers, **others):
  """Returns a set whose features are made."""
  tiny.write_model(folder)
  path = str(tiny.write_tags(folder / f"{kind}.txt", numbers))
  settings = tagging_data.FeatureSettings(
    str(folder / "vocab.txt"), True, 16, False, LABELS, "iob2"
  )
  source = tagging.open_source(path, 0, -1, "auto", True)
  examples = tagging_data.find_set(kind, source, settings, **others)
  tagging_data.make_features(examples, str(folder))
  return examples


def choose(folder, head, train=None):
  sources = {"train": train} if train else {}
  labels_file = str(folder / "labels.txt")
  return tagging_data.choose_labels(sources, labels_file, "auto", head)


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
  examples = open_set(tmp_path, "train", range(20), max_train_examples=3)
  counts = examples.features.counts
  assert (len(examples.features), counts["sentences"]) == (3, 3)
  assert examples.describe(1) == f"{tmp_path / 'train.txt'}:10"
  whole = open_set(tmp_path, "train", range(20))
  assert len(whole.features) == 20 and whole.key != examples.key
  others = open_set(tmp_path, "eval", range(20), max_train_examples=3)
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
  settings = tagging_data.FeatureSettings(
    str(tmp_path / "vocab.txt"), True, 16, False, labels, scheme
  )
  source = tagging.open_source(str(path), 0, -1, "auto", False)
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


# Scores and predictions.


def make_sentence(words, tags):
  words, tags = tuple(words.split()), tuple(tags.split())
  return tagging.Sentence(words, tags, 0, "x", 1)


def test_entities_count_as_a_whole():
  true = [["B-PER", "I-PER", "O", "B-LOC"], ["B-LOC", "I-LOC"]]
  predicted = [["B-PER", "O", "B-ORG", "B-LOC"], ["B-LOC", "I-LOC"]]
  scores = tagging_data.score_labels(true, predicted, "iob2", 0.25)
  # PER: 1 true, 1 predicted, none right. ORG: only predicted. LOC: 2 right.
  assert scores.names == ["LOC", "ORG", "PER"]
  assert scores.report.support.tolist() == [2, 0, 1]
  assert scores.report.f1.tolist() == [1, 0, 0]
  assert scores.metrics == {
    "accuracy": pytest.approx(4 / 6),
    "f1": pytest.approx(4 / 7),
    "loss": 0.25,
    "precision": 0.5,
    "recall": pytest.approx(2 / 3),
  }


def test_no_entity_at_all():
  scores = tagging_data.score_labels([["O"]], [["O"]], "iob2", 0.0)
  assert scores.names == []
  assert (scores.metrics["f1"], scores.metrics["accuracy"]) == (0.0, 1.0)


# By seqeval 1.2.2: accuracy; precision, recall and F1 of the averages.
SEQEVAL = {
  "BI": (
    0.5796296296,
    (0.6097560976, 0.626566416, 0.6180469716),
    (0.6099737274, 0.6260243309, 0.6178120525),
    (0.6100330876, 0.626566416, 0.6181071518),
  ),
  "BIES": (
    0.5555555556,
    (0.6393088553, 0.6406926407, 0.64),
    (0.6407682192, 0.6417074029, 0.6399758173),
    (0.6426467848, 0.6406926407, 0.6404469631),
  ),
  "I": (
    0.6296296296,
    (0.5424242424, 0.5576323988, 0.5499231951),
    (0.541774132, 0.5592559177, 0.5498193553),
    (0.5410563793, 0.5576323988, 0.5486510081),
  ),
}


@pytest.mark.parametrize("prefixes", SEQEVAL)
def test_entity_scores_are_those_of_seqeval(prefixes):
  source = random.Random(0)
  tags = ["O"] + [f"{prefix}-{type}" for prefix in prefixes for type in "xyz"]

  def draw():
    n = len(tags)
    return [
      [tags[int(source.random() * n)] for _ in range(9)] for _ in "." * 60
    ]

  true, predicted = draw(), draw()
  for sentence in range(40):  # Some of it must be right.
    predicted[sentence][2:] = true[sentence][2:]
  report, types = tagging_data.entity_report(true, predicted)
  assert types == ["x", "y", "z"]
  accuracy, *averages = SEQEVAL[prefixes]
  assert report.accuracy == pytest.approx(accuracy, abs=1e-9)
  found = (report.micro, report.macro, report.weighted)
  for scores, expected in zip(found, averages, strict=True):
    assert scores == pytest.approx(expected, abs=1e-9)


def test_words_are_scored_if_there_is_no_scheme():
  true, predicted = [["NN", "DT"], ["VB"]], [["NN", "NN"], ["VB"]]
  scores = tagging_data.score_labels(true, predicted, "none", 1.0)
  assert scores.names == ["DT", "NN", "VB"]
  assert scores.report.f1.tolist() == [0, pytest.approx(2 / 3), 1]
  assert scores.metrics == {
    "accuracy": pytest.approx(2 / 3),
    "loss": 1.0,
    "macro_f1": pytest.approx(5 / 9),
  }


def describe(words, labels, scheme, separator):
  [row] = tagging_data.describe_sentences(
    [make_sentence(words, labels)], [labels.split()], scheme, separator
  )
  return row


def test_spans_have_offsets_into_the_text():
  assert describe("Al de Z", "B-X I-X B-Y", "iob2", "") == {
    "id": 0,
    "text": "AldeZ",
    "entities": [
      {"type": "X", "start": 0, "end": 4, "text": "Alde"},
      {"type": "Y", "start": 4, "end": 5, "text": "Z"},
    ],
  }
  assert describe("the cat", "DT NN", "none", " ") == {
    "id": 0,
    "text": "the cat",
    "words": [
      {"label": "DT", "start": 0, "end": 3, "text": "the"},
      {"label": "NN", "start": 4, "end": 7, "text": "cat"},
    ],
  }


def report(sentences, predicted, scheme):
  """Returns the section of report.html on sentences."""
  tags = [sentence.tags for sentence in sentences]
  scores = tagging_data.score_labels(tags, predicted, scheme, 0.25)
  return tagging_data.describe(sentences, predicted, scores)


def test_report_of_types_and_which_are_confused():
  sentences = [make_sentence("a b c", "B-PER I-PER O")]
  sentences.append(make_sentence("d", "B-LOC"))
  predicted = [["B-PER", "I-PER", "B-LOC"], ["B-PER"]]
  text = report(sentences, predicted, "iob2")
  assert program_flags.rows_of(text, "By label") == [
    ["LOC", "0.0000", "0.0000", "0.0000", "1"],
    ["PER", "0.5000", "1.0000", "0.6667", "1"],
  ]
  assert program_flags.rows_of(text, "Confusion matrix") == [
    ["LOC", "0", "0", "1"],
    ["O", "1", "0", "0"],
    ["PER", "0", "0", "2"],
  ]
  text = report([make_sentence("a b", "A-1 B-1")], [["B-1", "B-1"]], "none")
  assert program_flags.rows_of(text, "Confusion matrix") == [
    ["A-1", "0", "1"],
    ["B-1", "0", "1"],
  ]
