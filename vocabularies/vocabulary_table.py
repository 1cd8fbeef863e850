"""The table of vocabularies: the name of a file tells its kind."""

from collections.abc import Iterable
import os

from data import files
import tokenization
from vocabularies import gpt_bpe
from vocabularies import sentence_pieces

# The names that vocabularies have in the folder of a model.
NAMES = ("vocab.txt", "vocab.model", gpt_bpe.ENCODER)
HELP = (
  "The vocabulary of the model: WordPieces, one a line (vocab.txt), a model of "
  f"SentencePiece (*.model), or GPT-1's {gpt_bpe.ENCODER}."
)
# What a tokenizer does, whatever its kind.
Tokenizer = tokenization.FullTokenizer | sentence_pieces.SentencePieceTokenizer


def make_tokenizer(
  vocab_file: str,
  do_lower_case: bool = True,
  never_split: Iterable[str] = (),
) -> Tokenizer:
  """Makes the tokenizer of a vocabulary; see `tokenization.FullTokenizer`.

  Args:
    vocab_file: `*.model` of SentencePiece, GPT-1's `encoder_bpe_40000.json`, or
      WordPieces, one a line.
    do_lower_case, never_split: see `tokenization.FullTokenizer`.
  """
  kind = tokenization.FullTokenizer
  if vocab_file.endswith(".model"):
    kind = sentence_pieces.SentencePieceTokenizer
  elif vocab_file.endswith(".json"):
    kind = gpt_bpe.BpeTokenizer
  return kind(vocab_file, do_lower_case, never_split)


def load_vocab(vocab_file: str) -> dict[str, int]:
  """Reads the tokens of a vocabulary of any kind, and their ids."""
  if vocab_file.endswith(".model"):
    return sentence_pieces.load_vocab(vocab_file)
  if vocab_file.endswith(".json"):
    return gpt_bpe.load_vocab(vocab_file)
  return tokenization.load_vocab(vocab_file)


def size_of(vocab_file: str) -> int:
  """Returns how many ids a vocabulary has; tokens may share one."""
  return max(load_vocab(vocab_file).values()) + 1


def find(folders: Iterable[str]) -> str | None:
  """Returns the vocabulary in the first folder that has one, if any has."""
  paths = (os.path.join(folder, name) for folder in folders for name in NAMES)
  return next(filter(files.exists, paths), None)


def saved_names(vocab_file: str) -> dict[str, str]:
  """Returns the files of a vocabulary by their names in an output folder."""
  if vocab_file.endswith(".model"):
    return {"vocab.model": vocab_file}
  if vocab_file.endswith(".json"):
    merges = os.path.join(os.path.dirname(vocab_file), gpt_bpe.MERGES)
    return {gpt_bpe.ENCODER: vocab_file, gpt_bpe.MERGES: merges}
  return {"vocab.txt": vocab_file}


def copy(vocab_file: str, folder: str) -> None:
  """Copies the files of a vocabulary to a folder, unless they are there."""
  for name, source in saved_names(vocab_file).items():
    target = os.path.join(folder, name)
    if not files.exists(target):
      with (
        files.open_bytes(source) as file,
        files.replace_on_success(target) as temporary,
        open(temporary, "wb") as output,
      ):
        output.write(file.read())
