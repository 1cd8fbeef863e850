"""Times a pre-training step against its peers, and its peak memory. Linux only.

  python benchmarks/training.py

Every contestant runs in a process of its own, one after the other, for several
rounds. All get the same synthetic batch; a step is everything until the weights
are updated: dropout, backward pass, clipping, AdamW. Between the steps another
process times one large matrix product: the peak of this machine at that moment.

The floor of a step is that work at the peak, and clipping and AdamW alone. It
takes nine minutes on two cores, and fails if ours is slower than a peer, or
reaches less than its target. docs/speed.md has what it printed.
"""

import argparse
from collections.abc import Callable
from concurrent import futures
import dataclasses
import functools
import json
import os
import pathlib
import statistics
import sys
import time
from typing import NamedTuple

import contest
import numpy as np

# Share of the peak to reach, by precision.
TARGETS = {"float32": 0.70, "bfloat16": 0.55}
LEARNING_RATE = 1e-4
# The product whose speed is called the peak: a BERT-Base intermediate layer.
MATMUL = (4096, 768, 3072)


@dataclasses.dataclass(frozen=True)
class Workload:
  """What is trained, and on how much at a time."""

  bert_config_file: str
  batch_size: int
  max_seq_length: int
  max_predictions_per_seq: int

  @property
  def config(self) -> dict:
    """The fields of the bert_config.json."""
    return json.loads(pathlib.Path(self.bert_config_file).read_text())


class Timing(NamedTuple):
  """What a process reports of one step."""

  seconds: float
  disturbance: float  # The share of the machine that other processes took.
  peak_memory: float  # Gigabytes, of the process since it began.


class Sample(NamedTuple):
  """A step, and the machine's peak just before it."""

  timing: Timing
  peak: float  # In FLOP per second.


Step = Callable[[], float]  # Makes an update, returns the loss.


def main() -> int:
  parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
  config_file = str(contest.ROOT / "configs" / "bert_base.json")
  parser.add_argument("--bert_config_file", default=config_file)
  parser.add_argument("--train_batch_size", type=int, default=16)
  parser.add_argument("--max_seq_length", type=int, default=128)
  parser.add_argument("--max_predictions_per_seq", type=int, default=20)
  parser.add_argument("--rounds", type=int, default=2)
  parser.add_argument("--steps", type=int, default=3, help="timed, per round")
  parser.add_argument("--contestants", nargs="+", choices=CONTESTANTS)
  contest.add_limits(parser)
  arguments = contest.parse(parser)
  workload = Workload(
    arguments.bert_config_file,
    arguments.train_batch_size,
    arguments.max_seq_length,
    arguments.max_predictions_per_seq,
  )
  names = [
    name
    for name in arguments.contestants or CONTESTANTS
    if CONTESTANTS[name].precision in arguments.precisions
    and contest.is_installed(CONTESTANTS[name].library)
  ]
  rounds = {name: [] for name in names}
  print(f"on {contest.describe_machine()}")
  gigaflops = step_flops(workload) / workload.batch_size / 1e9
  print(f"{gigaflops:.1f} GFLOP per example")
  with contest.start_process() as gauge:
    for i in range(arguments.rounds):
      for name in names:
        samples = time_contestant(name, workload, arguments.steps, gauge)
        rounds[name].append(samples)
        print(f"round {i + 1}: {name:<22}{describe(workload, samples)}")
        sys.stdout.flush()
    update = gauge.submit(measure_update, workload).result()
  print(f"medians of {arguments.rounds} rounds; clipping, AdamW {update:.3f} s")
  for name, lists in rounds.items():
    print(f"{name:<22}{describe(workload, sum(lists, []))}")
  return print_verdicts(workload, rounds, update)


