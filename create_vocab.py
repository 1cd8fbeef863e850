"""Learns a vocabulary from text: WordPieces, SentencePiece's model, or words.

  python create_vocab.py --input_file=corpus.txt --output_file=vocab.txt \\
      --vocab_size=8000

It learns from 7.3 MB of novels (36,499 different words) in 2 s on one core.
The words are the tokenizer's own, so the vocabulary fits it. --extend=vocab.txt
adds the words of a field to the vocabulary of a model (docs/domain.md).
"""

import collections
from collections.abc import Callable, Mapping
import functools
import itertools
import os
import time

from bert import tokenization
from bert.cli import program, vocab_settings
from bert.data import file_search, files, progress, text_files
from bert.vocabularies import (
  accented_pieces,
  extension,
  lost_letters,
  sentence_pieces,
  vocabulary_table,
)

# The most different words to learn from. `count_words` cuts its table back to
# the most frequent ones when it holds twice this many (200 MB).
_MAX_WORDS = 500_000
# Both are the defaults of tensorflow_text's learner: longer words are ignored,
# and the pieces are refined in this many passes.
_LONGEST_WORD = 50
_ITERATIONS = 3


def main() -> None:
  """Counts words, learns and writes the vocabulary, and sums up."""
  start = time.monotonic()

  # Wrong flags and wrong files must cost nothing: they are found before any
  # text is counted.
  settings = vocab_settings.VocabSettings.read()
  paths = file_search.expand_patterns(settings.input_file, "input_file")
  vocab_settings.check_files(settings, paths)
  text_files.check(paths, settings.text_column)

  if settings.extend:
    size, asked = extend(paths, settings), ""
    # The next program gives the model rows for the new tokens.
    command = program.command(
      "convert_checkpoint.py",
      input=os.path.dirname(settings.extend) or ".",
      add_tokens=settings.output_file,
      strip_accents=settings.strip_accents,
      output="extended",
    )
  else:
    # WordPieces are learned in this file, each other kind of vocabulary by a
    # module of its own.
    module = vocabulary_table.module_of(settings.output_file)
    size = module.learn(paths, settings) if module else learn(paths, settings)
    asked = f" of the {settings.vocab_size:,} asked for"
    # The next program must split words as they were split here.
    command = program.command(
      "create_pretraining_data.py",
      input_file=settings.input_file,
      vocab_file=settings.output_file,
      do_lower_case=None if settings.do_lower_case else "false",
      strip_accents=settings.strip_accents,
      output_file="examples.tfrecord",
    )
  program.print_end(
    start,
    f"wrote {settings.output_file}: {size:,} tokens{asked}",
    command=command,
  )


def extend(paths: list[str], settings: vocab_settings.VocabSettings) -> int:
  """Writes --extend with more tokens; returns how many it has then."""
  old = extension.read(settings.extend)
  vocab_settings.check_casing(settings, old)

  def choose(words: Mapping[str, int], *_) -> dict[str, None]:
    frequent = dict(by_frequency(words)[:_MAX_WORDS])
    return extension.extend(old, frequent, settings.added_tokens)

  return learn(paths, settings, choose=choose)


def learn(
  paths: list[str],
  settings: vocab_settings.VocabSettings,
  splitter: type[tokenization.BasicTokenizer] | None = None,
  choose: Callable[..., Mapping[str, None]] | None = None,
) -> int:
  """Chooses and writes the tokens of a vocabulary, a token a line.

  Args:
    paths: the files of text.
    settings: the flags.
    splitter: makes words of lines. Vocabularies of words have one of their own;
      None: as the flags say.
    choose: returns the tokens, in the order of their ids; takes words with
      their counts, the reserved tokens and the size. None: `learn_vocab`.

  Returns:
    The number of tokens.
  """
  keeps_accents = settings.strip_accents is False
  if not splitter:
    splitter = tokenization.BasicTokenizer
    if keeps_accents:
      splitter = accented_pieces.Splitter
  split = splitter(settings.do_lower_case).tokenize
  lines, total, characters, words = count_words(paths, settings, split)
  if not words:
    raise ValueError(f"--input_file={settings.input_file}: it holds no words")

  # If the text has more words than the table may hold, the rarest are missing.
  least = "at least " if sum(words.values()) < total else ""
  print(f"{lines:,} lines, {total:,} words, {least}{len(words):,} different")

  choose = choose or learn_vocab
  vocab = choose(words, list(settings.reserved_tokens), settings.vocab_size)
  files.write_lines(settings.output_file, vocab)

  # How good is it? The share of [UNK], and letters that lower-casing lost.
  print_coverage(words, vocab, total, characters)
  lost_letters.report_file(
    paths[0],
    settings.output_file,
    settings.do_lower_case and not keeps_accents,
    settings.text_column,
  )
  return len(vocab)


