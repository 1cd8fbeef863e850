"""Learns a vocabulary from text: WordPieces, SentencePiece's model, or words.

  python create_vocab.py --input_file=corpus.txt --output_file=vocab.txt \\
      --vocab_size=8000

It learns from 7.3 MB of novels (36,499 different words) in 2 s on one core.
The words are the tokenizer's own, so the vocabulary fits it.
"""

import collections
from collections.abc import Callable, Mapping
import dataclasses
import functools
import itertools
import os
import time

from bert import tokenization
from bert.cli import flag_texts, program, typed_flags
from bert.data import file_search, files, progress, text_files
from bert.vocabularies import lost_letters, sentence_pieces, vocabulary_table

# At twice as many words, 200 MB, only this many of the frequent ones are kept,
# and from no more are pieces learned.
_MAX_WORDS = 500_000
# Longer words are ignored; the pieces are refined in this many passes: both
# are the defaults of tensorflow_text's learner.
_LONGEST_WORD = 50
_ITERATIONS = 3

_flags = typed_flags.group("Flags")


@dataclasses.dataclass(frozen=True, kw_only=True)
class VocabSettings(typed_flags.Settings):
  """The settings of this program."""

  input_file: str = _flags(
    typed_flags.REQUIRED, "Files or globs, .gz, .xz, by commas.", path="files"
  )
  text_column: str | None = _flags(None, flag_texts.TEXT_COLUMN)
  output_file: str = _flags(
    typed_flags.REQUIRED, "Vocabulary, a token a line.", path="new_files"
  )
  vocab_size: int = _flags(30522, "Tokens in all; a small text may give fewer.")
  do_lower_case: bool = _flags(True, "Whether to lower-case and strip accents.")
  model: str = _flags(
    "wordpiece",
    vocabulary_table.MODELS_HELP,
    choices=tuple(vocabulary_table.ENDINGS),
  )
  reserved_tokens: tuple[str, ...] = _flags(
    tuple(sentence_pieces.SPECIAL), "The vocabulary's first tokens."
  )


def main() -> None:
  """Counts words, learns and writes the vocabulary, and sums up."""
  start = time.monotonic()
  settings = VocabSettings.read()
  paths = file_search.expand_patterns(settings.input_file, "input_file")
  _check_flags(settings, paths)
  text_files.check(paths, settings.text_column)
  # Each kind of vocabulary but WordPieces is learned by a module of its own.
  module = vocabulary_table.module_of(settings.output_file)
  size = module.learn(paths, settings) if module else learn(paths, settings)
  command = program.command(
    "create_pretraining_data.py",
    input_file=settings.input_file,
    vocab_file=settings.output_file,
    do_lower_case=None if settings.do_lower_case else "false",
    output_file="examples.tfrecord",
  )
  program.print_end(
    start,
    f"wrote {settings.output_file}: {size:,} tokens of the "
    f"{settings.vocab_size:,} asked for",
    command=command,
  )


def learn(
  paths: list[str],
  settings: VocabSettings,
  splitter: type[tokenization.BasicTokenizer] = tokenization.BasicTokenizer,
  choose: Callable[..., Mapping[str, None]] | None = None,
) -> int:
  """Chooses and writes the tokens of a vocabulary, a token a line.

  Args:
    paths: the text.
    settings: the flags.
    splitter: makes words of lines.
    choose: returns the tokens; takes words with their counts, the reserved
      tokens and the size. By default `learn_vocab`.

  Returns how many tokens it has.
  """
  split = splitter(settings.do_lower_case).tokenize
  lines, total, characters, words = count_words(paths, settings, split)
  if not words:
    raise ValueError(f"--input_file={settings.input_file}: it holds no words")
  # The rarest of very many are no longer counted.
  least = "at least " if sum(words.values()) < total else ""
  print(f"{lines:,} lines, {total:,} words, {least}{len(words):,} different")
  reserved = list(settings.reserved_tokens)
  vocab = (choose or learn_vocab)(words, reserved, settings.vocab_size)
  files.write_lines(settings.output_file, vocab)
  print_coverage(words, vocab, total, characters)
  output = settings.output_file
  lost_letters.report_file(
    paths[0], output, settings.do_lower_case, settings.text_column
  )
  return len(vocab)


