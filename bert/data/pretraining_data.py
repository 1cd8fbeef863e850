"""Makes BERT's pre-training records: documents, sentence pairs, masked tokens.

The way of a text:

  read_documents  groups lines (sentences) into documents, and
  cut_blocks      documents into blocks. One block of the whole corpus (the
                  default) gives the records of the original program; blocks of
                  N documents bound the memory, and processes can share them.
  BlockMaker      makes the records of a block, which depend on nothing else:
  make_pairs      two spans of text, the second in half of the pairs at random,
  mask_tokens     of which 15 % of the tokens are to be predicted.

BERT's paper describes pairs and masks in section 3.1 and appendix A.1. To be
fast, a token here is the bytes that protobuf writes for its id: a record is
made by joining them.
"""

from collections.abc import Callable, Container, Iterable, Iterator
import dataclasses
import functools
import itertools
import math
import random
from typing import Any, NamedTuple, Protocol

from bert.data import record_writer, worker_processes

# Documents and positions are shuffled by the hundred thousand, and most lists
# are short: the steps of a shuffle up to this length are computed once.
_LONGEST_CACHED_SHUFFLE = 1024

_concatenate = itertools.chain.from_iterable

# While records are written, the id as protobuf writes it: a record is their
# concatenation. In `bert/inputs/dynamic_masking.py`, which draws masks while
# records are read, the id itself, an int.
Token = Any
Document = list[list[Token]]  # The sentences' tokens.
ReportPart = Callable[[float], None]  # Takes the part done, 0 to 1.


@dataclasses.dataclass(frozen=True)
class RecordSettings:
  """The settings of the records.

  The text, the vocabulary and these settings alone decide the records: neither
  the number of processes nor the machine changes a byte.
  """

  max_seq_length: int = 128  # Tokens with [CLS] and each [SEP].
  max_predictions_per_seq: int = 20
  masked_lm_prob: float = 0.15  # Part of the tokens to be predicted.
  short_seq_prob: float = 0.1  # Part of the documents cut into shorter pairs.
  dupe_factor: int = 10  # Times each document is used, masked differently.
  do_whole_word_mask: bool = False  # Masks all pieces of a word, or none.
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
  """Draws what `random.Random` draws, without its checks, twice as fast.

  Since Python 3.2, `random.Random` takes as many random bits as the limit has,
  and again until the number is small enough. The same is written out here.
  """

  def below(self, limit: int) -> int:
    """Returns randint(0, limit - 1)."""
    bits = limit.bit_length()
    drawn = self.getrandbits(bits)
    while drawn >= limit:
      drawn = self.getrandbits(bits)
    return drawn

  def shuffle(self, items: list) -> None:
    """Shuffles a list in place."""
    # From the last place to the first: swap it with one before it, or itself.
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
  # A shorter shuffle has the last steps of a longer one.
  if length <= _LONGEST_CACHED_SHUFFLE:
    return _CACHED_STEPS[_LONGEST_CACHED_SHUFFLE - length :]
  return _make_steps(length)


class Vocabulary(NamedTuple):
  """A tokenizer and the tokens that masking needs."""

  file: str  # Its path, for messages.
  tokenize: Callable[[str], list[Token]]
  cls: Token
  sep: Token
  mask: Token
  unknown: Token
  tokens: list[Token]  # All different ones, in the order of the file.
  inner: Container[Token]  # Pieces that continue a word ("##ing").


class Pair(NamedTuple):
  """Two spans of text that fit into a record; or one sequence."""

  tokens_a: list[Token]
  tokens_b: list[Token]  # Empty in records of single sequences.
  is_random_next: bool  # The second span comes from somewhere else.
  is_truncated: bool  # Tokens were removed, so that it fits.


class Statistics(NamedTuple):
  """Counts of a text and its pairs."""

  documents: int
  sentences: int
  tokens: int
  unknown_tokens: int
  truncated_pairs: int
  documents_alone: int  # Left out: no other document of the block has tokens.


class Block(NamedTuple):
  """The records of a block of documents."""

  records: list[bytes]  # Serialized tf.train.Example.
  statistics: Statistics


