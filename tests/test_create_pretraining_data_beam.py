"""Tests of create_pretraining_data_beam.py and its pipeline in bert/data/."""

import collections
import contextlib
import gzip
import os
import signal
import subprocess
import sys
import time

import pytest

from bert import tokenization
from bert.data import pretraining_data
import paths
import program_flags
import record_programs
from record_programs import BEAM, PLAIN
import tiny

beam = pytest.importorskip(
  "apache_beam", reason="pip install -r requirements/beam.txt"
)
from bert.data import pretraining_pipeline

SETTINGS = pretraining_data.RecordSettings(
  max_seq_length=32, max_predictions_per_seq=5, documents_per_block=4
)
FLAGS = {"input_file": "1.txt,2.txt.gz", "documents_per_block": 4}


@pytest.fixture
def folder(tmp_path, write):
  write("vocab.txt", "\n".join(tiny.CORPUS_WORDS))
  # The third document ends in the second file; block 5 has five.
  write("1.txt", tiny.make_corpus(3))
  write("2.txt.gz", gzip.compress(tiny.make_corpus(19, 1).encode()))
  return tmp_path


def make_records(*arguments, **changes):
  tokenizer = tokenization.FullTokenizer("vocab.txt")
  vocabulary = pretraining_data.make_vocabulary(tokenizer, "vocab.txt")
  files = {"inputs": ["1.txt", "2.txt.gz"], "outputs": ["a"]}
  return pretraining_pipeline.make_records(
    pretraining_data.BlockMaker(vocabulary, SETTINGS),
    arguments=list(arguments),
    **{**files, "compress": False, **changes},
  )


def run(program, **flags):
  command = record_programs.command(program, **{**FLAGS, **flags})
  return program_flags.run_here(command)


def records_in(*names, opener=open):
  """Counts the records of TFRecord files: 12 bytes, the record, 4 bytes."""
  records = collections.Counter()
  for name in names:
    with opener(name, "rb") as file:
      while header := file.read(12):
        size = int.from_bytes(header[:8], "little")
        records[file.read(size + 4)] += 1
  return records


def make_plain():
  done = run(PLAIN, output_file="plain")
  assert (done.returncode, done.stderr) == (0, "")
  return done.stdout.splitlines()


@pytest.mark.parametrize(
  "arguments",
  [
    [],
    ["--direct_num_workers=2", "--direct_running_mode=multi_threading"],
    ["--runner=BundleBasedDirectRunner"],
  ],
)
@pytest.mark.parametrize(("compress", "opener"), [(0, open), (1, gzip.open)])
def test_records_equal_those_of_the_plain_program(
  folder, arguments, compress, opener
):
  make_plain()
  (folder / "b").write_text("old")
  statistics, records = make_records(
    *arguments, outputs=["new/a", "b"], compress=bool(compress)
  )
  made = records_in("new/a", "b", opener=opener)
  assert made == records_in("plain")
  assert made.total() == records
  assert (statistics.documents, statistics.sentences) == (21, 110)
  assert os.listdir("new") == ["a"]
  assert sorted(os.listdir()) == "1.txt 2.txt.gz b new plain vocab.txt".split()


def test_the_summary_equals_that_of_the_plain_program(folder):
  stated = make_plain()
  done = run(BEAM)
  assert (done.returncode, done.stderr) == (0, "")
  summary = done.stdout.splitlines()
  assert summary[:2] == stated[:2]
  assert summary[2].startswith("finished in ")
  assert summary[3] == "  wrote out"


@pytest.mark.parametrize(
  ("changes", "message"),
  [
    ({"inputs": ["empty.txt"]}, "the input holds no text"),
    ({"inputs": ["one.txt"]}, "=4 holds two documents; random"),
    ({"inputs": ["hidden.txt"]}, "=4 holds two documents; random"),
    ({"inputs": ["1.txt", "latin.txt"]}, "latin.txt:3: not UTF-8: b'"),
    ({"inputs": ["cut.txt.gz"]}, "cut.txt.gz: damaged compressed file"),
    ({"inputs": ["gone.txt"]}, "No such file .*/gone.txt'"),
    ({"outputs": ["folder"]}, "folder: cannot write"),
    ({"outputs": ["gs://bucket/a"]}, r"pip install apache-beam\[gcp\]"),
  ],
)
def test_bad_input_loses_nothing(folder, changes, message):
  record_programs.write_bad_texts(folder)
  (folder / "hidden.txt").write_text("a b\n\n\u200b\n")
  (folder / "a").write_text("old")
  before = sorted(os.listdir())
  with pytest.raises((ValueError, OSError), match=message):
    make_records(**changes)
  assert (folder / "a").read_text() == "old"
  assert sorted(os.listdir()) == before


