"""Makes BERT's pre-training records: documents, sentence pairs, masked tokens.

The records of a block of documents depend on nothing else. One block of the
whole corpus (the default) gives the records of the original program; blocks of
N documents bound the memory and can be made in several processes at once.

For speed, a token is the bytes of its id in a record, which are only joined.
"""

from collections.abc import Callable, Iterable, Iterator
import dataclasses
import functools
import itertools
import math
import random
from typing import Any, NamedTuple, Protocol

from bert.data import record_writer, worker_processes

_LONGEST_CACHED_SHUFFLE = 1024

_concatenate = itertools.chain.from_iterable

# The bytes of a token's id in a record; the id itself, an int, where masks are
# drawn while records are read.
Token = Any
Document = list[list[Token]]  # The sentences' tokens.
ReportPart = Callable[[float], None]  # Takes the part done, 0 to 1.


@dataclasses.dataclass(frozen=True)
class RecordSettings:
  """The settings that decide the records of a text and a vocabulary."""

  max_seq_length: int = 128  # Tokens with [CLS] and each [SEP].
  max_predictions_per_seq: int = 20
  masked_lm_prob: float = 0.15  # Part of the tokens to be predicted.
  short_seq_prob: float = 0.1  # Part of the documents cut into shorter pairs.
  dupe_factor: int = 10  # Times each document is used, masked differently.
  do_whole_word_mask: bool = False
  documents_per_block: int = 0  # 0: the whole corpus is one block.
  random_seed: int = 12345
  masks: bool = True  # False: `bert/inputs/dynamic_masking.py` draws them.
  next_sentence: bool = True  # False: no pairs, see `make_sequences`.

  def __post_init__(self):
    """Raises a ValueError that names the invalid setting."""
    for name, least, most in (
      ("max_seq_length", 5, math.inf),  # [CLS] a [SEP] b [SEP]
      ("max_predictions_per_seq", 1, math.inf),
      ("masked_lm_prob", 0, 1),
      ("short_seq_prob", 0, 1),
      ("dupe_factor", 1, math.inf),
      ("documents_per_block", 0, math.inf),
    ):
      value = getattr(self, name)
      if not least <= value <= most:
        limits = "0 to 1" if most == 1 else f"at least {least}"
        raise ValueError(f"--{name}={value}: expected {limits}")
    if self.documents_per_block == 1:
      raise ValueError(
        "--documents_per_block=1: expected 0 (no blocks) or at least 2, for "
        "random next sentences"
      )


class MaskSettings(Protocol):
  """The settings that decide which tokens are masked."""

  @property
  def max_predictions_per_seq(self) -> int: ...

  @property
  def masked_lm_prob(self) -> float: ...

  @property
  def do_whole_word_mask(self) -> bool: ...


class Generator(random.Random):
  """Draws what `random.Random` draws, without its checks, twice as fast."""

  def below(self, limit: int) -> int:
    """Returns randint(0, limit - 1)."""
    bits = limit.bit_length()
    drawn = self.getrandbits(bits)
    while drawn >= limit:
      drawn = self.getrandbits(bits)
    return drawn

  def shuffle(self, items: list) -> None:
    """Shuffles a list in place."""
    getrandbits = self.getrandbits
    for last, bits in _shuffle_steps(len(items)):
      drawn = getrandbits(bits)
      while drawn > last:
        drawn = getrandbits(bits)
      items[last], items[drawn] = items[drawn], items[last]


def _make_steps(length: int) -> Iterator[tuple[int, int]]:
  """Yields the index to be filled and the bits to draw for it, last first."""
  for last in range(length - 1, 0, -1):
    yield last, (last + 1).bit_length()


_CACHED_STEPS = list(_make_steps(_LONGEST_CACHED_SHUFFLE))


def _shuffle_steps(length: int) -> Iterable[tuple[int, int]]:
  if length <= _LONGEST_CACHED_SHUFFLE:
    return _CACHED_STEPS[_LONGEST_CACHED_SHUFFLE - length :]
  return _make_steps(length)


class Vocabulary(NamedTuple):
  """A tokenizer and the tokens that masking needs."""

  file: str
  tokenize: Callable[[str], list[Token]]
  cls: Token
  sep: Token
  mask: Token
  unknown: Token
  tokens: list[Token]  # The different ones, in the order of the file.
  inner: frozenset[Token]  # Pieces that continue a word ("##ing").


