"""Pre-trains BERT on masked words and next sentences.

  python run_pretraining.py --input_file=examples.tfrecord --do_train=true \\
    --bert_config_file=configs/bert_tiny.json --output_dir=/tmp/pretrained \\
    --train_batch_size=32 --num_train_steps=20 --num_warmup_steps=10
"""

from bert.cli import pretraining, program

PretrainingSettings = pretraining.DryRunSettings

# Parses the flags, or prints --help, before the slow import of TensorFlow; see
# bert/cli/program.py. `main` starts at the end of this file.
if __name__ == "__main__":
  program.start(PretrainingSettings)

import tensorflow as tf

from bert import calls, heads
from bert.cli import (
  cluster_plan,
  devices,
  pretraining_records,
  pretraining_run,
)


def predict(outputs, features) -> dict[str, tf.Tensor]:
  """Compares a `PretrainingOutput` with the truth, by masked token and example.

  Returns masked_lm_loss, masked_lm_correct and masked_lm_weights, float32 [B,
  P]; next_sentence_loss and next_sentence_correct, float32 [B]; the truth:
  masked_lm_ids, int32 [B, P], and next_sentence_labels, int32 [B], if any.
  """
  given = ("masked_lm_ids", "masked_lm_weights", "next_sentence_labels")
  rows = {name: features[name] for name in given if name in features}

  # Section 3.1, task 1: the words behind the masks.
  rows["masked_lm_loss"], rows["masked_lm_correct"] = _compare_guesses(
    outputs.masked_lm_logits, rows["masked_lm_ids"]
  )

  # Task 2: whether the second text follows the first. Records that were made
  # with --next_sentence=false have no such labels.
  if "next_sentence_labels" in rows:
    labels = rows["next_sentence_labels"][:, 0]
    guesses = _compare_guesses(outputs.next_sentence_logits, labels)
    rows["next_sentence_loss"], rows["next_sentence_correct"] = guesses
    rows["next_sentence_labels"] = labels
  return rows


def _compare_guesses(logits, labels):
  """Returns the losses of guesses, and 1 for each that is right, else 0."""
  # In a training B and P are known before this runs. Else TensorFlow would
  # compare shapes at run time, for which `step.make_sum_weights` would need the
  # outputs, and with them a forward pass: see `heads.token_losses`.
  losses = tf.nn.sparse_softmax_cross_entropy_with_logits(labels, logits)
  guesses = tf.argmax(logits, -1, output_type=labels.dtype)
  return losses, tf.cast(guesses == labels, tf.float32)


def loss(outputs, features):
  """Sums the losses of section 3.1 over a batch; see `training_plan.Loss`.

  Sums whose name ends in `_loss` are minimised, the accuracies only reported.
  """
  rows = predict(outputs, features)

  # Every record has room for the same number of masks. The weight of an unused
  # place is 0.
  weights = rows["masked_lm_weights"]
  tokens = tf.reduce_sum(weights)
  examples = tf.cast(tf.shape(weights)[0], tf.float32)
  correct = tf.reduce_sum(rows["masked_lm_correct"] * weights)
  sums = {
    "masked_lm_loss": (tf.reduce_sum(rows["masked_lm_loss"] * weights), tokens),
    "masked_lm_accuracy": (correct, tokens),
  }

  if "next_sentence_loss" in rows:
    losses = rows["next_sentence_loss"]
    correct = rows["next_sentence_correct"]
    sums["next_sentence_loss"] = (tf.reduce_sum(losses), examples)
    sums["next_sentence_accuracy"] = (tf.reduce_sum(correct), examples)
  return sums


def main() -> None:
  """Pre-trains and evaluates as the flags say, or resumes a run."""
  settings = pretraining_records.read_settings(PretrainingSettings)
  # The devices, and how the copies of the model on them stay equal: what
  # DistributedDataParallel is in PyTorch. By default there is one device.
  strategy = devices.make_strategy(settings)
  config = pretraining_records.read_config(settings)
  data = pretraining_records.open_data(settings, config)

  # Only calculates how a training on many devices would go.
  if settings.dry_run:
    model = heads.PretrainingModel(config, settings.compute_dtype)
    # As `run.make_model` does below: what is not trained is not sent, either.
    if not settings.next_sentence:
      model.freeze_next_sentence()
    cluster_plan.show(settings, model, loss, data.source, strategy)
    return

  # From here on the output folder is this run's alone; at the end, `open_run`
  # prints what was written.
  with pretraining_run.open_run(settings, config, data, strategy) as run:
    run.make_model(heads.PretrainingModel, predict)
    run.sample_labels()  # What guessing without a model would score.

    # Training starts here. The top of bert/training/step.py lists the functions
    # from `run.train` to the update; `heads.forward` calls the model.
    if settings.do_train:
      run.train(loss)
    if settings.do_eval:
      scores = run.evaluate(run.step)
      if run.is_chief:
        run.write_scores_file(scores)


# The same from Python, see docs/python.md.
run = calls.make_run(main, PretrainingSettings)


if __name__ == "__main__":
  program.run_program(main)
