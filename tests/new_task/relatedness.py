"""How related two words of a sentence are: examples, inputs and answers.

A line of a file is {"words": ["the", "film", ...], "first": 1, "second": 3,
"score": 0.5}: two words by their numbers from 0, and a number for the pair.
This module does without TensorFlow, so that predict.py does, too.
"""

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from bert import tokenization
from bert.data import packing, tables
from bert.serving import answer_maker


class Example(NamedTuple):
  """A sentence and a pair of its words."""

  words: tuple[str, ...]
  pair: tuple[int, int]  # Their numbers, from 0.
  score: float | None  # None if it is not known.
  location: str  # "path:line".


class PairIds(NamedTuple):
  """An input of the model: a `packing.PackedIds`, and where the pair is."""

  input_ids: list[int]
  input_mask: list[int]
  segment_ids: list[int]
  positions: list[int]  # Where the first token of each of the two words is.


def read_examples(path: str) -> Iterator[Example]:
  """Yields the examples of a file; a ValueError names path and line."""
  # The file to predict has no scores, so this column may be missing.
  columns = ("words", "first", "second", "score")
  rows = tables.read_columns(path, columns, optional=("score",))

  # A mistake in a file is named by its line, before anything is computed.
  for location, [words, first, second, score] in rows:
    if not isinstance(words, list) or not all(type(w) is str for w in words):
      raise ValueError(f"{location}: words: expected a list of strings")
    try:
      pair = int(first), int(second)
      score = None if score is None else float(score)
    except (TypeError, ValueError):
      raise ValueError(
        f"{location}: expected two numbers of words, and a number as score"
      ) from None

    yield Example(tuple(words), pair, score, location)


def encode(
  words: Sequence[str],
  pair: Sequence[int],
  tokenizer: tokenization.FullTokenizer,
  max_seq_length: int,
) -> PairIds:
  """Makes the input of a sentence; a ValueError if it lacks a word of the pair.

  >>> class Letters:
  ...   encode = staticmethod(lambda word: [ord(c) for c in word])
  ...   convert_tokens_to_ids = staticmethod(lambda tokens: [1, 2])
  >>> encode(["ab", "c"], (1, 0), Letters, 8)[::3]
  ([1, 97, 98, 99, 2], [3, 1])
  """
  if not all(0 <= number < len(words) for number in pair):
    raise ValueError(
      f"the pair is {list(pair)}, expected numbers from 0 to {len(words) - 1}"
    )

  # A word may have several tokens. The pair is found by its first ones.
  ids = []
  starts = []
  for word in words:
    starts.append(len(ids) + 1)  # The first token is [CLS].
    ids += tokenizer.encode(word)
  positions = [starts[number] for number in pair]

  # [CLS] and [SEP] need two of the places. Rather no answer than one about a
  # word that was cut off.
  if max(positions) > max_seq_length - 2:
    raise ValueError(f"the pair is not in the first {max_seq_length} tokens")
  cls_id, sep_id = tokenizer.convert_tokens_to_ids(["[CLS]", "[SEP]"])
  packed = packing.pack(ids[: max_seq_length - 2], cls_id=cls_id, sep_id=sep_id)
  return PairIds(*packed, positions)


class PairAnswers(answer_maker.AnswerMaker):
  """A number for two words of a text. Output: `value`."""

  title = "Says how related two words are"
  head = "bert.contrib.relatedness_model.PairModel"
  settings = {}
  texts = ("words", "first", "second")
  optional = ""
  number = "value"
  more_inputs = {"positions": (1, 2)}

  def encode(self, request: Any) -> answer_maker.Encoded:
    # A line of a file has a list and numbers, the page of the server has texts.
    if isinstance(request, dict):
      words = request.get("words")
      words = " ".join(map(str, words)) if isinstance(words, list) else words
      numbers = {n: request.get(n) for n in ("first", "second")}
      numbers = {n: str(x) if type(x) is int else x for n, x in numbers.items()}
      request = {**request, "words": words, **numbers}
    return super().encode(request)

  def _encode(self, texts):
    numbers = texts["first"], texts["second"]
    if not all(number.isdecimal() for number in numbers):
      raise ValueError("first and second: expected numbers of words, from 0")
    pair, length = [*map(int, numbers)], self.card.max_seq_length

    # The same function as in the training, so that both give the same ids.
    row = encode(texts["words"].split(), pair, self._tokenizer, length)
    return answer_maker.Encoded([row], was_cut=False)

  def _answer(self, encoded, outputs):
    return {"value": float(outputs[0]["value"])}


ANSWER_MAKER = PairAnswers  # By which `answers.find_maker` finds it.
