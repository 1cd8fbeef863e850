"""Runs of the programs that train, and what a kill leaves of them."""

import json
import pathlib
import re
import shutil
from typing import NamedTuple

from bert.weights import checkpoints
import paths
import program_flags


class Run(NamedTuple):
  """A finished run of a program."""

  program: str
  command: list[str]
  out: pathlib.Path
  output: str  # On standard error, then on standard output.

  @property
  def folder(self):
    """Where its data are; `out` is in there."""
    return self.out.parent

  def again(self, run=program_flags.succeed, **flags):
    """Runs the command with other flags."""
    return run([*self.command, *program_flags.arguments(flags)])


def train(command):
  """Runs a command of `tiny.command` with success; returns the run."""
  out = pathlib.Path(program_flags.read_command(command)["output_dir"])
  result = program_flags.succeed(command)
  output = result.stderr + result.stdout
  return Run(pathlib.Path(command[1]).stem, command, out, output)


def kill(run, folder, step=None):
  """Copies a run's folder as it is when a kill follows a checkpoint.

  Args:
    run: a finished one.
    folder: the copy.
    step: of the checkpoint, by default the last but one; 0 for none.

  Returns:
    The step.
  """
  shutil.copytree(run.out, folder)
  *_, earlier, last = checkpoints.saved_steps(str(run.out))
  step = earlier if step is None else step
  for path in [path for path in folder.rglob("*") if path.is_file()]:
    saved = re.match(r"model\.ckpt-(\d+)\.", path.name)
    is_later = saved and int(saved[1]) > step
    if is_later or re.search("eval_results|predict", path.name):
      path.unlink()
  scores = folder / "evaluations.jsonl"
  if scores.exists():
    lines = scores.read_text().splitlines(keepends=True)
    scores.unlink()
    if kept := [x for x in lines if json.loads(x)["step"] <= step]:
      scores.write_text("".join(kept))
  # Half a checkpoint may be there, or data without an index; these alone are
  # refused, since an index may have been lost.
  half = folder / f"model.ckpt-{last}.writing.index.tempstate1"
  half.write_bytes(b"half")
  if step:
    data = folder / f"model.ckpt-{step + 1}.data-00000-of-00001"
    data.write_bytes(b"whole")
  return step


def assert_resumes(run, folder, step=None, lacking=None):
  """Kills a run, which then ends with the same bytes.

  Args:
    run: see `kill`.
    folder: see `kill`.
    step: see `kill`.
    lacking: a folder in the copy that is not there yet, or None.

  Returns:
    The result of the resumed run.
  """
  step = kill(run, folder, step)
  if lacking:
    shutil.rmtree(folder / lacking)
  result = run.again(output_dir=folder)
  assert not step or f"resuming at step {step} of " in result.stdout
  paths.assert_same(folder, run.out)
  return result
