"""Times a server while a client sends it long texts.

python benchmarks/long_texts.py

Exports the encoder of models/mini with a random head for questions (384 tokens,
windows 128 apart), serves it, and sends, one after the other, bodies of 1 MB: a
context of ordinary words, and one of combining marks (and of 80 KB). Meanwhile
/health is asked fifty times a second, and a small question five times. Prints
how long they took, and exits with 1 if the 99th percentile of /health is above
0.5 s, or a small question took longer than 1 s.
"""

import argparse
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import threading
import time

import numpy as np
import slow_clients

ROOT = slow_clients.ROOT
MOST_HEALTH, MOST_QUESTION = 0.5, 1.0  # Seconds.
QUESTION = {"question": "Who wrote it ?", "context": "Ada wrote the notes ."}
MARKS = "\u0301\u0323"
CONTEXTS = {
  "nothing": "",
  "1 MB of words": "The film was very good , and Ada wrote notes on it . "
  * 19_000,
  "80 KB of marks": "a" + MARKS * 20_000,
  "1 MB of marks": "a" + MARKS * 250_000,
}
# In a process of its own, which is gone when the server is timed.
_WRITE_MODEL = """
import json, os, shutil, sys
import keras
from bert import heads, modeling
from bert.data import files
from bert.weights import checkpoints
source, folder = sys.argv[1:]
os.mkdir(folder)
keras.utils.set_random_seed(1)
path = os.path.join(source, "bert_config.json")
content = files.read_json(path) | {"max_position_embeddings": 384}
config = modeling.BertConfig.from_dict(content)
variables = checkpoints.model_variables(heads.SpanModel(config))
shutil.copy(os.path.join(source, "vocab.txt"), folder)
path = os.path.join(folder, "bert_config.json")
files.write_text(path, config.to_json_string())
files.write_json(os.path.join(folder, "settings.json"), {
  "problem": "question_answering", "do_lower_case": True,
  "vocab_file_sha256": files.hash_file(os.path.join(folder, "vocab.txt"))})
files.write_json(os.path.join(folder, "prediction.json"), {
  "max_seq_length": 384, "doc_stride": 128, "max_query_length": 64,
  "n_best_size": 20, "max_answer_length": 30, "whole_word_answers": False,
  "version_2_with_negative": False, "null_score_diff_threshold": 0.0,
  "padding_competes": False})
checkpoints.save(folder, 1, variables, keep=1)
"""


def watch(port: int, context: str, least_seconds: float):
  """Sends a context; returns the seconds of /health, questions, and its own."""
  times = {"/health": [], "/predict": []}
  over = threading.Event()
  start = time.monotonic()

  def ask_often(path, pause, content=None):
    while not over.is_set():
      seconds, status = slow_clients.ask(port, path, content)
      if status != "200":
        raise RuntimeError(f"{path}: {status}")
      times[path].append(seconds)
      time.sleep(pause)

  # Two clients that ask all the time.
  threads = [
    threading.Thread(target=ask_often, args=("/health", 0.02)),
    threading.Thread(target=ask_often, args=("/predict", 0.2, QUESTION)),
  ]
  for thread in threads:
    thread.start()

  # The long text is sent by a process of its own.
  if context:
    body = {"question": "Who wrote it ?", "context": context}
    send = [sys.executable, "-c", _SEND, str(port)]
    subprocess.run(send, input=json.dumps(body, ensure_ascii=False).encode())

  # Also a short answer is watched for some seconds, for a percentile.
  seconds = time.monotonic() - start
  time.sleep(max(0.0, least_seconds - seconds))
  over.set()
  for thread in threads:
    thread.join()
  return times["/health"], times["/predict"], seconds


_SEND = """
import http.client, sys
client = http.client.HTTPConnection("localhost", int(sys.argv[1]), timeout=130)
client.request("POST", "/predict", sys.stdin.buffer.read())
answer = client.getresponse()
print(f"  the long text: status {answer.status}, {len(answer.read())} bytes")
"""


def describe(times: list[float]) -> str:
  return f"median {np.median(times):.3f} s, longest {max(times):.3f} s"


def main() -> None:
  arguments = argparse.ArgumentParser(description=__doc__.split("\n")[0])
  arguments.add_argument("--seconds", type=float, default=10.0)
  arguments = arguments.parse_args()
  missed = False
  with tempfile.TemporaryDirectory() as folder:
    trained = f"{folder}/squad"
    exported = f"{folder}/export"
    python = sys.executable
    env = {**os.environ, "PYTHONPATH": str(ROOT)}

    # A model with random weights takes as long as a trained one.
    model = str(pathlib.Path(ROOT, "models", "mini"))
    subprocess.run(
      [python, "-c", _WRITE_MODEL, model, trained], env=env, check=True
    )
    export = [python, "export_saved_model.py", f"--model={trained}"]
    export += ["--format=onnx", f"--export_dir={exported}"]
    subprocess.run(export, cwd=ROOT, check=True)

    # On any free port, which the server prints.
    serve = [python, "predict.py", f"--export_dir={exported}", "--serve"]
    process = subprocess.Popen(
      [*serve, "--port=0"], cwd=ROOT, stdout=subprocess.PIPE, text=True
    )
    try:
      port = int(process.stdout.readline().rstrip("/\n").rpartition(":")[2])
      for name, context in CONTEXTS.items():
        health, small, seconds = watch(port, context, arguments.seconds)

        high = np.percentile(health, 99)
        print(f"{name}, {seconds:.1f} s")
        print(f"  /health: {describe(health)}, 99th percentile {high:.3f} s")
        print(f"  a small question: {describe(small)}", flush=True)
        missed |= high > MOST_HEALTH or max(small) > MOST_QUESTION
    finally:
      process.terminate()
      process.wait()
  sys.exit(missed)


if __name__ == "__main__":
  main()
