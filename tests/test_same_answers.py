"""A trained folder, its export and predict.py answer as the program did."""

import json

import pytest
import tensorflow as tf

import export_saved_model
import program_flags
from serving import exported_model
import tiny_programs

# Flags that are not the programs' defaults, with texts too long for some.
FLAGS = {
  "run_classifier": {
    "max_seq_length": 9,
    "doc_stride": 3,
    "window_pooling": "max",
    "predictions_format": "jsonl",
  },
  "run_squad": {"n_best_size": 7, "max_answer_length": 3, "doc_stride": 3},
  "run_tagging": {"max_seq_length": 6},
  "run_multiple_choice": {"max_seq_length": 7, "predictions_format": "jsonl"},
}
PROGRAMS = [
  name if name == "run_squad" else pytest.param(name, marks=pytest.mark.slow)
  for name in FLAGS
]
PREDICTION = {
  "run_classifier": {
    "max_seq_length": 9,
    "doc_stride": 3,
    "window_pooling": "max",
    "has_text_pair": False,
  },
  "run_squad": {
    "max_seq_length": 16,
    "doc_stride": 3,
    "max_query_length": 4,
    "n_best_size": 7,
    "max_answer_length": 3,
    "version_2_with_negative": True,
    "whole_word_answers": False,
    "null_score_diff_threshold": 0.0,
  },
  "run_tagging": {
    "max_seq_length": 6,
    "by_character": False,
    "document_context": False,
  },
  "run_multiple_choice": {"max_seq_length": 7},
}


def read_squad(path):
  content = json.loads(path.read_text())
  for article in content["data"]:
    for paragraph in article["paragraphs"]:
      for question in paragraph["qas"]:
        yield {
          "question": question["question"],
          "context": paragraph["context"],
        }


def read_json_lines(path):
  return [json.loads(line) for line in path.read_text().splitlines()]


def requests_of(program, folder, rows):
  """Returns what the program was asked, as requests."""
  if program == "run_squad":
    return list(read_squad(folder / "dev.json"))
  if program == "run_multiple_choice":
    choices = [
      row.split(",")[2:6]
      for row in (folder / "test.csv").read_text().splitlines()[1:]
    ]
    return [
      {"context": r["context"], "question": r["question"], "choices": c}
      for r, c in zip(rows, choices, strict=True)
    ]
  return [{"text": row["text"]} for row in rows]


def shown(program, row):
  """Returns what the program wrote of an answer, as predict.py has it."""
  if program == "run_classifier":
    return {"label": row["predicted"], "probabilities": row["probabilities"]}
  if program == "run_tagging":
    return {"entities": row["entities"]}
  if program == "run_multiple_choice":
    return {name: row[name] for name in ("predicted", "choice")} | {
      "probabilities": row["probabilities"]
    }
  return {k: v for k, v in row.items() if k not in ("id", "question")}


def close(expected):
  """Compares numbers, however deep, with six digits."""
  if isinstance(expected, dict):
    return {name: close(value) for name, value in expected.items()}
  if isinstance(expected, list):
    return [close(value) for value in expected]
  if isinstance(expected, float):
    return pytest.approx(expected, rel=1e-4, abs=1e-5)
  return expected


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
  """Returns the folder that a program trained, predicted and exported in."""
  folders = {}

  def train(program):
    if program not in folders:
      folder = folders[program] = tmp_path_factory.mktemp(program)
      command = tiny_programs.write(program, folder)
      command += program_flags.arguments(FLAGS[program])
      result = program_flags.run_here(command)
      assert result.returncode == 0, result.stderr
      program_flags.run_main(
        export_saved_model,
        export_saved_model.define_flags,
        model=folder / "out",
        vocab_file=folder / "vocab.txt",
        export_dir=folder / "export",
      )
    return folders[program]

  return train


@pytest.mark.parametrize("program", PROGRAMS)
def test_training_leaves_what_predictions_depend_on(trained, program):
  folder = trained(program)
  content = json.loads((folder / "out" / "prediction.json").read_text())
  assert content == PREDICTION[program]


@pytest.mark.parametrize("program", PROGRAMS)
def test_an_export_answers_as_the_program(trained, program):
  folder = trained(program)
  rows = read_json_lines(folder / "out" / "predictions.jsonl")
  requests = requests_of(program, folder, rows)
  model = exported_model.ExportedModel(str(folder / "export"))
  answers = model.answer([model.kind.encode(r) for r in requests], 100)
  assert max(len(model.kind.encode(request).rows) for request in requests) > 1
  for row, answer in zip(rows, answers, strict=True):
    expected = shown(program, row)
    if program == "run_tagging":  # It writes no probabilities.
      for entity in answer["entities"]:
        assert 0 < entity.pop("probability") <= 1
    assert {name: answer[name] for name in expected} == close(expected)


def test_the_question_that_set_the_threshold_is_answered(trained):
  """Its odds are the threshold, but for the rounding of an export."""
  folder = trained("run_squad")
  rows = read_json_lines(folder / "out" / "predictions.jsonl")
  path = folder / "out" / "null_score_diff_threshold.json"
  [tuned] = json.loads(path.read_text()).values()
  assert any(tuned == row["no_answer_odds"] for row in rows if row["answer"])
  model = exported_model.ExportedModel(str(folder / "export"))
  threshold = model.facts.settings["null_score_diff_threshold"]
  assert 1e-6 < threshold - tuned < 1e-4


@pytest.mark.parametrize(
  "program",
  [pytest.param("run_classifier", marks=pytest.mark.slow), "run_squad"],
)
def test_the_graph_answers_as_the_program(trained, program):
  folder = trained(program)
  rows = read_json_lines(folder / "out" / "predictions.jsonl")
  requests = requests_of(program, folder, rows)
  compared = 0
  serve = tf.saved_model.load(str(folder / "export"))
  serve = serve.signatures["serving_default"]
  for row, request in zip(rows, requests, strict=True):
    texts = {name: tf.constant([text]) for name, text in request.items()}
    found = {name: v.numpy()[0] for name, v in serve(**texts).items()}
    if found["truncated"]:  # It has no windows for classifiers.
      continue
    compared += 1
    if program == "run_classifier":
      assert found["label"].decode() == row["predicted"]
      shares = list(row["probabilities"].values())
      assert found["probabilities"].tolist() == close(shares)
    else:
      assert found["answer"].decode() == row["answer"]
      assert float(found["probability"]) == close(row["probability"])
      assert float(found["no_answer_odds"]) == close(row["no_answer_odds"])
  assert compared >= 3
