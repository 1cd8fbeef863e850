"""Tests of programs with --model=owner/name, from a Hub of the tests."""

import json
import shutil

from huggingface_hub import constants
import numpy as np
import pytest

import bert
from bert import convert_checkpoint, extract_features, run_classifier
from bert.cli import model_folder
from bert.data import hub as product
from bert.weights import checkpoints
import hub_server
import program_flags
import tiny
import tiny_models

NAME = "owner/tiny"


@pytest.fixture(name="folder", scope="module")
def make_folder(tmp_path_factory):
  """A tiny masked language model as a folder of Hugging Face's."""
  folder = tmp_path_factory.mktemp("model")
  tiny.write_model(folder, {"vocab_size": tiny.RECORD_IDS})
  model = tiny_models.make_masked_lm(folder)
  checkpoints.save(str(folder), 0, checkpoints.model_variables(model), keep=0)
  config = folder / "config.json"
  convert(input=folder, bert_config_file=config, output=folder / "theirs")
  return folder / "theirs"


@pytest.fixture(name="hub")
def start_hub(tmp_path, monkeypatch):
  monkeypatch.chdir(tmp_path)
  with hub_server.start() as hub:
    # The client reads the environment once, at its import.
    url = hub.url + "/{repo_id}/resolve/{revision}/{filename}"
    monkeypatch.setattr(constants, "ENDPOINT", hub.url)
    monkeypatch.setattr(constants, "HUGGINGFACE_CO_URL_TEMPLATE", url)
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "cache"))
    yield hub


def contents(folder, **changed):
  found = {path.name: path.read_bytes() for path in folder.iterdir()}
  return found | changed


def convert(**flags):
  kind = convert_checkpoint.ConversionSettings
  program_flags.run_main(convert_checkpoint, kind, **flags)


def extract(model, **flags):
  with open("in.txt", "w") as file:
    file.write("the film was good\n")
  kind = extract_features.VectorSettings
  flags |= {"model": model, "input_file": "in.txt", "max_seq_length": 16}
  flags["layers"] = "-1"
  program_flags.run_main(extract_features, kind, output_file="out", **flags)
  with open("out") as file:
    return file.read()


def test_a_name_stands_for_the_folder(hub, folder, capsys):
  commit = hub.push(NAME, contents(folder))
  assert extract(NAME) == extract(folder)
  assert (
    f"export_saved_model.py --model={NAME}@{commit} " in capsys.readouterr().out
  )
  encoder = bert.load_encoder(f"{NAME}@{commit}")
  expected = bert.load_encoder(folder)
  for found, wanted in zip(encoder.weights, expected.weights, strict=True):
    np.testing.assert_array_equal(found, wanted)
  with pytest.raises(ValueError, match="a model without a task; train it"):
    bert.load(NAME)
  convert(model=NAME, output="google")
  with open("google/README.md") as file:
    assert (
      f"from a Hugging Face folder, `{NAME}@{commit}`: 1 layers" in file.read()
    )


def test_a_trained_model_answers_by_its_name(hub, tmp_path):
  tiny_models.write_trained(tmp_path / "run")
  hub.push(NAME, contents(tmp_path / "run"))
  texts = ["the film was good", "bad plot"]
  assert bert.load(NAME)(texts) == bert.load(tmp_path / "run")(texts)


@pytest.mark.parametrize("program", ["run_classifier", "run_pretraining"])
def test_a_run_keeps_to_the_commit_it_began_with(
  hub, folder, tmp_path, program
):
  begun = hub.push(NAME, contents(folder))
  arguments = [
    argument
    for argument in tiny.prepare(program, tmp_path)
    if "config_file" not in argument and "vocab_file" not in argument
  ]
  result = program_flags.succeed([*arguments, f"--model={NAME}"])
  assert "hub_model.json says" not in result.stderr
  record = tmp_path / "out" / "hub_model.json"
  assert json.loads(record.read_text()) == {"model": f"{NAME}@{begun}"}
  report = (tmp_path / "out" / "report.html").read_text()
  assert f"{NAME}@{begun}" in report
  if program == "run_classifier":  # What an export's card holds.
    card = bert.load(tmp_path / "out")._model.card
    assert card.training["model"] == f"{NAME}@{begun}"
  changed = hub.push(NAME, contents(folder, **{"README.md": b"# Another"}))
  result = program_flags.succeed([*arguments, f"--model={NAME}"])
  assert f"--model={NAME}@{begun}, as {record} says\n" in result.stderr
  product.find(f"{NAME}@{changed}")  # Shows progress.
  result = program_flags.run_here([*arguments, f"--model={NAME}@{changed}"])
  # A note about rows without a token comes before it.
  assert result.returncode == 1
  last = program_flags.error_lines(result.stderr)[-1]
  assert f"began with {NAME}@{begun}: pass that" in last
  # What was trained stands for itself.
  shutil.rmtree(tmp_path / "cache")
  hub.requests.clear()
  result = program_flags.succeed(
    [*arguments, f"--model={tmp_path / 'out'}", "--do_train=false"]
  )
  assert json.loads(record.read_text()) == {"model": f"{NAME}@{begun}"}
  assert not hub.requests


def test_a_run_of_several_seeds_keeps_to_its_commit(hub, folder, write, capsys):
  begun = hub.push(NAME, contents(folder))
  hub.push(NAME, contents(folder, **{"config.json": b"{}"}))
  record = write("out/seed-3/hub_model.json", f'{{"model": "{NAME}@{begun}"}}')
  settings = program_flags.read(
    run_classifier.ClassifierSettings,
    lambda kind: model_folder.find_files(kind.read()),
    model=NAME,
    task_name="file",
    output_dir="out",
    seeds="3,4",
  )
  assert settings.model == f"{NAME}@{begun}"
  assert (
    f"--model={NAME}@{begun}, as {record} says\n" in capsys.readouterr().err
  )
