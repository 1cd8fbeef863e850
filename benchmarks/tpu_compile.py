"""Compiles updates for TPUs on a machine that has none, and counts their bytes.

  pip install -r requirements/tpu-compile.txt
  python benchmarks/tpu_compile.py --topologies=v5e:2x2 --models=tiny

libtpu is the compiler of Google's TPUs. Of a chip it needs only the
description, so that it compiles on any machine; what it makes cannot run there.
The programs get a `StandIn` for a TPU: with it they take every branch that is
for TPUs, and what they hand to the chips is exported as StableHLO and compiled.

A row of the table is the pre-training update of a model with random weights,
and the bytes of a chip: those of its arguments (weights, moments, a batch), how
many of these are updated in place, those of temporary values, of the program
itself, and the most of all values at a time; beside that is the estimate of
bert/training/memory.py. BERT-Tiny takes 40 s of CPU a row, BERT-Base and
-Large 150 s, and BERT-Large 12 GB of memory.
docs/clusters.md says what this shows and what not.
"""

import argparse
from collections.abc import Iterator, Sequence
import contextlib
import functools
import math
import os
import re
import sys
import time
from typing import Any, NamedTuple
from unittest import mock

import contest
import numpy as np
import tensorflow as tf
from tensorflow.compiler.tf2xla.ops import gen_xla_ops
import training

NEEDS = "needs requirements/tpu-compile.txt"


class Bytes(NamedTuple):
  """The memory of a chip, as the compiler counts it."""

  arguments: int  # Weights, moments and features.
  in_place: int  # How many of them the results are written over.
  results: int  # Those written in place included.
  temporary: int
  program: int  # The instructions, which the chip holds beside the values.

  @property
  def peak(self) -> int:
    """Of values: the most that there is of them at a time."""
    return self.arguments + self.results - self.in_place + self.temporary


class Call(NamedTuple):
  """A function that a strategy was given to run, and its arguments' types."""

  strategy: tf.distribute.Strategy
  function: Any
  signature: Any


class Exported(NamedTuple):
  """A call that was exported."""

  call: Call
  # Its arguments are those of the call, in the order of `tf.nest.flatten`, and
  # then what `captured_inputs` lists: variables.
  traced: Any
  text: str  # StableHLO.


class Recorded(BaseException):  # noqa: N818
  """Ends a program where a TPU would begin to compute."""


class StandIn(tf.distribute.OneDeviceStrategy):
  """A CPU that is taken for the replicas of a TPU; see `tpu_stand_in`."""

  replicas = 1
  calls: list[Call]
  runs: bool

  def __init__(self, resolver: Any = None):
    super().__init__("/cpu:0")

  @property
  def num_replicas_in_sync(self) -> int:
    return self.replicas

  def run(self, fn, args=(), kwargs=None, options=None):
    signature = tf.nest.map_structure(
      lambda x: tf.TensorSpec(x.shape, x.dtype), args
    )
    call = Call(self, fn, signature)
    if call not in self.calls:
      self.calls.append(call)
    if not self.runs:
      raise Recorded

    # A TPU compiles what it is given. TensorFlow traces loops otherwise if it
    # knows that, and keeps the trace.
    compiled = tf.function(fn, jit_compile=True, autograph=False)
    return super().run(compiled, args)


class _Replica:
  """What `tf.distribute.get_replica_context` returns on a TPU of N replicas."""

  def __init__(self, strategy):
    self._strategy = strategy
    self.num_replicas_in_sync = strategy.num_replicas_in_sync

  @property
  def replica_id_in_sync_group(self):
    if self.num_replicas_in_sync == 1:
      return tf.constant(0)
    return tf.cast(gen_xla_ops.xla_replica_id(), tf.int32)

  def all_reduce(self, op, values):
    if self.num_replicas_in_sync == 1:
      return values
    assert op == "SUM"
    add = functools.partial(
      gen_xla_ops.xla_all_reduce,
      group_assignment=[list(range(self.num_replicas_in_sync))],
      reduce_op="Add",
      mode="CrossReplica",
    )
    return tf.nest.map_structure(lambda value: add(input=value), values)

  def merge_call(self, merge_fn, args=()):
    return merge_fn(self._strategy, *args)


