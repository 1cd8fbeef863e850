"""The BERT of programs computes what that of modeling.py does."""

import dataclasses
import functools
import re

import keras
import numpy as np
import pytest
import tensorflow as tf
from tensorflow.python.eager import context

import any_model
from bert import heads, modeling, optimization
from bert.data import processor
from bert.encoders import compiled
from bert.weights import checkpoints
import same_training

CONFIG = dataclasses.replace(
  any_model.CONFIG, initializer_range=0.2, embedding_size=6
)
IDS = np.array([[1, 5, 6, 2], [1, 7, 2, 0]])
MASK = np.array([[1, 1, 1, 1], [1, 1, 1, 0]])
SEED = tf.constant([1, 2])
MODELS = (modeling.BertModel, compiled.BertModel)
STEPS = 4


def make(model_class, dtype):
  keras.utils.set_random_seed(1)
  return model_class(CONFIG, dtype)


def differentiate(bert, seed):
  with tf.GradientTape() as tape:
    output = bert(IDS, MASK, seed=seed, return_hidden_states=True)
    states = [tf.cast(x, tf.float32) for x in tf.nest.flatten(output)]
    loss = tf.add_n([tf.reduce_sum(tf.sin(x)) for x in states])
  gradients = tape.gradient(loss, [v.value for v in bert.variables])
  return states, [tf.convert_to_tensor(gradient) for gradient in gradients]


def assert_close(ours, expected, tolerance, name=""):
  scale = max(np.abs(expected).max(), 0.1)  # Some are zero but for rounding.
  np.testing.assert_allclose(
    ours / scale, expected / scale, atol=tolerance, err_msg=name
  )


@pytest.mark.parametrize("seed", [None, SEED])
@pytest.mark.parametrize(
  ("dtype", "tolerance"), [("float32", 1e-5), ("mixed_bfloat16", 0.1)]
)
def test_names_outputs_and_gradients_are_equal(dtype, tolerance, seed):
  plain, fast = (make(model_class, dtype) for model_class in MODELS)
  assert [v.path for v in plain.variables] == [v.path for v in fast.variables]
  for a, b in zip(plain.variables, fast.variables, strict=True):
    np.testing.assert_array_equal(a, b, err_msg=a.path)
  outputs, gradients = zip(
    *(differentiate(bert, seed) for bert in (plain, fast)), strict=True
  )
  for expected, ours in zip(*outputs, strict=True):
    assert_close(ours, expected, tolerance)
  pairs = zip(plain.variables, *gradients, strict=True)
  for variable, expected, ours in pairs:
    assert_close(ours, expected, tolerance, variable.path)


@pytest.mark.parametrize(
  "wrap", [lambda f: f, pytest.param(tf.function, marks=pytest.mark.slow)]
)
def test_gradients_of_gradients_in_training(wrap):
  """Equal to differences of gradients; Keras's LayerNormalization's are not."""
  bert = make(compiled.BertModel, "float32")
  values = [v.value for v in bert.variables]
  directions = [
    tf.reshape(tf.cos(tf.range(tf.size(v), dtype=tf.float32)), v.shape)
    for v in map(tf.convert_to_tensor, values)
  ]

  @wrap
  def differentiate_twice():
    with tf.GradientTape() as tape:
      _, gradients = differentiate(bert, SEED)
      pairs = zip(gradients, directions, strict=True)
      slope = tf.add_n([tf.reduce_sum(g * d) for g, d in pairs])
    return list(map(tf.convert_to_tensor, tape.gradient(slope, values)))

  found, step, sides = differentiate_twice(), 1e-3, []
  for move in (step, -2 * step):
    for value, direction in zip(values, directions, strict=True):
      value.assign_add(move * direction)
    sides.append(differentiate(bert, SEED)[1])
  for variable, ours, after, before in zip(
    bert.variables, found, *sides, strict=True
  ):
    expected = (after - before) / (2 * step)
    assert_close(ours, expected, 0.02, variable.path)


