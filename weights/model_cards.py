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

This project reads it as it is: `--init_checkpoint=FOLDER`.
"""
_KERAS_HUB = """\
    import keras_hub

    tokenizer = keras_hub.models.BertTokenizer.from_preset("FOLDER")
    model = keras_hub.models.{architecture}.from_preset("FOLDER")

This project reads it as it is: `--init_checkpoint=FOLDER`.
"""
_LOADING = {
  "google": _GOOGLE + _OTHERS,
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
  notes = [
    f"- {field} was not in it; taken: {config[field]}"
    for field in model.assumed
  ]
  loading, original = _LOADING[output_format], ""
  dtypes = {value.dtype.name for value in model.values.values()}
  vocabulary, *_ = vocabulary_table.saved_names(model.vocab_file or "vocab.txt")
  if (
    model.config.encoder_type
    or model.config.embedding_size
    or vocabulary != "vocab.txt"
  ):
    loading = _GOOGLE
  elif "float16" not in dtypes and "gelu_" not in model.config.hidden_act:
    original = ", and with google-research/bert"
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
    f"{len(model.vocabulary)} tokens; text is taken {casing}.",
    *([f"Labels: {', '.join(model.labels)}."] if model.labels else []),
    "## Loading",
    loading.format(
      weights=weights,
      architecture=users,
      original=original,
      vocabulary=vocabulary,
    ),
  ]
  return "\n\n".join(parts)
