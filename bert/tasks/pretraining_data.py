"""Pre-training records as input, and scores of what a model guesses."""

from collections.abc import Callable, Mapping
import functools
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf

from bert import modeling
from bert.data import file_search, pretraining_data
from bert.inputs import dynamic_masking, records, training_input
from bert.report import charts, metrics, plots
from bert.training import prediction
from bert.vocabularies import vocabulary_table

_FREQUENCIES = ("1", "2 to 9", "10 to 99", "100 to 999", "1,000 or more")
_PARTS = ("a word or its beginning", "a later part of a word (##)")


class PretrainingData(NamedTuple):
  """The records of a run."""

  train_files: list[str]
  eval_files: list[str]
  eval_identity: str  # Equal for equal files.
  parse: Callable[[tf.Tensor], training_input.Features]
  source: training_input.TrainingInput

  def check_unchanged(self) -> None:
    """Raises a ValueError if files to train on were changed meanwhile."""
    records.check_unchanged(self.train_files, self.source.identity)


def open_files(
  settings: Any,
  config: modeling.EncoderConfig,
  vocabulary: pretraining_data.Vocabulary | None = None,
  next_sentence: bool = True,
  masks: bool = True,
) -> PretrainingData:
  """Finds and checks the files of records that run_pretraining.py reads.

  Args:
    settings: those of run_pretraining.py, or of a task of run_multitask.py.
    vocabulary: of records without masks, which `dynamic_masking` draws.
    next_sentence: whether records are sentence pairs.
    masks: whether words are masked, in the records or by the vocabulary.
  """
  length = settings.max_seq_length
  train_files = file_search.expand_patterns(settings.input_file, "input_file")
  eval_files = file_search.expand_patterns(
    settings.eval_input_file or settings.input_file, "eval_input_file"
  )
  spec = records.pretraining_spec(length, settings.max_predictions_per_seq)
  limits = records.pretraining_limits(length, config)
  absent = ("masked_lm_",) * bool(vocabulary or not masks)
  absent += ("next_sentence_",) * (not next_sentence)
  spec = {n: kind for n, kind in spec.items() if not n.startswith(absent)}
  limits = {n: limits[n] for n in limits if n in spec}
  paths = list(dict.fromkeys(train_files + eval_files))
  records.check_files(paths, spec, limits)
  parse = functools.partial(records.parse_batch, spec=spec, limits=limits)
  source = training_input.TrainingInput(
    rows=functools.partial(
      records.training_dataset, train_files, settings.seed
    ),
    parse=parse,
    describe_row=lambda row: f"{train_files[row.file]}:{row.record}",
    find_fault=lambda: records.find_fault(paths, spec, limits),
    identity=records.describe_files(train_files),
  )
  if vocabulary:
    source = dynamic_masking.add_masks(source, paths, settings, vocabulary)
  parse = source.parse
  if settings.group_by_length:
    source = records.group_by_length(source, train_files, settings)
  eval_identity = records.describe_files(eval_files)
  return PretrainingData(train_files, eval_files, eval_identity, parse, source)


def evaluate(
  predictor: prediction.Predictor, data: PretrainingData, settings: Any
) -> tuple[dict[str, np.ndarray], dict[str, float]]:
  """Predicts --max_eval_steps batches, 0: all records once; scores them.

  Returns the predictor's rows, which `score` takes, and the scores. A
  ValueError names a record that is broken.
  """
  batch_size = settings.eval_batch_size
  rows = records.sequential_dataset(data.eval_files).map(lambda _, row: row)
  total = settings.max_eval_steps * batch_size or None
  if total:
    # The original starts over after the last record, which affects scores.
    rows = rows.repeat().take(total)
  batches = rows.batch(batch_size).map(data.parse)
  with training_input.naming_bad_record(data.source.find_fault):
    results = predictor(training_input.prefetch(batches, 2), total)
  return results, score(results, batch_size)


