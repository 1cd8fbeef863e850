"""The loop: equal on any number of devices, resumed as if never stopped."""

import dataclasses
import functools
import os
import signal
import threading
import time

import keras
import numpy as np
import pytest
import tensorflow as tf

from bert import heads
from bert.inputs import records, training_input
from bert.training import (
  loop,
  model_selection,
  prediction,
  reporting,
  training_plan,
)
from bert.weights import checkpoints
from replicas import strategy_of
import tiny_training


@pytest.fixture(name="alone", scope="module")
def train_on_one_device(tmp_path_factory):
  folder = tmp_path_factory.mktemp("alone")
  tiny_training.run(folder, 6, dropout_rate=0)
  return tiny_training.saved(folder)


@pytest.mark.parametrize(("count", "parts"), [(1, 2), (1, 4), (2, 1), (2, 2)])
def test_devices_and_parts_make_the_same_update(count, parts, alone, tmp_path):
  options = {"strategy": strategy_of(count), "dropout_rate": 0}
  options["gradient_accumulation_steps"] = parts
  tiny_training.run(tmp_path, 6, **options)
  found = tiny_training.saved(tmp_path)
  assert sorted(found) == sorted(alone)
  for name, value in alone.items():
    np.testing.assert_allclose(found[name], value, atol=1e-5, err_msg=name)


@pytest.mark.parametrize(("count", "stops"), [(1, (1, 4, 6)), (2, (4, 6))])
def test_resumed_equals_uninterrupted_bit_for_bit(count, stops, tmp_path):
  whole, parts = tmp_path / "whole", tmp_path / "parts"
  options = {"save_checkpoints_steps": 1, "keep_checkpoint_max": 2}
  tiny_training.run(whole, 6, strategy=strategy_of(count), **options)
  assert checkpoints.saved_steps(str(whole)) == [5, 6]
  for steps in stops:
    tiny_training.run(parts, steps, strategy=strategy_of(count))
  for suffix in ("index", "data-00000-of-00001"):
    name = f"model.ckpt-6.{suffix}"
    assert (parts / name).read_bytes() == (whole / name).read_bytes()
  curves = reporting.read_curves(str(parts))
  steps = [point["step"] for point in curves]
  assert steps == sorted(set(steps)) and {1, 4, 5, 6} <= set(steps)
  assert all(point["loss"] > 0 for point in curves)


def test_a_thread_trains_without_touching_signals(tmp_path):
  whole, other = tmp_path / "main", tmp_path / "thread"
  tiny_training.run(whole, 2)
  handlers = []

  def evaluate(step):
    handlers.append(signal.getsignal(signal.SIGINT))
    return {}

  options = {"evaluate": evaluate, "eval_every_steps": 1}
  ends = []
  thread = threading.Thread(
    target=lambda: ends.append(tiny_training.run(other, 2, **options))
  )
  thread.start()
  thread.join()
  assert ends == [(2, None)]
  assert handlers == [signal.getsignal(signal.SIGINT)] * 2
  name = "model.ckpt-2.data-00000-of-00001"
  assert (other / name).read_bytes() == (whole / name).read_bytes()


def test_a_signal_in_the_last_evaluation_ends_the_program(tmp_path):
  def kill(step):
    os.kill(os.getpid(), signal.SIGTERM)
    return {"eval_accuracy": 0.5}

  options = {"eval_every_steps": 1, "evaluate": kill}
  assert tiny_training.run(tmp_path, 1, **options) == (1, signal.SIGTERM)
  assert tiny_training.run(tmp_path, 1, **options) == (1, None)


@pytest.mark.parametrize("selects", [True, False])
def test_an_evaluation_that_a_kill_prevented_is_in_the_curves(
  tmp_path, selects
):
  def train(evaluate):
    history = None
    if selects:
      history = model_selection.History(str(tmp_path), "eval_accuracy")
    options = {"eval_every_steps": 1, "evaluate": evaluate, "history": history}
    tiny_training.run(tmp_path, 1, **options)

  def kill(step):
    raise KeyboardInterrupt

  with pytest.raises(KeyboardInterrupt):
    train(kill)
  for _ in range(2):
    train(lambda step: {"eval_accuracy": 0.5})
    curves = reporting.read_curves(str(tmp_path))
    assert [p for p in curves if "loss" not in p] == [
      {"step": 1, "eval/accuracy": 0.5}
    ]


def test_workers_compare_what_they_train_on(tmp_path, monkeypatch):
  compared = []
  monkeypatch.setattr(loop.workers, "are_several", lambda _: True)
  monkeypatch.setattr(
    loop.workers, "compare_workers", lambda _, facts: compared.append(facts)
  )
  assert tiny_training.run(tmp_path, 2) == (2, None)
  [facts] = compared
  assert facts["step in --output_dir"] == 0
  assert facts["first batch "].startswith("of checksum ")
  assert facts["number of rows "] == 2 * 8