class Pair(NamedTuple):
  """Two spans of text, short enough together; or one sequence."""

  tokens_a: list[Token]
  tokens_b: list[Token]  # Empty if the records are no pairs.
  is_random_next: bool  # The second one comes from somewhere else.
  is_truncated: bool


class Statistics(NamedTuple):
  """Counts of a text and its pairs."""

  documents: int
  sentences: int
  tokens: int
  unknown_tokens: int
  truncated_pairs: int
  documents_alone: int  # Left out: no other one of their block has tokens.


class Block(NamedTuple):
  """The records of a block of documents."""

  records: list[bytes]  # Serialized tf.train.Example.
  statistics: Statistics


def make_vocabulary(
  tokenizer: Any,
  vocab_file: str,
  encode_id: Callable[[int], Any] = record_writer.encode_integer,
) -> Vocabulary:
  """Encodes a `FullTokenizer`'s ids and looks up the special tokens."""
  vocab, is_inner = tokenizer.vocab, tokenizer.continues_word
  special = ("[CLS]", "[SEP]", "[MASK]", "[UNK]")
  missing = [token for token in special if token not in vocab]
  if missing:
    raise ValueError(
      f"{vocab_file}: no {', '.join(missing)} among its {len(vocab)} tokens; "
      "expected the vocabulary of a BERT, one token a line"
    )
  encoded = {i: encode_id(i) for i in vocab.values()}
  return Vocabulary(
    vocab_file,
    # A partial can be pickled for other processes, a lambda cannot.
    functools.partial(_tokenize, tokenizer.encode, encoded),
    cls=encoded[vocab["[CLS]"]],
    sep=encoded[vocab["[SEP]"]],
    mask=encoded[vocab["[MASK]"]],
    unknown=encoded[vocab["[UNK]"]],
    tokens=list(encoded.values()),
    inner=frozenset(encoded[i] for t, i in vocab.items() if is_inner(t)),
  )


def _tokenize(encode, encoded, text) -> list[Token]:
  return list(map(encoded.__getitem__, encode(text)))


def read_documents(lines: Iterable[str]) -> Iterator[list[str]]:
  """Groups sentences, a line each, into documents, which a blank line ends."""
  for is_text, sentences in itertools.groupby(map(str.strip, lines), bool):
    if is_text:
      yield list(sentences)


def cut_blocks(
  documents: Iterable[list[str]], documents_per_block: int
) -> Iterator[Iterable[list[str]]]:
  """Cuts a corpus into blocks that are made independently.

  The last block has at least two documents, which random next sentences need,
  and at most one more than the others. A size of 0 makes one block of all.
  """
  documents = iter(documents)
  if not documents_per_block:
    yield documents
    return
  block = list(itertools.islice(documents, documents_per_block))
  while ahead := list(itertools.islice(documents, 2)):
    if len(ahead) == 1:
      block += ahead
      break
    yield block
    block = ahead + list(itertools.islice(documents, documents_per_block - 2))
  yield block


def make_blocks(
  documents: Iterable[list[str]],
  vocabulary: Vocabulary,
  settings: RecordSettings,
  num_processes: int = 1,
  progress: ReportPart | None = None,
  share: tuple[int, int] = (0, 1),
) -> Iterator[Block]:
  """Makes the records of a corpus, block by block, in order.

  Documents, lists of sentences, are read no faster than needed. `progress`
  takes the part done of a block, in one process only. A `share` (i, n) is every
  n-th block from block i on.
  """
  blocks = enumerate(cut_blocks(documents, settings.documents_per_block))
  first, step = share
  return worker_processes.map_in_order(
    functools.partial(BlockMaker, vocabulary, settings, progress),
    itertools.islice(blocks, first, None, step),
    num_processes,
    "--documents_per_block or --num_processes",
  )


