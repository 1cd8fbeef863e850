"""Compares the answers of an int8 export with those of its model.

Both answer the same texts, and every answer either changed or did not. Labels
are not needed: a score that counts right answers, such as the accuracy, can
move by the share of changed answers at most.
"""

import os
from typing import Any, NamedTuple

import numpy as np

from bert.serving import exported_model, request_lines

_FEWEST_ANSWERS = 50  # A share of fewer says little.
# A vector has changed if its cosine with the model's is smaller; a number if it
# is further from the model's, in standard deviations of the model's numbers.
_LEAST_COSINE = 0.95
_MOST_DEVIATIONS = 0.1


class Gate(NamedTuple):
  """What an int8 export must pass to be written."""

  source: request_lines.Source  # The texts to answer.
  most_texts: int  # A larger file is sampled.
  most_changed: float  # The largest share of answers that may change.


class Comparison(NamedTuple):
  """How the answers of a model and of its int8 export differ."""

  sample: str  # Which texts were answered.
  answers: int  # A word of a tagger and a mask of fill_mask have one each.
  changed: int
  detail: str = ""  # What else is known of them, in words.

  def describe(self) -> str:
    """Returns the comparison in words."""
    share = self.changed / self.answers
    counts = f"{self.changed:,} of {self.answers:,} answers changed"
    return f"{counts} ({share:.1%}) on {self.sample}{self.detail}"


def compare(
  exact: exported_model.ExportedModel,
  quantized: exported_model.ExportedModel,
  gate: Gate,
) -> Comparison:
  """Answers texts with a model and with its int8 export.

  Args:
    exact: the model.
    quantized: its export.
    gate: the texts, and how many of the answers may change.

  Raises:
    ValueError: too many answers changed, a line is not what the model takes, or
      the answers are too few, or all alike, so that none could change.
  """
  path = gate.source.input_file
  count = _check_lines(gate.source, exact)
  sample = f"{count:,} texts of {os.path.basename(path)}"

  # A file may be sorted by its labels, so the sample is not its beginning. Only
  # its requests are kept in memory.
  chosen = range(count)
  if count > gate.most_texts:
    most = gate.most_texts
    chosen = {i * count // most for i in range(most)}
    sample = f"{most:,} of the {sample}, evenly spread"
  lines = enumerate(request_lines.read(gate.source, exact.maker))
  requests = [line.request for number, line in lines if number in chosen]

  # Too few answers, or equal ones, would let any export pass.
  before, after = _answer(exact, requests), _answer(quantized, requests)
  if len(before) < _FEWEST_ANSWERS:
    raise ValueError(
      f"--eval_file={path}: {len(before)} of at least {_FEWEST_ANSWERS} "
      "answers to compare"
    )
  if all(np.array_equal(part, before[0]) for part in before):
    raise ValueError(
      f"--eval_file={path}: the model answers all alike, so that no answer "
      "could change: pass other texts"
    )

  has_changed, detail = _compare_parts(before, after)
  changed = int(has_changed.sum())
  result = Comparison(sample, len(before), changed, detail)
  if changed > gate.most_changed * len(before):
    raise ValueError(
      f"--quantize: {result.describe()}; expected at most "
      f"{gate.most_changed:.1%} (--max_changed)"
    )
  return result


def _check_lines(
  source: request_lines.Source, model: exported_model.ExportedModel
) -> int:
  """Counts the requests of a file; a ValueError names a wrong line."""
  place = f"--eval_file={source.input_file}"
  count = 0
  labelled = 0  # Texts of a tagger whose last word is one of its labels.
  for line in request_lines.read(source, model.maker):
    if line.request is None:
      raise ValueError(
        f"{place}: {line.error}; expected what predict.py takes as --input_file"
      )
    count += 1

    if model.card.kind == "tagging":
      text = line.request.source[0]
      words = text.split()
      if words and words[-1] in model.card.labels:
        labelled += 1

  # A file with a word and its label in each line would be read as texts.
  if labelled > count / 2:
    raise ValueError(
      f"{place}: its lines end in labels, as run_tagging.py reads them; "
      "expected texts, one a line, as predict.py reads them"
    )
  return count


def _answer(
  model: exported_model.ExportedModel, requests: list[Any]
) -> list[Any]:
  """Returns the parts of all answers; see `AnswerMaker.parts`."""
  answers = model.answer(requests)
  return [part for answer in answers for part in model.maker.parts(answer)]


def _compare_parts(
  before: list[Any], after: list[Any]
) -> tuple[np.ndarray, str]:
  """Returns which parts of answers changed, bool [N], and a detail in words."""
  # Vectors, by the cosine of the angle between them.
  if isinstance(before[0], np.ndarray):
    a, b = np.array(before), np.array(after)
    sizes = np.linalg.norm(a, axis=-1) * np.linalg.norm(b, axis=-1)
    cosines = (a * b).sum(-1) / sizes
    mean, lowest = cosines.mean(), cosines.min()
    detail = f"; cosines {mean:.4f} on the average, at least {lowest:.4f}"
    return ~(cosines >= _LEAST_COSINE), detail  # NaN has changed, too.

  # Numbers, such as those of a regression.
  if isinstance(before[0], float):
    most = _MOST_DEVIATIONS * np.std(before)
    return ~(np.abs(np.subtract(before, after)) <= most), ""

  # Labels, lists of labels or texts are equal or not.
  return np.array([a != b for a, b in zip(before, after, strict=True)]), ""