def count_words(
  paths: list[str],
  settings: vocab_settings.VocabSettings,
  split: Callable[[str], list[str]],
  most_words: int = _MAX_WORDS,
) -> tuple[int, int, int, collections.Counter]:
  """Counts lines, words, their characters, and how often each word occurs.

  Args:
    paths: the files of text.
    settings: `text_column` is read.
    split: makes words of a line.
    most_words: when the table holds twice as many, the rarer words are dropped.
      One that is dropped and comes again is counted from 0.

  Returns:
    The numbers of lines, of words, and of characters of words, of which none is
    dropped; and the table of counts.
  """
  read = functools.partial(text_files.read, column=settings.text_column)
  text = text_files.Text(paths, read)
  report = progress.Progress(1)

  lines = total = characters = 0
  counts = collections.Counter()
  for line in text.lines():
    words = split(line)
    counts.update(words)
    lines += 1
    total += len(words)
    characters += sum(map(len, words))

    # Half of a full table are rare words, nearly all of them seen once.
    if len(counts) > 2 * most_words:
      counts = collections.Counter(dict(by_frequency(counts)[:most_words]))

    # Asking first saves the text of the message and the part, for most lines.
    if report.is_due():
      report.print_part(f"counting words: {lines:,} lines", text.part_read())
  progress.clear()
  return lines, total, characters, counts


def by_frequency(counts: Mapping[str, int]) -> list[tuple[str, int]]:
  """Returns names and their counts, the most frequent first."""
  # Equal counts in alphabetical order: the same text, the same vocabulary.
  return sorted(counts.items(), key=lambda item: (-item[1], item[0]))


def choose_characters(
  words: Mapping[str, int], coverage: float = sentence_pieces.CHARACTER_COVERAGE
) -> tuple[list[str], list[str]]:
  """Chooses the characters of a vocabulary, the most frequent ones.

  Args:
    words: how often each occurs.
    coverage: the part of all characters of the text that they make up, 0 to 1.
      The rarest ones, many of them Chinese, become [UNK].

  Returns:
    Letters; and characters that BasicTokenizer makes a word alone, such as
    punctuation. Both are sorted.
  """
  counts = collections.Counter()
  for word, count in words.items():
    for char in word:
      counts[char] += count
  split = tokenization.BasicTokenizer(do_lower_case=False).tokenize
  letters = []
  lone_characters = []
  covered = 0
  enough = coverage * counts.total()
  for char, count in by_frequency(counts):
    if covered >= enough:
      break
    covered += count

    # A letter does not part its neighbours.
    if len(split(f"x{char}x")) == 1:
      letters.append(char)
    else:
      lone_characters.append(char)
  return sorted(letters), sorted(lone_characters)


def learn_vocab(
  words: Mapping[str, int], reserved_tokens: list[str], vocab_size: int
) -> dict[str, None]:
  """Returns reserved tokens, characters and the most frequent pieces.

  Args:
    words: how often each occurs.
    reserved_tokens: get the first ids.
    vocab_size: the most tokens; a small text gives fewer.

  Returns:
    The tokens as keys, in the order of their ids.
  """
  # With all letters as tokens, at the beginning of a word and within, no word
  # of them is [UNK]. A character that is a word alone is never within one.
  letters, lone_characters = choose_characters(words)
  continuations = [f"##{letter}" for letter in letters]
  vocab = dict.fromkeys(
    list(reserved_tokens) + lone_characters + letters + continuations
  )
  room = vocab_size - len(vocab)
  if room < 0:
    raise ValueError(
      f"--vocab_size={vocab_size}: expected at least {len(vocab)}, for the "
      "reserved tokens and characters (letters with and without ##)"
    )

  # Words with a rare character are [UNK] anyway; they must not give pieces.
  alphabet = set(letters)
  learnable = [
    (word, count)
    for word, count in by_frequency(words)[:_MAX_WORDS]
    if alphabet.issuperset(word)
  ]
  if room and learnable:
    vocab |= learn_pieces(learnable, vocab, room)
  return vocab


