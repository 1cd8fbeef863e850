"""Extends a vocabulary of WordPieces by the words of a field.

A new token is worth what it saves: by how many tokens the text of the field
gets shorter. Whole words and parts of words compete by this number. Old tokens
keep their ids, because the rows of a model's embeddings belong to them.
"""

import collections
from collections.abc import Iterable, Mapping
import heapq

from bert import tokenization
from bert.data import files, progress
from bert.vocabularies import vocabulary_table

# In characters; create_vocab.py learns from no longer ones either.
_LONGEST_WORD = 50
# Candidates to remember. A script of which the old vocabulary has only letters
# makes 45 of every word of ten. When there are twice as many, those that save
# the least are dropped; one that is dropped and comes again is counted from 0.
_MOST_CANDIDATES = 2_000_000
# Stands for the beginning of a word. No text has it: tokenizers delete it.
_BEGINNING = "\0"


def read(vocab_file: str) -> list[str]:
  """Reads a vocabulary, one token a line, without stripping any.

  Raises:
    ValueError: the file is empty, not UTF-8, or has a line twice.
  """
  lines: dict[str, int] = {}
  for number, line in enumerate(files.read_lines(vocab_file), 1):
    token = line.removeprefix("\ufeff") if number == 1 else line
    if lines.setdefault(token, number) != number:
      raise ValueError(
        f"{vocab_file}:{number}: {token!r:.80} is on line {lines[token]}, too; "
        "expected a token once"
      )
  if not any(lines):
    raise ValueError(f"{vocab_file}: empty; expected one token a line")
  return list(lines)


def insert(old: Iterable[str], added: Iterable[str]) -> list[str]:
  """Returns old tokens in their places, and new ones where there is room.

  The rows of [unusedN] are taken first, the rest follows the last token.

  >>> insert(["[PAD]", "[unused0]", "the"], ["gene", "##ase"])
  ['[PAD]', 'gene', 'the', '##ase']
  """
  rest = iter(added)
  taken = [
    next(rest, t) if vocabulary_table.UNUSED.fullmatch(t) else t for t in old
  ]
  return [*taken, *rest]


class Speller:
  """Splits words and tokens into pieces of a vocabulary, which may grow."""

  def __init__(self, tokens: Iterable[str]):
    """Takes the tokens; `vocab` holds them as keys, and may get more."""
    # No word holds spaces. This entry only says how long tokens may become:
    # the tokenizer looks for none that is longer than the longest at first.
    longest = " " * _LONGEST_WORD
    self.vocab = dict.fromkeys([*tokens, _BEGINNING, longest], 0)
    self.split = tokenization.WordpieceTokenizer(self.vocab).split_word

  def spell(self, token: str) -> list[str]:
    """Returns the pieces of a token; those of ##ing continue a word, too.

    ["[UNK]"] if there are none.
    """
    if not token.startswith("##"):
      return self.split(token)
    return self.split(_BEGINNING + token[2:])[1:] or ["[UNK]"]