def make_vocabulary(
  tokenizer: Any,
  vocab_file: str,
  encode_id: Callable[[int], Any] = record_writer.encode_integer,
) -> Vocabulary:
  """Encodes a `FullTokenizer`'s ids and looks up the special tokens.

  Args:
    tokenizer: a `FullTokenizer`, or the tokenizer of another kind.
    vocab_file: its path, for messages.
    encode_id: makes a `Token` of an id. By default the bytes of a record; `int`
      gives the ids themselves.

  Raises:
    ValueError: a special token is missing.
  """
  # [UNK] is counted only, for the summary; the rest stands in records.
  vocab = tokenizer.vocab
  special = ("[CLS]", "[SEP]", "[MASK]", "[UNK]")
  missing = [token for token in special if token not in vocab]
  if missing:
    raise ValueError(
      f"{vocab_file}: no {', '.join(missing)} among its {len(vocab)} tokens; "
      "expected the vocabulary of a BERT, one token a line"
    )

  # Tokens may share an id (see `load_vocab`), which is drawn once only.
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
    inner=frozenset(
      encoded[i]
      for token, i in vocab.items()
      if tokenizer.continues_word(token)
    ),
  )


def _tokenize(encode, encoded, text) -> list[Token]:
  return [encoded[i] for i in encode(text)]


def read_documents(lines: Iterable[str]) -> Iterator[list[str]]:
  """Groups sentences, a line each, into documents, which a blank line ends.

  The end of a file ends no document: of several files, pass the lines of all.
  """
  for is_text, sentences in itertools.groupby(map(str.strip, lines), bool):
    if is_text:
      yield list(sentences)


def cut_blocks(
  documents: Iterable[list[str]], documents_per_block: int
) -> Iterator[Iterable[list[str]]]:
  """Cuts a corpus into blocks that are made independently.

  The last block has at least two documents, which random next sentences need,
  and at most one more than the blocks before it. A size of 0 makes one block of
  all documents, which is not held in memory here.
  """
  documents = iter(documents)
  if not documents_per_block:
    yield documents
    return

  # A block leaves only when two more documents are known: a single last one
  # could not have a block for itself.
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

  Args:
    documents: lists of sentences, read no faster than needed.
    vocabulary: from `make_vocabulary`.
    settings: decide the records.
    num_processes: blocks made at once. The records do not depend on it; more
      than 1 needs `settings.documents_per_block`.
    progress: takes the part of a block that is done, 0 to 1; called only with
      `num_processes` of 1.
    share: (i, n): makes every n-th block, from block i on. So n jobs share the
      work.
  """
  # Blocks are numbered before they are shared: the number seeds the draws.
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
  (The original makes them; `add_up` refuses a text that is nothing else.)
  """

  vocabulary: Vocabulary
  settings: RecordSettings
  progress: ReportPart | None = None

  def __call__(self, task: tuple[int, Iterable[list[str]]]) -> Block:
    """Makes a block of its number, which seeds it, and its documents."""
    vocabulary, settings, progress = self
    number, documents = task

    # All tokens of the block are in memory from here on, as bytes that equal
    # tokens share.
    tokenized = _tokenize_documents(documents, vocabulary.tokenize)

    # The first block has the seed of the original, and so its records.
    seed = settings.random_seed
    rng = Generator(f"{seed}, block {number}" if number else seed)
    rng.shuffle(tokenized)

    # Each round over all documents (`dupe_factor`) draws other pairs and masks.
    records = []
    truncated = 0
    is_alone = len(tokenized) == 1 and settings.next_sentence
    # (`total` counts documents made into pairs, of all rounds.)
    total = 0 if is_alone else settings.dupe_factor * len(tokenized)
    for done in range(total):
      # The draws of pairs and masks take turns: no pair is made in advance.
      for pair in make_pairs(tokenized, done % len(tokenized), settings, rng):
        records.append(_make_record(pair, vocabulary, settings, rng))
        truncated += pair.is_truncated
      if progress:
        progress((done + 1) / total)

    # Neighbours in a document would else be neighbours in a batch.
    rng.shuffle(records)
    sentences = list(_concatenate(tokenized))
    statistics = Statistics(
      documents=len(tokenized),
      sentences=len(sentences),
      tokens=sum(map(len, sentences)),
      unknown_tokens=sum(s.count(vocabulary.unknown) for s in sentences),
      truncated_pairs=truncated,
      documents_alone=1 if is_alone else 0,
    )
    return Block(records, statistics)