def _check_flags(settings: VocabSettings, inputs: list[str]) -> None:
  reserved = settings.reserved_tokens
  missing = set(sentence_pieces.SPECIAL) - set(reserved)
  if missing or reserved[0] != "[PAD]" or len(set(reserved)) < len(reserved):
    raise ValueError(
      f"--reserved_tokens={','.join(reserved)}: expected [PAD] first (its id is"
      f" 0), {', '.join(sentence_pieces.SPECIAL[1:])}, and no token twice"
    )
  if settings.vocab_size < len(reserved):
    raise ValueError(
      f"--vocab_size={settings.vocab_size}: expected at least {len(reserved)}, "
      "for --reserved_tokens"
    )
  file_search.check_is_no_input(settings.output_file, inputs)
  ending = os.path.splitext(settings.output_file)[1]
  expected = vocabulary_table.ENDINGS[settings.model]
  others = list(vocabulary_table.KINDS)
  if ending != expected and (expected or ending in others):
    none = f"none of {', '.join(others[:-1])} and {others[-1]}"
    raise ValueError(
      f"--output_file={settings.output_file}: expected a name that ends in "
      f"{expected or none} with --model={settings.model}"
    )


def count_words(
  paths: list[str],
  settings: VocabSettings,
  split: Callable[[str], list[str]],
  most_words: int = _MAX_WORDS,
) -> tuple[int, int, int, collections.Counter]:
  """Counts lines, words, their characters, and how often each word occurs."""
  read = functools.partial(text_files.read, column=settings.text_column)
  text, report = text_files.Text(paths, read), progress.Progress(1)
  words, number, total, characters = collections.Counter(), 0, 0, 0
  for number, line in enumerate(text.lines(), 1):
    found = split(line)
    words.update(found)
    total, characters = total + len(found), characters + len("".join(found))
    if len(words) > 2 * most_words:
      words = collections.Counter(dict(by_frequency(words)[:most_words]))
    if report.is_due():
      report.print_part(f"counting words: {number:,} lines", text.part_read())
  progress.clear()
  return number, total, characters, words


def by_frequency(counts: Mapping[str, int]) -> list[tuple[str, int]]:
  """Returns names and their counts, the most frequent first."""
  # Equal counts in alphabetical order: the same text, the same vocabulary.
  return sorted(counts.items(), key=lambda item: (-item[1], item[0]))


def choose_characters(
  words: Mapping[str, int], coverage: float = sentence_pieces.CHARACTER_COVERAGE
) -> tuple[list[str], list[str]]:
  """Returns frequent letters, and frequent characters that are words alone."""
  counts = collections.Counter()
  for word, count in words.items():
    for char in word:
      counts[char] += count
  split = tokenization.BasicTokenizer(do_lower_case=False).tokenize
  letters, others, covered = [], [], 0
  enough = coverage * counts.total()
  for char, count in by_frequency(counts):
    if covered < enough:
      (letters if len(split(f"x{char}x")) == 1 else others).append(char)
    covered += count
  return sorted(letters), sorted(others)


