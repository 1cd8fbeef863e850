"""Tiny random BERTs: what trainings leave, exports, and what to ask these."""

from collections.abc import Callable
import json
from typing import Any, NamedTuple

import keras
import pytest

from bert import export_saved_model, heads
from bert.data import files
from bert.export import trained_models
from bert.serving import answers, export_card
from bert.vocabularies import vocabulary_table
from bert.weights import checkpoints
import program_flags
import tiny

LABELS = ["neg", "pos"]
TAGS = ["O", "B-PER", "I-PER", "B-LOC", "I-LOC"]
CLASSES = {"doc_stride": None, "window_pooling": "mean"}
TAGGING = {"label_scheme": "iob2", "by_character": False}
# What a run of a kind writes into prediction.json, with every other default.
PREDICTION = {
  "question_answering": {
    "doc_stride": 4,
    "max_query_length": 4,
    "n_best_size": 20,
    "max_answer_length": 30,
    "version_2_with_negative": False,
    "null_score_diff_threshold": 0.0,
    "padding_competes": True,
    "whole_word_answers": False,
  },
  "single_label": CLASSES,
}
TEXTS = [
  {"text": "the film was very good"},
  {"text": "bad plot", "text_pair": "the cast was poor and a film"},
  {"text": "a"},
]
CHOICES = {"context": "the film", "question": "was", "choices": ["good", "bad"]}
QUESTION = {"question": "good", "context": "the film was a very good film and"}


def write_trained(
  folder,
  problem="single_label",
  make=None,
  labels=LABELS,
  layers=2,
  vocab_file=None,
  **settings,
):
  """Writes what a training leaves; returns the model.

  Args:
    folder: to write to.
    problem: what settings.json says.
    make: from the config to the model; default a classifier of two labels.
    labels: of labels.txt, which models without labels have, too.
    layers: of the encoder.
    vocab_file: instead of a vocab.txt of `tiny.VOCABULARY`.
    **settings: more fields, of prediction.json if answers depend on them, as
      they do on those of `PREDICTION`, and otherwise of settings.json.
  """
  # Weights so large that texts get answers of their own; always the same.
  changes = {"initializer_range": 0.7, "num_hidden_layers": layers}
  if vocab_file:
    changes["vocab_size"] = vocabulary_table.size_of(vocab_file)
    changes["max_position_embeddings"] = 64
  tiny.write_model(folder, changes)
  if vocab_file:
    (folder / "vocab.txt").unlink()
    vocabulary_table.copy(vocab_file, str(folder))
  vocab_file = vocabulary_table.find([str(folder)])
  keras.utils.set_random_seed(1)
  config = checkpoints.read_config(str(folder / "config.json"))
  model = make(config) if make else heads.ClassifierModel(config, len(LABELS))
  (folder / "bert_config.json").write_text(config.to_json_string())
  content = {
    "problem": problem,
    "do_lower_case": True,
    "vocab_file_sha256": files.hash_file(vocab_file),
  }
  prediction = {
    "max_seq_length": tiny.SEQUENCE,
    **PREDICTION.get(str(problem), {}),
  }
  is_kind = str(problem) in answers.MAKERS
  of_answers = trained_models.setting_names(problem) if is_kind else ()
  for name, value in settings.items():
    (prediction if name in of_answers else content)[name] = value
  (folder / "prediction.json").write_text(json.dumps(prediction))
  (folder / "settings.json").write_text(json.dumps(content))
  (folder / "labels.txt").write_text("\n".join(labels) + "\n")
  checkpoints.save(str(folder), 7, checkpoints.model_variables(model), keep=1)
  return model


def make_maker(
  folder, inputs, kind="single_label", vocabulary=None, **settings
):
  """Makes what encodes and answers, without a model.

  Args:
    inputs: the names of the texts.
    kind: what it answers.
    vocabulary: the name of a file in `folder`, instead of vocab.txt.
    **settings: of the kind, instead of those of PREDICTION.
  """
  tiny.write_model(folder)
  card = export_card.Card(
    version=export_card.VERSION,
    kind=kind,
    format="saved_model",
    inputs=tuple(inputs),
    labels=tuple(LABELS) if answers.MAKERS[kind].has_labels else (),
    thresholds=(0.5, 0.5) if kind == "multi_label" else (),
    max_seq_length=tiny.SEQUENCE,
    max_position_embeddings=tiny.SEQUENCE,
    do_lower_case=True,
    num_layers=2,
    num_heads=2,
    settings=settings or PREDICTION.get(kind, {}),
    weights="",
    training={},
    versions={},
  )
  return answers.MAKERS[kind](card, str(folder / (vocabulary or "vocab.txt")))


