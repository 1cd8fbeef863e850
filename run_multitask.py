"""Trains one BERT on several tasks at once, each with a head of its own.

  python run_multitask.py --tasks_file=tasks.json --do_train=true \\
    --model=google-bert/bert-base-uncased --do_eval=true \\
    --eval_every_epochs=1 --output_dir=/tmp/out
"""

import dataclasses

from bert.cli import program, shared_flags, typed_flags
from bert.data import files, remote

# The groups under which --help lists the flags.
_data = typed_flags.group("Data")
_training = typed_flags.group("Training")


@dataclasses.dataclass(frozen=True, kw_only=True)
class MultitaskSettings(shared_flags.EvaluationSettings):
  """The settings of this program.

  The flags of fine-tuning hold for all tasks together. What only one task needs
  (its files, columns, lengths) stands in --tasks_file.
  """

  tasks_file: str = _data(
    typed_flags.REQUIRED,
    "A JSON list of the tasks. Each is an object with name, kind, the flags of "
    "the kind's own program, and perhaps rate and weight; see "
    "docs/multitask.md.",
    path="file",
  )
  # The length of the training: either this or --num_train_epochs.
  num_train_steps: int | None = _training(
    None,
    "The total number of updates. Default: --num_train_epochs through the "
    "examples of all tasks.",
    least=1,
    most=shared_flags.MOST_STEPS,
  )
  # How often each task is drawn: in proportion to its examples, with a limit
  # and a temperature (Raffel et al., section 3.5.2; see task_sampling.py).
  examples_limit: int = _training(
    2**21,
    "A task with more examples than this is drawn as if it had this many.",
    least=1,
  )
  temperature: float = _training(
    1.0,
    "1 draws tasks in proportion to their examples; larger numbers draw them "
    "more evenly.",
    least=1e-3,
  )
  schedule: str = _training(
    "constant",
    "constant: tasks are drawn with the same probabilities to the end. "
    "annealed: the probabilities become more even during training.",
    choices=("constant", "annealed"),
  )

  def check(self) -> None:
    """Refuses two lengths of the training, too, and a list of no tasks."""
    super().check()

    # --num_train_epochs has a default, so its value does not tell whether the
    # user passed it.
    if self.num_train_steps and "num_train_epochs" in self.given:
      raise ValueError(
        "--num_train_steps and --num_train_epochs: pass only one"
      )

    # A remote file needs TensorFlow, which is not imported yet: `main` reads
    # it, and there `task_files.read` checks every entry.
    if not remote.is_remote(self.tasks_file):
      files.read_json(self.tasks_file, list)

  def check_split(self, replicas: int = 1) -> None:
    """Leaves it to the tasks, whose batches have sizes of their own."""


# The flags are parsed here, above the other imports: they load TensorFlow,
# which takes seconds, and --help and wrong flags do not wait for it.
if __name__ == "__main__":
  program.start(MultitaskSettings)

import contextlib
import time

from bert import calls
from bert.cli import devices, fine_tuning, model_folder, output_folder
from bert.contrib import multitask_training, task_files


def main() -> None:
  """Trains the tasks of --tasks_file together, then finishes one by one."""
  start = time.monotonic()
  settings = fine_tuning.read_settings(MultitaskSettings)

  # `entries` are the JSON objects of the file, checked; `tasks` have the flags
  # of their own programs, checked, too. Nothing is written before that.
  entries = task_files.read(settings.tasks_file)
  tasks = task_files.prepare(settings, entries)

  # The strategy comes before the first tensor and the first model.
  strategy = devices.make_strategy(settings)
  for task in tasks.values():
    task.settings.check_split(strategy.num_replicas_in_sync)
  config = model_folder.read_config(settings)

  # The output folder is claimed once, and in it each task has a run of its own,
  # a folder below tasks/. A training makes their models share one encoder.
  with contextlib.ExitStack() as stack:
    stack.enter_context(output_folder.claim(settings, config, strategy))
    runs = {
      name: stack.enter_context(task.open(strategy))
      for name, task in tasks.items()
    }

    best = ""
    if settings.do_train:
      best = multitask_training.train(settings, strategy, entries, tasks, runs)

    # Each task evaluates and predicts as its own program does, and writes the
    # results to its folder.
    for name, task in tasks.items():
      task.finish(runs[name])

  # The page of the whole run links to the reports of the tasks. Only the chief,
  # the worker that saves checkpoints, writes it.
  if settings.report and strategy.extended.should_checkpoint:
    score_texts = {name: run.score_text for name, run in runs.items()}
    multitask_training.write_report(settings, start, score_texts, best)


# The same from Python, see docs/python.md.
run = calls.make_run(main, MultitaskSettings)


if __name__ == "__main__":
  program.run_program(main)
