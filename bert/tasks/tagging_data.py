"""Tagged words as feature files; the labels of a model and its predictions."""

import collections
from collections.abc import Iterable, Iterator, Mapping, Sequence
import dataclasses
import functools
import itertools
import os
from typing import Any, NamedTuple

import numpy as np

from bert.data import files, label_files, messages, record_writer, tables
from bert.inputs import feature_files, feature_sets, held_out
from bert.tasks import tagging, tagging_results, tagging_schemes

_PEEKED = 1000  # Sentences that show whether words are characters.


@dataclasses.dataclass(frozen=True)
class TaggingFeatureSettings(feature_sets.FeatureSettings):
  """The settings that shape the features."""

  document_context: bool
  labels: tuple[str, ...]
  scheme: str  # That of the labels, see `tagging_schemes.label_scheme`.


@dataclasses.dataclass(eq=False, kw_only=True)
class TaggingSet(feature_sets.FeatureSet):
  """The sentences of a file."""

  settings: TaggingFeatureSettings
  file: tagging.Source


def find_set(
  kind: str,
  file: tagging.Source,
  settings: TaggingFeatureSettings,
  limit: int | None = None,
) -> TaggingSet:
  """Returns the sentences of a file; their tags are in the labels' scheme."""
  return TaggingSet(
    kind=kind,
    settings=settings,
    paths=(file.path,),
    source={"source": file._asdict()},
    read=functools.partial(tagging.read_sentences, file, settings.scheme),
    limit=limit,
    file=file,
  )


def split(
  data: TaggingSet, share: float, seed: int
) -> tuple[feature_sets.FeatureSet, feature_sets.FeatureSet]:
  """Holds out documents, or sentences of the only one, by their labels."""
  has_documents = any(sentence.document for sentence in data.read())

  def describe(sentence):
    names = {tag.partition("-")[2] or tag for tag in sentence.tags}
    return names, sentence.document if has_documents else sentence.words

  return held_out.split(data, share, seed, describe)


def make_features(data: TaggingSet, folder: str) -> None:
  """Makes the features of a set, or finds them in the folder.

  A row has input_ids, input_mask, segment_ids, label_ids and label_mask, int64
  [max_seq_length], padded with 0. A ValueError names the line of a sentence
  that is wrong.
  """
  counts = {"sentences": 0, "words": 0, "documents": 0, "irregular": 0}
  rows = _make_rows(data, counts)
  features = data.open_or_make(folder, rows, counts)
  data.layout = feature_sets.Layout(
    (data.settings.max_seq_length,), per_token=("label_ids", "label_mask")
  )
  counts, lines = features.counts, []
  if counts["irregular"]:
    lines.append(
      f"{counts['irregular']:,} sentences have tags in an order that "
      f"{data.file.scheme} does not have; read as conlleval does"
    )
  if counts["unseen"]:
    listing = messages.list_names(
      f"{name or '_'} ({count:,})" for name, count in counts["unseen"].items()
    )
    lines.append(f"not in the training data, so never predicted: {listing}")
  features.print_summary(
    f"{data.kind}: {counts['sentences']:,} sentences ({counts['words']:,} "
    f"words) of {counts['documents']:,} documents in {len(features):,} "
    f"windows, {np.mean(features.lengths):.1f} tokens on average",
    *lines,
  )


def check_metric(data: TaggingSet, metric: str) -> None:
  """Raises a ValueError if all predictions of a set have the same score.

  It would not say which weights are best: with no entity to find, F1 is 0.
  """
  if metric not in ("f1", "precision", "recall"):
    return
  labels, find = data.settings.labels, tagging_schemes.find_entities
  if not any(
    sentence.tags[entity.start] in labels
    for sentence in data.examples()
    for entity in find(sentence.tags)
  ):
    raise ValueError(
      f"{', '.join(data.paths)}: no entity that the model has a label for, so "
      f"--best_metric={metric} is the same for all weights: evaluate on "
      "others, or choose another score"
    )


def _make_rows(data, counts) -> Iterator[feature_files.Row]:
  """Reads the sentences and yields the rows of their windows."""
  settings, unseen = data.settings, collections.Counter()
  size, pad = settings.max_seq_length, record_writer.padded_feature
  for feature in tagging.make_features(
    _read_counted(data, counts, unseen),
    data.make_tokenizer(),
    settings.labels,
    size,
    settings.document_context,
  ):
    serialized = record_writer.encode_inputs(
      [feature.input_ids],
      [[]],
      size,
      label_ids=pad(feature.label_ids, size),
      label_mask=pad(feature.label_mask, size),
    )
    length = len(feature.input_ids)
    yield feature_files.Row(serialized, length, feature.sentence)
  counts["unseen"] = dict(unseen.most_common())


def _read_counted(data, counts, unseen) -> Iterator[tagging.Sentence]:
  """Yields the sentences as `examples` does, and counts them."""
  convert, document = tagging_schemes.convert_tags, None
  in_file, scheme = data.file.scheme, data.settings.scheme
  for sentence in data.select(tagging.read_sentences(data.file)):
    counts["sentences"] += 1
    counts["words"] += len(sentence.words)
    counts["documents"] += sentence.document != document
    document = sentence.document
    if tags := sentence.tags:
      regular = convert(tags, in_file)
      counts["irregular"] += regular != tags
      labels = regular if in_file == scheme else convert(regular, scheme)
      unseen.update(_find_unseen(labels, data.settings))
      sentence = sentence._replace(tags=labels)
    yield sentence


