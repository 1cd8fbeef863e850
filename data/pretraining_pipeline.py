"""Makes pre-training records on Apache Beam, with any of its runners.

One worker cuts the text into blocks, all workers make records of blocks, and
each output file is assembled by one of them. Between the steps texts and
records lie in a folder beside the output; Beam passes only their paths, so that
no worker holds more than a block in memory. The records depend on the number of
the block only, not on who makes them, when, or how often.

No other file imports Beam, which comes from requirements/beam.txt.
"""

from collections.abc import Iterable
import hashlib
import itertools
import logging
import os
import pathlib
import pickle
import shlex
import signal
import sys
import tempfile
import threading
import time
from typing import BinaryIO, NamedTuple
import uuid
import zipfile

from data import files
from data import pretraining_data
from data import record_writer
from data import worker_processes

# It says at every import that it misses parts of Google's cloud.
logging.disable(logging.WARNING)
try:
  import apache_beam as beam
  from apache_beam.io import filesystem
  from apache_beam.io import filesystems
  from apache_beam.options import pipeline_options
  from apache_beam.portability.api import beam_provision_api_pb2
  from apache_beam.runners import runner as runners
  from apache_beam.runners.portability import portable_runner
  from apache_beam.runners.portability.fn_api_runner import fn_runner
  from apache_beam.runners.worker import sdk_worker_main
  from apache_beam.transforms import environments
except ImportError as error:
  raise ImportError(
    f"Apache Beam is missing: pip install -r requirements/beam.txt ({error})"
  ) from None
finally:
  logging.disable(logging.NOTSET)

COUNTERS = "pretraining_data"  # The namespace of Beam's counters.

# Files of the working folder: what the pipeline returns, and the blocks.
_OUTCOME, _PLAN = "outcome", "plan"
# Our modules that remote workers need.
_MODULES = (
  "data/__init__",
  "data/files",
  "data/pretraining_data",
  "data/pretraining_pipeline",
  "data/record_writer",
  "data/worker_processes",
  "tokenization",
  "vocabularies/__init__",
  "vocabularies/gpt_bpe",
  "vocabularies/sentence_pieces",
  "vocabularies/words",
)


class Work(NamedTuple):
  """Which records to make, and of what."""

  inputs: list[str]  # Text files, read as if they were one.
  outputs: list[str]  # Record i goes to file i modulo their number.
  vocabulary: pretraining_data.Vocabulary
  settings: pretraining_data.Settings
  compress: bool


class Outcome(NamedTuple):
  """What was made."""

  statistics: pretraining_data.Statistics
  records: int
  part_repeated: float  # Part of the lines that equal an earlier one.


class _TextBlock(NamedTuple):
  """A block of documents, written to a file."""

  number: int
  path: str
  part_repeated: float | None = None  # Of the whole text; in the last block.


class _RecordBlock(NamedTuple):
  """The records of a block, written to a file as shares.

  Share i holds every n-th record from i on, of n output files. How many records
  come before the block decides which share goes to which file.
  """

  number: int
  path: str
  share_ends: list[int]  # Byte offsets.
  records: int
  statistics: pretraining_data.Statistics
  part_repeated: float | None  # As in the text.


class _Failure(NamedTuple):
  """What takes the place of a block that cannot be made."""

  number: int
  error: Exception


def make_records(work: Work, arguments: list[str]) -> Outcome:
  """Runs the pipeline; the output files appear if all of it succeeds.

  Raises:
    ValueError: Beam does not know a flag, or the text yields no records.
    OSError: a file cannot be read or written, or the pipeline failed.
  """
  options = _parse(arguments)
  with (
    files.replace_all_on_success(work.outputs) as temporaries,
    files.working_folder(_absolute(work.outputs[0])) as folder,
    tempfile.TemporaryDirectory() as wheels,
  ):
    inputs = list(map(_absolute, work.inputs))
    runner = _prepare_runner(options, wheels)
    pipeline = beam.Pipeline(runner, options)
    _build(pipeline, work._replace(inputs=inputs, outputs=temporaries), folder)
    _run(pipeline)
    with files.open_bytes(os.path.join(folder, _OUTCOME)) as file:
      outcome = pickle.load(file)
    if isinstance(outcome, Exception):
      raise outcome
    statistics = pretraining_data.add_up(outcome.statistics)
  return outcome._replace(statistics=statistics)


def _absolute(path: str) -> str:
  """Returns a path that does not depend on the folder a worker runs in."""
  return path if files.is_remote(path) else os.path.abspath(path)


