"""Writes a trained model for others to use, with a card that describes it."""

from collections.abc import Mapping
import contextlib
import dataclasses
import importlib.metadata
import os
import shutil
from typing import Any
import warnings

import numpy as np
import tensorflow as tf

from data import files
from export import signatures
from export import span_graph
from export import tf_tokenization
from export import trained_models
from serving import export_facts
from tasks import tagging

_TOLERANCE = 1e-4  # Between the model and what is loaded again.
_TITLES = {
  "single_label": "Classifies texts",
  "multi_label": "Gives texts any number of labels",
  "regression": "Predicts a number for texts",
  export_facts.QUESTION_ANSWERING: "Answers questions about texts",
  export_facts.TAGGING: "Labels words",
  export_facts.MULTIPLE_CHOICE: "Chooses among answers",
  export_facts.FEATURES: "Makes vectors of texts",
  export_facts.FILL_MASK: "Guesses masked words",
}
_LITERT = "model.tflite"
_ONNX = "model.onnx"
_IDS = ("input_ids", "input_mask", "segment_ids")
_PACKAGES = ("tensorflow", "tensorflow-text", "keras", "numpy")


def make_graph(
  trained: trained_models.TrainedModel,
  vocab_file: str,
  max_seq_length: int,
  settings: Mapping[str, Any],
) -> signatures.TextGraph:
  """Makes what is exported of a trained model.

  Args:
    trained: the model.
    vocab_file: its vocabulary.
    max_seq_length: see `signatures.TextGraph`.
    settings: of its kind, see `export_facts.SETTINGS`.
  """
  kind, model = trained.kind, trained.model
  kept = [signatures.MASK] if kind == export_facts.FILL_MASK else []
  tokenizer = tf_tokenization.TfTokenizer(
    vocab_file, trained.do_lower_case, kept
  )
  common = model, tokenizer, max_seq_length
  if kind == export_facts.QUESTION_ANSWERING:
    return span_graph.SpanGraph(*common, span_graph.SpanSettings(**settings))
  if kind == export_facts.TAGGING:
    marks_entities = settings["label_scheme"] != tagging.NO_SCHEME
    return signatures.TaggerGraph(*common, trained.labels, marks_entities)
  if kind == export_facts.MULTIPLE_CHOICE:
    return signatures.ChoiceGraph(*common)
  if kind == export_facts.FEATURES:
    return signatures.VectorsGraph(
      *common, settings["layer"], settings["pooling"]
    )
  if kind == export_facts.FILL_MASK:
    return signatures.MaskGraph(*common, settings["top_k"])
  graph = signatures.ClassifierGraph(
    *common, kind, trained.labels, trained.thresholds
  )
  if not trained.has_text_pair:
    graph.inputs = graph.inputs[:1]
  return graph


def new_folder(path: str) -> contextlib.AbstractContextManager[str]:
  """Gives a temporary folder that becomes `path` at the end.

  Raises:
    ValueError: there is something of that name.
  """
  path = path.rstrip("/")
  if os.path.exists(path):
    raise ValueError(
      f"--export_dir={path}: exists; choose another or delete it"
    )
  return files.new_folder(path)


def describe(
  trained: trained_models.TrainedModel,
  graph: signatures.TextGraph,
  format: str,
  settings: Mapping[str, Any],
) -> export_facts.Facts:
  """Returns what export.json says.

  Args:
    trained: the model.
    graph: what is exported.
    format: one of FORMATS.
    settings: see `make_graph`.
  """
  return export_facts.Facts(
    version=export_facts.VERSION,
    kind=trained.kind,
    format=format,
    inputs=graph.inputs,
    labels=trained.labels,
    thresholds=trained.thresholds,
    max_seq_length=graph.max_seq_length,
    do_lower_case=trained.do_lower_case,
    num_layers=trained.config.num_hidden_layers,
    num_heads=trained.config.num_attention_heads,
    settings=dict(settings),
    weights=trained.weights,
    training=dict(trained.settings),
    versions={name: importlib.metadata.version(name) for name in _PACKAGES},
  )


def write(
  folder: str,
  trained: trained_models.TrainedModel,
  graph: signatures.TextGraph,
  facts: export_facts.Facts,
  vocab_file: str,
) -> float:
  """Writes a model and what describes it, loads it again and compares.

  Args:
    folder: to write into.
    trained, graph: what to write.
    facts: from `describe`.
    vocab_file: is copied.

  Returns:
    The largest difference between the model and what was loaded.

  Raises:
    ValueError: they are not the same, or the format cannot be written.
  """
  config = trained.config.to_json_string()
  files.write_text(os.path.join(folder, "bert_config.json"), config)
  shutil.copyfile(vocab_file, os.path.join(folder, "vocab.txt"))
  if trained.labels:
    files.write_lines(os.path.join(folder, "labels.txt"), trained.labels)
  content = dataclasses.asdict(facts)
  files.write_json(os.path.join(folder, export_facts.FILE), content)
  files.write_text(os.path.join(folder, "README.md"), _write_card(content))
  run = _WRITERS[facts.format](folder, graph, trained.config)
  return _compare(graph, run, trained.config)


