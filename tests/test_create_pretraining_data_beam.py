"""Tests of create_pretraining_data_beam.py and data/pretraining_pipeline.py."""

import dataclasses
import errno
import gzip
import hashlib
import os
import random
import resource
import shutil
import signal
import subprocess
import sys
import time
import zipfile

import pytest

from data import files
from data import pretraining_data
import paths
import tiny_corpus
import tokenization

beam = pytest.importorskip(
  "apache_beam", reason="pip install -r requirements/beam.txt"
)
from data import pretraining_pipeline  # noqa: E402

SETTINGS = pretraining_data.Settings(
  max_seq_length=32, max_predictions_per_seq=5, documents_per_block=4
)
PROGRAM = "create_pretraining_data_beam.py"


@pytest.fixture(autouse=True)
def _restore_file_system():
  yield
  files.use_file_system(None)


@pytest.fixture
def folder(tmp_path, monkeypatch):
  monkeypatch.chdir(tmp_path)
  (tmp_path / "vocab.txt").write_text("\n".join(tiny_corpus.WORDS))
  # The third document goes on in the second file; block 5 has five.
  (tmp_path / "1.txt").write_text(tiny_corpus.corpus(3))
  (tmp_path / "2.txt.gz").write_bytes(
    gzip.compress(tiny_corpus.corpus(19, 1).encode())
  )
  return tmp_path


def make_work(**changes):
  tokenizer = tokenization.FullTokenizer("vocab.txt")
  vocabulary = pretraining_data.make_vocabulary(
    tokenizer.encode, tokenizer.vocab, "vocab.txt"
  )
  work = pretraining_pipeline.Work(
    inputs=["1.txt", "2.txt.gz"],
    outputs=["a"],
    vocabulary=vocabulary,
    settings=SETTINGS,
    compress=False,
  )
  return work._replace(**changes)


def command(program, **flags):
  flags = {
    "input_file": "1.txt,2.txt.gz",
    "vocab_file": "vocab.txt",
    "max_seq_length": 32,
    "max_predictions_per_seq": 5,
    "documents_per_block": 4,
    **flags,
  }
  flags = (f"--{name}={value}" for name, value in flags.items())
  return [sys.executable, str(paths.ROOT / program), *flags]


def run(program, preexec_fn=None, **flags):
  return subprocess.run(
    command(program, **flags),
    capture_output=True,
    text=True,
    preexec_fn=preexec_fn,
  )


def make_plain(outputs, compress=False):
  done = run(
    "create_pretraining_data.py", output_file=outputs, compress=compress
  )
  assert (done.returncode, done.stderr) == (0, "")
  return done.stdout.splitlines()


def listing(folder):
  return sorted(os.listdir(folder))


@pytest.mark.parametrize("compress", [False, True])
@pytest.mark.parametrize(
  "arguments", [[], ["--runner=BundleBasedDirectRunner"]]
)
def test_files_equal_those_of_the_plain_program(folder, arguments, compress):
  make_plain("a,b,c", compress)
  work = make_work(outputs=["new/A", "new/B", "C"], compress=compress)
  pretraining_pipeline.make_records(work, arguments)
  for name, other in [("a", "new/A"), ("b", "new/B"), ("c", "C")]:
    assert (folder / name).read_bytes() == (folder / other).read_bytes()
  assert listing(folder / "new") == ["A", "B"]
  assert listing(folder) == "1.txt 2.txt.gz C a b c new vocab.txt".split()


def test_two_threads_make_the_same_file(folder):
  make_plain("a")
  mode = ["--direct_num_workers=2", "--direct_running_mode=multi_threading"]
  pretraining_pipeline.make_records(make_work(outputs=["A"]), mode)
  assert (folder / "a").read_bytes() == (folder / "A").read_bytes()


def test_the_records_stay_what_they_are(folder):
  pretraining_pipeline.make_records(make_work(), [])
  digest = hashlib.sha256((folder / "a").read_bytes()).hexdigest()
  assert digest == (
    "cb809f0987472df0e940172571e3eca53de81c815a676b7ef910e5cb503f327e"
  )


def test_two_processes_make_the_same_file_and_summary(folder):
  stated = make_plain("a")
  done = run(PROGRAM, output_file="A", direct_num_workers=2)
  assert (done.returncode, done.stderr) == (0, "")
  summary = done.stdout.splitlines()
  assert summary[:2] == stated[:2]
  assert summary[2].startswith("finished in ")
  assert summary[3] == "  wrote A"
  assert (folder / "a").read_bytes() == (folder / "A").read_bytes()