def step_flops(workload: Workload) -> float:
  """Counts the floating-point operations of a step, of matrix products alone.

  A product of [m, k] and [k, n] is 2 m k n. With S tokens, P of them masked,
  hidden size H, intermediate size I, V words and L layers, an example's are

    forward = L (2 S (4 H^2 + 2 H I) + 4 S^2 H)   query, key, value, output and
                                                  the two dense layers; scores
                                                  and context
            + 2 P (H^2 + H V)                     masked words
            + 2 (H^2 + 2 H)                       next sentence

  and the backward pass has two products for each of those: 69.9e9 in all for
  BERT-Base, 128 tokens and 20 masked. It is the useful work: a peer that scores
  all tokens instead of the masked ones, or none for the next sentence, is
  credited with as much.
  """
  config = workload.config
  length, predictions = (
    workload.max_seq_length,
    workload.max_predictions_per_seq,
  )
  hidden, wide = config["hidden_size"], config["intermediate_size"]
  dense = 2 * length * (4 * hidden**2 + 2 * hidden * wide)
  attention = 4 * length**2 * hidden
  masked = 2 * predictions * (hidden**2 + hidden * config["vocab_size"])
  sentence = 2 * (hidden**2 + 2 * hidden)
  layers = config["num_hidden_layers"] * (dense + attention)
  return 3 * workload.batch_size * (layers + masked + sentence)


def make_features(workload: Workload) -> dict[str, np.ndarray]:
  """Makes a batch of full sequences under the names of the training records."""
  random = np.random.default_rng(0)
  batch, length = workload.batch_size, workload.max_seq_length
  predictions = workload.max_predictions_per_seq
  words = workload.config["vocab_size"]
  positions = [random.permutation(length)[:predictions] for _ in range(batch)]
  lengths = random.integers(1, length, [batch, 1])
  features = {
    "input_ids": random.integers(0, words, [batch, length]),
    "input_mask": np.ones([batch, length]),
    "segment_ids": np.arange(length) >= lengths,
    "masked_lm_positions": np.sort(positions),
    "masked_lm_ids": random.integers(0, words, [batch, predictions]),
    "next_sentence_labels": random.integers(0, 2, [batch, 1]),
  }
  features = {name: x.astype(np.int32) for name, x in features.items()}
  weights = np.ones([batch, predictions], np.float32)
  return {**features, "masked_lm_weights": weights}


def make_our_model(workload: Workload, precision: str):
  """Returns the model that run_pretraining.py trains, and its optimizer."""
  from bert import heads, optimization
  from bert.encoders import encoder_table

  config = encoder_table.make_config(workload.config)
  dtype = {"float32": "float32", "bfloat16": "mixed_bfloat16"}[precision]
  model = heads.PretrainingModel(config, dtype)
  return model, optimization.create_optimizer(
    model.trainable_variables, LEARNING_RATE, 100000, 10000
  )


def make_ours(workload: Workload, precision: str) -> Step:
  """The step that run_pretraining.py runs."""
  import tensorflow as tf

  from bert import run_pretraining
  from bert.training import loop, training_plan

  model, optimizer = make_our_model(workload, precision)
  batches = tf.data.Dataset.from_tensors(make_features(workload)).repeat()
  strategy = tf.distribute.get_strategy()
  plan = training_plan.TrainingPlan("", 100000, workload.batch_size)
  train_steps = loop._make_train_steps(
    strategy,
    training_plan.TrainingTask(
      model, optimizer, run_pretraining.loss, None, plan
    ),
    loop._make_global_step(strategy),
    batches.element_spec,
  )
  iterator = iter(batches)
  return lambda: train_steps(iterator, 1)["loss"]


def make_hugging_face(
  workload: Workload, precision: str, device: str = "cpu"
) -> Step:
  """BertForPreTraining, which scores all tokens, and the fused AdamW."""
  import torch
  import transformers

  torch.set_num_threads(len(os.sched_getaffinity(0)))
  model = transformers.BertForPreTraining(
    transformers.BertConfig(**workload.config)
  )
  model.to(device).train()
  optimizer = torch.optim.AdamW(
    model.parameters(), LEARNING_RATE, weight_decay=0.01, fused=True
  )
  features = make_features(workload)
  labels = np.full_like(features["input_ids"], -100)  # Those are not scored.
  np.put_along_axis(
    labels, features["masked_lm_positions"], features["masked_lm_ids"], axis=1
  )
  batch = {
    "input_ids": features["input_ids"],
    "attention_mask": features["input_mask"],
    "token_type_ids": features["segment_ids"],
    "labels": labels,
    "next_sentence_label": features["next_sentence_labels"][:, 0],
  }
  batch = {
    name: torch.from_numpy(x).long().to(device) for name, x in batch.items()
  }

  def step():
    mixed = precision == "bfloat16"
    with torch.autocast(device, torch.bfloat16, enabled=mixed):
      loss = model(**batch).loss
    loss.backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    optimizer.zero_grad()
    return loss.item()

  return step