@pytest.mark.parametrize("dtype", ["float32", "mixed_bfloat16"])
@pytest.mark.parametrize("heads", [2, 3])  # The sizes are 64 and 43.
def test_scores_and_their_gradients_have_the_same_bits(heads, dtype):
  size = 129 // heads
  config = dataclasses.replace(
    CONFIG, hidden_size=heads * size, num_attention_heads=heads
  )
  found = []
  for model_class in (modeling.SelfAttention, compiled.SelfAttention):
    layer = model_class(config, name="self", dtype=dtype)
    seeds = [[1, 2], [3, 4]]
    sources = [
      tf.cast(
        tf.random.stateless_normal([2, heads, 5, size], s), layer.compute_dtype
      )
      for s in seeds
    ]
    with tf.GradientTape() as tape:
      tape.watch(sources)
      scores = layer.score(*sources)
      loss = tf.reduce_sum(tf.sin(scores))
    found.append([scores, *tape.gradient(loss, sources)])
  for plain, fast in zip(*found, strict=True):
    np.testing.assert_array_equal(plain, fast)


def test_updates_are_equal():
  """Four of them, with dropout: the masks are equal, too."""
  trained = []
  for model_class in MODELS:
    bert = make(model_class, "float32")
    optimizer = optimization.create_optimizer(
      bert.trainable_variables, 1e-2, STEPS, num_warmup_steps=2
    )
    for step in range(STEPS):
      _, gradients = differentiate(bert, modeling.fold_in(SEED, step))
      optimizer.clip_and_apply(gradients, step)
    trained.append({v.path: v.numpy() for v in bert.variables})
  plain, fast = trained
  for name, value in plain.items():
    if same_training.KEY_BIAS not in name:
      assert_close(fast[name], value, 1e-4, name)


def graph_operations(function, *inputs):
  """Calls a function; returns the kinds of its operations as they ran."""
  context.enable_graph_collection()
  tf.function(function)(*inputs)
  graphs = context.export_run_metadata().function_graphs
  context.disable_graph_collection()
  return [n.op for g in graphs for n in g.post_optimization_graph.node]


def test_activation_is_merged_into_the_product():
  """Another name scope would undo it, with no other sign."""
  if not processor.merges_gelu():
    pytest.skip("this processor has no such product: see the next test")
  layer = compiled.Intermediate(CONFIG)
  layer.build()
  kinds = graph_operations(lambda rows: layer(rows), tf.ones([4, 8]))
  assert "_FusedMatMul" in kinds and "Tanh" not in kinds


@pytest.mark.parametrize(
  ("name", "is_island"), [("gelu", True), ("gelu_erf", False), ("relu", False)]
)
def test_gelu_is_an_island_where_no_product_takes_it(
  name, is_island, monkeypatch
):
  monkeypatch.setenv(processor.LIMIT, "AVX2")
  layer = compiled.Intermediate(dataclasses.replace(CONFIG, hidden_act=name))
  layer.build()
  rows = tf.cos(tf.reshape(tf.range(32.0), [4, 8]))
  kinds = graph_operations(lambda rows: layer(rows), rows)
  assert any("PartitionedCall" in kind for kind in kinds) is is_island
  expected = modeling.ACTIVATIONS[name](rows @ layer.dense.kernel)
  np.testing.assert_allclose(layer(rows), expected, rtol=0, atol=1e-6)


def test_bfloat16_products_are_not_merged():
  """Merged, they do not use AMX: predicting takes a third longer."""
  bert = make(compiled.BertModel, "mixed_bfloat16")
  kinds = graph_operations(bert, tf.ones([2, 3], tf.int32))
  assert "_FusedMatMul" not in kinds
  # The projection of the embeddings and the pooler are the other two.
  assert kinds.count("MatMul") == 6 * CONFIG.num_hidden_layers + 2


def sums_and_gradients(function, arrays):
  """Returns the result of a function of arrays, and gradients of its square."""
  arrays = [tf.constant(x) for x in arrays]
  floats = [x for x in arrays if x.dtype.is_floating]
  with tf.GradientTape() as tape:
    tape.watch(floats)
    result = function(*arrays)
    loss = tf.reduce_sum(tf.cast(result, tf.float32) ** 2)
  return [result, *tape.gradient(loss, floats)]