def test_a_loss_that_is_not_finite_names_step_rows_and_checkpoint(tmp_path):
  table = tiny_training.random_rows(20)
  table["masked_lm_weights"][13] = np.nan  # In the batch of step 1.
  with pytest.raises(ValueError, match=r"step 1: loss is nan") as caught:
    source = tiny_training.make_input(table)
    tiny_training.run(tmp_path, 6, source=source, save_checkpoints_steps=1)
  message = str(caught.value)
  assert "row 8, row 9, row 10, row 11, row 12, row 13, row 14" in message
  assert "model.ckpt-1" in message
  assert checkpoints.saved_steps(str(tmp_path)) == [1]


@pytest.mark.parametrize(
  ("steps", "period", "due"),
  [
    (6, 2, [2, 4, 6]),
    (7, 2, [2, 4, 6, 7]),
    (16, 5, [5, 10, 16]),  # Three epochs of 5.4 steps: not at 15, too.
    (16, 5.4, [5, 10, 16]),
    (54, 5.4, [5, 10, 16, 21, 27, 32, 37, 43, 48, 54]),  # Ten epochs.
    (10, 10 / 3, [3, 6, 10]),
    (3, 1.5, [1, 3]),
    (1001, 100, [*range(100, 1000, 100), 1001]),  # Not at 1000, too.
    (1010, 100, [*range(100, 1001, 100), 1010]),
  ],
)
def test_nothing_is_done_twice_just_before_the_end(steps, period, due):
  plan = training_plan.TrainingPlan("", steps, 8)
  everything = range(1, steps + 1)
  assert [step for step in everything if plan.is_due(step, period)] == due
  plan = dataclasses.replace(plan, eval_every_steps=period)
  assert {plan.next_stop(step - 1) for step in due} == set(due)


def test_weights_that_are_not_finite_are_not_saved(tmp_path):
  with pytest.raises(ValueError, match="is no longer finite, so nothing was"):
    tiny_training.run(tmp_path, 6, rate=np.nan, save_checkpoints_steps=1)
  assert not list(tmp_path.glob("model.ckpt*"))


def save_with_bias(folder, number):
  """Trains two steps, and fills a bias of the second checkpoint."""
  tiny_training.run(folder, 2, save_checkpoints_steps=1)
  values = tiny_training.saved(folder, 2)
  values["words/bias"] = np.full([40], number, np.float32)
  variables = {name: tf.Variable(value) for name, value in values.items()}
  checkpoints.save(str(folder), 2, variables, keep=0)


def test_a_checkpoint_with_nan_is_not_resumed(tmp_path, capsys):
  save_with_bias(tmp_path, np.nan)
  tiny_training.run(tmp_path, 6)
  said = capsys.readouterr()
  assert "model.ckpt-2: words/bias holds NaN: its training diver" in said.err
  assert "resuming at step 1 of 6" in said.out


def test_a_checkpoint_that_is_not_finite_is_not_called_good(tmp_path):
  save_with_bias(tmp_path, np.inf)
  (tmp_path / "model.ckpt-3.index").write_bytes(b"damaged")
  with pytest.raises(ValueError, match="step 2: loss is nan") as caught:
    tiny_training.run(tmp_path, 6)
  assert str(caught.value).endswith(f"checkpoint is {tmp_path}/model.ckpt-1")


def test_a_batch_that_cannot_be_split_is_refused(tmp_path):
  with pytest.raises(ValueError, match="--train_batch_size=8 cannot be split"):
    tiny_training.run(tmp_path, 6, gradient_accumulation_steps=3)


def test_weights_that_onednn_takes_for_constants_are_not_trained(
  tmp_path, monkeypatch
):
  """In float32 nothing else would show it: the losses stay finite."""
  monkeypatch.setenv("TF_ONEDNN_ASSUME_FROZEN_WEIGHTS", "1")
  with pytest.raises(ValueError, match="=1: every update would compute with"):
    tiny_training.run(tmp_path, 6)
  assert not list(tmp_path.iterdir())


def test_prediction_keeps_order_and_strips_padding():
  batches = tf.data.Dataset.range(7).batch(4).map(lambda x: {"x": x})
  predictor = prediction.Predictor(
    strategy_of(2),
    keras.layers.Identity(),
    lambda output, _: {"y": output * 2},
    lambda model, features, seed: model(features["x"]),
  )
  result = predictor(batches)
  assert result["y"].tolist() == [0, 2, 4, 6, 8, 10, 12]


def map_ahead(function, *sizes):
  batches = [{"x": tf.range(size)} for size in sizes]
  return prediction.map_ahead(function, batches, 2, tokens=7)