def learn_pieces(
  words: list[tuple[str, int]], vocab: Mapping[str, None], room: int
) -> dict[str, None]:
  """Returns at most `room` new pieces, the most frequent first.

  A learner takes a least frequency, and nobody knows how many pieces that will
  give. So the frequency is searched for by bisection, until the pieces fill the
  room with at most 5 % to spare.

  Args:
    words: how often each occurs, the most frequent first.
    vocab: the tokens so far.
    room: how many tokens are still wanted.
  """
  report = progress.Progress(1)
  learner = PieceLearner(words)

  def learn(frequency: int) -> dict[str, None]:
    report.print_part(f"learning pieces that occur {frequency:,} times", None)
    learned = learner.learn(frequency)
    return {piece: None for piece in learned if piece not in vocab}

  # The bounds' middle is the first guess: the frequency of the word that would
  # be the last one if whole words filled the room.
  low = 1
  high = 2 * words[min(room, len(words)) - 1][1]
  learned = {}
  pieces = {}  # The fewest that fill the room.
  while low <= high and not room <= len(learned) <= 1.05 * room:
    frequency = (low + high) // 2
    learned = learn(frequency)
    if len(learned) >= room:
      low = frequency + 1
      pieces = learned
    else:
      high = frequency - 1

  # A small text has too few pieces at any frequency. A higher one leaves fewer
  # words whole, so that parts of them become frequent: these fill the room.
  pieces = pieces or learned
  frequency = 2
  while len(pieces) < room and frequency <= words[0][1]:
    pieces |= learn(frequency)
    frequency *= 2
  progress.clear()
  return dict(itertools.islice(pieces.items(), room))


class PieceLearner:
  """Finds the pieces that occur often enough, as tensorflow_text does.

  Its learner (tensorflow_text.tools.wordpiece_vocab) counts every substring of
  every word. Then it subtracts, from the count of each substring, the counts of
  the longer substrings that begin with it. The difference is how often the
  substring *ends* a word. Here only the ends are counted: this gives the same
  pieces, 30 times as fast.
  """

  def __init__(self, words: list[tuple[str, int]]):
    """Counts all ends of words, given with the frequency of each."""
    counts = [count for _, count in words]
    self._least, self._most = min(counts), max(counts)

    # _words[n] has the words of n letters. `_count_ends` goes from long to
    # short: a piece that is cut off a word leaves a shorter rest.
    self._words = [{} for _ in range(_LONGEST_WORD + 1)]
    self._ends = collections.Counter()
    for word, count in words:
      if len(word) <= _LONGEST_WORD:
        self._words[len(word)][word] = count
        self._ends[word] += count
        for start in range(1, len(word)):
          self._ends[f"##{word[start:]}"] += count

    # Every letter is a piece, so that each word can be split somehow.
    letters = set().union(*itertools.chain.from_iterable(self._words))
    self._letters = letters | {f"##{letter}" for letter in letters}

  def learn(self, frequency: int) -> list[str]:
    """Returns the pieces of at least a frequency, the most frequent first."""
    # The library searches between two bounds, and begins in the middle. Here
    # both bounds are `frequency`, so the middle is, too, unless it lies beyond
    # the counts of all words: then it is halfway to the nearest of them.
    least = (min(frequency, self._most) + max(frequency, self._least)) // 2

    # At first, every rest of a word counts as an end. Each pass then splits
    # words only into the pieces that were frequent in the pass before.
    ends = self._ends
    for _ in range(_ITERATIONS):
      frequent = {end for end, count in ends.items() if count >= least}
      ends = self._count_ends(self._letters | frequent)
    frequent = {end: count for end, count in ends.items() if count >= least}
    return [piece for piece, _ in by_frequency(frequent)]

  def _count_ends(self, pieces: set[str]) -> dict[str, int]:
    """Counts the ends of words that begin where one of their pieces does."""
    levels = [dict(words) for words in self._words]
    for level in reversed(levels):
      for end, count in level.items():
        if end in pieces:
          continue

        # Cut off the longest piece that `end` begins with. The loop stops at
        # its first letter at the latest, as all letters are pieces.
        piece = end[:-1]
        while piece not in pieces:
          piece = piece[:-1]

        # The rest is an end, too, of another level by its letters (without ##).
        rest = f"##{end[len(piece) :]}"
        shorter = levels[len(rest) - 2]
        shorter[rest] = shorter.get(rest, 0) + count
    return {end: count for level in levels for end, count in level.items()}


def print_coverage(
  words: Mapping[str, int],
  vocab: Mapping[str, int],
  total: int,
  characters: int,
) -> None:
  """Prints which shares of the words and characters of the text are [UNK].

  Args:
    words: how often each occurs. Words that left the table of `count_words` are
      missing; they count as unknown.
    vocab: its keys are the tokens.
    total: the number of words in the text.
    characters: the number of characters in these words.
  """
  split = tokenization.WordpieceTokenizer(vocab).split_word
  readable_words = 0
  readable_characters = 0
  for word, count in words.items():
    if split(word) != ["[UNK]"]:
      readable_words += count
      readable_characters += count * len(word)

  print(
    f"[UNK] for {1 - readable_words / total:.2%} of the words,"
    f" {1 - readable_characters / characters:.2%} of the characters"
  )


if __name__ == "__main__":
  program.run_program(main, vocab_settings.VocabSettings)
