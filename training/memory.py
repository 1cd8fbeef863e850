"""How much memory an update needs, how much is available, how to need less.

The estimate is the memory in use at its peak, when the backward pass begins.
With B sequences at a time (a micro-batch of one replica) of S tokens, P masked
words each, hidden size H, intermediate size I, N heads, L layers, V words, and
c bytes per number of the compute dtype:

  runtime     Python, TensorFlow and its threads, and the graph, by layer
  weights     4 bytes a parameter; in bfloat16 6, for those that are cast
  moments     8 bytes a parameter that is trained: Adam's
  gradients   4 bytes a parameter that is trained, 8 if they are accumulated
  kept        values of the forward pass for the backward pass
  working     temporary values, the larger of those of the head and of a layer
"""

from collections.abc import Iterator
import contextlib
import math
import pathlib
from typing import NamedTuple

import keras
import psutil
import tensorflow as tf

from data import shortage
import modeling
import optimization

GIGABYTE = 2**30

# Measured: a process that trains a tiny model, and what each layer adds to its
# graph.
_RUNTIME = 780 * 2**20
_GRAPH_OF_LAYER = 8 * 2**20
_GRAPH_OF_RECOMPUTED_LAYER = 24 * 2**20
_LIMIT_OF_CONTAINER = pathlib.Path("/sys/fs/cgroup/memory.max")

# Flags that help when training or prediction needs too much memory.
TRAINING_CURES = (
  "lower --train_batch_size or --max_seq_length, raise "
  "--gradient_accumulation_steps, or pass --recompute=true or "
  "--precision=bfloat16"
)
PREDICTION_CURES = (
  "lower --predict_batch_size, --eval_batch_size or --batch_size, whichever it "
  "was, or --max_seq_length, or pass --precision=bfloat16"
)


class StepSize(NamedTuple):
  """The work that a replica does at once."""

  sequences: int  # B: sequences per example times rows per micro-batch.
  predictions: int  # P; 0 without a head for masked words.
  length: int  # S
  dtype: str = "float32"  # Or "mixed_bfloat16".
  recompute: bool = False
  accumulates: bool = False  # Whether there are several micro-batches.


class Parameters(NamedTuple):
  """How many parameters a model has, and how many are trained."""

  total: int
  trained: int
  trained_layers: int  # L: the encoder layers whose gradient is needed.


def parameters_of(
  model: keras.Model, optimizer: optimization.AdamWeightDecayOptimizer
) -> Parameters:
  """Counts the parameters of a model with its head, and those trained."""
  num_layers = optimization.count_layers([v.path for v in model.variables])
  parts = map(optimization.layer_of, optimizer.paths)
  # Layers count from 1. Below the lowest trained one, no gradient is needed.
  lowest = min(
    (max(part, 1) for part in parts if part is not None),
    default=num_layers + 1,
  )
  return Parameters(
    total=sum(math.prod(v.shape) for v in model.variables),
    trained=sum(math.prod(v.shape) for v in optimizer.variables),
    trained_layers=num_layers + 1 - lowest,
  )


