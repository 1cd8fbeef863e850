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
  working     temporary values: of the head or of a layer, whichever has more

A TPU has its own sum, `estimate_on_tpu`: there, XLA compiles the whole update.

Gradient checkpointing needs less: Chen et al., "Training Deep Nets with
Sublinear Memory Cost", https://arxiv.org/abs/1604.06174, section 4.1: only the
input of each encoder layer is kept for the backward pass, which recomputes the
rest.
"""

from collections.abc import Callable
import contextlib
import math
import pathlib
from typing import Any, NamedTuple

import psutil
import tensorflow as tf

from bert import modeling, optimization
from bert.training import prediction, training_plan

GIGABYTE = 2**30

# Measured: a process that trains a tiny model, and what each layer adds to its
# graph; to a graph that computes a layer again, and to one with a loop over
# micro-batches, which TensorFlow optimizes as a function of its own.
RUNTIME = 780 * 2**20
_GRAPH_OF_LAYER = 8 * 2**20
_GRAPH_OF_RECOMPUTED_LAYER = 24 * 2**20
_GRAPH_OF_LAYER_IN_LOOP = 34 * 2**20
_LIMIT_OF_CONTAINER = pathlib.Path("/sys/fs/cgroup/memory.max")

# Counted in what libtpu 0.0.52 compiles. Each small value gets 16 KiB; most are
# numbers that dropout makes of its seeds. So many, and more by layer:
_BYTES_OF_SMALL_VALUE = 16 * 2**10
_SMALL_VALUES = 230
_SMALL_VALUES_OF_LAYER = 465
# The last two axes of an array are padded to a multiple of these.
_TILE = (8, 128)
# How much of its fast memory a v5e or v6e gives to values.
_VMEM = 112 * 2**20

# The variables of the head that guesses words.
_WORD_HEAD = "cls/predictions/"

# Flags that help when training needs too much memory.
TRAINING_CURES = (
  "lower --train_batch_size or --max_seq_length, raise "
  "--gradient_accumulation_steps, or pass --recompute=true or "
  "--precision=bfloat16"
)


class UpdateSize(NamedTuple):
  """The parameters of a model, and the work that a replica does at once."""

  parameters: int  # The encoder's and the head's.
  trained: int  # How many of them are trained.
  trained_layers: int  # L: the encoder layers whose gradient is needed.
  sequences: int  # B: sequences per example times rows per micro-batch.
  predictions: int  # P; 0 without a head for masked words.
  length: int  # S
  dtype: str = "float32"  # Or "mixed_bfloat16".
  recompute: bool = False
  accumulates: bool = False  # Whether there are several micro-batches.


def size_of_update(
  task: training_plan.TrainingTask, signature: Any
) -> UpdateSize:
  """Returns the size of an update.

  Args:
    task: says the model, the plan, and by its optimizer what is trained.
    signature: the features' shapes and types, by name.
  """
  model = task.model
  plan = task.plan

  # Backward, an update goes down to the lowest part that is trained.
  num_layers = optimization.count_layers([v.path for v in model.variables])
  places = map(optimization.layer_of, task.optimizer.paths)
  # Layers count from 1. Below the lowest trained one, no gradient is needed.
  layers = [max(place, 1) for place in places if place is not None]
  lowest = min(layers, default=num_layers + 1)

  # [B, choices, S]; a length that differs by batch is None.
  rows, *inputs, _ = (size or 0 for size in signature["input_ids"].shape)
  parts = plan.gradient_accumulation_steps
  predictions = 0
  if "masked_lm_positions" in signature:
    predictions = signature["masked_lm_positions"].shape[-1] or 0
  elif any(path.startswith(_WORD_HEAD) for path in task.optimizer.paths):
    predictions = plan.max_seq_length - 1  # It guesses all tokens but [CLS].

  return UpdateSize(
    parameters=sum(math.prod(v.shape) for v in model.variables),
    trained=sum(math.prod(v.shape) for v in task.optimizer.variables),
    trained_layers=num_layers + 1 - lowest,
    sequences=math.prod([rows // parts, *inputs]),
    predictions=predictions,
    length=plan.max_seq_length,
    dtype=model.bert.dtype_policy.name,
    recompute=plan.recompute,
    accumulates=parts > 1,
  )


def estimate(
  config: modeling.BertConfig, size: UpdateSize, replicas: int = 1
) -> float:
  """Returns the most bytes that an update takes; see the top of the file.

  Args:
    config: the architecture.
    size: the work that a replica does at once.
    replicas: how many of them share the memory.
  """
  in_bfloat16 = size.dtype != "float32"
  item = 2 if in_bfloat16 else 4  # c
  hidden, wide, pairs = _count_numbers(config, size)

  # Query, key, value, context and two outputs; two layer normalisations (16)
  # and dropout masks (2); the activation's input and output. Of pairs, the
  # probability, in bfloat16 in both dtypes, and its dropout mask.
  layer = hidden * (6 * item + 18) + wide * 2 * item
  layer += pairs * (7 if in_bfloat16 else 5)
  kept_layer = layer
  graph = _GRAPH_OF_LAYER
  working = 16 * max(wide, pairs)
  if size.recompute:
    # Gradient checkpointing keeps only the inputs of layers, but needs room for
    # one whole layer while it recomputes it.
    kept_layer = hidden * item
    graph = _GRAPH_OF_RECOMPUTED_LAYER
    working += layer
  if size.accumulates:
    graph += _GRAPH_OF_LAYER_IN_LOOP

  # The terms of the table at the top of the file.
  head = 12 * size.sequences * size.predictions * config.vocab_size
  runtime = RUNTIME + config.num_hidden_layers * graph
  weights = size.parameters * (6 if in_bfloat16 else 4)
  moments = size.trained * 8
  gradients = size.trained * (8 if size.accumulates else 4)
  kept = hidden * (9 + item) + size.trained_layers * kept_layer
  of_replica = weights + moments + gradients + kept + max(head, working)
  return runtime + replicas * of_replica


def estimate_on_tpu(config: modeling.BertConfig, size: UpdateSize) -> float:
  """Returns the most bytes of a TPU's core that an update takes.

  It is not `estimate`, which was fitted to TensorFlow on CPUs: there, each
  operation returns what others may need. For a TPU, XLA compiles the update as
  one program. It keeps fewer values of the forward pass, casts a weight where
  it is multiplied, and a gradient takes the place of what was kept before. The
  process is not on the chip. Each factor was read in the list of values that
  the compiler keeps at the peak; docs/clusters.md compares the sums.

  Args:
    config: the architecture.
    size: the work that a replica does at once. XLA merges the two forward
      passes of `recompute`, which thus saves nothing.
  """
  in_bfloat16 = size.dtype != "float32"
  item = 2 if in_bfloat16 else 4
  hidden, wide, pairs = _count_numbers(config, size)
  layers = config.num_hidden_layers

  # Query, key, value and context, which a TPU multiplies in bfloat16 in both
  # dtypes (8); the inputs of two layer normalisations (8), and in bfloat16 two
  # outputs besides (4); dropout masks (2); the activation's input, of which the
  # output is computed again. Of pairs, the probability in float32 and its
  # dropout mask. The embeddings' normalisation and mask take 8.
  layer = hidden * (22 if in_bfloat16 else 18) + wide * item + pairs * 5
  kept = 8 * hidden + size.trained_layers * layer

  # Weights are cast where they are multiplied, but for micro-batches only once.
  # Their gradients are then added up.
  is_cast_once = size.accumulates and in_bfloat16
  accumulation = size.trained * 4 * size.accumulates
  accumulation += size.parameters * 2 * is_cast_once
  table = config.vocab_size * config.embedding_width
  table_bytes = table * (2 if is_cast_once else 4)

  # Before the layers, masks are drawn, one after the other. A draw makes four
  # numbers, padded to a row of a tile, that decide eight elements. The masks of
  # pairs have 4 bytes until they are used. The first layer has its query, key
  # and value.
  _, columns = _TILE
  drawn = max(hidden, pairs) // 8 * 4 * columns
  drawn += 4 * pairs * (layers - 1) + hidden * (2 * layers + 14)

  # After them, nothing is kept but gradients: of the word table in float32.
  gradients = size.trained * item + table * (4 - item)

  scores = _count_scores(config, size, table_bytes)
  temporary = max(kept + scores, drawn, gradients)
  small = _SMALL_VALUES + layers * _SMALL_VALUES_OF_LAYER
  return (
    size.parameters * 4  # Weights.
    + size.trained * 8  # Moments.
    + accumulation
    + temporary
    + small * _BYTES_OF_SMALL_VALUE
  )


def _count_scores(config, size, table_bytes):
  """Returns the bytes of a TPU's core that scores of words take.

  In bfloat16 they are kept, and the loss makes float32 of them. It copies these
  from one layout into another, and that by sequence, where their number is
  padded. If the two copies fit into the fast memory, beside the table of words
  that is multiplied next, it holds all that is in float32.
  """
  rows, _ = _TILE
  padded = math.ceil(size.predictions / rows) * rows
  words = size.sequences * config.vocab_size
  copies = 4 * (size.predictions + padded) * words
  kept, converted = 0, 0
  if size.dtype != "float32":
    kept = 2 * size.predictions * words
    converted = 4 * size.predictions * words
  if copies + table_bytes <= _VMEM:
    return kept
  return kept + converted + copies


def _count_numbers(config, size):
  """Returns how many numbers a layer has of size H, of size I, and of pairs."""
  tokens = size.sequences * size.length
  wide = getattr(config, "intermediate_size", config.hidden_size)
  heads = getattr(config, "num_attention_heads", 0)  # 0: another encoder.
  return (
    tokens * config.hidden_size,
    tokens * wide,
    tokens * size.length * heads,
  )


def report(
  config: modeling.BertConfig,
  size: UpdateSize,
  strategy: tf.distribute.Strategy,
  more: Callable[[UpdateSize, int], float] | None = None,
) -> str:
  """Describes the memory needed and available; warns if it is too little.

  Args:
    config: the architecture.
    size: the work that a replica does at once.
    strategy: says on which devices it is done.
    more: estimates the memory that the forward pass takes besides the model's;
      see `training_plan.TrainingTask`. None: nothing.
  """
  # Replicas on CPUs share the memory; a GPU has its own, and so has a TPU.
  replicas = 1
  is_on_tpu = isinstance(strategy, tf.distribute.TPUStrategy)
  is_on_gpu = bool(tf.config.list_logical_devices("GPU"))
  if strategy.num_replicas_in_sync > 1 and not (is_on_gpu or is_on_tpu):
    replicas = len(strategy.extended.worker_devices)
  if is_on_tpu:
    needed = estimate_on_tpu(config, size)
  else:
    needed = estimate(config, size, replicas)
  if more:
    needed += more(size, replicas)

  owner = " of each TPU core" if is_on_tpu else ""
  line = (
    f"memory: about {needed / GIGABYTE:,.1f} GB{owner}, for {size.sequences} x "
    f"{size.length} tokens at a time"
  )
  if replicas > 1:
    line += f" on each of {replicas} devices"
  if room_and_owner := available(strategy):
    room, owner = room_and_owner
    line += f"; this {owner} has {room / GIGABYTE:,.1f} GB for it"
    if needed > room:
      line += f"\nwarning: that is less than it takes: {TRAINING_CURES}"
  return line


def available(strategy: tf.distribute.Strategy) -> tuple[float, str] | None:
  """Returns the bytes available to an update, and of which memory.

  On a CPU: the RAM that is free or already the process's, at most the limit of
  its container. With several GPUs: the memory of the smallest. None if unknown.
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


