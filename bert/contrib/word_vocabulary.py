"""Vocabularies of whole words; jieba cuts Chinese text into its words.

A vocabulary is a file of words, `*.words`. A run of Chinese characters becomes
words of jieba's dictionary, or single characters where it has none; other text
becomes BERT's words. A word that is not in the vocabulary is one [UNK].
"""

from collections.abc import Mapping, Sequence
import itertools
import re
from typing import Any

from bert import tokenization
from bert.data import imports

jieba = imports.load(
  "jieba",
  "Chinese words",
  install="--use-pep517 -r requirements/jieba.txt",
)
jieba.setLogLevel("WARNING")  # Else it reports loading its dictionary.

_RANGES = "".join(f"{chr(a)}-{chr(b)}" for a, b in tokenization.CJK_RANGES)
CHINESE = re.compile(f"([{_RANGES}]+)")  # Runs of characters.


class WordSplitter(tokenization.BasicTokenizer):
  """Splits text into words at whitespace, punctuation and by jieba."""

  def _split(self, text):
    # The pattern has a group: `split` returns other text and Chinese in turn.
    words = []
    for index, part in enumerate(CHINESE.split(text)):
      part_words = super()._split(part)
      if index % 2:
        # Without its model of unknown words, which would be [UNK].
        part_words = jieba.cut("".join(part_words), HMM=False)
      words += part_words
    return words


class Tokenizer(tokenization.FullTokenizer):
  """Turns text into words and their ids; see `FullTokenizer`."""

  splitter = WordSplitter

  def encode(self, text):
    """Returns convert_tokens_to_ids(tokenize(text)), faster."""
    return self._encoder.encode_words(self.basic_tokenizer.tokenize(text))


load_vocab = tokenization.load_vocab


def learn(paths: Sequence[str], settings: Any) -> int:
  """Writes the vocabulary that create_vocab.py asks for; returns its size."""
  from bert import create_vocab  # It asks for this module, too.

  def choose(
    words: Mapping[str, int], reserved: list[str], vocab_size: int
  ) -> dict[str, None]:
    # Reserved tokens come first; a dict keeps the order and drops repetitions.
    frequent = [word for word, _ in create_vocab.by_frequency(words)]
    vocab = dict.fromkeys(reserved + frequent)
    return dict(itertools.islice(vocab.items(), vocab_size))

  return create_vocab.learn(list(paths), settings, WordSplitter, choose)
