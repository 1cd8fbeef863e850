"""Looks for inputs that a reader does not survive, led by the code they reach.

pip install -r requirements/fuzz.txt
python benchmarks/fuzz.py --inputs=1000000

libFuzzer changes valid files byte by byte, and keeps each change that reaches a
line of ours that none had reached before. Whatever a file holds, its reader has
to return a value or raise a ValueError whose text is one line with the file's
path; any other exception, 20 seconds or 4 GB are a finding. A tokenizer has to
give the tokens of a slow one that was written for comparison.

The inputs are shared equally by the targets, each in a process of its own.
Prints a table in Markdown: inputs, seconds, how many branches were reached, and
findings, whose inputs stay in --output_dir. The exit status is 1 if there are
any. With the same --seed, a target gets the same inputs.
"""

import argparse
from collections.abc import Callable
import functools
import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import time
from typing import Any, NamedTuple

ROOT = pathlib.Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT / "tests/helpers"), str(ROOT / "tests"), str(ROOT)]
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

# What libFuzzer stops at: seconds for an input, megabytes, bytes of an input.
_LIMITS = ("-timeout=20", "-rss_limit_mb=4096", "-max_len=2048")


class Target(NamedTuple):
  """What gets the inputs, and valid ones to begin with."""

  run: Callable[[bytes], Any]
  seeds: list[bytes]


def make_targets(folder: pathlib.Path) -> dict[str, Target]:
  """Returns all targets by name; they work in a folder."""
  import test_fuzz_readers
  import test_fuzz_tokenization
  import test_fuzz_weights
  from waitress import adjustments

  from bert import tokenization
  from bert.convert import formats
  from bert.serving import http_server, request_lines
  import fuzzing
  import tiny_index
  import tiny_models

  def of_file(name, read, *seeds):
    path = folder / name

    def run(content):
      path.write_bytes(content)
      fuzzing.check_writable(fuzzing.value_or_error(read, path))

    return Target(run, [seed.encode() for seed in seeds])

  targets = {
    name: of_file(name, read, valid)
    for name, (read, valid) in test_fuzz_readers.READERS.items()
  }
  for name, (read, valid) in test_fuzz_readers.JSON_READERS.items():
    targets[f"values of {name}"] = of_file(name, read, json.dumps(valid))
  targets["vocab.txt"] = of_file(
    "vocab.txt", tokenization.load_vocab, "[UNK]\na\n##\u4e2d\n"
  )
  targets["bert_config.json"] = of_file(
    "bert_config.json",
    lambda path: formats.read_config(path).to_json_string(),
    json.dumps(test_fuzz_weights.CONFIG),
    json.dumps(test_fuzz_weights.HUGGING_FACE_CONFIG),
  )

  # The checksums are right: else nearly all changes end there.
  def read_index(content):
    files = test_fuzz_weights.with_data(tiny_index.make_table(content))
    prefix = test_fuzz_weights.write_checkpoint(folder, files)
    fuzzing.value_or_error(test_fuzz_weights.read_checkpoint, prefix)

  block = tiny_index.make_block(test_fuzz_weights.ENTRIES)
  targets["index of a checkpoint"] = Target(read_index, [block])

  requests = folder / "requests"
  requests.mkdir()
  maker = tiny_models.make_maker(requests, ["text", "text_pair"])

  def read_body(content):
    try:
      return maker.encode(
        request_lines.parse_json(request_lines.decode(content))
      )
    except ValueError as error:
      assert len(str(error).splitlines()) == 1, error

  body = json.dumps(test_fuzz_readers.REQUEST).encode()
  targets["body of a request"] = Target(read_body, [body])
  settings = adjustments.Adjustments(max_request_body_size=100)
  receive = functools.partial(
    _receive, http_server=http_server, settings=settings
  )
  targets["connection"] = Target(receive, _CONNECTIONS)

  for lower in (True, False):
    tokenizer = test_fuzz_tokenization.make_tokenizer(
      requests, test_fuzz_tokenization.VOCABULARY, lower
    )

    def tokenize(content, tokenizer=tokenizer, lower=lower):
      text = content.decode("utf-8", "replace")
      test_fuzz_tokenization.check(tokenizer, text, lower, ())

    targets[f"tokenizer, do_lower_case={lower}"] = Target(
      tokenize, [" ".join(test_fuzz_tokenization.VOCABULARY).encode()]
    )
  return targets


