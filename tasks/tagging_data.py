"""Tagged words as feature files; labels, their scores and their files."""

import collections
from collections.abc import Iterable, Iterator, Mapping, Sequence
import dataclasses
import functools
import itertools
import os
from typing import Any, NamedTuple

import numpy as np

from data import files, label_files, tables
from inputs import feature_files
from tasks import (
  metrics,
  plots,
  tagging,
  tagging_schemes,
)

_PEEKED = 1000  # Sentences that show whether words are characters.


@dataclasses.dataclass(frozen=True)
class FeatureSettings(feature_files.FeatureSettings):
  """The settings that shape the features."""

  document_context: bool
  labels: tuple[str, ...]
  scheme: str  # That of the labels, see `tagging_schemes.label_scheme`.


@dataclasses.dataclass(eq=False, kw_only=True)
class TaggingSet(feature_files.FeatureSet):
  """The sentences of a file."""

  settings: FeatureSettings
  file: tagging.Source


def find_set(
  kind: str,
  file: tagging.Source,
  settings: FeatureSettings,
  max_train_examples: int | None = None,
) -> TaggingSet:
  """Returns the sentences of a file; their tags are in the labels' scheme."""
  return TaggingSet(
    kind=kind,
    settings=settings,
    paths=(file.path,),
    source={"source": file._asdict()},
    read=functools.partial(tagging.read_sentences, file, settings.scheme),
    limit=max_train_examples if kind == "train" else None,
    file=file,
  )


def make_features(data: TaggingSet, folder: str) -> None:
  """Makes the features of a set, or finds them in the folder."""
  counts = {"sentences": 0, "words": 0, "documents": 0, "irregular": 0}
  rows = _make_rows(data, counts)
  features = feature_files.open_or_make(data, folder, rows, counts)
  data.layout = feature_files.Layout(
    (data.settings.max_seq_length,), per_token=("label_ids", "label_mask")
  )
  counts, lines = features.counts, []
  if counts["irregular"]:
    lines.append(
      f"{counts['irregular']:,} sentences have tags in an order that "
      f"{data.file.scheme} does not have; read as conlleval does"
    )
  if counts["unseen"]:
    listing = tables.list_names(
      f"{name or '_'} ({count:,})" for name, count in counts["unseen"].items()
    )
    lines.append(f"not in the training data, so never predicted: {listing}")
  feature_files.print_summary(
    features,
    f"{data.kind}: {counts['sentences']:,} sentences ({counts['words']:,} "
    f"words) of {counts['documents']:,} documents in {len(features):,} "
    f"windows, {np.mean(features.lengths):.1f} tokens on average",
    *lines,
  )


def _make_rows(data, counts) -> Iterator[feature_files.Row]:
  """Reads the sentences and yields the rows of their windows."""
  settings, unseen = data.settings, collections.Counter()
  for feature in tagging.make_features(
    itertools.islice(_read_counted(data, counts, unseen), data.limit),
    data.make_tokenizer(),
    settings.labels,
    settings.max_seq_length,
    settings.document_context,
  ):
    yield feature_files.Row(
      tagging.encode_feature(feature, settings.max_seq_length),
      len(feature.input_ids),
      feature.sentence,
    )
  counts["unseen"] = dict(unseen.most_common())


def _read_counted(data, counts, unseen) -> Iterator[tagging.Sentence]:
  """Yields the sentences as `examples` does, and counts them."""
  convert, scheme = tagging_schemes.convert_tags, data.settings.scheme
  for sentence in tagging.read_sentences(data.file):
    counts["sentences"] += 1
    counts["words"] += len(sentence.words)
    counts["documents"] = sentence.document + 1
    if tags := sentence.tags:
      counts["irregular"] += convert(tags, data.file.scheme) != tags
      sentence = sentence._replace(tags=convert(tags, scheme))
      unseen.update(_find_unseen(sentence.tags, data.settings))
    yield sentence


