"""Times the update of run_pretraining.py by JAX on a GPU, beside PyTorch's.

  pip install -r requirements/bench.txt 'jax[cuda12]==0.10.2'
  python benchmarks/gpu_update.py --peak_tflops=989

For a machine with a GPU whose CUDA libraries are not those of TensorFlow, which
then works on the CPU. There it exports the update as StableHLO, as
benchmarks/tpu_compile.py does; JAX compiles that and runs it on its first
device, a GPU if there is one. Hugging Face's BertForPreTraining makes the same
update on the same device by PyTorch. 989 is what NVIDIA states for an H100, in
bfloat16 without sparsity.

First the losses of one update are compared with those of TensorFlow on the CPU:
dropout and weights are the same. The number of updates per second follows for
each batch size; the goal on one H100 is 4,000 sequences per second of
BERT-Base, and no less than PyTorch.

Nobody has run it on a GPU. It ran on a CPU, which takes the GPU's place:

  python benchmarks/gpu_update.py --bert_config_file=configs/bert_tiny.json \\
    --batch_sizes=8 --rounds=1 --precisions=float32
"""

import argparse
import re
import statistics
from typing import Any, NamedTuple

import contest
import numpy as np
import training

UPDATES = 10  # In a turn.


class Update(NamedTuple):
  """An update that JAX has compiled."""

  executable: Any
  # On the device: the features, and the variables that the update reads.
  arguments: list[Any]
  # Numbers of arguments and of the results that take their places.
  replaced: list[tuple[int, int]]
  exported: Any  # A `tpu_compile.Exported`.

  def run(self) -> Any:
    """Makes an update; returns the losses, pairs of a sum and its weight."""
    results = self.executable.execute(self.arguments)
    for argument, result in self.replaced:
      self.arguments[argument] = results[result]
    return results[0]


def compile_update(workload: training.Workload, precision: str) -> Update:
  """Exports an update by TensorFlow, and compiles it by JAX."""
  import jax
  from jax._src.interpreters import mlir
  from jax._src.lib import xla_client
  from jaxlib.mlir import ir
  import tensorflow as tf
  import tpu_compile

  jax.config.update("jax_enable_x64", True)  # Else the step becomes an int32.
  exported = tpu_compile.export_update(workload, precision, replicas=1)
  by_handle = {id(v.handle): v for v in exported.traced.variables}
  variables = [by_handle[id(x)] for x in exported.traced.captured_inputs]
  features = tf.nest.flatten(training.make_features(workload))
  values = [*features, *(variable.numpy() for variable in variables)]

  device = jax.devices()[0]
  with mlir.make_ir_context():
    executable = device.client.compile_and_load(
      ir.Module.parse(exported.text),
      executable_devices=xla_client.DeviceList((device,)),
      compile_options=xla_client.CompileOptions(),
    )
  pairs = re.findall(
    r"parameter_number = (\d+) : i64\}, output_index = array<i64: (\d+)>",
    exported.text,
  )
  return Update(
    executable,
    [jax.device_put(value, device) for value in values],
    [(int(argument), int(result)) for argument, result in pairs],
    exported,
  )


def compare_losses(
  workload: training.Workload, precision: str
) -> tuple[str, float]:
  """Makes an update by JAX and by TensorFlow, in the process it is called in.

  Returns:
    JAX's device, and the largest difference of the losses, relative to those
    above 1.
  """
  import jax
  import tensorflow as tf

  update = compile_update(workload, precision)
  found = np.asarray(update.run())  # Sums and weights of losses, 0 at times.
  function = tf.function(update.exported.call.function, autograph=False)
  expected, _, _ = function(training.make_features(workload))
  expected = np.asarray(expected)
  error = np.max(np.abs(found - expected) / np.maximum(np.abs(expected), 1))
  device = jax.devices()[0]
  return f"{device.platform}, {device.device_kind}", float(error)


def make_ours(workload: training.Workload, precision: str) -> contest.Turn:
  """The update of run_pretraining.py, by JAX."""
  update = compile_update(workload, precision)

  def run():
    for _ in range(UPDATES):
      losses = update.run()
    return float(np.asarray(losses).sum())  # Waits for the device.

  return contest.Turn(run, UPDATES * workload.batch_size)


def make_peer(workload: training.Workload, precision: str) -> contest.Turn:
  """The update of benchmarks/training.py by PyTorch, on a GPU if it has one."""
  import torch

  device = "cuda" if torch.cuda.is_available() else "cpu"
  step = training.make_hugging_face(workload, precision, device)

  def run():
    for _ in range(UPDATES):
      loss = step()
    return loss

  return contest.Turn(run, UPDATES * workload.batch_size)


CONTESTANTS: contest.Contestants = {
  "ours, by JAX": contest.Contestant(make_ours, "jax", {}),
  contest.PEER: contest.Contestant(make_peer, "transformers", {"bfloat16": 1}),
}


def print_shares(
  workload: training.Workload, timings: contest.Timings, peak: float
) -> None:
  """Prints which share of a device's peak, in FLOP/s, the speeds are."""
  flops = training.step_flops(workload) / workload.batch_size
  for name, found in timings.items():
    speed = statistics.median(timing.speed for timing in found)
    print(f"{name}: {flops * speed / peak:.1%} of {peak / 1e12:g} TFLOP/s")


def main() -> int:
  parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
  config_file = str(contest.ROOT / "configs" / "bert_base.json")
  parser.add_argument("--bert_config_file", default=config_file)
  parser.add_argument(
    "--batch_sizes", type=contest.split, default=["32", "64", "128", "256"]
  )
  parser.add_argument("--max_seq_length", type=int, default=128)
  parser.add_argument("--max_predictions_per_seq", type=int, default=20)
  parser.add_argument("--rounds", type=int, default=3)
  parser.add_argument("--peak_tflops", type=float, help="of the GPU")
  contest.add_limits(parser)
  parser.set_defaults(precisions=["bfloat16"])
  options = contest.parse(parser)
  if not contest.is_installed("jax"):
    return 0

  workloads = [
    training.Workload(
      options.bert_config_file,
      int(size),
      options.max_seq_length,
      options.max_predictions_per_seq,
    )
    for size in options.batch_sizes
  ]
  missed = 0
  for precision in options.precisions:
    with contest.start_process() as process:
      device, error = process.submit(
        compare_losses, workloads[0], precision
      ).result()
    print(f"JAX on {device}: losses differ from TensorFlow's by {error:.1e}")
    for workload in workloads:
      kind = f"{workload.batch_size} x {workload.max_seq_length} tokens"
      timings = contest.time_group(
        kind, precision, CONTESTANTS, workload, options.rounds
      )
      missed += contest.print_table(kind, precision, CONTESTANTS, timings)
      if options.peak_tflops:
        print_shares(workload, timings, options.peak_tflops * 1e12)
  return 1 if missed else 0


if __name__ == "__main__":
  raise SystemExit(main())
