"""Trains a tiny classifier in three ways and prints how far they are apart.

A process of its own: TensorFlow's collective operations remember the shapes of
other strategies that were used in the same one.
"""

import functools
import os
import pathlib
import sys

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT), str(ROOT / "tests/helpers")]

import keras  # noqa: E402
import numpy as np  # noqa: E402
import tensorflow as tf  # noqa: E402

import heads  # noqa: E402
from inputs import feature_files  # noqa: E402
import modeling  # noqa: E402
import optimization  # noqa: E402
import run_classifier  # noqa: E402
from tasks import classification_inputs  # noqa: E402
from tasks import glue  # noqa: E402
import tiny  # noqa: E402
from training import loop  # noqa: E402
from training import prediction  # noqa: E402


def find_splits(folder):
  tiny.write_model(folder)
  tiny.write_tsv(folder / "train.tsv", range(50))
  tiny.write_tsv(folder / "dev.tsv", range(50, 61))
  settings = classification_inputs.Settings(
    vocab_file=str(folder / "vocab.txt"),
    do_lower_case=True,
    max_seq_length=tiny.SEQUENCE,
    doc_stride=None,
    label_separator=",",
    labels=("neg", "pos"),
    problem="single_label",
  )
  task = glue.file_task(str(folder))
  return [
    *classification_inputs.find_splits(task, "train", settings, str(folder)),
    *classification_inputs.find_splits(task, "eval", settings, str(folder)),
  ]


def train(splits, strategy, parts, output_dir):
  """Returns the weights after seven steps, and the logits they give."""
  config = modeling.BertConfig.from_dict(tiny.CONFIG)
  keras.utils.set_random_seed(7)
  with strategy.scope():
    model = heads.ClassifierModel(config, 2, dropout_rate=0.0)
    optimizer = optimization.create_optimizer(
      model.trainable_variables, 1e-3, 7, 1
    )
  train_split, eval_split = splits
  parse = feature_files.make_parser(
    train_split.layout, config.vocab_size, config.type_vocab_size, False
  )
  plan = loop.TrainingPlan(output_dir, 7, 8, gradient_accumulation_steps=parts)
  loss_fn = functools.partial(
    run_classifier.loss_fn,
    problem="single_label",
    class_weights=tf.constant([1.0, 3.0]),
  )
  source = feature_files.training_source(
    train_split.features, parse, 8, 1, train_split.describe
  )
  loop.train(strategy, model, optimizer, loss_fn, source, plan)
  predictor = prediction.Predictor(strategy, model, run_classifier.predict)
  features = eval_split.features
  order = feature_files.batches_by_tokens(features.lengths, 50)
  results = feature_files.predict(predictor, features, order, parse)
  weights = {v.path: v.numpy() for v in model.trainable_variables}
  return weights, results["logits"]


def main(folder):
  tf.config.set_logical_device_configuration(
    tf.config.list_physical_devices("CPU")[0],
    [tf.config.LogicalDeviceConfiguration()] * 2,
  )
  splits = find_splits(folder)
  one = tf.distribute.get_strategy()
  two = tf.distribute.MirroredStrategy(["CPU:0", "CPU:1"])
  expected = train(splits, one, 1, str(folder / "one"))
  for name, strategy, parts in (("two", two, 1), ("parts", one, 4)):
    found = train(splits, strategy, parts, str(folder / name))
    apart = max(
      np.abs(found[0][path] - value).max()
      for path, value in expected[0].items()
      if not path.endswith("key/bias")  # Its gradient is rounding alone.
    )
    logits = np.abs(found[1] - expected[1]).max()
    print(f"RESULT {name} {apart:.3g} {logits:.3g}")


if __name__ == "__main__":
  main(pathlib.Path(sys.argv[1]))
