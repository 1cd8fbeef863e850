"""The README.md of a folder with weights: what it is and how to load it."""

from collections.abc import Sequence

from vocabularies import vocabulary_table

_LOADING = {
  "google": "python fill_mask.py --model=FOLDER --text=...\n",
  "hugging_face": """\
from transformers import AutoTokenizer, {users}
tokenizer = AutoTokenizer.from_pretrained("FOLDER")
model = {users}.from_pretrained("FOLDER")
""",
  "keras_hub": """\
import keras_hub
model = keras_hub.models.{users}.from_preset("FOLDER")
""",
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
  config = model.config
  parameters = sum(
    value.size for name, value in model.values.items() if "adam_" not in name
  )
  casing = "lower-cased, without accents" if model.do_lower_case else "as it is"
  name = next(iter(vocabulary_table.saved_names(model.vocab_file or "")))
  lines = [
    "# BERT",
    "",
    f"Made by `convert_checkpoint.py` from {model.library}, `{model.source}`.",
    f"{config.num_hidden_layers} layers of {config.hidden_size}, "
    f"{parameters:,} parameters in `{weights}`; on top: {model.head}.",
    f"{len(model.vocabulary)} tokens in `{name}`; text is taken {casing}.",
    "",
  ]
  for field in model.assumed:
    lines.append(f"- not in it, taken: {field}={getattr(config, field)!r}")
  if left_out:
    lines.append(f"- left out: {', '.join(left_out)}")
  if model.labels:
    lines.append(f"- labels: {', '.join(model.labels)}")
  lines += ["", "Programs of this project take it as `--model=FOLDER`.", ""]
  code = _LOADING[output_format].format(users=users)
  lines += [f"    {line}" for line in code.splitlines()]
  return "\n".join([*lines, ""])
