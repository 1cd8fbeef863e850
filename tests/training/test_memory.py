"""The memory of training: the estimate, and errors if it is too little."""

import math
import os
import re

import numpy as np
import pytest
import tensorflow as tf

from bert import heads, modeling, optimization
from bert.inputs import training_input
from bert.training import memory, training_plan
import program_flags
import replicas
import tiny
import tiny_training

CONFIG = modeling.BertConfig(
  vocab_size=100,
  hidden_size=8,
  num_hidden_layers=2,
  num_attention_heads=2,
  intermediate_size=32,
  type_vocab_size=2,
)
SIZE = memory.UpdateSize(
  parameters=1000,
  trained=900,
  trained_layers=2,
  sequences=2,
  predictions=4,
  length=16,
)
# As an operation of TensorFlow says it.
NO_ROOM = (
  "Graph execution error:\n\nDetected at node mul\nOOM when allocating tensor "
  "with shape[16,12] and type float on /job:localhost by allocator cpu\n"
)


# The sum of `memory.estimate`, whose comments say what the factors stand for:
# 256 numbers of hidden size, 1024 of intermediate size, 1024 of attention.
LAYER = 256 * 42 + 1024 * 8 + 1024 * 5
KNOWN = 4000 + 7200 + 3600 + 256 * 13  # Parameters and embeddings.
RUNTIME = (780 + 2 * 8) * 2**20


@pytest.mark.parametrize(
  ("changes", "trained_layers", "expected"),
  [
    ({}, 2, KNOWN + 2 * LAYER + 16 * 1024),  # The last: working values.
    (
      {"dtype": "mixed_bfloat16"},
      2,
      6000 + 7200 + 3600 + 256 * 11 + 2 * (256 * 30 + 1024 * 11) + 16 * 1024,
    ),
    # Its graph is larger. Layers keep their inputs, and one layer the rest.
    (
      {"recompute": True},
      2,
      2 * 16 * 2**20 + KNOWN + 2 * 256 * 4 + 16 * 1024 + LAYER,
    ),
    # So is the graph of a loop.
    (
      {"accumulates": True},
      1,
      2 * 34 * 2**20 + KNOWN + 3600 + LAYER + 16 * 1024,
    ),
    # The scores of all words are the largest.
    ({"predictions": 40}, 2, KNOWN + 2 * LAYER + 12 * 2 * 40 * 100),
  ],
)
def test_the_estimate_is_the_sum_that_is_documented(
  changes, trained_layers, expected
):
  size = SIZE._replace(trained_layers=trained_layers, **changes)
  one, two = (memory.estimate(CONFIG, size, n) for n in (1, 2))
  assert one == RUNTIME + expected
  if not size.recompute and not size.accumulates:
    assert two == RUNTIME + 2 * expected  # Replicas share one process.


# A draw of dropout, the mask of the other layer, and what else there is then.
DRAWN = 64 * 1024 + 4 * 1024 + 256 * (4 + 14)
# The values that two layers keep, and the embeddings.
KEPT = 256 * 8 + 2 * (256 * 18 + 1024 * 9)
KEPT_IN_BFLOAT16 = 256 * 8 + 2 * (256 * 22 + 1024 * 7)


@pytest.mark.parametrize(
  ("changes", "expected"),
  [
    ({}, 7200 + DRAWN),
    ({"recompute": True}, 7200 + DRAWN),
    # The scores of all words are the largest, of which one copy has a multiple
    # of eight; copies that are small are in another memory.
    (
      {"predictions": 10**6 - 1},
      7200 + KEPT + 4 * 200 * (10**6 - 1) + 4 * 200 * 10**6,
    ),
    (
      {"dtype": "mixed_bfloat16", "predictions": 10**6 - 1},
      7200 + KEPT_IN_BFLOAT16 + 10 * 200 * (10**6 - 1) + 4 * 200 * 10**6,
    ),
    (
      {"dtype": "mixed_bfloat16", "predictions": 200},
      7200 + KEPT_IN_BFLOAT16 + 2 * 200 * 200,
    ),
    # The gradients are, of which the word table's is in float32.
    (
      {"dtype": "mixed_bfloat16", "trained": 10**6},
      8 * 10**6 + 2 * 10**6 + 2 * 100 * 8,
    ),
    # Their sums, and in bfloat16 the cast weights.
    ({"accumulates": True}, 7200 + 3600 + DRAWN),
    (
      {"accumulates": True, "dtype": "mixed_bfloat16"},
      7200 + 3600 + 2000 + DRAWN,
    ),
  ],
)
def test_the_estimate_for_a_tpu_is_another_sum(changes, expected):
  small = 16 * 1024 * (230 + 2 * 465)
  size = SIZE._replace(**changes)
  assert memory.estimate_on_tpu(CONFIG, size) == small + 4000 + expected


