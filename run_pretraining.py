"""Pre-trains BERT on masked words and next sentences.

  python run_pretraining.py --input_file=examples.tfrecord --do_train=true \\
    --bert_config_file=configs/bert_tiny.json --output_dir=/tmp/pretrained \\
    --train_batch_size=32 --num_train_steps=20 --num_warmup_steps=10
"""

from bert.cli import pretraining, program

PretrainingSettings = pretraining.PretrainingSettings

if __name__ == "__main__":
  program.start(PretrainingSettings)

import tensorflow as tf

from bert import heads
from bert.cli import devices, model_folder, pretraining_run, pretraining_teacher
from bert.tasks import loss_watch, pretraining_data


def predict(outputs, features) -> dict[str, tf.Tensor]:
  """Compares a `PretrainingOutput` with the truth, by masked token and example.

  Returns masked_lm_loss, masked_lm_correct and masked_lm_weights, float32 [B,
  P]; next_sentence_loss and next_sentence_correct, float32 [B]; the truth:
  masked_lm_ids, int32 [B, P], and next_sentence_labels, int32 [B], if any.
  """
  given = ("masked_lm_ids", "masked_lm_weights", "next_sentence_labels")
  rows = {name: features[name] for name in given if name in features}
  rows["masked_lm_loss"], rows["masked_lm_correct"] = _compare_guesses(
    outputs.masked_lm_logits, rows["masked_lm_ids"]
  )
  if "next_sentence_labels" in rows:
    labels = rows["next_sentence_labels"][:, 0]
    guesses = _compare_guesses(outputs.next_sentence_logits, labels)
    rows["next_sentence_loss"], rows["next_sentence_correct"] = guesses
    rows["next_sentence_labels"] = labels
  return rows


def _compare_guesses(logits, labels):
  losses = tf.nn.sparse_softmax_cross_entropy_with_logits(labels, logits)
  guesses = tf.argmax(logits, -1, output_type=labels.dtype)
  return losses, tf.cast(guesses == labels, tf.float32)


def loss(outputs, features):
  """Sums the losses of section 3.1 over a batch; see `training_plan.Loss`."""
  rows = predict(outputs, features)
  weights = rows["masked_lm_weights"]
  tokens = tf.reduce_sum(weights)
  examples = tf.cast(tf.shape(weights)[0], tf.float32)
  correct = tf.reduce_sum(rows["masked_lm_correct"] * weights)
  sums = {
    "masked_lm_loss": (tf.reduce_sum(rows["masked_lm_loss"] * weights), tokens),
    "masked_lm_accuracy": (correct, tokens),
  }
  if "next_sentence_loss" in rows:
    losses, correct = rows["next_sentence_loss"], rows["next_sentence_correct"]
    sums["next_sentence_loss"] = (tf.reduce_sum(losses), examples)
    sums["next_sentence_accuracy"] = (tf.reduce_sum(correct), examples)
  return sums


def find_vocabulary(settings):
  """Reads the vocabulary that --dynamic_masking needs; None without it."""
  if not settings.dynamic_masking:
    return None
  if devices.uses_tpu_elsewhere(settings):
    raise ValueError("--dynamic_masking=true: run on the TPU's own machine")
  return pretraining.read_vocabulary(settings, encode_id=int)


def read_data(settings, config, *kind) -> pretraining_data.PretrainingData:
  """Finds and checks the input files, of a kind that `open_files` takes."""
  model_folder.check_length(settings.max_seq_length, config)
  return pretraining_data.open_files(settings, config, *kind)


def main() -> None:
  settings = model_folder.find_files(PretrainingSettings.read())
  settings.check_needs()
  vocabulary = find_vocabulary(settings)
  devices.check_tpu_paths(settings, "input_file", "eval_input_file")
  settings = devices.choose_precision(settings)
  strategy = devices.make_strategy(settings)
  config = model_folder.read_config(settings)
  config = model_folder.fit_vocabulary(settings, config)
  kind = vocabulary, settings.next_sentence, not settings.teacher_only
  data = read_data(settings, config, *kind)
  with pretraining_run.open_run(settings, config, data, strategy) as run:
    with strategy.scope():
      create_model, losses, forward, teacher, lesson = pretraining_teacher.open(
        settings, config, heads.PretrainingModel, loss
      )
    run.make_model(create_model, predict, lesson)
    # Unused weights must not decay.
    if settings.teacher_only:
      run.model.heads.trainable = False
    if settings.teacher_only or not settings.next_sentence:
      run.model.bert.pooler.trainable = False
      run.model.heads.seq_relationship.trainable = False

    labels = None
    if run.is_chief and config.is_bidirectional and not settings.teacher_only:
      labels = loss_watch.sample_training(data)
      run.add_guesses(labels)

    def evaluate_at(step):
      if step not in run.scores:  # The last one is requested twice.
        rows, scores = pretraining_data.evaluate(run.predictor, data, settings)
        run.scores[step] = scores
        guesses = {}
        if labels:
          asked = loss_watch.count(rows)
          guesses = run.add_guesses(labels, asked, "eval/")
        run.add_section(
          "Evaluation",
          pretraining_data.describe,
          rows,
          scores,
          settings.vocab_file,
          guesses,
        )
      return run.scores[step]

    if settings.do_train:
      watch = loss_watch.watch(labels, settings) if labels else None
      run.train(losses, evaluate_at, forward, watch, teacher)
    if settings.do_eval:
      scores = evaluate_at(run.step)
      if run.is_chief:
        run.write_scores(scores)


if __name__ == "__main__":
  program.run_program(main)