@pytest.mark.parametrize("size", [3, 128, 130])  # Rows are padded to 128, 192.
@pytest.mark.parametrize("rate", [0.0, 0.5])
def test_an_island_is_equal_to_its_operations(rate, size):
  random = np.random.default_rng(1)
  shapes = [size, 5], [5], [size, 5], [5], [5]
  arrays = [random.normal(size=shape).astype("f") for shape in shapes]
  arrays += [random.normal(size=[size, 5]) > 0] if rate else []

  def plain(product, bias, residual, gamma, beta, kept=True):
    x = tf.where(kept, (product + bias) / (1 - rate), 0) + residual
    mean, variance = tf.nn.moments(x, [1], keepdims=True)
    return (x - mean) / tf.sqrt(variance + 1e-3) * gamma + beta

  ours = compiled.compile_island(compiled.add_and_norm, rate, 1e-3)
  results = (sums_and_gradients(f, arrays) for f in (ours, plain))
  for found, expected in zip(*results, strict=True):
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("dtype", [tf.float32, tf.bfloat16])
def test_islands_call_no_other_library(dtype):
  """Those of XLA's fusions crashed elsewhere, and gave wrong gradients.

  TensorFlow before 2.22 has them off: allow no newer one until this passes.
  """
  rows, bias = tf.ones([128, 64], dtype), tf.ones([64], dtype)
  arrays = [rows, bias, rows, *tf.ones([2, 64]), rows > 0]

  def differentiate(upstream, *arrays):
    with tf.GradientTape() as tape:
      tape.watch(arrays[:-1])
      result = compiled.add_and_norm(0.1, 1e-3, *arrays)
    return tape.gradient(result, arrays[:-1], upstream)

  for function, inputs in (
    (functools.partial(compiled.add_and_norm, 0.1, 1e-3), arrays),
    (differentiate, [rows, *arrays]),
    (functools.partial(compiled.add_and_activate, "gelu"), arrays[:2]),
  ):
    jit = tf.function(function, jit_compile=True, autograph=False)
    compiler = jit.experimental_get_compiler_ir(*inputs)
    optimized = compiler(stage="optimized_hlo")
    assert "fusion(" in optimized and "custom-call" not in optimized
    assert set(re.findall(r"kind=(\w+)", optimized)) == {"kLoop"}


@pytest.mark.parametrize("name", ["gelu", "gelu_erf", "relu"])
def test_an_activation_in_bfloat16_is_rounded_once(name):
  rows = tf.constant([[-1.0, 0.5, 3.0]], tf.bfloat16)
  bias = tf.constant([1e-3, -0.3, 7.7], tf.bfloat16)
  exact = modeling.ACTIVATIONS[name](
    tf.cast(rows, tf.float32) + tf.cast(bias, tf.float32)
  )
  wide = compiled.compile_island(compiled.add_and_activate, name)(rows, bias)
  np.testing.assert_array_equal(wide, tf.cast(exact, tf.bfloat16))


def test_weights_that_follow_are_not_drawn():
  """Zeros where a checkpoint must have values; the rest is drawn as ever."""
  with compiled.values_follow(False):
    drawn = make(compiled.BertModel, "float32")
  with compiled.values_follow():
    spared = make(compiled.BertModel, "float32")
  for ours, expected in zip(spared.variables, drawn.variables, strict=True):
    is_spared = re.search(r"embeddings$|kernel$", ours.path)
    if is_spared and "pooler" not in ours.path:
      assert checkpoints.is_above_layers(ours.path) is False
      np.testing.assert_array_equal(ours, np.zeros(ours.shape), ours.path)
      assert np.abs(expected).max() > 0, ours.path
    else:
      np.testing.assert_array_equal(ours, expected, ours.path)
  with pytest.raises(ZeroDivisionError), compiled.values_follow():
    _ = 1 / 0
  again = make(compiled.BertModel, "float32")
  np.testing.assert_array_equal(again.variables[0], drawn.variables[0])


def test_heads_are_drawn_also_if_weights_follow():
  """A checkpoint may lack them."""
  models = []
  for follow in (False, True):
    keras.utils.set_random_seed(1)
    with compiled.values_follow(follow):
      models.append(heads.PretrainingModel(CONFIG))
  pairs = zip(*(model.variables for model in models), strict=True)
  for ours, expected in pairs:
    if checkpoints.is_above_layers(ours.path):
      np.testing.assert_array_equal(ours, expected, ours.path)
