"""The README.md of a folder with weights: what it is and how to load it."""

from collections.abc import Sequence
import dataclasses

from vocabularies import vocabulary_table

_GOOGLE = """\
With this project{original}:

    --init_checkpoint=FOLDER/{weights}
    --bert_config_file=FOLDER/bert_config.json
    --vocab_file=FOLDER/{vocabulary}

In TensorFlow:

    tf.train.load_checkpoint("FOLDER/{weights}").get_tensor(name)
"""
_OTHERS = """
For other libraries: `python convert_checkpoint.py --input=FOLDER --output=OUT
--output_format=hugging_face`, or `keras_hub`.
"""
_HUGGING_FACE = """\
    from transformers import AutoTokenizer, {architecture}

    tokenizer = AutoTokenizer.from_pretrained("FOLDER")
    model = {architecture}.from_pretrained("FOLDER")

This project reads it directly: `--init_checkpoint=FOLDER`.
"""
_KERAS_HUB = """\
    import keras_hub

    tokenizer = keras_hub.models.BertTokenizer.from_preset("FOLDER")
    model = keras_hub.models.{architecture}.from_preset("FOLDER")

This project reads it directly: `--init_checkpoint=FOLDER`.
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
  config, fields = model.config, dataclasses.asdict(model.config)
  rows = [f"| {k} | {v} |" for k, v in fields.items() if v is not None]
  notes = [f"- {k} was not in it; taken: {fields[k]}" for k in model.assumed]
  if config.embedding_size:
    notes.append("- its config has embedding_size: only this project reads it")
  is_bert = not (
    config.encoder_type or config.embedding_size or model.vocab_file
  )
  dtypes = {value.dtype.name for value in model.values.values()}
  is_plain = "float16" not in dtypes and "gelu_" not in config.hidden_act
  original = ", and with google-research/bert" if is_bert and is_plain else ""
  loading = _LOADING[output_format].format(
    weights=weights,
    architecture=users,
    original=original,
    vocabulary=next(iter(vocabulary_table.saved_names(model.vocab_file or ""))),
  )
  if output_format == "google" and is_bert:
    loading += _OTHERS
  notes += [f"- left out: {name}" for name in left_out]
  casing = "lower-cased, without accents" if model.do_lower_case else "as it is"
  parameters = sum(
    value.size for name, value in model.values.items() if "adam_" not in name
  )
  parts = [
    "# BERT",
    f"{config.num_hidden_layers} layers of {config.hidden_size}, "
    f"{parameters:,} parameters; on top: {model.head}.",
    f"Made by `convert_checkpoint.py` from {model.library}: `{model.source}`.",
    *(["\n".join(notes)] if notes else []),
    "## Config",
    "\n".join(["| field | value |", "|---|---|", *rows]),
    "## Vocabulary",
    f"{len(model.vocabulary)} tokens; text is taken {casing}.",
    *([f"Labels: {', '.join(model.labels)}."] if model.labels else []),
    "## Loading",
    loading,
  ]
  return "\n\n".join(parts)