def learn_vocab(
  words: Mapping[str, int], reserved_tokens: list[str], vocab_size: int
) -> dict[str, None]:
  """Returns reserved tokens, characters and the most frequent pieces."""
  letters, others = choose_characters(words)
  continuations = [f"##{letter}" for letter in letters]
  vocab = dict.fromkeys(reserved_tokens + others + letters + continuations)
  room = vocab_size - len(vocab)
  if room < 0:
    raise ValueError(
      f"--vocab_size={vocab_size}: expected at least {len(vocab)}, for the "
      "reserved tokens and characters (letters with and without ##)"
    )
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
  words: list[tuple[str, int]], known: Mapping[str, None], room: int
) -> dict[str, None]:
  """Returns at most `room` new pieces, the most frequent first.

  How often a piece must occur for as many is found by bisection.

  Args:
    words: how often each occurs, the most frequent first.
    known: the vocabulary so far.
    room: how many tokens it lacks.
  """
  report = progress.Progress(1)
  learner = PieceLearner(words)

  def learn(frequency: int) -> dict[str, None]:
    report.print_part(f"learning pieces that occur {frequency:,} times", None)
    found = learner.learn(frequency)
    return {piece: None for piece in found if piece not in known}

  # The first guess: as if there were as many pieces as words so frequent.
  low, high = 1, 2 * words[min(room, len(words)) - 1][1]
  found, pieces = {}, {}
  while low <= high and not room <= len(found) <= 1.05 * room:
    frequency = (low + high) // 2
    found = learn(frequency)
    if len(found) >= room:
      low, pieces = frequency + 1, found
    else:
      high = frequency - 1

  # A small text has too few at any frequency. A higher one then leaves fewer
  # words whole, so that parts of them become frequent and fill the room.
  pieces, frequency = pieces or found, 2
  while len(pieces) < room and frequency <= words[0][1]:
    pieces |= learn(frequency)
    frequency *= 2
  progress.clear()
  return dict(itertools.islice(pieces.items(), room))


class PieceLearner:
  """Finds the pieces that occur often enough, as tensorflow_text does.

  Its learner (tensorflow_text.tools.wordpiece_vocab) counts every substring of
  every word, then takes from each count those of the longer substrings that
  begin with it. The rest is how often the substring *ends* a word, so here
  only the ends are counted: the same pieces, 30 times as fast.
  """

  def __init__(self, words: list[tuple[str, int]]):
    counts = [count for _, count in words]
    self._least, self._most = min(counts), max(counts)
    # By the number of letters, since a piece leaves fewer letters to be split.
    self._words = [{} for _ in range(_LONGEST_WORD + 1)]
    self._ends = collections.Counter()
    for word, count in words:
      if len(word) <= _LONGEST_WORD:
        self._words[len(word)][word] = count
        self._ends[word] += count
        for start in range(1, len(word)):
          self._ends[f"##{word[start:]}"] += count
    letters = set().union(*itertools.chain(*self._words))
    self._letters = letters | {f"##{letter}" for letter in letters}

  def learn(self, frequency: int) -> list[str]:
    """Returns the pieces of at least a frequency, the most frequent first."""
    # The library takes the middle of two bounds, within which it searches. Both
    # are this frequency here, but none goes beyond the counts of words.
    least = (min(frequency, self._most) + max(frequency, self._least)) // 2
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
        if end not in pieces:
          piece = end[:-1]
          # The longest one that `end` begins with, at least its first letter.
          while piece not in pieces:
            piece = piece[:-1]
          rest = f"##{end[len(piece) :]}"
          shorter = levels[len(rest) - 2]
          shorter[rest] = shorter.get(rest, 0) + count
    return dict(itertools.chain(*map(dict.items, levels)))


def print_coverage(
  words: Mapping[str, int],
  vocab: Mapping[str, int],
  total: int,
  characters: int,
) -> None:
  """Prints the shares of `total` words and their `characters` that are [UNK].

  `words` are those that were counted to the end: the others count as unknown.
  """
  split = tokenization.WordpieceTokenizer(vocab).split_word
  known = {w: n for w, n in words.items() if split(w) != ["[UNK]"]}
  read = sum(len(word) * count for word, count in known.items())
  print(
    f"[UNK] for {1 - sum(known.values()) / total:.2%} of the words,"
    f" {1 - read / characters:.2%} of the characters"
  )


if __name__ == "__main__":
  program.run_program(main, VocabSettings)
