"""Sets of examples, and what their features depend on.

The key of a set is the digest of everything that affects its features: if it
has changed, the feature file is made again. Its parts say what has changed.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
import dataclasses
import functools
import hashlib
import itertools
import json
import os
import types
from typing import Any, NamedTuple

import tensorflow as tf

from bert import modeling, tokenization
from bert.data import files
from bert.inputs import feature_files, records, training_input
from bert.vocabularies import lost_letters, vocabulary_table

# The fields of the tasks' examples that hold texts.
_TEXTS = ("text_a", "text_b", "text", "context", "question", "choices")


def make_key(settings: dict[str, Any], paths: Sequence[str]) -> str:
  """Returns a digest of settings and of the contents of files.

  Args:
    settings: JSON values by name.
    paths: of the files. Where a setting is one of them, it counts as a number:
      data that was moved or copied keeps its features.
  """
  # Only the ending of a file's name counts, because it shows the format.
  text = json.dumps(settings, sort_keys=True)
  for number, path in enumerate(paths):
    ending = os.path.basename(path).partition(".")[2]
    text = text.replace(json.dumps(path), json.dumps([number, ending]))

  digest = hashlib.sha256(text.encode())
  for path in paths:
    digest.update(files.hash_file(path).encode())
  return digest.hexdigest()


@dataclasses.dataclass(frozen=True)
class FeatureSettings:
  """What shapes the features of all tasks besides the data."""

  vocab_file: str
  do_lower_case: bool
  max_seq_length: int


class Layout(NamedTuple):
  """The shapes and limits of a row's features."""

  shape: tuple[int, ...]  # For input_ids, input_mask, segment_ids: (..., S).
  per_token: tuple[str, ...] = ()  # Names of other integers of that shape.
  other_features: records.Spec = types.MappingProxyType({})
  limits: records.Limits = types.MappingProxyType({})  # For other integers.


