"""The settings of create_vocab.py, and what they mean together."""

from collections.abc import Iterable
import dataclasses
import glob
import os
import pathlib

from bert.cli import flag_texts, model_folder, typed_flags
from bert.data import file_search
from bert.vocabularies import vocabulary_table

_flags = typed_flags.group("Flags")


@dataclasses.dataclass(frozen=True, kw_only=True)
class VocabSettings(typed_flags.Settings):
  """The settings of create_vocab.py."""

  input_file: str = _flags(
    typed_flags.REQUIRED,
    "Text files or globs, separated by commas; .gz and .xz are read, too.",
    path="files",
  )
  text_column: str | None = _flags(None, flag_texts.TEXT_COLUMN)
  output_file: str = _flags(
    typed_flags.REQUIRED,
    "The vocabulary to write, one token per line.",
    path="new_files",
  )
  vocab_size: int = _flags(
    30522, "The number of tokens. A small text may give fewer."
  )
  do_lower_case: bool = _flags(
    True, "Whether to lower-case the text and strip accents."
  )
  strip_accents: bool | None = _flags(
    None, flag_texts.STRIP_ACCENTS, needs="model=wordpiece"
  )
  model: str = _flags(
    "wordpiece",
    vocabulary_table.MODELS_HELP,
    choices=tuple(vocabulary_table.ENDINGS),
  )
  reserved_tokens: tuple[str, ...] = _flags(
    tuple(vocabulary_table.SPECIAL), "The first tokens of the vocabulary."
  )
  extend: str | None = _flags(
    None,
    "A vocabulary of WordPieces, to add tokens to that make --input_file "
    "shorter. They take the places of [unusedN], then they follow the last "
    "token.",
    path="file",
  )
  added_tokens: int = _flags(
    2000,
    "How many tokens to add, at most.",
    least=1,
    needs="extend",
  )

  def check(self) -> None:
    """Refuses flags that an extended vocabulary has no use for, too."""
    super().check()

    # With --extend the old vocabulary decides size, first tokens and kind. Only
    # flags that were given count: all have defaults.
    idle = {"vocab_size", "reserved_tokens", "model"} & self.given
    if self.extend and idle:
      raise ValueError(
        f"--{min(idle)} has no effect with --extend, which keeps all tokens "
        "and adds --added_tokens"
      )

    # Accents are stripped of lower-cased text alone.
    if self.strip_accents and not self.do_lower_case:
      raise ValueError("--strip_accents=true needs --do_lower_case=true")

    # Other kinds have a model of their own, which a list of tokens cannot give.
    plain = vocabulary_table.WORD_PIECES
    if self.extend and vocabulary_table.kind_of(self.extend) is not plain:
      raise ValueError(
        f"--extend={self.extend}: expected a vocabulary of WordPieces, "
        "vocab.txt"
      )


def check_casing(settings: VocabSettings, tokens: Iterable[str]) -> None:
  """Refuses words of another casing than a vocabulary's; ValueError."""
  # What files of the model beside it say counts more than a guess.
  casing, kind = model_folder.read_statements(str(settings.extend))
  if casing and casing[0] != settings.do_lower_case:
    lower, path = casing
    cure = f"--do_lower_case={str(lower).lower()}"
    raise ValueError(f"{path}: do_lower_case is {lower}: pass {cure}")

  # With capitals, accents stay too.
  keeps_accents = not settings.do_lower_case or settings.strip_accents is False
  if kind and kind[0].keeps_accents and not keeps_accents:
    raise ValueError(f"{kind[1]} keeps accents: pass --strip_accents=false")

  # Tokens with accents look cased.
  is_cased = vocabulary_table.is_cased(tokens, settings.strip_accents is False)
  if is_cased is not None and is_cased == settings.do_lower_case:
    raise ValueError(
      f"--do_lower_case={str(settings.do_lower_case).lower()}: the tokens of "
      f"{settings.extend} are {'' if is_cased else 'not '}cased: pass "
      f"--do_lower_case={str(not is_cased).lower()}"
    )


def check_files(settings: VocabSettings, inputs: list[str]) -> None:
  """Refuses reserved tokens and an output that cannot be; a ValueError.

  Args:
    settings: the flags.
    inputs: the files that --input_file names.
  """
  # Padding is the id 0 in all records, and a token has one id.
  reserved = settings.reserved_tokens
  missing = set(vocabulary_table.SPECIAL) - set(reserved)
  if missing or reserved[0] != "[PAD]" or len(set(reserved)) < len(reserved):
    raise ValueError(
      f"--reserved_tokens={','.join(reserved)}: expected [PAD] first (its id is"
      f" 0), {', '.join(vocabulary_table.SPECIAL[1:])}, and no token twice"
    )
  if settings.vocab_size < len(reserved):
    raise ValueError(
      f"--vocab_size={settings.vocab_size}: expected at least {len(reserved)}, "
      "for --reserved_tokens"
    )

  # The old vocabulary is read, too: a program does not write over its input.
  read = [*inputs, settings.extend] if settings.extend else inputs
  file_search.check_is_no_input(settings.output_file, read)

  # What follows reads the same texts.
  output = pathlib.PurePath(os.path.abspath(settings.output_file))
  here = glob.escape(os.getcwd())
  for pattern in map(str.strip, settings.input_file.split(",")):
    path = os.path.normpath(os.path.join(here, pattern))
    if glob.has_magic(pattern) and output.match(path):
      raise ValueError(
        f"--output_file={settings.output_file}: the next program would find it "
        f"by --input_file={pattern}, as text; name another folder or ending"
      )

  # All programs tell the kind of a vocabulary by the ending of its name. Some
  # kinds (.json) are read, but not learned here.
  ending = os.path.splitext(settings.output_file)[1]
  expected = vocabulary_table.ENDINGS[settings.model]
  endings = list(vocabulary_table.KINDS)
  if ending != expected and (expected or ending in endings):
    none = f"none of {', '.join(endings[:-1])} and {endings[-1]}"
    raise ValueError(
      f"--output_file={settings.output_file}: expected a name that ends in "
      f"{expected or none} with --model={settings.model}"
    )
