"""The vocabulary and the casing of a model's folder, whoever wrote it.

Nothing here needs TensorFlow: programs read the casing before they import it.
"""

import os
import sys
from typing import Any

from data import files

SPECIAL = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")
# Begins the name of an id without a token, which no text has: it holds spaces.
FILLER = "[no token "
# Settings of tokenizer_config.json by their names in tokenizer.json: Hugging
# Face's, KerasHub's.
_NORMALIZER = {
  "do_lower_case": ("lowercase",),
  "strip_accents": ("strip_accents",),
  "tokenize_chinese_chars": ("handle_chinese_chars", "split_on_cjk"),
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
  if is_keras_hub or stated.get("type") == "BertNormalizer":
    for ours, theirs in _NORMALIZER.items():
      values = [config.get(ours), *(stated.get(name) for name in theirs)]
      config[ours] = next((x for x in values if x is not None), None)
  value = config.get("do_lower_case")
  path = next(filter(files.exists, paths), "")
  accents = config.get("strip_accents")
  if is_keras_hub and accents not in (None, value):  # KerasHub's default.
    print(
      f"note: {path}: strip_accents is {accents}; here accents are stripped if "
      "and only if text is lower-cased, as by the original",
      file=sys.stderr,
    )
    del config["strip_accents"]
  for name, usual in (
    ("strip_accents", True if value is None else value),
    ("tokenize_chinese_chars", True),
    ("do_basic_tokenize", True),
    ("word_tokenizer_type", "basic"),
    ("subword_tokenizer_type", "wordpiece"),
  ):
    if config.get(name) not in (None, usual):
      raise ValueError(
        f"{path}: {name} is {config[name]}: unlike the original's tokenizer; "
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
  whole_path = os.path.join(folder, "tokenizer.json")
  names = ("vocab.txt", "vocabulary.txt")  # The latter is KerasHub's.
  paths = (*(os.path.join(folder, name) for name in names), whole_path)
  path = next(filter(files.exists, paths), None)
  if not path:
    return []
  whole = files.read_json_if_any(whole_path)
  added = files.read_json_if_any(os.path.join(folder, "added_tokens.json"))
  tokens = dict(enumerate(read_tokens(path) if path != whole_path else ()))
  try:
    if not tokens:
      model = whole["model"]
      prefix = model.get("continuing_subword_prefix", "##")
      if (model.get("type", "WordPiece"), prefix) != ("WordPiece", "##"):
        raise ValueError
      tokens = {id_: token for token, id_ in model["vocab"].items()}
    listed = whole.get("added_tokens") or []
    added = {token["content"]: token["id"] for token in listed} | added
    for token, id_ in added.items():
      tokens.setdefault(id_, token)
    size = max(tokens) + 1
    if min(tokens) < 0 or size > 2 * len(tokens) + 1000:
      raise ValueError
    vocabulary = [tokens.get(i, f"{FILLER}{i}]") for i in range(size)]
  except (KeyError, TypeError, ValueError, AttributeError):
    raise ValueError(
      f"{path}: does not hold the vocabulary of a BERT (of type WordPiece with "
      "the prefix ##), or added tokens do not fit it"
    ) from None
  # Hugging Face's tokenizer keeps them whole.
  if names := [token for token in added if token not in SPECIAL]:
    print(
      f"note: added tokens such as {names[0]!r:.80} ({len(names)} in all) are "
      "split here if a text has them, as the original's tokenizer does",
      file=sys.stderr,
    )
  return vocabulary
