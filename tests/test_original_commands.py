"""The commands of the original's README run as they stand."""

import json
import shlex

import pytest

import heads
import modeling
import paths
import program_flags
import tiny
from weights import checkpoints

RECORDS = """--input_file=./sample_text.txt
  --output_file={out}/examples.tfrecord
  --vocab_file={bert}/vocab.txt --do_lower_case=True --max_seq_length=128
  --max_predictions_per_seq=20 --masked_lm_prob=0.15 --random_seed=12345
  --dupe_factor=5"""
PRETRAINING = """--input_file={out}/examples.tfrecord --output_dir={out}/run
  --do_train=True --do_eval=True --bert_config_file={bert}/bert_config.json
  --init_checkpoint={bert}/bert_model.ckpt --train_batch_size=32
  --max_seq_length=128 --max_predictions_per_seq=20 --num_train_steps=20
  --num_warmup_steps=10 --learning_rate=2e-5"""


@pytest.fixture
def run(tmp_path, monkeypatch):
  monkeypatch.chdir(paths.ROOT)

  def run(program, flags):
    flags = flags.format(bert=tmp_path / "bert", out=tmp_path)
    return program_flags.run_here(["python", program, *shlex.split(flags)])

  return run


def test_pretraining_on_the_sample_text(tmp_path, run):
  """Twenty updates, which learn little, of a tiny model from a checkpoint."""
  folder = tmp_path / "bert"
  tiny.write_model(folder)
  fields = json.loads((folder / "config.json").read_text())
  config = modeling.BertConfig(**fields | {"max_position_embeddings": 128})
  (folder / "bert_config.json").write_text(config.to_json_string())
  variables = checkpoints.model_variables(heads.PretrainingModel(config))
  checkpoints.write(str(folder / "bert_model.ckpt"), variables)
  done = run("create_pretraining_data.py", RECORDS)
  assert done.returncode == 0, done.stderr
  done = run("run_pretraining.py", PRETRAINING)
  assert done.returncode == 0, done.stderr
  scores = (tmp_path / "run" / "eval_results.txt").read_text()
  assert "global_step = 20\n" in scores


def test_its_typo_gets_a_proposal(run):
  """The README says --do_lower=False where cased models are meant."""
  done = run("run_classifier.py", "--task_name=MRPC --do_lower=False")
  assert done.returncode == 1
  assert "--do_lower: did you mean --do_lower_case?" in done.stderr
