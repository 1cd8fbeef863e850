"""Writes a trained model for others to use, with a card that describes it."""

from collections.abc import Mapping
import dataclasses
import importlib.metadata
import os
from typing import Any
import warnings

import numpy as np
import tensorflow as tf

from data import files
from export import quantization
from export import signatures
from export import span_graph
from export import tf_sentence_pieces
from export import trained_models
from serving import export_facts
from serving import exported_model
from serving import tensorflow_engine
from tasks import tagging
from vocabularies import vocabulary_table

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
_PACKAGES = ("tensorflow", "tensorflow-text", "keras", "numpy")
_ONNX_PACKAGES = ("onnx", "onnxruntime")


def make_graph(
  trained: trained_models.TrainedModel,
  vocab_file: str,
  max_seq_length: int,
  settings: Mapping[str, Any],
) -> signatures.TextGraph:
  """Makes what is exported of a trained model.

  Args:
    max_seq_length: see `signatures.TextGraph`.
    settings: of its kind, see `export_facts.SETTINGS`.
  """
  kind, model = trained.kind, trained.model
  kept = [signatures.MASK] if kind == export_facts.FILL_MASK else []
  tokenizer = tf_sentence_pieces.make_tokenizer(
    vocab_file, trained.do_lower_case, kept
  )
  common = model, tokenizer, max_seq_length
  if kind == export_facts.QUESTION_ANSWERING:
    return span_graph.SpanGraph(*common, span_graph.SpanSettings(**settings))
  if kind == export_facts.TAGGING:
    marks_entities = settings["label_scheme"] != tagging.NO_SCHEME
    return signatures.TaggerGraph(
      *common, trained.labels, marks_entities, settings["by_character"]
    )
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


def describe(
  trained: trained_models.TrainedModel,
  graph: signatures.TextGraph,
  format: str,
  settings: Mapping[str, Any],
  quantize: str = "none",
) -> export_facts.Facts:
  """Returns what export.json says.

  Args:
    format: one of FORMATS.
    settings: see `make_graph`.
    quantize: "none" or "int8".
  """
  packages = _PACKAGES + (_ONNX_PACKAGES if format == "onnx" else ())
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
    num_heads=getattr(trained.config, "num_attention_heads", 0),
    settings=dict(settings),
    weights=trained.weights,
    training=dict(trained.settings),
    versions={name: importlib.metadata.version(name) for name in packages},
    quantization={} if quantize == "none" else {"dtype": quantize},
  )


def write(
  folder: str,
  trained: trained_models.TrainedModel,
  graph: signatures.TextGraph,
  facts: export_facts.Facts,
  vocab_file: str,
  gate: quantization.Gate | None = None,
) -> str:
  """Writes a model and its card; says how close to it the loaded export is.

  Args:
    facts: from `describe`.
    vocab_file: is copied.

  Raises:
    ValueError: it is not near enough, or the format cannot be written.
  """
  config = trained.config.to_json_string()
  files.write_text(os.path.join(folder, "bert_config.json"), config)
  vocabulary_table.copy(vocab_file, folder)
  facts = _hash(folder, facts, vocabulary_table.saved_names(vocab_file))
  if trained.labels:
    files.write_lines(os.path.join(folder, "labels.txt"), trained.labels)
  if facts.format == "onnx":
    facts, engine = _write_onnx(folder, trained, graph, facts)
    run = engine.run
  else:
    run = _WRITERS[facts.format](folder, graph)
  _write_facts(folder, facts)
  if not gate:
    difference = _compare(graph, run, trained.config)
    return f"loaded again, it gives the same within {difference:.1g}"
  found = quantization.compare(
    exported_model.ExportedModel(folder, engine=GraphEngine(graph)),
    exported_model.ExportedModel(folder, engine=engine),
    gate,
  )
  found.check(gate.max_score_drop)
  facts = dataclasses.replace(
    facts, quantization={**facts.quantization, **found._asdict()}
  )
  _write_facts(folder, facts)
  return found.describe()


