"""Compares the scores of a quantized export with its model's.

Both answer the examples of a labelled file. Scores are between 0 and 1 here,
those of SQuAD too.
"""

from collections.abc import Callable, Collection
import dataclasses
import itertools
import os
from typing import Any, NamedTuple

import numpy as np

from bert.data import files
from bert.report import metrics
from bert.serving import answers, exported_model
from bert.tasks import (
  classification,
  classification_tasks,
  multiple_choice,
  squad,
  squad_features,
  squad_metrics,
  tagging,
  tagging_results,
)

_FEWEST_EXAMPLES = 50  # A score of fewer says little.


class Comparison(NamedTuple):
  """How the answers of a model and of its quantized export differ."""

  sample: str  # Which examples were answered.
  before: dict[str, float]  # The model's scores.
  after: dict[str, float]
  examples: int
  changed: int | None  # Examples with another answer; None of vectors.

  def check(self, most: float) -> None:
    """Checks that scores can fall, and none by more; a ValueError names one."""
    for name, before in self.before.items():
      after = self.after[name]
      # One vector of hundreds may lose more than their mean.
      limit = most * (10 if name == "lowest_cosine" else 1)
      # 0 cannot fall, and NaN fails.
      if not 0 < before <= after + limit:
        raise ValueError(
          f"--quantize: {name} {before:.4f} -> {after:.4f} on {self.sample}: "
          f"expected above 0 and a loss of at most {limit:g} (--max_score_drop)"
        )

  def describe(self) -> str:
    """Returns the comparison in words."""
    scores = ", ".join(
      f"{name} {before:.4f} -> {self.after[name]:.4f}"
      for name, before in self.before.items()
    )
    if self.changed is not None:
      scores += f"; {self.changed:,} of {self.examples:,} answers changed"
    return f"on {self.sample}: {scores}"


def check_flags(kind: str, given: Collection[str]) -> None:
  """Raises a ValueError if a flag is given that no file of this kind has."""
  names = set().union(*_COLUMNS.values()).difference(_COLUMNS.get(kind, ()))
  if unread := names.intersection(given):
    raise ValueError(
      f"--{min(unread)}: the --eval_file of a model of the kind {kind} has none"
    )


