"""The vocabulary and the casing of a model's folder, whoever wrote it.

Nothing here needs TensorFlow: programs read the casing before they import it.
"""

from collections.abc import Iterable
import functools
import os
import tempfile
from typing import Any, NamedTuple

from bert.data import files, progress, run_files
from bert.vocabularies import vocabulary_table

# From names of settings in tokenizer.json to those in tokenizer_config.json.
_NORMALIZER = {
  "lowercase": "do_lower_case",
  "strip_accents": "strip_accents",
  "handle_chinese_chars": "tokenize_chinese_chars",
  "split_on_cjk": "tokenize_chinese_chars",  # KerasHub's.
  "clean_text": "clean_text",
  "max_input_chars_per_word": "max_input_chars_per_word",
  "post_processor": "post_processor",
}
_KERAS_HUB = "vocabulary.txt"  # KerasHub's name of a vocab.txt.
# The parts of a tokenizer.json that split text into words.
_STEPS = {"normalizer": "BertNormalizer", "pre_tokenizer": "BertPreTokenizer"}
# The settings that change tokens, as the original's tokenizer has them.
_USUAL = {
  "tokenize_chinese_chars": True,
  "clean_text": True,
  "max_input_chars_per_word": 100,  # 200 here: docs/features.md.
  "post_processor": ["[CLS]", "A", "[SEP]"],
  "do_basic_tokenize": True,
  "never_split": [],
  "word_tokenizer_type": "basic",
  "subword_tokenizer_type": "wordpiece",
  "padding_side": "right",
  "truncation_side": "right",
  **{
    f"{token[1:-1].lower()}_token": token for token in vocabulary_table.SPECIAL
  },
}


class _Stated(NamedTuple):
  """What a file says of a tokenizer."""

  value: Any
  path: str
  name: str  # As that file calls it.


def read_casing(folder: str) -> tuple[bool, str] | None:
  """Returns the do_lower_case that a file in a folder states, and that file.

  A ValueError if it asks for words that the original's tokenizer cannot make,
  or if two files ask for different ones.
  """
  # The settings.json of a training counts most.
  lower = run_files.read_settings(folder).get("do_lower_case")
  if isinstance(lower, bool):
    return lower, os.path.join(folder, "settings.json")

  stated, is_keras_hub = _read_stated(folder)
  casing = stated.get("do_lower_case")
  accents = stated.get("strip_accents")
  lower = casing.value if casing else None

  # KerasHub's default is to leave accents, whatever the casing: only a note.
  if is_keras_hub and accents and accents.value not in (None, lower):
    progress.note(
      f"note: {accents.path}: strip_accents is {accents.value}; here accents "
      "are stripped if and only if text is lower-cased, as by the original; "
      "pass --strip_accents=false to keep them"
    )
    del stated["strip_accents"]

  # The original strips accents if and only if it lower-cases, and has one value
  # of each other setting. Another kind of vocabulary may ask for another one.
  usual = {"strip_accents": True if lower is None else lower, **_USUAL}
  usual |= _kind_for(stated).asks
  for name, expected in usual.items():
    setting = stated.get(name)
    if setting and setting.value not in (None, expected):
      raise ValueError(
        f"{setting.path}: {setting.name} is {setting.value}: unlike the "
        "original's tokenizer; remove the setting to accept other tokens"
      )
  return (lower, casing.path) if casing and isinstance(lower, bool) else None


def write_casing(
  folder: str,
  vocab: Iterable[str],
  kind: vocabulary_table.VocabularyKind,
  do_lower_case: bool,
) -> None:
  """States the casing in a folder whose readers would guess the other one.

  Args:
    folder: of a model, to write tokenizer_config.json to.
    vocab: its tokens.
    kind: of its vocabulary.
    do_lower_case: whether its texts are lower-cased.
  """
  guess = vocabulary_table.looks_lower(vocab, kind) is not False
  if do_lower_case != guess:
    path = os.path.join(folder, "tokenizer_config.json")
    files.write_json(path, {"do_lower_case": do_lower_case})


