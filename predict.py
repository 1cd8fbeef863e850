"""Answers texts with an exported model, as JSON lines or on a web page.

  python predict.py --export_dir=/tmp/mrpc_export --input_file=pairs.tsv
  python predict.py --export_dir=/tmp/mrpc_export --serve

It needs the folder that export_saved_model.py wrote. The answers are those of
the program that trained the model.
"""

from collections.abc import Iterator
import dataclasses
import functools
import json
import queue
import threading
import time

from bert.cli import program, typed_flags
from bert.data import file_search, files, imports, progress, text_files
from bert.serving import answers, export_card, exported_model, request_lines

# Lines that are read while earlier lines are answered. They are answered
# together: among this many, most have neighbours of a similar length, so that
# their batches hold little padding. A line of more than so many tokens counts
# as several, so that long ones do not fill the memory.
_READ_AHEAD = 1024
_TOKENS_OF_A_LINE = 1024
_flags = typed_flags.group("Flags")
# These flags have no effect on a server, so they are refused with --serve.
_without_serve = functools.partial(_flags, needs="serve=false")
_serve_flag = typed_flags.group("With --serve")
_with_serve = functools.partial(_serve_flag, needs="serve")


@dataclasses.dataclass(frozen=True, kw_only=True)
class PredictSettings(typed_flags.Settings):
  """The settings of this program."""

  export_dir: str = _flags(
    typed_flags.REQUIRED,
    "The folder that export_saved_model.py wrote.",
    path="folder",
  )
  text: tuple[str, ...] = _flags(
    (),
    "A line of input, instead of --input_file. You may pass the flag several "
    "times.",
    repeated=True,
  )
  input_file: str = _flags(
    files.STANDARD_INPUT,
    "The file of texts; .gz and .xz are read, too. - is the standard input.",
    path="input",
  )
  input_format: str = _without_serve(
    "auto",
    "lines: one text per line. tsv: one column for each input of the model. "
    "csv: the same with commas and quotes. jsonl: objects with the inputs by "
    "name, and id. auto: by the name of the file; if that does not tell, tsv "
    "for a model that takes several texts, else lines.",
    choices=("auto", *request_lines.FORMATS),
  )
  text_column: str | None = _without_serve(
    None,
    "For TSV and CSV files: the column of the first text, as a name or a "
    "number from 0. Default: the column of the training, or the one that the "
    "header names as GLUE does, otherwise the first.",
  )
  text_pair_column: str | None = _without_serve(
    None,
    "For TSV and CSV files: the column of the second text, if there is one.",
  )
  header: str = _without_serve(
    "auto",
    "Whether the first row of a TSV or CSV file has names. auto: yes if these "
    "are the names of the columns or of the model's inputs.",
    choices=("auto", "yes", "no"),
  )
  output_file: str | None = _flags(
    None, "The file to write. Default: the standard output.", path="new_files"
  )
  batch_size: int = _flags(
    exported_model.BATCH_SIZE,
    "The batch size for inputs of full length. Batches of shorter inputs "
    "contain more of them.",
    least=1,
  )
  engine: str | None = _flags(
    None,
    "What runs an export of --format=onnx; onnxruntime by default. With "
    "AVX512-BF16 or AMX try openvino, see docs/speed.md.",
    choices=exported_model.ENGINES,
  )
  threads: int = _flags(
    0,
    "How many cores compute a batch; 0 uses all.",
    least=0,
    most=exported_model.MOST_THREADS,
  )
  serve: bool = _serve_flag(
    False, "Whether to start a server with a web page instead."
  )
  host: str = _with_serve(
    "127.0.0.1", "The address to listen on; 0.0.0.0 for all networks."
  )
  allowed_hosts: tuple[str, ...] = _with_serve(
    (),
    "Host names that requests may use, besides addresses, localhost and the "
    "name of this machine.",
  )
  port: int = _with_serve(
    8080, "The port to listen on; 0 takes any free port.", least=0, most=65535
  )
  max_request_bytes: int = _with_serve(
    1 << 20, "The maximum size of a request's body, in bytes.", least=0
  )
  batch_wait_ms: int = _with_serve(
    3,
    "How many milliseconds to wait for more requests before a batch is "
    "computed.",
    least=0,
  )

  def source(self) -> request_lines.Source:
    """Returns where the texts are; each of its fields is a flag."""
    names = request_lines.Source._fields
    return request_lines.Source(**{name: getattr(self, name) for name in names})

  def check(self) -> None:
    """Refuses what excludes each other, too."""
    # There is one input, and a server has its own. Only a program that answers
    # a file writes one.
    given = {
      "--serve": self.serve,
      "--text": self.text,
      "--input_file": self.input_file != files.STANDARD_INPUT,
      "--output_file": self.output_file and self.serve,
    }
    if len(used := [name for name, is_given in given.items() if is_given]) > 1:
      raise ValueError(f"{' and '.join(used)} are given: give one of them")
    super().check()


