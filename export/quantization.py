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
from serving import answers
from serving import export_facts
from serving import exported_model
from tasks import classification
from tasks import glue
from tasks import metrics
from tasks import multiple_choice
from tasks import squad
from tasks import squad_features
from tasks import squad_metrics
from tasks import tagging


@dataclasses.dataclass(frozen=True)
class Gate:
  """What a quantized export has to pass."""

  eval_file: str  # See `compare`.
  max_eval_examples: int
  max_score_drop: float
  # Of the file, as in the training.
  text_column: str | None = None
  text_pair_column: str | None = None
  label_column: str | None = None
  label_separator: str = ","
  token_column: int = 0
  tag_column: int = -1


class Example(NamedTuple):
  """What is asked, and what is right."""

  request: Any  # Texts by name; of tagging, a `tagging.Sentence`.
  truth: Any  # By the kind of model; None where the file has none.


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
          f"{self.sample}, by more than --max_score_drop={most}; nothing was "
          "kept"
        )

  def describe(self) -> str:
    """Returns the comparison in words."""
    scores = [
      f"{name} {before:.4f} -> {self.after[name]:.4f}"
      for name, before in self.before.items()
    ]
    return (
      f"on {self.sample}: {', '.join(scores)}; {self.changed:,} of "
      f"{self.examples:,} answers changed"
    )


