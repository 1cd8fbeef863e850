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
from bert.tasks import (
  tagging,
  tagging_json,
  tagging_results,
  tagging_schemes,
  tagging_words,
)


@dataclasses.dataclass(frozen=True)
class TaggingFeatureSettings(feature_sets.FeatureSettings):
  """The settings that shape the features."""

  document_context: bool
  labels: tuple[str, ...]
  scheme: str  # The scheme of the labels, see `tagging_schemes.label_scheme`.


@dataclasses.dataclass(eq=False, kw_only=True)
class TaggingSet(feature_sets.FeatureSet):
  """The sentences of a file."""

  settings: TaggingFeatureSettings
  tagged_file: tagging.Source


def find_set(
  kind: str,
  tagged_file: tagging.Source,
  settings: TaggingFeatureSettings,
  limit: int | None = None,
) -> TaggingSet:
  """Returns the sentences of a file; their tags are in the labels' scheme.

  Args:
    kind: "train", "eval" or "predict".
    tagged_file: which columns it has, and the scheme of its own tags.
    settings: whose scheme the tags are converted to.
    limit: the most sentences to train on; None for all.
  """
  # Without names the key of the features is that of runs before there were any.
  described = tagged_file._asdict()
  if not tagged_file.names:
    del described["names"]
  return TaggingSet(
    kind=kind,
    settings=settings,
    paths=(tagged_file.path,),
    source={"source": described},
    read=functools.partial(
      tagging.read_sentences, tagged_file, settings.scheme
    ),
    limit=limit,
    tagged_file=tagged_file,
  )


def split(
  data: TaggingSet, share: float, seed: int
) -> tuple[feature_sets.FeatureSet, feature_sets.FeatureSet]:
  """Holds out documents, or sentences if the file is a single document.

  Args:
    data: the set to train on.
    share: of the documents to hold out, such as 0.1.
    seed: of the draw.

  Returns:
    What to train on, and what to evaluate on.
  """
  has_documents = any(sentence.document for sentence in data.read())

  # Both parts get about their share of each entity type, or tag. Sentences of
  # one document, or of the same words, stay in one part.
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
  # Filled while rows are made; if the file is there, its index has them.
  facts: dict[str, Any] = {"sentences": 0, "words": 0, "documents": 0}
  facts |= {"irregular": 0, "unseen": {}}
  features = data.open_or_make(folder, _make_rows(data, facts), facts)
  data.layout = feature_sets.Layout(
    (data.settings.max_seq_length,), per_token=("label_ids", "label_mask")
  )

  facts = features.facts
  lines = []
  if facts["irregular"]:
    lines.append(
      f"{facts['irregular']:,} sentences have tags in an order that "
      f"{data.tagged_file.scheme} does not have; read as conlleval does"
    )
  if facts["unseen"]:
    listing = messages.list_names(
      f"{name or '_'} ({count:,})" for name, count in facts["unseen"].items()
    )
    lines.append(f"not in the training data, so never predicted: {listing}")
  features.print_summary(
    f"{data.kind}: {facts['sentences']:,} sentences ({facts['words']:,} "
    f"words) of {facts['documents']:,} documents in {len(features):,} "
    f"windows, {np.mean(features.lengths):.1f} tokens on average",
    *lines,
  )


def check_metric(data: TaggingSet, metric: str) -> None:
  """Raises a ValueError if all predictions of a set have the same score.

  It would not say which weights are best: with no entity to find, F1 is 0.
  """
  if metric not in ("f1", "precision", "recall"):
    return

  # Tags are in the labels' scheme here, so the first one of an entity shows
  # whether the model knows its type.
  for sentence in data.examples():
    for entity in tagging_schemes.find_entities(sentence.tags):
      if sentence.tags[entity.start] in data.settings.labels:
        return
  raise ValueError(
    f"{', '.join(data.paths)}: no entity that the model has a label for, so "
    f"--best_metric={metric} is the same for all weights: evaluate on "
    "others, or choose another score"
  )