@pytest.mark.parametrize(
  ("available", "end"),
  [
    (
      (2**29, "machine"),
      "; this machine has 0.5 GB for it\nwarning: that is less than it takes: "
      "lower --train_batch_size or --max_seq_length, raise "
      "--gradient_accumulation_steps, or pass --recompute=true or "
      "--precision=bfloat16",
    ),
    ((2**31, "GPU"), "; this GPU has 2.0 GB for it"),
    (None, ""),
  ],
)
def test_a_warning_names_the_flags_only_if_there_is_too_little(
  monkeypatch, available, end
):
  monkeypatch.setattr(memory, "available", lambda strategy: available)
  strategy = tf.distribute.get_strategy()
  assert memory.report(CONFIG, SIZE, strategy) == (
    "memory: about 0.8 GB, for 2 x 16 tokens at a time" + end
  )


def test_what_runs_beside_the_model_counts(monkeypatch):
  monkeypatch.setattr(memory, "available", lambda strategy: None)
  strategy = tf.distribute.get_strategy()
  sizes = []

  def more(size, replicas):
    sizes.append((size, replicas))
    return 3 * memory.GIGABYTE

  line = memory.report(CONFIG, SIZE, strategy, more)
  assert line == "memory: about 3.8 GB, for 2 x 16 tokens at a time"
  assert sizes == [(SIZE, 1)]


def test_available_memory_is_a_part_of_the_machines():
  total = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
  size, owner = memory.available(tf.distribute.get_strategy())
  assert 2**28 < size <= total and owner == "machine"


def test_a_full_disk_is_no_lack_of_memory():
  message = "Failed to flush 8 events to out/events.out.tfevents.1: No space"
  error = tf.errors.ResourceExhaustedError(None, None, message)
  with pytest.raises(tf.errors.ResourceExhaustedError):
    with training_input.naming_memory_flags("training", "buy a disk"):
      raise error


@pytest.mark.slow
def test_what_cannot_be_allocated_is_one_line():
  message = "^while thinking: OOM when allocating tensor with shape.* and type "
  with pytest.raises(MemoryError, match=f"{message}float: think less$"):
    with training_input.naming_memory_flags("thinking", "think less"):
      tf.zeros([2**23, 2**23])  # 256 TB: more than there are addresses.
  with pytest.raises(MemoryError, match=f"{message}float: think less$"):
    with training_input.naming_memory_flags("thinking", "think less"):
      raise tf.errors.ResourceExhaustedError(None, None, NO_ROOM)


def size_of_update(model, shapes, parts=1, variables=None, **options):
  optimizer = optimization.create_optimizer(
    variables or model.trainable_variables, 1e-4, 10, 1, **options
  )
  plan = training_plan.TrainingPlan("", 1, 8, parts, max_seq_length=16)
  task = training_plan.TrainingTask(model, optimizer, None, None, plan)
  signature = {n: tf.TensorSpec(s, tf.int32) for n, s in shapes.items()}
  return memory.size_of_update(task, signature)


def test_frozen_layers_are_not_trained():
  model, shapes = heads.ClassifierModel(CONFIG, 3), {"input_ids": (8, 16)}
  bert = sum(math.prod(variable.shape) for variable in model.bert.variables)
  all_of_it = size_of_update(model, shapes)
  assert all_of_it[:3] == (bert + 3 * 8 + 3, bert + 3 * 8 + 3, 2)
  assert size_of_update(model, shapes, freeze_layers=1).trained_layers == 1
  head = [v for v in model.trainable_variables if "bert/e" not in v.path]
  of_head = size_of_update(model, shapes, variables=head)
  assert of_head[:3] == (bert + 3 * 8 + 3, 8 * 8 + 8 + 3 * 8 + 3, 0)


@pytest.mark.parametrize(
  ("features", "parts", "expected"),
  [
    ({"input_ids": (8, 4, None)}, 2, (16, 0)),  # Choices are sequences.
    ({"input_ids": (8, 16), "masked_lm_positions": (8, 4)}, 1, (8, 4)),
    ({"input_ids": (8, None), "guesses_all": (8,)}, 1, (8, 15)),
    ({"input_ids": (8, 16)}, 1, (8, 0)),
  ],
)
def test_the_size_of_an_update(features, parts, expected):
  model = heads.PretrainingModel(CONFIG)
  model.heads.trainable = "guesses_all" in features
  size = size_of_update(model, features, parts)
  assert size[3:] == (*expected, 16, "float32", False, parts > 1)