def compare(
  exact: exported_model.ExportedModel,
  quantized: exported_model.ExportedModel,
  gate: Gate,
) -> Comparison:
  """Answers the examples of a file with a model and its quantized export.

  Args:
    gate: its eval_file holds labelled examples of the model's kind, in the form
      that its program takes as --eval_file; texts, a line each, for vectors and
      masked words. max_eval_examples are taken, evenly spread over the file.

  Raises:
    ValueError: the file is damaged, or not of this kind of model.
  """
  facts, path, most = exact.facts, gate.eval_file, gate.max_eval_examples
  found = list(_READERS[facts.kind](facts, gate))
  if not found:
    raise ValueError(f"--eval_file={path}: holds no example")
  count = len(found)
  sample = f"{count:,} examples of {os.path.basename(path)}"
  if count > most:
    found = [found[i * count // most] for i in range(most)]
    sample = f"{most:,} of the {sample}, evenly spread"
  is_tagging = facts.kind == export_facts.TAGGING
  encode = exact.kind.encode_sentence if is_tagging else exact.kind.encode
  requests = [encode(example.request) for example in found]
  tokens = exported_model.BATCH_SIZE * facts.max_seq_length
  first, second = (m.answer(requests, tokens) for m in (exact, quantized))
  truths = [example.truth for example in found]
  if truths[0] is None:
    truths = first
  score, core = _SCORES[facts.kind], _CORES[facts.kind]
  return Comparison(
    sample,
    score(facts, first, truths),
    score(facts, second, truths),
    len(found),
    sum(core(a) != core(b) for a, b in zip(first, second, strict=True)),
  )


# Reading.


def _read_classification(facts, gate):
  names = ("eval_file", "text_column", "text_pair_column", "label_column")
  columns = {name: getattr(gate, name) for name in names}
  task = glue.file_task(problem=facts.kind, **columns)
  encode = classification.make_label_encoder(
    facts.labels, facts.kind, gate.label_separator
  )
  takes_pairs = "text_pair" in facts.inputs
  if takes_pairs and not task.has_text_pair:
    raise ValueError(
      f"--eval_file={gate.eval_file}: the model takes pairs of texts: pass "
      '--text_pair_column; or write "has_text_pair": false into the '
      "prediction.json of its training, if it is of a version without that"
    )
  if gate.text_pair_column and not takes_pairs:
    raise ValueError("--text_pair_column: the model takes single texts")
  for example in classification.read_examples(task.dev[0][1]):
    texts = (example.text_a, example.text_b or "")
    request = dict(zip(facts.inputs, texts, strict=False))
    yield Example(request, encode(example))


def _read_tagging(facts, gate):
  source = tagging.Source(
    gate.eval_file, token_column=gate.token_column, tag_column=gate.tag_column
  )
  source = source._replace(scheme=tagging.find_scheme(source))
  for sentence in tagging.read_sentences(source):
    text, places = tagging.text_of(sentence)
    tags = tagging.convert_tags(sentence.tags, facts.settings["label_scheme"])
    yield Example(sentence._replace(text=text, offsets=tuple(places)), tags)


def _read_questions(facts, gate):
  has_version_2 = facts.settings["version_2_with_negative"]
  for paragraph in squad.read_paragraphs(gate.eval_file):
    for question in paragraph.questions:
      if question.answers is None or not (question.answers or has_version_2):
        raise ValueError(f"{question.place}: no answer to compare with")
      texts = {"question": question.text, "context": paragraph.context}
      is_unspaced = squad_features.is_unspaced(paragraph.context)
      truths = [answer.text for answer in question.answers]
      yield Example(texts, (truths, has_version_2, is_unspaced))


def _read_choices(facts, gate):
  for example in multiple_choice.read_examples(gate.eval_file):
    if example.label is None:
      raise ValueError(f"{example.place}: no label")
    texts = {"context": example.context, "question": example.question}
    texts[answers.CHOICES] = list(example.choices)
    yield Example(texts, example.label)


def _read_texts(facts, gate):
  for line in filter(str.strip, files.read_lines(gate.eval_file)):
    yield Example({"text": line.strip()}, None)


_READERS = {
  **dict.fromkeys(classification.PROBLEMS, _read_classification),
  export_facts.TAGGING: _read_tagging,
  export_facts.QUESTION_ANSWERING: _read_questions,
  export_facts.MULTIPLE_CHOICE: _read_choices,
  export_facts.FEATURES: _read_texts,
  export_facts.FILL_MASK: _read_texts,
}


# Scoring: of the answers, beside the truths.


def _score_single_label(facts, found, truths):
  numbers = {label: number for number, label in enumerate(facts.labels)}
  predicted = np.array([numbers[answer["label"]] for answer in found])
  report = metrics.classification_report(
    np.array(truths), predicted, len(numbers)
  )
  return {"accuracy": report.accuracy, "macro_f1": report.macro.f1}


def _score_multi_label(facts, found, truths):
  predicted = [[n in a["labels"] for n in facts.labels] for a in found]
  report = metrics.multi_label_report(np.array(truths), np.array(predicted))
  return {"micro_f1": report.micro.f1, "macro_f1": report.macro.f1}


def _score_regression(facts, found, truths):
  predicted = np.array([answer["value"] for answer in found])
  scores = metrics.regression_scores(np.array(truths), predicted)
  return {name: scores[name] for name in ("pearson", "spearman")}


def _labels(answer):
  return [word["label"] for word in answer["words"]]


def _score_tagging(facts, found, truths):
  predicted = list(map(_labels, found))
  report, _ = metrics.entity_report(truths, predicted)
  if facts.settings["label_scheme"] == tagging.NO_SCHEME:
    return {"accuracy": report.accuracy}
  return {"f1": report.micro.f1, "accuracy": report.accuracy}


def _score_questions(facts, found, truths):
  scores = [
    squad_metrics.score_answer(answer["answer"], *truth)
    for answer, truth in zip(found, truths, strict=True)
  ]
  values = squad_metrics.answer_metrics(scores)
  return {name: value / 100.0 for name, value in values.items()}


def _score_choices(facts, found, truths):
  predicted = np.array([answer["predicted"] for answer in found])
  return {"accuracy": metrics.accuracy(np.array(truths), predicted)}


def _score_vectors(facts, found, truths):
  a, b = (np.array([v["vector"] for v in values]) for values in (found, truths))
  sizes = np.linalg.norm(a, axis=-1) * np.linalg.norm(b, axis=-1)
  return {"cosine": float(((a * b).sum(-1) / sizes).mean())}


def _guesses(answer):
  return [guesses[0]["token"] for guesses in answer["masks"]]


def _score_guesses(facts, found, truths):
  guesses, wanted = (
    np.array([token for answer in values for token in _guesses(answer)])
    for values in (found, truths)
  )
  if not guesses.size:
    raise ValueError(f"--eval_file: no text in it has a {answers.MASK}")
  return {"same_first_guess": float((guesses == wanted).mean())}


_SCORES: dict[str, Callable[..., dict[str, float]]] = {
  "single_label": _score_single_label,
  "multi_label": _score_multi_label,
  "regression": _score_regression,
  export_facts.TAGGING: _score_tagging,
  export_facts.QUESTION_ANSWERING: _score_questions,
  export_facts.MULTIPLE_CHOICE: _score_choices,
  export_facts.FEATURES: _score_vectors,
  export_facts.FILL_MASK: _score_guesses,
}
# What of an answer counts as another answer; a number always differs a little.
_CORES: dict[str, Callable[[answers.Answer], Any]] = {
  "single_label": lambda answer: answer["label"],
  "multi_label": lambda answer: answer["labels"],
  "regression": lambda answer: round(answer["value"], 1),
  export_facts.TAGGING: _labels,
  export_facts.QUESTION_ANSWERING: lambda answer: answer["answer"],
  export_facts.MULTIPLE_CHOICE: lambda answer: answer["predicted"],
  export_facts.FEATURES: lambda answer: None,
  export_facts.FILL_MASK: _guesses,
}
