"""What the original gave, on the golden cases of ../shared/golden."""

import conftest
import numpy as np
import pytest
import tensorflow as tf

from bert import heads, modeling, optimization, run_pretraining
from bert.encoders import compiled, encoder_table
from bert.inputs import training_input
from bert.training import loop, reporting, training_plan
from bert.weights import checkpoints
import paths
import program_flags
import same_training
import tiny

GOLDEN = paths.SHARED / "golden"
CASES = ["gelu", "relu"]
FEATURES = [
  "input_ids",
  "input_mask",
  "segment_ids",
  "masked_lm_positions",
  "masked_lm_ids",
  "masked_lm_weights",
  "next_sentence_labels",
]

pytestmark = pytest.mark.skipif(
  not GOLDEN.is_dir(), reason=f"no golden cases in {GOLDEN}"
)


@pytest.fixture(
  params=[modeling.BertModel, compiled.BertModel],
  ids=["plain", "compiled"],
  autouse=True,
)
def model_class(request, monkeypatch):
  """Runs every test with the plain model and with the one of programs."""
  classes = encoder_table.EncoderClasses(modeling.BertConfig, request.param)
  monkeypatch.setitem(encoder_table.ENCODERS, "transformer", classes)


def load_case(name):
  folder = GOLDEN / "model" / name
  config = modeling.BertConfig.from_json_file(str(folder / "bert_config.json"))
  model = heads.PretrainingModel(config)
  checkpoints.load(
    str(folder / "bert_model.ckpt"), checkpoints.model_variables(model)
  )
  return folder, np.load(folder / "golden.npz"), model


def assert_close(actual, expected):
  scale = np.abs(expected).max()
  np.testing.assert_allclose(actual / scale, expected / scale, atol=1e-5)


@pytest.mark.parametrize("name", CASES)
def test_forward_pass(name):
  _, golden, model = load_case(name)
  inputs = [golden[key] for key in FEATURES[:4]]
  bert = model.bert(*inputs[:3], return_hidden_states=True)
  assert_close(bert.hidden_states[0], golden["embedding_output"])
  assert_close(np.stack(bert.hidden_states[1:]), golden["all_encoder_layers"])
  assert_close(bert.sequence_output, golden["sequence_output"])
  assert_close(bert.pooled_output, golden["pooled_output"])
  output = model(*inputs)
  words = tf.nn.log_softmax(output.masked_lm_logits)
  expected = golden["masked_lm_log_probs"]
  assert_close(tf.reshape(words, expected.shape), expected)
  assert_close(
    tf.nn.log_softmax(output.next_sentence_logits),
    golden["next_sentence_log_probs"],
  )


# Both train alike: an activation is tried by the forward pass.
@pytest.mark.parametrize(
  "name", ["gelu", pytest.param("relu", marks=pytest.mark.slow)]
)
def test_training_steps(name, tmp_path):
  """With the batch of one that the golden run was trained on, for ever."""
  folder, golden, model = load_case(name)
  steps = len(golden["train_losses"])
  optimizer = optimization.create_optimizer(
    model.trainable_variables,
    float(golden["learning_rate"]),
    int(golden["num_train_steps"]),
    int(golden["num_warmup_steps"]),
  )
  rows = tf.data.Dataset.from_tensors((0, b"")).repeat()
  source = training_input.TrainingInput(
    rows=rows.skip,
    parse=lambda serialized: {k: tf.constant(golden[k][:1]) for k in FEATURES},
    describe_row=str,
    find_fault=lambda: None,
  )
  plan = training_plan.TrainingPlan(
    str(tmp_path), steps, train_batch_size=1, iterations_per_loop=1
  )
  task = training_plan.TrainingTask(
    model, optimizer, run_pretraining.loss, source, plan
  )
  loop.train(tf.distribute.get_strategy(), {"": task}, plan)
  points = reporting.read_curves(str(tmp_path))
  for ours, theirs in {
    "loss": "train_losses",
    "learning_rate": "train_learning_rates",
    "gradient_norm": "train_gradient_norms",
  }.items():
    assert_close(np.array([point[ours] for point in points]), golden[theirs])
  ours, theirs = (
    dict(checkpoints.read(str(path / f"model.ckpt-{steps}")))
    for path in (tmp_path, folder)
  )
  assert sorted(ours) == sorted(theirs)
  for key, value in theirs.items():
    if same_training.KEY_BIAS not in key:
      scale = max(np.abs(value).max(), 1e-30)
      np.testing.assert_allclose(
        ours[key] / scale, value / scale, atol=1e-4, err_msg=key
      )


def test_evaluation_program(tmp_path):
  e2e = GOLDEN / "e2e"
  command = program_flags.command(
    "run_pretraining",
    do_eval=True,
    input_file=e2e / "inputs/pretraining_examples.tfrecord",
    init_checkpoint=e2e / "pretrained/bert_model.ckpt",
    bert_config_file=e2e / "pretrained/bert_config.json",
    output_dir=tmp_path,
    eval_batch_size=8,
    max_eval_steps=20,
  )
  program_flags.succeed(command)
  folders = (tmp_path, e2e / "expected/pretraining")
  ours, theirs = map(tiny.read_results, folders)
  assert list(ours) == list(theirs)
  assert ours == pytest.approx(theirs, rel=1e-4)


@pytest.mark.parametrize(
  ("required", "reason", "outcome"),
  [
    ("1", f"no golden cases in {GOLDEN}", "failed"),
    ("1", f"no {paths.SHARED / 'FLAGS.md'}", "failed"),
    ("1", f"{paths.SHARED / 'data'} is absent", "skipped"),
    ("", f"no golden cases in {GOLDEN}", "skipped"),
  ],
)
def test_a_skip_may_be_forbidden(required, reason, outcome, monkeypatch):
  """With REQUIRE_SHARED=1, as where the original's results are."""
  monkeypatch.setenv("REQUIRE_SHARED", required)
  report = pytest.TestReport(
    "test",
    ("test.py", 1, "test"),
    {},
    "skipped",
    ("test.py", 1, reason),
    "call",
  )
  hook = conftest.pytest_runtest_makereport(item=None, call=None)
  next(hook)
  with pytest.raises(StopIteration) as end:
    hook.send(report)
  assert end.value.value.outcome == outcome
