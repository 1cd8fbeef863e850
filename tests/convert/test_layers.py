"""Some layers of a model as the start of a smaller one."""

import json

import numpy as np
import pytest

import any_model
from bert.weights import checkpoints
import program_flags
import tiny
import tiny_models

DEEP = 4  # Layers of the model to take some from.


@pytest.fixture(name="deep", scope="module")
def write_deep_model(tmp_path_factory):
  """Writes what a training of a classifier leaves, with Adam's slots."""
  folder = tmp_path_factory.mktemp("deep")
  model = tiny_models.write_trained(folder, layers=DEEP)
  variables = checkpoints.model_variables(model)
  slots = {f"{name}/adam_m": value for name, value in variables.items()}
  checkpoints.save(str(folder), 7, variables | slots, keep=1)
  return folder


def choose(deep, folder, layers, **flags):
  flags = {"model": deep, "layers": layers, "output": folder, **flags}
  flags = {"output_format": "google", **flags}
  return program_flags.run_here(
    program_flags.command("convert_checkpoint", **flags)
  )


def train(folder, start, **flags):
  """Trains a classifier of the same labels without changing a weight."""
  data = tiny.write_tsv(folder / "train.tsv", range(8))
  flags = {"train_file": data, "do_train": True, "learning_rate": 0, **flags}
  flags |= {"num_train_epochs": 1, "train_batch_size": 8, "task_name": "file"}
  flags |= {"max_seq_length": tiny.SEQUENCE, "output_dir": folder / "out"}
  return program_flags.run_here(
    program_flags.command("run_classifier", model=start, **flags)
  )


# Other tests read both formats.
@pytest.mark.parametrize(
  "output_format",
  [pytest.param("google", marks=pytest.mark.slow), "hugging_face"],
)
def test_a_training_starts_with_layers_of_a_deeper_model(
  output_format, deep, tmp_path
):
  start = tmp_path / "start"
  result = choose(deep, start, "3,1", output_format=output_format)
  assert result.returncode == 0, result.stderr
  source = f"{deep}/model.ckpt-7, layers 3, 1"
  assert f"read {source}: 2 layers of 16, --head=encoder\n" in result.stdout
  assert f"`{source}`" in (start / "README.md").read_text()

  result = train(tmp_path, start)
  assert result.returncode == 0, result.stderr
  random = (
    "not in it, they start with random values: output_bias, output_weights\n"
  )
  assert random in result.stdout
  theirs = dict(checkpoints.read(str(deep / "model.ckpt-7")))
  ours = dict(checkpoints.read(str(tmp_path / "out/model.ckpt-1")))
  layers = {"layer_0": "layer_3", "layer_1": "layer_1"}
  compared = 0
  for name, value in ours.items():
    if name.startswith("bert/") and "/adam_" not in name:
      for new, old in layers.items():
        if f"/{new}/" in name:
          name = name.replace(new, old)
          break
      np.testing.assert_array_equal(value, theirs[name], name)
      compared += 1
  assert compared == 2 * 16 + 5 + 2  # In layers, embeddings, pooler.


def test_layers_are_taken_with_their_casing_and_vocabulary(tmp_path):
  tiny_models.write_trained(tmp_path / "deep", layers=DEEP, do_lower_case=False)
  assert choose(tmp_path / "deep", tmp_path / "start", "3,1").returncode == 0
  result = train(tmp_path, tmp_path / "start")
  assert result.returncode == 0, result.stderr
  path = tmp_path / "start/tokenizer_config.json"
  assert f"--do_lower_case=false, as {path} says\n" in result.stderr
  recorded = json.loads((tmp_path / "out/settings.json").read_text())
  assert recorded["do_lower_case"] is False
  result = train(tmp_path, tmp_path / "start", do_lower_case=True)
  program_flags.assert_refused(result, f"{path} says false: leave out")
  vocabularies = [tmp_path / f"{name}/vocab.txt" for name in ("deep", "start")]
  assert vocabularies[0].read_text() == vocabularies[1].read_text()


def test_the_rest_is_left_out_unless_a_head_is_asked_for(deep, tmp_path):
  result = choose(deep, tmp_path / "start", "0,0,2")
  assert "left out: output_bias, output_weights" in result.stdout
  values = dict(checkpoints.read(str(tmp_path / "start/bert_model.ckpt")))
  assert len(values) == 3 * 16 + 5 + 2  # In layers, embeddings, pooler.
  assert not (tmp_path / "start/labels.txt").exists()

  choose(deep, tmp_path / "headed", "0,2", head="classifier")
  values = any_model.values(tmp_path / "headed")
  assert len(values) == 2 * 16 + 5 + 2 + 2
  assert (tmp_path / "headed/labels.txt").read_text() == "neg\npos\n"


@pytest.mark.parametrize(
  ("layers", "message"),
  [
    ("0,x", "--layers=0,x: expected the numbers of layers, from 0, such as"),
    ("0,-1", "--layers=0,-1: expected the numbers of layers, from 0, such as"),
    ("0,4", "--layers=0,4: no layer 4 in "),
  ],
)
def test_layers_that_are_not_there_are_refused(deep, layers, message, tmp_path):
  result = choose(deep, tmp_path / "start", layers)
  program_flags.assert_refused(result, message)
  assert not (tmp_path / "start").exists()