def _build(pipeline: beam.Pipeline, work: Work, folder: str) -> None:
  """Adds the steps to the pipeline.

  One chain without side inputs: Beam's Dask runner computes only what the last
  step needs, and computes a side input once for each worker that asks.
  """
  _ = (
    pipeline
    | "Text" >> beam.Create([work.inputs])
    | "CutText"
    >> beam.ParDo(_CutText(folder, work.settings.documents_per_block))
    | "ShareOut" >> beam.Reshuffle()
    | "MakeRecords" >> beam.ParDo(_MakeRecords(folder, work))
    | "Gather" >> beam.GroupByKey()
    | "SumUp" >> beam.ParDo(_SumUp(folder, work.outputs))
    | "ShareOutFiles" >> beam.Reshuffle()
    | "WriteFiles" >> beam.ParDo(_WriteFile(len(work.outputs), work.compress))
  )


class _Step(beam.DoFn):
  """A step that reads and writes remote files by Beam."""

  def setup(self):
    files.use_file_system(FileSystem)


class _CutText(_Step):
  """Writes the blocks of the text to files."""

  def __init__(self, folder: str, documents_per_block: int):
    self._folder, self._documents_per_block = folder, documents_per_block

  def process(self, inputs):
    blocks, path = [], None
    try:
      text = files.Text(inputs)
      documents = pretraining_data.read_documents(text.lines())
      for block in pretraining_data.cut_blocks(
        documents, self._documents_per_block
      ):
        path = _new_path(self._folder, len(blocks), "txt")
        _write_documents(path, block)
        blocks.append(_TextBlock(len(blocks), path))
    except (ValueError, OSError) as error:
      return [_fail(len(blocks), error, path)]  # Skip the remaining work.
    last = blocks[-1]._replace(part_repeated=text.part_repeated())
    return [*blocks[:-1], last]


class _MakeRecords(_Step):
  """Makes the records of a block, and counts."""

  def __init__(self, folder: str, work: Work):
    self._folder, self._vocabulary = folder, work.vocabulary
    self._settings, self._num_shares = work.settings, len(work.outputs)

  def process(self, block):
    if isinstance(block, _TextBlock):
      try:
        block = self._make(block)
      except (ValueError, OSError) as error:
        block = _fail(block.number, error, block.path)
    return [(None, block)]

  def _make(self, block):
    documents = pretraining_data.read_documents(files.read_lines(block.path))
    made = pretraining_data.make_block(
      documents, block.number, self._vocabulary, self._settings
    )
    path = _new_path(self._folder, block.number, "records")
    ends = _write_shares(path, made.records, self._num_shares)
    counts = {**made.statistics._asdict(), "records": len(made.records)}
    for name, count in counts.items():
      beam.metrics.Metrics.counter(COUNTERS, name).inc(count)
    return _RecordBlock(
      block.number,
      path,
      ends,
      len(made.records),
      made.statistics,
      block.part_repeated,
    )


class _WriteFile(_Step):
  """Puts an output file together from its shares of all blocks."""

  def __init__(self, num_files: int, compress: bool):
    self._num_files, self._compress = num_files, compress

  def process(self, task):
    number, path, plan = task
    try:
      self._assemble(number, path, plan)
    except OSError as error:
      failure = _fail(number, error, path)
      _write(os.path.dirname(plan), _OUTCOME, failure.error)

  def _assemble(self, number, path, plan):
    with files.open_bytes(plan) as file:
      blocks = pickle.load(file)
    before = 0
    with record_writer.open_file(path, self._compress) as output:
      for block in blocks:
        share = (number - before) % self._num_files
        output.write(_read_share(block, share))
        before += block.records


class _SumUp(_Step):
  """Leaves the outcome in a file, and says which output files to write."""

  def __init__(self, folder: str, outputs: list[str]):
    self._folder, self._outputs = folder, outputs

  def process(self, keyed):
    _, blocks = keyed
    blocks = sorted(blocks, key=lambda block: block.number)
    failures = [block for block in blocks if isinstance(block, _Failure)]
    if failures:
      _write(self._folder, _OUTCOME, failures[0].error)
      return
    assert [block.number for block in blocks] == list(range(len(blocks)))
    statistics = [block.statistics for block in blocks]
    outcome = Outcome(
      statistics,
      sum(block.records for block in blocks),
      blocks[-1].part_repeated,
    )
    _write(self._folder, _OUTCOME, outcome)
    plan = _write(self._folder, _PLAN, blocks)
    for number, path in enumerate(self._outputs):
      yield number, path, plan