def close(expected, **tolerances):
  """Makes answers equal to others whose numbers, however deep, are near."""
  if isinstance(expected, dict):
    return {k: close(value, **tolerances) for k, value in expected.items()}
  if isinstance(expected, list):
    return [close(value, **tolerances) for value in expected]
  if isinstance(expected, float):
    return pytest.approx(expected, **tolerances)
  return expected


def shown_span(row):
  """Returns what run_squad.py writes of an answer, as predict.py has it."""
  return {k: v for k, v in row.items() if k not in ("id", "question")}


def one_label(config):
  return heads.ClassifierModel(config, 1)


def tagger(config):
  return heads.TaggerModel(config, len(TAGS))


class Case(NamedTuple):
  """A model that answers."""

  kind: str
  make: Callable | None  # Makes the model; None: a classifier of two labels.
  labels: list[str]
  settings: dict[str, Any]
  requests: list[dict[str, Any]]


# Models that answer, by name.
CASES = {
  "single_label": Case("single_label", None, LABELS, CLASSES, TEXTS),
  "multi_label": Case("multi_label", None, LABELS, CLASSES, TEXTS),
  "regression": Case("regression", one_label, ["x"], CLASSES, TEXTS),
  "windows": Case(
    "single_label",
    None,
    LABELS,
    {"doc_stride": 4, "window_pooling": "max"},
    [{"text": "the film was very good and a plot " * 4}],
  ),
  "multiple_choice": Case("multiple_choice", one_label, ["x"], {}, [CHOICES]),
  "tagging": Case(
    "tagging",
    tagger,
    TAGS,
    TAGGING,
    [{"text": "good film, the (very) " * 5}, {"text": "bad"}],
  ),
  "question_answering": Case(
    "question_answering",
    heads.SpanModel,
    ["x"],
    {},
    [QUESTION, {"question": "bad", "context": "the bad plot"}],
  ),
}


def run_export(folder, name="export", *, format, **flags):
  """Exports a model to a folder in its own one; returns the path."""
  flags = {
    "vocab_file": folder / "vocab.txt",
    "model_dir": folder,
    "export_dir": folder / name,
    "format": format,
    **flags,
  }
  program_flags.run_main(
    export_saved_model, export_saved_model.ExportSettings, **flags
  )
  return folder / name


def export_onnx(folder, name="export", **flags):
  """Exports a model as `run_export` does, for ONNX Runtime."""
  return run_export(folder, name, format="onnx", **flags)


def write_case(folder, case, layers=2):
  model = CASES[case]
  write_trained(
    folder, model.kind, model.make, model.labels, layers, **model.settings
  )
  return model.requests


def make_masked_lm(folder):
  """Returns the model whose config.json is in a folder, with new weights."""
  config = checkpoints.read_config(str(folder / "config.json"))
  return heads.PretrainingModel(config)


def write_masked_lm(folder, keep=lambda name: True):
  """Writes config.json, vocab.txt and a checkpoint; returns the model.

  Args:
    folder: to write to.
    keep: returns whether the checkpoint gets the variable of a name.
  """
  tiny.write_model(folder, {"num_hidden_layers": 2})
  model = make_masked_lm(folder)
  variables = checkpoints.model_variables(model)
  kept = {name: value for name, value in variables.items() if keep(name)}
  checkpoints.save(str(folder), 0, kept, keep=0)
  return model


def write_modules(folder, pooling="pooling_mode_mean_tokens", **others):
  """Writes the files of sentence-transformers: pooled and normalised."""
  places = {"Transformer": "", "Pooling": "1_Pooling", "Normalize": "2_N"}
  modules = [
    {"path": path, "type": f"sentence_transformers.models.{name}"}
    for name, path in places.items()
  ]
  (folder / "modules.json").write_text(json.dumps(modules))
  (folder / "1_Pooling").mkdir(exist_ok=True)
  (folder / "1_Pooling" / "config.json").write_text(json.dumps({pooling: True}))
  if others:
    (folder / "sentence_bert_config.json").write_text(json.dumps(others))


def masked_lm_flags(folder, **others):
  """Returns the flags of a program for the model in a folder."""
  flags = tiny.flags_for(folder, init_checkpoint=folder, **others)
  del flags["output_dir"]
  return flags