def choose_labels(
  sources: Mapping[str, tagging.Source],
  labels_file: str,
  tag_scheme: str,
  initial: Sequence[str] = (),
) -> tuple[tuple[str, ...], str]:
  """Returns the labels of a model and their scheme.

  Args:
    sources: the files, by purpose: train, eval or predict.
    tag_scheme: "none" if the labels of an earlier run mark no entities.
    labels_file, initial: see `label_files.choose`.

  Raises:
    ValueError: the labels mark entities, but the tags of a file do not.
  """
  labels, origin, scheme = (), "", tagging_schemes.NO_SCHEME
  if train := sources.get("train"):
    scheme = tagging_schemes.label_scheme(train.scheme)
    labels = tagging.find_labels(tagging.read_sentences(train, scheme), scheme)
    origin = f"those of {train.path}"
  labels = label_files.choose(labels_file, labels, origin=origin, head=initial)
  if not train and tag_scheme != tagging_schemes.NO_SCHEME:
    scheme = tagging_schemes.scheme_of_labels(labels)
  model_has_entities = scheme != tagging_schemes.NO_SCHEME
  for source in sources.values():
    has_entities = source.scheme != tagging_schemes.NO_SCHEME
    if source.is_tagged and not has_entities and model_has_entities:
      raise ValueError(
        f"{source.path}: its tags mark no entities, but the model's labels do "
        "(--tag_column names their column; one that a file to predict lacks "
        "says that it has no tags)"
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


# Scores.


def metric_names(scheme: str) -> tuple[str, ...]:
  """Returns the scores of labels of a scheme, the most important first."""
  if scheme == tagging_schemes.NO_SCHEME:
    return ("accuracy", "macro_f1", "loss")
  return ("f1", "precision", "recall", "accuracy", "loss")


class Scores(NamedTuple):
  """How good predictions are."""

  metrics: dict[str, float]
  report: metrics.ClassificationReport
  names: list[str]  # The types or labels of the report.


def score_labels(
  true: Iterable[Sequence[str]],
  predicted: Iterable[Sequence[str]],
  scheme: str,
  loss: float,
) -> Scores:
  """Scores labels: by entities if they follow a scheme, else by words.

  The loss is the cross entropy in nats, the mean over words.
  """
  if scheme == tagging_schemes.NO_SCHEME:
    report, names = _score_words(true, predicted)
    values = {"macro_f1": report.macro.f1}
  else:
    report, names = entity_report(true, predicted)
    values = report.micro._asdict()
  values |= {"accuracy": report.accuracy, "loss": loss}
  return Scores(dict(sorted(values.items())), report, names)


def entity_report(
  true: Iterable[Sequence[str]], predicted: Iterable[Sequence[str]]
) -> tuple[metrics.ClassificationReport, list[str]]:
  """Scores predicted tags by whole entities, as the CoNLL shared tasks did.

  An entity is right if its type, its first and its last word are. `micro` is
  the overall score of `conlleval`. Tjong Kim Sang & De Meulder,
  https://arxiv.org/abs/cs/0306050, section 2.3.

  Returns:
    The report, one label a type; its accuracy is the share of words with the
    right tag. And the types, sorted; one without a name is "_".
  """
  support, guesses, right = (collections.Counter() for _ in range(3))
  words = right_words = 0
  for true_tags, predicted_tags in zip(true, predicted, strict=True):
    entities = set(tagging_schemes.find_entities(true_tags))
    guessed = set(tagging_schemes.find_entities(predicted_tags))
    support.update(entity.type for entity in entities)
    guesses.update(entity.type for entity in guessed)
    right.update(entity.type for entity in entities & guessed)
    words += len(true_tags)
    pairs = zip(true_tags, predicted_tags, strict=True)
    right_words += sum(a == b for a, b in pairs)
  types = sorted(support | guesses)
  counts = [
    np.array([counter[type] for type in types], np.int64)
    for counter in (right, support, guesses)
  ]
  report = metrics.make_report(*counts, right_words / max(1, words))
  return report, [type or "_" for type in types]


def _score_words(true, predicted):
  chain = itertools.chain.from_iterable
  words = [*chain(true), *chain(predicted)]
  names, numbers = np.unique(np.array(words), return_inverse=True)
  report = metrics.classification_report(*np.split(numbers, 2), len(names))
  return report, names.tolist()


class Outputs(NamedTuple):
  """The predictions for a set."""

  labels: list[list[str]]  # For each sentence, one for each word.
  loss: float  # In nats, the mean over words whose label is known.


def read_outputs(
  data: TaggingSet, results: Mapping[str, np.ndarray]
) -> Outputs:
  """Returns the labels of all words of a set.

  Args:
    results: predicted, int [windows, S], -1 where no word begins, and the sums
      of each window: losses, float, and known, int [windows].
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


def score(data: TaggingSet, outputs: Outputs) -> Scores:
  """Scores the predictions for a set with tags."""
  true = (sentence.tags for sentence in data.examples())
  scheme = data.settings.scheme
  return score_labels(true, outputs.labels, scheme, outputs.loss)


# What is written.


def write_scores(folder: str, kind: str, scores: Scores) -> None:
  """Prints the scores by type or label, and writes all of them."""
  print(plots.format_report(scores.report, scores.names))
  report = metrics.report_as_dict(scores.report, scores.names)
  metrics.write_metrics(folder, kind, scores.metrics, **report)


def describe(
  sentences: Iterable[tagging.Sentence],
  predicted: Iterable[Sequence[str]],
  scores: Scores,
) -> str:
  """Describes labels for report.html: their scores, and what is confused."""
  parts = [plots.number_table(scores.metrics)]
  parts.append(plots.label_table(scores.report, scores.names))
  if scores.report.confusion:  # Labels without a scheme.
    parts.append(plots.confusions(scores.report.confusion, scores.names))
    return "\n".join(parts)
  pairs: collections.Counter[tuple[str, str]] = collections.Counter()
  for sentence, tags in zip(sentences, predicted, strict=True):
    pairs.update(zip(map(_type, sentence.tags), map(_type, tags), strict=True))
  names = sorted(set(itertools.chain.from_iterable(pairs)))
  counts = [(names.index(a), names.index(b), n) for (a, b), n in pairs.items()]
  parts.append(plots.confusions(metrics.Confusion(*np.array(counts).T), names))
  parts.append("<p>Counts words, by the type that they are part of.</p>")
  return "\n".join(parts)


def _type(tag) -> str:
  """Returns the type of a tag, such as PER, or all of one without a prefix."""
  return tag.partition("-")[2] or tag


def describe_sentences(
  sentences: Iterable[tagging.Sentence],
  labels: Iterable[Sequence[str]],
  scheme: str,
  separator: str,
) -> Iterator[dict[str, Any]]:
  """Yields the entities of each sentence as JSON values.

  They are id (the number of the sentence, from 0), text, and a list `entities`:
  type, start and end in characters of the text, and the text between. Without a
  scheme the list is `words`, with a label for a type.

  Args:
    separator: between the words of a text, see `tagging.join_words`.
  """
  key, name = "entities", "type"
  if scheme == tagging_schemes.NO_SCHEME:
    key, name = "words", "label"
  pairs = zip(sentences, labels, strict=True)
  for index, (sentence, tags) in enumerate(pairs):
    text, offsets = tagging.join_words(sentence.words, separator)
    spans = tagging_schemes.find_entities(tags)
    if scheme == tagging_schemes.NO_SCHEME:
      spans = [(tag, i, i + 1) for i, tag in enumerate(tags)]
    rows = []
    for span_type, first, end_word in spans:
      start, end = offsets[first][0], offsets[end_word - 1][1]
      place = {"start": start, "end": end, "text": text[start:end]}
      rows.append({name: span_type, **place})
    yield {"id": index, "text": text, key: rows}


def _scheme_of_file(data: TaggingSet) -> str:
  """Returns the scheme of a file's tags; the labels' if they are of several.

  Dummy tags, O everywhere, are of any scheme; S and E alone are BMES as well.
  """
  source, scheme = data.file, data.settings.scheme
  if not source.is_tagged or scheme == tagging_schemes.NO_SCHEME:
    return scheme
  prefixes = {tag[0] for s in data.examples() for tag in s.tags if tag != "O"}
  is_bmes = scheme == "bmes" and "I" not in prefixes
  return source.scheme if prefixes and not is_bmes else scheme


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
  # In much Chinese data every word is one character.
  words = (word for sentence in data.examples() for word in sentence.words)
  separator = "" if all(len(word) == 1 for word in words) else " "
  spans = describe_sentences(
    data.examples(), labels, data.settings.scheme, separator
  )
  path = os.path.join(folder, "predictions.jsonl")
  tables.write_rows(path, spans, ())
  print(f"wrote {path}")
