"""Gives a model rows for new tokens of its vocabulary.

Whatever has a row for each token changes: the table of embeddings, the biases
of the head of masked words, and the optimizer's slots of both. A row of the
tokens that the model has had stays as it is, so texts without a new token keep
their outputs to the bit.
"""

import dataclasses
import itertools

import numpy as np

from bert import tokenization
from bert.convert import conversion, models, tokenizer_files
from bert.data import progress
from bert.vocabularies import accented_pieces, extension, vocabulary_table


def add(
  model: models.Model, path: str, new_rows: str, seed: int
) -> models.Model:
  """Returns a model with the tokens of a longer vocabulary.

  Args:
    model: to be changed.
    path: of the vocabulary: the model's own, with new tokens in the place of
      [unusedN] and at its end.
    new_rows: "mean": a new row is the mean of the rows of the pieces that the
      new token was split into. "random": it is drawn as for a new model, and
      its bias is 0.
    seed: of the random rows.

  Raises:
    ValueError: names the row of the vocabulary that is wrong.
  """
  if model.kind not in (vocabulary_table.WORD_PIECES, vocabulary_table.ACCENTS):
    raise ValueError(
      f"--add_tokens={path}: {model.source} has a {model.vocabulary_name}; "
      "expected WordPieces of words as BERT splits them"
    )

  tokens = tokenizer_files.read_tokens(path)
  ids = _find_new(model, tokens, path)
  unused = sum(id_ < len(model.vocabulary) for id_ in ids)
  print(f"{len(ids):,} new tokens, {unused:,} of them in rows of [unusedN]")

  # The new rows, by the variable; the old table has a row for each piece.
  rows = {
    conversion.TABLE: conversion.draw_rows(model.config, len(ids), seed),
    conversion.BIAS: np.zeros(len(ids)),
  }
  pieces = _spell(model, [tokens[id_] for id_ in ids])
  for name in rows.keys() & model.values.keys():
    if new_rows == "mean":
      old = model.values[name].astype(np.float32)
      rows[name] = np.stack([old[of_token].mean(0) for of_token in pieces])

  # The state of their training begins at zero, also where [unusedN] had one.
  if len(tokens) > model.config.vocab_size:
    model = conversion.resize_vocabulary(model, len(tokens), seed)
  values = dict(model.values)
  for name in rows.keys() & values.keys():
    # The variable itself gets the rows, Adam's two slots of it zeros.
    for variable in (name, *conversion.slots_of(values, name)):
      values[variable] = values[variable].copy()
      values[variable][ids] = rows[name] if variable == name else 0
  return dataclasses.replace(model, values=values, vocabulary=tokens)


def _find_new(model: models.Model, tokens: list[str], path: str) -> list[int]:
  """Returns the ids of the new tokens; a ValueError if an old one is lost."""
  old = model.vocabulary
  places = {token: number for number, token in enumerate(old, 1)}
  ids = []
  pairs = itertools.zip_longest(tokens, old)
  for number, (token, before) in enumerate(pairs, 1):
    if token == before:
      continue

    # Three faults, in this order: an old token that is lost or was moved, a
    # token that no text can hold, and one that would have two rows.
    fault = ""
    is_free = before is None or vocabulary_table.UNUSED.fullmatch(before)
    if token is None or not is_free:
      fault = (
        f"expected {before!r:.80}, as in the vocabulary of {model.source}; new "
        "tokens take the place of [unusedN] or follow the last one"
      )
    elif not token.isprintable() or " " in token or token in ("", "##"):
      fault = "expected a token without spaces and control characters"
    elif places.setdefault(token, number) != number:
      fault = f"it is on line {places[token]}, too; expected a token once"

    if fault:
      found = "the end" if token is None else f"{token!r:.80}"
      raise ValueError(f"{path}:{number}: {found}: {fault}")
    ids.append(number - 1)

  if not ids:
    raise ValueError(
      f"{path}: expected tokens that the vocabulary of {model.source} lacks"
    )
  return ids


def _spell(model: models.Model, added: list[str]) -> list[list[int]]:
  """Returns the ids of the old tokens that each new one was split into.

  Prints a line if texts cannot have some of the new ones.
  """
  # As the tokenizer reads a vocabulary: without spaces around tokens.
  ids = {token.strip(): id_ for id_, token in enumerate(model.vocabulary)}
  speller = extension.Speller(ids)
  splitter = tokenization.BasicTokenizer
  if model.kind is vocabulary_table.ACCENTS:
    splitter = accented_pieces.Splitter
  split = splitter(model.do_lower_case).tokenize

  spelled = []
  never = []
  for token in added:
    letters = token.removeprefix("##")
    words = split(letters)
    if words != [letters]:
      never.append(token)

    # A token such as [drug], which no text gives, was several words.
    words = words or ["[UNK]"]
    if letters != token:
      words[0] = f"##{words[0]}"
    pieces = [piece for word in words for piece in speller.spell(word)]
    spelled.append(tokenization.convert_tokens_to_ids(ids, pieces))

  if never:
    progress.note(
      f"note: no text has the token {never[0]!r:.80} ({len(never)} in all), "
      "because text is lower-cased or split before its words are looked up"
    )
  return spelled
