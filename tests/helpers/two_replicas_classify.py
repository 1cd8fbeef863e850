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
import tiny_classification as tiny  # noqa: E402
from training import loop  # noqa: E402
from training import prediction  # noqa: E402


def open_inputs(folder):
  tiny.write_model(folder)
  tiny.write_tsv(folder / "train.tsv", range(50))
  tiny.write_tsv(folder / "dev.tsv", range(50, 61))
  options = classification_inputs.Options(
    vocab_file=str(folder / "vocab.txt"),
    do_lower_case=True,
    max_seq_length=tiny.SEQUENCE,
    doc_stride=None,
    label_separator=",",
    labels=("neg", "pos"),
    problem="single_label",
  )
  task = glue.file_task(str(folder))
  kinds = ("train", "eval")
  return classification_inputs.Inputs(task, options, str(folder), kinds)


def train(inputs, strategy, parts, output_dir):
  """Returns the weights after seven steps, and the logits they give."""
  config = modeling.BertConfig.from_dict(tiny.CONFIG)
  keras.utils.set_random_seed(7)
  with strategy.scope():
    model = heads.ClassifierModel(config, 2, dropout_rate=0.0)
    optimizer = optimization.create_optimizer(
      model.trainable_variables, 1e-3, 7, 1
    )
  parse = classification_inputs.make_parser(
    inputs.options, config.vocab_size, config.type_vocab_size, False
  )
  plan = loop.TrainingPlan(output_dir, 7, 8, gradient_accumulation_steps=parts)
  loss_fn = functools.partial(
    run_classifier.loss_fn,
    problem="single_label",
    class_weights=tf.constant([1.0, 3.0]),
  )
  source = feature_files.training_source(
    inputs.train.features, parse, 8, 1, inputs.train.describe
  )
  loop.train(strategy, model, optimizer, loss_fn, source, plan)
  predictor = prediction.Predictor(strategy, model, run_classifier.predict)
  split = inputs.eval[0]
  order = feature_files.batches_by_tokens(split.features.lengths, 50)
  outputs = classification_inputs.predict_split(
    predictor, split, parse, order, "mean"
  )
  weights = {v.path: v.numpy() for v in model.trainable_variables}
  return weights, outputs.logits


def main(folder):
  tf.config.set_logical_device_configuration(
    tf.config.list_physical_devices("CPU")[0],
    [tf.config.LogicalDeviceConfiguration()] * 2,
  )
  inputs = open_inputs(folder)
  one = tf.distribute.get_strategy()
  two = tf.distribute.MirroredStrategy(["CPU:0", "CPU:1"])
  expected = train(inputs, one, 1, str(folder / "one"))
  for name, strategy, parts in (("two", two, 1), ("parts", one, 4)):
    found = train(inputs, strategy, parts, str(folder / name))
    apart = max(
      np.abs(found[0][path] - value).max()
      for path, value in expected[0].items()
      if not path.endswith("key/bias")  # Its gradient is rounding alone.
    )
    logits = np.abs(found[1] - expected[1]).max()
    print(f"RESULT {name} {apart:.3g} {logits:.3g}")


if __name__ == "__main__":
  main(pathlib.Path(sys.argv[1]))
