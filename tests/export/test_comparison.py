"""Answers are compared one by one; whole exports: test_onnx_exports.py."""

import math

import pytest

from bert.export import comparison
from bert.serving import request_lines
import tiny_models


class Answers:
  """Stands for a model that gives certain answers."""

  def __init__(self, maker, answers):
    self.maker, self.card, self.answers = maker, maker.card, answers

  def answer(self, requests):
    self.requests = requests
    return self.answers


TAB = "\t"
VECTORS = {"layer": -1, "pooling": "mean"}


@pytest.fixture
def compare(tmp_path, monkeypatch):
  def compare(kind, content, answers, settings=None, most=1.0, **source):
    """Compares two models; returns the comparison and the requests."""
    # The ending says how the file is read: a table, JSON Lines or plain texts.
    ending = "json" if content[0] == "{" else "txt"
    path = tmp_path / f"dev.{'tsv' if TAB in content else ending}"
    path.write_text(content)
    monkeypatch.setattr(comparison, "_FEWEST_ANSWERS", 2)
    inputs = ["question", "context"] if "answer" in kind else ["text"]
    settings = settings or tiny_models.PREDICTION["single_label"]
    maker = tiny_models.make_maker(tmp_path, inputs, kind, **settings)
    exact, quantized = (Answers(maker, found) for found in answers)
    source = request_lines.Source(str(path), **source)
    gate = comparison.Gate(source, most_texts=9, most_changed=most)
    return comparison.compare(exact, quantized, gate), exact.requests

  return compare


def named(name, *values):
  return [{name: value} for value in values]


SETTINGS = {
  "tagging": tiny_models.TAGGING,
  "features": VECTORS,
  "fill_mask": {"top_k": 1},
  "question_answering": tiny_models.PREDICTION["question_answering"],
}
LOW = math.cos(0.4)  # 0.921.


@pytest.mark.parametrize(
  ("kind", "content", "before", "after", "changed"),
  [
    (
      "single_label",
      "good\nbad\na\n",
      named("label", "pos", "neg", "pos"),
      named("label", "pos", "pos", "neg"),
      "2 of 3 answers changed (66.7%) on 3 texts of dev.txt",
    ),
    (
      "multi_label",
      "good\nbad\n",
      named("labels", ["pos"], []),
      named("labels", ["pos"], ["neg"]),
      "1 of 2 answers changed (50.0%) on 2 texts of dev.txt",
    ),
    # A tenth of the standard deviation, 0.0816, is the limit; NaN is above it.
    (
      "regression",
      "good\nbad\na\n",
      named("value", 1.0, 2.0, 3.0),
      named("value", 1.08, 2.09, math.nan),
      "2 of 3 answers changed (66.7%) on 3 texts of dev.txt",
    ),
    # Every word counts.
    (
      "tagging",
      "the film\nbad\n",
      [{"words": named("label", "O", "B-PER")}, {"words": named("label", "O")}],
      [{"words": named("label", "O", "O")}, {"words": named("label", "O")}],
      "1 of 3 answers changed (33.3%) on 2 texts of dev.txt",
    ),
    # Every mask counts, and a text without one does not.
    (
      "fill_mask",
      "the film\nthe [MASK]\n[MASK] [MASK]\n",
      [
        {"masks": [named("token", token) for token in tokens]}
        for tokens in ("", "a", "bc")
      ],
      [
        {"masks": [named("token", token) for token in tokens]}
        for tokens in ("", "a", "bd")
      ],
      "1 of 3 answers changed (33.3%) on 3 texts of dev.txt",
    ),
    (
      "question_answering",
      "good\tthe film\nbad\tthe plot\n",
      named("answer", "film", ""),
      named("answer", "the film", ""),
      "1 of 2 answers changed (50.0%) on 2 texts of dev.tsv",
    ),
    (
      "features",
      "good\nbad\na\n",
      named("vector", [1.0, 0.0], [0.0, 2.0], [1.0, 0.0]),
      named("vector", [2.0, 0.0], [0.0, 1.0], [LOW, math.sin(0.4)]),
      "1 of 3 answers changed (33.3%) on 3 texts of dev.txt; cosines 0.9737 on "
      "the average, at least 0.9211",
    ),
  ],
)
def test_answers_that_changed(compare, kind, content, before, after, changed):
  found, _ = compare(kind, content, (before, after), SETTINGS.get(kind))
  assert found.describe() == changed


def test_texts_are_in_the_columns_of_a_table(compare):
  answers = named("label", "pos", "neg")
  content = "label\ttitle\nneg\tgood film\npos\tbad\n"
  _, [request, _] = compare(
    "single_label", content, (answers, answers), text_column="title"
  )
  assert request.rows[0].input_ids == [2, 5, 12, 3]  # good film


def test_of_many_texts_some_are_answered(compare):
  answers = named("label", *(["pos", "neg"] * 9))[:9]
  found, requests = compare("single_label", "a\n" * 27, (answers, answers))
  assert len(requests) == 9
  assert found.sample == "9 of the 27 texts of dev.txt, evenly spread"


def test_a_share_of_the_answers_may_change(compare):
  answers = named("label", "pos", "neg"), named("label", "pos", "pos")
  found, _ = compare("single_label", "good\nbad\n", answers, most=0.5)
  assert (found.answers, found.changed) == (2, 1)
  message = r"--quantize: 1 of 2 .* \(50.0%\) .*; expected at most 49.0% \(--m"
  with pytest.raises(ValueError, match=message):
    compare("single_label", "good\nbad\n", answers, most=0.49)


@pytest.mark.parametrize(
  ("kind", "content", "answer", "message"),
  [
    ("single_label", "good\n", {"label": "pos"}, "1 of at least 2 answers"),
    ("single_label", "a\nb\n", {"label": "pos"}, "the model answers all alike"),
    ("features", "a\nb\n", {"vector": [0.0, 1.0]}, "the model answers all ali"),
    ("single_label", "a\tb\n", {}, "dev.tsv: line 1: 2 columns, .* predict.py"),
    # Questions as SQuAD has them.
    ("question_answering", '{"data": []}\n', {}, "line 1: question is nothing"),
    (
      "tagging",
      "Ada pos\n\nwas neg\n",
      {},
      "its lines end in labels, as run_t",
    ),
  ],
)
def test_what_says_nothing_is_refused(compare, kind, content, answer, message):
  answers = [answer] * content.count("\n")
  with pytest.raises(ValueError, match=f"^--eval_file=.*{message}"):
    compare(kind, content, (answers, answers), SETTINGS.get(kind))