def _make_rows(data, facts) -> Iterator[feature_files.Row]:
  """Reads the sentences and yields the rows of their windows.

  `facts` are whole when all rows are made.
  """
  settings = data.settings
  size = settings.max_seq_length
  unseen = collections.Counter()
  for feature in tagging.make_features(
    _read_counted(data, facts, unseen),
    data.make_tokenizer(),
    settings.labels,
    size,
    settings.document_context,
  ):
    serialized = record_writer.encode_inputs(
      [feature.input_ids],
      [[]],
      size,
      label_ids=record_writer.padded_feature(feature.label_ids, size),
      label_mask=record_writer.padded_feature(feature.label_mask, size),
    )
    length = len(feature.input_ids)
    yield feature_files.Row(serialized, length, feature.sentence)

  facts["unseen"] = dict(unseen.most_common())


def _read_counted(data, facts, unseen) -> Iterator[tagging.Sentence]:
  """Yields the sentences as `data.examples` does, and counts them.

  `unseen` counts the entity types, or tags, that have no label.
  """
  file_scheme = data.tagged_file.scheme
  label_scheme = data.settings.scheme
  document = None
  for sentence in data.select(tagging.read_sentences(data.tagged_file)):
    facts["sentences"] += 1
    facts["words"] += len(sentence.words)
    facts["documents"] += sentence.document != document
    document = sentence.document

    # Written anew in the scheme of the file, tags differ only if their order
    # was one that the scheme does not have, such as I-PER after O in IOB2.
    if tags := sentence.tags:
      regular = tagging_schemes.convert_tags(tags, file_scheme)
      facts["irregular"] += regular != tags
      converted = regular
      if file_scheme != label_scheme:
        converted = tagging_schemes.convert_tags(regular, label_scheme)
      unseen.update(_find_unseen(converted, data.settings))
      sentence = sentence._replace(tags=converted)
    yield sentence


def choose_labels(
  sources: Mapping[str, tagging.Source],
  settings: Any,
  initial: Sequence[str] = (),
) -> tuple[tuple[str, ...], str]:
  """Returns the labels of a model, in the order of its outputs, and the scheme.

  Args:
    sources: the files by kind: "train", "eval" or "predict".
    settings: the flags of run_tagging.py.
    initial: the labels of the head that training starts from, if it has any;
      see `label_files.choose`.

  Raises:
    ValueError: the labels mark entities, but the tags of a file do not.
  """
  no_scheme = tagging_schemes.NO_SCHEME
  labels = ()
  origin = ""
  scheme = no_scheme
  if train := sources.get("train"):
    scheme = tagging_schemes.label_scheme(train.scheme)
    labels = tagging.find_labels(tagging.read_sentences(train), scheme)
    origin = f"those of {train.path}"
  labels = label_files.choose(
    settings.labels_file, labels, origin=origin, head=initial
  )

  # Without a file to train on, the labels of a trained model show the scheme.
  if not train and settings.tag_scheme != no_scheme:
    scheme = tagging_schemes.scheme_of_labels(labels)

  for source in sources.values():
    marks_none = source.is_tagged and source.scheme == no_scheme
    if marks_none and scheme != no_scheme:
      raise ValueError(
        f"{source.path}: its tags mark no entities, but the model's labels do "
        "(--tag_column names their column; one that a file to predict lacks "
        "says that it has no tags)"
      )
  return labels, scheme


def is_by_character(source: tagging.Source) -> bool:
  """Returns whether all words of a file are characters."""
  # Only a file of nothing but characters is read to its end.
  sentences = tagging.read_sentences(source)
  return all(len(word) == 1 for s in sentences for word in s.words)


def _find_unseen(tags, settings) -> Iterable[str]:
  """Returns the entity types, or the tags, that have no label."""
  # Nearly every sentence ends here.
  if set(tags) <= set(settings.labels):
    return ()

  # A type counts once for an entity, not for each of its words.
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
  # Windows are in the order of the words that they are made for, and each word
  # is predicted in exactly one of them: all numbers in a row are all words.
  numbers = results["predicted"][results["predicted"] >= 0]
  word_labels = (data.settings.labels[number] for number in numbers)
  labels = [
    list(itertools.islice(word_labels, len(sentence.words)))
    for sentence in data.examples()
  ]

  num_known = results["known"].sum()
  loss = results["losses"].sum(dtype=np.float64) / max(1, num_known)
  return Outputs(labels, float(loss))


