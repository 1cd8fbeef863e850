"""Runs a training until its first update, and writes when each phase ended.

python benchmarks/first_update.py phases.json run_classifier.py \
  --task_name=mrpc --data_dir=glue/MRPC --model=minilm --do_train=true \
  --output_dir=mrpc
python benchmarks/first_update.py phases.json "Hugging Face" \
  --data_dir=glue/MRPC --model=minilm --precision=float32 \
  --train_batch_size=32 --max_seq_length=64

`start.py` starts both, each as a new process. The program is as it is: the
functions at which a phase ends are replaced by others, which call them and note
the time. The second command does what Hugging Face's run_glue.py does, in a
plain loop, because their Trainer needs further packages. The file gets the time
of the clock at the end of each phase, and the processor's seconds until then.
The process ends with the first update, and saves nothing.
"""

# All else is imported in the phase that needs it.
from collections.abc import Callable
import json
import os
import pathlib
import runpy
import sys
import time
from typing import Any

ROOT = pathlib.Path(__file__).resolve().parent.parent
PEER = "Hugging Face"
# In their order. The peer loads its weights where it makes the model.
PHASES = (
  "Python and flags",
  "imports",
  "data and features",
  "model",
  "weights",
  "optimizer and batches",
  "tracing",
  "compiling, first update",
)
FLAGS, IMPORTS, DATA, MODEL, WEIGHTS, BATCHES, TRACING, UPDATE = PHASES


class Phases:
  """Notes when phases end, and ends the process with the last one."""

  def __init__(self, path: str):
    """Takes the file to write."""
    self._path = pathlib.Path(path)
    self._ends: dict[str, tuple[float, float]] = {}

  def end(self, name: str) -> None:
    """Notes the end of a phase; of several ends, the last one counts."""
    # Threads count, too, and the processes that were started and ended.
    self._ends[name] = time.time(), sum(os.times()[:4])
    if name == UPDATE:
      self._path.write_text(json.dumps(self._ends))
      os._exit(0)

  def watch(
    self, place: Any, name: str, before: str = "", after: str = ""
  ) -> None:
    """Makes a function end phases.

    Args:
      place: the module or class that has the function.
      name: of the function.
      before: the phase that ends when it is called; "" for none.
      after: the phase that ends when it returns; "" for none.
    """
    function = getattr(place, name)

    def call(*args, **kwargs):
      if before:
        self.end(before)
      value = function(*args, **kwargs)
      if after:
        self.end(after)
      return value

    setattr(place, name, call)

  def watch_made(self, place: Any, name: str, phase: str) -> None:
    """Makes the function that a function makes end a phase."""
    make = getattr(place, name)

    def make_watched(*args) -> Callable:
      made = make(*args)

      def call(*arguments):
        value = made(*arguments)
        self.end(phase)
        return value

      return call

    setattr(place, name, make_watched)


def run_ours(phases: Phases, program: str) -> None:
  """Runs a program of this project."""
  sys.path.insert(0, str(ROOT))
  from bert.data import imports

  import_tensorflow = imports.import_tensorflow

  def import_and_watch(*args):
    phases.end(FLAGS)
    import_tensorflow(*args)
    # The program imports these next.
    from bert.cli import fine_tuning
    from bert.training import loop, step

    phases.watch(fine_tuning, "read_settings", before=IMPORTS)
    phases.watch(fine_tuning.Run, "make_model", before=DATA, after=WEIGHTS)
    phases.watch(fine_tuning.Run, "use_model", after=MODEL)
    # TensorFlow calls the replica's step when it records the graph of the loop.
    phases.watch(loop, "_make_train_steps", before=BATCHES)
    phases.watch_made(step, "make_replica_step", TRACING)
    phases.watch_made(loop, "_make_train_steps", UPDATE)

  imports.import_tensorflow = import_and_watch
  runpy.run_path(str(ROOT / program), run_name="__main__")


def run_peer(phases: Phases) -> None:
  """Makes the first update of Hugging Face's run_glue.py on MRPC."""
  import argparse
  import csv

  parser = argparse.ArgumentParser()
  for name in ("data_dir", "model", "precision"):
    parser.add_argument(f"--{name}")
  for name in ("train_batch_size", "max_seq_length"):
    parser.add_argument(f"--{name}", type=int)
  flags = parser.parse_args()
  phases.end(FLAGS)

  import torch
  import transformers

  # transformers imports the classes when they are first asked for.
  optimizer_class = torch.optim.AdamW
  model_class = transformers.AutoModelForSequenceClassification
  tokenizer_class = transformers.AutoTokenizer
  schedule_of = transformers.get_linear_schedule_with_warmup
  phases.end(IMPORTS)

  # As there, all texts are tokenized first. Batches are padded to their longest
  # text, which is its faster way.
  tokenizer = tokenizer_class.from_pretrained(flags.model)
  path = pathlib.Path(flags.data_dir, "train.tsv")
  lines = path.read_text(encoding="utf-8-sig").splitlines()
  rows = list(csv.reader(lines, delimiter="\t", quoting=csv.QUOTE_NONE))[1:]
  features = tokenizer(
    [row[3] for row in rows],
    [row[4] for row in rows],
    truncation=True,
    max_length=flags.max_seq_length,
  )
  phases.end(DATA)

  torch.manual_seed(1)
  model = model_class.from_pretrained(flags.model, num_labels=2).train()
  phases.end(WEIGHTS)

  optimizer = optimizer_class(model.parameters(), 2e-5, fused=True)
  schedule = schedule_of(optimizer, 0, 345)
  chosen = torch.randperm(len(rows))[: flags.train_batch_size].tolist()
  batch = tokenizer.pad(
    {name: [values[i] for i in chosen] for name, values in features.items()},
    return_tensors="pt",
  )
  labels = torch.tensor([int(rows[i][0]) for i in chosen])
  phases.end(BATCHES)

  mixed = flags.precision == "bfloat16"
  with torch.autocast("cpu", torch.bfloat16, enabled=mixed):
    loss = model(**batch, labels=labels).loss
  loss.backward()
  torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
  optimizer.step()
  schedule.step()
  loss.item()
  phases.end(UPDATE)


def main() -> None:
  phases = Phases(sys.argv[1])
  program = sys.argv[2]
  # The program finds its own name and flags, as from its command line.
  sys.argv = sys.argv[2:]
  if program == PEER:
    run_peer(phases)
  else:
    run_ours(phases, program)


if __name__ == "__main__":
  main()
