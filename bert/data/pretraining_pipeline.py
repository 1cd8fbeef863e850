"""Makes pre-training records on Apache Beam, with any of its runners.

One worker cuts the text into blocks of documents, all workers make records of
blocks, and Beam's sink writes them to files. No other file imports Beam, which
comes from requirements/beam.txt.
"""

import builtins
from collections.abc import Iterator
import contextlib
import functools
import importlib
import itertools
import logging
import os
import re
import uuid

from bert.data import files, pretraining_data, remote

# Beam says at every import that parts of Google's cloud are missing.
logging.disable(logging.WARNING)
try:
  import apache_beam as beam
  from apache_beam.io import filesystem, filesystems, tfrecordio
  from apache_beam.metrics import metric
  from apache_beam.options import pipeline_options
  from apache_beam.runners import runner as runners
  from apache_beam.runners.portability.fn_api_runner import fn_runner
except ImportError as error:
  raise ImportError(
    f"Apache Beam is missing: pip install -r requirements/beam.txt ({error})"
  ) from None
finally:
  logging.disable(logging.NOTSET)

_COUNTERS = "pretraining_data"  # The namespace of Beam's counters.


def make_records(
  make_block: pretraining_data.BlockMaker,
  inputs: list[str],
  outputs: list[str],
  compress: bool,
  arguments: list[str],
) -> tuple[pretraining_data.Statistics, int] | None:
  """Makes records of text files.

  Args:
    make_block: makes the records of a block; is pickled for the workers.
    inputs: the files of text, local or remote.
    outputs: each receives a share of the records. They appear at the end, if
      all of the work has succeeded.
    compress: whether to write GZIP.
    arguments: Beam's flags.

  Returns:
    The counts of the text, and of records; None if the runner does not count.

  Raises:
    ValueError: names a flag that Beam does not know, or says what the text
      lacks.
    OSError: a file cannot be read or written, or the pipeline failed.
  """
  # Flags and names are checked before Beam starts anything.
  options = _parse(arguments)
  outputs = list(map(_absolute, outputs))
  for folder in filter(os.path.isdir, outputs):
    raise OSError(f"{folder}: cannot write, it is a folder")

  # Beam adds -00000-of-00002 to names. So it writes into a folder of its own,
  # beside the first output, and the files are renamed at the end.
  types = filesystem.CompressionTypes
  with _working_folder(outputs[0]) as folder:
    prefix = f"{folder}/records"
    sink = tfrecordio.WriteToTFRecord(
      prefix,
      num_shards=len(outputs),
      compression_type=types.GZIP if compress else types.UNCOMPRESSED,
    )

    # One worker cuts the text, because blocks follow each other in it.
    # Reshuffle hands the blocks to all workers: without it Beam would fuse the
    # steps, and the first worker would do everything.
    pipeline = beam.Pipeline(_make_runner(options), options)
    _ = (
      pipeline
      | "Text" >> beam.Create([list(map(_absolute, inputs))])
      | "CutText"
      >> beam.FlatMap(_cut_text, make_block.settings.documents_per_block)
      | "ShareOut" >> beam.Reshuffle()
      | "MakeRecords" >> beam.FlatMap(_make_records, make_block)
      | "WriteFiles" >> sink
    )

    outcome = _read_counters(_run(pipeline), make_block.settings)
    for number, output in enumerate(outputs):
      _replace(f"{prefix}-{number:05}-of-{len(outputs):05}", output)
  return outcome


def _absolute(path: str) -> str:
  """Returns a path that does not depend on the folder a worker runs in."""
  return path if remote.is_remote(path) else os.path.abspath(path)


def _cut_text(
  inputs: list[str], documents_per_block: int
) -> Iterator[tuple[int, list[list[str]]]]:
  """Yields the numbered blocks of a text's documents."""
  opener = functools.partial(
    filesystems.FileSystems.open,
    compression_type=filesystem.CompressionTypes.UNCOMPRESSED,
  )
  lines = (line for p in inputs for line in files.read_lines(p, opener=opener))
  documents = pretraining_data.read_documents(lines)
  blocks = pretraining_data.cut_blocks(documents, documents_per_block)
  yield from enumerate(map(list, blocks))


def _make_records(task, make_block) -> list[bytes]:
  """Makes the records of a block, and counts."""
  # Records are all that a step passes on; counts take the way of Beam's own
  # counters, which add up over workers.
  block = make_block(task)
  counts = {**block.statistics._asdict(), "records": len(block.records)}
  for name, count in counts.items():
    metric.Metrics.counter(_COUNTERS, name).inc(count)
  return block.records


