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

  Args:
    true: the tags of each sentence.
    predicted: as many for the same sentences.
    scheme: of the labels, see `tagging_schemes`; NO_SCHEME if they mark no
      entities.
    loss: the cross entropy in nats, the mean over words, for the metrics.
  """
  # Most words are in no entity, so a model that finds none is right about most
  # words: where tags mark entities, whole entities are scored.
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
  # How many entities of each type there are, are predicted, and are both.
  support = collections.Counter()
  guesses = collections.Counter()
  right = collections.Counter()
  words = right_words = 0
  for true_tags, predicted_tags in zip(true, predicted, strict=True):
    # Sets of (type, start, end): only what agrees in all three is in both.
    entities = set(tagging_schemes.find_entities(true_tags))
    guessed = set(tagging_schemes.find_entities(predicted_tags))
    support.update(entity.type for entity in entities)
    guesses.update(entity.type for entity in guessed)
    right.update(entity.type for entity in entities & guessed)

    words += len(true_tags)
    for true_tag, predicted_tag in zip(true_tags, predicted_tags, strict=True):
      right_words += true_tag == predicted_tag

  # A type that is only predicted counts, too: its precision is 0.
  types = sorted(support | guesses)

  def as_array(counter):
    return np.array([counter[type] for type in types], np.int64)

  report = metrics.make_report(
    as_array(right),
    as_array(support),
    as_array(guesses),
    right_words / max(1, words),
  )
  return report, [type or "_" for type in types]


def _score_words(true, predicted):
  """Scores every word for itself; returns also the labels, sorted."""
  true_words = list(itertools.chain.from_iterable(true))
  guessed_words = list(itertools.chain.from_iterable(predicted))

  # Numbers for all labels that occur, true or predicted, in one order.
  names, numbers = np.unique(
    np.array(true_words + guessed_words), return_inverse=True
  )
  true_numbers, guesses = np.split(numbers, 2)
  report = metrics.classification_report(true_numbers, guesses, len(names))
  return report, names.tolist()


def write_scores(folder: str, stem: str, scores: TaggingScores) -> None:
  """Prints the scores by type or label, and writes all of them.

  Args:
    folder: gets <stem>_metrics.json.
    stem: "eval" or "predict".
    scores: from `score_labels`.
  """
  print(plots.format_report(scores.report, scores.names))
  report = metrics.report_as_dict(scores.report, scores.names)
  metrics.write_metrics(folder, stem, scores.metrics, **report)


def describe(
  sentences: Iterable[tagging.Sentence],
  predicted: Iterable[Sequence[str]],
  scores: TaggingScores,
) -> str:
  """Describes labels in HTML, for report.html: scores, and what is confused.

  Args:
    sentences: with their true tags.
    predicted: the predicted tags of each.
    scores: of the two, from `score_labels`.
  """
  report = scores.report
  names = scores.names
  note = ""
  parts = [plots.number_table(scores.metrics), plots.label_table(report, names)]

  # A report on entities says nothing of confusions: the wrong entity may have
  # other words than any true one. So words are compared, by their types.
  if not report.confusion:
    true = (map(_type_of, sentence.tags or ()) for sentence in sentences)
    guesses = (map(_type_of, tags) for tags in predicted)
    report, names = _score_words(true, guesses)
    note = "<p>Counts words, by the type that they are part of.</p>"
  return "\n".join([*parts, plots.confusions(report.confusion, names), note])


def _type_of(tag) -> str:
  """Returns the type of a tag, such as PER, or the tag if it has no prefix."""
  return tag.partition("-")[2] or tag