def _kind_for(stated: dict[str, _Stated]) -> vocabulary_table.VocabularyKind:
  values = {name: setting.value for name, setting in stated.items()}
  return vocabulary_table.kind_for(values)


def read_kind(
  folder: str,
) -> tuple[vocabulary_table.VocabularyKind, str] | None:
  """Returns the kind of vocabulary that a tokenizer needs, and who says so.

  It is None unless a file in the folder asks for another kind than the
  original's.
  """
  # KerasHub's default is to leave accents, whatever the model was trained on.
  stated, is_keras_hub = _read_stated(folder)
  kind = _kind_for(stated)
  if not kind.asks or is_keras_hub:
    return None
  return kind, stated[list(kind.asks)[-1]].path


def find_kind(
  vocab_file: str, folders: Iterable[str]
) -> tuple[vocabulary_table.VocabularyKind, str] | None:
  """Returns what a vocabulary is, of which a vocab.txt may have several kinds.

  None if it is no vocab.txt, or no file in the folders asks for another kind
  than the original's; else see `read_kind`.
  """
  # vocab.txt is also what has no name yet.
  if vocabulary_table.kind_of(vocab_file) is not vocabulary_table.WORD_PIECES:
    return None
  return next(filter(None, map(read_kind, folders)), None)


def _read_stated(folder: str) -> tuple[dict[str, _Stated], bool]:
  """Returns the settings of a tokenizer, and whether they are KerasHub's.

  They are by the names of tokenizer_config.json. A ValueError says that two
  files differ: a library reads one or the other.
  """
  # Folders of transformers 4 and before name the special tokens twice.
  stated = {}
  for file in ("special_tokens_map.json", "tokenizer_config.json"):
    path = os.path.join(folder, file)
    for name, value in files.read_json_if_any(path).items():
      if isinstance(value, dict):  # A token, and how spaces beside it are read.
        value = value.get("content", value)
      stated[name] = _Stated(value, path, name)

  # tokenizer.json is KerasHub's if it names a class. Its settings have names of
  # their own.
  path = os.path.join(folder, "tokenizer.json")
  whole = files.read_json_if_any(path)
  is_keras_hub = "class_name" in whole
  steps = whole.get("config") if is_keras_hub else _read_steps(path, whole)
  for name, ours in _NORMALIZER.items():
    value = steps.get(name) if isinstance(steps, dict) else None
    other = stated.get(ours)
    if value is None or (other and value == other.value):
      continue

    # null in tokenizer_config.json leaves it to tokenizer.json.
    if other and other.value is not None:
      raise ValueError(
        f"{path}: {name} is {value}, but {ours} is {other.value} in "
        f"{other.path}: correct the wrong one"
      )
    stated[ours] = _Stated(value, path, name)
  return stated, is_keras_hub


def _read_steps(path: str, whole: dict[str, Any]) -> dict[str, Any]:
  """Returns the settings in Hugging Face's tokenizer.json, by its own names.

  A ValueError if it splits text into words by other steps than BERT does.
  """
  stated: dict[str, Any] = {}
  for name, expected in _STEPS.items():
    if name in whole:
      stated |= _read_step(path, name, whole[name], expected)

  # The rest is compared with `_USUAL`: which tokens stand around a text, and
  # from which length on a word is unknown.
  if "post_processor" in whole:
    stated["post_processor"] = _read_template(whole["post_processor"])
  if isinstance(model := whole.get("model"), dict):
    name = "max_input_chars_per_word"
    stated[name] = model.get(name)
  return stated


