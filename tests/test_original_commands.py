"""The commands of the original's README on pre-training run as they stand."""

import json
import shlex

from bert import heads, modeling
from bert.weights import checkpoints
import paths
import program_flags
import tiny

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


def test_pretraining_on_the_sample_text(tmp_path, monkeypatch):
  """Twenty updates, which learn little, of a tiny model from a checkpoint."""
  monkeypatch.chdir(paths.ROOT)
  folder = tmp_path / "bert"
  tiny.write_model(folder)
  fields = json.loads((folder / "config.json").read_text())
  config = modeling.BertConfig(**fields | {"max_position_embeddings": 128})
  (folder / "bert_config.json").write_text(config.to_json_string())
  variables = checkpoints.model_variables(heads.PretrainingModel(config))
  checkpoints.write(str(folder / "bert_model.ckpt"), variables)
  for program, flags in {
    "create_pretraining_data.py": RECORDS,
    "run_pretraining.py": PRETRAINING,
  }.items():
    flags = shlex.split(flags.format(bert=folder, out=tmp_path))
    program_flags.succeed(["python", program, *flags])
  scores = (tmp_path / "run" / "eval_results.txt").read_text()
  assert "global_step = 20\n" in scores
