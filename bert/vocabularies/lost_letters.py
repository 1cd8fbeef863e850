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
  """Prints a line if lower-casing strips 1 % of the letters of some texts."""
  seen = letters = lost = 0
  example = ""
  for text in texts:
    for word in text[: _CHARACTERS - seen].split():
      kinds = [_categories(char) for char in word]
      letters += sum(kind[0] in "LM" for found in kinds for kind in found)
      marked = [place for place, found in enumerate(kinds) if "Mn" in found]
      lost += sum(kinds[place].count("Mn") for place in marked)
      if marked and not example:
        example = word[max(0, marked[0] - _AROUND) : marked[0] + _AROUND]
    seen += len(text)
    if seen >= _CHARACTERS:
      break
  if lost > _LEAST * letters:
    made = "".join(tokenization.BasicTokenizer().tokenize(example))
    progress.note(
      f"note: {name}: lower-casing strips {lost / letters:.1%} of the letters "
      f"and signs, so that {example!r} becomes {made!r}; where they tell words "
      "apart, as in Hindi or Japanese, use --do_lower_case=false, and a "
      "vocabulary made so"
    )


def _categories(char: str) -> list[str]:
  if char.isascii():
    return ["L"] if char.isalpha() else ["P"]
  return list(map(unicodedata.category, unicodedata.normalize("NFD", char)))


def report_file(
  path: str, vocab_file: str, do_lower_case: bool, column: str | None = None
) -> None:
  """Prints the line of `report` if a tokenizer strips letters of a file.

  The texts are its lines, or a column of its rows: JSON may escape letters.
  """
  if vocabulary_table.strips_marks(vocab_file, do_lower_case):
    report(text_files.read(path, column), path)