def make_keras_hub(workload: Workload, precision: str) -> Step:
  """BertMaskedLM, which does not predict the next sentence."""
  import keras
  import keras_hub

  config = workload.config
  backbone = keras_hub.models.BertBackbone(
    vocabulary_size=config["vocab_size"],
    num_layers=config["num_hidden_layers"],
    num_heads=config["num_attention_heads"],
    hidden_dim=config["hidden_size"],
    intermediate_dim=config["intermediate_size"],
    dropout=config["hidden_dropout_prob"],
    max_sequence_length=config["max_position_embeddings"],
    num_segments=config["type_vocab_size"],
    dtype={"float32": "float32", "bfloat16": "mixed_bfloat16"}[precision],
  )
  model = keras_hub.models.BertMaskedLM(backbone)
  model.compile(
    optimizer=keras.optimizers.AdamW(
      LEARNING_RATE, weight_decay=0.01, global_clipnorm=1.0
    ),
    loss=keras.losses.SparseCategoricalCrossentropy(from_logits=True),
  )
  features = make_features(workload)
  inputs = {
    "token_ids": features["input_ids"],
    "padding_mask": features["input_mask"],
    "segment_ids": features["segment_ids"],
    "mask_positions": features["masked_lm_positions"],
  }
  labels, weights = features["masked_lm_ids"], features["masked_lm_weights"]
  # It returns the loss and the accuracy.
  return lambda: model.train_on_batch(inputs, labels, weights)[0]


class Contestant(NamedTuple):
  """A way to make the step."""

  make: Callable[[Workload, str], Step]
  precision: str
  library: str  # Without it, the contestant is skipped.


CONTESTANTS = {
  "ours float32": Contestant(make_ours, "float32", "tensorflow"),
  "ours bfloat16": Contestant(make_ours, "bfloat16", "tensorflow"),
  "Hugging Face float32": Contestant(
    make_hugging_face, "float32", "transformers"
  ),
  "Hugging Face bfloat16": Contestant(
    make_hugging_face, "bfloat16", "transformers"
  ),
  "KerasHub float32": Contestant(make_keras_hub, "float32", "keras_hub"),
  "KerasHub bfloat16": Contestant(make_keras_hub, "bfloat16", "keras_hub"),
}


def time_contestant(
  name: str, workload: Workload, steps: int, gauge: futures.Executor
) -> list[Sample]:
  """Times steps of a new process; returns the undisturbed ones, if any."""
  precision = CONTESTANTS[name].precision
  samples = []
  with contest.start_process() as process:
    process.submit(warm_up, name, workload).result()
    for _ in range(2 * steps):  # A busy machine gets a second chance.
      peak = gauge.submit(measure_peak, precision).result()
      timing = process.submit(time_step, name, workload).result()
      samples.append(Sample(timing, peak))
      if len(undisturbed(samples)) == steps:
        break
  return undisturbed(samples) or samples


def undisturbed(samples: list[Sample]) -> list[Sample]:
  return [
    x for x in samples if x.timing.disturbance <= contest.MOST_DISTURBANCE
  ]


@functools.cache
def warm_up(name: str, workload: Workload) -> None:
  """Makes the step and runs it once, which compiles it."""
  prepare(name, workload)()


@functools.cache
def prepare(name: str, workload: Workload) -> Step:
  """Makes a contestant's step; the process keeps it."""
  contestant = CONTESTANTS[name]
  return contestant.make(workload, contestant.precision)


def time_step(name: str, workload: Workload) -> Timing:
  """Times a step in the process that is its contestant's."""
  step = prepare(name, workload)
  busy, own = contest.busy_seconds(), contest.own_seconds()
  start = time.perf_counter()
  loss = step()
  seconds = time.perf_counter() - start
  others = contest.busy_seconds() - busy - (contest.own_seconds() - own)
  if not np.isfinite(loss):
    raise ValueError(f"{name}: the loss is {loss}; expected a finite number")
  return Timing(
    seconds, others / seconds / os.cpu_count(), contest.peak_memory()
  )


