"""The table of vocabularies: the ending of a file's name says its kind."""

from collections.abc import Iterable, Mapping
import functools
import importlib
import os
import re
import tempfile
import types
from typing import Any, NamedTuple

from bert import tokenization
from bert.data import files

WORD_MARK = "\u2581"  # Begins a word, and its first piece, in SentencePiece.
# The tokens that every vocabulary of a BERT has.
SPECIAL = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")
# Rows that Google left for the tokens of others.
UNUSED = re.compile(r"\[unused\d+\]")
NO_TOKEN = "[no token "  # Begins the line of an id that has no token.


class VocabularyKind(NamedTuple):
  """A kind of vocabulary.

  What tells kinds apart is a field here, not an ending tested elsewhere.
  """

  name: str  # The name of the file in the folder of a model.
  # Has `Tokenizer` and `load_vocab`, and `learn` if `models` says that it is
  # learned; imported when it is needed.
  module: str
  beside: tuple[str, ...] = ()  # Names of other files that belong to it.
  models: tuple[str, ...] = ()  # Values of --model of create_vocab.py.
  # Whether tokens show where words begin or end, not which ones continue one.
  marks_words: bool = False
  keeps_accents: bool = False  # Whether lower-casing does.
  # Its file is a vocab.txt whose texts become words in another way, which these
  # settings of transformers' tokenizer_config.json ask for.
  asks: Mapping[str, Any] = types.MappingProxyType({})
  tokenizer_class: str = "BertTokenizer"  # The name of transformers' class.


WORD_PIECES = VocabularyKind("vocab.txt", "", models=("wordpiece",))
# WordPieces of lower-cased text with accents.
ACCENTS = VocabularyKind(
  "vocab.accents",
  "bert.vocabularies.accented_pieces",
  keeps_accents=True,
  asks={"do_lower_case": True, "strip_accents": False},
)


def _make_mecab(dictionary: str) -> VocabularyKind:
  """Returns the kind of words of a dictionary of MeCab."""
  return VocabularyKind(
    f"vocab.{dictionary}",
    "bert.contrib.mecab_vocabulary",
    keeps_accents=True,
    asks={
      "word_tokenizer_type": "mecab",
      "mecab_kwargs": {"mecab_dic": dictionary},
    },
    tokenizer_class="BertJapaneseTokenizer",
  )


# By the endings of names; all others are of WordPieces.
KINDS = {
  ".model": VocabularyKind(
    "vocab.model",
    "bert.vocabularies.sentence_pieces",
    models=("unigram", "bpe"),
    marks_words=True,
    keeps_accents=True,
  ),
  ".words": VocabularyKind(
    "vocab.words", "bert.contrib.word_vocabulary", models=("words",)
  ),
  ".json": VocabularyKind(
    "encoder_bpe_40000.json",
    "bert.contrib.gpt_vocabulary",
    beside=("vocab_40000.bpe",),
    marks_words=True,
  ),
  ".accents": ACCENTS,
  # By dictionaries of MeCab.
  ".unidic_lite": _make_mecab("unidic_lite"),
  ".ipadic": _make_mecab("ipadic"),
}
NAMES = tuple(kind.name for kind in (WORD_PIECES, *KINDS.values()))
# Names of files that list WordPieces.
LISTS = tuple(
  kind.name
  for kind in (WORD_PIECES, *KINDS.values())
  if kind is WORD_PIECES or kind.asks
)
# The ending of the file that create_vocab.py writes, by --model.
ENDINGS = dict.fromkeys(WORD_PIECES.models, "") | {
  model: ending for ending, kind in KINDS.items() for model in kind.models
}
HELP = (
  "The vocabulary of the model. The file name says its kind: vocab.txt "
  "(WordPieces, one per line), *.model (SentencePiece), *.words (whole words), "
  "*.unidic_lite or *.ipadic (WordPieces of Japanese words), or "
  "encoder_bpe_40000.json (GPT-1)."
)
MODELS_HELP = (
  "The kind of vocabulary, not the folder of a model as in other programs. "
  "unigram and bpe make a SentencePiece model (*.model); words makes a list of "
  "the most frequent words (*.words), and jieba cuts Chinese text into words."
)
# What cuts Chinese text into words for masks, by --segmenter: a module with
# `mark_words`.
SEGMENTERS = {"jieba": "bert.contrib.word_masks"}


