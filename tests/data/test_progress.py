"""Tests of bert/data/progress.py and bert/data/notebook_line.py."""

import contextlib
import io
import os
import pty
import subprocess
import sys
import types

import pytest

import bert.data
from bert.data import progress
import paths

# Fifty units of work, each of which is shown, and a line that stays.
_WORK = """
from bert.data import progress
work = progress.Progress(50)
progress.SECONDS = 0
for done in range(1, 51):
  work.print_line(f"unit {done} " + "x" * 200 * (done == 25), done)
work.print_line("half way")
work.print_line("unit 50", 50)
progress.clear()
progress.clear()
"""
WORK = _WORK.replace("SECONDS", "_SECONDS_PER_LIVE_LINE")  # On a terminal.
WORK_WITH_LINES = _WORK.replace("SECONDS", "_SECONDS_PER_LINE")  # On a pipe.


def run_on_terminal(code, columns):
  """Returns what a program writes to a terminal of so many columns."""
  parent, child = pty.openpty()
  command = [sys.executable, "-c", code]
  environment = {**os.environ, "COLUMNS": str(columns)}
  subprocess.run(command, cwd=paths.ROOT, stderr=child, env=environment)
  os.close(child)
  written = b""
  try:
    while part := os.read(parent, 65536):
      written += part
  except OSError:  # Linux's way to say that a terminal is closed.
    pass
  os.close(parent)
  return written.decode()


def test_a_terminal_shows_one_line_with_a_bar_that_fits():
  shown = run_on_terminal(WORK, columns=120)
  assert shown.count("\n") == 1
  lines = shown.split("\r\x1b[K")
  assert lines[1] == "[" + "-" * 20 + "] unit 1 "
  assert lines[20] == "[" + "#" * 8 + "-" * 12 + "] unit 20 "
  assert lines[25] == "[##########----------] unit 25 " + "x" * 69
  # The live line is erased before one that stays, and at the end.
  assert lines[51] == "half way\r\n"
  assert lines[52:] == ["[####################] unit 50", ""]
  lines = run_on_terminal(WORK, columns=40).split("\r\x1b[K")
  assert max(map(len, lines)) == 39


class Kernel:
  """What a notebook's kernel has, without Jupyter: a stream, and outputs.

  `test_a_notebook_shows_one_line_that_is_gone_at_the_end` runs a real one.
  """

  def __init__(self, monkeypatch, widgets=None):
    self.execution_count = 1
    self.outputs = []  # What each stands for now.
    self.updates = 0

    def display(content, display_id):
      assert display_id is True
      place = len(self.outputs)
      self.outputs.append(content)

      def update(content):
        self.outputs[place] = content
        self.updates += 1

      return types.SimpleNamespace(update=update)

    class OutStream(io.StringIO):
      pass

    ipython = types.ModuleType("IPython")
    ipython.get_ipython = lambda: self
    ipython.display = types.SimpleNamespace(
      display=display, HTML=str, Pretty=str
    )
    iostream = types.ModuleType("ipykernel.iostream")
    iostream.OutStream = OutStream
    monkeypatch.setitem(sys.modules, "IPython", ipython)
    monkeypatch.setitem(sys.modules, "ipykernel.iostream", iostream)
    monkeypatch.setitem(sys.modules, "ipywidgets", widgets)

    # The file remembers the cell of the test before.
    name = "bert.data.notebook_line"
    monkeypatch.delitem(sys.modules, name, raising=False)
    monkeypatch.delattr(bert.data, "notebook_line", raising=False)
    self.stream = OutStream()
    monkeypatch.setattr(sys, "stderr", self.stream)


def half_bar(text):
  return f"<progress value='0.500'></progress> {text}"


def test_a_notebook_shows_the_line_as_an_output_that_is_replaced(monkeypatch):
  kernel = Kernel(monkeypatch)
  work = progress.Progress(8)
  work.print_line("no <unit>", 0)
  assert kernel.outputs == [
    "<progress value='0.000'></progress> no &lt;unit&gt;"
  ]
  work.print_line("half", 4)
  assert kernel.outputs == [half_bar("half")]

  # A line that stays goes to the stream, and the next one has the same output.
  work.print_line("it stays")
  assert kernel.outputs == [""]
  work.print_line("again", 4)
  assert kernel.outputs == [half_bar("again")]
  progress.clear()
  progress.clear()
  assert kernel.outputs == [""]
  assert kernel.stream.getvalue() == "it stays\n"

  # Another cell has an output of its own; after an error in it, the next cell
  # erases its line.
  kernel.execution_count = 2
  work.print_line("elsewhere", 4)
  assert kernel.outputs == ["", half_bar("elsewhere")]
  kernel.execution_count = 3
  progress.note("next")
  assert kernel.outputs == ["", ""]


def test_a_widget_renews_itself_without_a_new_output(monkeypatch):
  widgets = types.ModuleType("ipywidgets")
  widgets.HTML = types.SimpleNamespace
  kernel = Kernel(monkeypatch, widgets)
  work = progress.Progress(8)
  for done in (1, 2, 3, 4):
    work.print_line("unit", done)
  assert [output.value for output in kernel.outputs] == [half_bar("unit")]
  assert kernel.updates == 1
  progress.clear()
  assert kernel.outputs == [""]


