"""Recomputed layers: equal updates; test_contract.py compares gradients."""

import dataclasses

import keras
import numpy as np
import pytest
import tensorflow as tf

import heads
import optimization
import replicas
import run_pretraining
import tiny_training
from training import loop, memory, training_plan
from weights import checkpoints

CONFIG = dataclasses.replace(tiny_training.CONFIG, num_hidden_layers=3)
IDS = np.array([[1, 5, 6, 2], [1, 7, 2, 0]])
MASK = np.array([[1, 1, 1, 1], [1, 1, 1, 0]])


def test_calls_without_a_seed_return_the_attention_as_ever():
  bert = heads.ClassifierModel(CONFIG, 2).bert
  memory.recompute_layers(bert)
  output = bert(IDS, MASK, return_attention_probs=True)
  assert [probs.shape for probs in output.attention_probs] == [(2, 2, 4, 4)] * 3


def train(folder, strategy, **options):
  """Trains for two steps; returns the variables by name."""
  keras.utils.set_random_seed(1)
  with strategy.scope():
    model = heads.PretrainingModel(tiny_training.CONFIG)
    optimizer = optimization.create_optimizer(
      model.trainable_variables, 1e-2, num_train_steps=2, num_warmup_steps=0
    )
  plan = training_plan.TrainingPlan(str(folder), 2, 8, **options)
  source = tiny_training.make_input(tiny_training.random_rows(16))
  task = training_plan.TrainingTask(
    model, optimizer, run_pretraining.loss_fn, source, plan
  )
  loop.train(strategy, {"": task}, plan)
  variables = checkpoints.model_variables(model)
  return {name: value.numpy() for name, value in variables.items()}


@pytest.mark.slow
@pytest.mark.parametrize(
  "make_strategy, parts",
  [
    (tf.distribute.get_strategy, 2),
    (replicas.two_replicas, 1),
    (replicas.two_replicas, 2),
  ],
)
def test_updates_are_equal_on_any_devices_in_any_parts(
  tmp_path, make_strategy, parts
):
  strategy, parts = make_strategy(), {"gradient_accumulation_steps": parts}
  expected = train(tmp_path / "a", strategy, **parts)
  found = train(tmp_path / "b", strategy, recompute=True, **parts)
  for name, value in expected.items():
    np.testing.assert_allclose(found[name], value, atol=1e-6, err_msg=name)
