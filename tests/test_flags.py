"""Every flag of every program has an effect, or is refused."""

import os
import shutil
import sys
from unittest import mock

import pytest
from waitress import server as waitress_server

from bert.cli import typed_flags
import program_flags
import tiny
import tiny_models
import unmasked_records

# Functions that read all flags, to record, compare or copy them.
BOOKKEEPING = {"flag_values", "check_needs", "_has", "replace", "describe_run"}
# Flags that a run on this machine cannot use, and why they are not refused.
ACCEPTED = {
  "num_tpu_cores",  # Commands of the original have it; --help says: ignored.
  "use_one_hot_embeddings",  # The same.
  "deterministic",  # Has an effect on GPUs, where the command is the same.
}
RUNS = [
  *[(name, {}) for name in tiny.TRAINERS],
  *[
    ("run_embedding", {"objective": name})
    for name in ("scores", "sentences", "labels")
  ],
  ("run_multitask", {}),
  ("run_distillation", {}),
]


def prepare(name, folder, flags):
  """Returns the tiny command of a program, for an objective if it has some."""
  if name == "run_multitask":
    tiny.write_model(folder, program=name)
    tasks = list(tiny.write_tasks(folder).values())
    return tiny.tasks_command(folder, tasks, num_train_epochs=1, do_eval=True)
  if name == "run_distillation":
    flags = unmasked_records.make_flags(folder) | flags
    flags["teacher"] = unmasked_records.write_teacher(folder / "teacher")
    return unmasked_records.command(folder, name, **flags)
  objective, config = flags.get("objective", "pairs"), ()
  if objective == "sentences":
    config = {"hidden_dropout_prob": 0.1}
  command = tiny.prepare(name, folder, config)
  if objective == "labels":
    flags = {**flags, "do_predict": False}
  for split, numbers in tiny.SPLITS.items() if objective != "pairs" else ():
    path = folder / f"{split}.tsv"
    if objective == "labels":
      tiny.write_tsv(path, numbers)
    elif objective == "sentences" and split == "train":
      texts = [tiny.make_text(n, tiny.GOOD) for n in numbers]
      path.write_text("\n".join(texts) + "\n")
    else:
      tiny.write_partners(path, numbers, third=lambda n: str(n % 5))
  return [*command, *program_flags.arguments(flags)]


def run_and_record(command):
  """Runs a command; returns the result, and names of settings it read."""
  names = set()

  def read(self, name):
    frame = sys._getframe(1)
    while "deciding" in frame.f_code.co_qualname and frame.f_back:
      frame = frame.f_back  # It reads flags for its caller.
    caller = frame.f_code.co_qualname
    if BOOKKEEPING.isdisjoint(caller.split(".")) and caller != "Settings.check":
      names.add(name)
    return object.__getattribute__(self, name)

  with mock.patch.object(typed_flags.Settings, "__getattribute__", read):
    result = program_flags.run_here(command)
  return result, names


def another_value(flag):
  """Returns a value, as text, that is not the default of a flag of absl."""
  if flag.flag_type() == "bool":
    return str(not flag.default).lower()
  if flag.flag_type() == "float":
    return str(flag.default / 2 if flag.default else 0.5)
  if flag.flag_type() == "int":
    return str((flag.default or 0) + 1)
  choices = getattr(flag.parser, "enum_values", None) or ["x", "y"]
  return next(value for value in choices if value != flag.default)


def find_ignored(name, command):
  """Lists flags that a command does not read, nor refuse when given."""
  result, read = run_and_record(command)
  assert result.returncode == 0, result.stderr
  declared = program_flags.declared_flags(f"{name}.py")
  ours = {f for f, flag in declared.items() if not flag.help.startswith("absl")}
  known = {argument[2:].partition("=")[0] for argument in command[2:]}
  absl = set(program_flags.flags.FLAGS) | {"help", "helpfull", "helpshort"}
  ignored = [f"--{flag}" for flag in sorted(known - read)]
  for flag in sorted(ours - absl - read - known - ACCEPTED):
    given = f"--{flag}={another_value(declared[flag])}"
    remove_outputs()
    result, read = run_and_record([*command, given])
    is_refused = result.returncode == 1 and f"--{flag}" in result.stderr
    if not is_refused and flag not in read:
      ignored.append(f"{given}: {result.stderr}")
  return ignored


@pytest.mark.slow
@pytest.mark.parametrize(("name", "flags"), RUNS)
def test_a_flag_is_read_or_refused(name, flags, tmp_path, monkeypatch):
  monkeypatch.chdir(tmp_path)
  command = prepare(name, tmp_path, flags)
  ignored = find_ignored(name, command)
  assert not ignored, "\n".join(ignored)