class _Text:
  """The different words of a text, as a growing vocabulary splits them."""

  def __init__(self, counts: Mapping[str, int], tokens: Iterable[str]):
    self._counts = counts  # How often each word occurs.
    self._speller = Speller(tokens)
    # A piece is in many words; one string each would be most of the memory.
    one = {}
    self._pieces = {
      word: [one.setdefault(p, p) for p in self._speller.split(word)]
      for word in counts
    }
    # The words that have, or have had, a token among their pieces.
    self._words_with = collections.defaultdict(set)
    self._note_pieces(counts)

  def _note_pieces(self, words: Iterable[str]) -> None:
    for word in words:
      for token in self._pieces[word]:
        self._words_with[token].add(word)

  def size(self) -> int:
    """Returns how many tokens the text has."""
    return sum(n * len(self._pieces[word]) for word, n in self._counts.items())

  def candidates(self) -> collections.Counter[str]:
    """Returns joined pieces of words, with what they may save."""
    report = progress.Progress(1)
    savings = collections.Counter()
    # The frequent words come first: what is dropped are pieces of rare words.
    # Equal ones are sorted: the same text, the same candidates.
    order = sorted(self._pieces, key=lambda word: (-self._counts[word], word))
    for done, word in enumerate(order):
      pieces = self._pieces[word]
      for first in range(len(pieces) if len(word) <= _LONGEST_WORD else 0):
        token = pieces[first]
        for saved, piece in enumerate(pieces[first + 1 :], 1):
          token += piece[2:]  # Without ##.
          savings[token] += self._counts[word] * saved

      if len(savings) > 2 * _MOST_CANDIDATES:
        best = savings.most_common(_MOST_CANDIDATES)
        savings = collections.Counter(dict(best))
      report.print_part("joining pieces", done / len(order))
    return savings

  def try_token(self, token: str) -> tuple[int, dict[str, list[str]]]:
    """Returns how many tokens fewer the text has with a new one.

    The second result is the pieces of the words that it changes. A token saves
    nothing if the rest of a word has no pieces, so that it becomes unknown.
    """
    # The tokenizer takes the longest piece. Where the new one is the longest,
    # it now takes the longest that begins the new one.
    words = self._words_with[self._speller.spell(token)[0]]
    self._speller.vocab[token] = 0
    letters = token.removeprefix("##")
    changed = {w: self._speller.split(w) for w in words if letters in w}
    del self._speller.vocab[token]

    if ["[UNK]"] in changed.values():
      return 0, {}
    saved = sum(
      self._counts[word] * (len(self._pieces[word]) - len(pieces))
      for word, pieces in changed.items()
    )
    return saved, changed

  def add(self, token: str, changed: Mapping[str, list[str]]) -> None:
    """Adds a token; `try_token` has returned the words that it changes."""
    self._speller.vocab[token] = 0
    self._pieces |= changed
    self._note_pieces(changed)


def extend(
  old: list[str], words: Mapping[str, int], count: int
) -> dict[str, None]:
  """Adds tokens to a vocabulary, and prints what they save.

  Args:
    old: the tokens of the vocabulary, by their ids.
    words: how often each occurs in the text of the field.
    count: how many tokens to add, at most.

  Returns:
    The tokens as keys, in the order of their ids.

  Raises:
    ValueError: no token would make the text shorter.
  """
  text = _Text(words, old)
  before = text.size()
  added, least = _choose(text, count)
  if not added:
    raise ValueError("--extend: each word of --input_file is one token already")

  # Counted anew: the sum does not depend on what `_choose` has remembered.
  vocab = insert(old, added)
  after = _Text(words, vocab).size()
  unused = len(added) - (len(vocab) - len(old))
  print(
    f"{len(added):,} new tokens, {unused:,} of them in rows of [unusedN]: "
    f"{1 - after / before:.1%} fewer tokens ({after:,} instead of {before:,}); "
    f"the last one saves {least:,}"
  )
  return dict.fromkeys(vocab)


def _choose(text: _Text, count: int) -> tuple[list[str], int]:
  """Returns the tokens that save the most, and what the last one saves."""
  # What a token saves changes with those that were added. It is computed again
  # when the token is the best one; usually it still is. Of equal ones, the
  # first in the alphabet counts: the same text, the same tokens.
  heap = [(-saved, token) for token, saved in text.candidates().items()]
  heapq.heapify(heap)

  report = progress.Progress(1)
  added = []
  least = 0
  while heap and len(added) < count:
    report.print_part(
      f"choosing tokens: {len(added):,} of {count:,}", len(added) / count
    )
    _, token = heapq.heappop(heap)
    saved, changed = text.try_token(token)
    if saved <= 0:
      continue

    # Another one may save more by now: then this one waits for its turn.
    if heap and heap[0] < (-saved, token):
      heapq.heappush(heap, (-saved, token))
      continue

    text.add(token, changed)
    added.append(token)
    least = saved
  progress.clear()
  return added, least
