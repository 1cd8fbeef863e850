"""What benchmarks have in common: contestants that take turns. Linux only.

Each works in a process of its own, which inherits nothing and lives as long as
the contest. They take turns for several rounds, so that a machine that is slow
for a while is slow for all. Our speed by another's is that of the turns of a
round; the median over the rounds counts.
"""

import argparse
from collections.abc import Callable, Iterable, Iterator
from concurrent import futures
import contextlib
import functools
import importlib.util
import json
import math
import multiprocessing
import os
import pathlib
import re
import resource
import statistics
import sys
import time
from typing import Any, NamedTuple

import numpy as np

ROOT = pathlib.Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))  # Read by the processes that this one starts.
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

DATA = ROOT.parent / "shared" / "data"
SEED = 12345  # The programs' default.
OURS, PEER = "ours", "Hugging Face"
PRECISIONS = ["float32", "bfloat16"]
# What holds TensorFlow, OpenVINO, XLA and PyTorch to older instruction sets;
# ONNX Runtime has no such switch.
ISAS = {
  "avx2": {
    "ONEDNN_MAX_CPU_ISA": "AVX2",
    "XLA_FLAGS": "--xla_cpu_max_isa=AVX2",
    "ATEN_CPU_CAPABILITY": "avx2",
    "MKL_ENABLE_INSTRUCTIONS": "AVX2",
  }
}
# A turn is repeated if other processes took more of the machine meanwhile.
MOST_DISTURBANCE = 0.04


class Turn(NamedTuple):
  """What a contestant does whenever it is its turn."""

  run: Callable[..., float]  # Returns a number of the result.
  examples: int
  # What is not timed, as programs do it once: returns the arguments of `run`.
  prepare: Callable[[], tuple] = tuple


class Timing(NamedTuple):
  """What a process reports of a turn."""

  speed: float  # Examples per second.
  disturbance: float  # The share of the machine that other processes took.
  peak_memory: float  # Gigabytes, of the process since it began.


class Contestant(NamedTuple):
  """A way to do the work."""

  # Takes the workload, and the precision if it has one; a function that other
  # processes can import.
  make: Callable[..., Turn]
  library: str  # Without it, the contestant is skipped.
  # How many times as fast ours must be, by precision; "" without one.
  targets: dict[str, float]
  cores: list[int] | None = None  # It is pinned to; all of --cores if None.


Contestants = dict[
  str, Contestant
]  # The first one is compared with the others.
Timings = dict[str, list[Timing]]


# The command line.


def make_parser(
  docstring: str, kinds: Iterable[str]
) -> argparse.ArgumentParser:
  """Makes the parser of what every benchmark of a model takes."""
  parser = argparse.ArgumentParser(description=docstring.splitlines()[0])
  vocab_file = str(DATA / "vocab" / "uncased_vocab.txt")
  config_file = str(ROOT / "configs" / "bert_base.json")
  parser.add_argument("--vocab_file", default=vocab_file)
  parser.add_argument("--bert_config_file", default=config_file)
  parser.add_argument("--rounds", type=int, default=3)
  parser.add_argument("--kinds", type=split, default=list(kinds))
  add_limits(parser)
  return parser


def split(text: str) -> list[str]:
  return text.split(",")


def add_limits(parser: argparse.ArgumentParser) -> None:
  """Declares the flags that `parse` obeys."""
  parser.add_argument(
    "--precisions", type=split, help="all that --isa allows, if not given"
  )
  parser.add_argument(
    "--isa", choices=ISAS, help="compute as on a processor with no more"
  )
  parser.add_argument(
    "--cores", type=split_cores, help="use these alone, such as 0 or 0,1"
  )


def split_cores(text: str) -> list[int]:
  """Returns the numbers of cores that this process may use."""
  present = sorted(os.sched_getaffinity(0))
  cores = [int(part) for part in text.split(",") if part.isdecimal()]
  if len(cores) != len(text.split(",")) or not set(cores) <= set(present):
    raise argparse.ArgumentTypeError(
      f"found {text!r}; expected numbers among {present}, such as {present[0]}"
    )
  return cores


def parse(parser: argparse.ArgumentParser) -> argparse.Namespace:
  """Reads the command line; returns it without --isa and --cores.

  What those ask for holds from now on for the processes that this one starts:
  they inherit its environment and its cores before they import a library.
  """
  from bert.data import processor

  arguments = parser.parse_args()
  allowed, reason = PRECISIONS, ""
  if isa := arguments.isa:
    # TensorFlow asks the real processor whether it multiplies bfloat16.
    allowed, reason = ["float32"], f"; oneDNN aborts in others with --isa={isa}"
    if isa not in processor.instruction_sets():
      parser.error(
        f"--isa={isa}: this processor lacks it: {processor.describe()}"
      )
    os.environ.update(ISAS[isa])
  arguments.precisions = arguments.precisions or allowed
  if set(arguments.precisions) - set(allowed):
    found = ",".join(arguments.precisions)
    parser.error(f"--precisions={found}: expected {allowed}{reason}")
  if arguments.cores:
    os.sched_setaffinity(0, arguments.cores)
  del arguments.isa, arguments.cores
  return arguments