def kind_of(vocab_file: str) -> VocabularyKind:
  """Returns the kind of a vocabulary, by its name."""
  return KINDS.get(os.path.splitext(vocab_file)[1], WORD_PIECES)


def is_word_pieces(vocab_file: str) -> bool:
  """Returns whether a file lists WordPieces, by its name."""
  return kind_of(vocab_file).name in LISTS


def kind_for(settings: Mapping[str, Any]) -> VocabularyKind:
  """Returns the kind that settings of transformers' tokenizers ask for.

  >>> kind_for({"do_lower_case": True, "strip_accents": False}).name
  'vocab.accents'
  >>> kind_for({"do_lower_case": True}).name
  'vocab.txt'
  """
  asked = (
    kind
    for kind in KINDS.values()
    if kind.asks and kind.asks.items() <= settings.items()
  )
  return next(asked, WORD_PIECES)


def choose_kind(
  vocab_file: str,
  asked: tuple[VocabularyKind, str] | None,
  do_lower_case: bool,
  strip_accents: bool | None,
) -> VocabularyKind:
  """Returns the kind of a vocabulary, of which a vocab.txt may have several.

  Args:
    vocab_file: its name says the kind; vocab.txt and "" say WordPieces.
    asked: what a vocab.txt is instead, and the file of the model's tokenizer
      that says so; None without one.
    do_lower_case: whether text is lower-cased.
    strip_accents: what the user states; None leaves it to the files.

  Raises:
    ValueError: the user contradicts the files, or no such tokenizer exists.
  """
  kind, source = kind_of(vocab_file), vocab_file
  is_plain = kind is WORD_PIECES
  if is_plain and asked:
    kind, source = asked

  strips = do_lower_case and not kind.keeps_accents
  if strip_accents and not strips:
    reason = f"{source} keeps accents"
    if not do_lower_case:
      reason = "text is not lower-cased"
    raise ValueError(f"--strip_accents=true: {reason}: leave out the flag")
  if strip_accents is False and strips:
    if not is_plain:
      raise ValueError(
        f"--strip_accents=false: {vocab_file} is not a vocab.txt, whose "
        "tokenizer alone can keep accents"
      )
    return ACCENTS
  return kind


# A folder that is deleted when the process ends, and by the paths of the copies
# in it, the files that they were made of.
_copies = functools.cache(tempfile.TemporaryDirectory)
_sources: dict[str, str] = {}


def copy_as(vocab_file: str, kind: VocabularyKind) -> str:
  """Copies a list of WordPieces as another kind, for the life of this process.

  The programs know a kind by the name of its file.
  """
  path = os.path.join(tempfile.mkdtemp(dir=_copies().name), kind.name)
  with files.open_bytes(vocab_file) as file:
    files.write_bytes(path, file.read())
  _sources[path] = vocab_file
  return path


def source_of(vocab_file: str) -> str:
  """Returns the file that `copy_as` has copied, for commands to print."""
  return _sources.get(vocab_file, vocab_file)


def digest(vocab_file: str) -> str:
  """Returns a digest of what a vocabulary makes of texts."""
  # The same list of tokens may be of another kind.
  kind = kind_of(vocab_file)
  return files.hash_file(vocab_file) + (f" {kind.name}" if kind.asks else "")


def check_digest(vocab_file: str, recorded: str, folder: str) -> None:
  """Raises a ValueError if a training recorded the digest of another one.

  Args:
    vocab_file: the vocabulary.
    recorded: the digest in the settings.json of the training.
    folder: of the training.
  """
  if recorded != digest(vocab_file):
    raise ValueError(
      f"{vocab_file}: {folder} was trained with another one; pass the one that "
      "its training wrote there"
    )


def strips_marks(vocab_file: str, do_lower_case: bool) -> bool:
  """Returns whether the tokenizer of a vocabulary strips combining marks."""
  return do_lower_case and not kind_of(vocab_file).keeps_accents


def make_tokenizer(
  vocab_file: str, do_lower_case: bool = True, never_split: Iterable[str] = ()
) -> tokenization.FullTokenizer:
  """Makes the tokenizer of a vocabulary.

  Args:
    vocab_file: its ending says the kind.
    do_lower_case: whether to lower-case; most kinds then strip accents, too.
    never_split: tokens that stay whole wherever a text holds them.

  Returns:
    A `FullTokenizer`, or an instance of a subclass of it.
  """
  module = module_of(vocab_file)
  make = module.Tokenizer if module else tokenization.FullTokenizer
  return make(vocab_file, do_lower_case, never_split)