# A set equals only itself: programs ask which of two they hold.
@dataclasses.dataclass(eq=False, kw_only=True)
class FeatureSet:
  """A set of examples, and its features once a task has made them."""

  # "train", "eval" or "predict"; "dev" for SQuAD's second file to evaluate on.
  # The name of the feature file begins with it.
  kind: str
  settings: FeatureSettings
  paths: tuple[str, ...]  # The files of the data.
  source: dict[str, Any]  # Which data of the files, as JSON values.
  # Yields all examples; each has a `location`. The function of a classifier's
  # set also takes `facts`, see `classification.read_examples`.
  read: Callable[..., Iterator[Any]]
  limit: int | None = None  # The most examples to train on; None for all.
  # The numbers of the examples to use, from 0; None for all. The key does not
  # have them: `held_out.split` sets them together with `source`, which it has.
  numbers: frozenset[int] | None = None
  shows_progress: bool = True  # While the features are made.
  version: int = 1  # Raised when other features are made of the same input.
  name: str = ""  # Such as "matched", if there are several of the kind.
  suffix: str = ""  # Such as "_mismatched": what names of its files end in.
  features: feature_files.FeatureFile = dataclasses.field(init=False)
  layout: Layout = dataclasses.field(init=False)  # The rows'.

  def __post_init__(self) -> None:
    # Programs pass --max_train_examples for every kind; it is for one.
    if self.kind != "train":
      self.limit = None

  def _make_key(self) -> str:
    """Returns a digest of everything that affects the features."""
    settings = {**dataclasses.asdict(self.settings), **self.source}
    settings["version"] = self.version

    # Older versions had no limit: without one, the keys they made stay valid.
    if self.limit is not None:
      settings["max_examples"] = self.limit
    return make_key(settings, [self.settings.vocab_file] + list(self.paths))

  # As it was at the first use; `check_unchanged` computes it anew.
  key = functools.cached_property(_make_key)

  @functools.cached_property
  def parts(self) -> dict[str, Any]:
    """What the key is a digest of, as JSON values, to say what has changed.

    That is flags and columns by name, and `files`: their names and digests.
    """
    # With several tables, each name keeps the value of the last table. Only
    # messages use it; the key has all of them.
    parts = {**dataclasses.asdict(self.settings), **dict(_leaves(self.source))}

    # The digests of the files stand for their paths.
    for name in ("vocab_file", "path"):
      parts.pop(name, None)
    hashes = [[os.path.basename(p), files.hash_file(p)] for p in self.paths]
    return {"max_train_examples": self.limit, **parts, "files": hashes}

  def identify_examples(self) -> str:
    """Returns a digest of which examples of which files the set has."""
    content = [digest for _, digest in self.parts["files"]]
    numbers = self.numbers if self.numbers is None else sorted(self.numbers)
    text = json.dumps([content, numbers])
    return hashlib.sha256(text.encode()).hexdigest()

  def check_unchanged(self) -> None:
    """Raises a ValueError if the files are no longer what they were."""
    if self._make_key() != self.key:
      paths = ", ".join([self.settings.vocab_file] + list(self.paths))
      raise ValueError(f"{paths}: changed while the program ran; run it again")

  def examples(self) -> Iterator[Any]:
    """Reads the examples; a ValueError at the end if their files have changed.

    To know that, all files are hashed.
    """
    yield from self.select(self.read())
    self.check_unchanged()

  def select(self, examples: Iterable[Any]) -> Iterator[Any]:
    """Yields the examples of this set, given all examples of its files."""
    chosen = (
      example
      for number, example in enumerate(examples)
      if self.numbers is None or number in self.numbers
    )
    return itertools.islice(chosen, self.limit)

  def describe(self, index: int) -> str:
    """Says where an example, by its number from 0, is from."""
    # It reads all examples before this one, so it is for messages only.
    return next(itertools.islice(self.examples(), index, None)).location

  def open_or_make(
    self, folder: str, rows: Iterable[feature_files.Row], facts: dict[str, Any]
  ) -> feature_files.FeatureFile:
    """Opens the set's feature file; makes it unless one has the set's key.

    Args:
      folder: a local one.
      rows: read only if the file must be made.
      facts: numbers and texts about the rows, by name: reading these fills it,
        and the index of the file then holds it.
    """

    # Rows and key must be of the same files. These are hashed again after the
    # last row; an error there discards the new file.
    def rows_of_same_files():
      yield from rows
      self.check_unchanged()

    # The original's names, such as train.tf_record.
    path = os.path.join(folder, f"{self.kind}{self.suffix}.tf_record")
    self.features = feature_files.open_or_make(
      path, self.key, rows_of_same_files(), facts, self.shows_progress
    )
    if self.features.is_new:
      self._report_lost_letters()
    return self.features

  def make_parser(
    self, config: modeling.EncoderConfig, is_static: bool
  ) -> Callable[[tf.Tensor], training_input.Features]:
    """Returns the function from serialized rows, string [B], to features.

    Args:
      config: of the encoder; ids must be below its limits.
      is_static: whether batches keep their padding, so that all have one shape.
    """
    inputs = (*records.INPUT_NAMES, *self.layout.per_token)
    integers = tf.io.FixedLenFeature(list(self.layout.shape), tf.int64)
    spec = {**dict.fromkeys(inputs, integers), **self.layout.other_features}
    limits = {**records.input_limits(config), **self.layout.limits}

    def parse(serialized):
      features = records.parse_batch(serialized, spec, limits)
      return features if is_static else records.trim(features, *inputs)

    return parse

  def training_input(
    self,
    parse: Callable[[tf.Tensor], training_input.Features],
    batch_size: int,
    seed: int,
  ) -> training_input.TrainingInput:
    """Makes the endless rows that a model is trained on.

    Args:
      parse: from `make_parser`.
      batch_size: rows per update.
      seed: of their order.
    """
    features = self.features
    return training_input.TrainingInput(
      rows=functools.partial(features.training_rows, batch_size, seed),
      parse=parse,
      describe_row=lambda row: self.describe(int(features.example_of_row[row])),
      find_fault=features.find_fault,
      identity=features.key,
    )

  def _report_lost_letters(self) -> None:
    """Says what lower-casing strips from the first texts, if it does."""
    # It drops the vowel signs of Hindi as if they were accents, for example.
    settings = self.settings
    if vocabulary_table.strips_marks(
      settings.vocab_file, settings.do_lower_case
    ):
      texts = texts_of(self.select(self.read()))
      lost_letters.report(texts, ", ".join(self.paths))

  @property
  def is_labelled(self) -> bool:
    """Whether the labels of its examples are known.

    Only for tasks that count them as `labelled`: classification and multiple
    choice; SQuAD has its own answer. Tags and vectors need no such question.
    """
    return self.features.facts["labelled"] > 0

  @property
  def rows_per_epoch(self) -> int:
    """How many rows --num_train_epochs counts as one epoch."""
    # SQuAD overrides this: a question may have several rows.
    return len(self.features)

  def make_tokenizer(self) -> tokenization.FullTokenizer:
    """Makes the tokenizer of the settings."""
    return vocabulary_table.make_tokenizer(
      self.settings.vocab_file, self.settings.do_lower_case
    )


def _leaves(value: Any, name: str = "") -> Iterator[tuple[str, Any]]:
  """Yields the values in nested objects and lists of objects, by name."""
  if isinstance(value, dict):
    for key, inner in value.items():
      yield from _leaves(inner, key)
  elif (
    isinstance(value, (list, tuple)) and value and isinstance(value[0], dict)
  ):
    for inner in value:
      yield from _leaves(inner, name)
  else:
    yield name, value


def find_set(
  read: Callable[[str], Iterator[Any]],
  kind: str,
  path: str,
  settings: FeatureSettings,
  limit: int | None = None,
) -> FeatureSet:
  """Returns the set of examples that a function reads from a file.

  Args:
    read: takes the path, yields the examples.
    kind: "train", "eval" or "predict".
    path: of the file.
    settings: what shapes the features besides the data.
    limit: the most examples to train on; None: all.
  """
  return FeatureSet(
    kind=kind,
    settings=settings,
    paths=(path,),
    source={"path": path},
    read=functools.partial(read, path),
    limit=limit,
  )


def texts_of(examples: Iterable[Any]) -> Iterator[str]:
  """Yields the texts of examples of any task."""
  for example in examples:
    for name in _TEXTS:
      value = getattr(example, name, None) or ()
      yield from [value] if isinstance(value, str) else value