def _tokenize_documents(documents, tokenize) -> list[Document]:
  """Returns documents of tokens, without empty sentences and documents."""
  tokenized = []
  for lines in documents:
    sentences = map(tokenize, lines)
    if document := [sentence for sentence in sentences if sentence]:
      tokenized.append(document)
  return tokenized


def add_up(
  statistics: Iterable[Statistics], settings: RecordSettings
) -> Statistics:
  """Adds up the counts of blocks; a ValueError if they made no record."""
  statistics = list(statistics)

  # Jobs share the blocks (`share` of `make_blocks`), and there may be too few.
  if not statistics:
    raise ValueError(
      "there is no block for this job: lower --num_shards, or "
      "--documents_per_block"
    )
  total = Statistics(*map(sum, zip(*statistics, strict=True)))
  if not total.documents:
    raise ValueError("--input_file: the input holds no text; expected some")

  # No block had two documents, so there is not one record.
  if total.documents == total.documents_alone:
    size = settings.documents_per_block
    fault = "--input_file: the input is one document"
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
  """Makes sentence pairs from one document, about half with a random second.

  Whole sentences are collected until the pair is full, then split somewhere: an
  arbitrary length would make it too easy to tell whether two spans belong
  together.

  Args:
    documents: where random second spans come from; lists of sentences, each a
      list of tokens.
    index: the document to be made into pairs.
    settings: decide the length, and whether there are pairs at all.
    rng: is drawn from whenever the next pair is asked for. The order of draws
      is the original's and must stay: records are compared byte by byte.
  """
  document = documents[index]
  if not settings.next_sentence:
    # [CLS] tokens [SEP]
    yield from make_sequences(document, settings.max_seq_length - 2)
    return

  # [CLS] a [SEP] b [SEP]. Texts in use are often shorter than the longest that
  # a model takes, so some documents are made into shorter pairs.
  max_tokens = settings.max_seq_length - 3
  target = max_tokens
  if rng.random() < settings.short_seq_prob:
    target = 2 + rng.below(max_tokens - 1)

  start = end = length = 0
  while end < len(document):
    # Take sentences start to end until they are long enough, or run out.
    length += len(document[end])
    end += 1
    if length < target and end < len(document):
      continue

    # The first span is some of them, but never all if there are two or more.
    split = end
    if end - start > 1:
      split = start + 1 + rng.below(end - start - 1)
    tokens_a = list(_concatenate(document[start:split]))

    # A single sentence has no next one, so its second span must be random. The
    # sentences that a random span replaces begin the next pair.
    is_random_next = end - start == 1 or rng.random() < 0.5
    if is_random_next:
      target_b = target - len(tokens_a)
      tokens_b = _draw_other_text(documents, index, target_b, rng)
      end = split
    else:
      tokens_b = list(_concatenate(document[split:end]))

    # Whole sentences overshoot the target. A short pair is not cut to its
    # target, only to what fits into a record.
    is_truncated = len(tokens_a) + len(tokens_b) > max_tokens
    if is_truncated:
      tokens_a, tokens_b = truncate_randomly(
        tokens_a, tokens_b, max_tokens, rng
      )
    yield Pair(tokens_a, tokens_b, is_random_next, is_truncated)
    start = end
    length = 0


def make_sequences(document: Document, max_tokens: int) -> Iterator[Pair]:
  """Joins sentences of one document, and cuts long ones.

  This is DOC-SENTENCES of RoBERTa (section 4.2): inputs without a second span,
  which do not cross the ends of documents.
  """
  tokens = []
  for sentence in document:
    for start in range(0, len(sentence), max_tokens):
      piece = sentence[start : start + max_tokens]
      if len(tokens) + len(piece) > max_tokens:
        yield Pair(tokens, [], False, False)
        tokens = []
      tokens = tokens + piece  # A new list: the old one has been given away.
  yield Pair(tokens, [], False, False)


def _draw_other_text(documents, index, target, rng) -> list[Token]:
  """Returns whole sentences from a random place in another document."""
  # Ten tries, as in the original: if all of them draw the document `index`, the
  # "random" text comes from the same document as the first one.
  for _ in range(10):
    other = rng.below(len(documents))
    if other != index:
      break

  document = documents[other]
  tokens = []
  for sentence in document[rng.below(len(document)) :]:
    tokens += sentence
    if len(tokens) >= target:
      break
  return tokens


