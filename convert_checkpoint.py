"""Converts checkpoints: between Google's format and those of other libraries.

  python convert_checkpoint.py --input=uncased_L-12_H-768_A-12 --output=bert_hf

makes config.json, model.safetensors, vocab.txt and tokenizer_config.json, which
`transformers.BertForPreTraining.from_pretrained("bert_hf")` loads. Of anything
else (Hugging Face's folders, KerasHub's, OpenAI's, SavedModels of TF-Hub,
checkpoints of Model Garden and ELECTRA) it makes Google's files. With
--output_format the kind can stay the same, to change a checkpoint: --layers,
--strip, --float16, --grow_positions, --resize_vocab, --add_tokens.
"""

import dataclasses

from bert.cli import flag_texts, model_folder, program, typed_flags

# The keys of bert.convert.models.HEADS. That file imports TensorFlow, for which
# neither --help nor a wrong flag should wait.
HEADS = ("encoder", "pretraining", "masked_lm", "next_sentence", "classifier")
HEADS += ("multiple_choice", "tagging", "question_answering")
_flags = typed_flags.group("Flags")
_changes = typed_flags.group("Changes")


@dataclasses.dataclass(frozen=True, kw_only=True)
class ConversionSettings(typed_flags.Settings):
  """The settings of this program."""

  model: str | None = _flags(None, flag_texts.MODEL, path="model")
  input: str = _flags(
    None,
    "A checkpoint's prefix, a folder with a checkpoint, a SavedModel, or a "
    "folder that Hugging Face, KerasHub or OpenAI wrote.",
    unless="model",
    path="checkpoint",
  )
  output: str = _flags(
    typed_flags.REQUIRED,
    "The folder to write. It must be new or empty.",
    path="empty_folder",
  )
  bert_config_file: str | None = _flags(
    None, "The config, if it is not beside --input.", path="file"
  )
  vocab_file: str | None = _flags(
    None,
    "The vocabulary, if it is not beside --input or if you added tokens at its "
    "end; see --resize_vocab.",
    path="file",
  )
  labels_file: str | None = _flags(
    None,
    "The labels of a head, one per line, if they are not beside --input.",
    path="file",
  )
  output_format: str = _flags(
    "auto",
    "auto: Google's format, or Hugging Face's if --input has Google's.",
    choices=("auto", "google", "hugging_face", "keras_hub"),
  )
  head: str = _flags(
    "auto",
    "The head to keep on top of BERT; all other heads are left out. auto keeps "
    "everything, except with --layers: a head was trained on all layers, so "
    "only the encoder is kept.",
    choices=("auto", *HEADS),
  )
  do_lower_case: bool | None = _flags(
    None,
    "Whether the model lower-cases text. Default: as the files beside --input "
    "say.",
  )
  strip_accents: bool | None = _flags(
    None,
    flag_texts.STRIP_ACCENTS + " Default: as the files beside --input say.",
  )
  layers: tuple[str, ...] = _changes(
    (),
    "Keeps only these layers and renumbers them, for example 0,2,4: the start "
    "of a smaller model. Leaves out the state of the optimizer, too.",
  )
  strip: bool = _changes(
    False,
    "Whether to leave out Adam's moments and the step, two thirds of the size.",
  )
  float16: bool = _changes(
    False, "Whether to round the weights to float16: half the size."
  )
  grow_positions: int = _changes(
    0,
    "The new maximum number of tokens of an input. --new_positions says what "
    "fills the table of positions. 0 changes nothing.",
    least=0,
  )
  new_positions: str = _changes(
    "repeated",
    "The longer table of positions. repeated: copies from its beginning follow "
    "the old rows, which stay. interpolated: the old rows are stretched over "
    "it; all outputs change, but further training ends with a lower loss.",
    choices=("repeated", "interpolated"),
    needs="grow_positions",
  )
  resize_vocab: int = _changes(
    0,
    "The new number of tokens in the vocabulary. New tokens get random "
    "embeddings. 0 changes nothing.",
    least=0,
  )
  add_tokens: str | None = _changes(
    None,
    "The vocabulary of --input with new tokens in the place of [unusedN] and "
    "at its end, as create_vocab.py --extend writes it. They get new "
    "embeddings; those of old tokens stay.",
    path="file",
  )
  new_rows: str = _changes(
    "mean",
    "The new embeddings. mean: of the pieces that the new token was split "
    "into. random: as in a new model.",
    choices=("mean", "random"),
    needs="add_tokens",
  )
  seed: int = _changes(
    12345,
    "Decides the random embeddings.",
    needs=("resize_vocab", "new_rows=random"),
  )

  def check(self) -> None:
    """Refuses two inputs, too, and what cannot be layers."""
    # --model is a folder or a name of the Hub; --input can be any checkpoint.
    if self.input and self.model:
      raise ValueError("--input and --model are the same: give one")

    # Negative numbers, too, are refused: layers count from 0.
    if not all(map(str.isdecimal, self.layers)):
      raise ValueError(
        f"--layers={','.join(self.layers)}: expected the numbers of layers, "
        "from 0, such as 0,2,4"
      )
    super().check()