def recompute_layers(bert: modeling.BertModel) -> None:
  """Makes a BERT recompute its encoder layers in the backward pass.

  Outputs and gradients do not change: dropout is a function of its seed. Calls
  without a seed, which do not train, do not change at all; calls with a seed
  cannot return the attention.
  """
  encoder = bert.encoder

  def call(hidden, input_mask, seed=None):
    states, attention = [], []
    for i, block in enumerate(encoder.blocks):
      inputs = (hidden, input_mask, modeling.fold_in(seed, i))
      hidden, probs = _call_block(block, *inputs)
      states.append(hidden)
      attention.append(probs)
    return states, attention

  encoder.call = call


def _call_block(block, hidden, input_mask, seed):
  """Calls an encoder layer, with its arguments and results."""
  # Without a seed nothing is trained, and nothing is kept.
  if seed is None:
    return block(hidden, input_mask)

  def run(inputs, input_mask, seed):
    hidden, *weights = inputs
    # As tensors: a custom gradient cannot use variables of a strategy.
    with prediction.substituted(block.variables, weights):
      return block(hidden, input_mask, seed)[0]

  @tf.custom_gradient
  def call(*inputs):
    def gradient(upstream):
      # The dependency keeps TensorFlow from merging the two passes again. The
      # seed needs it too: else masks are kept.
      with tf.control_dependencies([upstream]):
        again = [tf.identity(x) for x in inputs]
        mask_again = tf.identity(input_mask)
        seed_again = tf.identity(seed)
      with tf.GradientTape() as tape:
        tape.watch(again)
        output = run(again, mask_again, seed_again)
      return tape.gradient(output, again, upstream)

    return run(inputs, input_mask, seed), gradient

  return call(hidden, *(v.value for v in block.variables)), None
