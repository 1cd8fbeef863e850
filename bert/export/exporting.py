"""Writes a trained model for others to use, with a card that describes it."""

import dataclasses
import importlib
import importlib.metadata
import os

import numpy as np
import tensorflow as tf

from bert.data import atomic, files, hub, messages
from bert.export import comparison, model_functions, trained_models
from bert.serving import export_card, exported_model, formats
from bert.vocabularies import vocabulary_table
from bert.weights import checkpoints

_TOLERANCE = 1e-4  # Between the outputs of a model and of its export.


def write(
  folder: str,
  trained: trained_models.TrainedModel,
  vocab_file: str,
  format: str,
  gate: comparison.Gate | None = None,
) -> str:
  """Writes a model to a new folder, loads it again and compares.

  Args:
    folder: is new or empty; it appears whole or not at all.
    trained: the model and its task.
    vocab_file: its vocabulary, which is copied.
    format: a key of `formats.FORMATS`.
    gate: what an export with products of int8 must pass; None: of float32.

  Returns how close the export is, in words; a ValueError if it is not close
  enough, an OSError if it cannot be written.
  """
  functions = model_functions.ModelFunctions(trained, vocab_file)
  with atomic.new_folder(folder) as temporary:
    try:
      card = _write(temporary, functions, format, quantizes=bool(gate))
    except tf.errors.OpError as error:  # TensorFlow's, such as of a full disk.
      if messages.describe_shortage(error):
        raise
      reason = checkpoints.plain_message(error)
      raise OSError(f"{folder}: cannot be written: {reason}") from error

    # A float32 export gives the same numbers.
    if not gate:
      load = importlib.import_module(formats.FORMATS[format].writer).load
      difference = _compare(functions, load(temporary, card))
      return f"loaded again, it gives the same within {difference:.1g}"

    # An int8 export gives other numbers: its answers are compared, and the card
    # says with which result.
    result = comparison.compare(
      exported_model.ExportedModel(temporary, engine=functions),
      exported_model.ExportedModel(temporary),
      gate,
    )
    described = {**card.quantization, **result._asdict()}
    card = dataclasses.replace(card, quantization=described)
    _write_card(temporary, functions, card, result.describe())
    return result.describe()


def _write(folder, functions, format, quantizes) -> export_card.Card:
  """Writes all files; returns what export.json describes."""
  # What the encoder and the answers need, in files of their own.
  trained = functions.trained
  vocab_file = functions.vocab_file
  config = trained.config.to_json_string()
  files.write_text(os.path.join(folder, "bert_config.json"), config)
  vocabulary_table.copy(vocab_file, folder)
  if trained.labels:
    files.write_lines(os.path.join(folder, "labels.txt"), trained.labels)

  # The model. Whoever loads it compares the hashes of files with the card.
  format_row = formats.FORMATS[format]
  importlib.import_module(format_row.writer).save(folder, functions, quantizes)
  hashed = list(vocabulary_table.saved_names(vocab_file))
  hashed += format_row.hashed
  hashes = {n: files.hash_file(os.path.join(folder, n)) for n in hashed}
  hashes[export_card.WEIGHTS] = functions.hash_weights()

  # Without "saturates", `exported_model` takes an export for an older one,
  # whose products may saturate on some processors, and looks at the processor.
  quantized = {"dtype": "int8", "saturates": False} if quantizes else {}
  card = _describe(functions, format, hashes=hashes, quantization=quantized)
  _write_card(folder, functions, card)
  return card


def _describe(functions, format, **others) -> export_card.Card:
  """Makes the card of a model; `others` are its fields of written files."""
  trained = functions.trained
  maker = functions.maker
  packages = ["tensorflow", "tensorflow-text", "keras", "numpy"]
  packages += formats.FORMATS[format].packages
  return export_card.Card(
    version=export_card.VERSION,
    kind=trained.kind,
    format=format,
    # A classifier that learned from single texts takes no pairs.
    inputs=maker.texts if trained.has_text_pair else maker.texts[:1],
    labels=trained.labels,
    thresholds=trained.thresholds,
    max_seq_length=functions.max_seq_length,
    max_position_embeddings=trained.config.max_position_embeddings,
    do_lower_case=trained.do_lower_case,
    # Other encoders than Transformers have no attention, so 0 heads.
    num_layers=trained.config.num_hidden_layers,
    num_heads=getattr(trained.config, "num_attention_heads", 0),
    # A setting that is newer than the training is None, if the maker allows it.
    settings={n: trained.answer_settings.get(n) for n in maker.settings},
    weights=hub.name_of(trained.weights),
    training=dict(trained.training_settings),
    versions={name: importlib.metadata.version(name) for name in packages},
    **others,
  )


