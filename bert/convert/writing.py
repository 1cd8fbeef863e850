"""Writes models, with the files that belong to them, in three formats."""

import importlib
import os

from bert import modeling
from bert.convert import conversion, huggingface, models, tokenizer_files
from bert.data import atomic, files, hub, label_files, text_vectors
from bert.vocabularies import vocabulary_table
from bert.weights import checkpoints, fitting


def write(output_format: str, folder: str, model: models.Model) -> list[str]:
  """Writes a model to a new folder; returns lines about what was written.

  The format is "google", with an optimizer's slots to resume from;
  "hugging_face"; or "keras_hub", without heads that it computes differently.
  """
  writers = {
    "google": _write_google,
    "hugging_face": _write_hugging_face,
    "keras_hub": _write_keras_hub,
  }
  with atomic.new_folder(folder) as temporary:
    lines = writers[output_format](temporary, model)
    if model.vocab_file:
      vocabulary_table.copy(model.vocab_file, temporary)
    elif output_format != "keras_hub":  # It writes its own.
      files.write_lines(os.path.join(temporary, "vocab.txt"), model.vocabulary)
    name = next(iter(vocabulary_table.saved_names(model.vocab_file or "")))
    lines.append(
      f"{name}: {len(model.vocabulary)} tokens, "
      f"do_lower_case={model.do_lower_case}"
    )
    if output_format != "keras_hub":
      for source in model.folders:
        made = text_vectors.copy(source, temporary)
        lines += [f"{name}: the same vectors" for name in made]
    if model.labels:
      lines.append(f"labels: {', '.join(model.labels)}")
    if model.problem in huggingface.PROBLEM_TYPES:
      lines.append(_write_problem(temporary, model, output_format))
    notes = conversion.describe_differences(model)
    card = [
      "# BERT",
      "",
      f"Made by `convert_checkpoint.py` from {model.library}, "
      f"`{hub.name_of(model.source)}`: {model.config.num_hidden_layers} layers "
      f"of {model.config.hidden_size}, --head={model.head}.",
      "",
      *(f"- {line}" for line in (*lines, *notes)),
      "",
      "Programs of this project take it as `--model=FOLDER`.",
    ]
    files.write_lines(os.path.join(temporary, "README.md"), card)
  return lines


def _write_google(folder, model) -> list[str]:
  weights = conversion.strip(model).values
  state, step = set(model.values) - set(weights), None
  # A run's folder, which a classifier's is like, has checkpoints of a step.
  if state - {"global_step"} or model.problem in huggingface.PROBLEM_TYPES:
    step = int(model.values.get("global_step", 0))
  name = os.path.basename(checkpoints.write(folder, model.values, step))
  path = os.path.join(folder, "bert_config.json")
  files.write_text(path, model.config.to_json_string())
  if model.labels:
    label_files.write(os.path.join(folder, "labels.txt"), model.labels)
  if model.do_lower_case != (not vocabulary_table.is_cased(model.vocabulary)):
    # Readers would guess the other casing.
    path = os.path.join(folder, "tokenizer_config.json")
    files.write_json(path, {"do_lower_case": model.do_lower_case})
  lines = [f"{name}: {len(weights)} variables of the model"]
  if state:
    lines.append(f"{name}: {len(state)} variables of the state of its training")
  return [*lines, "bert_config.json"]


def _write_problem(folder, model, output_format) -> str:
  """Writes how a classifier answers, as its training does; returns a line."""
  line = f"problem: {model.problem}"
  if model.problem == "multi_label":
    line += ", without tuned thresholds: 0.5 for every label"
  if output_format == "keras_hub":
    line += "; not stored: pass --problem"
  if output_format != "google":  # Hugging Face's config.json has it.
    return line
  paths = (os.path.join(source, "prediction.json") for source in model.folders)
  recorded = next(filter(None, map(files.read_json_if_any, paths)), None)
  answers = recorded or {  # The defaults of run_classifier.py.
    "max_seq_length": min(128, model.config.max_position_embeddings),
    "doc_stride": None,
    "window_pooling": "mean",
  }
  settings = {
    "problem": model.problem,
    "do_lower_case": model.do_lower_case,
    "vocab_file_sha256": files.hash_file(vocabulary_table.find([folder])),
  }
  if pooling := _find_pooling(model):
    settings |= {"pooling": pooling}
  files.write_json(os.path.join(folder, "prediction.json"), answers)
  files.write_json(os.path.join(folder, "settings.json"), settings)
  return line


def _find_pooling(model) -> str | None:
  """Returns the pooling that a classifier has instead of BERT's pooler."""
  runs = map(tokenizer_files.read_run_settings, model.folders)
  return next((run["pooling"] for run in runs if "pooling" in run), None)


def _write_hugging_face(folder, model) -> list[str]:
  users = models.HEADS[model.head].architecture
  _check_representable(
    "hugging_face", model, model.head, f"{users} (--head={model.head})"
  )
  rest = huggingface.write(folder, model)
  place = f"{huggingface.GOOGLE_ONLY}, which a conversion back reads"
  lines = _describe(huggingface.WEIGHTS, users, model, rest, place)
  activation = model.config.hidden_act
  activation = huggingface.ACTIVATIONS.get(activation, activation)
  return [*lines, f"{huggingface.CONFIG}: hidden_act is {activation}"]


def _write_keras_hub(folder, model) -> list[str]:
  users, head = "BertBackbone", "encoder"
  if model.head == "classifier":
    users, head = "BertTextClassifier", "classifier"
  _check_representable("keras_hub", model, head, users)
  names = models.variables(model.config, head)
  values = {name: model.values[name] for name in names}
  keras_hub = importlib.import_module("bert.contrib.keras_hub")
  keras_hub.write(folder, model, values)
  rest = sorted(set(model.values) - set(values))
  return _describe(keras_hub.WEIGHTS, users, model, rest, "left out")


def _describe(weights, users, model, rest, place) -> list[str]:
  """Describes a file of weights, and where the rest of the variables is."""
  lines = [f"{weights}: {len(model.values) - len(rest)} variables, for {users}"]
  if rest:
    others = [n for n in rest if n.rpartition("/")[0] not in model.values]
    slots = len(rest) - len(others)
    listed = ", ".join([*([f"{slots} slots"] if slots else []), *others])
    lines.append(f"{place}: {listed}; {users} has no place for that")
  return lines


def _check_representable(output_format, model, head, users) -> None:
  """Raises a ValueError if a class of another library lacks parts, or more."""
  config, is_hugging_face = model.config, output_format == "hugging_face"
  epsilon = config.layer_norm_epsilon
  has_epsilon = is_hugging_face or epsilon == modeling.LAYER_NORM_EPSILON
  is_bert = config.has_embedding_norm and config.is_bidirectional
  if not (is_bert and has_epsilon) or model.vocab_file:
    raise ValueError(
      f"{model.source}: its encoder or its vocabulary is not BERT's: pass "
      "--output_format=google"
    )
  if head == "classifier" and _find_pooling(model):
    raise ValueError(
      f"{model.source}: its classifier has no pooler, that of {users} has one: "
      "pass --head=encoder or --output_format=google"
    )
  labels = len(model.values.get("output_bias", ()))
  expected = models.variables(model.config, head, labels)
  shapes = {name: value.shape for name, value in model.values.items()}
  fitting.compare(model.source, shapes, expected, shapes.__contains__, users)
  if model.config.embedding_width != model.config.hidden_size:
    raise ValueError(
      "--output_format: transformers and KerasHub have no BERT with the "
      "embedding_size of this config: pass --output_format=google"
    )