@pytest.mark.parametrize(
  ("argument", "message"),
  [
    ("--max_seq_len=3", "'--max_seq_len=3' is no flag of this program"),
    ("extra", "'extra' is no flag of this program"),
    ("--direct_num_workers=x", "--direct_num_workers: invalid int value: 'x'"),
    ("--direct_num_workers=2", "create_pretraining_data.py --num_processes=2"),
    ("--runner=Foo", "Unexpected pipeline runner: Foo"),
  ],
)
def test_a_flag_that_nobody_knows(folder, argument, message):
  with pytest.raises(ValueError, match=message):
    make_records(argument)


def test_flags_for_a_job_server_stand_behind_two_dashes(folder):
  make_records("--", "--spark_thing=3")
  assert records_in("a")


def test_an_error_is_one_line(folder):
  (folder / "1.txt").write_bytes(b"a\n\nb \xe9\n")
  message = "3: not UTF-8: b'b \\xe9\\n'; convert it, of Latin-1 by iconv -f"
  program_flags.assert_refused(run(BEAM), f"1.txt:{message}")


def test_without_beam_there_is_help_and_one_line(folder):
  # As on a machine without Beam.
  (folder / "apache_beam.py").write_text("raise ImportError('none')")
  command = record_programs.command(BEAM, **FLAGS)
  environment = {"PYTHONPATH": str(folder)}
  ran = program_flags.run_command(command, **environment)
  program_flags.assert_refused(
    ran, "Apache Beam is missing: pip install -r requirements/beam.txt (none)"
  )
  ran = program_flags.run_command([*command, "--help"], **environment)
  assert "--documents_per_block" in ran.stdout


@pytest.mark.slow
@pytest.mark.parametrize("stop", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupted_run_can_be_repeated(folder, stop):
  def is_working(process):
    return list(folder.glob("out.*.work"))

  flags = {**FLAGS, "dupe_factor": 2000}
  record_programs.interrupt(BEAM, stop, is_working, **flags)
  assert run(BEAM).returncode == 0


@pytest.mark.slow
def test_a_job_server_makes_the_same_records(folder):
  make_plain()
  # Beam's own one, in Python; what talks to it talks to Flink's and Spark's.
  module = "apache_beam.runners.portability.local_job_service_main"
  server = subprocess.Popen(
    [sys.executable, "-m", module, "--port_file=port"],
    stderr=subprocess.DEVNULL,
  )
  try:
    deadline = time.monotonic() + 60
    while not (folder / "port").exists() or not (folder / "port").read_text():
      assert time.monotonic() < deadline and server.poll() is None
      time.sleep(0.1)
    done = run(
      BEAM,
      runner="PortableRunner",
      job_endpoint=f"localhost:{(folder / 'port').read_text()}",
      environment_type="LOOPBACK",
    )
  finally:
    server.kill()
    server.wait()
  assert done.returncode == 0, done.stderr
  assert records_in("out") == records_in("plain")


def start_dask(*arguments):
  """Starts a process of Dask that can import this project."""
  places = [str(paths.ROOT), os.environ.get("PYTHONPATH", "")]
  return subprocess.Popen(
    [
      sys.executable,
      "-m",
      *arguments,
      "--scheduler-file=dask",
      "--no-dashboard",
    ],
    env={**os.environ, "PYTHONPATH": os.pathsep.join(places)},
    stderr=subprocess.DEVNULL,
  )


def wait_for(found, process):
  """Returns what a function finds while a process works."""
  deadline = time.monotonic() + 240
  while not (value := found()):
    assert time.monotonic() < deadline and process.poll() is None
    time.sleep(0.05)
  return value


@pytest.mark.slow
def test_dask_does_the_work_of_a_killed_worker_again(folder):
  distributed = pytest.importorskip(
    "distributed", reason="pip install apache-beam[dask]"
  )
  flags = {"dupe_factor": 300}
  assert run(PLAIN, output_file="plain", **flags).returncode == 0

  flags |= {"runner": "apache_beam.runners.dask.dask_runner.DaskRunner"}
  flags |= {"dask_scheduler_file": "dask"}
  with contextlib.ExitStack() as stack:

    def start(process):
      stack.callback(process.wait)
      stack.callback(process.kill)
      return process

    scheduler = start(start_dask("distributed.cli.dask_scheduler", "--port=0"))
    wait_for((folder / "dask").exists, scheduler)
    one = ["distributed.cli.dask_worker", "--nthreads=1", "--no-nanny"]
    names = ("first", "second")
    workers = {n: start(start_dask(*one, f"--name={n}")) for n in names}
    client = stack.enter_context(distributed.Client(scheduler_file="dask"))
    client.wait_for_workers(2, timeout=120)

    command = record_programs.command(BEAM, **{**FLAGS, **flags})
    program = start(
      subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    )
    # A worker has begun to write records.
    wait_for(lambda: list(folder.glob("out.*.work/*/*")), program)
    busy = wait_for(
      lambda: [w for w, tasks in client.processing().items() if tasks], program
    )
    for address in busy[:1]:
      workers[client.scheduler_info()["workers"][address]["name"]].kill()
    assert program.poll() is None
    output, _ = program.communicate(timeout=240)
  assert program.returncode == 0
  assert "wrote out; the runner counts no records" in output
  assert records_in("out") == records_in("plain")