@contextlib.contextmanager
def tpu_stand_in(replicas: int = 1, runs: bool = True) -> Iterator[type]:
  """Lets the code of this process find a TPU, for which a CPU stands in.

  Args:
    replicas: of the TPU.
    runs: whether the CPU computes what it is given; else `Recorded` ends it
      before. Only one replica can run.

  Yields:
    The class that is now `tf.distribute.TPUStrategy`, with the `calls` that
    were made of its objects.
  """
  attributes = {"replicas": replicas, "calls": [], "runs": runs}
  stand_in = type("StandIn", (StandIn,), attributes)
  list_devices = tf.config.list_logical_devices
  tpu = tf.config.LogicalDevice("/device:TPU:0", "TPU")

  def list_with_tpu(kind=None):
    return list_devices(kind) + [tpu] * (kind in (None, "TPU"))

  with (
    mock.patch.object(tf.distribute, "TPUStrategy", stand_in),
    mock.patch.object(tf.distribute.cluster_resolver, "TPUClusterResolver"),
    mock.patch.object(tf.tpu.experimental, "initialize_tpu_system"),
    mock.patch.object(tf.config, "list_logical_devices", list_with_tpu),
  ):
    yield stand_in


def export(call: Call) -> Exported:
  """Exports a call for one replica; within `tpu_stand_in`."""
  run = tf.function(call.function, jit_compile=True, autograph=False)
  arguments = tf.nest.map_structure(
    lambda spec: tf.zeros(spec.shape, spec.dtype), call.signature
  )
  replica = _Replica(call.strategy)
  with mock.patch.object(tf.distribute, "get_replica_context", lambda: replica):
    text = run.experimental_get_compiler_ir(*arguments)(stage="stablehlo")
  traced = run.get_concrete_function(*arguments)
  return Exported(call, traced, _modernize(text))


def _modernize(text):
  """Rewrites what TensorFlow 2.21 writes and libtpu does not read."""
  # A copy becomes a reshape that changes nothing.
  text = re.sub(
    r"mhlo\.copy (%\w+) : (tensor<\S+>)",
    r"stablehlo.reshape \1 : (\2) -> \2",
    text,
  )

  # In constants, a bool was a bit, and is now a byte.
  def unpack(match):
    bits = np.frombuffer(bytes.fromhex(match[1]), np.uint8)
    count = math.prod(map(int, match[2].split("x")))
    flags = np.unpackbits(bits, count=count, bitorder="little")
    return f'dense<"0x{flags.tobytes().hex()}"> : tensor<{match[2]}xi1>'

  return re.sub(r'dense<"0x(\w+)"> : tensor<([\dx]+)xi1>', unpack, text)


def find_chips(topology: str) -> Sequence[Any]:
  """Returns the chips of a topology such as "v5e:2x2", as JAX describes them.

  Raises:
    ValueError: no topology has this name, or libtpu is not installed.
  """
  # Else libtpu asks Google's cloud which machine this is, and waits.
  os.environ.setdefault("TPU_SKIP_MDS_QUERY", "1")
  # Else it leaves a file that keeps other processes from loading it, as only
  # one may use a TPU; nothing does here.
  os.environ.setdefault("ALLOW_MULTIPLE_LIBTPU_LOAD", "1")
  try:
    from jax.experimental import topologies
    import libtpu  # noqa: F401
  except ImportError as error:
    raise ValueError(f"{error.name} is missing: {NEEDS}") from error

  try:
    return topologies.get_topology_desc(topology, platform="tpu").devices
  except Exception as error:
    reason = str(error).splitlines()[0]
    raise ValueError(f"--topologies={topology}: {reason}") from error


