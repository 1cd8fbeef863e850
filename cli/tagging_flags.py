"""The flags of run_tagging.py, and the objects made from them."""

from collections.abc import Iterator
import os

from absl import flags

from cli import fine_tuning
from cli import fine_tuning_flags
from data import files
from data import label_files
import heads
import modeling
from tasks import tagging
from tasks import tagging_inputs
from tasks import tagging_results

FLAGS = flags.FLAGS

_SCALAR_MIX = "mix"
_ENDINGS = [
  ending + compression
  for ending in (".txt", ".conll", ".tsv", ".bio", ".bmes")
  for compression in ("", ".gz", ".xz")
]


def define_flags() -> None:
  """Declares the flags of this program."""
  fine_tuning_flags.define_flags(max_seq_length=128)
  fine_tuning_flags.define_data_flags()
  flags.DEFINE_integer(
    "token_column", 0, "The column of the word, from 0.", lower_bound=0
  )
  flags.DEFINE_integer(
    "tag_column", -1, "The column of the tag; -1 is the last.", lower_bound=-1
  )
  flags.DEFINE_enum(
    "tag_scheme",
    "auto",
    ["auto", *tagging.SCHEMES, tagging.NO_SCHEME],
    "How tags mark entities. auto: found out for each file. none: they mark "
    "none, as parts of speech; scores are then those of words.",
  )
  flags.DEFINE_enum(
    "predict_format",
    "conll",
    tagging.FORMATS,
    "Of the file to predict. conll: as the others; it is scored too, if it has "
    "more than the words. untagged: the same without tags. text: a sentence a "
    "line, to be split into words. characters: likewise, into characters.",
  )
  flags.DEFINE_bool(
    "document_context",
    False,
    "Whether to fill up inputs with the sentences around in the document.",
  )
  _define_feature_based_flags()


def _define_feature_based_flags():
  flags.DEFINE_bool(
    "feature_based",
    False,
    "Whether to leave BERT as it is and to train a BiLSTM on its layers.",
  )
  flags.DEFINE_list(
    "feature_layers",
    ["-4", "-3", "-2", "-1"],
    "With --feature_based: the layers whose outputs are joined; -1 is the last "
    "one, 0 the embeddings. Or mix: a weighted sum of all, whose weights are "
    "learned.",
  )
  flags.DEFINE_integer(
    "lstm_size",
    768,
    "With --feature_based: units of the two LSTMs in each direction.",
    lower_bound=1,
  )


def find_sources() -> dict[str, tagging.Source]:
  """Returns the files of each kind that the flags ask for.

  Raises:
    ValueError: one is missing, or its tags follow no scheme.
  """
  paths = fine_tuning.find_data_files(FLAGS, _ENDINGS)
  return {kind: _make_source(kind, path) for kind, path in paths.items()}


def _make_source(kind: str, path: str) -> tagging.Source:
  source = tagging.Source(
    path,
    FLAGS.predict_format if kind == "predict" else "conll",
    FLAGS.token_column,
    FLAGS.tag_column,
    FLAGS.tag_scheme,
  )
  if kind == "predict" and source.is_tagged:
    needed = max(FLAGS.tag_column, FLAGS.token_column + 1) + 1
    if not tagging.has_columns(path, needed):
      source = source._replace(format="untagged")
  if not source.is_tagged or source.scheme != "auto":
    return source
  return source._replace(scheme=tagging.find_scheme(source))


def open_inputs(
  settings, private: str, sources: dict[str, tagging.Source]
) -> fine_tuning.Inputs:
  """Makes and opens the features of files.

  Args:
    settings: of the program.
    sources: from `find_sources`.
    private: see `models.private_folder`.

  Raises:
    ValueError: a file is wrong, or the run's folder is that of other labels,
      vocabulary or training data.
  """
  labels, scheme = _choose_labels(sources.get("train"), settings.output_dir)
  options = tagging_inputs.Options(
    vocab_file=FLAGS.vocab_file,
    do_lower_case=FLAGS.do_lower_case,
    max_seq_length=FLAGS.max_seq_length,
    document_context=FLAGS.document_context,
    labels=tuple(labels),
    scheme=scheme,
  )
  metric = best_metric(scheme)
  splits = {
    kind: tagging_inputs.open_split(kind, source, options, private)
    for kind, source in sources.items()
  }
  return fine_tuning.Inputs(
    options,
    metric,
    _model_settings(scheme),
    splits.get("train"),
    [splits["eval"]] if "eval" in splits else [],
    [splits["predict"]] if "predict" in splits else [],
    labels,
  )


