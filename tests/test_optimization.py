"""BERT's AdamW on values worked out by hand."""

import numpy as np
import pytest
import tensorflow as tf

from bert import optimization
import replicas


@pytest.mark.parametrize(
  ("num_train_steps", "num_warmup_steps", "rates"),
  [
    # It rises, then falls to zero. After the warm-up the decay has run from
    # step 0: 0.6 at step 4, not 1.0.
    (10, 4, {0: 0.0, 1: 0.25, 3: 0.75, 4: 0.6, 9: 0.1, 10: 0.0, 11: 0.0}),
    (4, 1, {0: 0.0, 1: 0.75, 4: 0.0}),
    (4, 0, {0: 1.0, 1: 0.75, 4: 0.0}),
  ],
)
def test_learning_rate(num_train_steps, num_warmup_steps, rates):
  for step, rate in rates.items():
    found = optimization.learning_rate_at(
      tf.constant(step, tf.int64), 1.0, num_train_steps, num_warmup_steps
    )
    assert float(found) == pytest.approx(rate)


class Named:
  """A variable with a path."""

  def __init__(self, path, value=(0.0,)):
    self.path, self.value = path, tf.Variable(value)


def test_one_update_by_hand():
  variables = [Named("bert/kernel", [1.0, 1.0]), Named("bert/bias", [1.0])]
  optimizer = optimization.create_optimizer(variables, 0.2, 10, 0)
  gradients = [tf.constant([0.0, 3.0]), tf.constant([4.0])]
  norm, rate = optimizer.clip_and_apply(gradients, 5)
  assert (float(norm), float(rate)) == (5.0, pytest.approx(0.1))
  # Clipped to a norm of 1, the gradients are [0, 0.6] and [0.8].
  # m = 0.1 g, v = 0.001 g^2; p = 1 - 0.1 (m / (sqrt(v) + 1e-6) + 0.01 * 1)
  expected_m, expected_v = [0.0, 0.06], [0.0, 0.00036]
  kernel = [1 - 0.1 * 0.01, 1 - 0.1 * (0.06 / (np.sqrt(0.00036) + 1e-6) + 0.01)]
  bias = [1 - 0.1 * (0.08 / (np.sqrt(0.00064) + 1e-6))]  # Does not decay.
  np.testing.assert_allclose(variables[0].value, kernel, rtol=1e-6)
  np.testing.assert_allclose(variables[1].value, bias, rtol=1e-6)
  np.testing.assert_allclose(optimizer.adam_m[0], expected_m, rtol=1e-6)
  np.testing.assert_allclose(optimizer.adam_v[0], expected_v, rtol=1e-6)


@pytest.mark.parametrize(
  ("gradient", "clipped"),
  [
    ([0.3, 0.4], [0.3, 0.4]),
    ([0.0, 0.0], [0.0, 0.0]),
    ([3.0, 4.0], [0.6, 0.8]),
    ([3.0, np.inf], [np.nan, np.nan]),
    ([3.0, np.nan], [np.nan, np.nan]),
  ],
)
def test_clips_as_tensorflow_does(gradient, clipped):
  optimizer = optimization.create_optimizer([Named("a", [1.0, 1.0])], 0.1, 9, 0)
  norm, _ = optimizer.clip_and_apply([tf.constant(gradient)], 0)
  gradient, expected = tf.clip_by_global_norm([tf.constant(gradient)], 1.0)
  np.testing.assert_array_equal(norm, expected)
  np.testing.assert_allclose(gradient[0], clipped, rtol=1e-6)
  np.testing.assert_allclose(optimizer.adam_m[0] * 10, clipped, rtol=1e-6)


@pytest.mark.parametrize("size", [1, 7, 1000])
def test_half_squares_are_tensorflows_to_the_bit(size):
  gradient = tf.random.stateless_normal([size, 64], seed=[1, size])
  found = optimization._half_square(gradient)
  np.testing.assert_array_equal(found, tf.nn.l2_loss(gradient))


def test_row_norms_by_hand():
  rows = tf.IndexedSlices(
    tf.constant([[1.0, 2.0], [3.0, 0.0]]), tf.constant([5, 5]), [9, 2]
  )
  norms = optimization.row_norms([tf.constant([7.0]), rows])
  assert norms.numpy().tolist() == [0.0, 7.0]  # (1 + 4 + 9) / 2


