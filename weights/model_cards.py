"""The README.md of a folder with weights: what it is and how to load it."""

from collections.abc import Sequence
import dataclasses

_GOOGLE = """\
With this project, and with google-research/bert:

    --init_checkpoint=FOLDER/{weights}
    --bert_config_file=FOLDER/bert_config.json
    --vocab_file=FOLDER/vocab.txt

In TensorFlow:

    tf.train.load_checkpoint("FOLDER/{weights}").get_tensor(name)

For other libraries: `python convert_checkpoint.py --input=FOLDER --output=OUT
--output_format=hugging_face`, or `keras_hub`.
"""
_HUGGING_FACE = """\
    from transformers import AutoTokenizer, {architecture}

    tokenizer = AutoTokenizer.from_pretrained("FOLDER")
    model = {architecture}.from_pretrained("FOLDER")

This project reads it as it is: `--init_checkpoint=FOLDER`.
"""
_KERAS_HUB = """\
    import keras_hub

    tokenizer = keras_hub.models.BertTokenizer.from_preset("FOLDER")
    model = keras_hub.models.{architecture}.from_preset("FOLDER")

This project reads it as it is: `--init_checkpoint=FOLDER`.
"""
_LOADING = {
  "google": _GOOGLE,
  "hugging_face": _HUGGING_FACE,
  "keras_hub": _KERAS_HUB,
}


def make(
  model, output_format: str, left_out: Sequence[str], weights: str, users: str
) -> str:
  """Makes the text of a model card.

  Args:
    model: a `conversion.Model`.
    output_format: a value of --output_format.
    left_out: the names that found no place.
    weights: the name of the file with the weights.
    users: the class that loads it.
  """
  config = dataclasses.asdict(model.config)
  rows = [f"| {k} | {v} |" for k, v in config.items() if v is not None]
  notes = (
    [f"- {field} was not in it; taken: {config[field]}"]
    if (field := next(iter(model.assumed), None))
    else []
  )
  if model.config.embedding_size:
    notes.append("- its config has embedding_size: only this project reads it")
  notes += [f"- left out: {name}" for name in left_out]
  casing = "lower-cased, without accents" if model.do_lower_case else "as it is"
  parameters = sum(
    value.size for name, value in model.values.items() if "adam_" not in name
  )
  parts = [
    "# BERT",
    f"{model.config.num_hidden_layers} layers of {model.config.hidden_size}, "
    f"{parameters:,} parameters; on top: {model.head}.",
    f"Made by `convert_checkpoint.py` from {model.library}: `{model.source}`.",
    *(["\n".join(notes)] if notes else []),
    "## Config",
    "\n".join(["| field | value |", "|---|---|", *rows]),
    "## Vocabulary",
    f"{len(model.vocabulary)} word pieces; text is taken {casing}.",
    *([f"Labels: {', '.join(model.labels)}."] if model.labels else []),
    "## Loading",
    _LOADING[output_format].format(weights=weights, architecture=users),
  ]
  return "\n\n".join(parts)
