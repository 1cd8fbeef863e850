"""What the file of a comparison holds; whole exports: test_onnx_exports.py."""

import json

import numpy as np
import pytest

from export import exporting
from export import quantization
from serving import exported_model
import tiny_cases
import tiny_classification
import tiny_export

CHINESE = "\u5317\u4eac"


@pytest.fixture
def read(tmp_path):
  def read(kind, content, settings, **columns):
    path = tmp_path / ("dev.json" if content[0] == "{" else "dev.tsv")
    path.write_text(content)
    gate = quantization.Gate(str(path), 9, 0.0, **columns)
    inputs = ["question", "context"] if "answer" in kind else ["text"]
    inputs += ["text_pair"] * ("label" in kind)
    kind = tiny_export.make_kind(tmp_path, inputs, kind, **settings)
    return list(quantization._READERS[kind.facts.kind](kind.facts, gate))

  return read


def test_columns_of_words_and_tags(read):
  settings = {"label_scheme": "iob2", "by_character": False}
  content = "1 B-PER Ada x\n2 O wrote y\n"
  [example] = read("tagging", content, settings, token_column=2, tag_column=1)
  assert example.request.words == ("Ada", "wrote")
  assert example.truth == ["B-PER", "O"]


def test_columns_of_texts_and_labels(read):
  found = read(
    "multi_label",
    "text\ttitle\tabout\tclass\nbad\tgood\tfilm\tpos;neg\n",
    tiny_export.PREDICTION["single_label"],
    text_column="title",
    text_pair_column="about",
    label_column="class",
    label_separator=";",
  )
  assert found == [({"text": "good", "text_pair": "film"}, [1, 1])]


def test_pairs_are_compared_as_pairs(read):
  content = "text\tlabel\nbad\tpos\n"
  settings = tiny_export.PREDICTION["single_label"]
  with pytest.raises(ValueError, match="pairs of texts: pass --text_pair_col"):
    read("single_label", content, settings)


def squad(answers):
  question = {"id": "1", "question": "?", **answers}
  paragraph = {"context": CHINESE * 2, "qas": [question]}
  return json.dumps({"version": "2", "data": [{"paragraphs": [paragraph]}]})


def test_questions_without_answers(read):
  settings = {
    **tiny_export.PREDICTION["question_answering"],
    "version_2_with_negative": True,
  }
  with pytest.raises(ValueError, match="no answer to compare with"):
    read("question_answering", squad({}), settings)
  [none] = read("question_answering", squad({"answers": []}), settings)
  answers = {"answers": [{"text": CHINESE, "answer_start": 0}]}
  [some] = read("question_answering", squad(answers), settings)
  scored = quantization._score_questions(
    None, [{"answer": ""}, {"answer": CHINESE[0]}], [none.truth, some.truth]
  )
  # By characters: one of two is found.
  assert scored == pytest.approx({"exact_match": 0.5, "f1": (1 + 2 / 3) / 2})


def test_guesses_that_rounding_can_move():
  found = exporting._has_certain_place(
    np.array([[[0.5, 0.3, 0.29999, 0.1, 0.05]]])
  )
  assert found.tolist() == [[[True, False, False, True, False]]]


def test_a_score_may_fall_by_so_much():
  scores = {"f1": 0.875}, {"f1": 0.75}
  found = quantization.Comparison("dev.tsv", *scores, 9, 1)
  found.check(0.125)
  with pytest.raises(ValueError, match="f1 falls from 0.8750 to 0.7500 on dev"):
    found.check(0.12)
  found._replace(after={"f1": 1.0}).check(0.0)


def test_a_model_of_one_text_is_compared(tmp_path):
  tiny_export.write_trained(tmp_path)
  path = tmp_path / "prediction.json"
  content = json.loads(path.read_text()) | {"has_text_pair": False}
  path.write_text(json.dumps(content))
  tiny_classification.write_tsv(tmp_path / "dev.tsv", range(20))
  out = tiny_cases.run_export(
    tmp_path, quantize="int8", eval_file=tmp_path / "dev.tsv", max_score_drop=1
  )
  facts = exported_model.ExportedModel(out).facts
  assert facts.quantization["examples"] == 20
