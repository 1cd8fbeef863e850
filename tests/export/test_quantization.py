"""Files of a comparison and its scores; whole exports: test_onnx_exports.py."""

import json

import pytest

from export import quantization
import tiny_models

CHINESE = "\u5317\u4eac"


class Answers:
  """Stands for a model that gives certain answers."""

  def __init__(self, maker, answers):
    self.maker, self.card, self.answers = maker, maker.card, answers

  def answer(self, requests):
    self.requests = requests
    return self.answers


@pytest.fixture
def compare(tmp_path):
  def compare(kind, content, answers, settings=None, **columns):
    """Compares two models; returns the comparison and the requests."""
    path = tmp_path / ("dev.json" if content[0] == "{" else "dev.tsv")
    path.write_text(content)
    check = quantization.ScoreCheck(str(path), 9, 0.0, **columns)
    inputs = ["question", "context"] if "answer" in kind else ["text"]
    inputs += ["text_pair"] * ("label" in kind)
    settings = settings or tiny_models.PREDICTION["single_label"]
    maker = tiny_models.make_maker(tmp_path, inputs, kind, **settings)
    exact, quantized = (Answers(maker, found) for found in answers)
    return quantization.compare(exact, quantized, check), exact.requests

  return compare


def test_columns_of_words_and_tags(compare):
  found, [request] = compare(
    "tagging",
    "1 O Ada x\n2 O wrote y\n",
    [[{"words": [{"label": x}, {"label": "O"}]}] for x in ("O", "B-PER")],
    {"label_scheme": "iob2", "by_character": False},
    token_column=2,
    tag_column=1,
  )
  assert request.source[0] == "Ada wrote"
  assert found.before["accuracy"] == 1.0 and found.after["accuracy"] == 0.5
  assert (found.examples, found.changed) == (1, 1)


def test_columns_of_texts_and_labels(compare):
  found, [request] = compare(
    "multi_label",
    "text\ttitle\tabout\tclass\nbad\tgood\tfilm\tpos;neg\n",
    [[{"labels": ["neg", "pos"]}], [{"labels": ["pos"]}]],
    text_column="title",
    text_pair_column="about",
    label_column="class",
    label_separator=";",
  )
  assert request.rows[0].input_ids == [2, 5, 3, 12, 3]  # good, film
  assert found.before == {"micro_f1": 1.0, "macro_f1": 1.0}
  assert found.after == pytest.approx({"micro_f1": 2 / 3, "macro_f1": 0.5})


def test_numbers_change_by_a_tenth(compare):
  found, _ = compare(
    "regression",
    "text\tlabel\na\t1\na\t2\na\t3\n",
    [[{"value": value} for value in (1, 2, z)] for z in (3.0, 3.04)],
  )
  assert found.before == pytest.approx({"pearson": 1.0, "spearman": 1.0})
  assert (found.examples, found.changed) == (3, 0)


def test_pairs_are_compared_as_pairs(compare):
  with pytest.raises(ValueError, match="pairs of texts: pass --text_pair_col"):
    compare("single_label", "text\tlabel\nbad\tpos\n", ([], []))


def squad(answers):
  questions = [{"id": "q", "question": "good", **answer} for answer in answers]
  paragraph = {"context": CHINESE * 2, "qas": questions}
  return json.dumps({"version": "2", "data": [{"paragraphs": [paragraph]}]})


def test_questions_without_answers(compare):
  kind = "question_answering"
  settings = tiny_models.PREDICTION[kind] | {"version_2_with_negative": True}
  with pytest.raises(ValueError, match="no answer to compare with"):
    compare(kind, squad([{}]), ([], []), settings)
  answers = [{"text": CHINESE, "answer_start": 0}]
  content = squad([{"answers": []}, {"answers": answers}])
  texts = ["", CHINESE], ["", CHINESE[0]]
  texts = [[{"answer": text} for text in both] for both in texts]
  found, _ = compare(kind, content, texts, settings)
  assert found.before == {"exact_match": 1.0, "f1": 1.0}
  # By characters: one of two is found.
  expected = {"exact_match": 0.5, "f1": (1 + 2 / 3) / 2}
  assert found.after == pytest.approx(expected)
  assert found.changed == 1


def test_a_score_may_fall_by_so_much():
  scores = {"f1": 0.875}, {"f1": 0.75}
  found = quantization.Comparison("dev.tsv", *scores, 9, 1)
  found.check(0.125)
  with pytest.raises(ValueError, match="f1 falls from 0.8750 to 0.7500 on dev"):
    found.check(0.12)
  found._replace(after={"f1": 1.0}).check(0.0)