def _compare(graph, run, config) -> float:
  """Compares the outputs of ids between a graph and what was loaded again."""
  source = np.random.default_rng(1)
  length = graph.max_seq_length
  ids = source.integers(0, len(graph.tokenizer.tokens), [1, length])
  mask = (np.arange(length) < max(2, 2 * length // 3)).astype(int)[None]
  segments = (np.arange(length) > length // 3).astype(int)[None] * mask
  segments = np.minimum(segments, config.type_vocab_size - 1)
  if isinstance(graph, signatures.MaskGraph):
    ids[0, 1] = graph.tokenizer.vocab[signatures.MASK]
  inputs = [values.astype(np.int32) for values in (ids * mask, mask, segments)]
  expected = graph.compute(*map(tf.constant, inputs))
  found = run(*inputs)
  worst = 0.0
  for name, values in expected.items():
    difference = np.abs(np.asarray(found[name], float) - values.numpy()).max()
    # Not the other way round: NaN is no agreement.
    if not difference <= _TOLERANCE * max(1.0, np.abs(values.numpy()).max()):
      raise ValueError(
        f"what was written, loaded again, gives other {name}: they differ by "
        f"{difference}; nothing was kept"
      )
    worst = max(worst, float(difference))
  return worst


def _write_saved_model(folder, graph, config):
  signatures.save(graph, folder)
  loaded = tf.saved_model.load(folder)

  def run(input_ids, input_mask, segment_ids):
    outputs = loaded.signatures["ids"](
      input_ids=tf.constant(input_ids),
      input_mask=tf.constant(input_mask),
      segment_ids=tf.constant(segment_ids),
    )
    # The strings too: what is wrong shows here, not at its first user.
    texts = {name: tf.constant(["a b", ""]) for name in graph.inputs}
    loaded.signatures["serving_default"](**texts)
    return {name: value.numpy() for name, value in outputs.items()}

  return run


def _ids_function(graph):
  """Returns the function from ids, int32 [1, S], as a concrete one."""
  spec = tf.TensorSpec([1, graph.max_seq_length], tf.int32)
  specs = [tf.TensorSpec(spec.shape, spec.dtype, name) for name in _IDS]
  return tf.function(lambda *ids: graph.compute(*ids), input_signature=specs)


def _write_litert(folder, graph, config):
  module = tf.Module()
  module.weights = [variable.value for variable in graph.model.variables]
  function = _ids_function(graph)
  module.serve = function
  converter = tf.lite.TFLiteConverter.from_concrete_functions(
    [function.get_concrete_function()], module
  )
  try:
    content = converter.convert()
  except Exception as error:
    lines = [line for line in str(error).splitlines() if line.strip()]
    raise ValueError(
      f"--format=litert: TensorFlow cannot convert this model: {lines[0]}"
    ) from error
  with open(os.path.join(folder, _LITERT), "wb") as file:
    file.write(content)
  runner = _make_interpreter(os.path.join(folder, _LITERT))
  return lambda *ids: runner(**dict(zip(_IDS, ids, strict=True)))


def _make_interpreter(path):
  """Loads a LiteRT model; returns its signature as a function."""
  with warnings.catch_warnings():
    # TensorFlow's own one is to become a package of its own.
    warnings.simplefilter("ignore")
    try:
      from ai_edge_litert import interpreter

      return interpreter.Interpreter(path).get_signature_runner()
    except ImportError:
      return tf.lite.Interpreter(path).get_signature_runner()


def _write_onnx(folder, graph, config):
  try:
    import onnxruntime
    import tf2onnx
  except ImportError as error:
    raise ValueError(
      f"--format=onnx needs tf2onnx and onnxruntime ({error}): pip install -r "
      "requirements/onnx.txt"
    ) from None
  path = os.path.join(folder, _ONNX)
  function = _ids_function(graph)
  tf2onnx.convert.from_function(
    function, function.input_signature, opset=18, output_path=path
  )
  session = onnxruntime.InferenceSession(path)
  names = [output.name for output in session.get_outputs()]

  def run(*ids):
    values = session.run(names, dict(zip(_IDS, ids, strict=True)))
    return dict(zip(names, values, strict=True))

  return run


_WRITERS = {
  "saved_model": _write_saved_model,
  "litert": _write_litert,
  "onnx": _write_onnx,
}


def _write_card(facts: Mapping[str, Any]) -> str:
  """Returns the text of README.md."""
  shown = {"inputs", "labels", "settings", "training", "versions"}
  shown |= {"format", "kind", "version"}
  rows = [(k, v) for k, v in facts.items() if k not in shown and v != ()]
  rows += facts["settings"].items()
  lines = [
    f"# {_TITLES[facts['kind']]}",
    "",
    f"A BERT, exported as {facts['format']} by `export_saved_model.py`.",
    "",
    *_usage(facts),
    "## Facts",
    "",
    "| | |",
    "|---|---|",
    *(f"| {name} | {_cell(value)} |" for name, value in rows),
  ]
  if facts["labels"]:
    lines += ["", "## Labels", "", ", ".join(map(_cell, facts["labels"]))]
  for title, key in (("Training", "training"), ("Versions", "versions")):
    if facts[key]:
      rows = facts[key].items()
      lines += ["", f"## {title}", "", "| | |", "|---|---|"]
      lines += [f"| {name} | {_cell(value)} |" for name, value in rows]
  return "\n".join(lines) + "\n"


def _cell(value) -> str:
  return f"`{value}`".replace("|", "\\|").replace("\n", " ")


def _usage(facts):
  inputs = ", ".join(f"`{name}`" for name in facts["inputs"])
  if facts["format"] != "saved_model":
    return [
      "Takes `input_ids`, `input_mask` and `segment_ids`, int32 "
      f"[1, {facts['max_seq_length']}], with the tokens of `vocab.txt`.",
      "",
    ]
  return [
    "| signature | takes | returns |",
    "|---|---|---|",
    f"| `serving_default` | {inputs}: strings [B] | answers |",
    "| `ids` | `input_ids`, `input_mask`, `segment_ids`: int32 [B, S] | "
    "numbers |",
    "| `attention` | the same; `layer`, `head`: int32 | `attention` |",
    "",
    "```sh",
    "python predict.py --export_dir=. --input_file=texts.txt",
    "python predict.py --export_dir=. --serve",
    "```",
    "",
  ]
