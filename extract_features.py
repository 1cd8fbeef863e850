"""Writes BERT's vectors of texts: of every token, or one of every text.

  python extract_features.py --input_file=texts.txt --output_file=out.jsonl \\
    --model=google-bert/bert-base-uncased --layers=-1,-2,-3,-4

A text is a line; `a ||| b` is a pair.
"""

import dataclasses
import re
from typing import Any

from bert.cli import (
  flag_texts,
  inference_settings,
  model_folder,
  program,
  typed_flags,
)
from bert.data import text_prompts, vector_files

_data = typed_flags.group("Data")
_output = typed_flags.group("Output")


@dataclasses.dataclass(frozen=True, kw_only=True)
class VectorSettings(inference_settings.InferenceSettings):
  """The settings of this program."""

  input_file: str = _data(
    typed_flags.REQUIRED, flag_texts.INPUT_FILE, path="input"
  )
  output_file: str = _output(
    typed_flags.REQUIRED, "The file of vectors to write.", path="new_files"
  )
  layers: tuple[str, ...] = _output(
    ("-1", "-2", "-3", "-4"),
    "The layers to write: 0 is the lowest, -1 the highest.",
  )
  pooling: str = _output(
    "none",
    "none: one vector per token. cls, mean, max: one vector per text and "
    "layer: the one of [CLS], or the mean or maximum over all tokens, with "
    "[CLS] and [SEP], without padding. A sentence-transformers folder states "
    "its own default for this flag, --normalize and --layers.",
    choices=("none", "cls", "mean", "max"),
  )
  normalize: bool = _output(False, "Whether to scale every vector to length 1.")
  prompt_name: str | None = _output(
    None,
    "The name of the prompt to put before every text, such as query, if the "
    "model is a sentence-transformers folder that has prompts. Default: the "
    "prompt that the folder states.",
  )
  # What the folder states: see `text_prompts.PREPARATION`.
  prompts: dict[str, str] | None = None
  default_prompt_name: str | None = None
  lower_case: bool | None = None
  dense: Any = None  # As `sbert_flags.read` returns it.
  output_format: str = _output(
    "jsonl",
    "jsonl: the JSON of the original, one line per text, rounded to 6 "
    "decimals. npz: arrays for numpy.load.",
    choices=vector_files.FORMATS,
  )
  use_one_hot_embeddings: bool = _output(
    False, "Ignored: it makes no difference to the result."
  )

  def check(self) -> None:
    """Refuses layers that are no numbers, too."""
    self.layer_numbers()
    super().check()

  def layer_numbers(self) -> list[int]:
    """Returns the numbers of --layers."""
    if not all(re.fullmatch(r"-?\d+", layer) for layer in self.layers or "?"):
      raise ValueError(
        f"--layers={','.join(self.layers)}: expected numbers, separated by "
        "commas: 0 is the lowest layer, -1 the highest"
      )
    return list(map(int, self.layers))


if __name__ == "__main__":
  program.start(VectorSettings)

from collections.abc import Iterator
import functools
import time

import keras
import tensorflow as tf

from bert import heads
from bert.cli import sbert_flags, text_programs
from bert.encoders import encoder_table
from bert.inputs import records, text_inputs


def forward(model, features, seed) -> list[tf.Tensor]:
  """Computes the hidden states of all layers, each [B, S, H].

  Args:
    model: from `make_encoder`.
    features: input_ids, input_mask and segment_ids, int32 [B, S].
    seed: of dropout, int32 [2]; None for none.
  """
  # The original numbers layers from 0, without the embedding below them.
  inputs = [features[name] for name in records.INPUT_NAMES]
  output = model(*inputs, seed, return_hidden_states=True)
  return output.hidden_states[1:]


def make_vectors(
  states, features, layers, pooling, normalize=False, project=tf.identity
) -> dict[str, tf.Tensor]:
  """Makes the vectors of a batch from the hidden states of its layers.

  Args:
    states: from `forward`, each [B, S, H].
    features: the batch; input_mask, int32 [B, S], has 0 for padding.
    layers: the numbers of L layers, as list indices: -1 is the highest.
    pooling: as --pooling; "none" keeps the vectors of tokens.
    normalize: whether to scale each vector to length 1.
    project: the layer that pooled vectors go through, [..., H] to [..., D].

  Returns:
    {"vectors": float32 [B, S, L, H]}; [B, L, D] if they are pooled.
  """
  # The model may compute in bfloat16, which would round a mean of many tokens.
  mask = features["input_mask"]
  chosen = [tf.cast(states[layer], tf.float32) for layer in layers]
  if pooling != "none":
    chosen = [project(heads.pool(state, mask, pooling)) for state in chosen]
  vectors = tf.stack(chosen, -2)  # [B, S, L, H] or [B, L, D]

  # After the pooling: it is the vector of the text that has length 1.
  if normalize:
    vectors = heads.normalize(vectors)
  return {"vectors": vectors}