def _hash(folder, facts, names):
  """Returns the facts with the hashes of more files."""
  hashes = {name: files.hash_file(os.path.join(folder, name)) for name in names}
  return dataclasses.replace(facts, hashes={**facts.hashes, **hashes})


def _write_facts(folder, facts):
  """Writes export.json, and the same for people."""
  content = dataclasses.asdict(facts)
  sealed = export_facts.seal(content)
  files.write_json(os.path.join(folder, export_facts.FILE), sealed)
  files.write_text(os.path.join(folder, "README.md"), _write_card(content))


class GraphEngine:
  """Computes with a model in memory; see `exported_model.Engine`."""

  def __init__(self, graph: signatures.TextGraph):
    spec = [tf.TensorSpec([None, None], tf.int32)] * len(signatures.IDS)
    self._compute = tf.function(graph.compute, input_signature=spec)
    self.attend = lambda *ids: graph.attend(*ids).numpy()

  def run(self, *ids: np.ndarray) -> dict[str, np.ndarray]:
    outputs = self._compute(*map(tf.constant, ids))
    return {name: value.numpy() for name, value in outputs.items()}


def load_output_dir(folder: str) -> exported_model.ExportedModel:
  """Loads as `trained_models.load_output_dir`; answers as an export would."""
  vocab_file = vocabulary_table.find([folder])
  trained = trained_models.load_output_dir(folder, vocab_file)
  prediction = trained.prediction
  settings = {n: prediction[n] for n in export_facts.SETTINGS[trained.kind]}
  graph = make_graph(
    trained, vocab_file, prediction["max_seq_length"], settings
  )
  facts = describe(trained, graph, "saved_model", settings)
  return exported_model.ExportedModel(
    folder, engine=GraphEngine(graph), facts=facts
  )


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
  of_tokens = isinstance(graph, signatures.TaggerGraph | span_graph.SpanGraph)
  worst = 0.0
  for name, values in expected.items():
    wanted, given = values.numpy(), np.asarray(found[name], float)
    if of_tokens:  # Ignore outputs at padding.
      wanted, given = wanted[inputs[1] > 0], given[inputs[1] > 0]
    if name == "ids":
      certain = _has_certain_place(expected["probabilities"].numpy())
      wanted, given = wanted[certain], given[certain]
    difference = np.abs(given - wanted).max(initial=0)
    # `not <=`, so that NaN fails.
    if not difference <= _TOLERANCE * max(1.0, np.abs(wanted).max()):
      raise ValueError(
        f"what was written, loaded again, gives other {name}: they differ by "
        f"{difference}; nothing was kept"
      )
    worst = max(worst, float(difference))
  return worst


def _has_certain_place(probabilities) -> np.ndarray:
  """Tells which of the best, float32 [..., K], no rounding can move."""
  apart = -np.diff(probabilities) > _TOLERANCE
  edges = [(0, 0)] * (apart.ndim - 1)  # What comes after the last is unknown.
  before = np.pad(apart, [*edges, (1, 0)], constant_values=True)
  return before & np.pad(apart, [*edges, (0, 1)])


def _write_saved_model(folder, graph):
  graph.tokenizer.check()
  signatures.save(graph, folder)
  engine = tensorflow_engine.Engine(folder)
  # The strings too: what is wrong shows here, not at its first user.
  texts = {name: tf.constant(["a b", ""]) for name in graph.inputs}
  engine.model.signatures["serving_default"](**texts)
  return engine.run


def _write_litert(folder, graph):
  module = tf.Module()
  module.weights = [variable.value for variable in graph.model.variables]
  shape = [1, graph.max_seq_length]
  specs = [tf.TensorSpec(shape, tf.int32, name) for name in signatures.IDS]
  function = tf.function(lambda *ids: graph.compute(*ids), specs)
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
  path = os.path.join(folder, _LITERT)
  files.write_bytes(path, content)
  with warnings.catch_warnings():
    # TensorFlow's interpreter is to become a package of its own.
    warnings.simplefilter("ignore")
    runner = tf.lite.Interpreter(path).get_signature_runner()
  return lambda *ids: runner(**dict(zip(signatures.IDS, ids, strict=True)))


