"""Questions to a masked-LM head: which word is it, how likely is this one?

Salazar et al., "Masked Language Model Scoring",
https://arxiv.org/abs/1910.14659, section 2: the pseudo-log-likelihood of a text
is the sum of the log-probabilities of its tokens, each masked in turn and
guessed from all the others.
"""

from collections.abc import Iterator, Sequence
import dataclasses
import itertools
import json
import math
from typing import Any, NamedTuple

from bert import tokenization
from bert.inputs import text_inputs

MASK = "[MASK]"


class Guess(NamedTuple):
  """A token that may stand at a mask."""

  token: str
  probability: float


class Score(NamedTuple):
  """How likely the tokens of a text are, each guessed from the others."""

  tokens: list[str]
  log_probs: list[float]  # Natural logarithms.

  @property
  def pseudo_log_likelihood(self) -> float:
    """The sum of the logarithms; 0 without tokens."""
    return math.fsum(self.log_probs)

  @property
  def pseudo_perplexity(self) -> float | None:
    """The inverse of the tokens' geometric mean; None without tokens."""
    return perplexity(self.pseudo_log_likelihood, len(self.tokens))


def perplexity(log_likelihood: float, tokens: int) -> float | None:
  """Returns exp(-log_likelihood / tokens), at most 1e304; None without tokens.

  >>> round(perplexity(3 * math.log(0.5), 3), 6)
  2.0
  """
  return math.exp(min(-log_likelihood / tokens, 700.0)) if tokens else None


class Cloze(NamedTuple):
  """A line and the tokens to be guessed in it."""

  line: text_inputs.InputLine
  ids: list[int]  # All its tokens.
  positions: list[int]  # Where in `ids` the tokens to be guessed are.


@dataclasses.dataclass
class MaskedWords:
  """Asks a model for the tokens of texts."""

  tokenizer: tokenization.FullTokenizer
  max_seq_length: int  # Most tokens of a row, [CLS] and [SEP] included.
  # Takes rows with masked_lm_positions and masked_lm_ids; returns for each the
  # K most likely ids, their probabilities, and log_prob of the token itself.
  predict: text_inputs.Predict
  is_bidirectional: bool = True  # Whether tokens see those after them.
  max_rows: int = 4096  # Made at once; a long text has many.

  def __post_init__(self) -> None:
    (self._mask_id,) = self.tokenizer.convert_tokens_to_ids([MASK])
    self._rows = text_inputs.RowMaker(self.tokenizer, self.max_seq_length)

  def find_masks(self, line: text_inputs.InputLine) -> Cloze:
    """Asks for every [MASK]; a ValueError if there are other tokens only."""
    ids = self.tokenizer.encode(line.text)
    masks = [i for i, token in enumerate(ids) if token == self._mask_id]
    if ids and not masks:
      raise ValueError(
        f"{line.source}: no {MASK} in {line.text[:40]!r}; put one where a word "
        "is to be guessed, or pass --score=true"
      )
    return Cloze(line, ids, masks)

  def find_words(self, line: text_inputs.InputLine) -> Cloze:
    """Asks for every token of a line; a ValueError if one is [MASK]."""
    ids = self.tokenizer.encode(line.text)
    if self._mask_id in ids:
      raise ValueError(
        f"{line.source}: {line.text[:40]!r} holds a {MASK}, which no score can "
        "be given to; put a word there, or leave --score out"
      )
    return Cloze(line, ids, list(range(len(ids))))

  def fill(self, clozes: list[Cloze]) -> Iterator[list[list[Guess]]]:
    """Yields for every cloze the guesses for each of its masks."""
    # It lacks the ids of lines that the vocabulary file repeats, which a model
    # may guess all the same.
    tokens = self.tokenizer.inv_vocab
    for _, answers in self._answer(clozes):
      masks = []
      for answer in answers:
        pairs = zip(answer["ids"], answer["probabilities"], strict=True)
        masks.append(
          [Guess(tokens.get(int(i), ""), float(share)) for i, share in pairs]
        )
      yield masks

  def score(self, clozes: list[Cloze]) -> Iterator[Score]:
    """Yields the score of every cloze."""
    for cloze, answers in self._answer(clozes):
      tokens = self.tokenizer.convert_ids_to_tokens(cloze.ids)
      yield Score(tokens, [float(answer["log_prob"]) for answer in answers])

  def _answer(self, clozes):
    """Yields every cloze with the predictions for its positions."""
    # A row for each position of each line. Rows are made and answered a block
    # at a time, so that memory holds only so many.
    rows = (self._mask(c.ids, place) for c in clozes for place in c.positions)
    blocks = text_inputs.split_into_blocks(rows, self.max_rows)
    answers = itertools.chain.from_iterable(map(self.predict, blocks))

    # The answers come in the order of the rows.
    for cloze in clozes:
      yield cloze, list(itertools.islice(answers, len(cloze.positions)))

  def _mask(self, ids, position) -> text_inputs.Row:
    """Makes the input that masks one token of a text."""
    # A text that is too long keeps as much as fits around the token, or
    # before it where the model does not see further tokens.
    room = self.max_seq_length - 2  # For [CLS] and [SEP].
    before = room // 2 if self.is_bidirectional else room - 1
    start = max(0, min(position - before, len(ids) - room))
    part = ids[start : start + room]
    part[position - start] = self._mask_id

    # A token is predicted at its own place, [CLS] being at 0; in a model that
    # reads from left to right, at the place before.
    place = position - start
    if self.is_bidirectional:
      place += 1
    row = self._rows.pack(part)
    row["masked_lm_positions"] = [place]
    row["masked_lm_ids"] = [ids[position]]
    return row


def guesses_json(
  line: text_inputs.InputLine, masks: Sequence[list[Guess]]
) -> str:
  """Returns the guesses for a line as a JSON object."""
  entries = [
    [{"token": g.token, "probability": round(g.probability, 6)} for g in mask]
    for mask in masks
  ]
  return _to_json(line, masks=entries)


def guesses_table(
  line: text_inputs.InputLine, masks: Sequence[list[Guess]]
) -> str:
  """Returns the guesses for a line for people to read."""
  lines = [line.text]
  for number, mask in enumerate(masks, 1):
    title = f"mask {number}  " if len(masks) > 1 else ""
    width = max(len(guess.token) for guess in mask)
    for guess in mask:
      percent = f"{100 * guess.probability:.1f}"
      lines.append(f"  {title}{guess.token:{width}}  {percent:>4} %")
      title = " " * len(title)  # Stands before the first guess alone.
  return "\n".join(lines)


def score_json(line: text_inputs.InputLine, score: Score) -> str:
  """Returns the score of a line as a JSON object."""
  perplexity = score.pseudo_perplexity
  return _to_json(
    line,
    pseudo_log_likelihood=round(score.pseudo_log_likelihood, 6),
    pseudo_perplexity=None if perplexity is None else round(perplexity, 6),
    tokens=score.tokens,
    log_probs=[round(value, 6) for value in score.log_probs],
  )


def _to_json(line: text_inputs.InputLine, **answer: Any) -> str:
  fields = {"line": line.number, "text": line.text, **answer}
  return json.dumps(fields, ensure_ascii=False)


SCORE_HEADER = "tokens  log-likelihood    perplexity  text"


def score_table(line: text_inputs.InputLine, score: Score) -> str:
  """Returns the score of a line below SCORE_HEADER."""
  value = score.pseudo_perplexity
  perplexity = "-" if value is None else f"{value:.2f}"
  return (
    f"{len(score.tokens):6}  {score.pseudo_log_likelihood:14.2f}  "
    f"{perplexity:>12}  {line.text}"
  )