class BlockMaker(NamedTuple):
  """Makes the numbered blocks that it is called with, from nothing else.

  Documents without tokens are left out. If only one document of a block is
  left, it makes no pairs, because a random next sentence would be its own.
  """

  vocabulary: Vocabulary
  settings: RecordSettings
  progress: ReportPart | None = None

  def __call__(self, task: tuple[int, Iterable[list[str]]]) -> Block:
    """Makes a block of its number, which seeds it, and its documents."""
    vocabulary, settings, progress = self
    number, documents = task
    sentences = (map(vocabulary.tokenize, text) for text in documents)
    tokenized = [*filter(None, (list(filter(None, s)) for s in sentences))]
    seed = settings.random_seed  # The first block's is the original's.
    rng = Generator(f"{seed}, block {number}" if number else seed)
    rng.shuffle(tokenized)
    records, truncated = [], 0
    is_alone = len(tokenized) == 1 and settings.next_sentence
    total = 0 if is_alone else settings.dupe_factor * len(tokenized)
    for done in range(total):
      # The draws of pairs and masks take turns: no pair is made in advance.
      for pair in make_pairs(tokenized, done % len(tokenized), settings, rng):
        records.append(_make_record(pair, vocabulary, settings, rng))
        truncated += pair.is_truncated
      if progress:
        progress((done + 1) / total)
    rng.shuffle(records)
    kept = list(_concatenate(tokenized))
    statistics = Statistics(
      documents=len(tokenized),
      sentences=len(kept),
      tokens=sum(map(len, kept)),
      unknown_tokens=sum(s.count(vocabulary.unknown) for s in kept),
      truncated_pairs=truncated,
      documents_alone=1 if is_alone else 0,
    )
    return Block(records, statistics)


def add_up(
  statistics: Iterable[Statistics], settings: RecordSettings
) -> Statistics:
  """Adds up the counts of blocks; a ValueError if they made no record."""
  statistics = list(statistics)
  if not statistics:
    raise ValueError(
      "there is no block for this job: lower --num_shards, or "
      "--documents_per_block"
    )
  total = Statistics(*map(sum, zip(*statistics, strict=True)))
  if not total.documents:
    raise ValueError("the input holds no text")
  if total.documents == total.documents_alone:
    size = settings.documents_per_block
    fault = "the input is one document"
    if size:
      fault = f"no block of --documents_per_block={size} holds two documents"
    raise ValueError(
      f"{fault}; random next sentences need another: put a blank line between "
      "documents, also where files end"
    )
  return total


def make_pairs(
  documents: list[Document],
  index: int,
  settings: RecordSettings,
  rng: Generator,
) -> Iterator[Pair]:
  """Makes sentence pairs from one document, in half of them a random second.

  Whole sentences are collected until the pair is full, then split somewhere: an
  arbitrary length would make it too easy to tell whether two spans belong
  together. Some documents get a shorter target, for texts in use are often
  short.
  """
  document = documents[index]
  if not settings.next_sentence:
    yield from make_sequences(document, settings.max_seq_length - 2)
    return
  max_tokens = settings.max_seq_length - 3
  target = max_tokens
  if rng.random() < settings.short_seq_prob:
    target = 2 + rng.below(max_tokens - 1)
  start = end = length = 0
  while end < len(document):
    length += len(document[end])
    end += 1
    if length < target and end < len(document):
      continue
    split = end
    if end - start > 1:
      split = start + 1 + rng.below(end - start - 1)
    tokens_a = list(_concatenate(document[start:split]))
    is_random_next = end - start == 1 or rng.random() < 0.5
    if is_random_next:
      target_b = target - len(tokens_a)
      tokens_b = _draw_other_text(documents, index, target_b, rng)
      end = split  # The next pair starts with the unused sentences.
    else:
      tokens_b = list(_concatenate(document[split:end]))
    is_truncated = len(tokens_a) + len(tokens_b) > max_tokens
    if is_truncated:
      tokens_a, tokens_b = truncate_randomly(
        tokens_a, tokens_b, max_tokens, rng
      )
    yield Pair(tokens_a, tokens_b, is_random_next, is_truncated)
    start, length = end, 0


def make_sequences(document: Document, max_tokens: int) -> Iterator[Pair]:
  """Joins sentences, and cuts long ones: RoBERTa's DOC-SENTENCES (4.2)."""
  tokens = []
  for sentence in document:
    for start in range(0, len(sentence), max_tokens):
      piece = sentence[start : start + max_tokens]
      if len(tokens) + len(piece) > max_tokens:
        yield Pair(tokens, [], False, False)
        tokens = []
      tokens = tokens + piece
  yield Pair(tokens, [], False, False)


def _draw_other_text(documents, index, target, rng) -> list[Token]:
  """Returns whole sentences from a random place in another document."""
  # Ten tries, as in the original: it may end in the same document after all.
  for _ in range(10):
    other = rng.below(len(documents))
    if other != index:
      break
  document = documents[other]
  tokens = []
  for place in range(rng.below(len(document)), len(document)):
    tokens += document[place]
    if len(tokens) >= target:
      break
  return tokens


