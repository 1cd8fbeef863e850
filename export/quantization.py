"""Compares the scores of a quantized export with its model's.

Both answer the examples of a labelled file. Scores are between 0 and 1 here,
those of SQuAD too.
"""

from collections.abc import Callable
import dataclasses
import os
from typing import Any, NamedTuple

import numpy as np

from data import files
from serving import exported_model
from tasks import (
  classification,
  classification_tasks,
  metrics,
  multiple_choice,
  squad,
  squad_features,
  squad_metrics,
  tagging,
  tagging_results,
)


@dataclasses.dataclass(frozen=True)
class ScoreCheck:
  """The comparison that a quantized export has to pass."""

  eval_file: str  # See `compare`.
  max_eval_examples: int  # Evenly spread over the file.
  max_score_drop: float
  # Columns of the file, as in the training.
  text_column: str | None = None
  text_pair_column: str | None = None
  label_column: str | None = None
  label_separator: str = ","
  token_column: int = 0
  tag_column: int = -1


class Comparison(NamedTuple):
  """How the answers of a model and of its quantized export differ."""

  sample: str  # Which examples were answered.
  before: dict[str, float]  # The model's scores.
  after: dict[str, float]
  examples: int
  changed: int  # Examples with another answer.

  def check(self, most: float) -> None:
    """Checks that no score falls by more; a ValueError names one that does."""
    for name, before in self.before.items():
      after = self.after[name]
      # `not <=`, so that NaN fails.
      if not before - after <= most:
        raise ValueError(
          f"--quantize: {name} falls from {before:.4f} to {after:.4f} on "
          f"{self.sample}, by more than --max_score_drop={most}"
        )

  def describe(self) -> str:
    """Returns the comparison in words."""
    scores = ", ".join(
      f"{name} {before:.4f} -> {self.after[name]:.4f}"
      for name, before in self.before.items()
    )
    changed = f"{self.changed:,} of {self.examples:,} answers changed"
    return f"on {self.sample}: {scores}; {changed}"