def test_another_stream_in_a_notebook_gets_plain_lines(monkeypatch):
  kernel = Kernel(monkeypatch)
  monkeypatch.setattr(sys, "stderr", io.StringIO())
  progress.Progress(8).print_line("half", 4)
  assert sys.stderr.getvalue() == "half\n"
  assert kernel.outputs == []


@pytest.mark.parametrize("has_widgets", [False, True])
def test_a_notebook_shows_one_line_that_is_gone_at_the_end(has_widgets):
  # Who wants to run it installs requirements/notebook.txt.
  nbclient = pytest.importorskip("nbclient")
  nbformat = pytest.importorskip("nbformat").v4
  pytest.importorskip("ipykernel")
  hide = "import sys; sys.modules['ipywidgets'] = None"
  if has_widgets:
    pytest.importorskip("ipywidgets")
    hide = ""
  left = "work.print_line('unit 1', 1); 1 / 0"
  codes = [hide, WORK, left, "progress.note('next')"]
  notebook = nbformat.new_notebook(
    cells=[nbformat.new_code_cell(code) for code in codes]
  )
  client = nbclient.NotebookClient(
    notebook,
    allow_errors=True,
    kernel_name="python3",
    resources={"metadata": {"path": paths.ROOT}},
  )

  def run(number):
    client.execute_cell(notebook.cells[number], number)
    outputs = notebook.cells[number].outputs
    return [output.get("data") or output.get("text") for output in outputs]

  with client.setup_kernel():
    run(0)
    # The place of the line came first; then a line that stays.
    assert run(1) == [{"text/plain": ""}, "half way\n"]

    # The error leaves a line, which the next cell erases.
    data, error = run(2)
    if has_widgets:
      assert "application/vnd.jupyter.widget-view+json" in data
    else:
      assert data["text/html"] == "<progress value='0.020'></progress> unit 1"
    assert run(3) == ["next\n"]
    assert notebook.cells[2].outputs[0].data == {"text/plain": ""}


@pytest.mark.parametrize("is_terminal", [True, False])
def test_output_that_cannot_be_written_ends_no_work(monkeypatch, is_terminal):
  """A terminal that was closed, and a log on a full disk."""
  with contextlib.ExitStack() as stack:
    for name in ("stdout", "stderr"):
      parent, child = pty.openpty()
      stream = open(child if is_terminal else "/dev/full", "w")
      stack.enter_context(stream)
      monkeypatch.setattr(sys, name, stream)
      os.close(parent)
    with contextlib.suppress(OSError):
      print("to wait for the next line")
    progress.note("noted")
    progress.Progress(8).print_line("half", 4)
    print("done", flush=True)
    null = os.stat(os.devnull).st_rdev
    for stream in (sys.stdout, sys.stderr):
      assert os.fstat(stream.fileno()).st_rdev == null


def test_without_a_standard_error_nothing_is_in_the_output(monkeypatch, capsys):
  monkeypatch.setattr(sys, "stderr", None)
  progress.note("noted")
  progress.Progress(8).print_line("half", 4)
  assert capsys.readouterr().out == ""


def test_a_pipe_that_nobody_reads_ends_no_work():
  code = WORK_WITH_LINES + "print('done', flush=True)\n"
  command = [sys.executable, "-c", "import time; time.sleep(1)\n" + code]
  pipe = subprocess.PIPE
  with subprocess.Popen(
    command, cwd=paths.ROOT, stdout=pipe, stderr=pipe, text=True
  ) as process:
    process.stderr.close()
    assert process.stdout.read() == "done\n"
  assert process.returncode == 0


def test_the_time_left_is_told_from_the_second_batch_on(monkeypatch):
  seconds = [0.0]
  monkeypatch.setattr("time.monotonic", lambda: seconds[0])
  work = progress.Progress(100)
  found = []
  # The first batch waits for a compilation of 60 s.
  for now, done in ((61, 10), (62, 20), (64, 40), (70, 100)):
    seconds[0] = now
    found.append(work.eta(done))
  assert found == ["?", "0:00:08", "0:00:06", "0:00:00"]
  assert progress.Progress(100).eta(100) == "0:00:00"
  # A loop that has been compiled says so.
  work.restart(50)
  seconds[0] = 75
  assert work.eta(60) == "0:00:20"


def test_time_is_shown_and_the_part_and_what_is_left_if_known(
  monkeypatch, capsys
):
  seconds = [0.0]
  monkeypatch.setattr("time.monotonic", lambda: seconds[0])
  work = progress.Progress(1)
  # The first part comes after 60 s, of which the others need nothing.
  for now, part in ((60, 0.01), (61, 0.02), (90, 0.26), (3700, None)):
    seconds[0] = now
    work.print_part("counting", part)
  assert capsys.readouterr().err.splitlines() == [
    "counting, 0:01:00 elapsed, 1%, ? to go",
    "counting, 0:01:30 elapsed, 26%, 0:01:29 to go",
    "counting, 1:01:40 elapsed",
  ]


def test_a_pipe_gets_plain_lines():
  result = subprocess.run(
    [sys.executable, "-c", WORK], cwd=paths.ROOT, capture_output=True, text=True
  )
  lines = result.stderr.splitlines()
  assert lines[0] == "unit 1 "
  assert lines[50:] == ["half way", "unit 50"]
  assert "\x1b" not in result.stderr
