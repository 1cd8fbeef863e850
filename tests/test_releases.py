"""Google's released models, by their layout: every program opens them."""

import json

import numpy as np
import pytest

import any_model
from bert.cli import inference_settings, model_folder
from bert.convert import models
from bert.vocabularies import vocabulary_table
import program_flags
import releases
import tiny

# One release of each layout.
LAYOUTS = [
  "uncased_L-2_H-128_A-2",
  "cased_L-12_H-768_A-12",
  "multilingual_L-12_H-768_A-12",
  "multi_cased_L-12_H-768_A-12",
  "chinese_L-12_H-768_A-12",
  "wwm_uncased_L-24_H-1024_A-16",
  "wwm_cased_L-24_H-1024_A-16",
]


def read_settings(**flags):
  return program_flags.read(
    inference_settings.InferenceSettings,
    lambda kind: model_folder.find_files(kind.read()),
    **flags,
  )


def check_values(opened, expected):
  assert opened.weights.unread == ()
  shapes = {name: value.shape for name, value in expected.items()}
  assert opened.weights.shapes == shapes
  assert shapes == models.variables(opened.config, "pretraining")
  for name, value in expected.items():
    assert np.array_equal(opened.weights.read(name), value)


@pytest.mark.parametrize("name", releases.NAMES)
def test_a_release_opens_as_a_folder(name, tmp_path):
  folder = tmp_path / name
  expected = releases.write(folder, name)
  settings = read_settings(model=folder)
  assert settings.do_lower_case is not releases.is_cased(name)
  assert settings.bert_config_file == str(folder / "bert_config.json")
  opened = settings.open_model()
  check_values(opened, expected)
  assert f"_L-{opened.config.num_hidden_layers}_" in name
  assert f"_A-{opened.config.num_attention_heads}" in name
  # The special tokens are not the first ones.
  vocabulary = vocabulary_table.load_vocab(settings.vocab_file)
  assert (vocabulary["[UNK]"], vocabulary["[MASK]"]) == (5, 8)


@pytest.mark.parametrize("version", [1, 2])
@pytest.mark.parametrize("name", LAYOUTS[:2])
def test_both_formats_open_as_a_folder_or_a_prefix(name, version, tmp_path):
  folder = tmp_path / name
  expected = releases.write(folder, name, layers=1, version=version)
  names = {path.name for path in folder.iterdir()}
  assert ("bert_model.ckpt" in names) == (version == 1)
  assert "bert_model.ckpt.meta" in names
  for path in (folder, folder / "bert_model.ckpt"):
    check_values(model_folder.open_model(str(path)), expected)


# What each program does with a release: its flags, without --model.


def train(program):
  """Returns what makes the flags of a short training by its tiny data."""

  def make_flags(folder, release):
    flags = program_flags.read_command(tiny.prepare(program, folder))
    del flags["bert_config_file"]
    flags.pop("vocab_file", None)
    return flags

  return make_flags


def train_tasks(folder, release):
  tasks = tiny.write_tasks(folder)
  del tasks["words"]  # Its records have ids of another vocabulary.
  command = tiny.tasks_command(folder, list(tasks.values()), num_train_epochs=1)
  flags = program_flags.read_command(command)
  del flags["bert_config_file"], flags["vocab_file"]
  return flags


def write_texts(folder):
  path = folder / "texts.txt"
  path.write_text(tiny.make_corpus(20) + "\n")
  return path


def make_records(folder, release):
  return {
    "input_file": write_texts(folder),
    "output_file": folder / "records",
    "max_seq_length": 16,
    "masks": False,
  }


def distil(folder, release):
  """A student learns from the release, by records of its vocabulary."""
  run("create_pretraining_data", folder, release, make_records)
  config = json.loads((release / "bert_config.json").read_text())
  config["intermediate_size"] = 8
  (folder / "student.json").write_text(json.dumps(config))
  return {
    "teacher": release,
    "input_file": folder / "records",
    "bert_config_file": folder / "student.json",
    "vocab_file": release / "vocab.txt",
    "output_dir": folder / "out",
    "max_seq_length": 16,
    "dynamic_masking": True,
    "max_predictions_per_seq": 4,
    "train_batch_size": 8,
    "num_train_steps": 2,
    "do_train": True,
  }


def search(folder, release):
  """A model of vectors is trained from the release first."""
  run("run_embedding", folder, release, train("run_embedding"))
  return {
    "model": folder / "out",
    "input_file": write_texts(folder),
    "index_file": folder / "index.npy",
    "query": "a b c",
  }


def predict(folder, release):
  run("export_saved_model", folder, release, PROGRAMS["export_saved_model"])
  return {"export_dir": folder / "out", "input_file": write_texts(folder)}


PROGRAMS = {
  "create_pretraining_data": make_records,
  "run_pretraining": train("run_pretraining"),
  "run_distillation": distil,
  **{program: train(program) for program in tiny.FINE_TUNERS},
  "run_multitask": train_tasks,
  "extract_features": lambda folder, release: {
    "input_file": write_texts(folder),
    "output_file": folder / "out.jsonl",
    "layers": "-1",
    "max_seq_length": 16,
  },
  "fill_mask": lambda folder, release: {
    "text": "the [MASK] was good",
    "max_seq_length": 16,
  },
  "export_saved_model": lambda folder, release: {
    "export_dir": folder / "out",
    "format": "saved_model",
    "task": "features",
    "max_seq_length": 16,
  },
  "convert_checkpoint": lambda folder, release: {"output": folder / "out"},
  "search": search,
  "predict": predict,
}
WITHOUT_MODEL = ("run_distillation", "search", "predict")


def run(program, folder, release, make_flags):
  flags = make_flags(folder, release)
  if program not in WITHOUT_MODEL:
    flags = {"model": release, **flags}
  return program_flags.succeed(program_flags.command(program, **flags)).stdout


@pytest.mark.slow  # Up to two trainings each: ten seconds.
@pytest.mark.parametrize("number, program", [*enumerate(PROGRAMS)])
def test_every_program_works_with_a_release(number, program, tmp_path):
  name = LAYOUTS[number % len(LAYOUTS)]
  release = tmp_path / name
  releases.write(release, name, layers=1)
  assert run(program, tmp_path, release, PROGRAMS[program])
  if program == "convert_checkpoint":
    found, expected = map(any_model.values, (tmp_path / "out", release))
    assert found.keys() == expected.keys()
    assert all(np.array_equal(found[n], expected[n]) for n in found)