def test_two_batches_are_computed_at_once_in_order():
  both_began = threading.Barrier(2, timeout=60)

  def count(features):
    both_began.wait()
    return {"y": len(features["x"])}

  found = map_ahead(count, 4, 3, 2, 1)
  assert list(found) == [{"y": 4}, {"y": 3}, {"y": 2}, {"y": 1}]


def test_large_batches_are_computed_alone():
  working = threading.Semaphore(1)

  def count(features):
    assert working.acquire(blocking=False)
    time.sleep(0.05)
    working.release()
    return {"y": len(features["x"])}

  found = map_ahead(count, 4, 4, 9, 4)
  assert [part["y"] for part in found] == [4, 4, 9, 4]


def test_an_error_of_a_batch_ends_the_prediction():
  found = map_ahead(lambda rows: {"y": 6 // len(rows["x"])}, 3, 0, 2)
  assert next(found) == {"y": 2}
  with pytest.raises(ZeroDivisionError):
    next(found)


def test_no_iterator_waits_for_the_thread_that_tunes_it():
  """`training_input.prefetch` says how long that thread may take to end."""
  source = tiny_training.make_input(tiny_training.random_rows(4))
  plan = training_plan.TrainingPlan("", 1, 2)
  context = tf.distribute.InputContext()
  batches = loop._replica_batches(source, plan, 1, context, 0)
  assert not batches.options().autotune.enabled
  batches = training_input.prefetch(tf.data.Dataset.range(5), 2)
  assert not batches.options().autotune.enabled
  assert list(batches.as_numpy_iterator()) == [0, 1, 2, 3, 4]


@pytest.mark.parametrize("workers", [1, 2, 4])
def test_workers_share_every_batch_and_take_each_row_once(workers, tmp_path):
  """From several files, shuffled, and after a step at which they resume."""
  paths = [str(tmp_path / f"{n}.tfrecord") for n in range(3)]
  for number, path in enumerate(paths):
    with tf.io.TFRecordWriter(path) as writer:
      for row in range(16):
        writer.write(str(16 * number + row))
  source = training_input.TrainingInput(
    rows=functools.partial(records.training_dataset, paths, 1),
    parse=lambda rows: {"row": tf.strings.to_number(rows, tf.int32)},
    describe_row=str,
    find_fault=lambda: None,
  )
  plan = training_plan.TrainingPlan("", 9, 8)
  shares = []
  for worker in range(workers):
    context = tf.distribute.InputContext(workers, worker, workers)
    batches = loop._replica_batches(source, plan, workers, context, 2)
    rows = [batch["row"].numpy() for batch in batches.take(4)]
    assert {len(row) for row in rows} == {8 // workers}
    shares.append(np.stack(rows))

  # The batches of one process, from the third on. Six are an epoch.
  found = np.concatenate(shares, axis=1)
  alone = [int(row) for _, row in source.rows(0).take(48)]
  assert found.flatten().tolist() == alone[16:]
  assert sorted(alone) == list(range(48))


@pytest.mark.parametrize("devices", [1, 2])
def test_weights_cast_once_predict_the_same(devices):
  strategy = strategy_of(devices)
  with strategy.scope():
    model = heads.ClassifierModel(tiny_training.CONFIG, 3, "mixed_bfloat16")

  def forward(model, features, seed=None):
    ids = features["ids"]
    return model(ids, tf.ones_like(ids), tf.zeros_like(ids), seed)

  ids = np.random.default_rng(1).integers(0, 20, [6, 5]).astype(np.int32)
  batches = tf.data.Dataset.from_tensor_slices({"ids": ids}).batch(4)
  predictor = prediction.Predictor(
    strategy, model, lambda logits, _: {"logits": logits}, forward
  )
  expected = forward(model, {"ids": ids}).numpy()
  np.testing.assert_allclose(predictor(batches)["logits"], expected, atol=2e-3)
  # The next call sees what a training has changed meanwhile.
  model.output_bias.assign([1.0, 2.0, 3.0])
  kernel = model.bert.pooler.dense.kernel
  kernel.assign(-kernel)
  expected = forward(model, {"ids": ids}).numpy()
  np.testing.assert_allclose(predictor(batches)["logits"], expected, atol=2e-3)


@pytest.mark.parametrize("devices", [1, 2])
def test_every_update_replica_and_part_draws_its_own_masks(devices, tmp_path):
  seeds = []

  def spy(model, features, seed):
    # `sum_weights` gives zeros, and no dropout of it is ever computed.
    def note(value):
      if value.numpy().any():
        seeds.append(tuple(value.numpy()))

    if seed is not None:
      tf.py_function(note, [seed], [])
    return tiny_training.word_forward(model, features, seed)

  options = {"forward": spy, "gradient_accumulation_steps": 2}
  options["strategy"] = strategy_of(devices)
  for seed in (1, 2):
    tiny_training.run(tmp_path / str(seed), 3, seed=seed, **options)
  assert len(seeds) == len(set(seeds)) == 2 * 3 * devices * 2