def _write(folder: str, name: str, content) -> str:
  """Pickles content to a file of the working folder; returns its path."""
  path = os.path.join(folder, name)
  with files.open_for_writing(path) as file:
    pickle.dump(content, file)
  return path


def _new_path(folder: str, number: int, ending: str) -> str:
  """Returns a name that no other attempt at the same block has."""
  return os.path.join(folder, f"{number}-{uuid.uuid4().hex}.{ending}")


def _fail(number: int, error: Exception, path: str | None) -> _Failure:
  """Makes a failure of an error that would come again; raises others.

  Empties the file, so that a full disk has room for the outcome.
  """
  if isinstance(error, OSError) and error.errno is None:
    raise error  # A remote service's: the runner may try again.
  if path:
    files.open_for_writing(path).close()
  return _Failure(number, error)


def _write_documents(path: str, documents: Iterable[list[str]]) -> None:
  """Writes what `pretraining_data.read_documents` reads."""
  with files.open_for_writing(path) as file:
    for document in documents:
      lines = "".join(f"{sentence}\n" for sentence in document)
      file.write(f"{lines}\n".encode())


def _write_shares(
  path: str, records: list[bytes], num_shares: int
) -> list[int]:
  """Writes records share after share and returns where each one ends."""
  sizes = []
  with files.open_for_writing(path) as file:
    for share in range(num_shares):
      frames = map(record_writer.frame_record, records[share::num_shares])
      sizes.append(sum(map(file.write, frames)))
  return list(itertools.accumulate(sizes))


def _read_share(block: _RecordBlock, share: int) -> bytes:
  start = block.share_ends[share - 1] if share else 0
  with files.open_bytes(block.path) as file:
    file.seek(start)
    return file.read(block.share_ends[share] - start)


class FileSystem:
  """What `files.use_file_system` takes, done by Beam's file systems."""

  @staticmethod
  def GFile(path: str, mode: str) -> BinaryIO:  # noqa: N802
    """Opens a file to read (`rb`) or write (`wb`) its bytes as they are."""
    opener = {
      "rb": filesystems.FileSystems.open,
      "wb": filesystems.FileSystems.create,
    }[mode]
    plain = filesystem.CompressionTypes.UNCOMPRESSED
    return opener(path, compression_type=plain)

  @staticmethod
  def glob(pattern: str) -> list[str]:
    """Returns the files that match."""
    (match,) = filesystems.FileSystems.match([pattern])
    return [found.path for found in match.metadata_list]

  @classmethod
  def exists(cls, path: str) -> bool:
    """Returns whether there is such a file, or a file in such a folder."""
    if filesystems.FileSystems.exists(path):
      return True
    return bool(cls.glob(f"{path}/*"))

  @staticmethod
  def makedirs(path: str) -> None:
    """Makes a folder and what is missing above it."""
    if not filesystems.FileSystems.exists(path):
      filesystems.FileSystems.mkdirs(path)

  @staticmethod
  def rename(source: str, target: str, overwrite: bool) -> None:
    """Renames a file; HDFS does so only where there is none."""
    try:
      filesystems.FileSystems.rename([source], [target])
    except OSError:
      if not overwrite or not filesystems.FileSystems.exists(target):
        raise
      filesystems.FileSystems.delete([target])
      filesystems.FileSystems.rename([source], [target])

  @staticmethod
  def remove(path: str) -> None:
    """Removes a file."""
    filesystems.FileSystems.delete([path])

  @staticmethod
  def rmtree(path: str) -> None:
    """Removes a folder and all in it."""
    # An object store knows folders by the slash at their end.
    filesystems.FileSystems.delete([f"{path}/"])


def _parse(arguments: list[str]) -> pipeline_options.PipelineOptions:
  """Parses Beam's flags; behind "--" are those that only a job server knows."""
  flags = list(itertools.takewhile("--".__ne__, arguments))
  parser = _Parser(allow_abbrev=False)
  for options in pipeline_options.PipelineOptions.__subclasses__():
    options._add_argparse_args(parser)
  _, unknown = parser.parse_known_args(flags)
  if unknown:
    raise ValueError(
      f"{unknown[0]!r} is no flag of this program (see --help) and none of "
      "Apache Beam's; flags that only a job server knows go behind a lone --"
    )
  return pipeline_options.PipelineOptions(flags + arguments[len(flags) + 1 :])