def _read_step(path: str, name: str, part: Any, expected: str) -> dict:
  """Returns the settings of a part of tokenizer.json, which must be one step.

  Before the step may be Lowercase: sentence-transformers adds it to a model
  with do_lower_case.

  Args:
    path: of the file, for messages.
    name: of the part, a key of `_STEPS`.
    part: its content in the file, which may be anything.
    expected: the type of BERT's step.
  """
  try:
    steps = part["normalizers"] if part["type"] == "Sequence" else [part]
    lowers = steps[0]["type"] == "Lowercase"
    [step] = steps[1:] if lowers else steps
    if step["type"] != expected:
      raise ValueError
  except (KeyError, TypeError, ValueError, IndexError):
    raise ValueError(
      f"{path}: {name} is {part!r:.80}; expected {expected}, the step of "
      "BERT's tokenizer"
    ) from None

  # BERT's step strips accents where it lower-cases itself. If Lowercase has
  # done that, accents stay unless the step says that it strips them.
  if lowers and not step.get("lowercase"):
    strips_accents = bool(step.get("strip_accents"))
    return {**step, "lowercase": True, "strip_accents": strips_accents}
  return step


def _read_template(step: Any) -> list[str] | str:
  """Returns the names of what an input of one text consists of."""
  try:
    if step["type"] == "BertProcessing":
      return [step["cls"][0], "A", step["sep"][0]]
    return [part["id"] for item in step["single"] for part in item.values()]
  except (KeyError, TypeError, AttributeError, IndexError):
    return str(step)[:80]


def read_tokens(path: str) -> list[str]:
  """Reads a vocab.txt, one token a line; a ValueError if it is empty.

  Unlike `tokenization.load_vocab` it keeps spaces and equal lines, as the
  tokens are written again.
  """
  tokens = list(files.read_lines(path))
  if not any(tokens):
    raise ValueError(f"{path}: empty; expected one token a line")
  tokens[0] = tokens[0].removeprefix("\ufeff")
  return tokens


def read_vocabulary(folder: str) -> list[str]:
  """Returns the tokens of vocab.txt or, without it, of tokenizer.json.

  They are in the order of ids, with those added later; [] if there is neither
  file. A ValueError if they are not those of a WordPiece vocabulary.
  """
  # A list of tokens, a tokenizer.json, or both.
  names = (*vocabulary_table.LISTS, _KERAS_HUB)
  paths = (os.path.join(folder, name) for name in names)
  path = next(filter(files.exists, paths), None)
  whole_path = os.path.join(folder, "tokenizer.json")
  if not (path or files.exists(whole_path)):
    return []

  # With both, their ids must be the same.
  whole = files.read_json_if_any(whole_path)
  added = _find_added(whole_path, whole)
  if path:
    vocabulary = _append(path, read_tokens(path), added)
    _compare(path, vocabulary, whole_path, whole, added)
  else:
    vocabulary = _take_whole(whole_path, whole, added)

  for number, token in enumerate(vocabulary):
    if "\n" in token or "\r" in token:
      raise ValueError(
        f"{whole_path}: token {number} is {token!r:.80}: a vocabulary has one "
        "token a line"
      )
  # Hugging Face's tokenizer keeps them whole.
  special = vocabulary_table.SPECIAL
  if names := [token for token in added if token not in special]:
    progress.note(
      f"note: added tokens such as {names[0]!r:.80} ({len(names)} in all) are "
      "split here if a text has them, as the original's tokenizer does"
    )
  return vocabulary


def find_vocabulary(folders: Iterable[str]) -> str | None:
  """Returns the vocabulary in the first folder that has one, if any has.

  That of a folder with a tokenizer.json alone, as transformers 5 writes it, is
  written as a vocab.txt, for the life of this process.
  """
  for folder in folders:
    if vocab_file := vocabulary_table.find([folder]):
      return vocab_file
    if files.exists(path := os.path.join(folder, _KERAS_HUB)):
      return path

    # KerasHub's tokenizer.json holds no tokens.
    path = os.path.join(folder, "tokenizer.json")
    if files.exists(path) and "class_name" not in files.read_json(path):
      return _write_copy(tuple(read_vocabulary(folder)))
  return None


# The folder of such copies, which is deleted when the process ends.
_copies = functools.cache(tempfile.TemporaryDirectory)


@functools.cache  # By content: the tokenizer.json may be replaced.
def _write_copy(tokens: tuple[str, ...]) -> str:
  path = os.path.join(tempfile.mkdtemp(dir=_copies().name), "vocab.txt")
  files.write_lines(path, tokens)
  return path