def truncate_randomly(
  tokens_a: list[Token], tokens_b: list[Token], max_tokens: int, rng: Generator
) -> tuple[list[Token], list[Token]]:
  """Removes tokens from the longer span, at its front or back at random."""
  start_a, end_a, start_b, end_b = 0, len(tokens_a), 0, len(tokens_b)
  for _ in range(len(tokens_a) + len(tokens_b) - max_tokens):
    at_front = rng.random() < 0.5
    if end_a - start_a > end_b - start_b:
      start_a += at_front
      end_a -= not at_front
    else:
      start_b += at_front
      end_b -= not at_front
  return tokens_a[start_a:end_a], tokens_b[start_b:end_b]


def mask_tokens(
  tokens: list[Token],
  length_a: int,
  vocabulary: Vocabulary,
  settings: MaskSettings,
  rng: Generator,
) -> tuple[list[Token], list[int]]:
  """Replaces random tokens: 80 % by [MASK], 10 % by others, 10 % by themselves.

  Takes [CLS] a [SEP] b [SEP] and the length of [CLS] a [SEP]; returns the new
  tokens, and the positions to predict, increasing.
  """
  wanted = max(1, round(len(tokens) * settings.masked_lm_prob))
  wanted = min(wanted, settings.max_predictions_per_seq)
  positions = [*range(1, length_a - 1), *range(length_a, len(tokens) - 1)]
  if settings.do_whole_word_mask:
    words = _group_words(positions, tokens, vocabulary.inner)
    rng.shuffle(words)
    positions = []
    for word in words:  # The first that fit.
      if len(positions) + len(word) <= wanted:
        positions += word
        if len(positions) == wanted:
          break
  else:
    rng.shuffle(positions)
    del positions[wanted:]
  masked = tokens.copy()
  for position in positions:
    if rng.random() < 0.8:
      masked[position] = vocabulary.mask
    elif rng.random() >= 0.5:
      masked[position] = vocabulary.tokens[rng.below(len(vocabulary.tokens))]
  return masked, sorted(positions)


def _group_words(positions, tokens, inner) -> list[list[int]]:
  """Returns the positions of each word.

  As in the original, a second span that starts within a word, since it was
  truncated, counts to the last word of the first one.
  """
  words = []
  for position in positions:
    if words and tokens[position] in inner:
      words[-1].append(position)
    else:
      words.append([position])
  return words


def _make_record(pair, vocabulary, settings, rng) -> bytes:
  cls, sep = vocabulary.cls, vocabulary.sep
  tokens = [cls, *pair.tokens_a, sep, *pair.tokens_b, sep]
  length_a, length_b = len(pair.tokens_a) + 2, len(pair.tokens_b) + 1
  if not settings.next_sentence:
    tokens, length_b = tokens[:length_a], 0
  masked, positions = tokens, []
  if settings.masks:
    masked, positions = mask_tokens(tokens, length_a, vocabulary, settings, rng)
  # The number 0 is one zero byte, so `bytes(n)` is n zeros.
  padding = bytes(settings.max_seq_length - len(tokens))
  unused = bytes(settings.max_predictions_per_seq - len(positions))
  integers = {
    "input_ids": b"".join(masked) + padding,
    "input_mask": b"\1" * len(tokens) + padding,
    "segment_ids": b"\0" * length_a + b"\1" * length_b + padding,
    "masked_lm_positions": (
      b"".join(map(record_writer.encode_id, positions)) + unused
    ),
    "masked_lm_ids": b"".join(map(tokens.__getitem__, positions)) + unused,
    "next_sentence_labels": b"\1" if pair.is_random_next else b"\0",
  }
  features = {k: record_writer.packed_feature(v) for k, v in integers.items()}
  features["masked_lm_weights"] = _encode_weights(len(positions), len(unused))
  if not settings.masks:
    features = {k: v for k, v in features.items() if "masked" not in k}
  if not settings.next_sentence:
    del features["next_sentence_labels"]
  return record_writer.encode_example(features)


@functools.cache
def _encode_weights(predictions: int, unused: int) -> bytes:
  return record_writer.float_feature([1.0] * predictions + [0.0] * unused)
