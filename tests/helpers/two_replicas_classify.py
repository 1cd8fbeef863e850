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

import keras
import numpy as np
import tensorflow as tf

import heads
from inputs import feature_files
import modeling
import optimization
import run_classifier
from tasks import classification_data, classification_files
import tiny
from training import loop, prediction


def find_sets(folder):
  tiny.write_model(folder)
  tiny.write_tsv(folder / "train.tsv", range(50))
  tiny.write_tsv(folder / "dev.tsv", range(50, 61))
  settings = classification_data.FeatureSettings(
    vocab_file=str(folder / "vocab.txt"),
    do_lower_case=True,
    max_seq_length=tiny.SEQUENCE,
    doc_stride=None,
    label_separator=",",
    labels=("neg", "pos"),
    problem="single_label",
  )
  task = classification_files.file_task(str(folder))
  sets = [
    *classification_data.find_sets(task, "train", settings),
    *classification_data.find_sets(task, "eval", settings),
  ]
  for examples in sets:
    classification_data.make_features(examples, str(folder))
  return sets


def train(sets, strategy, parts, output_dir):
  """Returns the weights after seven steps, and the logits they give."""
  config = modeling.BertConfig.from_dict(tiny.CONFIG)
  keras.utils.set_random_seed(7)
  with strategy.scope():
    model = heads.ClassifierModel(config, 2, dropout_rate=0.0)
    optimizer = optimization.create_optimizer(
      model.trainable_variables, 1e-3, 7, 1
    )
  train_set, eval_set = sets
  parse = feature_files.make_parser(
    train_set.layout, config.vocab_size, config.type_vocab_size, False
  )
  plan = loop.TrainingPlan(output_dir, 7, 8, gradient_accumulation_steps=parts)
  loss_fn = functools.partial(
    run_classifier.loss_fn,
    problem="single_label",
    class_weights=tf.constant([1.0, 3.0]),
  )
  source = feature_files.training_source(train_set, parse, 8, 1)
  loop.train(strategy, model, optimizer, loss_fn, source, plan)
  predictor = prediction.Predictor(strategy, model, run_classifier.predict)
  features = eval_set.features
  order = feature_files.batches_by_tokens(features.lengths, 50)
  results = feature_files.predict(predictor, features, order, parse)
  weights = {v.path: v.numpy() for v in model.trainable_variables}
  return weights, results["logits"]


def main(folder):
  tf.config.set_logical_device_configuration(
    tf.config.list_physical_devices("CPU")[0],
    [tf.config.LogicalDeviceConfiguration()] * 2,
  )
  sets = find_sets(folder)
  one = tf.distribute.get_strategy()
  two = tf.distribute.MirroredStrategy(["CPU:0", "CPU:1"])
  expected = train(sets, one, 1, str(folder / "one"))
  for name, strategy, parts in (("two", two, 1), ("parts", one, 4)):
    found = train(sets, strategy, parts, str(folder / name))
    apart = max(
      np.abs(found[0][path] - value).max()
      for path, value in expected[0].items()
      if not path.endswith("key/bias")  # Its gradient is rounding alone.
    )
    logits = np.abs(found[1] - expected[1]).max()
    print(f"RESULT {name} {apart:.3g} {logits:.3g}")


if __name__ == "__main__":
  main(pathlib.Path(sys.argv[1]))
