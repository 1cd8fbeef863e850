"""The vocabulary and the casing of a model's folder, whoever wrote it.

Nothing here needs TensorFlow: programs read the casing before they import it.
"""

import os
from typing import Any

from data import files, progress

SPECIAL = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")
# From names of settings in tokenizer.json to those in tokenizer_config.json.
_NORMALIZER = {
  "lowercase": "do_lower_case",
  "strip_accents": "strip_accents",
  "handle_chinese_chars": "tokenize_chinese_chars",
  "split_on_cjk": "tokenize_chinese_chars",  # KerasHub's.
}


def read_run_settings(folder: str) -> dict[str, Any]:
  """Returns the settings.json of the training that wrote a folder, if any."""
  try:
    return files.read_json_if_any(os.path.join(folder, "settings.json"))
  except ValueError:  # It may be an editor's, unless the folder is a model's.
    if files.exists(os.path.join(folder, "bert_config.json")):
      raise
    return {}


def read_casing(folder: str) -> tuple[bool, str] | None:
  """Returns the do_lower_case that a file in a folder states, and that file.

  A ValueError if it asks for words that the original's tokenizer cannot make.
  """
  value = read_run_settings(folder).get("do_lower_case")
  if isinstance(value, bool):
    return value, os.path.join(folder, "settings.json")
  paths = [
    os.path.join(folder, name)
    for name in ("tokenizer_config.json", "tokenizer.json")
  ]
  config, whole = map(files.read_json_if_any, paths)
  is_keras_hub = "class_name" in whole
  stated = whole.get("config" if is_keras_hub else "normalizer")
  stated = stated if isinstance(stated, dict) else {}
  found = {name: (paths[0], name, value) for name, value in config.items()}
  if is_keras_hub or stated.get("type") == "BertNormalizer":
    for name, ours in _NORMALIZER.items():
      if config.get(ours) is None and stated.get(name) is not None:
        found[ours] = paths[1], name, stated[name]
  path, _, value = found.get("do_lower_case", ("", "", None))
  source, _, accents = found.get("strip_accents", ("", "", None))
  if is_keras_hub and accents not in (None, value):  # KerasHub's default.
    progress.note(
      f"note: {source}: strip_accents is {accents}; here accents are stripped "
      "if and only if text is lower-cased, as by the original"
    )
    del found["strip_accents"]
  for ours, usual in (
    ("strip_accents", True if value is None else value),
    ("tokenize_chinese_chars", True),
    ("do_basic_tokenize", True),
    ("word_tokenizer_type", "basic"),
    ("subword_tokenizer_type", "wordpiece"),
  ):
    source, name, stated = found.get(ours, ("", "", None))
    if stated not in (None, usual):
      raise ValueError(
        f"{source}: {name} is {stated}: unlike the original's tokenizer; "
        "remove the setting to accept other tokens"
      )
  return (value, path) if isinstance(value, bool) else None


def read_tokens(path: str) -> list[str]:
  """Reads a vocab.txt, one token a line; a ValueError if it is empty."""
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
  names = ("vocab.txt", "vocabulary.txt")  # The latter is KerasHub's.
  paths = (os.path.join(folder, name) for name in names)
  path = next(filter(files.exists, paths), None)
  whole_path = os.path.join(folder, "tokenizer.json")
  if not (path or files.exists(whole_path)):
    return []
  whole = files.read_json_if_any(whole_path)
  added = _find_added(whole_path, whole)
  if path:
    vocabulary = _append(path, read_tokens(path), added)
  else:
    vocabulary = _take_whole(whole_path, whole, added)
  for number, token in enumerate(vocabulary):
    if "\n" in token or "\r" in token:
      raise ValueError(
        f"{whole_path}: token {number} is {token!r:.80}: a vocabulary has one "
        "token a line"
      )
  # Hugging Face's tokenizer keeps them whole.
  if names := [token for token in added if token not in SPECIAL]:
    progress.note(
      f"note: added tokens such as {names[0]!r:.80} ({len(names)} in all) are "
      "split here if a text has them, as the original's tokenizer does"
    )
  return vocabulary


def _find_added(whole_path, whole) -> dict[str, tuple[int, str]]:
  """Returns the tokens that Hugging Face's files add: their ids and files."""
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
  behind = [(*x, token) for token, x in added.items() if x[0] >= len(tokens)]
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
  try:
    model = whole["model"]
    prefix = model.get("continuing_subword_prefix", "##")
    if (model.get("type", "WordPiece"), prefix) != ("WordPiece", "##"):
      raise ValueError
    tokens = {id_: token for token, id_ in model["vocab"].items()}
    for token, (id_, _) in added.items():
      tokens.setdefault(id_, token)
    size = max(tokens) + 1
    if min(tokens) < 0 or size > 2 * len(tokens) + 1000:
      raise ValueError
    # An id without a token gets a name that no text has: it holds spaces.
    return [tokens.get(i, f"[no token {i}]") for i in range(size)]
  except (KeyError, TypeError, ValueError, AttributeError):
    raise ValueError(
      f"{path}: does not hold the vocabulary of a BERT (of type WordPiece with "
      "the prefix ##), or added tokens do not fit it"
    ) from None