def _choose_labels(
  train: tagging.Source | None, folder: str
) -> tuple[list[str], str]:
  """Returns the labels of a model and their scheme."""
  path = fine_tuning.labels_file(folder)
  known = label_files.read(path) if files.exists(path) else None
  if train:
    scheme = tagging.label_scheme(train.scheme)
    sentences = tagging_inputs.read_sentences(train, scheme)
    labels = tagging.find_labels(sentences, scheme)
    if known and known != labels:
      raise ValueError(
        f"{path} has the labels {', '.join(known)}; those of {train.path} are "
        f"{', '.join(labels)}: use another --output_dir"
      )
    return labels, scheme
  if not known:
    raise ValueError(
      f"no {path} and no training file: the labels are unknown; pass the "
      "--output_dir of a training"
    )
  if FLAGS.tag_scheme == tagging.NO_SCHEME:
    return known, tagging.NO_SCHEME
  return known, tagging.scheme_of_labels(known)


def _model_settings(scheme):
  feature_based = {}
  if FLAGS.feature_based:
    feature_based = {
      "feature_layers": FLAGS.feature_layers,
      "lstm_size": FLAGS.lstm_size,
    }
  return {
    "problem": "tagging",
    "label_scheme": scheme,
    "feature_based": FLAGS.feature_based,
    **feature_based,
  }


def best_metric(scheme: str) -> str:
  """Returns the name of the score that decides which weights are best.

  Raises:
    ValueError: there is no such score.
  """
  known = tagging_results.metric_names(scheme)
  return fine_tuning.best_metric(FLAGS, known[0], known)


def make_feature_tagger(
  config: modeling.BertConfig, num_labels: int, dtype: str
) -> heads.FeatureTaggerModel:
  """Makes the model of --feature_based.

  Raises:
    ValueError: a flag asks for a layer that the model does not have.
  """
  return heads.FeatureTaggerModel(
    config,
    num_labels,
    dtype,
    layers=_feature_layers(config.num_hidden_layers),
    lstm_size=FLAGS.lstm_size,
  )


def _feature_layers(count: int) -> list[int] | None:
  if FLAGS.feature_layers == [_SCALAR_MIX]:
    return None
  try:
    layers = [int(layer) for layer in FLAGS.feature_layers]
  except ValueError:
    layers = []
  if not layers or not all(-count - 1 <= layer <= count for layer in layers):
    raise ValueError(
      f"--feature_layers={','.join(FLAGS.feature_layers)}: expected mix, or "
      f"numbers from {-count - 1} to {count}, such as -2,-1"
    )
  return layers


def score(
  split: tagging_inputs.Split,
  options: tagging_inputs.Options,
  outputs: tagging_inputs.Outputs,
) -> tagging_results.Scores:
  """Scores what is predicted of a file with tags."""
  return tagging_results.score(
    (sentence.tags for sentence in split.sentences()),
    _labels_by_sentence(split, options, outputs),
    options.scheme,
    outputs.loss,
  )


def _labels_by_sentence(split, options, outputs) -> Iterator[list[str]]:
  labels = (options.labels[number] for number in outputs.labels)
  return tagging_results.split_by_sentence(labels, split.sentences())


def write_outputs(
  folder: str,
  split: tagging_inputs.Split,
  options: tagging_inputs.Options,
  outputs: tagging_inputs.Outputs,
) -> None:
  """Writes predictions as columns, in the file's own scheme, and as spans."""
  source = split.source
  scheme = source.scheme if source.is_tagged else options.scheme
  path = os.path.join(folder, "predictions.txt")
  by_sentence = _labels_by_sentence(split, options, outputs)
  written = (tagging.convert_tags(labels, scheme) for labels in by_sentence)
  tagging_results.write_columns(path, source, written)
  print(f"wrote {path}")
  path = os.path.join(folder, "predictions.jsonl")
  tagging_results.write_spans(
    path,
    split.sentences(),
    _labels_by_sentence(split, options, outputs),
    options.scheme,
    "" if tagging.is_by_character(split.sentences()) else " ",
  )
  print(f"wrote {path}")
