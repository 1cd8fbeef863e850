"""The table of vocabularies: the name of a file tells its kind."""

from collections.abc import Callable
from collections.abc import Iterable
import os
import sys
from typing import NamedTuple

from data import files
import tokenization
from vocabularies import gpt_bpe
from vocabularies import sentence_pieces
from vocabularies import words


class Kind(NamedTuple):
  """A kind of vocabulary."""

  name: str  # That it has in the folder of a model.
  tokenizer: Callable[[str, bool, Iterable[str]], tokenization.FullTokenizer]
  load: Callable[[str], dict[str, int]]  # Of a path; tokens and their ids.
  beside: tuple[str, ...] = ()  # Names of other files that belong to it.


_WORD_PIECES = Kind(
  "vocab.txt", tokenization.FullTokenizer, tokenization.load_vocab
)
# By the endings of names; all others are of WordPieces.
_KINDS = {
  ".model": Kind(
    "vocab.model",
    sentence_pieces.SentencePieceTokenizer,
    sentence_pieces.load_vocab,
  ),
  ".json": Kind(
    gpt_bpe.ENCODER,
    gpt_bpe.BpeTokenizer,
    gpt_bpe.load_vocab,
    (gpt_bpe.MERGES,),
  ),
  ".words": Kind("vocab.words", words.WordTokenizer, tokenization.load_vocab),
}
# Settings of tokenizer_config.json by their names in tokenizer.json.
_NORMALIZER = {
  "do_lower_case": "lowercase",
  "strip_accents": "strip_accents",
  "tokenize_chinese_chars": "handle_chinese_chars",
}
NAMES = tuple(kind.name for kind in (_WORD_PIECES, *_KINDS.values()))
HELP = (
  "The vocabulary of the model: WordPieces, one a line (vocab.txt), a model of "
  f"SentencePiece (*.model), words (*.words), or GPT-1's {gpt_bpe.ENCODER}."
)


def _kind_of(vocab_file: str) -> Kind:
  return _KINDS.get(os.path.splitext(vocab_file)[1], _WORD_PIECES)


def make_tokenizer(
  vocab_file: str,
  do_lower_case: bool = True,
  never_split: Iterable[str] = (),
) -> tokenization.FullTokenizer:
  """Makes the tokenizer of a vocabulary; see `tokenization.FullTokenizer`.

  Args:
    vocab_file: `*.model` of SentencePiece, `*.words`, GPT-1's
      `encoder_bpe_40000.json`, or WordPieces, one a line.
    do_lower_case, never_split: see `tokenization.FullTokenizer`.
  """
  kind = _kind_of(vocab_file)
  return kind.tokenizer(vocab_file, do_lower_case, never_split)


def load_vocab(vocab_file: str) -> dict[str, int]:
  """Reads the tokens of a vocabulary of any kind, and their ids."""
  return _kind_of(vocab_file).load(vocab_file)


def size_of(vocab_file: str) -> int:
  """Returns how many ids a vocabulary has; tokens may share one."""
  return max(load_vocab(vocab_file).values()) + 1


def fits(size: int, rows: int) -> bool:
  """Tells whether so many tokens and rows of embeddings may be of one model.

  Models may round the rows up, at most to a multiple of 128.
  """
  return size <= rows < size + 128


def find(folders: Iterable[str]) -> str | None:
  """Returns the vocabulary in the first folder that has one, if any has."""
  paths = (os.path.join(folder, name) for folder in folders for name in NAMES)
  return next(filter(files.exists, paths), None)


def added_tokens(folder: str, size: int) -> list[str]:
  """Returns the tokens that Hugging Face's files add to those of vocab.txt.

  Says which of all its added tokens the text of a user cannot have here.

  Args:
    size: of vocab.txt, whose ids theirs follow.

  Raises:
    ValueError: they do not follow them.
  """
  names = ("added_tokens.json", "tokenizer.json")
  alone, within = (
    files.read_json_if_any(os.path.join(folder, name)) for name in names
  )
  try:
    added = {t["content"]: t["id"] for t in within.get("added_tokens") or []}
    note_added({**added, **alone})
    behind = {i: t for t, i in {**added, **alone}.items() if i >= size}
    return [behind[size + number] for number in range(len(behind))]
  except (KeyError, TypeError):
    raise ValueError(
      f"{folder}: the tokens of {' and '.join(names)} do not follow the {size} "
      "of vocab.txt"
    ) from None


def note_added(tokens: Iterable[str]) -> None:
  """Says which tokens are kept whole by Hugging Face's tokenizer, not here."""
  names = [t for t in tokens if t not in sentence_pieces.SPECIAL]
  if names:
    print(
      f"note: added tokens such as {names[0]!r:.80} ({len(names)} in all) are "
      "split here if a text has them, as the original's tokenizer does",
      file=sys.stderr,
    )


def read_casing(folder: str) -> tuple[bool, str] | None:
  """Returns the do_lower_case of Hugging Face's files, and which it was.

  Raises:
    ValueError: they ask for words that BERT's original tokenizer cannot make.
  """
  paths = [
    os.path.join(folder, name)
    for name in ("tokenizer_config.json", "tokenizer.json")
  ]
  config, whole = map(files.read_json_if_any, paths)
  normalizer = whole.get("normalizer")
  normalizer = normalizer if isinstance(normalizer, dict) else {}
  if normalizer.get("type") == "BertNormalizer":
    for ours, theirs in _NORMALIZER.items():
      if config.get(ours) is None:
        config[ours] = normalizer.get(theirs)
  value = config.get("do_lower_case")
  path = next(filter(files.exists, paths), "")
  for name, usual in (
    ("strip_accents", True if value is None else value),
    ("tokenize_chinese_chars", True),
    ("do_basic_tokenize", True),
    ("word_tokenizer_type", "basic"),
    ("subword_tokenizer_type", "wordpiece"),
  ):
    if config.get(name) not in (None, usual):
      raise ValueError(
        f"{path}: {name} is {config[name]}: this tokenizer makes WordPieces of "
        "the original's words, splits Chinese characters, and strips accents if"
        f" it lower-cases; remove {name} to accept other tokens than the model "
        "was trained on"
      )
  return (value, path) if isinstance(value, bool) else None


def saved_names(vocab_file: str) -> dict[str, str]:
  """Returns the files of a vocabulary by their names in an output folder."""
  kind, folder = _kind_of(vocab_file), os.path.dirname(vocab_file)
  others = {name: os.path.join(folder, name) for name in kind.beside}
  return {kind.name: vocab_file, **others}


def copy(vocab_file: str, folder: str) -> None:
  """Copies a vocabulary to a folder; a ValueError if that holds another one."""
  saved = saved_names(vocab_file)
  for name in {*NAMES, *saved}:
    path, source = os.path.join(folder, name), saved.get(name)
    if files.exists(path) and not (
      source and files.hash_file(path) == files.hash_file(source)
    ):
      raise ValueError(
        f"{path}: not of the same model as --vocab_file={vocab_file}: choose "
        "another --output_dir, or delete it"
      )
  for name, source in saved.items():
    with files.open_bytes(source) as file:
      files.write_bytes(os.path.join(folder, name), file.read())