class _Parser(pipeline_options._BeamArgumentParser):
  """Raises an error where Beam's parser prints hundreds of lines and exits."""

  def error(self, message):
    raise ValueError(f"Apache Beam: {message}")


def _prepare_runner(
  options: pipeline_options.PipelineOptions, folder: str
) -> runners.PipelineRunner | None:
  """Makes this machine's runner, or lets another one take our modules along."""
  logger = logging.getLogger("apache_beam")
  if options.view_as(pipeline_options.StandardOptions).runner:
    logger.setLevel(logging.INFO)  # How the job is doing, and where.
    setup = options.view_as(pipeline_options.SetupOptions)
    setup.extra_packages = [
      *(setup.extra_packages or []),
      pack_modules(folder),
    ]
    return None
  logger.setLevel(logging.CRITICAL)  # It logs its own errors.
  return _local_runner(options)


def _local_runner(
  options: pipeline_options.PipelineOptions,
) -> runners.PipelineRunner:
  """Makes the runner that `DirectRunner` stands for.

  That name would first try to download the program of another runner, and its
  processes would not find our modules and would log to the terminal.
  """
  workers = options.view_as(pipeline_options.WorkerOptions)
  workers.default_sdk_harness_log_level = "CRITICAL"
  provision = beam_provision_api_pb2.ProvisionInfo(
    pipeline_options=portable_runner.JobServiceHandle.encode_pipeline_options(
      options.get_all_options()
    )
  )
  direct = options.view_as(pipeline_options.DirectOptions)
  mode = direct.direct_running_mode
  environment = None
  if direct.direct_num_workers != 1 and mode != "multi_threading":
    direct.direct_running_mode = "in_memory"  # Keeps the one made here.
    command = shlex.join(worker_processes.serve_command("pretraining_pipeline"))
    environment = environments.SubprocessSDKEnvironment.from_command_string(
      f"exec {command}"
    )
  return fn_runner.FnApiRunner(
    environment, provision_info=fn_runner.ExtendedProvisionInfo(provision)
  )


def pack_modules(folder: str) -> str:
  """Packs our modules into a wheel, which workers install."""
  root = pathlib.Path(worker_processes.ROOT)
  names = [f"{module}.py" for module in _MODULES]
  contents = {name: root.joinpath(name).read_bytes() for name in names}
  # Other code is another version: no worker keeps an old one.
  digest = hashlib.sha256(b"".join(contents.values())).hexdigest()
  version = f"0+{digest[:16]}"
  info = f"bert_pretraining_data-{version}.dist-info"
  contents[f"{info}/METADATA"] = (
    "Metadata-Version: 2.1\nName: bert-pretraining-data\n"
    f"Version: {version}\nRequires-Dist: google-crc32c\n"
  )
  contents[f"{info}/WHEEL"] = (
    "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
  )
  names = [*contents, f"{info}/RECORD"]
  contents[f"{info}/RECORD"] = "".join(f"{name},,\n" for name in names)
  path = f"{folder}/bert_pretraining_data-{version}-py3-none-any.whl"
  with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as wheel:
    for name, content in contents.items():
      wheel.writestr(name, content)
  return path


def _run(pipeline: beam.Pipeline) -> None:
  """Runs a pipeline to its end; an interrupted one is cancelled."""
  try:
    result = pipeline.run()
  except RuntimeError as error:
    if str(error).startswith("KeyboardInterrupt"):  # It came within a step.
      raise KeyboardInterrupt from None
    if str(error).startswith("Channel closed prematurely"):
      raise OSError(
        "a worker process died, probably out of memory: lower "
        "--documents_per_block or --direct_num_workers"
      ) from None
    raise
  try:
    state = result.wait_until_finish()
  except KeyboardInterrupt:
    result.cancel()
    raise
  if state != runners.PipelineState.DONE:
    raise OSError(f"Apache Beam: the pipeline ended as {state}")


def serve() -> None:
  """Works for the runner that started this file as a process of its own."""
  signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for our parent.
  handler = logging.StreamHandler()
  handler.setLevel(logging.CRITICAL)
  logging.basicConfig(handlers=[handler], force=True)
  threading.Thread(target=_die_with_parent, daemon=True).start()
  sdk_worker_main.main(sys.argv)


def _die_with_parent() -> None:
  """Ends this process soon after its parent's end, which Beam overlooks."""
  parent = os.getppid()
  while os.getppid() == parent:
    time.sleep(1)
  os._exit(1)
