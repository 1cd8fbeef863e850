"""Tests of export_saved_model.py, predict.py and the server in it."""

from concurrent import futures
import filecmp
import gzip
import http.client
import json
import os
import pathlib
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import types

import numpy as np
import pytest
import tensorflow as tf

import bert
from bert import export_saved_model, heads, tokenization
from bert import predict as predict_program
from bert.data import packing
from bert.serving import (
  exported_model,
  http_server,
  request_lines,
  tensorflow_engine,
)
from bert.weights import checkpoints
import paths
import program_flags
import tiny
import tiny_models

LONG = "the film was very good and a plot the cast was very very bad"


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
  folder = tmp_path_factory.mktemp("trained")
  model = tiny_models.write_trained(folder)
  # Chances of all sizes, not only near 50 %.
  model.output_weights.assign(20.0 * model.output_weights.value)
  variables = checkpoints.model_variables(model)
  checkpoints.save(str(folder), 7, variables, keep=1)
  command = program_flags.command(
    "export_saved_model",
    model_dir=folder,
    vocab_file=folder / "vocab.txt",
    export_dir=folder / "export",
  )
  result = program_flags.succeed(command)
  assert "loaded again, it gives the same" in result.stdout
  return folder, model


@pytest.fixture(scope="module")
def expected(trained):
  folder, model = trained
  tokenizer = tokenization.FullTokenizer(str(folder / "vocab.txt"))

  def compute(text, pair=""):
    a, b = tokenizer.encode(text), tokenizer.encode(pair)
    # [CLS] and one [SEP] or two; their ids are the places in tiny.SPECIAL.
    packing.truncate_pair(a, b, tiny.SEQUENCE - (3 if b else 2))
    packed = packing.pack(a, b, cls_id=2, sep_id=3)
    logits = model(*(tf.constant([values]) for values in packed)).numpy()[0]
    return float((np.exp(logits) / np.exp(logits).sum())[1])

  return compute


def predict(folder, stdin=b"", **flags):
  """Runs the program here; returns the result and the answers in it."""
  flags["export_dir"] = folder / "export"
  # It reads descriptor 0 and not sys.stdin; see `request_lines._raw_lines`.
  before = os.dup(0)
  try:
    with tempfile.TemporaryFile() as file:
      file.write(stdin)
      file.seek(0)
      os.dup2(file.fileno(), 0)
      result = program_flags.run_here(program_flags.command("predict", **flags))
  finally:
    os.dup2(before, 0)
    os.close(before)
  lines = result.stdout.splitlines()
  return result, [json.loads(line) for line in lines if line.startswith("{")]


def test_export_leaves_a_card_and_all_that_describes_the_model(trained):
  folder = trained[0] / "export"
  assert not list(folder.parent.glob("*.writing"))
  card = (folder / "README.md").read_text()
  assert card.startswith("# Classifies texts\n")
  assert "`neg`, `pos`" in card and "step 7" in card
  assert (folder / "labels.txt").read_text() == "neg\npos\n"
  vocabularies = (folder / "vocab.txt", trained[0] / "vocab.txt")
  assert filecmp.cmp(*vocabularies, shallow=False)
  card = json.loads((folder / "export.json").read_text())
  assert card["kind"] == "single_label"
  files = ["saved_model.pb", "variables/variables.data-00000-of-00001"]
  files += ["variables/variables.index", "vocab.txt", "weights"]
  assert sorted(card["hashes"]) == files
  assert card["inputs"] == ["text", "text_pair"]
  assert (card["max_seq_length"], card["num_layers"]) == (16, 2)
  content = (folder / "saved_model.pb").read_bytes()
  assert b"FastWordpieceTokenizeWithOffsets" in content
  # TensorFlow Serving lacks these operations.
  assert b"Trimmer" not in content and b"PyFunc" not in content