def test_rows_count_in_the_norm_and_their_sum_in_the_update():
  optimizer = optimization.create_optimizer(
    [Named("a", [1.0, 1.0]), Named("b", [1.0])], 0.1, 9, 0
  )
  # Rows [3, 0] and [0, 4] of one word would be [3, 4]; here they are [8, 0] and
  # [-5, 4], which have the same sum: 64 + 25 + 16, and 144 of b, make 249.
  gradients = [tf.constant([3.0, 4.0]), tf.constant([12.0])]
  norm, _ = optimizer.clip_and_apply(gradients, 0, tf.constant([52.5, 0.0]))
  assert float(norm) == pytest.approx(249**0.5)
  np.testing.assert_allclose(
    optimizer.adam_m[0], np.array([0.3, 0.4]) / 249**0.5, rtol=1e-6
  )


def test_rows_count_however_small_their_norm():
  optimizer = optimization.create_optimizer([Named("a")], 0.1, 9, 0)
  norm, _ = optimizer.clip_and_apply(
    [tf.constant([0.0])], 0, tf.constant([0.5])
  )
  assert float(norm) == 1.0


def test_moments_are_not_trained_themselves():
  optimizer = optimization.create_optimizer([Named("a")], 0.1, 9, 0)
  assert [m.trainable for m in optimizer.slots.values()] == [False, False]


def test_two_optimizers_share_the_moments_of_the_variables_of_both():
  first, both, second = Named("first"), Named("both"), Named("second")
  one = optimization.create_optimizer([first, both], 0.1, 9, 0)
  other = optimization.create_optimizer([both, second], 0.1, 9, 0)
  alone = other.slots["second/adam_m"]
  other.share_moments(one)
  for name in ("both/adam_m", "both/adam_v"):
    assert other.slots[name] is one.slots[name]
  assert other.slots["second/adam_m"] is alone


@pytest.mark.parametrize(
  ("path", "decay"),
  [
    ("bert/encoder/layer_0/output/dense/kernel", 0.01),
    ("bert/encoder/layer_0/output/dense/bias", 0.0),
    ("bert/encoder/layer_0/output/LayerNorm/gamma", 0.0),
    ("cls/predictions/output_bias", 0.0),
    ("cls/seq_relationship/output_weights", 0.01),
  ],
)
def test_norms_and_biases_do_not_decay(path, decay):
  optimizer = optimization.create_optimizer([Named(path)], 0.1, 10, 0)
  assert optimizer.decay_rates == [decay]
  # The slots have Google's names.
  assert sorted(optimizer.slots) == [f"{path}/adam_m", f"{path}/adam_v"]


EMBEDDINGS = "bert/embeddings/word_embeddings"
LOWER = "bert/encoder/layer_0/attention/self/query/kernel"
UPPER = "bert/encoder/layer_1/output/dense/kernel"
POOLER = "bert/pooler/dense/kernel"
HEAD = "output_weights"
MODEL = [EMBEDDINGS, LOWER, UPPER, POOLER, HEAD]


def test_variables_are_in_parts():
  assert list(map(optimization.layer_of, MODEL)) == [0, 1, 2, None, None]
  assert optimization.layer_of("bert/encoder/layer_11/output/x") == 12
  assert optimization.layer_of("cls/predictions/bert/embeddings/x") is None
  models = (MODEL, [EMBEDDINGS, HEAD], [HEAD], [])
  assert list(map(optimization.count_layers, models)) == [2, 0, 0, 0]


def make(**options):
  """A model of two layers, every value 1, and its optimizer."""
  variables = [Named(path, [1.0]) for path in MODEL]
  optimizer = optimization.create_optimizer(variables, 0.1, 100, 0, **options)
  return variables, optimizer


def values(variables):
  return [float(variable.value[0]) for variable in variables]


def moments(optimizer, name):
  return [float(optimizer.slots[f"{name}/adam_{kind}"][0]) for kind in "mv"]


def test_lower_layers_learn_more_slowly():
  variables, optimizer = make(layerwise_lr_decay=0.5)
  gradients = [tf.constant([0.1])] * 5
  optimizer.clip_and_apply(gradients, 0)
  # m = 0.01, v = 1e-5; the rate is 0.1 times the scale.
  change = 0.1 * (0.01 / (np.sqrt(1e-5) + 1e-6) + 0.01)
  scales = [0.125, 0.25, 0.5, 1.0, 1.0]
  expected = [1 - scale * change for scale in scales]
  np.testing.assert_allclose(values(variables), expected, rtol=1e-6)


