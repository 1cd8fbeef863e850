"""What the original gave, on the golden cases of ../shared/golden."""

import numpy as np
import pytest
import tensorflow as tf

from encoders import compiled, encoder_table
import heads
from inputs import training_input
import modeling
import optimization
import paths
import program_flags
import run_pretraining
from training import loop, training_plan
from weights import checkpoints

GOLDEN = paths.SHARED / "golden"
CASES = ["gelu", "relu"]

pytestmark = pytest.mark.skipif(
  not GOLDEN.is_dir(), reason=f"no golden cases in {GOLDEN}"
)


@pytest.fixture(params=[modeling.BertModel, compiled.BertModel], autouse=True)
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
  inputs = [golden[k] for k in ("input_ids", "input_mask", "segment_ids")]
  bert = model.bert(*inputs, return_hidden_states=True)
  assert_close(bert.hidden_states[0], golden["embedding_output"])
  assert_close(np.stack(bert.hidden_states[1:]), golden["all_encoder_layers"])
  assert_close(bert.sequence_output, golden["sequence_output"])
  assert_close(bert.pooled_output, golden["pooled_output"])


@pytest.mark.parametrize("name", CASES)
def test_pretraining_heads(name):
  _, golden, model = load_case(name)
  output = model(
    *(golden[k] for k in ("input_ids", "input_mask", "segment_ids")),
    golden["masked_lm_positions"],
  )
  words = tf.nn.log_softmax(output.masked_lm_logits)
  words = tf.reshape(words, golden["masked_lm_log_probs"].shape)
  assert_close(words, golden["masked_lm_log_probs"])
  assert_close(
    tf.nn.log_softmax(output.next_sentence_logits),
    golden["next_sentence_log_probs"],
  )


def first_example(golden):
  """The batch of one that the golden run was trained on, for ever."""
  features = {
    name: tf.constant(golden[name][:1])
    for name in run_pretraining_features(golden)
  }
  rows = tf.data.Dataset.from_tensors((0, b"")).repeat()
  return training_input.TrainingInput(
    rows=rows.skip,
    parse=lambda serialized: features,
    describe_row=str,
    find_fault=lambda: None,
  )


def run_pretraining_features(golden):
  return [
    name
    for name in golden
    if golden[name].shape[:1] == (golden["input_ids"].shape[0],)
    and name.startswith(
      ("input_", "segment_", "masked_lm_", "next_sentence_la")
    )
    and not name.endswith("log_probs")
  ]


@pytest.mark.parametrize("name", CASES)
def test_training_steps(name, tmp_path):
  folder, golden, model = load_case(name)
  steps = len(golden["train_losses"])
  optimizer = optimization.create_optimizer(
    model.trainable_variables,
    float(golden["learning_rate"]),
    int(golden["num_train_steps"]),
    int(golden["num_warmup_steps"]),
  )
  plan = training_plan.TrainingPlan(
    output_dir=str(tmp_path),
    num_train_steps=steps,
    train_batch_size=1,
    save_checkpoints_steps=1,
    eval_every_steps=1,
    iterations_per_loop=1,
  )
  source = first_example(golden)
  task = training_plan.TrainingTask(
    model, optimizer, run_pretraining.loss_fn, source, plan
  )
  loop.train(
    tf.distribute.get_strategy(),
    {"": task},
    plan,
    evaluate=lambda step: {},  # Makes it record every step.
  )
  history = read_scalars(tmp_path)
  assert_close(history["loss"], golden["train_losses"])
  assert_close(history["learning_rate"], golden["train_learning_rates"])
  assert_close(history["gradient_norm"], golden["train_gradient_norms"])
  ours = dict(checkpoints.read(str(tmp_path / f"model.ckpt-{steps}")))
  theirs = dict(checkpoints.read(str(folder / f"model.ckpt-{steps}")))
  assert sorted(ours) == sorted(theirs)
  for key, value in theirs.items():
    # A key's bias moves every score of a query alike: its gradient is zero but
    # for rounding.
    if "key/bias" not in key:
      scale = max(np.abs(value).max(), 1e-30)
      np.testing.assert_allclose(
        ours[key] / scale, value / scale, atol=1e-4, err_msg=key
      )


def read_scalars(folder):
  """Returns {tag: values in order of step} of a folder's event file."""
  (path,) = folder.glob("events.out.tfevents.*")
  history = {}
  for raw in tf.data.TFRecordDataset(str(path)):
    event = tf.compat.v1.Event.FromString(raw.numpy())
    for value in event.summary.value:
      history.setdefault(value.tag, []).append(tf.make_ndarray(value.tensor))
  return {tag: np.array(values) for tag, values in history.items()}


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
  result = program_flags.run_here(command)
  assert result.returncode == 0, result.stderr
  expected = (e2e / "expected/pretraining/eval_results.txt").read_text()
  ours = (tmp_path / "eval_results.txt").read_text()
  for our_line, line in zip(
    ours.splitlines(), expected.splitlines(), strict=True
  ):
    assert our_line.split(" = ")[0] == line.split(" = ")[0]
    assert float(our_line.split()[-1]) == pytest.approx(
      float(line.split()[-1]), rel=1e-4
    )
