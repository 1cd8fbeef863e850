"""What continued pre-training and new tokens gain in a field: docs/domain.md.

git clone https://github.com/cambridgeltl/MTL-Bioinformatics-2016
python benchmarks/domain.py --data=MTL-Bioinformatics-2016 \
  --output_dir=domain --models mini=models/mini --rates 3e-4

The corpus is the sentences of all training parts, without tags and without
those of the development and test part of NCBI-disease, whose names of diseases
are the task. A model is fine-tuned from each start of --starts:

  none       as it is
  continued  after --steps of pre-training on the corpus
  extended   the same, with new tokens whose rows were the mean of their pieces
  random     the same, with new tokens whose rows were random

A pre-training has one seed; a fine-tuning is made with each seed of --seeds.
The epoch that is best on the development part counts, and its weights are
scored on the test part. A row is printed as soon as it is complete: the tokens
of the test part, the masked-LM loss on its text after the pre-training (not to
be compared between vocabularies), both F1 (mean and standard deviation over the
seeds), and minutes of pre-training and of one fine-tuning. What is finished is
not made again, so a killed table resumes. Without a number behind --seeds,
nothing is fine-tuned.
"""

import argparse
from collections.abc import Iterable, Iterator
import functools
import pathlib
import statistics
import subprocess
import sys
import time
from typing import Any, NamedTuple

import contest
import transfer

from bert import tokenization

TASK = "NCBI-disease-IOB"
# Sets of which the same sentences come with several kinds of tags are read
# once: their other folders end in -IOBES, or have nothing that is new.
FOLDERS = "*-IOB/train.tsv", "GENIA-pos/train.tsv"
# Each document has so many: the files do not say where it ends.
SENTENCES = 10
# The text of the test part is masked five times: 1,655 records, or fewer.
COPIES, EVALUATION_STEPS = 5, 52
STARTS = ("none", "continued", "extended", "random")
HEADS = ("model", "start", "tokens", "masked-LM loss", "F1, dev", "F1, test")
HEADS += ("minutes, pre-training", "minutes, fine-tuning")


class Files(NamedTuple):
  """The files of the data by their paths, in a folder or a bare repository."""

  folder: pathlib.Path

  def git(self, *arguments: str) -> str:
    command = ["git", "-C", self.folder, *arguments]
    return subprocess.check_output(command, text=True)

  def sentences(self, path: str) -> Iterator[list[str]]:
    """Yields the rows of each sentence of a file, "word<tab>tag"."""
    for block in self.git("show", f"HEAD:data/{path}").split("\n\n"):
      if rows := [row for row in block.split("\n") if row.strip()]:
        yield rows

  def training_parts(self) -> list[str]:
    listing = self.git("ls-tree", "-r", "--name-only", "HEAD:data")
    paths = map(pathlib.PurePath, listing.splitlines())
    return [str(p) for p in paths if any(map(p.match, FOLDERS))]


def words_of(rows: Iterable[str]) -> str:
  return " ".join(row.split("\t")[0] for row in rows)


def write_data(files: Files, folder: pathlib.Path) -> None:
  """Writes train.txt, dev.txt and test.txt of the task, and corpus.txt."""
  held_out = set()
  for name, part in (("train", "train"), ("dev", "devel"), ("test", "test")):
    sentences = list(files.sentences(f"{TASK}/{part}.tsv"))
    text = "\n\n".join("\n".join(rows) for rows in sentences)
    (folder / f"{name}.txt").write_text(text + "\n", "utf-8")
    if name != "train":
      held_out |= set(map(words_of, sentences))
    if name == "test":
      text = documents_of(map(words_of, sentences))
      (folder / "test_text.txt").write_text(text + "\n", "utf-8")

  # A dict keeps the order; each sentence is taken once.
  seen = dict.fromkeys(held_out)
  parts = []
  for path in files.training_parts():
    new = dict.fromkeys(map(words_of, files.sentences(path)))
    parts.append(documents_of(s for s in new if s not in seen))
    seen |= new
  corpus = "\n\n".join(filter(None, parts))
  (folder / "corpus.txt").write_text(corpus + "\n", "utf-8")
  print(f"corpus: {len(seen) - len(held_out):,} sentences", file=sys.stderr)


def documents_of(sentences: Iterable[str]) -> str:
  """Returns sentences, a line each, with a blank line after some of them."""
  lines = list(sentences)
  starts = range(0, len(lines), SENTENCES)
  return "\n\n".join("\n".join(lines[n : n + SENTENCES]) for n in starts)


