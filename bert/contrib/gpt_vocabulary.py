"""GPT-1's byte pair encoding: the pieces of words, merged by rank.

Sennrich et al., https://arxiv.org/abs/1508.07909. Words are BERT's, as those of
transformers without spaCy and ftfy, which GPT-1 was trained with: "don't" is
three words here, there two. The last piece of a word ends in </w>. The files of
openai/finetune-transformer-lm are `encoder_bpe_40000.json`, tokens and ids, and
`vocab_40000.bpe`, a pair of pieces a line, the first to be merged first.
"""

import heapq
import itertools
import os

from bert import tokenization
from bert.data import files

ENCODER = "encoder_bpe_40000.json"
MERGES = "vocab_40000.bpe"
# They have no place in GPT's own vocabulary and follow it. [UNK] is its <unk>.
ADDED = ("[PAD]", "[CLS]", "[SEP]", "[MASK]")
_END = "</w>"


def load_vocab(path: str) -> dict[str, int]:
  """Reads `encoder_bpe_40000.json` and adds BERT's special tokens."""
  vocab = files.read_json(path)
  ids = set(map(repr, vocab.values()))
  if "<unk>" not in vocab or ids != set(map(repr, range(len(vocab)))):
    raise ValueError(
      f"{path}: expected GPT-1's <unk> and other tokens, with ids from 0 on"
    )
  for token in ADDED:
    vocab.setdefault(token, len(vocab))
  return vocab | {"[UNK]": vocab["<unk>"]}


class BpeSplitter:
  """Splits words; has the method of `tokenization.WordpieceTokenizer`."""

  def __init__(self, vocab: dict[str, int], path: str):
    """Reads the merges.

    Args:
      vocab: from `load_vocab`.
      path: of `vocab_40000.bpe`.

    Raises:
      ValueError: a line does not hold two pieces.
    """
    self._vocab = vocab

    # A first line with a version is no pair; blank lines count for nothing.
    pairs = [line.split() for line in files.read_lines(path)]
    if pairs and pairs[0][:1] == ["#version:"]:
      del pairs[0]
    ranks = {tuple(p): rank for rank, p in enumerate(filter(None, pairs))}
    if not ranks or not all(len(pair) == 2 for pair in ranks):
      raise ValueError(f"{path}: expected two pieces a line")
    self._ranks = ranks

  def split_word(self, word: str) -> list[str]:
    """Returns the pieces of a word; what is not in the vocabulary is [UNK]."""
    return [p if p in self._vocab else "[UNK]" for p in self.pieces(word)]

  def pieces(self, word: str) -> list[str]:
    """Returns the pieces of a word, the last with </w>, known or not."""
    pieces = [*word[:-1], word[-1:] + _END]

    # The pieces are a linked list: `before` and `after` hold the numbers of the
    # neighbours. A piece that was merged into the one on its left becomes "".
    end = len(pieces)
    before = list(range(-1, end))
    after = list(range(1, end + 1))

    # The pairs that may be merged, the lowest rank first. With a heap, a word
    # of n characters takes n log n steps; a search for the best pair before
    # each merge would take n * n.
    heap: list[tuple[int, int, tuple[str, str]]] = []

    def push(i):
      if i >= 0 and after[i] < end:
        pair = pieces[i], pieces[after[i]]
        if pair in self._ranks:
          heapq.heappush(heap, (self._ranks[pair], i, pair))

    for i in range(end):
      push(i)
    while heap:
      # Every occurrence of the best pair, from the left.
      rank = heap[0][0]
      merged = []
      while heap and heap[0][0] == rank:
        _, i, pair = heapq.heappop(heap)
        j = after[i]

        # A merge nearby may have changed one of the two since they were pushed.
        if j < end and (pieces[i], pieces[j]) == pair:
          pieces[i], pieces[j] = "".join(pair), ""
          after[i], before[after[j]] = after[j], i
          merged.append(i)

      # The merged pieces form new pairs with their neighbours.
      for i in merged:
        push(before[i])
        push(i)
    return list(filter(None, pieces))


class Tokenizer(tokenization.FullTokenizer):
  """Turns text into the tokens and ids of GPT-1; see `FullTokenizer`."""

  shows_continuations = False

  def _read(self, vocab_file):
    merges = os.path.join(os.path.dirname(vocab_file), MERGES)
    if not files.exists(merges):
      raise ValueError(f"{vocab_file}: no {MERGES} beside it")
    vocab = load_vocab(vocab_file)
    return vocab, BpeSplitter(vocab, merges)

  def continues_word(self, token):
    return False  # A piece shows where a word ends, not where it begins.

  def join(self, tokens):
    """Returns the words that tokens are made of, with a space between them."""
    text = "".join(tokens).replace(_END, " ")
    return " ".join(self.basic_tokenizer.tokenize(text))

  def tokenize_with_offsets(self, text):
    """Splits text into tokens and returns their places in it."""
    # One entry for each character of the words: its start and end in the text,
    # which has other lengths where letters were lower-cased or lost an accent.
    sources = iter(self.basic_tokenizer.sources(text))
    tokens = []
    for word in self.basic_tokenizer.tokenize(text):
      # A token may be [UNK]: only its piece says how many characters it has.
      is_whole = word in self.never_split
      pieces = [word] if is_whole else self.wordpiece_tokenizer.pieces(word)
      for token, piece in zip(self.split_word(word), pieces, strict=True):
        length = len(piece.removesuffix(_END))
        places = list(itertools.islice(sources, length))
        start, end = places[0][0], places[-1][1]
        tokens.append(tokenization.SourceToken(token, start, end))
    return tokens
