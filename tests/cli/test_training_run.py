"""Tests of what a run leaves beside its weights."""

import json

import pytest
import tensorflow as tf

from bert import run_pretraining
from bert.cli import inference_settings, model_folder, training_run
from bert.weights import checkpoints
import program_flags
import tiny

MECAB = {"mecab_kwargs": {"mecab_dic": "ipadic"}}
MECAB |= {"word_tokenizer_type": "mecab", "do_lower_case": False}


def read(settings_class, **values):
  return program_flags.read(
    settings_class, lambda kind: model_folder.find_files(kind.read()), **values
  )


def write_files(folder, **flags):
  """Writes what a pre-training leaves besides weights; returns where."""
  flags |= {"input_file": __file__, "output_dir": folder / "out"}
  settings = read(run_pretraining.PretrainingSettings, **flags)
  config = checkpoints.read_config(str(folder / "start/config.json"))
  (folder / "out").mkdir()
  run = training_run.TrainingRun(
    settings=settings,
    data=None,
    strategy=tf.distribute.get_strategy(),
    config=config,
  )
  run.write_model_files(settings.vocab_file)
  return folder / "out"


@pytest.mark.parametrize("flag", ["model", "vocab_file", "init_checkpoint"])
@pytest.mark.parametrize(
  ("stated", "name"),
  [({"do_lower_case": False}, "vocab.txt"), (MECAB, "vocab.ipadic")],
)
def test_a_pretraining_keeps_the_casing(tmp_path, flag, stated, name):
  """Its vocabulary looks like one of lower-cased text."""
  start, vocabulary = tmp_path / "start", tmp_path / "vocab.txt"
  tiny.write_model(start)
  (start / "tokenizer_config.json").write_text(json.dumps(stated))
  vocabulary.write_text((start / "vocab.txt").read_text())
  flags = {"bert_config_file": start / "config.json", "vocab_file": vocabulary}
  paths = {"model": start, "vocab_file": start / "vocab.txt"}
  paths["init_checkpoint"] = start / "model.ckpt-1"
  (start / "model.ckpt-1.index").touch()
  out = write_files(tmp_path, **{**flags, flag: paths[flag]})
  assert {path.name for path in out.iterdir()} == {
    *("bert_config.json", "tokenizer_config.json"),
    name,
  }
  found = read(inference_settings.InferenceSettings, model=out)
  assert found.do_lower_case is False


def test_a_casing_that_the_vocabulary_shows_is_not_written(tmp_path):
  tiny.write_model(tmp_path / "start")
  stated = tmp_path / "start/tokenizer_config.json"
  stated.write_text('{"do_lower_case": true}')
  out = write_files(tmp_path, model=tmp_path / "start")
  names = {path.name for path in out.iterdir()}
  assert names == {"bert_config.json", "vocab.txt"}
