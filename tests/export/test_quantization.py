"""Files of a comparison and its scores; whole exports: test_onnx_exports.py."""

import json
import math

import pytest

from bert import export_saved_model
from bert.export import quantization
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
def compare(tmp_path, monkeypatch):
  def compare(kind, content, answers, settings=None, fewest=2, **columns):
    """Compares two models; returns the comparison and the requests."""
    path = tmp_path / ("dev.json" if content[0] == "{" else "dev.tsv")
    path.write_text(content)
    monkeypatch.setattr(quantization, "_FEWEST_EXAMPLES", fewest)
    check = export_saved_model.ExportSettings(
      eval_file=str(path), max_eval_examples=9, max_score_drop=0.0, **columns
    )
    inputs = ["question", "context"] if "answer" in kind else ["text"]
    inputs += ["text_pair"] * (kind in ("multi_label", "single_label"))
    settings = settings or tiny_models.PREDICTION["single_label"]
    maker = tiny_models.make_maker(tmp_path, inputs, kind, **settings)
    exact, quantized = (Answers(maker, found) for found in answers)
    return quantization.compare(exact, quantized, check), exact.requests

  return compare


def test_columns_of_words_and_tags(compare):
  def answers(first):
    return [{"words": [{"label": x}, {"label": "O"}]} for x in (first, "B-LOC")]

  found, [request, _] = compare(
    "tagging",
    "1 O Ada x\n2 O wrote y\n\n1 B-LOC Rome x\n2 O is y\n",
    [answers("O"), answers("B-PER")],
    {"label_scheme": "iob2", "by_character": False},
    token_column=2,
    tag_column=1,
  )
  assert request.source[0] == "Ada wrote"
  assert found.before["accuracy"] == 1.0 and found.after["accuracy"] == 0.75
  assert (found.examples, found.changed) == (2, 1)


def test_columns_of_texts_and_labels(compare):
  found, [request, _] = compare(
    "multi_label",
    "text\ttitle\tabout\tclass\nbad\tgood\tfilm\tpos;neg\nbad\ta\ta\t\n",
    [
      [{"labels": labels}, {"labels": []}]
      for labels in (["neg", "pos"], ["pos"])
    ],
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


def test_vectors_of_texts(compare):
  vectors = [[1.0, 0.0], [0.0, 2.0], [1.0, 1.0]]
  turned = [[2.0, 0.0], [0.0, 1.0], [1.0, 0.0]]
  found, _ = compare(
    "features",
    "a\nthe\n\ngood film\n",
    [[{"vector": v} for v in both] for both in (vectors, turned)],
    {"layer": -1, "pooling": "mean"},
  )
  assert found.before == pytest.approx({"cosine": 1.0, "lowest_cosine": 1.0})
  low = math.sqrt(0.5)
  expected = {"cosine": (2 + low) / 3, "lowest_cosine": low}
  assert found.after == pytest.approx(expected)
  assert (found.examples, found.changed) == (3, None)
  assert found.describe() == (
    "on 3 examples of dev.tsv: cosine 1.0000 -> 0.9024, "
    "lowest_cosine 1.0000 -> 0.7071"
  )


STS = {"text_column": "0", "text_pair_column": "1", "label_column": "2"}


def test_vectors_of_pairs_with_a_number(compare):
  """As in the STS benchmark: similar texts should have similar vectors."""
  right = [[1, 0], [1, 0], [1, 0], [1, 1], [1, 0], [0, 1]]
  wrong = [[1, 0], [1, 0], [1, 0], [0, 1], [1, 0], [1, 1]]
  found, requests = compare(
    "features",
    "a\ta\t5.0\nthe\tfilm\t3.2\ngood\tbad\t0.5\n",
    [[{"vector": v} for v in both] for both in (right, wrong)],
    {"layer": -1, "pooling": "mean"},
    **STS,
  )
  assert [r.rows[0].input_ids[1] for r in requests] == [17, 17, 11, 12, 5, 8]
  assert found.before["spearman"] == pytest.approx(1.0)
  assert found.after["spearman"] == pytest.approx(0.5)
  assert found.examples == 3


def test_guesses_are_of_texts_with_a_mask(compare):
  def answers(*tokens):
    return [{"masks": [[{"token": token}]]} for token in tokens]

  found, requests = compare(
    "fill_mask",
    "the film\nthe [MASK]\na [MASK]\n",
    [answers("film", "plot"), answers("film", "cast")],
    {"top_k": 1},
  )
  assert len(requests) == 2
  assert found.after == {"same_first_guess": 0.5} and found.changed == 1


def test_too_few_examples_and_answers_that_are_all_alike(compare):
  content = "text\tlabel\n" + "good\t1\n" * 49
  with pytest.raises(ValueError, match="49 of at least 50 examples"):
    compare("regression", content, ([], []), fewest=50)
  answers = [{"vector": [0.0, 1.0]}] * 3
  with pytest.raises(ValueError, match="the model answers all alike"):
    settings = {"layer": -1, "pooling": "mean"}
    compare("features", "a\nthe\nfilm\n", (answers, answers), settings)


def test_a_score_may_fall_by_so_much():
  scores = {"f1": 0.875}, {"f1": 0.75}
  found = quantization.Comparison("dev.tsv", *scores, 9, 1)
  found.check(0.125)
  with pytest.raises(
    ValueError, match="f1 0.8750 -> 0.7500 on dev.* most 0.12"
  ):
    found.check(0.12)
  found._replace(after={"f1": 1.0}).check(0.0)
  lowest = {"lowest_cosine": 1.0}, {"lowest_cosine": 0.91}
  quantization.Comparison("x", *lowest, 9, None).check(0.01)


@pytest.mark.parametrize("score", [0.0, math.nan, -0.5])
def test_a_score_that_cannot_fall_is_refused(score):
  found = quantization.Comparison("x", {"f1": score}, {"f1": score}, 9, 0)
  with pytest.raises(
    ValueError, match=f"f1 {score:.4f} -> .* expected above 0"
  ):
    found.check(1.0)


def test_columns_of_pairs_only(compare):
  settings = {"layer": -1, "pooling": "mean"}
  content, answers = "text\tlabel\na\t1\n", ([], [])
  with pytest.raises(ValueError, match="expected pairs of texts: pass --text_"):
    compare("features", content, answers, settings, text_column="0")