def compare(
  exact: exported_model.ExportedModel,
  quantized: exported_model.ExportedModel,
  check: ScoreCheck,
) -> Comparison:
  """Answers the examples of a file with a model and its quantized export.

  The file holds labelled examples, in the form that the model's program takes
  as --eval_file; texts, a line each, for vectors and masked words.
  """
  card, path, most = exact.card, check.eval_file, check.max_eval_examples
  read, score = _EVALUATIONS[card.kind]
  examples = list(read(card, check))
  if not examples:
    raise ValueError(f"--eval_file={path}: holds no example")
  count = len(examples)
  sample = f"{count:,} examples of {os.path.basename(path)}"
  if count > most:
    examples = [examples[i * count // most] for i in range(most)]
    sample = f"{most:,} of the {sample}, evenly spread"
  asked, truths = zip(*examples, strict=True)
  maker = exact.maker
  encode = maker.encode_words if card.kind == "tagging" else maker.encode
  requests = list(map(encode, asked))
  before, after = exact.answer(requests), quantized.answer(requests)
  if truths[0] is None:
    truths = before
  return Comparison(
    sample,
    score(card, before, truths),
    score(card, after, truths),
    len(examples),
    sum(
      _comparable_part(a) != _comparable_part(b)
      for a, b in zip(before, after, strict=True)
    ),
  )


def _comparable_part(answer) -> list[Any]:
  """Returns an answer without probabilities and vectors, numbers rounded."""
  parts = [answer.get(n) for n in ("label", "labels", "predicted", "answer")]
  parts += _word_labels(answer) if "words" in answer else []
  parts += _first_guesses(answer) if "masks" in answer else []
  return [*parts, round(answer.get("value", 0.0), 1)]


def _read_texts_and_labels(card, check):
  task = classification_tasks.file_task(
    eval_file=check.eval_file,
    problem=card.kind,
    columns=classification_tasks.Columns(
      check.text_column, check.text_pair_column, check.label_column
    ),
  )
  encode = classification.make_label_encoder(
    card.labels, card.kind, check.label_separator
  )
  takes_pairs = "text_pair" in card.inputs
  if takes_pairs and not task.has_text_pair:
    raise ValueError(
      f"--eval_file={check.eval_file}: the model takes pairs of texts: pass "
      '--text_pair_column, or set "has_text_pair" in its prediction.json'
    )
  if check.text_pair_column and not takes_pairs:
    raise ValueError("--text_pair_column: the model takes single texts")
  for example in classification.read_examples(task.dev[0][1]):
    texts = (example.text_a, example.text_b or "")
    yield dict(zip(card.inputs, texts, strict=False)), encode(example)


def _score_labels(card, found, truths):
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


def _read_sentences(card, check):
  source = tagging.open_source(
    check.eval_file, check.token_column, check.tag_column, "auto"
  )
  for sentence in tagging.read_sentences(source, card.settings["label_scheme"]):
    yield sentence.words, sentence.tags


def _word_labels(answer):
  return [word["label"] for word in answer["words"]]


def _score_words(card, found, truths):
  predicted, scheme = map(_word_labels, found), card.settings["label_scheme"]
  scores = tagging_results.score_labels(truths, predicted, scheme, 0.0)
  names = ("f1", "accuracy")
  return {n: scores.metrics[n] for n in names if n in scores.metrics}


def _read_questions(card, check):
  has_version_2 = card.settings["version_2_with_negative"]
  for question in squad.read_questions(check.eval_file):
    if question.answers is None or not (question.answers or has_version_2):
      raise ValueError(f"{question.location}: no answer to compare with")
    texts = {"question": question.text, "context": question.context}
    is_unspaced = squad_features.is_unspaced(question.context)
    truths = [answer.text for answer in question.answers]
    yield texts, (truths, has_version_2, is_unspaced)


def _score_questions(card, found, truths):
  scores = [
    squad_metrics.score_answer(answer["answer"], *truth)
    for answer, truth in zip(found, truths, strict=True)
  ]
  values = squad_metrics.answer_metrics(scores)
  return {name: value / 100.0 for name, value in values.items()}


def _read_choices(card, check):
  for example in multiple_choice.read_examples(check.eval_file):
    if example.label is None:
      raise ValueError(f"{example.location}: no label")
    values = example.context, example.question, list(example.choices)
    yield dict(zip(card.inputs, values, strict=True)), example.label


def _score_choices(card, found, truths):
  predicted = np.array([answer["predicted"] for answer in found])
  return {"accuracy": metrics.accuracy(np.array(truths), predicted)}


def _read_texts(card, check):
  for line in filter(str.strip, files.read_lines(check.eval_file)):
    yield {"text": line.strip()}, None


def _score_vectors(card, found, truths):
  a, b = (np.array([v["vector"] for v in values]) for values in (found, truths))
  sizes = np.linalg.norm(a, axis=-1) * np.linalg.norm(b, axis=-1)
  return {"cosine": float(((a * b).sum(-1) / sizes).mean())}


def _first_guesses(answer):
  return [guesses[0]["token"] for guesses in answer["masks"]]


def _score_guesses(card, found, truths):
  guesses, expected = (
    np.array([token for answer in values for token in _first_guesses(answer)])
    for values in (found, truths)
  )
  if not guesses.size:
    raise ValueError("--eval_file: no text in it has a [MASK]")
  return {"same_first_guess": float((guesses == expected).mean())}


# By the kind of a model. The first function yields pairs of a request (texts by
# name, or words for a tagger) and the right answer, None if the file has none;
# the second makes scores between 0 and 1 of answers and right answers.
_EVALUATIONS: dict[str, tuple[Callable, Callable]] = {
  **dict.fromkeys(
    classification.PROBLEMS, (_read_texts_and_labels, _score_labels)
  ),
  "tagging": (_read_sentences, _score_words),
  "question_answering": (_read_questions, _score_questions),
  "multiple_choice": (_read_choices, _score_choices),
  "features": (_read_texts, _score_vectors),
  "fill_mask": (_read_texts, _score_guesses),
}
