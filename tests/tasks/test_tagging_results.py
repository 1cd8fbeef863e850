"""Scores of labels of words, the spans of entities, and the report on them."""

import random

import pytest

from bert.tasks import tagging, tagging_results
import report_tables


def make_sentence(words, tags):
  words, tags = tuple(words.split()), tuple(tags.split())
  return tagging.Sentence(words, tags, 0, "x", 1)


def test_entities_count_as_a_whole():
  true = [["B-PER", "I-PER", "O", "B-LOC"], ["B-LOC", "I-LOC"]]
  predicted = [["B-PER", "O", "B-ORG", "B-LOC"], ["B-LOC", "I-LOC"]]
  scores = tagging_results.score_labels(true, predicted, "iob2", 0.25)
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
  scores = tagging_results.score_labels([["O"]], [["O"]], "iob2", 0.0)
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
  report, types = tagging_results.entity_report(true, predicted)
  assert types == ["x", "y", "z"]
  accuracy, *averages = SEQEVAL[prefixes]
  assert report.accuracy == pytest.approx(accuracy, abs=1e-9)
  found = (report.micro, report.macro, report.weighted)
  for scores, expected in zip(found, averages, strict=True):
    assert scores == pytest.approx(expected, abs=1e-9)


def test_words_are_scored_if_there_is_no_scheme():
  true, predicted = [["NN", "DT"], ["VB"]], [["NN", "NN"], ["VB"]]
  scores = tagging_results.score_labels(true, predicted, "none", 1.0)
  assert scores.names == ["DT", "NN", "VB"]
  assert scores.report.f1.tolist() == [0, pytest.approx(2 / 3), 1]
  assert scores.metrics == {
    "accuracy": pytest.approx(2 / 3),
    "loss": 1.0,
    "macro_f1": pytest.approx(5 / 9),
  }


def report(sentences, predicted, scheme):
  """Returns the section of report.html on sentences."""
  tags = [sentence.tags for sentence in sentences]
  scores = tagging_results.score_labels(tags, predicted, scheme, 0.25)
  return tagging_results.describe(sentences, predicted, scores)


def test_report_of_types_and_which_are_confused():
  sentences = [make_sentence("a b c", "B-PER I-PER O")]
  sentences.append(make_sentence("d", "B-LOC"))
  predicted = [["B-PER", "I-PER", "B-LOC"], ["B-PER"]]
  text = report(sentences, predicted, "iob2")
  assert report_tables.rows_of(text, "By label") == [
    ["LOC", "0.0000", "0.0000", "0.0000", "1"],
    ["PER", "0.5000", "1.0000", "0.6667", "1"],
  ]
  assert report_tables.rows_of(text, "Confusion matrix") == [
    ["LOC", "0", "0", "1"],
    ["O", "1", "0", "0"],
    ["PER", "0", "0", "2"],
  ]
  text = report([make_sentence("a b", "A-1 B-1")], [["B-1", "B-1"]], "none")
  assert report_tables.rows_of(text, "Confusion matrix") == [
    ["A-1", "0", "1"],
    ["B-1", "0", "1"],
  ]