def test_counters_equal_the_outcome(folder, monkeypatch):
  results, run_pipeline = [], beam.Pipeline.run
  monkeypatch.setattr(
    beam.Pipeline,
    "run",
    lambda self: results.append(run_pipeline(self)) or results[-1],
  )
  outcome = pretraining_pipeline.make_records(make_work(), [])
  found = results[0].metrics().query()["counters"]
  counters = {
    counter.key.metric.name: counter.committed
    for counter in found
    if counter.key.metric.namespace == pretraining_pipeline.COUNTERS
  }
  expected = {**outcome.statistics._asdict(), "records": outcome.records}
  assert counters == expected
  assert counters["documents"] == 21
  assert counters["sentences"] == 110


@pytest.mark.parametrize(
  ("changes", "message"),
  [
    ({"inputs": ["empty.txt"]}, "the input holds no text"),
    ({"inputs": ["one.txt"]}, "the input is one document"),
    ({"inputs": ["hidden.txt"]}, "the input is one document"),
    ({"inputs": ["1.txt", "latin.txt"]}, "latin.txt: byte offset 5: not UTF-8"),
    ({"inputs": ["cut.txt.gz"]}, "cut.txt.gz: damaged compressed file"),
    ({"inputs": ["gone.txt"]}, "gone.txt"),
    ({"outputs": ["folder"]}, "folder: cannot write"),
    ({"outputs": ["gs://bucket/a"]}, r"pip install apache-beam\[gcp\]"),
  ],
)
def test_bad_input_loses_nothing(folder, changes, message):
  (folder / "empty.txt").write_text("\n \n")
  (folder / "one.txt").write_text("a b\nc d\n")
  (folder / "hidden.txt").write_text("a b\n\n\u200b\n")
  (folder / "latin.txt").write_bytes(b"a\n\nb \xe9\n")
  compressed = (folder / "2.txt.gz").read_bytes()
  (folder / "cut.txt.gz").write_bytes(compressed[:-9])
  (folder / "folder").mkdir()
  (folder / "a").write_text("old")
  before = listing(folder)
  files.use_file_system(pretraining_pipeline.FileSystem)
  with pytest.raises((ValueError, OSError), match=message):
    pretraining_pipeline.make_records(make_work(**changes), [])
  assert (folder / "a").read_text() == "old"
  assert listing(folder) == before


@pytest.mark.parametrize(
  ("argument", "message"),
  [
    ("--max_seq_len=3", "'--max_seq_len=3' is no flag of this program"),
    ("extra", "'extra' is no flag of this program"),
    ("--direct_num_workers=x", "--direct_num_workers: invalid int value: 'x'"),
    ("--runner=Foo", "Unexpected pipeline runner: Foo"),
  ],
)
def test_a_flag_that_nobody_knows(folder, argument, message):
  with pytest.raises(ValueError, match=message):
    pretraining_pipeline.make_records(make_work(), [argument])


def test_flags_for_a_job_server_stand_behind_two_dashes(folder):
  pretraining_pipeline.make_records(make_work(), ["--", "--spark_thing=3"])
  assert (folder / "a").exists()


def test_an_error_is_one_line(folder):
  (folder / "1.txt").write_bytes(b"a\n\nb \xe9\n")
  done = run(PROGRAM, output_file="a")
  assert (done.returncode, done.stdout) == (1, "")
  assert done.stderr == (
    f"{PROGRAM}: error: {folder}/1.txt: byte offset 5: not UTF-8 "
    "(invalid continuation byte)\n"
  )


def test_blocks_must_be_asked_for(folder):
  done = run(PROGRAM, output_file="a", documents_per_block=0)
  assert done.returncode == 1
  assert "--documents_per_block=0: expected at least 2" in done.stderr


def test_an_output_that_does_not_fit_is_named(folder):
  before, limits = listing(folder), resource.getrlimit(resource.RLIMIT_FSIZE)
  settings = dataclasses.replace(SETTINGS, documents_per_block=2)
  resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 15, limits[1]))
  try:
    with pytest.raises(OSError, match="^a: File too large$"):
      pretraining_pipeline.make_records(make_work(settings=settings), [])
  finally:
    resource.setrlimit(resource.RLIMIT_FSIZE, limits)
  assert listing(folder) == before


def test_a_failure_makes_room_for_its_outcome(tmp_path):
  path = tmp_path / "0.txt"
  path.write_text("text")
  with pytest.raises(OSError, match="of a service"):  # To be tried again.
    pretraining_pipeline._fail(0, OSError("of a service"), str(path))
  assert path.read_text() == "text"
  error = OSError(errno.ENOSPC, "No space left on device")
  assert pretraining_pipeline._fail(3, error, str(path)) == (3, error)
  assert path.read_text() == ""


