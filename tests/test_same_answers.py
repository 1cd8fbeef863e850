"""A trained folder, its export and predict.py answer as the program did."""

import csv
import functools
import http.server
import json
import sys
import threading

import pytest
import tensorflow as tf

import bert
from bert.serving import exported_model
from bert.tasks import multiple_choice, squad
import paths
import program_flags
import tiny
import tiny_models

sys.path.append(str(paths.ROOT / "examples"))
import serving_client

WINDOWS = {"max_seq_length": 9, "doc_stride": 3, "window_pooling": "max"}
# Flags that are not the programs' defaults, with texts too long for some.
FLAGS = {
  "run_classifier": WINDOWS,
  "run_squad": {"n_best_size": 7, "max_answer_length": 3, "doc_stride": 3},
  "run_tagging": {"max_seq_length": 6},
  "run_multiple_choice": {"max_seq_length": 7},
}
PROGRAMS = [
  name if name == "run_squad" else pytest.param(name, marks=pytest.mark.slow)
  for name in FLAGS
]
PREDICTION = {
  "run_classifier": {
    **WINDOWS,
    "label_separator": ",",
    "has_text_pair": False,
    "columns": {"text": "text", "text_pair": None, "header": True, "count": 2},
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
    "columns": {"token": 0, "tag": -1},
  },
  "run_multiple_choice": {"max_seq_length": 7},
}


def read_json_lines(path):
  return [json.loads(line) for line in path.read_text().splitlines()]


def read_predictions(program, folder):
  """Returns the rows of a program's readable file of predictions."""
  if program in ("run_squad", "run_tagging"):
    return read_json_lines(folder / "predictions.jsonl")
  with open(folder / "predictions.tsv", newline="") as file:
    rows = list(csv.DictReader(file, delimiter="\t"))
  for row in rows:
    names = [n for n in row if n.startswith("probability_") and row[n]]
    row["probabilities"] = {n.partition("_")[2]: float(row[n]) for n in names}
  return rows


def requests_of(program, folder, rows):
  """Returns what the program was asked, as requests."""
  if program == "run_squad":
    questions = squad.read_questions(str(folder / "dev.json"))
    return [{"question": q.text, "context": q.context} for q in questions]
  if program == "run_multiple_choice":
    examples = multiple_choice.read_examples(str(folder / "test.csv"))
    return [
      {"context": e.context, "question": e.question, "choices": [*e.choices]}
      for e in examples
    ]
  return [{"text": row["text"]} for row in rows]


def shown(program, row):
  """Returns what the program wrote of an answer, as predict.py has it."""
  if program == "run_squad":
    return tiny_models.shown_span(row)
  if program == "run_tagging":
    return {"entities": row["entities"]}
  shares = row["probabilities"]
  if program == "run_classifier":
    return {"label": row["predicted"], "probabilities": shares}
  shown = {"predicted": int(row["predicted"]), "choice": row["choice"]}
  return {**shown, "probabilities": list(shares.values())}


close = functools.partial(tiny_models.close, rel=1e-4, abs=1e-5)


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
  """Returns the folder that a program trained, predicted and exported in."""
  folders = {}

  def train(program):
    if program not in folders:
      folder = folders[program] = tmp_path_factory.mktemp(program)
      command = tiny.prepare(program, folder)
      command += program_flags.arguments(FLAGS[program])
      program_flags.succeed(command)
      flags = {"model_dir": "", "model": folder / "out"}
      tiny_models.run_export(folder, format="saved_model", **flags)
    return folders[program]

  return train


@pytest.mark.parametrize("program", PROGRAMS)
def test_training_leaves_what_predictions_depend_on(trained, program):
  path = trained(program) / "out" / "prediction.json"
  assert json.loads(path.read_text()) == PREDICTION[program]


@pytest.mark.parametrize("program", PROGRAMS)
def test_an_export_answers_as_the_program(trained, program):
  folder = trained(program)
  rows = read_predictions(program, folder / "out")
  requests = requests_of(program, folder, rows)
  model = exported_model.ExportedModel(str(folder / "export"))
  encoded = model.maker.encode_all(requests)
  answers = model.answer(encoded, 100)
  assert max(len(request.rows) for request in encoded) > 1
  for row, answer in zip(rows, answers, strict=True):
    expected = shown(program, row)
    if program == "run_tagging":  # It writes no probabilities.
      for entity in answer["entities"]:
        assert 0 < entity.pop("probability") <= 1
    assert {name: answer[name] for name in expected} == close(expected)
  columns = PREDICTION[program].get("columns", {})
  assert model.card.training["columns"] == columns


def test_the_question_that_set_the_threshold_is_answered(trained):
  """Its odds are the threshold, but for the rounding of an export."""
  folder = trained("run_squad")
  rows = read_json_lines(folder / "out" / "predictions.jsonl")
  path = folder / "out" / "null_score_diff_threshold.json"
  [tuned] = json.loads(path.read_text())["thresholds"].values()
  assert any(tuned == row["no_answer_odds"] for row in rows if row["answer"])
  model = exported_model.ExportedModel(str(folder / "export"))
  threshold = model.card.settings["null_score_diff_threshold"]
  # An export adds 1e-5; `trained_models.load_output_dir` says why.
  assert 1e-6 < threshold - tuned < 1e-4


class TensorFlowServing(http.server.BaseHTTPRequestHandler):
  """Answers the REST API's `predict` with the columns of a SavedModel."""

  def do_POST(self):
    size = int(self.headers["Content-Length"])
    body = json.loads(self.rfile.read(size))
    signature = self.server.model.signatures[body["signature_name"]]
    inputs = {k: tf.constant(v) for k, v in body["inputs"].items()}
    outputs = {k: v.numpy().tolist() for k, v in signature(**inputs).items()}
    if len(outputs) == 1:  # It leaves out the name of an only one.
      [outputs] = outputs.values()
    content = json.dumps({"outputs": outputs}).encode()
    self.send_response(200 if self.path.endswith("/tiny:predict") else 404)
    self.end_headers()
    self.wfile.write(content)


@pytest.mark.parametrize("program", PROGRAMS)
def test_a_client_of_tensorflow_serving_answers(trained, program, capsys):
  folder = trained(program)
  rows = read_predictions(program, folder / "out")
  requests = requests_of(program, folder, rows)[:3]
  server = http.server.HTTPServer(("127.0.0.1", 0), TensorFlowServing)
  server.model = tf.saved_model.load(str(folder / "export"))
  threading.Thread(target=server.serve_forever, daemon=True).start()
  url = f"http://127.0.0.1:{server.server_port}/v1/models/tiny"
  flags = [f"--export_dir={folder / 'export'}", f"--url={url}"]
  serving_client.main([*flags, *map(json.dumps, requests)])
  server.shutdown()
  found = list(map(json.loads, capsys.readouterr().out.splitlines()))
  assert found == close(bert.load(folder / "export")(requests))
  assert len(found) == 3
