"""Scores of labels and the files of predictions."""

import json

import pytest

import report_tables
from tasks import tagging
from tasks import tagging_results


def make_sentence(words, tags):
  words, tags = tuple(words.split()), tuple(tags.split())
  return tagging.Sentence(words, tags, 0, "x", 1)


def test_entities_are_scored_if_there_is_a_scheme():
  scores = tagging_results.score(
    [["B-X", "O"], ["B-Y"]], [["B-X", "B-X"], ["O"]], "iob2", 0.25
  )
  assert scores.metrics == {
    "accuracy": pytest.approx(1 / 3),
    "f1": 0.5,
    "loss": 0.25,
    "precision": 0.5,
    "recall": 0.5,
  }
  assert scores.names == ["X", "Y"]


def test_words_are_scored_if_there_is_none():
  scores = tagging_results.score(
    [["NN", "DT"], ["VB"]], [["NN", "NN"], ["VB"]], "none", 1.0
  )
  assert scores.names == ["DT", "NN", "VB"]
  assert scores.report.f1.tolist() == [0, pytest.approx(2 / 3), 1]
  assert scores.metrics == {
    "accuracy": pytest.approx(2 / 3),
    "loss": 1.0,
    "macro_f1": pytest.approx(5 / 9),
  }


def test_predictions_stand_in_one_more_column(tmp_path):
  path = tmp_path / "in.txt"
  path.write_text("-DOCSTART- O\n\nAl\tI-X\r\nde O\n\n\nZ O\n")
  source = tagging.Source(str(path))
  tagging_results.write_columns(
    str(tmp_path / "out.txt"), source, [["B-X", "I-X"], ["O"]]
  )
  assert (tmp_path / "out.txt").read_text() == (
    "-DOCSTART- O O\n\nAl\tI-X\tB-X\nde O I-X\n\n\nZ O O\n"
  )


def test_spans_have_offsets_into_the_text(tmp_path):
  path = str(tmp_path / "out.jsonl")
  sentences = [make_sentence("Al de Z", "O O O"), make_sentence("吴 重", "O O")]
  labels = [["B-X", "I-X", "B-Y"], ["O", "O"]]
  tagging_results.write_spans(path, sentences, labels, "iob2", "")
  first, second = map(json.loads, open(path, encoding="utf-8"))
  assert first == {
    "id": 0,
    "text": "AldeZ",
    "entities": [
      {"type": "X", "start": 0, "end": 4, "text": "Alde"},
      {"type": "Y", "start": 4, "end": 5, "text": "Z"},
    ],
  }
  assert second == {"id": 1, "text": "吴重", "entities": []}


def test_labels_without_a_scheme_are_spans_of_words(tmp_path):
  path = str(tmp_path / "out.jsonl")
  sentences = [make_sentence("the cat", "DT NN")]
  tagging_results.write_spans(path, sentences, [["DT", "NN"]], "none", " ")
  assert json.loads(open(path, encoding="utf-8").read())["words"] == [
    {"label": "DT", "start": 0, "end": 3, "text": "the"},
    {"label": "NN", "start": 4, "end": 7, "text": "cat"},
  ]


def test_report_of_types_and_which_are_confused():
  sentences = [make_sentence("a b c", "B-PER I-PER O")]
  sentences.append(make_sentence("d", "B-LOC"))
  predicted = [["B-PER", "I-PER", "B-LOC"], ["B-PER"]]
  tags = [sentence.tags for sentence in sentences]
  scores = tagging_results.score(tags, predicted, "iob2", 0.25)
  text = tagging_results.describe(sentences, predicted, scores)
  assert report_tables.rows_of(text, "By label") == [
    ["LOC", "0.0000", "0.0000", "0.0000", "1"],
    ["PER", "0.5000", "1.0000", "0.6667", "1"],
  ]
  assert report_tables.rows_of(text, "Confusion matrix") == [
    ["LOC", "0", "0", "1"],
    ["O", "1", "0", "0"],
    ["PER", "0", "0", "2"],
  ]


def test_report_of_labels_without_a_scheme():
  sentences = [make_sentence("a b", "A-1 B-1")]
  scores = tagging_results.score(
    [sentences[0].tags], [["B-1", "B-1"]], tagging.NO_SCHEME, 0.25
  )
  text = tagging_results.describe(sentences, [["B-1", "B-1"]], scores)
  assert report_tables.rows_of(text, "Confusion matrix") == [
    ["A-1", "0", "1"],
    ["B-1", "0", "1"],
  ]
