"""Writes models, with the files that belong to them, in three formats."""

import importlib
import os

from bert import modeling
from bert.convert import conversion, huggingface, models, tokenizer_files
from bert.data import atomic, files, hub, label_files, sbert_files
from bert.vocabularies import vocabulary_table
from bert.weights import checkpoints, fitting

# Files of numbers that were tuned for certain weights, and what the model is
# without them.
_TUNED = {
  label_files.TEMPERATURE: "temperature: probabilities as they were trained",
  label_files.ANSWER_THRESHOLD: "tuned threshold for 'no answer'",
}


def write(output_format: str, folder: str, model: models.Model) -> list[str]:
  """Writes a model to a new folder; returns lines about what was written.

  Args:
    output_format: "google", with an optimizer's slots to resume from;
      "hugging_face"; or "keras_hub", without heads that it computes otherwise.
    folder: to write; it appears when it is complete.
    model: to write.
  """
  writers = {
    "google": _write_google,
    "hugging_face": _write_hugging_face,
    "keras_hub": _write_keras_hub,
  }
  with atomic.new_folder(folder) as temporary:
    lines = writers[output_format](temporary, model)

    # WordPieces are written anew, with the tokens that were added to them. For
    # other libraries their file has one name.
    is_google = output_format == "google"
    name = model.vocabulary_name if is_google else "vocab.txt"
    lines.append(
      f"{name}: {len(model.vocabulary)} tokens, "
      f"do_lower_case={str(model.do_lower_case).lower()}"
    )
    if model.vocab_file:
      vocabulary_table.copy(model.vocab_file, temporary)
    elif output_format != "keras_hub":  # It has written its own vocabulary.
      files.write_lines(os.path.join(temporary, name), model.vocabulary)

    # By these files sentence-transformers makes vectors.
    if output_format != "keras_hub":
      for source in model.opened.folders:
        made = sbert_files.copy(source, temporary)
        lines += [f"{name}: the same vectors" for name in made]

    if model.labels:
      lines.append(f"labels: {', '.join(model.labels)}")
    # KerasHub has no head for the other problems.
    is_written = output_format != "keras_hub" or model.head == "classifier"
    if model.problem and is_written:
      lines.append(_write_problem(temporary, model, output_format))
    _write_card(temporary, model, lines)
  return lines


def _write_card(folder: str, model: models.Model, lines: list[str]) -> None:
  """Writes README.md, which says what was converted and what was left out."""
  notes = conversion.describe_differences(model)
  card = [
    "# BERT",
    "",
    f"Made by `convert_checkpoint.py` from {model.opened.library}, "
    f"`{hub.name_of(model.source)}`: {model.config.num_hidden_layers} layers "
    f"of {model.config.hidden_size}, --head={model.head}.",
    "",
  ]
  card += [f"- {line}" for line in lines + notes]
  card += ["", "Programs of this project take it as `--model=FOLDER`."]
  files.write_lines(os.path.join(folder, "README.md"), card)


def _write_google(folder: str, model: models.Model) -> list[str]:
  """Writes a checkpoint as google-research/bert does, and its config."""
  weights = conversion.strip(model).values
  state = set(model.values) - set(weights)

  # A model that answers is read like a run's folder, whose checkpoints have a
  # step in their names.
  step = None
  if state - {"global_step"} or _is_stored(model):
    step = int(model.values.get("global_step", 0))
  name = os.path.basename(checkpoints.write(folder, model.values, step))

  # The config; labels and casing where a reader would not know them.
  path = os.path.join(folder, "bert_config.json")
  files.write_text(path, model.config.to_json_string())
  if model.labels:
    label_files.write(os.path.join(folder, "labels.txt"), model.labels)
  tokenizer_files.write_casing(
    folder, model.vocabulary, model.kind, model.do_lower_case
  )

  lines = [f"{name}: {len(weights)} variables of the model"]
  if state:
    lines.append(f"{name}: {len(state)} variables of the state of its training")
  return lines + ["bert_config.json"]