_CONNECTIONS = [
  b"POST /predict HTTP/1.1\r\nHost: a\r\nContent-Length: 2\r\n\r\n{}",
  b"GET /model HTTP/1.1\r\nHost: a\r\n\r\nGET / HTTP/1.0\r\n\r\n",
  b"POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\n\r\n",
]


def _receive(content, http_server, settings):
  """Parses what a client sends as one connection of the server does."""
  request = None
  while content:
    request = request or http_server._Parser(settings)
    content = content[request.received(content) :]
    if request.completed:
      if request.error:  # The connection is closed.
        return
      request = None


def fuzz(name: str, count: int, options: argparse.Namespace) -> None:
  """Gives a target so many inputs, and ends the process."""
  import atheris

  with atheris.instrument_imports(include=["bert", "waitress"]):
    targets = make_targets(pathlib.Path(tempfile.mkdtemp()))

  target = targets[name]
  corpus = pathlib.Path(tempfile.mkdtemp())
  for number, seed in enumerate(target.seeds):
    (corpus / str(number)).write_bytes(seed)
  prefix = options.output_dir / f"{name.replace(' ', '_')}-"
  flags = [f"-runs={count}", f"-seed={options.seed}", *_LIMITS]
  flags += ["-print_final_stats=1", f"-artifact_prefix={prefix}"]
  atheris.Setup([sys.argv[0], *flags, str(corpus)], target.run)
  atheris.Fuzz()


def make_row(name: str, options: argparse.Namespace) -> list[str]:
  """Fuzzes a target in a process of its own; returns the cells of its row."""
  flags = [f"--target={name}", f"--inputs={options.inputs}"]
  flags += [f"--seed={options.seed}", f"--output_dir={options.output_dir}"]
  start = time.monotonic()
  with tempfile.TemporaryDirectory() as folder:
    result = subprocess.run(
      [sys.executable, __file__, *flags],
      stdout=subprocess.PIPE,  # The traceback of a finding goes there.
      stderr=subprocess.STDOUT,
      text=True,
      errors="replace",
      env={**os.environ, "TMPDIR": folder},
    )
  seconds = time.monotonic() - start

  log = options.output_dir / f"{name.replace(' ', '_')}.log"
  log.write_text(result.stdout, "utf-8")
  done = re.search(r"number_of_executed_units: (\d+)", result.stdout)
  reached = re.findall(r" cov: (\d+)", result.stdout)
  cells = [name, f"{int(done[1]):,}" if done else "?", f"{seconds:.0f}"]
  is_found = result.returncode or not done
  return [*cells, reached[-1] if reached else "?", str(log) if is_found else ""]


def main() -> int:
  parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
  add = parser.add_argument
  add("--inputs", type=int, default=1_000_000, help="for all targets together")
  add("--output_dir", type=pathlib.Path, default=pathlib.Path("fuzz"))
  add("--seed", type=int, default=1)
  add("--target", help="one of them, which gets all inputs, in this process")
  options = parser.parse_args()
  options.output_dir = options.output_dir.resolve()
  options.output_dir.mkdir(parents=True, exist_ok=True)
  if options.target:
    fuzz(options.target, options.inputs, options)

  with tempfile.TemporaryDirectory() as folder:
    names = list(make_targets(pathlib.Path(folder)))
  options.inputs = -(-options.inputs // len(names))
  print("| target | inputs | seconds | branches | findings |")
  print("|---|---|---|---|---|")
  status = 0
  for name in names:
    row = make_row(name, options)
    print(f"| {' | '.join(row)} |", flush=True)
    status |= bool(row[-1])
  return status


if __name__ == "__main__":
  sys.exit(main())