def measure_peak(precision: str) -> float:
  """Returns the FLOP per second of the faster of TensorFlow's two products."""
  rows, inner, columns = MATMUL
  medians = []
  for multiply in make_products(precision):
    seconds = []
    for _ in range(7):
      start = time.perf_counter()
      multiply()
      seconds.append(time.perf_counter() - start)
    medians.append(statistics.median(seconds))
  return 2 * rows * inner * columns / min(medians)


@functools.cache
def make_products(precision: str) -> list[Callable]:
  """Makes a product that is TensorFlow's operation, and one compiled by XLA."""
  import tensorflow as tf

  rows, inner, columns = MATMUL
  left = tf.cast(tf.random.normal([rows, inner]), precision)
  right = tf.cast(tf.random.normal([inner, columns]), precision)
  products = [
    functools.partial(
      tf.function(lambda x, y: tf.matmul(x, y), jit_compile=compiled),
      left,
      right,
    )
    for compiled in (False, True)
  ]
  for multiply in products:
    multiply()
  return products


def measure_update(workload: Workload) -> float:
  """Returns the seconds of clipping and AdamW alone."""
  import tensorflow as tf

  from bert import optimization

  _, optimizer = make_our_model(workload, "float32")
  gradients = [tf.fill(v.shape, 1e-3) for v in optimizer.variables]
  norms, step = optimization.row_norms(gradients), tf.constant(0, tf.int64)
  update = tf.function(
    lambda: optimizer.clip_and_apply(gradients, step, norms)[0]
  )
  seconds = []
  for _ in range(6):
    start = time.perf_counter()
    update().numpy()
    seconds.append(time.perf_counter() - start)
  return statistics.median(seconds[1:])  # The first one compiles.


def median_seconds(samples: list[Sample]) -> float:
  return statistics.median(sample.timing.seconds for sample in samples)


def share_of_peak(workload: Workload, samples: list[Sample]) -> float:
  """Returns the median share of the peak that the useful work reaches."""
  flops = step_flops(workload)
  return statistics.median(flops / s.timing.seconds / s.peak for s in samples)


def describe(workload: Workload, samples: list[Sample]) -> str:
  """Puts speed, share of the peak and memory in words."""
  calm = undisturbed(samples)
  chosen = calm or samples
  peak = statistics.median(sample.peak for sample in chosen) / 1e9
  memory = max(sample.timing.peak_memory for sample in samples)
  speed = workload.batch_size / median_seconds(chosen)
  return (
    f"{speed:6.2f} examples/s, {share_of_peak(workload, chosen):4.0%} of "
    f"{peak:4.0f} GFLOP/s, {memory:5.2f} GB{'' if calm else '; disturbed'}"
  )


def print_verdicts(
  workload: Workload, rounds: dict[str, list], update: float
) -> int:
  """Prints our share of the peak, our time by the floor's, by each peer's.

  Args:
    update: seconds of clipping and AdamW alone.

  Returns:
    1 if we miss a target, 0 otherwise. What was disturbed decides nothing.
  """
  missed = 0
  for name, theirs in rounds.items():
    precision = CONTESTANTS[name].precision
    ours = rounds.get(f"{contest.OURS} {precision}")
    if not ours:
      continue
    pairs = list(zip(theirs, ours, strict=True))
    calm = [pair for pair in pairs if all(map(undisturbed, pair))]
    if theirs is ours:
      samples = sum([mine for _, mine in calm or pairs], [])
      value, target = share_of_peak(workload, samples), TARGETS[precision]
      text = f"{name}: {value:.0%} of the peak (target {target:.0%})"
      products = value * median_seconds(samples)
      ratio = median_seconds(samples) / (products + update)
      text += f", step / floor {ratio:.2f}"
    else:
      ratios = [median_seconds(x) / median_seconds(y) for x, y in calm or pairs]
      value, target = statistics.median(ratios), 1
      text = (
        f"{contest.OURS} / {name}: {value:.2f} times as fast (target {target})"
      )
    print(text if calm else f"{text}; disturbed")
    missed += bool(calm) and value < target
  return 1 if missed else 0


if __name__ == "__main__":
  sys.exit(main())
