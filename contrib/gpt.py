"""GPT-1's weights as OpenAI published them: shapes and numbers, no names.

A folder of openai/finetune-transformer-lm holds params_shapes.json and
params_0.npy to params_9.npy: the parameters one after the other, cut into equal
pieces. In order: positions, tokens, then of every layer the parts of `_LAYER`.
"""

import functools
import math
import os

import numpy as np

from contrib import gpt_vocabulary, variant
from convert import readers
from data import files

SHAPES = "params_shapes.json"
_HEAD_SIZE = 64  # The shapes do not show it.
_EPSILON = 1e-5
# The parts of a layer, by Google's names; c_attn is query, key and value.
_LAYER = (
  "attention/self/*/kernel",
  "attention/self/*/bias",
  "attention/output/dense/kernel",
  "attention/output/dense/bias",
  "attention/output/LayerNorm/gamma",
  "attention/output/LayerNorm/beta",
  "intermediate/dense/kernel",
  "intermediate/dense/bias",
  "output/dense/kernel",
  "output/dense/bias",
  "output/LayerNorm/gamma",
  "output/LayerNorm/beta",
)
_SEED = 1


def open_folder(folder: str) -> readers.ModelFolder:
  """Opens a folder's weights.

  GPT-1 has no rows for BERT's special tokens, no segments and no pooler: the
  rows are drawn with a deviation of 0.02, always the same; segments are zeros.

  Raises:
    ValueError: a file is missing, damaged, or of other shapes.
  """
  shapes, config = _read_shapes(folder)
  values = functools.cache(lambda: _read_values(folder, shapes))
  variables, hidden = {}, config.hidden_size

  def read_words():
    extra = np.random.default_rng(_SEED).normal(
      0.0, config.initializer_range, [len(gpt_vocabulary.ADDED), hidden]
    )
    return np.concatenate([values()[1], extra.astype(np.float32)])

  vocab = config.vocab_size
  variables["bert/embeddings/position_embeddings"] = readers.StoredVariable(
    lambda: values()[0], tuple(shapes[0])
  )
  words = readers.StoredVariable(read_words, (vocab, hidden))
  variables["bert/embeddings/word_embeddings"] = words
  for name, shape in (
    ("bert/embeddings/token_type_embeddings", (2, hidden)),
    ("cls/predictions/output_bias", (vocab,)),
  ):
    zeros = functools.partial(np.zeros, shape, np.float32)
    variables[name] = readers.StoredVariable(zeros, shape)
  for index in range(2, len(shapes)):
    layer, part = divmod(index - 2, len(_LAYER))
    name = f"bert/encoder/layer_{layer}/{_LAYER[part]}"
    shape = tuple(shapes[index][-2:])  # Kernels have a first axis of 1.
    thirds = ("query", "key", "value") if "*" in name else ("",)
    shape = (*shape[:-1], shape[-1] // len(thirds))
    for number, third in enumerate(thirds):

      def read(index=index, number=number, size=shape[-1]):
        return values()[index][..., number * size : (number + 1) * size]

      variables[name.replace("*", third)] = readers.StoredVariable(read, shape)
  return readers.ModelFolder(
    readers.make_weights(folder, variables),
    (folder,),
    config,
    do_lower_case=True,
    library="GPT-1",
    assumed=("num_attention_heads",),
  )


def _read_shapes(folder):
  """Reads and checks the shapes; returns them and the config they show."""
  path = os.path.join(folder, SHAPES)
  shapes = files.read_json(path, list)
  try:
    (positions, hidden), (vocab, _) = shapes[:2]
    wide = shapes[8][-1]
    layers = (len(shapes) - 2) // len(_LAYER)
    square, vector = [1, hidden, hidden], [hidden]
    layer = [[1, hidden, 3 * hidden], [3 * hidden], square, vector]
    layer += [vector, vector, [1, hidden, wide], [wide], [1, wide, hidden]]
    layer += [vector, vector, vector]
    if shapes != [[positions, hidden], [vocab, hidden]] + layers * layer:
      raise ValueError
    config = variant.VariantConfig(
      vocab_size=vocab + len(gpt_vocabulary.ADDED),
      hidden_size=hidden,
      num_hidden_layers=layers,
      num_attention_heads=max(1, hidden // _HEAD_SIZE),
      intermediate_size=wide,
      max_position_embeddings=positions,
      type_vocab_size=2,
      causal_attention=True,
      layer_norm_eps=_EPSILON,
      embedding_layer_norm=False,
    )
  except (TypeError, ValueError, IndexError):
    raise ValueError(f"{path}: not the shapes of a GPT-1") from None
  return shapes, config


def _read_values(folder, shapes) -> list[np.ndarray]:
  """Reads all parameters, float32, in the order of their shapes."""
  parts, count = [], 0
  total = sum(map(math.prod, shapes))
  while count < total:
    path = os.path.join(folder, f"params_{len(parts)}.npy")
    try:
      with files.open_bytes(path) as file:
        part = np.load(file, allow_pickle=False)
    except (ValueError, EOFError) as error:
      raise ValueError(f"{path}: not an array of numbers: {error}") from None
    if part.dtype != np.float32 or not part.size:
      raise ValueError(f"{path}: {part.dtype}, expected float32 numbers")
    parts.append(part.ravel())
    count += part.size
  if count != total:
    raise ValueError(
      f"{folder}: {count:,} numbers in {len(parts)} files; {SHAPES} lists "
      f"{total:,}"
    )
  ends = np.cumsum([math.prod(shape) for shape in shapes])
  split = np.split(np.concatenate(parts), ends[:-1])
  return [x.reshape(shape) for x, shape in zip(split, shapes, strict=True)]
