"""The vocabulary and the casing of a model's folder, whoever wrote it.

Nothing here needs TensorFlow: programs read the casing before they import it.
"""

from collections.abc import Iterable
import os
import sys
from typing import Any

from data import files

SPECIAL = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")
# Settings of tokenizer_config.json by their names in tokenizer.json.
_NORMALIZER = {
  "do_lower_case": "lowercase",
  "strip_accents": "strip_accents",
  "tokenize_chinese_chars": "handle_chinese_chars",
}


def read_run_settings(folder: str) -> dict[str, Any]:
  """Returns the settings.json of the training that wrote a folder, if any.

  Raises:
    ValueError: it is damaged, and the folder is one of a model; elsewhere it
      may be an editor's.
  """
  try:
    return files.read_json_if_any(os.path.join(folder, "settings.json"))
  except ValueError:
    if files.exists(os.path.join(folder, "bert_config.json")):
      raise
    return {}


def read_casing(folder: str) -> tuple[bool, str] | None:
  """Returns the do_lower_case that a file in a folder states, and that file.

  The file is the settings.json of a training, or one of Hugging Face's or
  KerasHub's.

  Raises:
    ValueError: they ask for words that BERT's original tokenizer cannot make.
  """
  value = read_run_settings(folder).get("do_lower_case")
  if isinstance(value, bool):
    return value, os.path.join(folder, "settings.json")
  paths = [
    os.path.join(folder, name)
    for name in ("tokenizer_config.json", "tokenizer.json")
  ]
  config, whole = map(files.read_json_if_any, paths)
  if "class_name" in whole:
    return _read_keras_hub(paths[1], whole.get("config"))
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


def _read_keras_hub(path: str, fields: Any) -> tuple[bool, str] | None:
  if not isinstance(fields, dict) or "lowercase" not in fields:
    return None
  value = fields["lowercase"]
  if not fields.get("split_on_cjk", True):
    raise ValueError(
      f"{path}: split_on_cjk is false: this tokenizer splits Chinese characters"
    )
  if fields.get("strip_accents", value) != value:  # KerasHub's default.
    print(
      f"note: {path}: strip_accents is {fields['strip_accents']}; here accents "
      "are stripped if and only if text is lower-cased, as by the original",
      file=sys.stderr,
    )
  return (value, path) if isinstance(value, bool) else None


def read_tokens(path: str) -> list[str]:
  """Reads a vocab.txt, one token a line; a ValueError if it is empty."""
  tokens = list(files.read_lines(path))
  if not any(tokens):
    raise ValueError(f"{path}: empty; expected one token a line")
  tokens[0] = tokens[0].removeprefix("\ufeff")
  return tokens


def read_vocabulary(folder: str) -> list[str] | None:
  """Returns the tokens of vocab.txt or, without it, of tokenizer.json.

  Returns:
    The tokens by id, with those added later; None if there is neither file.

  Raises:
    ValueError: tokenizer.json is not that of a WordPiece vocabulary.
  """
  for name in ("vocab.txt", "vocabulary.txt"):  # The latter is KerasHub's.
    path = os.path.join(folder, name)
    if files.exists(path):
      tokens = read_tokens(path)
      return tokens + added_tokens(folder, len(tokens))
  path = os.path.join(folder, "tokenizer.json")
  if not files.exists(path):
    return None
  contents = files.read_json(path)
  model = contents.get("model")
  try:
    prefix = model.get("continuing_subword_prefix", "##")
    if (model.get("type", "WordPiece"), prefix) != ("WordPiece", "##"):
      raise ValueError
    ids = dict(model["vocab"])
    added = {t["content"]: t["id"] for t in contents.get("added_tokens") or []}
    _warn_added_tokens(added)
    ids |= added
    tokens = {id_: token for token, id_ in ids.items()}
    size = max(tokens) + 1
    if min(tokens) < 0 or size > 2 * len(tokens) + 1000:
      raise ValueError
    # An id without a token gets a name that no text has: it holds spaces.
    return [tokens.get(id_, f"[no token {id_}]") for id_ in range(size)]
  except (KeyError, TypeError, ValueError, AttributeError):
    raise ValueError(
      f"{path}: does not hold the vocabulary of a BERT (model: of type "
      "WordPiece with the prefix ##; its vocab: tokens and their ids)"
    ) from None


def added_tokens(folder: str, size: int) -> list[str]:
  """Returns the tokens that Hugging Face's files add to those of vocab.txt.

  Warns of added tokens, which the text of a user cannot have here.

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
    _warn_added_tokens({**added, **alone})
    behind = {i: t for t, i in {**added, **alone}.items() if i >= size}
    return [behind[size + number] for number in range(len(behind))]
  except (KeyError, TypeError):
    raise ValueError(
      f"{folder}: the tokens of {' and '.join(names)} do not follow the {size} "
      "of vocab.txt"
    ) from None


def _warn_added_tokens(tokens: Iterable[str]) -> None:
  """Names tokens that are kept whole by Hugging Face's tokenizer, not here."""
  names = [t for t in tokens if t not in SPECIAL]
  if names:
    print(
      f"note: added tokens such as {names[0]!r:.80} ({len(names)} in all) are "
      "split here if a text has them, as the original's tokenizer does",
      file=sys.stderr,
    )