@pytest.mark.parametrize(
  ("freeze_layers", "trained"),
  [(0, MODEL), (1, [UPPER, POOLER, HEAD]), (2, [POOLER, HEAD])],
)
def test_frozen_layers_are_not_in_the_optimizer(freeze_layers, trained):
  options = {"freeze_layers": freeze_layers, "layerwise_lr_decay": 0.5}
  variables, optimizer = make(**options)
  assert optimizer.paths == trained
  scales = [0.125, 0.25, 0.5, 1.0, 1.0][-len(trained) :]
  assert optimizer.rate_scales == scales
  assert len(optimizer.slots) == 2 * len(trained)
  for step in range(3):
    optimizer.clip_and_apply([tf.constant([0.1])] * len(trained), step)
  changed = [value != 1.0 for value in values(variables)]
  assert changed == [path in trained for path in MODEL]


@pytest.mark.parametrize(
  ("paths", "steps_per_epoch", "first_steps"),
  [
    (MODEL, 2.5, [8, 5, 3, 0, 0]),  # Epochs end after 2.5, 5 and 7.5 steps.
    # Rounding delays nothing: 29 / 7 * 7 > 29.
    ([EMBEDDINGS, "bert/encoder/layer_5/x", HEAD], 29 / 7, [29, 5, 0]),
  ],
)
def test_layers_are_unfrozen_from_the_top_one_an_epoch(
  paths, steps_per_epoch, first_steps
):
  variables = [Named(path) for path in paths]
  create = optimization.create_optimizer
  found = create(variables, 0.1, 100, 0, 1.0, "gradual", steps_per_epoch)
  assert found.first_steps == first_steps


def test_what_is_not_yet_unfrozen_is_untouched():
  variables, optimizer = make(freeze_layers="gradual", steps_per_epoch=2)
  gradients = [tf.constant([0.1 * 2**i]) for i in range(5)]
  norms, changed = [], []
  for step in range(7):
    before = values(variables)
    norms.append(float(optimizer.clip_and_apply(gradients, step)[0]))
    if step == 3:
      lower = moments(optimizer, EMBEDDINGS) + moments(optimizer, LOWER)
      assert lower == [0.0] * 4
      assert 0.0 not in moments(optimizer, UPPER)
    pairs = zip(before, values(variables), strict=True)
    changed.append("".join("-x"[old != new] for old, new in pairs))
  assert changed == ["---xx"] * 2 + ["--xxx"] * 2 + ["-xxxx"] * 2 + ["xxxxx"]
  # 0.1 sqrt(64 + 256), + 16, + 4, + 1
  expected = [1.788854] * 2 + [1.833030] * 2 + [1.843909] * 2 + [1.846619]
  assert norms == pytest.approx(expected, abs=1e-6)


def test_a_frozen_gradient_that_is_not_finite_does_no_harm():
  variables, optimizer = make(freeze_layers="gradual", steps_per_epoch=2)
  gradients = [tf.constant([np.nan])] + [tf.constant([0.1])] * 4
  assert np.isfinite(optimizer.clip_and_apply(gradients, 0)[0])
  assert np.isfinite(values(variables)).all()
  assert moments(optimizer, EMBEDDINGS) == [0.0, 0.0]


def run_steps(strategy, steps=6):
  """Trains in a compiled loop; returns weights and moments, [replicas, N]."""
  with strategy.scope():
    variables, optimizer = make(
      freeze_layers="gradual", steps_per_epoch=2, layerwise_lr_decay=0.5
    )
    first = tf.VariableAggregation.ONLY_FIRST_REPLICA
    counter = tf.Variable(tf.constant(0, tf.int64), False, aggregation=first)

  def replica_step():
    gradients = [v.value * 0.1 * (i + 1) for i, v in enumerate(variables)]
    optimizer.clip_and_apply(gradients, counter)

  @tf.function
  def loop(count):
    for _ in tf.range(count):
      strategy.run(replica_step)
      counter.assign_add(1)

  loop(tf.constant(1))
  loop(tf.constant(steps - 1))
  state = [v.value for v in variables] + list(optimizer.slots.values())
  shares = [strategy.experimental_local_results(v) for v in state]
  return np.array(shares)[..., 0].T