def shape_of_batch(
  signature: dict[str, tf.TensorSpec], parts: int, predictions: int = 0
) -> tuple[int, int]:
  """Returns B and P of a batch computed in micro-batches.

  Args:
    signature: of the features of a replica.
    parts: micro-batches, one after the other.
    predictions: P, if no feature has its size.
  """
  # [B, choices, S]; a length that differs by batch is None.
  rows, *inputs, _ = (size or 0 for size in signature["input_ids"].shape)
  if "masked_lm_positions" in signature:
    predictions = signature["masked_lm_positions"].shape[-1] or 0
  return math.prod([rows // parts, *inputs]), predictions


def estimate(
  config: modeling.BertConfig,
  parameters: Parameters,
  step: StepSize,
  replicas: int = 1,
) -> float:
  """Returns the most bytes that an update takes; see the top of the file."""
  in_bfloat16 = step.dtype != "float32"
  item = 2 if in_bfloat16 else 4  # c
  tokens = step.sequences * step.length
  hidden = tokens * config.hidden_size
  wide = tokens * getattr(config, "intermediate_size", config.hidden_size)
  heads = getattr(config, "num_attention_heads", 0)  # 0: another encoder.
  pairs = tokens * step.length * heads
  # Query, key, value, context and two outputs; two layer normalisations (16)
  # and dropout masks (2); the activation's input and output. Of pairs, the
  # probability, in bfloat16 in both dtypes, and its dropout mask.
  layer = hidden * (6 * item + 18) + wide * 2 * item
  layer += pairs * (7 if in_bfloat16 else 5)
  kept_layer, graph, working = layer, _GRAPH_OF_LAYER, 16 * max(wide, pairs)
  if step.recompute:
    kept_layer, graph = hidden * item, _GRAPH_OF_RECOMPUTED_LAYER
    working += layer
  head = 12 * step.sequences * step.predictions * config.vocab_size
  runtime = _RUNTIME + config.num_hidden_layers * graph
  weights = parameters.total * (6 if in_bfloat16 else 4)
  moments = parameters.trained * 8
  gradients = parameters.trained * (8 if step.accumulates else 4)
  kept = hidden * (9 + item) + parameters.trained_layers * kept_layer
  return runtime + replicas * (
    weights + moments + gradients + kept + max(head, working)
  )


def report(
  config: modeling.BertConfig,
  parameters: Parameters,
  step: StepSize,
  strategy: tf.distribute.Strategy,
) -> str:
  """Describes the memory needed and available; warns if it is too little."""
  replicas = 1  # Those that share memory: a GPU has its own.
  is_on_gpu = bool(tf.config.list_logical_devices("GPU"))
  if strategy.num_replicas_in_sync > 1 and not is_on_gpu:
    replicas = len(strategy.extended.worker_devices)
  needed = estimate(config, parameters, step, replicas)
  line = (
    f"memory: about {needed / GIGABYTE:,.1f} GB, for {step.sequences} x "
    f"{step.length} tokens at a time"
  )
  line += f" on each of {replicas} devices" * (replicas > 1)
  found = available(strategy)
  if not found:
    return line
  size, owner = found
  line += f"; this {owner} has {size / GIGABYTE:,.1f} GB for it"
  if needed > size:
    line += f"\nwarning: that is less than it takes: {TRAINING_CURES}"
  return line


def available(strategy: tf.distribute.Strategy) -> tuple[float, str] | None:
  """Returns the bytes available to an update, and of which memory.

  On a CPU, that is the RAM available now and what the process already has,
  at most the limit of its container. With several GPUs: the memory of the
  smallest. None if unknown.
  """
  if isinstance(strategy, tf.distribute.TPUStrategy):
    return None
  if tf.config.list_logical_devices("GPU"):
    # No public function of TensorFlow returns the size.
    from tensorflow.python.client import device_lib

    devices = device_lib.list_local_devices()
    limits = [d.memory_limit for d in devices if d.device_type == "GPU"]
    return min(limits), "GPU"
  ram = psutil.virtual_memory().available + psutil.Process().memory_info().rss
  with contextlib.suppress(OSError, ValueError):  # No container, or "max".
    ram = min(ram, int(_LIMIT_OF_CONTAINER.read_text()))
  return ram, "machine"


@contextlib.contextmanager
def naming_memory_flags(doing: str, cures: str) -> Iterator[None]:
  """Turns a lack of memory into one line that names the flags to change.

  Args:
    doing: the body's work, after "while".
    cures: flags to change.

  Raises:
    MemoryError: with that line.
  """
  try:
    yield
  except (MemoryError, tf.errors.ResourceExhaustedError) as error:
    fault = shortage.describe(error)
    if fault is None:
      raise
    raise MemoryError(f"while {doing}: {fault}: {cures}") from error
