"""Which rows a longer table of positions begins with: docs/decisions.md.

python benchmarks/positions.py --output_dir=positions

Lengthens the table of a model from 512 to 1,024 rows in three ways:

  repeated      by convert_checkpoint.py --grow_positions=1024
  interpolated  the same, with --new_positions=interpolated
  random        rows 512 to 1,023 are drawn as for a new model

Each is pre-trained by equal updates on the same records of 1,024 tokens, and so
is the model as it was on twice as many of 512. A row has the masked-LM loss on
held-out records, before and after. What is finished is not made again, so a
killed table resumes.
"""

import argparse
import pathlib

import contest
import numpy as np
import transfer

CORPUS = contest.DATA / "corpus" / "corpus_en_gutenberg.txt"
TABLE = "bert/embeddings/position_embeddings"
STARTS = ("repeated", "interpolated", "random")
HEADS = ("start", "tokens of a record", "loss before", "after", "after, 512")
# Sequences of an update, by their length: equal tokens.
ROWS = {512: 8, 1024: 4}
MASKED = {512: 76, 1024: 153}  # 15 %.


def draw_rows(folder: pathlib.Path) -> None:
  """Puts random rows into a table that --grow_positions has lengthened."""
  from bert.weights import checkpoints

  values = dict(checkpoints.read(str(folder / "bert_model.ckpt")))
  old = np.split(values[TABLE], 2)[0]
  drawn = np.random.default_rng(contest.SEED).normal(0, 0.02, old.shape)
  table = np.concatenate([old, drawn]).astype(np.float32)
  checkpoints.write(str(folder), {**values, TABLE: table})


def split_corpus(options: argparse.Namespace) -> None:
  """Writes every tenth document of novels to one file, the others to another.

  A document is a chapter or so: long enough for records of 1,024 tokens.
  """
  documents = CORPUS.read_text("utf-8").split("\n\n")
  for kind in ("train", "eval"):
    path = options.output_dir / f"{kind}.txt"
    is_held_out = kind == "eval"
    part = (d for n, d in enumerate(documents) if (n % 10 == 0) == is_held_out)
    path.write_text("\n\n".join(part) + "\n", "utf-8")
    setattr(options, f"{kind}_file", path)


class Table:
  """The rows of the table, and the folder of what is made for them."""

  def __init__(self, options: argparse.Namespace):
    self.options = options
    self.folder = options.output_dir

  def run(self, path: pathlib.Path, program: str, **flags) -> pathlib.Path:
    """Runs a program that writes to a path, once."""
    done = path.with_name(f"{path.name}.done")
    if not done.exists():
      transfer.run(path.with_name(f"{path.name}.log"), flags, program)
      done.touch()
    return path

  def start(self, name: str) -> pathlib.Path:
    """Returns the folder of a model with 1,024 positions."""
    path = self.folder / f"start-{name}"
    if not path.exists():
      transfer.run(
        self.folder / "start.log",
        {
          "input": self.options.model,
          "output": path,
          "output_format": "google",
          "grow_positions": 1024,
          "new_positions": "repeated" if name == "random" else name,
        },
        "convert_checkpoint.py",
      )
      if name == "random":
        draw_rows(path)
    return path

  def records(self, kind: str, length: int) -> pathlib.Path:
    """Returns records of a text: "train" or "eval"."""
    path = self.folder / f"{kind}-{length}.tfrecord"
    return self.run(
      path,
      "create_pretraining_data.py",
      model=self.start("repeated"),
      input_file=getattr(self.options, f"{kind}_file"),
      output_file=path,
      max_seq_length=length,
      max_predictions_per_seq=MASKED[length],
      masks="false",
      dupe_factor=1,
      next_sentence="false",
    )

  def loss(
    self, model: pathlib.Path, name: str, length: int, steps: int
  ) -> tuple[pathlib.Path, str]:
    """Trains by so many updates; returns the folder, and the loss there."""
    held_out = self.records("eval", length)
    flags = {"input_file": held_out}
    if steps:
      flags = {
        "do_train": "true",
        "input_file": self.records("train", length),
        "eval_input_file": held_out,
        "train_batch_size": ROWS[length],
        "num_train_steps": steps,
        "num_warmup_steps": steps // 10,
        "learning_rate": self.options.learning_rate,
      }
    path = self.folder / name
    self.run(
      path,
      "run_pretraining.py",
      model=model,
      output_dir=path,
      do_eval="true",
      eval_batch_size=ROWS[length],
      max_eval_steps=self.options.eval_steps,
      dynamic_masking="true",
      next_sentence="false",
      max_seq_length=length,
      max_predictions_per_seq=MASKED[length],
      precision="bfloat16",
      report="false",
      **flags,
    )
    return path, f"{transfer.read_score(path, 'masked_lm_loss'):.3f}"

  def row(self, name: str, length: int, model: pathlib.Path) -> list[str]:
    """Returns the cells of a start."""
    _, before = self.loss(model, f"{name}-before", length, 0)
    after, loss = self.loss(model, f"{name}-after", length, self.options.steps)
    _, short = self.loss(after, f"{name}-short", 512, 0)
    return [name, str(length), before, loss, short]


def main() -> None:
  parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
  add = parser.add_argument
  add("--output_dir", type=pathlib.Path, required=True)
  mini = contest.ROOT / "models" / "mini"
  add("--model", type=pathlib.Path, default=mini, help="of 512 positions")
  add("--train_file", type=pathlib.Path, help="default: 9 of 10 documents")
  add("--eval_file", type=pathlib.Path, help="default: the others")
  add("--steps", type=int, default=400)
  add("--eval_steps", type=int, default=30)
  add("--learning_rate", type=float, default=3e-4)
  options = parser.parse_args()
  options.model = options.model.resolve()
  options.tasks = []
  transfer.start_table(options, HEADS, {})
  if not options.train_file:
    split_corpus(options)

  table = Table(options)
  rows = [("unchanged", 512, options.model)]
  rows += [(name, 1024, table.start(name)) for name in STARTS]
  for row in rows:
    print(f"| {' | '.join(table.row(*row))} |", flush=True)


if __name__ == "__main__":
  main()
