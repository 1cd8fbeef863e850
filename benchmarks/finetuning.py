"""Times fine-tuning and prediction on SST-2 against peers. Linux only.

  python benchmarks/finetuning.py
  python benchmarks/finetuning.py --isa=avx2     # as on Zen 3
  python benchmarks/finetuning.py --our_cores=0 --precisions=float32
    # ours on one core, Hugging Face on all

The floor of an update is what no code can save: the products of its dense
layers and of attention, and clipping and AdamW, alone. The floor of a
prediction is its products. What an update takes above its floor is its
overhead, which is largest for small models:

  python benchmarks/finetuning.py --kinds=train --batches=64 \
    --padded_batches=16 --bert_config_file=configs/bert_mini.json
"""

from collections.abc import Iterable, Iterator
import contextlib
import dataclasses
import functools
import os
import re
import statistics
import sys
import tempfile
from typing import NamedTuple

import contest
import numpy as np

# The programs' defaults. Hugging Face predicts faster in batches of batch_size.
LEARNING_RATE = 5e-5
PREDICT_BATCH_SIZE = 8


@dataclasses.dataclass(frozen=True)
class Workload:
  """What is trained and predicted, and how much of it in a turn."""

  data_dir: str
  vocab_file: str
  bert_config_file: str
  max_seq_length: int
  batch_size: int
  batches: int
  padded_batches: int
  sentences: int
  folder: str  # For the feature file, and the same rows for the peers.

  @property
  def sample_file(self) -> str:
    """The path of the `Sample`."""
    return os.path.join(self.folder, "sample.npz")


class Sample(NamedTuple):
  """What is timed; tokens are int64 [rows, max_seq_length]."""

  first_batch: np.ndarray  # The epoch's, to train on.
  train_ids: np.ndarray  # The rows of those batches.
  train_mask: np.ndarray
  train_labels: np.ndarray  # int64 [rows].
  predict_rows: np.ndarray  # Indices in the feature file.
  predict_ids: np.ndarray  # The longest first.
  predict_mask: np.ndarray


def main() -> int:
  parser = contest.make_parser(__doc__, CONTESTANTS)
  data_dir = str(contest.DATA / "glue" / "SST-2")
  parser.add_argument("--data_dir", default=data_dir)
  parser.add_argument("--max_seq_length", type=int, default=128)
  parser.add_argument("--batch_size", type=int, default=32)
  parser.add_argument("--batches", type=int, default=16, help="per turn")
  parser.add_argument("--padded_batches", type=int, default=1)
  parser.add_argument("--sentences", type=int, default=1024, help="to predict")
  parser.add_argument(
    "--our_cores",
    type=contest.split_cores,
    help="pin all but the peer to these, such as 0",
  )
  options = vars(contest.parse(parser))
  if contest.lacks_data(options, "data_dir", "vocab_file"):
    return 0
  rounds, kinds = options.pop("rounds"), options.pop("kinds")
  precisions, our_cores = options.pop("precisions"), options.pop("our_cores")
  missed = 0
  with tempfile.TemporaryDirectory() as folder:
    workload = Workload(**options, folder=folder)
    with contest.start_process() as process:
      print(process.submit(make_sample, workload).result(), flush=True)
    for kind in kinds:
      contestants = {
        name: contestant._replace(
          cores=None if name.startswith(contest.PEER) else our_cores
        )
        for name, contestant in CONTESTANTS[kind].items()
      }
      for precision in precisions:
        group = kind, precision, contestants
        timings = contest.time_group(*group, workload, rounds)
        missed += contest.print_table(*group, timings)
        missed += takes_more_memory(kind, precision, timings)
        if kind == "train":
          print_overheads(workload, timings)
        print(flush=True)
  return 1 if missed else 0


# The input.