def score(rows: Mapping[str, np.ndarray], batch_size: int) -> dict[str, float]:
  """Scores masked-LM and next-sentence predictions.

  Takes N examples by name: masked_lm_loss, float32 [N, P], in nats;
  masked_lm_correct, [N, P], 1 or 0; masked_lm_weights, float32 [N, P], 0 for
  unused positions; next_sentence_loss and next_sentence_correct, [N]. `loss`
  averages the mean losses of batches, as in the original; the other scores are
  means over masked positions or examples.
  """
  weights = rows["masked_lm_weights"].astype(np.float64)
  token_losses = rows["masked_lm_loss"] * weights
  next_loss, batch_losses = rows.get("next_sentence_loss"), []
  for start in range(0, len(weights), batch_size):
    batch = slice(start, start + batch_size)
    # The 1e-5 is the original's guard against a batch without a masked token.
    masked = token_losses[batch].sum() / (weights[batch].sum() + 1e-5)
    next_mean = 0 if next_loss is None else next_loss[batch].mean()
    batch_losses.append(masked + next_mean)
  masked_total = max(weights.sum(), 1e-5)
  right = (rows["masked_lm_correct"] * weights).sum()
  scores = {
    "loss": float(np.mean(batch_losses)),
    "masked_lm_accuracy": float(right / masked_total),
    "masked_lm_loss": float(token_losses.sum() / masked_total),
  }
  if next_loss is not None:
    accuracy = rows["next_sentence_correct"].mean()
    scores["next_sentence_accuracy"] = float(accuracy)
    scores["next_sentence_loss"] = float(next_loss.mean())
  return scores


def describe(
  rows: Mapping[str, np.ndarray],
  scores: Mapping[str, float],
  vocab_file: str | None,
  guesses: Mapping[str, tuple[str, float]],
) -> str:
  """Describes predictions in HTML.

  Takes the rows of `score`, with masked_lm_ids, int [N, P], and
  next_sentence_labels, int [N]; those of next sentences may be absent. Without
  a vocabulary, predictions are not scored by part of a word. `guesses` are
  of answers by frequency, (name, score) by the name of the score.
  """
  used = rows["masked_lm_weights"] > 0
  ids = rows["masked_lm_ids"][used]
  results = rows["masked_lm_correct"][used], rows["masked_lm_loss"][used]
  counts = np.bincount(ids)[ids]
  groups = np.searchsorted([1, 9, 99, 999], counts)
  parts = [
    _compare(scores, guesses),
    "<h3>By frequency of the masked token in these records</h3>",
    _make_table("times masked", groups, _FREQUENCIES, results),
  ]
  if vocab_file:
    tokenizer = vocabulary_table.make_tokenizer(vocab_file)
    later = [
      number
      for token, number in tokenizer.vocab.items()
      if tokenizer.continues_word(token)
    ]
    parts.append("<h3>By part of a word</h3>")
    groups = np.isin(ids, later).astype(int)
    parts.append(_make_table("masked token", groups, _PARTS, results))
  if "next_sentence_labels" not in rows:
    return "\n".join(parts)
  labels = rows["next_sentence_labels"]
  guesses = np.where(rows["next_sentence_correct"] > 0, labels, 1 - labels)
  report = metrics.classification_report(labels, guesses, 2)
  names = ("next sentence", "random sentence")
  parts.append(plots.confusions(report.confusion, names))
  return "\n".join(parts)


def _compare(scores, guesses) -> str:
  """Makes a table of scores, and of what answers without a model get."""
  rows = []
  for name, value in scores.items():
    guess, score = guesses.get(name, ("", None))
    shown = "" if score is None else f"{charts.number(score)}: {guess}"
    rows.append((name, value, shown))
  return plots.table(("score", "value", "without reading the text"), rows)


def _make_table(title, groups, names, results) -> str:
  rows = [
    [names[group], count, plots.Shaded(correct, correct), loss]
    for group, count, correct, loss in metrics.average_groups(groups, *results)
  ]
  return plots.table((title, "masked tokens", "accuracy", "loss"), rows)