def truncate_randomly(
  tokens_a: list[Token], tokens_b: list[Token], max_tokens: int, rng: Generator
) -> tuple[list[Token], list[Token]]:
  """Removes tokens from the longer span, at its front or back at random.

  The paper does not say so; the original does it "to add more randomness and
  avoid biases".

  Args:
    tokens_a: the first span.
    tokens_b: the second one, which loses a token if both are equally long.
    max_tokens: for both together.
    rng: draws once for each token that is removed.

  Returns:
    The shortened spans, which are new lists.
  """
  start_a = start_b = 0
  end_a = len(tokens_a)
  end_b = len(tokens_b)

  # Only the four ends move, by one each time (True counts as 1): the tokens are
  # copied once, at the end.
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

  A model that only ever predicted under [MASK] would not learn to represent the
  words of texts without it (section 3.1 and appendix A.1 of the paper).

  Args:
    tokens: [CLS] a [SEP] b [SEP], without padding; stays as it is.
    length_a: the length of [CLS] a [SEP].
    vocabulary: whose tokens may take the place of a token.
    settings: how many tokens to predict.
    rng: the order of its draws is the original's.

  Returns:
    The new tokens, and the positions to predict, increasing.
  """
  # As in the original, [CLS] and [SEP] count for the number of predictions.
  wanted = max(1, round(len(tokens) * settings.masked_lm_prob))
  wanted = min(wanted, settings.max_predictions_per_seq)

  # All positions but those of [CLS] and [SEP].
  positions = [*range(1, length_a - 1), *range(length_a, len(tokens) - 1)]
  if settings.do_whole_word_mask:
    words = _group_words(positions, tokens, vocabulary.inner)
    rng.shuffle(words)
    # Take the first words that fit: a longer one is left out, not cut.
    positions = []
    for word in words:
      if len(positions) + len(word) <= wanted:
        positions += word
        if len(positions) == wanted:
          break
  else:
    rng.shuffle(positions)
    del positions[wanted:]

  # The positions are in random order here, and the draws follow it.
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
  # The first token has no word before it to continue, so it begins one.
  words = []
  for position in positions:
    if words and tokens[position] in inner:
      words[-1].append(position)
    else:
      words.append([position])
  return words


def _make_record(pair, vocabulary, settings, rng) -> bytes:
  """Masks a pair, pads it, and returns it as a serialized tf.train.Example."""
  # [CLS] a [SEP] b [SEP], or [CLS] a [SEP] in records of single sequences.
  cls, sep = vocabulary.cls, vocabulary.sep
  tokens = [cls, *pair.tokens_a, sep]
  length_a = len(tokens)
  if settings.next_sentence:
    tokens += [*pair.tokens_b, sep]
  length_b = len(tokens) - length_a

  # Without masks here, the reader of the records draws them in each epoch.
  masked, positions = tokens, []
  if settings.masks:
    masked, positions = mask_tokens(tokens, length_a, vocabulary, settings, rng)

  # Protobuf writes a list of integers by joining the bytes of each. 0 and 1 are
  # one byte each, so `bytes(n)`, n zero bytes, is n zeros.
  padding = bytes(settings.max_seq_length - len(tokens))
  unused = bytes(settings.max_predictions_per_seq - len(positions))
  # The names of all features are those of the original.
  integers = {
    "input_ids": b"".join(masked) + padding,
    "input_mask": b"\1" * len(tokens) + padding,
    "segment_ids": b"\0" * length_a + b"\1" * length_b + padding,
    "masked_lm_positions": (
      b"".join(map(record_writer.encode_id, positions)) + unused
    ),
    "masked_lm_ids": b"".join(tokens[i] for i in positions) + unused,
    # 1 is a random second span, 0 the true next one.
    "next_sentence_labels": b"\1" if pair.is_random_next else b"\0",
  }
  features = {k: record_writer.packed_feature(v) for k, v in integers.items()}
  features["masked_lm_weights"] = _encode_weights(len(positions), len(unused))

  # Without masks or pairs, nothing in the record says that there were none:
  # the keys are absent.
  if not settings.masks:
    features = {k: v for k, v in features.items() if "masked" not in k}
  if not settings.next_sentence:
    del features["next_sentence_labels"]
  return record_writer.encode_example(features)


@functools.cache
def _encode_weights(predictions: int, unused: int) -> bytes:
  # The loss counts real predictions by 1 and unused places by 0.
  return record_writer.float_feature([1.0] * predictions + [0.0] * unused)