def test_lines(trained, expected):
  stdin = (
    b"the film was good\r\n\nfilm\tbad plot\nx\xff y\n"
    + LONG.encode()
    + b"\n\xc2\x85 a\tb\tc"
  )
  result, rows = predict(trained[0], stdin, input_format="tsv")
  assert result.returncode == 1
  assert result.stderr.endswith("2 line(s) could not be answered\n")
  assert [row["index"] for row in rows] == list(range(6))
  cure = "convert it, of Latin-1 by iconv -f latin1 -t utf8"
  error = rf"line 4: not UTF-8: b'x\xff y\n'; {cure}"
  assert rows[3] == {"index": 3, "error": error}
  assert "3 columns, expected text and text_pair" in rows[5]["error"]
  texts = {0: ["the film was good"], 1: [""], 2: ["film", "bad plot"]}
  for index, words in (texts | {4: [LONG]}).items():
    share = rows[index]["probabilities"]["pos"]
    assert share == pytest.approx(expected(*words), abs=1e-5)
    assert rows[index]["label"] == ("pos" if share > 0.5 else "neg")
    assert rows[index]["truncated"] is False


def test_jsonl_in_a_compressed_file(trained, expected, tmp_path):
  lines = '{"text": "good", "text_pair": "a", "id": "q1"}\n{"text": "'
  lines += "very " * 15 + '"}\n{"text": 3}\n{'
  path = tmp_path / "in.jsonl.gz"
  path.write_bytes(gzip.compress(lines.encode()))
  output = tmp_path / "out.jsonl"
  result, _ = predict(trained[0], input_file=path, output_file=output)
  assert result.returncode == 1
  assert result.stdout.splitlines()[1:] == [
    f"  wrote {output}: 2 answers",
    f"  next: python predict.py --export_dir={trained[0]}/export --serve",
  ]
  rows = [json.loads(line) for line in output.read_text().splitlines()]
  assert rows[0]["id"] == "q1"
  share = rows[0]["probabilities"]["pos"]
  assert share == pytest.approx(expected("good", "a"), abs=1e-5)
  assert rows[1]["truncated"] is True
  assert rows[2]["error"].startswith("line 3: text is int, expected a string")
  assert rows[3]["error"].startswith("line 4: not JSON")


def test_answers_come_while_the_input_is_open(trained):
  process = subprocess.Popen(
    program_flags.command("predict", export_dir=trained[0] / "export"),
    stdin=subprocess.PIPE,
    stdout=subprocess.PIPE,
    stderr=subprocess.DEVNULL,
  )
  for index in range(3):
    process.stdin.write(b"good\n")
    process.stdin.flush()
    assert json.loads(process.stdout.readline())["index"] == index
  process.stdin.close()
  assert process.wait(60) == 0


def test_windows_of_a_file_do_not_depend_on_the_speed_of_reading():
  is_taken = threading.Event()

  def read_slowly(waits):
    for index in range(1500):
      if waits and index == 1:
        assert is_taken.wait(60)
      time.sleep(0 if index > 20 else 1e-3)
      yield request_lines.RequestLine(None, {"index": index})

  windows = predict_program.read_ahead(read_slowly(False), is_open=False)
  assert [len(window) for window in windows] == [1024, 476]

  # What somebody types is answered at once.
  windows = predict_program.read_ahead(read_slowly(True), is_open=True)
  assert len(next(windows)) == 1
  is_taken.set()
  assert sum(map(len, windows)) == 1499


def test_few_long_lines_are_in_memory_at_once():
  read = []

  def lines():
    row = types.SimpleNamespace(input_ids=range(100_000))
    request = types.SimpleNamespace(rows=(row,))
    for index in range(100):
      read.append(index)
      yield request_lines.RequestLine(request, {"index": index})

  windows = predict_program.read_ahead(lines(), is_open=False)
  # A line counts as 98 (100,000 / 1,024, rounded up): 11 fill a window.
  assert len(next(windows)) == 11
  time.sleep(0.1)
  assert len(read) <= 11 + 11
  assert sum(map(len, windows)) == 89


