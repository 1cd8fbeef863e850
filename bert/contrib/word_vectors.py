"""Writes a model whose word embeddings are vectors in word2vec's text format.

  python -m bert.contrib.word_vectors --vectors=glove.txt --output=start \\
    --bert_config_file=configs/text_cnn_tiny.json --vocab_file=vocab.txt

The other weights are those of --model or --init_checkpoint, or else random, as
every training with this --seed draws them. All programs that train take the
folder as --model.
"""

import dataclasses

from bert.cli import (
  flag_texts,
  model_folder,
  program,
  shared_flags,
  typed_flags,
)
from bert.vocabularies import vocabulary_table

_flags = typed_flags.group("Flags")


@dataclasses.dataclass(frozen=True, kw_only=True)
class WordVectorSettings(shared_flags.StartSettings):
  """The settings of this program."""

  vectors: str = _flags(
    typed_flags.REQUIRED,
    "A file in word2vec's text format. Its vectors replace the embeddings of "
    "the same tokens. If a word occurs twice, its first vector counts.",
    path="file",
  )
  output: str = _flags(
    typed_flags.REQUIRED,
    "The folder to write. It must be new or empty.",
    path="empty_folder",
  )
  model: str | None = _flags(None, flag_texts.MODEL, path="model")
  bert_config_file: str | None = _flags(
    None, "The bert_config.json of the model.", unless="model", path="file"
  )
  init_checkpoint: str | None = _flags(
    None,
    "The weights of everything else. Without this flag and --model they are "
    "random.",
    path="checkpoint",
  )
  vocab_file: str = _flags(
    None, vocabulary_table.HELP, unless="model", path="file"
  )
  do_lower_case: bool = _flags(
    True,
    "Whether the vocabulary is lower-cased and without accents. Pass false for "
    "a cased model.",
  )
  seed: int = _flags(12345, "Decides the random weights.", least=0)


if __name__ == "__main__":
  program.start(WordVectorSettings)

import os
import time

import keras
import numpy as np

from bert import modeling
from bert.data import atomic, files, label_files
from bert.encoders import encoder_table
from bert.weights import checkpoints, fitting

_TABLE = "bert/embeddings/word_embeddings"


def read_weights(
  settings: WordVectorSettings, config: modeling.EncoderConfig
) -> dict[str, np.ndarray]:
  """Returns the weights to start from, heads included, by name."""
  # Drawn as a training with this seed draws them; NumPy's seed has 32 bits.
  keras.utils.set_random_seed(settings.seed % 2**32)
  encoder = encoder_table.make_encoder(config, "float32")
  variables = checkpoints.model_variables(encoder)
  if not settings.init_checkpoint:
    return {name: np.asarray(value) for name, value in variables.items()}

  # The encoder must fit. Heads are copied as they are; moments are left out.
  start = settings.open_model().weights
  fitting.compare(
    start.source,
    start.shapes,
    {name: tuple(value.shape) for name, value in variables.items()},
    checkpoints.is_above_layers,
  )
  return {
    name: np.asarray(start.read(name))
    for name in start.shapes
    if not fitting.is_training_state(name, start.shapes)
  }


def replace_rows(path: str, vocab_file: str, table: np.ndarray) -> str:
  """Puts the vectors of a file into word embeddings; returns what it did.

  A line holds a word and its numbers, separated by spaces; the first may hold
  two numbers instead, of vectors and of their width.

  Args:
    path: of the vectors.
    vocab_file: of the model.
    table: word embeddings, float32 [V, H]; changed in place.

  Raises:
    ValueError: a line is no vector, or the vocabulary is not one of words.
  """
  # Pieces of words have no vectors in such a file.
  if vocabulary_table.kind_of(vocab_file).marks_words:
    raise ValueError(
      f"--vocab_file={vocab_file}: its tokens mark where words begin or end; "
      "expected a vocab.txt or *.words"
    )

  vocabulary = vocabulary_table.load_vocab(vocab_file)
  width = table.shape[1]
  replaced = set()
  for number, line in enumerate(files.read_lines(path), 1):
    word, *values = line.rstrip().split(" ")

    # word2vec begins with a line of two numbers, GloVe does not.
    if number == 1 and len(values) == 1 and width != 1:
      continue

    # All lines are checked, also of words that the model lacks.
    try:
      vector = np.array(values, np.float32)
    except ValueError as error:
      raise ValueError(f"{path}:{number}: {error}") from None
    if len(values) != width or not np.isfinite(vector).all():
      raise ValueError(
        f"{path}:{number}: {word!r:.80} has {len(values)} numbers; expected "
        f"{width} finite ones, the width of the model's word embeddings"
      )
    if word in vocabulary and word not in replaced:
      replaced.add(word)
      table[vocabulary[word]] = vector
  count = len(replaced)
  rest = len(vocabulary) - count
  return f"{path}: vectors of {count} tokens; {rest} tokens stay as they were"


def main() -> None:
  """Reads or draws weights, replaces the embeddings, and writes a model."""
  # Everything is checked before anything is written.
  start = time.monotonic()
  settings = model_folder.find_files(WordVectorSettings.read())
  config = model_folder.read_config(settings)
  model_folder.check_vocabulary(settings.vocab_file, config)
  values = read_weights(settings, config)
  values[_TABLE] = values[_TABLE].copy()  # What is read may not be changed.
  summary = replace_rows(settings.vectors, settings.vocab_file, values[_TABLE])

  # A whole model, so that programs take the folder as --model.
  with atomic.new_folder(settings.output) as folder:
    checkpoints.write(folder, values)
    path = os.path.join(folder, "bert_config.json")
    files.write_text(path, config.to_json_string())
    vocabulary_table.copy(settings.vocab_file, folder)
    casing = {"do_lower_case": settings.do_lower_case}
    files.write_json(os.path.join(folder, "tokenizer_config.json"), casing)

    # A head that was copied keeps the names of its outputs.
    if labels := settings.initial_labels():
      label_files.write(os.path.join(folder, "labels.txt"), labels)
  lines = [summary, f"wrote {settings.output}, the --model of a training"]
  program.print_end(start, *lines)


if __name__ == "__main__":
  program.run_program(main)
