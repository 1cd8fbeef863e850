"""A tagging task as feature files, batches and labels of words."""

import collections
from collections.abc import Iterable
from collections.abc import Iterator
import dataclasses
import functools
import itertools
import os
from typing import Any, NamedTuple

import numpy as np

from data import tables
from inputs import feature_files
from tasks import metrics
from tasks import tagging
import tokenization

# Changed whenever this program makes other features of the same input.
_FEATURES_VERSION = 1


@dataclasses.dataclass(frozen=True)
class Options:
  """What shapes the features besides the data."""

  vocab_file: str
  do_lower_case: bool
  max_seq_length: int
  document_context: bool
  labels: tuple[str, ...]
  scheme: str  # Of the labels, see `tagging.label_scheme`.


class Split(NamedTuple):
  """The features of a file of sentences."""

  source: tagging.Source
  features: feature_files.FeatureFile
  scheme: str  # Of the labels.
  max_seq_length: int

  @property
  def key(self) -> str:
    """A digest of all that shapes the features."""
    return self.features.key

  @property
  def layout(self) -> feature_files.Layout:
    """What a row of the features holds, each a window."""
    return feature_files.Layout(
      (self.max_seq_length,), per_token=("label_ids", "label_mask")
    )

  def sentences(self) -> Iterator[tagging.Sentence]:
    """Reads the sentences again; their tags are in the labels' scheme."""
    return read_sentences(self.source, self.scheme)

  def describe(self, index: int) -> str:
    """Returns where a sentence is from: "path:line"."""
    sentence = next(itertools.islice(self.sentences(), index, None))
    return f"{sentence.path}:{sentence.line}"


def read_sentences(
  source: tagging.Source, scheme: str
) -> Iterator[tagging.Sentence]:
  """Yields the sentences of a file with their tags written in a scheme."""
  for sentence in tagging.read_sentences(source):
    if sentence.tags is not None:
      tags = tagging.convert_tags(sentence.tags, scheme)
      sentence = sentence._replace(tags=tuple(tags))
    yield sentence


def open_split(
  kind: str, source: tagging.Source, options: Options, folder: str
) -> Split:
  """Opens the features of a file, made now if need be, and says what it holds.

  Args:
    kind: "train", "eval" or "predict".
    source: the file.
    options: what else shapes the features.
    folder: a local one, for the feature file.

  Raises:
    ValueError: a line of the file is wrong.
  """
  path = os.path.join(folder, f"{kind}.tf_record")
  settings = {
    **dataclasses.asdict(options),
    "source": source._asdict(),
    "version": _FEATURES_VERSION,
  }
  features, is_new = feature_files.open_or_make(
    path,
    feature_files.make_key(settings, [options.vocab_file, source.path]),
    functools.partial(_make_rows, source, options),
  )
  facts = features.facts
  print(
    f"{kind}: {facts['sentences']:,} sentences ({facts['words']:,} words) of "
    f"{facts['documents']:,} documents in {len(features):,} windows, "
    f"{np.mean(features.lengths):.1f} tokens on average; "
    f"{'wrote' if is_new else 'unchanged:'} {path}"
  )
  _print_oddities(source, facts)
  return Split(source, features, options.scheme, options.max_seq_length)


def _print_oddities(source, facts):
  if facts["irregular"]:
    print(
      f"  {facts['irregular']:,} sentences have tags in an order that "
      f"{source.scheme} does not have; read as conlleval does"
    )
  if facts["unseen"]:
    listing = tables.list_names(
      f"{name or '_'} ({count:,})" for name, count in facts["unseen"].items()
    )
    print(f"  not in the training data, so never predicted: {listing}")


def _make_rows(source, options, facts: dict[str, Any]):
  tokenizer = tokenization.FullTokenizer(
    options.vocab_file, options.do_lower_case
  )
  facts.update(sentences=0, words=0, documents=0, irregular=0)
  unseen: collections.Counter[str] = collections.Counter()

  def count(sentences):
    for sentence in sentences:
      facts["sentences"] += 1
      facts["words"] += len(sentence.words)
      facts["documents"] = sentence.document + 1
      if sentence.tags is not None:
        regular = tagging.convert_tags(sentence.tags, source.scheme)
        facts["irregular"] += tuple(regular) != sentence.tags
        tags = tagging.convert_tags(sentence.tags, options.scheme)
        unseen.update(_find_unseen(tags, options))
        sentence = sentence._replace(tags=tuple(tags))
      yield sentence

  features = tagging.make_features(
    count(tagging.read_sentences(source)),
    tokenizer,
    options.labels,
    options.max_seq_length,
    options.document_context,
  )
  for feature in features:
    yield feature_files.Row(
      tagging.encode_feature(feature, options.max_seq_length),
      len(feature.input_ids),
      feature.sentence,
    )
  facts["unseen"] = dict(unseen.most_common())


def _find_unseen(tags, options) -> Iterable[str]:
  """Returns the types of entities, or the tags, that no label stands for."""
  if set(tags) <= set(options.labels):
    return ()
  if options.scheme == tagging.NO_SCHEME:
    return (tag for tag in tags if tag not in options.labels)
  return (
    entity.type
    for entity in metrics.find_entities(tags)
    if tags[entity.start] not in options.labels
  )


class Outputs(NamedTuple):
  """What a model says of a split."""

  labels: np.ndarray  # Int [words], their numbers, in the order of the file.
  loss: float  # In nats, the mean over words whose label is known.


def read_outputs(results: dict[str, np.ndarray]) -> Outputs:
  """Returns the label of every word of a file.

  Args:
    results: predicted, label_mask and known, int [windows, S], and losses,
      float [windows, S], from the model.
  """
  # Windows are in the order of the words that they are made for.
  labels = results["predicted"][results["label_mask"] > 0]
  known = results["known"].sum()
  loss = results["losses"].sum(dtype=np.float64) / max(1, known)
  return Outputs(labels, float(loss))