def make_encoder(settings: VectorSettings, config, dtype: str) -> keras.Model:
  """Makes the model if it has the vectors that the flags ask for.

  Args:
    settings: the flags, for --layers and --pooling.
    config: a `modeling.EncoderConfig`.
    dtype: what the model computes in: "float32" or "mixed_bfloat16".

  Returns:
    The encoder, with random weights; with the layer on its vectors, if the
    model has one.
  """
  count = config.num_hidden_layers
  if not all(-count <= layer < count for layer in settings.layer_numbers()):
    raise ValueError(
      f"--layers={','.join(settings.layers)}: expected numbers from {-count} "
      f"to {count - 1}, separated by commas: the model has {count} layers"
    )

  # A model that reads from left to right computes the first token's vector
  # without the rest of the text.
  if settings.pooling == "cls" and not config.is_bidirectional:
    raise ValueError(
      "--pooling=cls: the first token of this model sees no other: use mean"
    )
  encoder = encoder_table.make_encoder(config, dtype)
  return (
    heads.VectorModel(encoder, settings.dense) if settings.dense else encoder
  )


def extract(
  settings: VectorSettings,
  model: text_programs.TextModel,
  encode: text_inputs.RowMaker,
  lines: text_programs.Lines,
  block_lines: int = 4096,
  block_bytes: int = 1 << 28,
) -> Iterator[vector_files.VectorRow]:
  """Computes the vectors of lines, block by block.

  Args:
    settings: say which vectors.
    model: computes them.
    encode: makes inputs of texts.
    lines: the texts.
    block_lines: the largest number of lines of a block. A block is in memory,
      sorted by length, so that its batches hold little padding.
    block_bytes: the largest size of a block's vectors, in bytes.

  Yields:
    The vectors of each line, in the order of the lines.
  """
  # Vectors of tokens are cut to the length of their line; pooled ones are not.
  is_pooled = settings.pooling != "none"
  layers = settings.layer_numbers()
  predict = model.make_predict(
    functools.partial(
      make_vectors,
      layers=layers,
      pooling=settings.pooling,
      normalize=settings.normalize,
      project=getattr(model.model, "project", tf.identity),
    ),
    forward,
    of_tokens=not is_pooled,
  )

  # "" for a model without prompts.
  prompt = text_prompts.find_prompt(
    settings.prompts, settings.default_prompt_name, "--prompt_name"
  )

  # Lines are read only as blocks need them: a file may be larger than memory.
  def make_rows():
    for line in lines:
      text = text_prompts.prepare(line.text, prompt, settings.lower_case)
      yield line.number, encode(text)

  # In bytes: a token has a float32 vector in each layer; so has a pooled text.
  def size(item):
    count = 1 if is_pooled else len(item[1]["input_ids"])
    return 4 * len(layers) * model.config.hidden_size * count

  # A block ends when it has enough lines, or when their vectors would take too
  # much memory: those of four layers of BERT-Base take 12 kB a token.
  for block in text_inputs.split_into_blocks(
    make_rows(), block_lines, size, block_bytes
  ):
    results = predict([row for _, row in block])
    for (number, row), result in zip(block, results, strict=True):
      ids = row["input_ids"]
      tokens = model.tokenizer.convert_ids_to_tokens(ids)
      yield vector_files.VectorRow(number, ids, tokens, result["vectors"])

    # The caller has written the block when it asks for the next one.
    lines.report()


def main(**blocks: int) -> None:
  """Writes the vectors; `blocks` are passed to `extract`."""
  start = time.monotonic()
  settings = model_folder.find_files(VectorSettings.read())

  # The files of sentence-transformers say how a text's vector is made: which
  # pooling, length and prompt. The vectors of tokens are BERT's own.
  if settings.pooling != "none" or not settings.given & {"pooling"}:
    stated = sbert_flags.read(settings, ["layers"])
    settings = dataclasses.replace(settings, **stated)
  elif settings.prompt_name:
    raise ValueError("--prompt_name: --pooling=none makes no vectors of texts")

  # A missing input is noticed before the model is loaded, which takes seconds.
  lines = text_programs.Lines(settings)
  model = text_programs.open_model(
    settings, functools.partial(make_encoder, settings)
  )
  encode = text_inputs.RowMaker(model.tokenizer, settings.max_seq_length)

  # The output file appears when its last line has been written.
  with vector_files.open_writer(
    settings.output_file, settings.output_format, settings.layer_numbers()
  ) as write:
    for row in extract(settings, model, encode, lines, **blocks):
      write(row)

  summary = [
    f"wrote {settings.output_file}: {lines.count:,} lines, "
    f"{encode.tokens:,} tokens, {lines.speed()}"
  ]
  if encode.truncated:
    summary.append(
      f"{encode.truncated:,} line(s) truncated to "
      f"--max_seq_length={settings.max_seq_length} tokens"
    )

  # The command that exports a model of these vectors: an export makes one
  # vector of a text, from one layer.
  flags: dict[str, str | None] = {}
  if settings.pooling != "none" and len(settings.layers) == 1:
    # An export follows --pooling instead of the files that state a layer.
    pooling = None if settings.dense else settings.pooling
    flags = {"pooling": pooling, "layer": settings.layers[0]}
    flags["normalize"] = "true" if settings.normalize else None
  command = text_programs.export_command(settings, "features", **flags)
  program.print_end(start, *summary, command=command)


if __name__ == "__main__":
  program.run_program(main)