def score(data: TaggingSet, outputs: Outputs) -> tagging_results.TaggingScores:
  """Scores the predictions for a set with tags."""
  true = (sentence.tags for sentence in data.examples())
  return tagging_results.score_labels(
    true, outputs.labels, data.settings.scheme, outputs.loss
  )


def _scheme_of_file(data: TaggingSet) -> str:
  """Returns the scheme to write a file's tags in: its own, if that is certain.

  It is not if all tags are O, or if the file may as well be in the scheme of
  the labels. Then that scheme is taken.
  """
  source = data.tagged_file
  scheme = data.settings.scheme
  if not source.is_tagged or scheme == tagging_schemes.NO_SCHEME:
    return scheme

  prefixes = set()
  for sentence in data.examples():
    prefixes.update(tag[0] for tag in sentence.tags if tag != "O")

  # `tagging_schemes.detect` takes the first scheme that has most of a file's
  # prefixes. It can be wrong for a file in BMES or BMEWO, the schemes with an
  # M, that lacks one of their prefixes: it takes B, E and S for IOBES, and B, M
  # and E for BMES. It mistakes no other scheme.
  letters = set(tagging_schemes.SCHEMES[scheme])
  may_be_same = "M" in letters and prefixes <= letters
  return source.scheme if prefixes and not may_be_same else scheme


def write_predictions(
  folder: str, data: TaggingSet, labels: Sequence[Sequence[str]]
) -> None:
  """Writes predictions.txt and predictions.jsonl.

  Args:
    folder: gets the files.
    data: the set that was predicted.
    labels: for each sentence, one for each word, in the scheme of the model.
  """
  # The lines of the file, with a column more, in the scheme of the file.
  scheme = _scheme_of_file(data)
  tags = (
    tag
    for sentence_labels in labels
    for tag in tagging_schemes.convert_tags(sentence_labels, scheme)
  )
  path = os.path.join(folder, "predictions.txt")
  files.write_lines(path, tagging.append_column(data.tagged_file, tags))
  print(f"wrote {path}")

  # The same as spans of a text.
  path = os.path.join(folder, "predictions.jsonl")
  tables.write_rows(path, _describe_sentences(data, labels, scheme), ())


def _describe_sentences(data, labels, scheme) -> Iterator[dict[str, Any]]:
  """Yields the entities of each sentence as JSON values.

  They are id (the number of the sentence, from 0), text, and a list `entities`:
  type, start and end in characters of the text, and the text between. Without a
  scheme the list is `words`, with a label for a type. Rows of JSON Lines can be
  read again as their file was: they also have `tokens` and `tags`, or a `label`
  for a type if they were texts.
  """
  has_entities = data.settings.scheme != tagging_schemes.NO_SCHEME
  key = "entities" if has_entities else "words"
  is_json = tagging_json.is_json(data.tagged_file.path)

  # In much Chinese data every word is one character, and no space is between.
  # This asks all words of this file. The model's `by_character` is of the file
  # it was trained on, and only for texts that are not split into words yet.
  words = (word for sentence in data.examples() for word in sentence.words)
  separator = "" if all(len(word) == 1 for word in words) else " "

  pairs = zip(data.examples(), labels, strict=True)
  for index, (sentence, tags) in enumerate(pairs):
    row = {"id": index}
    if is_json and sentence.text is None:
      in_scheme = tagging_schemes.convert_tags(tags, scheme)
      row |= {"tokens": sentence.words, "tags": in_scheme}
    text, offsets = sentence.text, sentence.offsets
    name = "label"
    if text is None:
      text, offsets = tagging_words.join_words(sentence.words, separator)
      name = "type" if has_entities else name

    # Spans are (type or label, first word, the word after the last).
    spans = [(tag, i, i + 1) for i, tag in enumerate(tags)]
    if has_entities:
      spans = tagging_schemes.find_entities(tags)

    entries = []
    for label, first_word, end_word in spans:
      start, _ = offsets[first_word]
      _, end = offsets[end_word - 1]
      entries.append(
        {name: label, "start": start, "end": end, "text": text[start:end]}
      )
    yield {**row, "text": text, key: entries}
