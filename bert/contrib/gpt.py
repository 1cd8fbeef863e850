"""GPT-1's weights as OpenAI published them: shapes and numbers, no names.

A folder of openai/finetune-transformer-lm holds params_shapes.json and
params_0.npy to params_9.npy: the parameters one after the other, cut into equal
pieces. In order: positions, tokens, then the parts of every layer, of which the
first two are kernel and bias of query, key and value together.
"""

import functools
import itertools
import math
import os

import numpy as np

from bert.contrib import gpt_vocabulary, variant
from bert.convert import models
from bert.data import files

SHAPES = "params_shapes.json"
_HEAD_SIZE = 64  # The shapes do not show it.
_LAYER_PARTS = 12
_EMBEDDINGS = (
  "bert/embeddings/position_embeddings",
  "bert/embeddings/word_embeddings",
  "bert/embeddings/token_type_embeddings",
  "cls/predictions/output_bias",
)


def open_model(folder: str) -> models.ModelFolder:
  """Opens a folder's weights.

  GPT-1 has no rows for BERT's special tokens, no segments and no pooler: the
  rows are drawn with a deviation of 0.02, always the same; segments are zeros.
  """
  shapes, config = _read_shapes(folder)

  # Google's names, layer by layer: within a layer, they have the same order as
  # OpenAI's parameters.
  expected = models.variables(config)
  encoder = []
  for layer in range(config.num_hidden_layers):
    prefix = f"bert/encoder/layer_{layer}/"
    encoder += [name for name in expected if name.startswith(prefix)]

  names = list(_EMBEDDINGS) + encoder

  # All parameters are cut out of one array: they are read together, once.
  @functools.cache
  def read_all():
    positions, words, *parts = _read_values(folder, shapes)

    # [PAD], [CLS], [SEP] and [MASK]: rows that GPT-1 lacks. The fixed seed
    # makes every conversion of a folder the same.
    shape = [len(gpt_vocabulary.ADDED), config.hidden_size]
    random = np.random.default_rng(1)
    added = random.normal(0.0, config.initializer_range, shape)
    values = [positions, np.concatenate([words, added.astype(np.float32)])]
    values += [np.zeros(expected[name], np.float32) for name in _EMBEDDINGS[2:]]

    # OpenAI's kernel is query, key and value in one, [1, H, 3 * H].
    for start in range(0, len(parts), _LAYER_PARTS):
      kernel, bias, *others = parts[start : start + _LAYER_PARTS]
      pairs = zip(np.split(kernel, 3, -1), np.split(bias, 3), strict=True)
      values += list(itertools.chain.from_iterable(pairs)) + others
    return dict(zip(names, values, strict=True))

  variables = {
    name: models.StoredVariable(
      lambda name=name: read_all()[name], expected[name]
    )
    for name in names
  }
  return models.ModelFolder(
    models.make_weights(folder, variables, release=read_all.cache_clear),
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
    layers = (len(shapes) - 2) // _LAYER_PARTS

    # Attention: query, key and value; the output; LayerNorm's gamma and beta.
    vector = [hidden]
    layer = [[1, hidden, 3 * hidden], [3 * hidden]]
    layer += [[1, hidden, hidden], vector, vector, vector]

    # Feed-forward: kernels are those of convolutions of width 1; LayerNorm.
    layer += [[1, hidden, wide], [wide], [1, wide, hidden]] + 3 * [vector]
    if shapes != [[positions, hidden], [vocab, hidden]] + layers * layer:
      raise ValueError

    # GPT-1 normalises no embeddings. Its epsilon is 1e-5, BERT's 1e-12.
    config = variant.VariantConfig(
      vocab_size=vocab + len(gpt_vocabulary.ADDED),
      hidden_size=hidden,
      num_hidden_layers=layers,
      num_attention_heads=max(1, hidden // _HEAD_SIZE),
      intermediate_size=wide,
      max_position_embeddings=positions,
      type_vocab_size=2,
      causal_attention=True,
      layer_norm_eps=1e-5,
      embedding_layer_norm=False,
    )
  except (TypeError, ValueError, IndexError):
    raise ValueError(f"{path}: not the shapes of a GPT-1") from None
  return shapes, config


def _read_values(folder, shapes) -> list[np.ndarray]:
  """Reads all parameters, float32, in the order of their shapes."""
  # The cuts between the files fall anywhere, also within a parameter. Nothing
  # says how many files there are: they are read until all numbers are there.
  sizes = list(map(math.prod, shapes))
  parts = []
  count = 0
  while count < sum(sizes):
    path = os.path.join(folder, f"params_{len(parts)}.npy")
    try:
      with files.open_bytes(path) as file:
        part = np.load(file, allow_pickle=False)
    except files.DAMAGED_ARRAY as error:
      raise ValueError(f"{path}: not an array of numbers: {error}") from None
    if part.dtype != np.float32 or not part.size:
      raise ValueError(f"{path}: {part.dtype}, expected float32 numbers")
    parts.append(part.ravel())
    count += part.size

  # The last file may hold too many.
  if count != sum(sizes):
    raise ValueError(
      f"{folder}: {count:,} numbers in {len(parts)} files; {SHAPES} lists "
      f"{sum(sizes):,}"
    )

  split = np.split(np.concatenate(parts), np.cumsum(sizes)[:-1])
  return [x.reshape(shape) for x, shape in zip(split, shapes, strict=True)]