def in_memory(
  folder: str, vocab_file: str, trained: trained_models.TrainedModel | None
) -> exported_model.ExportedModel:
  """Makes a model that answers as its export would; nothing is written.

  Args:
    folder: of the model, by which it is called; read if `trained` is None.
    vocab_file: its vocabulary.
    trained: the model, if it was loaded already; None to load the
      --output_dir of a training.
  """
  trained = trained or trained_models.load_output_dir(folder, vocab_file)
  functions = model_functions.ModelFunctions(trained, vocab_file)
  card = _describe(functions, "saved_model")
  return exported_model.ExportedModel(
    folder, engine=functions, card=card, vocab_file=vocab_file
  )


def _make_inputs(functions) -> dict[str, np.ndarray]:
  """Makes an input of random tokens of the full length, a third padding."""
  # Two segments, if the model has two, and a masked word, if it knows that.
  length = functions.max_seq_length
  ids = np.random.default_rng(1).integers(0, functions.num_tokens, [1, length])
  mask = (np.arange(length) < max(2, 2 * length // 3)).astype(int)[None]
  segments = (np.arange(length) > length // 3).astype(int)[None] * mask
  segments = np.minimum(segments, functions.trained.config.type_vocab_size - 1)
  if functions.mask_id is not None:
    ids[0, 1] = functions.mask_id
  values = [ids * mask, mask, segments]

  # What a head takes besides has no random values, as not all may be allowed.
  values += [np.array([row]) for row in functions.maker.more_inputs.values()]
  return {
    name: array.astype(np.int32)
    for name, array in zip(functions.input_names, values, strict=True)
  }


def _compare(functions, run) -> float:
  """Compares the outputs of a model with those of the loaded export."""
  inputs = _make_inputs(functions)
  expected = functions.run(inputs)
  computed = run(inputs)
  worst = 0.0
  for name, wanted in expected.items():
    given = np.asarray(computed[name], float)
    # Some differences mean nothing: outputs at padding, and the order of tokens
    # that are equally likely.
    if getattr(functions.trained.model, "scores_tokens", False):
      is_token = inputs["input_mask"] > 0
      wanted, given = wanted[is_token], given[is_token]
    if name == "ids":
      certain = _has_certain_place(expected["probabilities"])
      wanted, given = wanted[certain], given[certain]

    # Ids and positions are integers, which must be equal.
    difference = np.abs(given - wanted).max(initial=0)
    limit = 0.0
    if wanted.dtype.kind == "f":
      limit = _TOLERANCE * np.abs(wanted).max(initial=1.0)
    if not difference <= limit:  # So that NaN fails.
      raise ValueError(
        f"the export, loaded again, gives {name} that differ by {difference}"
      )
    worst = max(worst, float(difference))
  return worst


def _has_certain_place(probabilities) -> np.ndarray:
  """Returns which of the best guesses keep their places in any export.

  A rounding may exchange two that are about equally likely, such as the second
  and third here; and the last of the list with one that is not in it.

  >>> _has_certain_place(np.array([0.5, 0.2, 0.2, 0.1]))
  array([ True, False, False, False])

  Args:
    probabilities: of each mask, the highest first, float32 [..., K].
  """
  # A guess has a sure place if it is apart from the one before and after it.
  apart = -np.diff(probabilities) > _TOLERANCE
  edges = [(0, 0)] * (apart.ndim - 1)  # The one after the last is unknown.
  before = np.pad(apart, edges + [(1, 0)], constant_values=True)
  return before & np.pad(apart, edges + [(0, 1)])


def _write_card(folder, functions, card, compared=""):
  """Writes export.json, and README.md for people."""
  content = export_card.seal(dataclasses.asdict(card))
  files.write_json(os.path.join(folder, export_card.FILE), content)
  # The shape of the model's inputs: B texts of S tokens.
  most = card.max_seq_length
  inputs = "`, `".join(functions.input_names)
  has_one_shape = formats.FORMATS[card.format].has_one_shape
  shape = f"[1, {most}]" if has_one_shape else "[B, S]"

  # The rows of its table.
  rows = {
    "weights": card.weights,
    "texts": ", ".join(card.inputs),
    "labels": ", ".join(f"`{label}`" for label in card.labels) or "none",
    "ids": f"`{inputs}`, int32 {shape}, S up to {most}",
    "settings": ", ".join(f"{k} {v}" for k, v in card.settings.items()),
  }
  if compared:
    rows[f"{card.quantization['dtype']} products"] = compared

  # A label may hold what Markdown reads as the end of a cell or of a row.
  cells = {k: v.replace("|", "\\|").replace("\n", " ") for k, v in rows.items()}
  lines = [
    f"# {functions.maker.title}",
    "",
    f"A BERT, exported as {card.format} by `export_saved_model.py`.",
    "export.json holds the settings of its training, versions and SHA-256.",
    "See docs/predict.md, which says how to call it; docs/serving.md is about",
    "the server.",
    "",
    "| | |",
    "|---|---|",
  ]
  lines += [f"| {name} | {cell} |" for name, cell in cells.items()]
  files.write_lines(os.path.join(folder, "README.md"), lines)
