"""Answers texts with an exported model, as JSON lines or on a web page.

  python predict.py --export_dir=/tmp/mrpc_export --input_file=pairs.tsv
  python predict.py --export_dir=/tmp/mrpc_export --serve

It needs the folder that export_saved_model.py wrote, and none of the code that
made and trained the model.
"""

from collections.abc import Iterator
import json
import queue
import sys
import threading
import time
from typing import Any, NamedTuple

from absl import flags

from cli import program
from data import files
from serving import exported_model
from serving import http_server
from serving import request_lines

FLAGS = flags.FLAGS

# Lines that are read ahead, and the most that are answered together.
_READ_AHEAD = 1024
_WINDOW = 256
_BYTES_PER_TOKEN = 4


def define_flags() -> None:
  """Declares the flags of this program."""
  flags.DEFINE_string(
    "export_dir", None, "What export_saved_model.py wrote.", required=True
  )
  flags.DEFINE_multi_string(
    "text", None, "A line of input, instead of a file; may be given again."
  )
  flags.DEFINE_string(
    "input_file",
    files.STANDARD_INPUT,
    "What to answer, one a line: a file, .gz and .xz too, or - for the "
    "standard input.",
  )
  flags.DEFINE_enum(
    "input_format",
    "auto",
    ["auto", *request_lines.FORMATS],
    "lines: a text a line. tsv: a column for each input of the model. jsonl: "
    "objects with the inputs by name, and id. auto: by the file's name, else "
    "tsv if the model needs two texts.",
  )
  flags.DEFINE_string(
    "output_file", None, "What to write; default the standard output."
  )
  flags.DEFINE_integer(
    "batch_size",
    # More at once would only be padded more.
    8,
    "Inputs of the model's full length per batch; of shorter ones, more.",
    lower_bound=1,
  )
  flags.DEFINE_bool("serve", False, "Whether to answer on a web page instead.")
  flags.DEFINE_string(
    "host", "127.0.0.1", "With --serve: the address; 0.0.0.0 for everybody's."
  )
  for name, default, text in (
    ("port", 8080, "With --serve: the port; 0 for any that is free."),
    ("max_request_bytes", 1 << 20, "With --serve: of the body of a request."),
    ("batch_wait_ms", 3, "With --serve: how long a batch waits for more."),
  ):
    flags.DEFINE_integer(name, default, text, lower_bound=0)
  flags.DEFINE_bool("verbose", False, "Whether to tell how long things took.")


class Clock(NamedTuple):
  """Tells how long after the start of the program things happen."""

  start: float

  def tell(self, what: str) -> None:
    """Prints the time, if asked to."""
    if FLAGS.verbose:
      passed = time.monotonic() - self.start
      print(f"{passed:6.2f} s  {what}", file=sys.stderr, flush=True)


def load_model(clock: Clock) -> exported_model.ExportedModel:
  """Loads the model of the flags."""
  exported_model.read_facts(FLAGS.export_dir)  # Before TensorFlow's seconds.
  program.import_tensorflow()
  import tensorflow as tf

  tf.get_logger().setLevel("ERROR")
  clock.tell("TensorFlow imported")
  model = exported_model.ExportedModel(FLAGS.export_dir)
  clock.tell("model loaded")
  return model


def read_ahead(
  lines: Iterator[request_lines.Line],
) -> Iterator[list[request_lines.Line]]:
  """Yields the lines there are by now, at least one, while more are read."""
  waiting: queue.Queue = queue.Queue(_READ_AHEAD)
  end = object()

  def read():
    try:
      for line in lines:
        waiting.put(line)
      waiting.put(end)
    except Exception as error:  # For the other thread to raise.
      waiting.put(error)

  threading.Thread(target=read, daemon=True).start()
  item = waiting.get()
  while item is not end:
    window = []
    while isinstance(item, request_lines.Line) and len(window) < _WINDOW:
      window.append(item)
      if waiting.empty():
        break
      item = waiting.get()
    if window:
      yield window
    if isinstance(item, Exception):
      raise item
    if not window or item is window[-1]:
      item = waiting.get()


def answer_window(
  model: exported_model.ExportedModel, window: list[request_lines.Line]
) -> Iterator[dict[str, Any]]:
  """Yields the answers to lines in their order."""
  tokens = FLAGS.batch_size * model.facts["max_seq_length"]
  good = [line for line in window if line.request is not None]
  answers = iter(
    model.answer_many(
      [line.request for line in good], tokens * _BYTES_PER_TOKEN
    )
  )
  for line in window:
    if line.request is None:
      yield {**line.shown, "error": line.error}
    else:
      yield {**line.shown, **next(answers)}


def answer_lines(model: exported_model.ExportedModel, clock: Clock) -> int:
  """Answers the input; returns how many lines could not be answered."""
  lines = request_lines.read(
    FLAGS.text, FLAGS.input_file, FLAGS.input_format, model
  )
  count = bad = 0
  with files.open_lines(FLAGS.output_file) as write:
    for window in read_ahead(lines):
      for answer in answer_window(model, window):
        write(json.dumps(answer, ensure_ascii=False))
        if not count:
          clock.tell("first answer")
        count, bad = count + 1, bad + ("error" in answer)
  clock.tell(f"{count:,} lines answered")
  return bad


def main() -> int | None:
  clock = Clock(time.monotonic())
  model = load_model(clock)
  if FLAGS.serve:
    limits = http_server.Limits(
      FLAGS.max_request_bytes,
      FLAGS.batch_size * model.facts["max_seq_length"] * _BYTES_PER_TOKEN,
      FLAGS.batch_wait_ms / 1000,
    )
    return http_server.serve(model, FLAGS.host, FLAGS.port, limits)
  bad = answer_lines(model, clock)
  if bad:
    print(f"{bad:,} line(s) could not be answered", file=sys.stderr)
  return int(bad > 0)


if __name__ == "__main__":
  program.run_program(main, define_flags)