def test_calls_without_a_seed_return_the_attention_as_ever():
  bert = heads.ClassifierModel(CONFIG, 2).bert
  memory.recompute_layers(bert)
  ids, mask = np.array([[1, 5, 6], [1, 7, 0]]), np.array([[1, 1, 1], [1, 1, 0]])
  output = bert(ids, mask, return_attention_probs=True)
  assert [probs.shape for probs in output.attention_probs] == [(2, 2, 3, 3)] * 2


@pytest.mark.slow
@pytest.mark.parametrize(("devices", "parts"), [(1, 2), (2, 1), (2, 2)])
def test_recomputed_layers_make_equal_updates(tmp_path, devices, parts):
  """On any devices, in any parts; test_contract.py compares gradients."""
  options = {"gradient_accumulation_steps": parts}
  options["config"] = tiny_training.CONFIG
  options["strategy"] = replicas.strategy_of(devices)
  tiny_training.run(tmp_path / "plain", 2, **options)
  tiny_training.run(tmp_path / "recomputed", 2, recompute=True, **options)
  found = tiny_training.saved(tmp_path / "recomputed", 2)
  for name, value in tiny_training.saved(tmp_path / "plain", 2).items():
    np.testing.assert_allclose(found[name], value, atol=1e-6, err_msg=name)


@pytest.mark.slow
def test_a_program_without_the_memory_says_so_in_a_line(tmp_path):
  # The attention of a sequence of three million tokens is 150 TB: more than
  # there are addresses. The rest is small.
  length = 3 * 2**20
  config = {
    "hidden_size": 4,
    "intermediate_size": 4,
    "num_attention_heads": 4,
    "max_position_embeddings": length,
    "attention_probs_dropout_prob": 0.0,
  }
  result = tiny.run(
    "run_pretraining",
    tmp_path,
    config,
    input_file=tiny.write_records(tmp_path / "x", range(1), sequence=length),
    max_seq_length=length,
    train_batch_size=1,
    num_train_steps=1,
    do_train=True,
  )
  program_flags.assert_refused(
    result, "out of memory: while training: OOM when allocating tensor"
  )
  assert memory.TRAINING_CURES in result.stderr
  pattern = r"memory: about ([\d,.]+) GB, for 1 x 3145728 tokens"
  found = re.search(pattern, result.stdout)
  assert float(found[1].replace(",", "")) > 2**17
  assert f"less than it takes: {memory.TRAINING_CURES}" in result.stdout


# Runs a program and prints the most memory that it had.
PEAK_OF_PROGRAM = """
import pathlib, runpy, sys
sys.argv = sys.argv[1:]
try:
  runpy.run_path(sys.argv[0], run_name="__main__")
finally:
  print(pathlib.Path("/proc/self/status").read_text())
"""


@pytest.mark.slow
@pytest.mark.parametrize("precision", ["float32", "bfloat16"])
def test_the_estimate_is_near_the_truth_and_flags_save_memory(
  tmp_path, precision
):
  config = {
    "hidden_size": 128,
    "intermediate_size": 512,
    "num_attention_heads": 8,
    "num_hidden_layers": 12,
    "max_position_embeddings": 256,
  }
  path = tmp_path / "x"
  records = tiny.write_records(path, range(16), sequence=256)
  peaks = []
  for number, flags in enumerate(
    [{}, {"recompute": True}, {"gradient_accumulation_steps": 4}]
  ):
    python, *arguments = tiny.command(
      "run_pretraining",
      tmp_path,
      config,
      input_file=records,
      output_dir=tmp_path / str(number),
      max_seq_length=256,
      train_batch_size=16,
      num_train_steps=1,
      do_train=True,
      precision=precision,
      **flags,
    )
    command = [python, "-c", PEAK_OF_PROGRAM, *arguments]
    result = program_flags.run_command(command)
    peak = int(re.search(r"VmHWM:\s+(\d+) kB", result.stdout)[1]) / 2**20
    guess = float(re.search(r"memory: about ([\d.]+) GB", result.stdout)[1])
    assert 0.75 < guess / peak < 1.25, flags
    peaks.append(peak)
  plain, *smaller = peaks
  assert plain - max(smaller) > 0.3, peaks