if __name__ == "__main__":
  program.start(ConversionSettings)

import time

from bert.convert import added_tokens, conversion, models, writing
from bert.data import imports


def make_model(
  settings: ConversionSettings, folder: models.ModelFolder
) -> models.Model:
  """Reads --input and changes it as the flags say."""
  # Layers are chosen by name, before `read` reads all that is left. A head was
  # trained on the output of all layers: it is kept only if --head names it.
  head = settings.head
  if settings.layers:
    layers = [int(layer) for layer in settings.layers]
    folder = conversion.choose_layers(folder, layers)
    head = "encoder" if head == "auto" else head

  model = conversion.read(
    folder,
    settings.vocab_file,
    settings.do_lower_case,
    head,
    settings.labels_file,
    settings.strip_accents,
  )

  # A model of fewer layers begins a training of its own, without the state of
  # the old optimizer. If that stays, new rows of a table have moments of 0.
  if settings.strip or settings.layers:
    model = conversion.strip(model)
  if size := settings.grow_positions:
    model = conversion.grow_positions(model, size, settings.new_positions)
  if size := settings.resize_vocab:
    model = conversion.resize_vocabulary(model, size, settings.seed)

  # --vocab_file may have more tokens, for which --resize_vocab has made rows.
  conversion.check_vocabulary(model)
  if path := settings.add_tokens:
    model = added_tokens.add(model, path, settings.new_rows, settings.seed)

  # The last change, so that the new rows are rounded, too.
  return conversion.to_float16(model) if settings.float16 else model


def main() -> None:
  """Reads, changes and writes a checkpoint, and says what is where."""
  start = time.monotonic()
  settings = ConversionSettings.read()

  # A missing package ends the program before gigabytes are read.
  if settings.output_format == "keras_hub":
    imports.load("keras_hub", "--output_format=keras_hub")

  # Opening reads little more than names and shapes. The weights of a training's
  # folder are the best ones, if an evaluation has chosen them.
  path = settings.input or model_folder.find_folder(settings.model)
  path = model_folder.find_weights(path)
  folder = model_folder.open_model(path, settings.bert_config_file)
  model = make_model(settings, folder)
  print(
    f"read {model.source}: {model.config.num_hidden_layers} layers of "
    f"{model.config.hidden_size}, --head={model.head}"
  )

  # What was assumed, left out or missing: nothing is dropped in silence.
  for line in conversion.describe_differences(model):
    print(line)

  # auto: Google's format becomes Hugging Face's, every other format Google's.
  name = settings.output_format
  if name == "auto":
    is_google = folder.library == models.GOOGLE
    name = "hugging_face" if is_google else "google"

  # The folder appears when all its files are there.
  lines = writing.write(name, settings.output, model)

  # fill_mask.py shows at once whether the new files work. It needs a head that
  # predicts masked words.
  flags = {"model": settings.output, "text": "This is a [MASK]."}
  has_words = model.head in ("pretraining", "masked_lm")
  program.print_end(
    start,
    f"wrote {settings.output}:",
    *(f"  {line}" for line in lines),
    command=program.command("fill_mask.py", **flags) if has_words else "",
  )


if __name__ == "__main__":
  program.run_program(main)
