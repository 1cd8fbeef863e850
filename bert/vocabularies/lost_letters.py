"""Says how many letters lower-casing strips from a text.

BERT's lower-casing also drops combining marks (Mn). Those are the accents of
French, but the vowel signs of Hindi and the dakuten of Japanese, too, without
which other words remain; the vocabulary knows these, so that no [UNK] shows it.
"""

from collections.abc import Iterable
import unicodedata

from bert import tokenization
from bert.data import progress, text_files
from bert.vocabularies import vocabulary_table

_CHARACTERS = 100_000  # The part of a text to look at.
_LEAST = 0.01  # A share that is worth a line.
_AROUND = 6  # Characters of an example on each side of the first that changes.


def report(texts: Iterable[str], name: str) -> None:
  """Prints a line if lower-casing strips 1 % of the letters of some texts.

  Args:
    texts: of which only the first 100,000 characters are looked at.
    name: of their file, for the line.
  """
  seen = letters = lost = 0
  example = ""
  for text in texts:
    for word in text[: _CHARACTERS - seen].split():
      # Letters (L) and marks (M) of the decomposed word; the non-spacing marks
      # (Mn) among them get lost.
      categories = [_categories(char) for char in word]
      for names in categories:
        letters += sum(name[0] in "LM" for name in names)
        lost += names.count("Mn")

      # The first word that loses a mark is the example, cut around it.
      places = [i for i, names in enumerate(categories) if "Mn" in names]
      if places and not example:
        example = word[max(0, places[0] - _AROUND) : places[0] + _AROUND]
    seen += len(text)
    if seen >= _CHARACTERS:
      break

  # Some French words in an English text are worth no line.
  if lost > _LEAST * letters:
    made = "".join(tokenization.BasicTokenizer().tokenize(example))
    progress.note(
      f"note: {name}: lower-casing strips {lost / letters:.1%} of the letters "
      f"and signs, so that {example!r} becomes {made!r}; where they tell words "
      "apart, as in Hindi or Japanese, use --strip_accents=false or "
      "--do_lower_case=false, and a vocabulary made so"
    )


def _categories(char: str) -> list[str]:
  """Returns Unicode's categories of the characters that one decomposes to."""
  if char.isascii():
    return ["L"] if char.isalpha() else ["P"]
  return list(map(unicodedata.category, unicodedata.normalize("NFD", char)))


def report_file(
  path: str, vocab_file: str, do_lower_case: bool, column: str | None = None
) -> None:
  """Prints the line of `report` if a tokenizer strips letters of a file.

  Args:
    path: of the texts.
    vocab_file: SentencePiece's tokenizer strips nothing.
    do_lower_case: whether it lower-cases.
    column: of a table; None for plain text. Lines of JSON would not do, because
      JSON may escape letters.
  """
  # What this reads of a pipe, the program itself would lack.
  if not text_files.is_file(path):
    return
  if vocabulary_table.strips_marks(vocab_file, do_lower_case):
    report(text_files.read(path, column), path)