def make_sample(workload: Workload) -> str:
  """Makes the feature file and the `Sample`; says what is in it."""
  from bert.inputs import batch_order

  features = open_train(workload).features
  lengths, size = features.lengths, workload.batch_size
  order = batch_order.epoch_order(lengths, size, contest.SEED, epoch=0)
  whole = order[: len(order) // size * size]
  padded = lengths[whole].reshape(-1, size).max(1)
  first = find_typical(padded, workload.batches)
  rows = order[first * size : (first + workload.batches) * size]
  random = np.random.default_rng(contest.SEED)
  chosen = random.choice(len(features), workload.sentences, replace=False)
  chosen = chosen[np.argsort(-lengths[chosen], kind="stable")]
  train_ids, train_mask, train_labels = read_rows(features, rows, workload)
  predict_ids, predict_mask, _ = read_rows(features, chosen, workload)
  sample = Sample(
    np.array(first),
    train_ids,
    train_mask,
    train_labels,
    chosen,
    predict_ids,
    predict_mask,
  )
  np.savez(workload.sample_file, **sample._asdict())
  return (
    f"{len(lengths):,} sentences of {lengths.mean():.1f} tokens; training on "
    f"batches {first} to {first + workload.batches - 1} of an epoch, padded to "
    f"{padded[first : first + workload.batches].mean():.1f} tokens on average "
    f"(all: {padded.mean():.1f}); predicting {len(chosen):,} sentences of "
    f"{lengths[chosen].mean():.1f} tokens"
  )


def open_train(workload: Workload):
  """Opens the training data as run_classifier.py does."""
  from bert.tasks import classification_data, classification_tasks

  task = classification_tasks.find_task("sst-2")
  task = classification_tasks.task_in_folder(task, workload.data_dir)
  settings = classification_data.ClassificationFeatureSettings(
    vocab_file=workload.vocab_file,
    do_lower_case=True,
    max_seq_length=workload.max_seq_length,
    doc_stride=None,
    label_separator=",",
    labels=task.labels,
    problem=task.problem,
  )
  with contextlib.redirect_stdout(None):  # It says what it has read.
    [train] = classification_data.find_sets(task, "train", settings)
    classification_data.make_features(train, workload.folder)
  return train


def find_typical(lengths: np.ndarray, count: int) -> int:
  """Returns the first of `count` typical batches in a row."""
  sums = np.cumsum(np.concatenate([[0], lengths]))
  means = (sums[count:] - sums[:-count]) / count
  return int(np.argmin(abs(means - lengths.mean())))


def read_rows(
  features, rows: np.ndarray, workload: Workload
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
  """Reads token ids, mask and labels of rows."""
  import tensorflow as tf

  names = ("input_ids", "input_mask", "label_ids")
  sizes = (workload.max_seq_length, workload.max_seq_length, 1)
  parsed = tf.io.parse_example(
    features.read(rows),
    {
      name: tf.io.FixedLenFeature([size], tf.int64)
      for name, size in zip(names, sizes, strict=True)
    },
  )
  ids, mask, labels = (parsed[name].numpy() for name in names)
  return ids, mask, labels[:, 0]


@functools.cache
def load_sample(workload: Workload) -> Sample:
  with np.load(workload.sample_file) as file:
    return Sample(**file)


# Ours: what run_classifier.py runs.


def make_our_model(workload: Workload, precision: str):
  """Makes the model, and opens its data."""
  from bert import heads, modeling

  config = modeling.BertConfig.from_json_file(workload.bert_config_file)
  dtype = {"float32": "float32", "bfloat16": "mixed_bfloat16"}[precision]
  split = open_train(workload)
  model = heads.ClassifierModel(config, split.settings.num_outputs, dtype)
  return model, split, config


def make_our_training(
  workload: Workload, precision: str, is_padded: bool
) -> contest.Turn:
  """The updates that run_classifier.py makes."""
  import tensorflow as tf

  from bert import optimization, run_classifier
  from bert.training import loop, training_plan

  model, split, config = make_our_model(workload, precision)
  optimizer = optimization.create_optimizer(
    model.trainable_variables, LEARNING_RATE, 100000, 10000
  )
  parse = split.make_parser(config, is_padded)
  size = workload.batch_size
  source = split.training_input(parse, size, contest.SEED)
  plan = training_plan.TrainingPlan("", 100000, size)
  strategy = tf.distribute.get_strategy()
  first = int(load_sample(workload).first_batch)
  distribute = functools.partial(
    loop._distribute, strategy, source, plan, first
  )
  loss = functools.partial(
    run_classifier.loss,
    problem_name=split.settings.problem,
    class_weights=tf.ones([split.settings.num_outputs]),
  )
  train_steps = loop._make_train_steps(
    strategy,
    training_plan.TrainingTask(model, optimizer, loss, source, plan),
    loop._make_global_step(strategy),
    distribute()[1],
  )
  count = workload.padded_batches if is_padded else workload.batches
  return contest.Turn(
    lambda batches: train_steps(batches, count)["loss"],
    count * size,
    lambda: distribute()[:1],
  )


def make_floor(
  workload: Workload, precision: str, is_padded: bool
) -> contest.Turn:
  """The products of the updates' batches, forward and back, and AdamW."""
  from bert import optimization

  model, _, config = make_our_model(workload, precision)
  optimizer = optimization.create_optimizer(
    model.trainable_variables, LEARNING_RATE, 100000, 10000
  )
  size = workload.batch_size
  lengths = load_sample(workload).train_mask.sum(1).reshape(-1, size).max(1)
  if is_padded:
    lengths = [workload.max_seq_length] * workload.padded_batches
  return make_updates_floor(optimizer, config, precision, size, lengths)


def make_updates_floor(
  optimizer,
  config,
  precision: str,
  size: int,
  lengths: Iterable[int],
  head: Iterable[tuple[int, int, int]] = (),
) -> contest.Turn:
  """The products of training steps, and clipping and AdamW.

  Args:
    optimizer: of all variables.
    config: of the encoder, a BertConfig.
    precision: of the products.
    size: of a batch.
    lengths: of the rows of each batch.
    head: rows, inputs and outputs of the dense layers above the encoder.
  """
  import tensorflow as tf

  gradients = [tf.fill(v.shape, 1e-3) for v in optimizer.variables]
  batches = [(size * int(length), int(length)) for length in lengths]
  multiply = make_products(config, precision, max(batches)[0], True, head)

  @tf.function
  def update(count, length):
    step = tf.constant(0, tf.int64)
    norm, _ = optimizer.clip_and_apply(gradients, step)
    return norm + multiply(count, length)

  def run():
    return float(sum(update(*map(tf.constant, batch)) for batch in batches))

  return contest.Turn(run, len(batches) * size)


def make_products(
  config,
  precision: str,
  most: int,
  is_training: bool,
  head: Iterable[tuple[int, int, int]] = (),
):
  """Returns a function that multiplies as the layers of an encoder do.

  It takes how many tokens a batch has, at most `most`, and the length of its
  rows. The other arguments are those of `make_updates_floor`.
  """
  import tensorflow as tf

  def make_values(*shape):
    return tf.cast(tf.random.normal(shape), precision)

  hidden, wide = config.hidden_size, config.intermediate_size
  shapes = [(hidden, 3 * hidden), (hidden, hidden), (hidden, wide)]
  shapes = [*shapes, (wide, hidden)] * config.num_hidden_layers
  shapes = [*((most, *shape) for shape in shapes), *head]
  # Every layer has its own, or TensorFlow multiplies once for all of them.
  layers = [
    (make_values(rows, inner), make_values(inner, columns))
    for rows, inner, columns in shapes
  ]
  others = {(rows, n): make_values(rows, n) for rows, _, n in shapes}
  depth = hidden // config.num_attention_heads

  def multiply(count, length):
    used = []
    for inputs, weights in layers:
      x = inputs[:count]
      # A gradient's, of the shape of the outputs.
      other = others[inputs.shape[0], weights.shape[1]][:count]
      used += [tf.matmul(x, weights)]
      if is_training:
        used += [tf.matmul(other, weights, transpose_b=True)]
        used += [tf.matmul(x, other, transpose_a=True)]
      if weights.shape == (hidden, hidden) and inputs.shape[0] == most:
        heads = (tf.reshape(y, [-1, length, depth]) for y in (x, other))
        used += multiply_heads(*heads, is_training)
    # One number of each is enough for TensorFlow to compute all.
    return tf.add_n([tf.cast(tf.reshape(y, [-1])[0], "float32") for y in used])

  return multiply


def multiply_heads(queries, keys, is_training: bool) -> list:
  """Returns attention's products; keys stand for values and gradients, too."""
  import tensorflow as tf

  scores = tf.matmul(queries, keys, transpose_b=True)
  products = [scores, tf.matmul(scores, keys)]
  if is_training:
    gradient = tf.matmul(keys, queries, transpose_b=True)
    products += [gradient, tf.matmul(gradient, keys)]
    products += [
      tf.matmul(x, keys, transpose_a=True) for x in (scores, gradient)
    ]
  return products


def make_our_prediction(workload: Workload, precision: str) -> contest.Turn:
  """Predicts as run_classifier.py does: batches of so many tokens."""
  from bert.data import imports

  imports.import_tensorflow(packs_weights=precision == "bfloat16")
  import tensorflow as tf

  from bert import run_classifier
  from bert.training import prediction

  model, split, config = make_our_model(workload, precision)
  parse = split.make_parser(config, is_static=False)
  features = split.features
  rows = load_sample(workload).predict_rows
  order = [rows[i] for i in order_to_predict(features.lengths[rows], workload)]
  predictor = prediction.Predictor(
    tf.distribute.get_strategy(), model, run_classifier.predict
  )

  def run():
    return predictor(features.batches(order, parse))["logits"].sum()

  return contest.Turn(run, len(rows))


def order_to_predict(
  lengths: np.ndarray, workload: Workload
) -> list[np.ndarray]:
  """Returns the batches of so many tokens, as indices of the rows."""
  from bert.inputs import batch_order

  most = PREDICT_BATCH_SIZE * workload.max_seq_length
  return batch_order.batches_by_tokens(lengths, most)


def make_prediction_floor(workload: Workload, precision: str) -> contest.Turn:
  """The products of the batches that ours predicts."""
  from bert.data import imports

  imports.import_tensorflow(packs_weights=precision == "bfloat16")
  import tensorflow as tf

  from bert import modeling

  lengths = load_sample(workload).predict_mask.sum(1)
  batches = [
    (len(rows) * int(lengths[rows].max()), int(lengths[rows].max()))
    for rows in order_to_predict(lengths, workload)
  ]
  config = modeling.BertConfig.from_json_file(workload.bert_config_file)
  multiply = make_products(config, precision, max(batches)[0], False)
  multiply = tf.function(multiply)

  def run():
    return float(sum(multiply(*map(tf.constant, batch)) for batch in batches))

  return contest.Turn(run, len(lengths))


# Hugging Face: what its Trainer runs.


def make_peer_model(workload: Workload):
  """Makes BertForSequenceClassification."""
  return contest.make_peer_model(
    "BertForSequenceClassification", workload.bert_config_file, num_labels=2
  )


def peer_batches(
  workload: Workload,
  ids: np.ndarray,
  mask: np.ndarray,
  labels: np.ndarray | None = None,
  is_padded: bool = False,
) -> Iterator[dict]:
  """Yields batches, padded to the longest row unless to max_seq_length."""
  import torch

  for start in range(0, len(ids), workload.batch_size):
    part = slice(start, start + workload.batch_size)
    longest = mask[part].sum(1).max()
    length = workload.max_seq_length if is_padded else longest
    batch = {
      "input_ids": torch.from_numpy(ids[part, :length]),
      "attention_mask": torch.from_numpy(mask[part, :length]),
      "token_type_ids": torch.zeros(ids[part, :length].shape, dtype=torch.long),
    }
    if labels is not None:
      batch["labels"] = torch.from_numpy(labels[part])
    yield batch


def make_peer_training(
  workload: Workload, precision: str, is_padded: bool
) -> contest.Turn:
  """Updates by the fused AdamW on the batches that ours trains on.

  Trainer groups by length as our `batch_order.epoch_order` does: it shuffles,
  and sorts within 50 batches.
  """
  import torch

  model = make_peer_model(workload).train()
  plain = re.compile(r"bias$|LayerNorm")
  groups = {0.01: [], 0.0: []}
  for name, parameter in model.named_parameters():
    groups[0.0 if plain.search(name) else 0.01].append(parameter)
  optimizer = torch.optim.AdamW(
    [{"params": p, "weight_decay": rate} for rate, p in groups.items()],
    LEARNING_RATE,
    fused=True,
  )
  mixed = precision == "bfloat16"
  sample = load_sample(workload)
  count = workload.padded_batches if is_padded else workload.batches
  rows = count * workload.batch_size

  def run():
    for batch in peer_batches(
      workload,
      sample.train_ids[:rows],
      sample.train_mask[:rows],
      sample.train_labels[:rows],
      is_padded,
    ):
      with torch.autocast("cpu", torch.bfloat16, enabled=mixed):
        loss = model(**batch).loss
      loss.backward()
      torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
      optimizer.step()
      optimizer.zero_grad()
    return loss.item()

  return contest.Turn(run, rows)


def make_peer_prediction(workload: Workload, precision: str) -> contest.Turn:
  """Predicts sorted sentences, with weights of the precision."""
  import torch

  model = make_peer_model(workload).eval().to(getattr(torch, precision))
  sample = load_sample(workload)

  @torch.inference_mode()
  def run():
    logits = [
      model(**batch).logits.float().numpy()
      for batch in peer_batches(
        workload, sample.predict_ids, sample.predict_mask
      )
    ]
    return np.concatenate(logits).sum()

  return contest.Turn(run, len(sample.predict_ids))


# By kind and name; the first one is compared with the others.
CONTESTANTS = {
  "train": {
    f"{contest.OURS}, bucketed": contest.Contestant(
      functools.partial(make_our_training, is_padded=False), "tensorflow", {}
    ),
    # A step is at most 1.3 times its floor.
    "floor": contest.Contestant(
      functools.partial(make_floor, is_padded=False),
      "tensorflow",
      {"bfloat16": 0.77},
    ),
    f"{contest.OURS}, padded": contest.Contestant(
      functools.partial(make_our_training, is_padded=True),
      "tensorflow",
      {"float32": 3.0, "bfloat16": 3.0},
    ),
    "floor, padded": contest.Contestant(
      functools.partial(make_floor, is_padded=True), "tensorflow", {}
    ),
    f"{contest.PEER}, grouped": contest.Contestant(
      functools.partial(make_peer_training, is_padded=False),
      "transformers",
      {"float32": 1.1, "bfloat16": 1.5},
    ),
    f"{contest.PEER}, padded": contest.Contestant(
      functools.partial(make_peer_training, is_padded=True),
      "transformers",
      {"float32": 5.0, "bfloat16": 5.0},
    ),
  },
  "predict": {
    f"{contest.OURS}, by tokens": contest.Contestant(
      make_our_prediction, "tensorflow", {}
    ),
    "floor": contest.Contestant(make_prediction_floor, "tensorflow", {}),
    f"{contest.PEER}, grouped": contest.Contestant(
      make_peer_prediction, "transformers", {"float32": 1.0, "bfloat16": 1.3}
    ),
  },
}


# The results.


def print_overheads(workload: Workload, timings: contest.Timings) -> None:
  """Prints what updates take, and above the floor of the same batches."""
  for name, turns in timings.items():
    floor = "floor, padded" if name.endswith(", padded") else "floor"
    if floor in timings and name != floor:
      pairs = [
        [workload.batch_size * 1000 / turn.speed for turn in pair]
        for pair in zip(turns, timings[floor], strict=True)
      ]
      update, least, overhead, ratio = (
        statistics.median(values)
        for values in zip(
          *((a, b, a - b, a / b) for a, b in pairs), strict=True
        )
      )
      print(
        f"an update of {name}: {update:.1f} ms, {overhead:.1f} above the floor "
        f"of {least:.1f} ms ({ratio:.2f} times)"
      )


def takes_more_memory(
  kind: str, precision: str, timings: contest.Timings
) -> bool:
  """Returns whether full-length float32 training takes more than the peer's."""
  peaks = [
    max(timing.peak_memory for timing in timings[name])
    for name in (f"{contest.OURS}, padded", f"{contest.PEER}, padded")
    if name in timings
  ]
  if (kind, precision, len(peaks)) != ("train", "float32", 2):
    return False
  ours, theirs = peaks
  print(f"memory of full batches: {ours / theirs:.2f} of Hugging Face's")
  return ours > theirs


if __name__ == "__main__":
  sys.exit(main())