def compile_for(chips: Sequence[Any], text: str, replicas: int = 1) -> Bytes:
  """Compiles StableHLO for the first chips of a topology."""
  from jax._src import compiler
  from jax._src.interpreters import mlir
  from jax._src.lib import xla_client
  from jaxlib.mlir import ir

  chips = chips[:replicas]
  options = compiler.get_compile_options(
    num_replicas=replicas,
    num_partitions=1,
    device_assignment=np.array([chip.id for chip in chips]).reshape(-1, 1),
  )
  with mlir.make_ir_context():
    executable = chips[0].client.compile(
      ir.Module.parse(text),
      executable_devices=xla_client.DeviceList(tuple(chips)),
      compile_options=options,
    )
  stats = executable.get_compiled_memory_stats()
  return Bytes(
    stats.argument_size_in_bytes,
    stats.alias_size_in_bytes,
    stats.output_size_in_bytes,
    stats.temp_size_in_bytes,
    stats.generated_code_size_in_bytes,
  )


def export_update(
  workload: training.Workload, precision: str, replicas: int
) -> Exported:
  """Exports the update that run_pretraining.py makes on a TPU."""
  with tpu_stand_in(replicas, runs=False) as stand_in:
    strategy = stand_in()
    with strategy.scope(), contextlib.suppress(Recorded):
      training.make_ours(workload, precision)()
    return export(stand_in.calls[0])


def estimate(workload: training.Workload, precision: str) -> float:
  """Returns what bert/training/memory.py says of an update, in bytes."""
  from bert import modeling
  from bert.training import memory

  config = modeling.BertConfig.from_dict(workload.config)
  size = contest.make_update_size(
    config,
    "pretraining",
    precision,
    sequences=workload.batch_size,
    predictions=workload.max_predictions_per_seq,
    length=workload.max_seq_length,
  )
  return memory.estimate_on_tpu(config, size)


def describe(topology: str, workload: str, found: Bytes, guess: float) -> str:
  """Puts the bytes of a chip into a row of a table, in megabytes."""
  cells = [topology, workload]
  cells += [f"{number / 1e6:,.1f}" for number in (*found, found.peak, guess)]
  cells.append(f"{guess / found.peak - 1:+.0%}")
  return f"| {' | '.join(cells)} |"


def main() -> None:
  parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
  listing = functools.partial(parser.add_argument, type=contest.split)
  listing("--topologies", default=["v5e:2x2", "v6e:2x2"])
  listing("--models", default=["tiny"], help="of configs/bert_*.json")
  listing("--batches", default=["8", "32"], help="sequences of a replica")
  parser.add_argument("--max_seq_length", type=int, default=128)
  parser.add_argument("--max_predictions_per_seq", type=int, default=20)
  parser.add_argument(
    "--precision", default="bfloat16", choices=contest.PRECISIONS
  )
  parser.add_argument("--replicas", type=int, default=1)
  arguments = parser.parse_args()
  try:
    found = {name: find_chips(name) for name in arguments.topologies}
    for name, chips in found.items():
      if len(chips) < arguments.replicas:
        raise ValueError(
          f"--replicas={arguments.replicas}: {name} has {len(chips)} devices"
        )
  except ValueError as error:
    sys.exit(f"tpu_compile.py: error: {error}")
  print_table(arguments, found)


def print_table(
  arguments: argparse.Namespace, chips: dict[str, Sequence[Any]]
) -> None:
  """Compiles each update for each topology, and prints its bytes."""
  print(
    "| topology | update | arguments | in place | results | temporary | "
    "program | peak | estimate | |\n|---|---|---|---|---|---|---|---|---|---|"
  )
  for model in arguments.models:
    for batch in map(int, arguments.batches):
      workload = training.Workload(
        str(contest.ROOT / "configs" / f"bert_{model}.json"),
        batch,
        arguments.max_seq_length,
        arguments.max_predictions_per_seq,
      )
      exported = export_update(
        workload, arguments.precision, arguments.replicas
      )
      guess = estimate(workload, arguments.precision)
      title = f"BERT-{model.title()} {batch} x {arguments.max_seq_length}"
      for name in arguments.topologies:
        start = time.process_time()
        found = compile_for(chips[name], exported.text, arguments.replicas)
        seconds = time.process_time() - start
        print(describe(name, title, found, guess), flush=True)
        print(f"  compiled in {seconds:.0f} s of CPU", file=sys.stderr)


if __name__ == "__main__":
  main()