LEAVE = """
import sys, types
sys.path.insert(0, %r)
from bert import predict
from bert.serving import request_lines
card = types.SimpleNamespace(training={})
kind = types.SimpleNamespace(
  is_required={"text": True},
  encode=lambda request: types.SimpleNamespace(rows=()),
  card=card,
)
source = request_lines.Source("-", input_format="lines")
for window in predict.read_ahead(
  request_lines.read(source, kind), is_open=True
):
  sys.exit(7)
"""


def test_an_end_while_the_input_is_open():
  process = subprocess.Popen(
    [sys.executable, "-c", LEAVE % str(paths.ROOT)],
    stdin=subprocess.PIPE,
    stderr=subprocess.PIPE,
  )
  process.stdin.write(b"good\n")
  process.stdin.flush()
  assert process.wait(60) == 7
  assert process.stderr.read() == b""
  process.stdin.close()


def test_predict_needs_none_of_the_code_of_the_model(trained, tmp_path):
  """What the last paragraph of docs/predict.md says is enough."""
  page = (paths.ROOT / "docs/predict.md").read_text(encoding="utf-8")
  needed, of_cli = page.split("\n\n")[-1].split("`bert/`, and")
  names = re.findall(r"`([\w/]+\.py)`", needed)
  names += [f"bert/cli/{name}" for name in re.findall(r"`(\w+\.py)`", of_cli)]
  for name in names:
    (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
    shutil.copy(paths.ROOT / name, tmp_path / name)
  for name in re.findall(r"`(\w+)/`", needed):
    shutil.copytree(paths.ROOT / "bert" / name, tmp_path / "bert" / name)
  flags = [f"--export_dir={trained[0] / 'export'}", "--text=good"]
  result = subprocess.run(
    [sys.executable, str(tmp_path / "predict.py"), *flags],
    capture_output=True,
    timeout=300,
  )
  assert json.loads(result.stdout)["index"] == 0, result.stderr
  code = (
    "from bert.cli import program, typed_flags\n"
    "class ResourceExhaustedError(Exception): pass\n"
    "def main(): raise ResourceExhaustedError('OOM when allocating [9]')\n"
    "program.run_program(main, typed_flags.Settings)\n"
  )
  result = subprocess.run(
    [sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True
  )
  [line] = result.stderr.splitlines()
  assert line.endswith("error: out of memory: OOM when allocating [9]")


def export(folder, **flags):
  """Exports a trained folder here, to `folder`/export."""
  flags = {"export_dir": folder / "export", "model_dir": folder, **flags}
  flags = {"vocab_file": folder / "vocab.txt", **flags}
  program_flags.run_main(
    export_saved_model, export_saved_model.ExportSettings, **flags
  )
  return str(flags["export_dir"])


@pytest.mark.slow
def test_answers_of_tagging(tmp_path):
  def make(config):
    model = heads.TaggerModel(config, 2)
    model.output_bias.assign([0.0, 100.0])  # All is B-POS.
    return model

  labels = ["O", "B-POS"]
  settings = {"label_scheme": "iob2", "by_character": True}
  tiny_models.write_trained(tmp_path, "tagging", make, labels, **settings)
  answer = bert.load(export(tmp_path, by_character=False))("(good")
  found = [(e["text"], e["type"], e["start"]) for e in answer["entities"]]
  assert found == [("(", "POS", 0), ("good", "POS", 1)]
  # As in Chinese data whose words are characters.
  model = bert.load(export(tmp_path, export_dir=tmp_path / "characters"))
  words = [(w["word"], w["start"]) for w in model("go (\u4e2d")["words"]]
  assert words == [("g", 0), ("o", 1), ("(", 3), ("\u4e2d", 4)]


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::UserWarning")  # It is to be a package.
def test_litert(trained, expected, tmp_path):
  folder = tmp_path / "lite"
  export(trained[0], export_dir=folder, format="litert")
  assert (folder / "model.tflite").stat().st_size > 10_000
  assert "int32 [1, 16]" in (folder / "README.md").read_text()
  with pytest.raises(ValueError, match="its format is litert; this takes"):
    exported_model.ExportedModel(str(folder))

  # What a program on a telephone does, after its own tokenizer.
  tokenizer = tokenization.FullTokenizer(str(folder / "vocab.txt"))
  packed = packing.pack(tokenizer.encode("a good film"), [], cls_id=2, sep_id=3)
  interpreter = tf.lite.Interpreter(str(folder / "model.tflite"))
  padding = [0] * (tiny.SEQUENCE - len(packed.input_ids))
  inputs = {k: np.int32([[*v, *padding]]) for k, v in packed._asdict().items()}
  found = interpreter.get_signature_runner()(**inputs)["probabilities"]
  np.testing.assert_allclose(found[0, 1], expected("a good film"), atol=1e-5)


def test_what_differs_when_loaded_again_is_not_kept(
  trained, tmp_path, monkeypatch
):
  good = tensorflow_engine.Engine.run

  def damaged(engine, *ids):
    return {k: v + 0.01 for k, v in good(engine, *ids).items()}

  monkeypatch.setattr(tensorflow_engine.Engine, "run", damaged)
  with pytest.raises(ValueError, match="loaded again, gives logits that"):
    export(trained[0], export_dir=tmp_path / "new")
  assert not list(tmp_path.iterdir())


@pytest.fixture(scope="module")
def squad_folder(tmp_path_factory):
  folder = tmp_path_factory.mktemp("squad")
  tiny_models.write_trained(folder, "question_answering", heads.SpanModel)
  return folder


def test_a_folder_that_is_no_export_is_named_before_a_package(
  trained, tmp_path, monkeypatch
):
  """With the command that makes an export of a model."""
  monkeypatch.setitem(sys.modules, "waitress", None)
  folder = trained[0]
  for path, message in (
    (tmp_path, f"{tmp_path}: no readable export.json there; expected an --"),
    (
      folder,
      f"{folder}: a model, not an export: `python export_saved_model.py "
      f"--model={folder} --export_dir={folder.name}_export` makes one",
    ),
    (
      folder / "export",
      "waitress is needed for --serve (import of waitress halted; None in "
      "sys.modules): pip install -r requirements.txt",
    ),
  ):
    command = program_flags.command("predict", export_dir=path, serve=True)
    program_flags.assert_refused(program_flags.run_here(command), message)


FAULTS = [
  ({"vocab_file": "", "model_dir": "/"}, "/: holds no vocabulary; p"),
  ({"max_seq_length": 17}, "--max_seq_length=17 is above the config's max_po"),
  ({"bert_config_file": __file__}, "--bert_config_file is for weights without"),
  ({"max_changed": 0.5}, "--max_changed=0.5 needs --quantize=int8"),
  ({"do_lower_case": False}, "settings.json says true: leave out the flag"),
]
SQUAD_FAULTS = [
  ({"null_score_diff_threshold": 1.0}, "this model answers every question"),
  ({"whole_word_answers": True, "vocab_file": "x.model"}, "vocab.txt, not x"),
]


@pytest.mark.parametrize(
  ("is_squad", "flags", "message"),
  [(False, *fault) for fault in FAULTS]
  + [(True, *fault) for fault in SQUAD_FAULTS],
)
def test_faults_of_an_export(
  trained, squad_folder, tmp_path, is_squad, flags, message
):
  flags = {"export_dir": tmp_path / "new", **flags}
  with pytest.raises(ValueError) as error:
    export(squad_folder if is_squad else trained[0], **flags)
  assert message in str(error.value)
  assert not list(tmp_path.iterdir())


class Server:
  """predict.py --serve in a process of its own."""

  def __init__(self, folder, **flags):
    flags = {"export_dir": folder / "export", "serve": True, "port": 0, **flags}
    self.process = subprocess.Popen(
      program_flags.command("predict", **flags),
      stdout=subprocess.PIPE,
      stderr=subprocess.PIPE,
    )
    line = self.process.stdout.readline().decode()
    self.port = int(re.fullmatch(r"http://127\.0\.0\.1:(\d+)/\n", line)[1])

  def connect(self):
    return http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)

  def ask(self, path, body=None, connection=None):
    connection = connection or self.connect()
    if isinstance(body, (dict, list)):
      body = json.dumps(body)
    connection.request("GET" if body is None else "POST", path, body)
    response = connection.getresponse()
    content = response.read()
    if response.headers["Content-Type"] == "application/json":
      content = json.loads(content)
    return response.status, content

  def memory(self):
    text = pathlib.Path(f"/proc/{self.process.pid}/status").read_text()
    return int(re.search(r"VmRSS:\s+(\d+) kB", text)[1]) / 1024


@pytest.fixture(scope="module")
def server(trained):
  server = Server(trained[0], max_request_bytes=100_000)
  yield server
  server.process.kill()
  server.process.wait()


def test_server_answers(server, expected):
  status, answer = server.ask("/predict", {"text": "good", "text_pair": "a"})
  assert status == 200
  texts = [("good", "a"), ("the film",), ("",), (LONG + " the cast",)]
  body = {"inputs": [{"text": text} for (text,) in texts[1:]]}
  status, answers = server.ask("/predict", body)
  assert status == 200
  rows = [answer, *answers["outputs"]]
  assert [row["truncated"] for row in rows] == [False, False, False, True]
  for row, words in zip(rows, texts, strict=True):
    share = row["probabilities"]["pos"]
    assert share == pytest.approx(expected(*words), abs=1e-5)


def test_server_gives_attention_and_its_page(server):
  body = {"text": "the film", "layer": 1, "head": 0}
  status, answer = server.ask("/attention", body)
  assert status == 200
  assert answer["tokens"] == ["[CLS]", "the", "film", "[SEP]"]
  sums = np.sum(answer["attention"], 1)
  np.testing.assert_allclose(sums, [1, 1, 1, 1], atol=1e-3)
  assert server.ask("/health") == (200, {"status": "ok"})
  assert server.ask("/model")[1]["labels"] == ["neg", "pos"]
  status, page = server.ask("/")
  assert status == 200 and page.startswith(b"<!doctype html>")
  for path in re.findall(rb'(?:src|href)="([^#"]+)"', page):
    status, content = server.ask(f"/{path.decode()}")
    assert status == 200 and content


@pytest.mark.parametrize(
  ("path", "body", "status", "message"),
  [
    ("/predict", "{", 400, "not JSON"),
    ("/predict", b'{"text": "\xff"}', 400, "not UTF-8: b"),
    ("/predict", '{"text": "\\ud800"}', 400, "surrogate"),
    ("/predict", "[" * 50_000, 400, "not JSON"),
    ("/predict", "[]", 400, "expected a JSON object with text, text_pair"),
    ("/predict", '{"inputs": 3}', 400, "inputs: expected a list"),
    ("/predict", '{"inputs": [{"text": "a"}, 5]}', 400, "inputs[1]: "),
    ("/predict", '{"text": 5}', 400, "text is int, expected a string"),
    ("/attention", '{"text": "a", "layer": 2, "head": 0}', 400, "from 0 to 1"),
    ("/other", "{}", 404, "knows /predict, /attention"),
    ("/predict", None, 405, 'with JSON, such as {"text": "...", "text_pair"'),
    ("/health", "{}", 405, "/health takes GET"),
  ],
)
def test_bad_requests(server, path, body, status, message):
  found, answer = server.ask(path, body)
  assert (found, list(answer)) == (status, ["error"])
  assert message in answer["error"]


def load(server, expected, seconds, clients=200):
  """Asks with many clients at once; returns how many answers were right."""
  texts = [tiny.make_text(n, ["good"]) for n in range(50)]
  shares = [expected(text) for text in texts]
  end = time.monotonic() + seconds

  def client(number):
    connection, count = server.connect(), 0
    while not count or time.monotonic() < end:
      index = (number + count) % len(texts)
      status, answer = server.ask(
        "/predict", {"text": texts[index]}, connection
      )
      assert status == 200, answer
      assert abs(answer["probabilities"]["pos"] - shares[index]) < 1e-4
      count += 1
    connection.close()
    return count

  assert len({round(share, 3) for share in shares}) > 10
  with futures.ThreadPoolExecutor(clients) as pool:
    return sum(pool.map(client, range(clients)))


@pytest.mark.slow
@pytest.mark.parametrize("format", ["saved_model", "onnx"])
def test_200_clients_for_a_minute(format, trained, expected):
  folder = trained[0] / "export"
  if format == "onnx":
    pytest.importorskip("onnx", reason="needs requirements/onnx.txt")
    folder = export(trained[0], export_dir=trained[0] / format, format=format)
  server = Server(trained[0], export_dir=folder)
  try:
    load(server, expected, seconds=10)
    before = server.memory()
    count = load(server, expected, seconds=60)
    after = server.memory()
    print(f"{count} answers, memory {before:.0f} MB before, {after:.0f} after")
    assert after < before + 40
  finally:
    server.process.kill()


def test_server_ends_on_sigterm(trained):
  server = Server(trained[0])
  connection = server.connect()
  assert server.ask("/predict", {"text": "good"}, connection)[0] == 200
  server.process.send_signal(signal.SIGTERM)
  assert server.process.wait(30) == 0
  assert server.process.stderr.read().endswith(b"stopped\n")
  connection.close()


@pytest.fixture(name="serve")
def serve_nobody(monkeypatch, capsys):
  """Gives a function that serves by some flags, up to the first request.

  It returns the names by which the server may be called, its address, and what
  had been printed when it began to listen.
  """
  found = []

  def make_server(names, listener, limits):
    found.extend([names, listener.getsockname()[0], capsys.readouterr().out])
    return types.SimpleNamespace(run=lambda: None)

  monkeypatch.setattr(http_server, "make_server", make_server)
  monkeypatch.setattr(http_server, "Application", lambda model, _, names: names)
  monkeypatch.setattr(signal, "signal", lambda *_: None)

  def serve(**flags):
    model = types.SimpleNamespace(card=types.SimpleNamespace(max_seq_length=8))
    flags |= {"export_dir": "x", "serve": True, "port": 0}
    settings = predict_program.PredictSettings.parse(flags)
    assert http_server.serve(model, settings) == 0
    return found

  return serve


def test_the_address_is_shown_when_it_can_be_asked(serve, capsys):
  """Whoever reads the line connects at once."""
  names, address, printed_before = serve()
  assert names == ["127.0.0.1", "localhost", socket.gethostname()]
  assert address == "127.0.0.1" and printed_before == ""
  assert capsys.readouterr().out.startswith("http://127.0.0.1:")


def test_the_host_and_other_names_are_those_of_the_flags(serve, capsys):
  flags = {"host": "0.0.0.0", "allowed_hosts": "a.example,b.example"}
  names, address, _ = serve(**flags)
  assert names[0] == address == "0.0.0.0"
  assert names[-2:] == ["a.example", "b.example"]
  assert capsys.readouterr().out.startswith("http://0.0.0.0:")


def test_a_port_that_is_taken(trained, server):
  result, _ = predict(trained[0], serve=True, port=server.port)
  assert result.returncode == 1
  assert "Address already in use" in result.stderr