def compare(
  exact: exported_model.ExportedModel,
  quantized: exported_model.ExportedModel,
  settings: Any,
) -> Comparison:
  """Answers the examples of a file with a model and its quantized export.

  The file holds labelled examples, in the form that the model's program takes
  as --eval_file; for vectors and masked words texts, a line each; for vectors
  also pairs of texts, with numbers that say how similar they are. The settings
  are those of export_saved_model.py.
  """
  card, path, most = exact.card, settings.eval_file, settings.max_eval_examples
  read, score = _EVALUATIONS[card.kind]
  examples = list(read(card, settings))
  if (count := len(examples)) < _FEWEST_EXAMPLES:
    raise ValueError(
      f"{path}: {count} of at least {_FEWEST_EXAMPLES} examples to compare"
    )
  sample = f"{count:,} examples of {os.path.basename(path)}"
  if count > most:
    examples = [examples[i * count // most] for i in range(most)]
    sample = f"{most:,} of the {sample}, evenly spread"
  asked, truths = zip(*examples, strict=True)
  maker = exact.maker
  encode = maker.encode_words if card.kind == "tagging" else maker.encode
  requests = list(map(encode, itertools.chain(*asked)))
  before, after = exact.answer(requests), quantized.answer(requests)
  parts = list(map(_comparable_part, before))
  if parts.count(parts[0]) == len(parts):
    raise ValueError(f"--eval_file={path}: the model answers all alike")
  pairs = zip(parts, map(_comparable_part, after), strict=True)
  return Comparison(
    sample,
    score(card, before, truths, before),
    score(card, after, truths, before),
    len(examples),
    None if card.kind == answers.FEATURES else sum(a != b for a, b in pairs),
  )


def _comparable_part(answer) -> list[Any]:
  """Returns an answer without probabilities, numbers rounded."""
  parts = [answer.get(n) for n in ("label", "labels", "predicted", "answer")]
  parts += _word_labels(answer) if "words" in answer else []
  parts += _first_guesses(answer) if "masks" in answer else []
  return [*parts, answer.get("vector"), round(answer.get("value", 0.0), 1)]


def _read_texts_and_labels(card, settings):
  task = classification_tasks.file_task(
    eval_file=settings.eval_file,
    problem=card.kind,
    columns=classification_tasks.Columns(
      settings.text_column, settings.text_pair_column, settings.label_column
    ),
  )
  names, separator = card.labels, settings.label_separator
  encode = classification.make_label_encoder(names, card.kind, separator)
  takes_pairs = "text_pair" in card.inputs
  if takes_pairs and not task.has_text_pair:
    raise ValueError(
      f"--eval_file={settings.eval_file}: expected pairs of texts: pass "
      '--text_pair_column, or set "has_text_pair" in its prediction.json'
    )
  if settings.text_pair_column and not takes_pairs:
    raise ValueError("--text_pair_column: the model takes single texts")
  for example in classification.read_examples(task.dev[0][1]):
    texts = (example.text_a, example.text_b or "")
    yield [dict(zip(card.inputs, texts, strict=False))], encode(example)


def _score_labels(card, found, truths, exact):
  truths = np.array(truths)
  if card.kind == "regression":
    values = np.array([answer["value"] for answer in found])
    scores = metrics.regression_scores(truths, values)
    return {name: scores[name] for name in ("pearson", "spearman")}
  if card.kind == "multi_label":
    chosen = [[n in a["labels"] for n in card.labels] for a in found]
    report = metrics.multi_label_report(truths, np.array(chosen))
    return {"micro_f1": report.micro.f1, "macro_f1": report.macro.f1}
  labels = np.array([card.labels.index(answer["label"]) for answer in found])
  report = metrics.classification_report(truths, labels, len(card.labels))
  return {"accuracy": report.accuracy, "macro_f1": report.macro.f1}


def _read_sentences(card, settings):
  source = tagging.open_source(
    settings.eval_file, settings.token_column, settings.tag_column, "auto"
  )
  for sentence in tagging.read_sentences(source, card.settings["label_scheme"]):
    yield [sentence.words], sentence.tags


def _word_labels(answer):
  return [word["label"] for word in answer["words"]]


def _score_words(card, found, truths, exact):
  predicted, scheme = map(_word_labels, found), card.settings["label_scheme"]
  scores = tagging_results.score_labels(truths, predicted, scheme, 0.0).metrics
  return {n: scores[n] for n in ("f1", "accuracy") if n in scores}


def _read_questions(card, settings):
  has_version_2 = card.settings["version_2_with_negative"]
  for question in squad.read_questions(settings.eval_file):
    if question.answers is None or not (question.answers or has_version_2):
      raise ValueError(f"{question.location}: no answer to compare with")
    texts = {"question": question.text, "context": question.context}
    is_unspaced = squad_features.is_unspaced(question.context)
    truths = [answer.text for answer in question.answers]
    yield [texts], (truths, has_version_2, is_unspaced)


def _score_questions(card, found, truths, exact):
  scores = [
    squad_metrics.score_answer(answer["answer"], *truth)
    for answer, truth in zip(found, truths, strict=True)
  ]
  values = squad_metrics.answer_metrics(scores)
  return {name: value / 100.0 for name, value in values.items()}


def _read_choices(card, settings):
  for example in multiple_choice.read_examples(settings.eval_file):
    if example.label is None:
      raise ValueError(f"{example.location}: no label")
    values = example.context, example.question, list(example.choices)
    yield [dict(zip(card.inputs, values, strict=True))], example.label


def _score_choices(card, found, truths, exact):
  predicted = np.array([answer["predicted"] for answer in found])
  return {"accuracy": metrics.accuracy(np.array(truths), predicted)}


def _read_texts(card, settings):
  part = answers.MASK if card.kind == answers.FILL_MASK else ""
  for line in files.read_lines(settings.eval_file):
    if line.strip() and part in line:
      yield [{"text": line.strip()}], None


def _read_similar_texts(card, settings):
  if not (
    settings.text_column or settings.text_pair_column or settings.label_column
  ):
    if "text_pair" not in next(files.read_lines(settings.eval_file), ""):
      yield from _read_texts(card, settings)  # It has no such header.
      return
    settings = dataclasses.replace(settings, text_pair_column="text_pair")
  names = ("text", "text_pair")
  table = dataclasses.replace(card, kind="regression", inputs=names)
  for [pair], number in _read_texts_and_labels(table, settings):
    yield [{"text": text} for text in pair.values()], number


def _score_vectors(card, found, truths, exact):
  a, b = (np.array([v["vector"] for v in values]) for values in (found, exact))
  cosines = _cosines(a, b)
  scores = {"cosine": cosines.mean(), "lowest_cosine": cosines.min()}
  if truths[0] is not None:
    similar = _cosines(a[::2], a[1::2])
    scores["spearman"] = metrics.spearman(np.array(truths), similar)
  return {name: float(score) for name, score in scores.items()}


def _cosines(a, b):
  sizes = np.linalg.norm(a, axis=-1) * np.linalg.norm(b, axis=-1)
  return (a * b).sum(-1) / sizes


def _first_guesses(answer):
  return [guesses[0]["token"] for guesses in answer["masks"]]


def _score_guesses(card, found, truths, exact):
  guesses, expected = (
    np.array([token for answer in values for token in _first_guesses(answer)])
    for values in (found, exact)
  )
  return {"same_first_guess": float((guesses == expected).mean())}


# By the kind of a model. The first function yields requests (texts by name, or
# words for a tagger) with the right answer, None if the file has none: a list
# of one, or of two whose vectors are compared. The second makes scores between
# 0 and 1 of answers, right answers and the answers of the exact model.
_EVALUATIONS: dict[str, tuple[Callable, Callable]] = {
  **dict.fromkeys(
    classification.PROBLEMS, (_read_texts_and_labels, _score_labels)
  ),
  "tagging": (_read_sentences, _score_words),
  "question_answering": (_read_questions, _score_questions),
  "multiple_choice": (_read_choices, _score_choices),
  answers.FEATURES: (_read_similar_texts, _score_vectors),
  answers.FILL_MASK: (_read_texts, _score_guesses),
}
# The flags of their columns.
_TABLES = ("text_column", "text_pair_column", "label_column")
_COLUMNS = {
  **dict.fromkeys(("single_label", "regression", answers.FEATURES), _TABLES),
  "multi_label": (*_TABLES, "label_separator"),
  "tagging": ("token_column", "tag_column"),
}