def read_ahead(
  lines: Iterator[request_lines.RequestLine], is_open: bool
) -> Iterator[list[request_lines.RequestLine]]:
  """Yields windows of lines, while more are read.

  Args:
    lines: those of the input.
    is_open: somebody may still be writing them. A window is then what there is
      by now, at least one line. Otherwise all windows but the last are full:
      they have 1,024 lines, or fewer long ones.
      Which lines are computed together changes the last digits of an answer:
      with full windows, a file has the same answers however fast it is read.
  """
  # The reader stops when there is no room: an input may be larger than the
  # memory.
  waiting: queue.Queue = queue.Queue()
  room = threading.Semaphore(_READ_AHEAD)

  def read():
    try:
      for line in lines:
        for _ in range(_size(line)):
          room.acquire()
        waiting.put(line)
      waiting.put(None)
    except Exception as error:  # For the other thread to raise.
      waiting.put(error)

  # A daemon, because the program must be able to end while its input is open.
  threading.Thread(target=read, daemon=True).start()
  is_last = False
  while not is_last:
    # While the input is open, it waits for one line only: a user who types a
    # line gets its answer at once.
    window = [waiting.get()]
    size = 0
    while isinstance(window[-1], request_lines.RequestLine):
      size += _size(window[-1])
      room.release(_size(window[-1]))
      if size >= _READ_AHEAD or (is_open and waiting.empty()):
        break
      window.append(waiting.get())

    # The last item is no line: None, or the error that ended the reading. The
    # lines before it are answered all the same.
    is_last = not isinstance(window[-1], request_lines.RequestLine)
    error = window.pop() if is_last else None
    if window:
      yield window
    if error:
      raise error


def _size(line: request_lines.RequestLine) -> int:
  """Returns how many lines a line counts as, up to a whole window."""
  rows = line.request.rows if line.request else ()
  tokens = sum(len(row.input_ids) for row in rows)
  return min(_READ_AHEAD, 1 + tokens // _TOKENS_OF_A_LINE)


def answer_lines(
  model: exported_model.ExportedModel, settings: PredictSettings
) -> int:
  """Answers the input; returns the exit status: 1 if a line has no answer."""
  start = time.monotonic()
  file_search.check_is_no_input(settings.output_file, [settings.input_file])
  lines = request_lines.read(settings.source(), model.maker)
  is_file = text_files.is_file(settings.input_file)
  is_open = not (settings.text or is_file)

  # --batch_size counts inputs of full length. Of shorter ones, a batch holds
  # more: as many as have the same number of tokens.
  most_tokens = settings.batch_size * model.card.max_seq_length

  count = 0
  bad = 0
  with files.open_lines(settings.output_file) as write:
    for window in read_ahead(lines, is_open):
      # A line that cannot be answered gets its error at its place, so that the
      # output has a line for each line of the input.
      good = [line.request for line in window if line.request is not None]
      answers_of_good = iter(model.answer(good, most_tokens))
      for line in window:
        answer = {"error": line.error} if line.error else next(answers_of_good)
        write(json.dumps({**line.first_fields, **answer}, ensure_ascii=False))
        count += 1
        bad += bool(line.error)

    # Raised within `with`: an empty input leaves no empty output file.
    if not count:
      raise ValueError(
        f"--input_file={settings.input_file}: the input is empty"
      )

  # Answers may go to the standard output, and must stay alone there.
  if bad:
    progress.note(f"{bad:,} line(s) could not be answered")
  if settings.output_file:
    command = program.command("predict.py", export_dir=settings.export_dir)
    wrote = f"wrote {settings.output_file}: {count - bad:,} answers"
    program.print_end(start, wrote, command=f"{command} --serve")
  return int(bad > 0)


def main() -> int:
  """Answers a file, or serves; returns the exit status."""
  settings = PredictSettings.read()

  # The card says what the model takes. What can be wrong is found by it, before
  # the model is loaded.
  card = export_card.read(settings.export_dir, answers.check)
  if settings.serve:
    imports.load("waitress", "--serve")
  else:
    request_lines.check(settings.source(), card)

  model = exported_model.ExportedModel(
    settings.export_dir, settings.threads, settings.engine or "", card
  )
  if settings.engine:
    progress.note(f"computing with {model.engine_name}")

  if not settings.serve:
    return answer_lines(model, settings)

  # Only the server needs waitress, a package that may be missing.
  from bert.serving import http_server

  return http_server.serve(model, settings)


if __name__ == "__main__":
  program.run_program(main, PredictSettings)
