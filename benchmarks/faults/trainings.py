"""Tiny trainings, whole and interrupted, and what their folders must hold."""

from collections.abc import Callable
import pathlib
import re
import shutil
from typing import NamedTuple

import processes

import tiny

_DESCRIPTIONS = ("bert_config.json", "settings.json", "training.json")
DATA, INDEX = ".data-00000-of-00001", ".index"


def saved_steps(out: pathlib.Path) -> list[int]:
  """Returns the steps of the checkpoints in a folder, ascending."""
  found = out.glob("model.ckpt-*.index")
  steps = (re.fullmatch(r"model\.ckpt-(\d+)\.index", p.name) for p in found)
  return sorted(int(match[1]) for match in steps if match)


def leftovers(out: pathlib.Path) -> list[str]:
  """Returns what only an interrupted run leaves, in a folder and best/."""
  names = [str(path.relative_to(out)) for path in out.rglob("*")]
  orphans = [
    name
    for name in names
    if name.endswith(DATA) and name.removesuffix(DATA) + INDEX not in names
  ]
  hidden = [name for name in names if re.search(r"\.writing|\.tmp$", name)]
  return hidden + orphans


class Training(NamedTuple):
  """A program with flags, but for its --output_dir."""

  folder: pathlib.Path
  make_command: Callable[[pathlib.Path], list[str]]
  results: tuple[str, ...] = ()  # Files to compare besides checkpoints.

  def start(self, out: pathlib.Path, prepare=lambda: None) -> processes.Child:
    """Starts it; it trains in `out`."""
    log = self.folder / f"{out.name}.log"
    return processes.Child(self.make_command(out), log, prepare)

  def run_whole(self) -> "Whole":
    """Runs it without a fault, as what others are compared with."""
    out = self.folder / "whole"
    child = self.start(out)
    assert child.wait() == 0, child.text()
    return Whole(self, out)


class Whole(NamedTuple):
  """A training that nothing interrupted."""

  training: Training
  out: pathlib.Path

  def copy(self, name: str, last: int) -> pathlib.Path:
    """Copies the run as it was after a step; returns the new folder."""
    out = self.training.folder / name
    shutil.rmtree(out, ignore_errors=True)
    out.mkdir()
    for path in self.out.iterdir():
      match = re.match(r"model\.ckpt-(\d+)\.", path.name)
      is_kept = match and int(match[1]) <= last
      if is_kept or path.name in _DESCRIPTIONS:
        shutil.copy(path, out)
    return out

  def check(self, out: pathlib.Path, steps: list[int]) -> list[str]:
    """Names the checkpoints that differ from those of the whole run."""
    names = [
      f"model.ckpt-{step}{end}" for step in steps for end in (DATA, INDEX)
    ]
    return self._differing(out, names)

  def check_end(self, out: pathlib.Path) -> list[str]:
    """Names all that is not as it is after the whole run."""
    best = [f"best/{path.name}" for path in self.out.glob("best/*")]
    faults = self.check(out, saved_steps(self.out)[-1:])
    faults += self._differing(out, [*self.training.results, *best])
    return faults + [f"{name} was left behind" for name in leftovers(out)]

  def check_results(self, out: pathlib.Path) -> list[str]:
    """Names the results that differ, and what was left behind."""
    faults = self._differing(out, self.training.results)
    return faults + [f"{name} was left behind" for name in leftovers(out)]

  def _differing(self, out, names):
    return [
      f"{name} differs"
      for name in names
      if not (out / name).exists()
      or (out / name).read_bytes() != (self.out / name).read_bytes()
    ]


def pretraining(folder, steps=1500, every=25, config=(), **flags) -> Training:
  """Makes records in a folder and a training on them.

  Args:
    folder: to make.
    steps: how many updates it makes.
    every: the number of steps after which it saves.
    config: fields of the config that differ from the tiny one's.
    **flags: more flags of run_pretraining.py.
  """
  # Three files of 10, 20 and 30 records, the second one compressed.
  folder.mkdir(parents=True)
  for number in range(3):
    numbers = range(20 * number, 20 * number + 10 * (number + 1))
    path = folder / f"{number}.tfrecord"
    tiny.write_records(path, numbers, compress=number == 1)

  # All checkpoints are kept, since each is compared.
  def make_command(out):
    return tiny.command(
      "run_pretraining",
      folder,
      config,
      **{
        "output_dir": out,
        "input_file": f"{folder}/*.tfrecord",
        "do_train": True,
        "num_train_steps": steps,
        "save_checkpoints_steps": every,
        "keep_checkpoint_max": 0,
        "iterations_per_loop": 5,
        "learning_rate": 1e-3,
        **flags,
      },
    )

  return Training(folder, make_command)


def answering(folder) -> tuple[Training, Training]:
  """Makes questions in a folder; a training, and a prediction with it."""
  # 64 questions to train on, and 1,500 to predict: the answers shall be large.
  folder.mkdir(parents=True)
  train = folder / "train.json"
  test = folder / "test.json"
  tiny.write_squad(train, range(64))
  tiny.write_squad(test, range(100, 1600))

  def train_command(out):
    return tiny.command(
      "run_squad", folder, output_dir=out, do_train=True, train_file=train
    )

  def predict_command(out):
    return tiny.command(
      "run_squad", folder, output_dir=out, do_predict=True, predict_file=test
    )

  results = ("predictions.json", "nbest_predictions.json")
  prediction = Training(folder, predict_command, results)
  return Training(folder, train_command), prediction


def fine_tuning(folder) -> Training:
  """Makes sentences in a folder and a training that keeps the best weights."""
  folder.mkdir(parents=True)
  tiny.write_tsv(folder / "train.tsv", range(160))
  tiny.write_tsv(folder / "dev.tsv", range(400, 440))

  def make_command(out):
    return tiny.command(
      "run_classifier",
      folder,
      {"hidden_dropout_prob": 0.1},
      output_dir=out,
      data_dir=folder,
      do_train=True,
      do_eval=True,
      learning_rate=3e-4,
      num_train_epochs=40,
      eval_every_steps=30,
      save_checkpoints_steps=20,
      keep_checkpoint_max=0,
      iterations_per_loop=5,
    )

  results = ("evaluations.jsonl", "eval_results.txt", "labels.txt")
  return Training(folder, make_command, results)


def several_tasks(folder) -> Training:
  """Makes data in a folder and a training on three tasks together."""
  folder.mkdir(parents=True)
  tiny.write_model(folder, program="run_multitask")
  entries = tiny.write_tasks(folder)
  tasks = [entries[name] for name in ("good", "names", "words")]

  def make_command(out):
    return tiny.tasks_command(
      folder,
      tasks,
      out.name,
      num_train_steps=600,
      save_checkpoints_steps=20,
      keep_checkpoint_max=0,
      iterations_per_loop=5,
    )

  return Training(folder, make_command)