def lacks_data(options: dict[str, Any], *names: str) -> bool:
  """Returns whether a file or folder that options name is absent; says so."""
  absent = [name for name in names if not os.path.exists(options[name])]
  for name in absent:
    print(f"skipped: no {options[name]}; pass --{name}")
  return bool(absent)


# The contestants.


def set_flags(settings_class: type[Any], **values: Any) -> None:
  """Gives a program its flags, as its command line does.

  Args:
    settings_class: of the program.
    **values: by name; the others have their defaults.
  """
  from absl import flags

  settings_class.define_flags()
  arguments = [f"--{name}={value}" for name, value in values.items()]
  flags.FLAGS(["benchmark", *arguments])


def make_update_size(
  config: Any, kind: str, precision: str, **work: int
) -> Any:
  """Makes what the estimates of bert/training/memory.py take.

  Args:
    config: a `BertConfig`, of which everything is trained.
    kind: of the model: "encoder" or "pretraining".
    precision: one of PRECISIONS.
    **work: the other fields of a `memory.UpdateSize`.
  """
  from bert.convert import models
  from bert.training import memory

  count = sum(map(math.prod, models.variables(config, kind).values()))
  return memory.UpdateSize(
    parameters=count,
    trained=count,
    trained_layers=config.num_hidden_layers,
    dtype="mixed_bfloat16" if precision == "bfloat16" else "float32",
    **work,
  )


def make_peer_model(class_name: str, bert_config_file: str, **fields: Any):
  """Makes a model of Hugging Face's, with random weights.

  Args:
    class_name: of the model.
    bert_config_file: its architecture.
    **fields: of the config, besides.
  """
  import torch
  import transformers

  torch.set_num_threads(len(os.sched_getaffinity(0)))
  config = json.loads(pathlib.Path(bert_config_file).read_text())
  config = transformers.BertConfig(**config, **fields)
  config._attn_implementation = "sdpa"  # Its fastest.
  return getattr(transformers, class_name)(config)


def make_peer_tokenizer(vocab_file: str):
  """Makes Hugging Face's fast tokenizer, for text to be lower-cased."""
  import transformers

  from bert import tokenization

  # It takes a dictionary, or the name of a JSON file.
  vocab = tokenization.load_vocab(vocab_file)
  return transformers.BertTokenizerFast(vocab=vocab, do_lower_case=True)


def start_process(cores: Iterable[int] | None = None) -> futures.Executor:
  """Starts a process that inherits no memory and runs what it is given.

  Args:
    cores: where it runs; without them, on those of this process.
  """
  context = multiprocessing.get_context("spawn")
  cores = cores or os.sched_getaffinity(0)
  # Before it is given work that imports a library, which counts the cores.
  return futures.ProcessPoolExecutor(
    1, context, os.sched_setaffinity, (0, cores)
  )


def is_installed(library: str) -> bool:
  """Returns whether a peer can run; says so if it cannot."""
  found = importlib.util.find_spec(library) is not None
  if not found:
    print(f"skipped: no {library}; pip install -r requirements/bench.txt")
  return found


# The contest.


def time_group(
  kind: str,
  precision: str,
  contestants: Contestants,
  workload: Any,
  rounds: int,
) -> Timings:
  """Lets contestants take turns, each in its own process.

  Args:
    kind: what they do, in a word.
    precision: what they do it in; "" if it makes no difference.
    contestants: by name; those whose library is absent are left out.
    workload: what they are made for, and the precision if there is one.
    rounds: how many turns each gets.
  """
  print(f"on {describe_machine()}")
  arguments = [workload, precision] if precision else [workload]
  timings = {
    name: []
    for name, contestant in contestants.items()
    if is_installed(contestant.library)
  }
  with contextlib.ExitStack() as stack:
    turns = {}
    for name in timings:
      cores = contestants[name].cores
      if cores:
        print(f"{name}: pinned to {cores}")
      process = stack.enter_context(start_process(cores))
      make = functools.partial(contestants[name].make, *arguments)
      turns[name] = functools.partial(process.submit, time_turn, name, make)
      turns[name]().result()  # Compiles, and makes what is cached by shape.
    for i in range(rounds):
      # In every other round the other way: a turn may leave a warm machine.
      for name in list(turns)[:: -1 if i % 2 else 1]:
        start_turn = turns[name]
        timing = start_turn().result()
        if timing.disturbance > MOST_DISTURBANCE:
          timing = start_turn().result()  # A busy machine gets another chance.
        timings[name].append(timing)
        print(
          f"round {i + 1}, {title(kind, precision)}, {name}: "
          f"{timing.speed:.1f} examples/s, {timing.peak_memory:.2f} GB"
          f"{'; disturbed' * is_disturbed(timing)}"
        )
        sys.stdout.flush()
  return timings