def _write_onnx(folder, trained, graph, facts):
  """Writes model.onnx; returns the facts with its hashes, and it, loaded."""
  from export import onnx_graph
  from serving import onnx_engine

  tokenizer = graph.tokenizer
  onnx_graph.build(
    trained,
    facts.settings,
    tokenizer.vocab.get(signatures.MASK),
    len(tokenizer.tokens),
    quantizes=bool(facts.quantization),
  ).save(os.path.join(folder, onnx_engine.MODEL_FILE))
  facts = _hash(folder, facts, [onnx_engine.MODEL_FILE, onnx_engine.DATA_FILE])
  return facts, onnx_engine.Engine(folder, facts)


_WRITERS = {"saved_model": _write_saved_model, "litert": _write_litert}


def _write_card(facts: Mapping[str, Any]) -> str:
  """Returns the text of README.md."""
  shown = {"inputs", "labels", "settings", "training", "versions"}
  shown |= {"format", "kind", "version", "hashes", "quantization"}
  rows = {k: v for k, v in facts.items() if k not in shown and v != ()}
  parts = [
    f"# {_TITLES[facts['kind']]}",
    f"A BERT, exported as {facts['format']} by `export_saved_model.py`.",
    _usage(facts),
    _section("Facts", rows | facts["settings"]),
  ]
  if facts["labels"]:
    parts += ["## Labels", ", ".join(map(_cell, facts["labels"]))]
  if "before" in facts["quantization"]:
    parts += _describe_quantization(facts["quantization"])
  for title in ("training", "versions", "hashes"):
    if facts[title]:
      shown = "SHA-256" if title == "hashes" else title.capitalize()
      parts.append(_section(shown, facts[title]))
  return "\n\n".join(parts) + "\n"


def _section(title, rows) -> str:
  lines = [f"| {name} | {_cell(value)} |" for name, value in rows.items()]
  return "\n".join([f"## {title}", "", "| | |", "|---|---|", *lines])


def _cell(value) -> str:
  return f"`{value}`".replace("|", "\\|").replace("\n", " ")


def _describe_quantization(found):
  """Describes what is quantized and the cost."""
  from export import onnx_graph

  scores = [
    f"| {name} | {value:.4f} | {found['after'][name]:.4f} |"
    for name, value in found["before"].items()
  ]
  return [
    "## Quantization",
    f"Products with the encoder's kernels are of {found['dtype']}, with a "
    "scale for each column of the weights and one for the activations of a "
    "batch, so an answer depends a little on what else is in its batch. In "
    f"float32 stay {onnx_graph.KEPT_IN_FLOAT32}.",
    f"Compared with the model on {found['sample']}: {found['changed']:,} of "
    f"{found['examples']:,} answers changed.",
    "\n".join(["| score | before | after |", "|---|---|---|", *scores]),
  ]


_COMMANDS = """```sh
python predict.py --export_dir=. --input_file=texts.txt
python predict.py --export_dir=. --serve
```"""


def _usage(facts) -> str:
  inputs = ", ".join(f"`{name}`" for name in facts["inputs"])
  shape = "[B, S]"
  if facts["format"] == "saved_model":
    attention = (
      "| `attention` | the same | `attention` [B, layers, heads, S, S] |\n"
    )
    return f"""| signature | takes | returns |
|---|---|---|
| `serving_default` | {inputs}: strings [B] | answers |
| `ids` | `input_ids`, `input_mask`, `segment_ids`: int32 {shape} | numbers |
{attention * (facts["num_heads"] > 0)}
{_COMMANDS}"""
  if facts["format"] == "litert":
    shape = f"[1, {facts['max_seq_length']}]"
  text = (
    "Takes `input_ids`, `input_mask` and `segment_ids`, int32 "
    f"{shape}, with the tokens of the vocabulary."
  )
  return text if facts["format"] == "litert" else f"{text}\n\n{_COMMANDS}"