_MODEL = {
  "bert_config_file": "config.json",
  "vocab_file": "vocab.txt",
  "init_checkpoint": ".",
  "max_seq_length": tiny.SEQUENCE,
}
_TEXTS = {"input_file": "texts.txt", "output_file": "new"}
_RECORDS = {**_TEXTS, "vocab_file": "vocab.txt", "max_seq_length": 16}
_BLOCKS = {"documents_per_block": 2}
_SHARDS = {"num_shards": 2, "shard_index": 0}
_SEARCH = {"model": "vectors", "input_file": "texts.txt", "index_file": "new"}
_EXPORT = {"model_dir": "single_label", "export_dir": "new"}
_INT8 = {"format": "onnx", "quantize": "int8", "max_changed": 1}
_INT8["eval_file"] = "dev.tsv"
_COLUMNS = {"text_column": "text", "text_pair_column": "text_b"}
_PREDICT = {"export_dir": "export", "output_file": "new"}
# Commands of the other programs, by which each flag of a program is read; "new"
# is removed before each of them.
OTHERS = [
  ("create_vocab", {**_TEXTS, "vocab_size": 60}),
  ("create_vocab", {**_TEXTS, "output_file": "new.model", "model": "bpe"}),
  ("create_vocab", {**_TEXTS, "output_file": "new.words", "model": "words"}),
  ("create_pretraining_data", _RECORDS),
  ("create_pretraining_data", {**_RECORDS, **_BLOCKS, **_SHARDS}),
  ("create_pretraining_data", {**_RECORDS, "masks": False}),
  ("create_pretraining_data", {**_RECORDS, "next_sentence": False}),
  ("create_pretraining_data_beam", {**_RECORDS, **_BLOCKS}),
  ("extract_features", {**_MODEL, **_TEXTS, "layers": -1}),
  ("extract_features", {**_MODEL, **_TEXTS, "pooling": "mean", "layers": -1}),
  ("fill_mask", {**_MODEL, "text": "the [MASK]"}),
  ("fill_mask", {**_MODEL, **_TEXTS, "score": True}),
  ("search", _SEARCH),
  ("search", {**_SEARCH, "query": "good"}),
  (
    "search",
    {
      **_SEARCH,
      "query": "good",
      "rerank": "single_label",
      "rerank_label": "pos",
    },
  ),
  ("convert_checkpoint", {"input": "single_label", "output": "new"}),
  (
    "convert_checkpoint",
    {"model": "single_label", "output": "new", "resize_vocab": 50},
  ),
  ("export_saved_model", _EXPORT),
  ("export_saved_model", {**_EXPORT, "format": "litert"}),
  ("export_saved_model", {**_EXPORT, **_INT8, **_COLUMNS}),
  (
    "export_saved_model",
    {**_MODEL, "export_dir": "new", "task": "features"},
  ),
  (
    "export_saved_model",
    {**_MODEL, "export_dir": "new", "format": "onnx", "task": "fill_mask"},
  ),
  ("export_saved_model", {**_EXPORT, "model_dir": "tagging"}),
  ("export_saved_model", {**_EXPORT, "model_dir": "question_answering"}),
  ("predict", {**_PREDICT, "text": "good"}),
  ("predict", {**_PREDICT, "input_file": "texts.txt"}),
  ("predict", {**_PREDICT, "input_file": "dev.tsv", **_COLUMNS}),
  ("predict", {"export_dir": "export", "serve": True, "port": 0}),
]


@pytest.fixture(scope="module", name="folder")
def write_inputs(tmp_path_factory):
  """Writes what the commands of OTHERS read; returns the folder."""
  folder = tmp_path_factory.mktemp("inputs")
  tiny_models.write_masked_lm(folder)
  tiny.write_pairs(folder / "dev.tsv", range(60))
  texts = [[tiny.make_text(n, tiny.GOOD) for n in range(5)]] * 4
  (folder / "texts.txt").write_text("\n\n".join(map("\n".join, texts)))
  for case in ("single_label", "tagging", "question_answering"):
    (folder / case).mkdir()
    tiny_models.write_case(folder / case, case)
  tiny_models.export_onnx(folder / "single_label", "../export")
  flags = {"model_dir": "", "task": "features", "max_seq_length": 16}
  flags |= {"bert_config_file": folder / "config.json"}
  tiny_models.export_onnx(folder, "vectors", init_checkpoint=folder, **flags)
  return folder


def remove_outputs():
  """Removes what a command wrote, which some refuse to replace."""
  for name in filter(lambda name: name.startswith("new"), os.listdir()):
    shutil.rmtree(name) if os.path.isdir(name) else os.remove(name)


@pytest.mark.slow
@pytest.mark.parametrize(("name", "flags"), OTHERS)
def test_a_flag_of_other_programs_is_read_or_refused(
  name, flags, folder, monkeypatch
):
  monkeypatch.chdir(folder)
  monkeypatch.setattr(
    waitress_server.BaseWSGIServer, "run", lambda server: None
  )
  remove_outputs()
  ignored = find_ignored(name, program_flags.command(name, **flags))
  assert not ignored, "\n".join(ignored)
