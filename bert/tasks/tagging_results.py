"""Scores of labels of words, their files, and their section of the report."""

import collections
from collections.abc import Iterable, Sequence
import itertools
from typing import NamedTuple

import numpy as np

from bert.report import metrics, plots
from bert.tasks import tagging, tagging_schemes


def metric_names(scheme: str) -> tuple[str, ...]:
  """Returns the scores of labels of a scheme, the most important first."""
  if scheme == tagging_schemes.NO_SCHEME:
    return ("accuracy", "macro_f1", "loss")
  return ("f1", "precision", "recall", "accuracy", "loss")


_Report = metrics.ClassificationReport


class TaggingScores(NamedTuple):
  """How good predictions are."""

  metrics: dict[str, float]
  report: _Report
  names: list[str]  # The types or labels of the report.


def score_labels(
  true: Iterable[Sequence[str]],
  predicted: Iterable[Sequence[str]],
  scheme: str,
  loss: float,
) -> TaggingScores:
  """Scores labels: by entities if they follow a scheme, else by words.

  The loss is the cross entropy in nats, the mean over words.
  """
  if scheme == tagging_schemes.NO_SCHEME:
    report, names = _score_words(true, predicted)
    values = {"macro_f1": report.macro.f1}
  else:
    report, names = entity_report(true, predicted)
    values = report.micro._asdict()
  values |= {"accuracy": report.accuracy, "loss": loss}
  return TaggingScores(dict(sorted(values.items())), report, names)


def entity_report(
  true: Iterable[Sequence[str]], predicted: Iterable[Sequence[str]]
) -> tuple[metrics.ClassificationReport, list[str]]:
  """Scores predicted tags by whole entities, as the CoNLL shared tasks did.

  An entity is right if its type, its first and its last word are. `micro` is
  the overall score of `conlleval`, the accuracy the share of words with the
  right tag. Tjong Kim Sang & De Meulder, https://arxiv.org/abs/cs/0306050,
  section 2.3. Returns also the types, sorted; one without a name is "_".
  """
  support, guesses, right = (collections.Counter() for _ in range(3))
  words = right_words = 0
  for true_tags, predicted_tags in zip(true, predicted, strict=True):
    entities = set(tagging_schemes.find_entities(true_tags))
    guessed = set(tagging_schemes.find_entities(predicted_tags))
    support.update(entity.type for entity in entities)
    guesses.update(entity.type for entity in guessed)
    right.update(entity.type for entity in entities & guessed)
    words += len(true_tags)
    pairs = zip(true_tags, predicted_tags, strict=True)
    right_words += sum(a == b for a, b in pairs)
  types = sorted(support | guesses)
  counts = [
    np.array([counter[type] for type in types], np.int64)
    for counter in (right, support, guesses)
  ]
  right_counts, support_counts, guess_counts = counts
  report = metrics.make_report(
    right_counts, support_counts, guess_counts, right_words / max(1, words)
  )
  return report, [type or "_" for type in types]


def _score_words(true, predicted):
  chain = itertools.chain.from_iterable
  words = [*chain(true), *chain(predicted)]
  names, numbers = np.unique(np.array(words), return_inverse=True)
  true_numbers, guesses = np.split(numbers, 2)
  report = metrics.classification_report(true_numbers, guesses, len(names))
  return report, names.tolist()


def write_scores(folder: str, kind: str, scores: TaggingScores) -> None:
  """Prints the scores by type or label, and writes all of them."""
  print(plots.format_report(scores.report, scores.names))
  report = metrics.report_as_dict(scores.report, scores.names)
  metrics.write_metrics(folder, kind, scores.metrics, **report)


def describe(
  sentences: Iterable[tagging.Sentence],
  predicted: Iterable[Sequence[str]],
  scores: TaggingScores,
) -> str:
  """Describes labels for report.html: their scores, and what is confused."""
  report, names, note = scores.report, scores.names, ""
  parts = [plots.number_table(scores.metrics), plots.label_table(report, names)]
  if not report.confusion:  # The report counts entities.
    true = (map(_type, sentence.tags or ()) for sentence in sentences)
    report, names = _score_words(true, (map(_type, tags) for tags in predicted))
    note = "<p>Counts words, by the type that they are part of.</p>"
  return "\n".join([*parts, plots.confusions(report.confusion, names), note])


def _type(tag) -> str:
  """Returns the type of a tag, such as PER, or all of one without a prefix."""
  return tag.partition("-")[2] or tag