def check_of_training(folder: str, vocab_file: str) -> None:
  """Raises a ValueError if the training of a folder had another vocabulary."""
  # A folder without settings.json is of no training, or of another library.
  if recorded := run_files.read_settings(folder).get("vocab_file_sha256"):
    vocabulary_table.check_digest(vocab_file, recorded, folder)


def _compare(path, tokens, whole_path, whole, added) -> None:
  """Refuses a vocab.txt and a tokenizer.json that differ in an id."""
  if "model" not in whole:  # KerasHub's.
    return
  # Spaces at the ends of lines are read by some libraries, not by others; of
  # lines that are the same, the last one counts.
  ids = {token.strip(): id_ for id_, token in enumerate(tokens)}
  whole_tokens = enumerate(_take_whole(whole_path, whole, added))
  theirs = {token.strip(): id_ for id_, token in whole_tokens}

  # A name for an id without a token is missing in vocab.txt.
  for token in (*ids, *theirs):
    here = ids.get(token, "missing")
    there = theirs.get(token, "missing")
    if here != there and not token.startswith(vocabulary_table.NO_TOKEN):
      raise ValueError(
        f"{path}: the id of {token!r:.80} is {here}, in {whole_path} {there}: "
        "remove the file that is not the model's"
      )


def _find_added(whole_path, whole) -> dict[str, tuple[int, str]]:
  """Returns the tokens that Hugging Face's files add: their ids and files."""
  # In a list of tokenizer.json, or in a file of their own, as transformers 4
  # and before write them.
  path = os.path.join(os.path.dirname(whole_path), "added_tokens.json")
  try:
    listed = [(t["content"], t["id"]) for t in whole.get("added_tokens") or []]
  except (KeyError, TypeError):
    raise ValueError(
      f"{whole_path}: added_tokens: expected objects with content and id"
    ) from None

  added = {}
  alone = files.read_json_if_any(path).items()
  for file, pairs in ((whole_path, listed), (path, alone)):
    for token, id_ in pairs:
      if not isinstance(token, str) or type(id_) is not int:
        raise ValueError(
          f"{file}: the id of {token!r:.80} is {id_!r:.80}; expected an integer"
        )
      added[token] = id_, file
  return added


def _append(path, tokens, added) -> list[str]:
  """Returns the tokens of a file, and behind them those added later."""
  # Smaller ids are of tokens that the file holds: `_compare` checks them.
  behind = [
    (id_, source, token)
    for token, (id_, source) in added.items()
    if id_ >= len(tokens)
  ]
  for id_, source, token in sorted(behind):
    if id_ != len(tokens):
      raise ValueError(
        f"{source}: the id of {token!r:.80} is {id_}; expected {len(tokens)}, "
        f"the next one behind {path}: is that file whole?"
      )
    tokens.append(token)
  return tokens


def _take_whole(path, whole, added) -> list[str]:
  """Returns the tokens of a tokenizer.json, with those added later."""
  # Any fault of it ends in one message.
  try:
    model = whole["model"]
    prefix = model.get("continuing_subword_prefix", "##")
    if (model.get("type", "WordPiece"), prefix) != ("WordPiece", "##"):
      raise ValueError

    tokens = {id_: token for token, id_ in model["vocab"].items()}
    for token, (id_, _) in added.items():
      tokens.setdefault(id_, token)

    # A huge id would make a list that fills the memory.
    size = max(tokens) + 1
    if min(tokens) < 0 or size > 2 * len(tokens) + 1000:
      raise ValueError

    # An id without a token gets a name that no text has: it holds spaces.
    name = vocabulary_table.NO_TOKEN
    return [tokens.get(i, f"{name}{i}]") for i in range(size)]
  except (KeyError, TypeError, ValueError, AttributeError):
    raise ValueError(
      f"{path}: does not hold the vocabulary of a BERT (of type WordPiece with "
      "the prefix ##), or added tokens do not fit it"
    ) from None