def _read_counters(
  result, settings
) -> tuple[pretraining_data.Statistics, int] | None:
  of_ours = metric.MetricsFilter().with_namespace(_COUNTERS)
  try:
    counters = result.metrics().query(of_ours)["counters"]
  except NotImplementedError:  # Such as Beam's runner for Dask.
    return None

  # A counter that was never increased is missing, or None.
  counts = {c.key.metric.name: c.result or 0 for c in counters}
  records = counts.pop("records", 0)
  names = pretraining_data.Statistics._fields
  statistics = pretraining_data.Statistics(*(counts.get(n, 0) for n in names))
  return pretraining_data.add_up([statistics], settings), records


@contextlib.contextmanager
def _working_folder(path: str) -> Iterator[str]:
  """Makes a folder beside a path; removes it."""
  folder = f"{path}.{uuid.uuid4().hex}.work"
  filesystems.FileSystems.mkdirs(folder)
  try:
    yield folder
  finally:
    # An object store has no empty folder.
    with contextlib.suppress(filesystem.BeamIOError):
      filesystems.FileSystems.delete([folder])


def _replace(path: str, target: str) -> None:
  """Renames a file, over an old one if there is one."""
  folder = os.path.dirname(target)
  if not filesystems.FileSystems.exists(folder):
    filesystems.FileSystems.mkdirs(folder)

  # HDFS renames only to a name that is free; local files are replaced at once.
  if remote.is_remote(target) and filesystems.FileSystems.exists(target):
    filesystems.FileSystems.delete([target])
  filesystems.FileSystems.rename([path], [target])


def _parse(arguments: list[str]) -> pipeline_options.PipelineOptions:
  """Parses Beam's flags; behind "--" are those that only a job server knows."""
  # Beam ignores a flag that it does not know, so a misspelt one would have no
  # effect. All classes of options together know all flags.
  flags = list(itertools.takewhile("--".__ne__, arguments))
  # The module of a runner that is given by its full name adds its own flags.
  for flag in flags:
    if named := re.fullmatch(r"--runner=([\w.]+)\.\w+", flag):
      importlib.import_module(named[1])
  parser = _Parser(allow_abbrev=False)
  for options in pipeline_options.PipelineOptions.__subclasses__():
    options._add_argparse_args(parser)
  _, unknown = parser.parse_known_args(flags)
  if unknown:
    raise ValueError(
      f"{unknown[0]!r} is no flag of this program (see --help) or Apache Beam; "
      "flags of a job server go behind a lone --"
    )
  return pipeline_options.PipelineOptions(flags + arguments[len(flags) + 1 :])


class _Parser(pipeline_options._BeamArgumentParser):
  """Raises an error where Beam's parser prints hundreds of lines and exits."""

  def error(self, message):
    raise ValueError(f"Apache Beam: {message}")


def _make_runner(options) -> runners.PipelineRunner | None:
  """Makes this machine's runner; returns None if a flag names another one."""
  # A named runner works elsewhere, and its log says how the job is doing, and
  # where.
  logger = logging.getLogger("apache_beam")
  if options.view_as(pipeline_options.StandardOptions).runner:
    logger.setLevel(logging.INFO)
    return None

  # On this machine, errors reach us as exceptions; Beam would print them twice.
  logger.setLevel(logging.CRITICAL)
  direct = options.view_as(pipeline_options.DirectOptions)
  workers = direct.direct_num_workers
  if workers != 1 and direct.direct_running_mode == "in_memory":
    raise ValueError(
      f"--direct_num_workers={workers} needs --direct_running_mode; or use "
      f"create_pretraining_data.py --num_processes={workers}"
    )
  return fn_runner.FnApiRunner()  # Beam's default tries to download another.


def _run(pipeline: beam.Pipeline) -> runners.PipelineResult:
  """Runs a pipeline to its end; an interrupted one is cancelled."""
  # This machine's runner works within `run`, others after it.
  try:
    result = pipeline.run()
  except Exception as error:
    raise _as_plain_error(error) from error

  try:
    state = result.wait_until_finish()
  except KeyboardInterrupt:
    result.cancel()
    raise
  if state != runners.PipelineState.DONE:
    raise OSError(f"Apache Beam: the pipeline ended as {state}")
  return result


def _as_plain_error(error: Exception) -> BaseException:
  """Returns the error of a step as it was raised there, in one line."""
  # Beam adds the name of the step, which says nothing to users.
  message = re.sub(r" \[while running '[^']*'\]", "", str(error)).strip()
  if isinstance(error, ValueError | OSError):
    return type(error)(message)

  if message.startswith("KeyboardInterrupt"):
    return KeyboardInterrupt()

  # Other processes send a traceback, whose last line has the error.
  name, _, reason = message.rpartition("\n")[2].partition(": ")
  kind = getattr(builtins, name, None)
  if isinstance(kind, type) and issubclass(kind, ValueError | OSError):
    return kind(reason)
  return error