def choose_labels(
  sources: Mapping[str, tagging.Source],
  settings: Any,
  initial: Sequence[str] = (),
) -> tuple[tuple[str, ...], str]:
  """Returns the labels of a model, in the order of its outputs, and the scheme.

  Takes the files by purpose, train, eval or predict, and the settings of
  run_tagging.py; see `label_files.choose`. A ValueError if the labels mark
  entities, but the tags of a file do not.
  """
  none = tagging_schemes.NO_SCHEME
  labels, origin, scheme = (), "", none
  if train := sources.get("train"):
    scheme = tagging_schemes.label_scheme(train.scheme)
    labels = tagging.find_labels(tagging.read_sentences(train), scheme)
    origin = f"those of {train.path}"
  labels = label_files.choose(
    settings.labels_file, labels, origin=origin, head=initial
  )
  if not train and settings.tag_scheme != none:
    scheme = tagging_schemes.scheme_of_labels(labels)
  plain = [s for s in sources.values() if s.is_tagged and s.scheme == none]
  if plain and scheme != none:
    raise ValueError(
      f"{plain[0].path}: its tags mark no entities, but the model's labels do "
      "(--tag_column names their column; one that a file to predict lacks says "
      "that it has no tags)"
    )
  return labels, scheme


def is_by_character(source: tagging.Source) -> bool:
  """Returns whether all words of a file's first sentences are characters."""
  sentences = itertools.islice(tagging.read_sentences(source), _PEEKED)
  return all(len(word) == 1 for s in sentences for word in s.words)


def _find_unseen(tags, settings) -> Iterable[str]:
  """Returns the entity types, or the tags, that have no label."""
  if set(tags) <= set(settings.labels):
    return ()
  if settings.scheme == tagging_schemes.NO_SCHEME:
    return (tag for tag in tags if tag not in settings.labels)
  return (
    entity.type
    for entity in tagging_schemes.find_entities(tags)
    if tags[entity.start] not in settings.labels
  )


# Predictions.


class Outputs(NamedTuple):
  """The predictions for a set."""

  labels: list[list[str]]  # For each sentence, one for each word.
  loss: float  # In nats, the mean over words whose label is known.


def read_outputs(
  data: TaggingSet, results: Mapping[str, np.ndarray]
) -> Outputs:
  """Returns the labels of all words of a set.

  Of the results, predicted is int [windows, S], -1 where no word begins; losses
  and known are the sums of each window, float and int [windows].
  """
  # Windows are in the order of the words that they are made for.
  numbers = results["predicted"][results["predicted"] >= 0]
  words = (data.settings.labels[number] for number in numbers)
  labels = [
    list(itertools.islice(words, len(sentence.words)))
    for sentence in data.examples()
  ]
  known = results["known"].sum()
  loss = results["losses"].sum(dtype=np.float64) / max(1, known)
  return Outputs(labels, float(loss))


def score(data: TaggingSet, outputs: Outputs) -> tagging_results.TaggingScores:
  """Scores the predictions for a set with tags."""
  true = (sentence.tags for sentence in data.examples())
  return tagging_results.score_labels(
    true, outputs.labels, data.settings.scheme, outputs.loss
  )


def _scheme_of_file(data: TaggingSet) -> str:
  """Returns the scheme of a file's tags; the labels' if they are of several.

  Dummy tags, O everywhere, are of any scheme; S and E alone are BMES as well,
  and B and E BMEWO.
  """
  source, scheme = data.file, data.settings.scheme
  if not source.is_tagged or scheme == tagging_schemes.NO_SCHEME:
    return scheme
  prefixes = {tag[0] for s in data.examples() for tag in s.tags if tag != "O"}
  letters = set(tagging_schemes.SCHEMES[scheme])
  is_same = "M" in letters and prefixes <= letters
  return source.scheme if prefixes and not is_same else scheme


def write_predictions(
  folder: str, data: TaggingSet, labels: Sequence[Sequence[str]]
) -> None:
  """Writes labels as columns, in the file's own scheme, and as spans."""
  in_file = _scheme_of_file(data)
  tags = (tagging_schemes.convert_tags(tags, in_file) for tags in labels)
  lines = tagging.append_column(data.file, itertools.chain.from_iterable(tags))
  path = os.path.join(folder, "predictions.txt")
  files.write_lines(path, lines)
  print(f"wrote {path}")
  path = os.path.join(folder, "predictions.jsonl")
  tables.write_rows(path, _describe_sentences(data, labels), ())


def _describe_sentences(data, labels) -> Iterator[dict[str, Any]]:
  """Yields the entities of each sentence as JSON values.

  They are id (the number of the sentence, from 0), text, and a list `entities`:
  type, start and end in characters of the text, and the text between. Without a
  scheme the list is `words`, with a label for a type.
  """
  has_entities = data.settings.scheme != tagging_schemes.NO_SCHEME
  key, name = ("entities", "type") if has_entities else ("words", "label")
  # In much Chinese data every word is one character.
  words = (word for sentence in data.examples() for word in sentence.words)
  separator = "" if all(len(word) == 1 for word in words) else " "
  pairs = zip(data.examples(), labels, strict=True)
  for index, (sentence, tags) in enumerate(pairs):
    text, offsets = tagging.join_words(sentence.words, separator)
    spans = [(tag, i, i + 1) for i, tag in enumerate(tags)]
    if has_entities:
      spans = tagging_schemes.find_entities(tags)
    rows = []
    for span_type, first, end_word in spans:
      start, end = offsets[first][0], offsets[end_word - 1][1]
      place = {"start": start, "end": end, "text": text[start:end]}
      rows.append({name: span_type, **place})
    yield {"id": index, "text": text, key: rows}