def title(kind: str, precision: str) -> str:
  """Returns how tables and messages call a work."""
  return f"{kind}, {precision}" if precision else kind


def describe_machine() -> str:
  """Returns the processor, its instruction sets and the number of its cores."""
  from bert.data import processor

  text = f"{processor.describe()}, {os.cpu_count()} cores"
  if isa := os.environ.get(processor.LIMIT):
    text += f", held to {isa}"
  if len(cores := os.sched_getaffinity(0)) < (os.cpu_count() or 0):
    text += f", pinned to {sorted(cores)}"
  return text


_turns: dict[str, Turn] = {}  # Filled in the process of the contestant.


def time_turn(name: str, make: Callable[[], Turn]) -> Timing:
  """Times a turn in the process that is its contestant's."""
  with _silence():
    if name not in _turns:
      _turns[name] = make()
    turn = _turns[name]
    arguments = turn.prepare()
    busy, own = busy_seconds(), own_seconds()
    start = time.perf_counter()
    result = turn.run(*arguments)
    seconds = time.perf_counter() - start
    others = busy_seconds() - busy - (own_seconds() - own)
  if not np.isfinite(result):
    raise ValueError(f"{name}: found {result}; expected a finite number")
  return Timing(
    turn.examples / seconds, others / seconds / os.cpu_count(), peak_memory()
  )


@contextlib.contextmanager
def _silence() -> Iterator[None]:
  """Hides what programs say about their progress."""
  with (
    open(os.devnull, "w") as nowhere,
    contextlib.redirect_stdout(nowhere),
    contextlib.redirect_stderr(nowhere),
  ):
    yield


def busy_seconds() -> float:
  """Returns the time that all processors were not idle since the machine began.

  Time that went to other virtual machines is part of it.
  """
  line = pathlib.Path("/proc/stat").read_text().split("\n")[0].split()
  user, nice, system, _, _, irq, softirq, steal = map(int, line[1:9])
  ticks = user + nice + system + irq + softirq + steal
  return ticks / os.sysconf("SC_CLK_TCK")


def own_seconds() -> float:
  """Returns the time of this process and of those that it started and ended."""
  children = resource.getrusage(resource.RUSAGE_CHILDREN)
  return time.process_time() + children.ru_utime + children.ru_stime


def peak_memory() -> float:
  """Returns the most memory that this process had at a time, in gigabytes."""
  status = pathlib.Path("/proc/self/status").read_text()
  return int(re.search(r"VmHWM:\s+(\d+) kB", status)[1]) / 2**20


# The results.


def print_table(
  kind: str, precision: str, contestants: Contestants, timings: Timings
) -> int:
  """Prints speeds, memory, and our speed by each of the others'.

  Args:
    kind, precision, contestants: see `time_group`.
    timings: from there.

  Returns:
    How many targets are missed. What was disturbed decides nothing.
  """
  print(f"\n| {title(kind, precision)} | examples/s | peak GB | ours is |")
  print("|---|---|---|---|")
  ours, *_ = timings.values()
  missed = 0
  for name, theirs in timings.items():
    speed = statistics.median(timing.speed for timing in theirs)
    memory = max(timing.peak_memory for timing in theirs)
    verdict = ""
    if theirs is not ours:
      target = contestants[name].targets.get(precision)
      verdict, is_missed = _compare(ours, theirs, target)
      missed += is_missed
    print(f"| {name} | {speed:.1f} | {memory:.2f} | {verdict} |")
  sys.stdout.flush()
  return missed


def _compare(ours, theirs, target) -> tuple[str, bool]:
  """Returns our speed by theirs in words, and whether it is too low."""
  pairs = list(zip(ours, theirs, strict=True))
  calm = [pair for pair in pairs if not any(map(is_disturbed, pair))]
  ratio = statistics.median(a.speed / b.speed for a, b in calm or pairs)
  verdict = f"{ratio:.2f} times as fast"
  verdict += "" if target is None else f" (target {target})"
  verdict += "" if calm else "; disturbed"
  return verdict, bool(calm) and target is not None and ratio < target


def is_disturbed(timing: Timing) -> bool:
  return timing.disturbance > MOST_DISTURBANCE