@pytest.mark.slow
@pytest.mark.parametrize("workers", [1, 2])
def test_a_full_disk_leaves_nothing_behind(folder, workers):
  before = listing(folder)
  limit = (1 << 15, 1 << 15)
  done = run(
    PROGRAM,
    output_file="a",
    direct_num_workers=workers,
    preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, limit),
  )
  assert done.returncode == 1
  assert done.stderr == f"{PROGRAM}: error: a: File too large\n"
  assert listing(folder) == before


class Store(beam.io.localfilesystem.LocalFileSystem):
  """Keeps `store://x` in the current folder; renames as HDFS does."""

  @classmethod
  def scheme(cls):
    return "store"

  def _path(self, path):
    return os.path.abspath(path.removeprefix("store://"))

  def exists(self, path):
    return os.path.exists(self._path(path))

  def mkdirs(self, path):
    os.makedirs(self._path(path))

  def _path_open(self, path, mode, *arguments, **keywords):
    assert keywords["compression_type"] == "uncompressed"
    return open(self._path(path), mode)

  def create(self, path, *arguments, **keywords):
    return self._path_open(path, "wb", compression_type=arguments[-1])

  def open(self, path, *arguments, **keywords):
    return self._path_open(path, "rb", compression_type=arguments[-1])

  def rename(self, sources, targets):
    for source, target in zip(sources, targets, strict=True):
      if self.exists(target):
        raise OSError(f"{target} exists")
      os.rename(self._path(source), self._path(target))

  def match(self, patterns, limits=None):
    (match,) = super().match([self._path(patterns[0])])
    found = [
      beam.io.filesystem.FileMetadata(f"store://{found.path}", 0)
      for found in match.metadata_list
    ]
    return [beam.io.filesystem.MatchResult(patterns[0], found)]

  def delete(self, paths):
    for path in map(self._path, paths):
      (shutil.rmtree if os.path.isdir(path) else os.remove)(path)


def test_remote_files_are_left_to_beam(folder):
  make_plain("plain")
  (folder / "new/out.work").mkdir(parents=True)
  (folder / "new/out.work/left.txt").write_text("by a killed run")
  (folder / "new/out").write_text("old")
  files.use_file_system(pretraining_pipeline.FileSystem)
  inputs = files.expand_patterns("store://1.*,store://2.*", "input_file")
  assert inputs == [f"store://{folder}/1.txt", f"store://{folder}/2.txt.gz"]
  work = make_work(inputs=inputs, outputs=["store://new/out"])
  pretraining_pipeline.make_records(work, [])
  made = (folder / "new/out").read_bytes()
  assert made == (folder / "plain").read_bytes()
  assert listing(folder / "new") == ["out"]


def test_the_wheel_holds_all_that_workers_import(tmp_path):
  path = pretraining_pipeline.pack_modules(str(tmp_path))
  with zipfile.ZipFile(path) as wheel:
    packed = {name for name in wheel.namelist() if name.endswith(".py")}
  assert {"data/pretraining_pipeline.py", "tokenization.py"} <= packed
  code = (
    "import sys; before = set(sys.modules); import data.pretraining_pipeline; "
    "from vocabularies import gpt_bpe, sentence_pieces, words; "
    "import data.record_writer; print(*(m.__file__ for n, m in "
    "sys.modules.items() if n not in before and getattr(m, '__file__', None)))"
  )
  listing = subprocess.run(
    [sys.executable, "-c", code], cwd=paths.ROOT, capture_output=True, text=True
  )
  ours = {
    os.path.relpath(path, paths.ROOT)
    for path in listing.stdout.split()
    if path.startswith(str(paths.ROOT)) and "site-packages" not in path
  }
  assert ours <= packed


def test_without_beam_there_is_help_and_one_line(folder):
  # What a machine without Beam would find.
  (folder / "apache_beam.py").write_text("raise ImportError('none')")
  environment = {**os.environ, "PYTHONPATH": str(folder)}
  ran = [
    subprocess.run(
      [*command(PROGRAM, output_file="a"), *more],
      env=environment,
      capture_output=True,
      text=True,
    )
    for more in ([], ["--help"])
  ]
  assert ran[0].returncode == 1
  assert ran[0].stderr == (
    f"{PROGRAM}: error: Apache Beam is missing: pip install -r "
    "requirements/beam.txt (none)\n"
  )
  assert "--documents_per_block" in ran[1].stdout


def wait_for_records(folder, process):
  deadline = time.monotonic() + 60
  while not list(folder.glob(".a.*.tmp/*.records")):
    assert time.monotonic() < deadline and process.poll() is None
    time.sleep(0.01)


def start(workers):
  return subprocess.Popen(
    command(
      PROGRAM,
      output_file="a",
      documents_per_block=2,
      dupe_factor=2000,
      direct_num_workers=workers,
    ),
    stderr=subprocess.PIPE,
    text=True,
    # A shell that started the tests with "&" made them ignore Ctrl-C.
    preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
  )