def module_of(vocab_file: str) -> Any:
  """Returns the module of a vocabulary's kind; None for WordPieces."""
  name = kind_of(vocab_file).module
  return importlib.import_module(name) if name else None


def load_vocab(vocab_file: str) -> dict[str, int]:
  """Reads the tokens of a vocabulary of any kind, and their ids."""
  # `tokenization` reads WordPieces.
  module = module_of(vocab_file) or tokenization
  return module.load_vocab(vocab_file)


def size_of(vocab_file: str) -> int:
  """Returns how many ids a vocabulary has; tokens may share one."""
  return max(load_vocab(vocab_file).values()) + 1


def ids_of_tokens(vocab: Mapping[str, int]) -> set[int]:
  """Returns the ids that a text can have; of equal lines only the last counts.

  >>> sorted(ids_of_tokens({"a": 0, "[no token 1]": 1, "b": 3}))
  [0, 3]
  """
  return {i for token, i in vocab.items() if not token.startswith(NO_TOKEN)}


def bias_of_rows(vocab: Mapping[str, int], rows: int) -> list[float]:
  """Returns a bias of logits that rules out rows without a token.

  An embedding table may have more rows than the vocabulary has tokens. Added to
  the logits, float [rows], the bias leaves these a probability of 0.
  """
  ids = ids_of_tokens(vocab)
  return [0.0 if number in ids else -1e9 for number in range(rows)]


def find(folders: Iterable[str]) -> str | None:
  """Returns the vocabulary in the first folder that has one, if any has."""
  paths = (os.path.join(folder, name) for folder in folders for name in NAMES)
  return next(filter(files.exists, paths), None)


def has_meaning(token: str) -> bool:
  """Returns whether a line of a vocabulary is a token that texts may have."""
  is_free = UNUSED.fullmatch(token) or token.startswith(NO_TOKEN)
  return bool(token) and not is_free


def is_cased(vocab: Iterable[str], keeps_accents: bool = False) -> bool | None:
  """Guesses whether text kept its capitals and accents; None if unknown.

  If accents were kept whatever the casing, only capitals count.

  >>> is_cased(["[UNK]", "the", "The"]), is_cased(["[UNK]", "the", "##s"])
  (True, False)
  """
  # Special tokens have capitals in all vocabularies.
  tokens = [token for token in vocab if not token.startswith("[")]
  lower = tokenization.BasicTokenizer(do_lower_case=True).tokenize
  if keeps_accents or any(t[0] == WORD_MARK for t in tokens if len(t) > 1):
    lower = str.lower  # Pieces of SentencePiece keep their accents, too.

  # Text that was lower-cased has no tokens that lower-casing changes: one in a
  # hundred may be an accident. Chinese characters and digits show nothing.
  changed = sum("".join(lower(token)) != token for token in tokens)
  small = sum(token != token.upper() for token in tokens)
  if not changed and not small:
    return None
  return changed > small / 100


def looks_lower(vocab: Iterable[str], kind: VocabularyKind) -> bool | None:
  """Returns the do_lower_case that a vocabulary shows; None if unknown.

  >>> tokens = ["[UNK]", "sch\xf6n"]
  >>> looks_lower(tokens, ACCENTS), looks_lower(tokens, WORD_PIECES)
  (True, False)
  """
  # A kind may say it. What it does with accents shows no casing.
  if "do_lower_case" in kind.asks:
    return kind.asks["do_lower_case"]
  cased = is_cased(vocab, kind.keeps_accents)
  return None if cased is None else not cased


def saved_names(vocab_file: str) -> dict[str, str]:
  """Returns the files of a vocabulary by their names in an output folder."""
  kind = kind_of(vocab_file)
  folder = os.path.dirname(vocab_file)
  beside = {name: os.path.join(folder, name) for name in kind.beside}
  return {kind.name: vocab_file, **beside}


def copy(vocab_file: str, folder: str) -> None:
  """Copies a vocabulary to a folder; a ValueError if that holds another one."""
  # A file of another kind is another vocabulary, too: `find` might return it.
  saved = saved_names(vocab_file)
  for name in {*NAMES, *saved}:
    path = os.path.join(folder, name)
    source = saved.get(name)
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
