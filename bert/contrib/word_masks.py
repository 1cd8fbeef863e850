"""Whole words of Chinese for masks: jieba says which characters are one word.

BERT's tokens of Chinese are characters, and none says that it continues a word.
Here the tokens of the second and later characters of a word are marked, so that
masks take all characters of a word or none. The records have the same tokens:
a mark is no part of them.
"""

import functools

from bert import tokenization
from bert.contrib import word_vocabulary
from bert.data import pretraining_data
from bert.vocabularies import vocabulary_table

_LONGEST_RUN = 1000  # Characters that jieba gets at once.


class MarkedToken(bytes):
  """A token that continues a word; as bytes it equals the same token alone."""

  __slots__ = ()


class MarkedTokens(frozenset):
  """The tokens that continue a word wherever they are, and all marked ones."""

  def __contains__(self, token: object) -> bool:
    return isinstance(token, MarkedToken) or super().__contains__(token)


# Equal tokens share their bytes: a corpus is in memory as tokens.
_mark = functools.cache(MarkedToken)


def mark_words(
  vocabulary: pretraining_data.Vocabulary, do_lower_case: bool
) -> pretraining_data.Vocabulary:
  """Returns a vocabulary whose tokens say that they continue a Chinese word.

  Args:
    vocabulary: its tokens are bytes of records.
    do_lower_case: as its tokenizer has it.

  Raises:
    ValueError: its tokens may have several characters.
  """
  kinds = (vocabulary_table.WORD_PIECES, vocabulary_table.ACCENTS)
  if vocabulary_table.kind_of(vocabulary.file) not in kinds:
    raise ValueError(
      f"--segmenter needs a vocab.txt, not {vocabulary.file}: only there every "
      "Chinese character is a token"
    )

  tokenizer = vocabulary_table.make_tokenizer(vocabulary.file, do_lower_case)
  # A partial can be pickled for other processes.
  tokenize = functools.partial(_tokenize, vocabulary.tokenize, tokenizer)
  return vocabulary._replace(
    tokenize=tokenize, inner=MarkedTokens(vocabulary.inner)
  )


def _tokenize(
  tokenize, tokenizer: tokenization.FullTokenizer, text: str
) -> list[pretraining_data.Token]:
  # Most texts have no Chinese: they need no places.
  inside = places_inside_words(text)
  places = tokenizer.tokenize_with_offsets(text) if inside else ()
  tokens = tokenize(text)
  for index, (_, start, _) in enumerate(places):
    if start in inside:
      tokens[index] = _mark(tokens[index])
  return tokens


def places_inside_words(text: str) -> set[int]:
  r"""Returns where the second and later characters of Chinese words are.

  >>> sorted(places_inside_words("BERT \u8bfb\u4e2d\u6587\u3002"))
  [7]
  """
  inside = set()
  for run in word_vocabulary.CHINESE.finditer(text):
    start = run.start()

    # jieba's time grows with the square of a run without punctuation.
    parts = range(0, len(run[0]), _LONGEST_RUN)
    for part in (run[0][i : i + _LONGEST_RUN] for i in parts):
      for word in word_vocabulary.jieba.cut(part):
        inside.update(range(start + 1, start + len(word)))
        start += len(word)
  return inside