class Model(NamedTuple):
  """A model, and what is made of it in a folder."""

  name: str
  path: pathlib.Path
  rate: float  # The learning rate, in both trainings.
  options: argparse.Namespace

  @property
  def out(self) -> pathlib.Path:
    return self.options.output_dir

  def make(self, name: str, program: str, **flags: Any) -> pathlib.Path:
    """Runs a program that writes a file or a folder, once; returns its path."""
    path = self.out / f"{self.name}-{name}"
    done = path.with_name(f"{path.name}.seconds")
    if not done.exists():
      print(f"{path.name} ...", file=sys.stderr, flush=True)
      start = time.monotonic()
      flag = {
        "convert_checkpoint.py": "output",
        "run_pretraining.py": "output_dir",
      }
      flags[flag.get(program, "output_file")] = path
      transfer.run(path.with_name(f"{path.name}.log"), flags, program)
      done.write_text(f"{time.monotonic() - start:.1f}\n")
    return path

  def start(self, name: str) -> tuple[pathlib.Path, pathlib.Path]:
    """Returns the model before and after its pre-training."""
    corpus = self.out / "corpus.txt"
    before = self.path
    if name in ("random", "extended"):
      vocab = self.make(
        "vocab.txt",
        "create_vocab.py",
        extend=self.path / "vocab.txt",
        input_file=corpus,
        added_tokens=self.options.added_tokens,
      )
      before = self.make(
        f"{name}-start",
        "convert_checkpoint.py",
        input=self.path,
        add_tokens=vocab,
        new_rows="mean" if name == "extended" else name,
        output_format="google",
      )
    if name == "none":
      return before, before

    # Both ways to make new rows have the same records.
    kind = "old" if name == "continued" else "new"
    make_records = functools.partial(
      self.make,
      program="create_pretraining_data.py",
      model=before,
      next_sentence="false",
      max_seq_length=128,
    )
    records = make_records(
      f"{kind}.tfrecord",
      input_file=corpus,
      masks="false",
      documents_per_block=1000,
    )
    test_records = make_records(
      f"{kind}-test.tfrecord",
      input_file=self.out / "test_text.txt",
      masks="false",
      dupe_factor=COPIES,
    )
    after = self.make(
      name,
      "run_pretraining.py",
      input_file=records,
      model=before,
      eval_input_file=test_records,
      do_train="true",
      do_eval="true",
      eval_batch_size=32,
      max_eval_steps=EVALUATION_STEPS,
      dynamic_masking="true",
      next_sentence="false",
      max_seq_length=128,
      train_batch_size=32,
      learning_rate=self.rate,
      num_train_steps=self.options.steps,
      num_warmup_steps=self.options.steps // 10,
      precision=self.options.precision,
      keep_checkpoint_max=1,
      report="false",
    )
    return before, after


def count_tokens(model: pathlib.Path, text: pathlib.Path) -> int:
  """Returns how many tokens the words of a task's file are."""
  vocab_file = str(model / "vocab.txt")
  tokenizer = tokenization.FullTokenizer(vocab_file, do_lower_case=True)
  rows = filter(str.strip, text.read_text("utf-8").split("\n"))
  return sum(len(tokenizer.encode(row.split("\t")[0])) for row in rows)


def make_row(model: Model, name: str) -> list[str]:
  """Trains from a start; returns the cells of its row."""
  options = model.options
  before, after = model.start(name)
  loss = ""
  if name != "none":
    loss = f"{transfer.read_score(after, 'masked_lm_loss'):.3f}"
  done = model.out / f"{after.name}.seconds"
  seconds = float(done.read_text()) if name != "none" else 0

  # The development set chooses the epoch, the test set is scored once.
  files = {part: model.out / f"{part}.txt" for part in ("train", "dev", "test")}
  task = transfer.Task(
    {"train_file": files["train"], "eval_file": files["dev"]},
    "f1",
    "run_tagging.py",
    {"eval_file": files["test"]},
  )
  arm = transfer.Arm(
    task, f"{model.name}-{name}-tagger", {"model": after}, options
  )
  dev, test, minutes = [], [], []
  for seed in options.seeds:
    started = time.monotonic()
    dev.append(max(arm.train(model.rate, seed)))
    minutes.append((time.monotonic() - started) / 60)
    test.append(arm.test(model.rate, seed))
  return [
    *(model.name, name, f"{count_tokens(before, files['test']):,}", loss),
    *(transfer.percent(dev), transfer.percent(test)),
    *(f"{seconds / 60:.1f}", f"{statistics.median(minutes or [0]):.1f}"),
  ]


def main() -> None:
  parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
  add = parser.add_argument
  add("--data", type=pathlib.Path, required=True, help="the repository")
  add("--output_dir", type=pathlib.Path, required=True)
  add("--models", nargs="+", required=True, metavar="NAME=FOLDER")
  add("--rates", nargs="+", type=float, required=True, help="of the models")
  add("--starts", nargs="+", choices=STARTS, default=STARTS)
  add("--seeds", nargs="*", type=int, default=[1, 2, 3])
  add("--added_tokens", type=int, default=2000)
  add("--steps", type=int, default=2000, help="of pre-training")
  add("--epochs", type=int, default=4, help="of fine-tuning")
  add("--precision", choices=contest.PRECISIONS, default="bfloat16")
  add("--max_train_examples", type=int, help="of fine-tuning; default: all")
  options = parser.parse_args()

  # What `transfer.Arm` reads, too.
  options.bias_correction, options.max_seq_length = "true", 128
  options.tasks = []
  transfer.start_table(options, HEADS, {})
  if not (options.output_dir / "corpus.txt").exists():
    write_data(Files(options.data), options.output_dir)

  for named, rate in zip(options.models, options.rates, strict=True):
    name, _, path = named.partition("=")
    model = Model(name, pathlib.Path(path).resolve(), rate, options)
    for start in options.starts:
      print(f"| {' | '.join(make_row(model, start))} |", flush=True)


if __name__ == "__main__":
  main()