def _write_problem(folder: str, model: models.Model, output_format: str) -> str:
  """Writes how a model answers, as its training does; returns a line."""
  line = f"problem: {model.problem}"
  if model.problem == "multi_label":
    line += ", without tuned thresholds: 0.5 for every label"
  for file_name, lost in _TUNED.items():
    paths = (os.path.join(s, file_name) for s in model.opened.folders)
    if any(map(files.exists, paths)):
      line += f", without its {lost}"

  # Hugging Face's folder has files of its own for it, KerasHub's none.
  if output_format == "keras_hub":
    return f"{line}; not stored: pass --problem, --max_seq_length and the like"
  answers = model.recorded.get(models.PREDICTION)
  if not answers:
    line += "; how it answers is not known: pass --max_seq_length and the like"
  if output_format != "google":
    return line

  # Without it the folder is that of weights alone.
  if not _is_stored(model):
    return f"{line}, and --head={model.head} to convert it again"

  # An export asks for it. run_classifier.py has these defaults.
  if not answers:
    length = min(128, model.config.max_position_embeddings)
    answers = {"max_seq_length": length, "doc_stride": None}
    answers |= {"window_pooling": "mean"}
    line += f", or it reads {length} tokens"
  files.write_json(os.path.join(folder, models.PREDICTION), answers)

  # The part of a training's settings that says what the model is.
  vocabulary = os.path.join(folder, model.vocabulary_name)
  settings = {
    **model.recorded.get(models.SETTINGS, {}),
    "problem": model.problem,
    "do_lower_case": model.do_lower_case,
    "vocab_file_sha256": vocabulary_table.digest(vocabulary),
  }
  files.write_json(os.path.join(folder, models.SETTINGS), settings)
  return line


def _is_stored(model: models.Model) -> bool:
  """Returns whether a Google folder says how a model answers."""
  has_defaults = model.problem in huggingface.PROBLEM_TYPES
  return bool(has_defaults or model.recorded.get(models.PREDICTION))


def _write_hugging_face(folder: str, model: models.Model) -> list[str]:
  class_name = models.HEADS[model.head].architecture
  _check_fits(model, model.head, f"{class_name} (--head={model.head})")
  rest = huggingface.write(folder, model)

  # Their "gelu" is not Google's, so a line names the function as they do.
  place = f"{huggingface.GOOGLE_ONLY}, which a conversion back reads"
  lines = _describe(huggingface.WEIGHTS, class_name, model, rest, place)
  activation = model.config.hidden_act
  activation = huggingface.TO_THEIRS.get(activation, activation)
  return lines + [f"{huggingface.CONFIG}: hidden_act is {activation}"]


def _write_keras_hub(folder: str, model: models.Model) -> list[str]:
  # KerasHub has two classes that compute as BERT does.
  class_name, head = "BertBackbone", "encoder"
  if model.head == "classifier":
    class_name, head = "BertTextClassifier", "classifier"
  has_epsilon = model.config.layer_norm_epsilon == modeling.LAYER_NORM_EPSILON
  _check_fits(model, head, class_name, has_epsilon and not model.kind.asks)

  names = models.variables(model.config, head)
  values = {name: model.values[name] for name in names}
  keras_hub = importlib.import_module("bert.contrib.keras_hub")
  keras_hub.write(folder, model, values)

  rest = sorted(set(model.values) - set(values))
  return _describe(keras_hub.WEIGHTS, class_name, model, rest, "left out")


def _describe(
  weights: str,
  class_name: str,
  model: models.Model,
  rest: list[str],
  place: str,
) -> list[str]:
  """Describes a file of weights, and where the rest of the variables is."""
  count = len(model.values) - len(rest)
  lines = [f"{weights}: {count} variables, for {class_name}"]
  if rest:
    # Slots are counted, as there are two for each variable.
    parts = [n for n in rest if n.rpartition("/")[0] not in model.values]
    if slots := len(rest) - len(parts):
      parts.insert(0, f"{slots} slots")
    listed = ", ".join(parts)
    lines.append(f"{place}: {listed}; {class_name} has no place for that")
  return lines


def _check_fits(
  model: models.Model, head: str, class_name: str, computes_same: bool = True
) -> None:
  """Raises a ValueError if a class of another library lacks parts, or more.

  Args:
    model: to be written.
    head: that of the class, a key of `models.HEADS`.
    class_name: for messages.
    computes_same: whether its layers normalise with the model's epsilon, and
      its tokenizer splits words as the model's.
  """
  # The encoder and its vocabulary.
  config = model.config
  is_bert = config.has_embedding_norm and config.is_bidirectional
  if not (is_bert and computes_same) or model.vocab_file:
    raise ValueError(
      f"{model.source}: its encoder or its vocabulary is not BERT's: pass "
      "--output_format=google"
    )

  # The head. The class may have no place for some variables, but its own must
  # all be there, with their shapes.
  if model.recorded.get(models.SETTINGS, {}).get("pooling"):
    raise ValueError(
      f"{model.source}: its classifier has no pooler, that of {class_name} has "
      "one: pass --head=encoder or --output_format=google"
    )
  labels = len(model.values.get("output_bias", ()))
  expected = models.variables(config, head, labels)
  shapes = {name: value.shape for name, value in model.values.items()}
  fitting.compare(
    model.source, shapes, expected, lambda name: name in shapes, class_name
  )

  if config.embedding_width != config.hidden_size:
    raise ValueError(
      "--output_format: transformers and KerasHub have no BERT with the "
      "embedding_size of this config: pass --output_format=google"
    )