def children(pid):
  listing = subprocess.run(
    ["ps", "--ppid", str(pid), "-o", "pid="], capture_output=True, text=True
  )
  return list(map(int, listing.stdout.split()))


@pytest.mark.slow
@pytest.mark.parametrize("workers", [1, 2])
@pytest.mark.parametrize("stop", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupted_run_can_be_repeated(folder, stop, workers):
  before = listing(folder)
  process = start(workers)
  wait_for_records(folder, process)
  others = children(process.pid)
  assert len(others) == (2 if workers == 2 else 0)
  process.send_signal(stop)
  stderr = process.communicate(timeout=30)[1]
  assert not (folder / "a").exists()
  if stop == signal.SIGINT:
    assert process.returncode == 130
    assert stderr == f"{PROGRAM}: error: interrupted\n"
    assert listing(folder) == before
  deadline = time.monotonic() + 10
  while any(os.path.exists(f"/proc/{pid}") for pid in others):
    assert time.monotonic() < deadline, "a worker outlived the program"
    time.sleep(0.1)
  assert run(PROGRAM, output_file="a").returncode == 0
  assert listing(folder) == sorted([*before, "a"])


@pytest.mark.slow
def test_a_worker_that_dies_ends_the_run(folder):
  before = listing(folder)
  process = start(2)
  wait_for_records(folder, process)
  os.kill(random.choice(children(process.pid)), signal.SIGKILL)
  stderr = process.communicate(timeout=60)[1]
  assert process.returncode == 1
  assert stderr.splitlines()[-1].startswith(
    f"{PROGRAM}: error: a worker process died, probably out of memory"
  )
  assert listing(folder) == before


@pytest.mark.slow
def test_a_job_server_makes_the_same_file(folder):
  make_plain("a")
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
      PROGRAM,
      output_file="A",
      runner="PortableRunner",
      job_endpoint=f"localhost:{(folder / 'port').read_text()}",
      environment_type="LOOPBACK",
    )
  finally:
    server.kill()
    server.wait()
  assert done.returncode == 0, done.stderr
  assert (folder / "a").read_bytes() == (folder / "A").read_bytes()


def start_dask(folder, environment):
  """Starts a scheduler and two workers; returns them when they are ready."""
  pytest.importorskip(
    "distributed", reason="pip install -r requirements/dask.txt"
  )
  commands = [["dask_scheduler", "--host=127.0.0.1", "--port=0"]]
  commands += 2 * [["dask_worker", "--nthreads=1", "--no-nanny"]]
  file = f"--scheduler-file={folder}/dask.json"
  processes = []
  for (name, *flags), log in zip(commands, "012", strict=True):
    module = ["-m", f"distributed.cli.{name}", file, "--no-dashboard", *flags]
    with open(folder / f"log{log}", "w") as output:
      processes.append(
        subprocess.Popen(
          [sys.executable, *module], stderr=output, env=environment
        )
      )
  deadline = time.monotonic() + 60
  for log in "12":
    while "Registered to" not in (folder / f"log{log}").read_text():
      assert time.monotonic() < deadline
      time.sleep(0.1)
  return processes


def cpu_ticks(process):
  with open(f"/proc/{process.pid}/stat") as file:
    return int(file.read().rpartition(")")[2].split()[11])


@pytest.mark.slow
@pytest.mark.parametrize("is_killed", [False, True])
def test_a_dask_cluster_makes_the_same_files(folder, tmp_path, is_killed):
  environment = {**os.environ, "PYTHONPATH": str(paths.ROOT)}
  flags = {"documents_per_block": 2, "dupe_factor": 500}
  done = run("create_pretraining_data.py", output_file="a,b", **flags)
  assert done.returncode == 0, done.stderr
  dask = ["--", f"--dask_scheduler_file={tmp_path}/dask.json"]
  runner = "apache_beam.runners.dask.dask_runner.DaskRunner"
  scheduler, *workers = start_dask(tmp_path, environment)
  try:
    process = subprocess.Popen(
      [*command(PROGRAM, output_file="A,B", runner=runner, **flags), *dask],
      stderr=subprocess.PIPE,
      text=True,
      env=environment,
    )
    if is_killed:
      deadline = time.monotonic() + 60
      while not list(folder.glob(".A.*.tmp/*.records")):
        assert time.monotonic() < deadline and process.poll() is None
        time.sleep(0.01)
      max(workers, key=cpu_ticks).kill()
      assert process.poll() is None
    stderr = process.communicate(timeout=120)[1]
  finally:
    for other in (*workers, scheduler):
      other.kill()
      other.wait()
  assert process.returncode == 0, stderr
  for ours, theirs in ("aA", "bB"):
    assert (folder / ours).read_bytes() == (folder / theirs).read_bytes()