def test_corrected_updates_are_as_large_as_the_rate_from_the_first_one():
  # Equal gradients have equal corrected moments: m = g and v = g^2, so that a
  # weight changes by rate (1 + 0.01 p); uncorrected, by 3.16 times the rate.
  options = {"freeze_layers": "gradual", "steps_per_epoch": 1}
  variables, optimizer = make(**options, corrects_bias=True)
  gradients = [tf.constant([0.1])] * 5
  expected = np.ones(5)
  for step in range(3):
    optimizer.clip_and_apply(gradients, step)
    # A frozen layer's count begins when it thaws.
    rate = float(optimizer.rate_at(tf.constant(step, tf.int64)))
    trained = np.array(optimizer.first_steps) <= step
    expected -= trained * rate * (1 / (1 + 1e-6 / 0.1) + 0.01 * expected)
    np.testing.assert_allclose(values(variables), expected, rtol=1e-6)


def test_corrections_count_the_updates_of_a_variable():
  """Those of steps 1 and 3; at the others another task has the turn."""
  variables, optimizer = make(corrects_bias=True)
  optimizer.updates_before = [[0, 0, 1, 1]] * 5
  expected = np.ones(5)
  for step in (1, 3):
    optimizer.clip_and_apply([tf.constant([0.1])] * 5, step)
    rate = float(optimizer.rate_at(tf.constant(step, tf.int64)))
    expected -= rate * (1 / (1 + 1e-6 / 0.1) + 0.01 * expected)
    np.testing.assert_allclose(values(variables), expected, rtol=1e-6)


def test_updates_of_a_variable_are_counted_from_its_first_step():
  """Step 2, the last of three: two variables come to their turn only later."""
  variables, optimizer = make(corrects_bias=True)
  optimizer.updates_before = [[0, 0, 1]] * 5
  optimizer.first_steps = [2, 2, 2, 3, 9]
  rate = float(optimizer.rate_at(tf.constant(2, tf.int64)))
  change = rate * (1 / (1 + 1e-6 / 0.1) + 0.01)
  optimizer.clip_and_apply([tf.constant([0.1])] * 5, 2)
  np.testing.assert_allclose(
    values(variables), [1 - change] * 3 + [1, 1], rtol=1e-6
  )


def test_correction_by_hand():
  variable = Named("kernel", [1.0])
  optimizer = optimization.create_optimizer(
    [variable], 0.1, 1000, 0, corrects_bias=True
  )
  optimizer.clip_and_apply([tf.constant([0.5])], 0)
  optimizer.clip_and_apply([tf.constant([0.25])], 1)
  # m = 0.9 * 0.05 + 0.025 = 0.07, v = 0.999 * 0.00025 + 0.0000625
  # m / (1 - 0.81), v / (1 - 0.998001)
  first = 1 - 0.1 * (1 / (1 + 2e-6) + 0.01)
  root = np.sqrt(0.00031225 / 0.001999)
  change = 0.0999 * (0.07 / 0.19 / (root + 1e-6) + 0.01 * first)
  np.testing.assert_allclose(variable.value, [first - change], rtol=1e-6)


def test_every_replica_is_updated():
  (alone,) = run_steps(tf.distribute.get_strategy())
  assert (alone[1:5] < 1.0).all() and alone[0] == 1.0  # In six steps.
  first, second = run_steps(replicas.two_replicas())
  np.testing.assert_array_equal(first, second)
  np.testing.assert_allclose(first, alone, rtol=1e-6)


@pytest.mark.parametrize(
  ("name", "value", "message"),
  [
    (
      "layerwise_lr_decay",
      0.0,
      r"expected a factor above 0, and at most 1 \(all layers alike\)$",
    ),
    ("layerwise_lr_decay", 1.1, "expected a factor"),
    ("freeze_layers", 3, "expected a number from 0 .* 2"),
    ("freeze_layers", -1, "expected a number"),
    ("freeze_layers", "all", "expected a number"),
  ],
)
def test_values_out_of_range_are_refused(name, value, message):
  with pytest.raises(ValueError, match=f"--{name}={value}: {message}"):
    make(**{name: value})
