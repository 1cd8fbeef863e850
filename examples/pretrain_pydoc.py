"""Pre-trains a tiny BERT on the manual that every Python carries.

  python examples/pretrain_pydoc.py --output_dir=demo_output

prints and runs the commands of a pre-training, then of a classifier whose
export a web page can ask. At the end it shows how well masked words of other
text are guessed before and after. It takes two to five minutes on two cores.
"""

import argparse
import dataclasses
import functools
import os
import pathlib
import pydoc_data.topics
import re
import shlex
import shutil
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))


def end_in_a_line(error_class, error, trace) -> None:
  """Describes Ctrl-C in a line; other exceptions as usual."""
  if error_class is KeyboardInterrupt:
    print("interrupted: the same command resumes it", file=sys.stderr)
  else:
    sys.__excepthook__(error_class, error, trace)


if __name__ == "__main__":
  sys.excepthook = end_in_a_line  # The imports take seconds already.

from bert.data import imports

imports.import_tensorflow()  # Without what it logs of CUDA.

from bert import tokenization
from bert.inputs import records
from bert.training import loss_watch
from bert.weights import checkpoints

VOCAB_SIZE = 4000
LENGTHS = {"max_seq_length": 32, "max_predictions_per_seq": 5}
# What the classifier tells apart: parts of the manual, by their topics.
PARTS = {
  "classes": ("specialnames", "attribute-access", "customization", "class"),
  "containers": ("typesseq", "typesmapping", "sequence-types"),
  "debugger": ("debugger",),
  "statements": ("compound", "assignment", "import", "raise"),
  "strings": ("string-methods", "formatstrings", "strings"),
}


def read_topics() -> dict[str, list[str]]:
  """Returns the sentences of the topics; each sentence only once.

  Topics quote each other: no evaluation sentence may be trained on.
  """
  topics = {}
  seen = set()
  for name, text in sorted(pydoc_data.topics.topics.items()):
    sentences = []
    for paragraph in re.split(r"\n\s*\n", text):
      prose = " ".join(paragraph.split())
      if is_prose(prose):  # Leaves out grammar rules and code examples.
        sentences += re.split(r"(?<=[.!?:]) +(?=[A-Z\"(])", prose)

    topics[name] = [s for s in dict.fromkeys(sentences) if s not in seen]
    seen.update(sentences)
  return topics


def write_corpus(train_path: pathlib.Path, eval_path: pathlib.Path) -> None:
  """Writes the topics, one sentence per line; a tenth is for evaluation."""
  # The last tenth of each topic is held out. A blank line ends a topic: it is
  # one document for pre-training.
  train = evaluation = ""
  for sentences in read_topics().values():
    cut = len(sentences) - len(sentences) // 10
    train += "\n".join(sentences[:cut] + ["\n"])
    evaluation += "\n".join(sentences[cut:] + ["\n"])
  train_path.write_text(train, encoding="utf-8")
  eval_path.write_text(evaluation, encoding="utf-8")


def read_parts() -> list[tuple[str, str]]:
  """Returns sentences, each after the name of its part."""
  topics = read_topics()
  return [
    (part, sentence)
    for part, names in PARTS.items()
    for name in names
    for sentence in topics.get(name, ())
  ]


def write_labelled(path: pathlib.Path, rows: list[tuple[str, str]]) -> None:
  """Writes labels and texts as a table for run_classifier.py."""
  lines = ["\t".join(row) + "\n" for row in [("label", "text")] + rows]
  path.write_text("".join(lines), encoding="utf-8")


def is_prose(text: str) -> bool:
  """Returns whether most characters are letters or spaces, unlike in code."""
  letters = sum(c.isalpha() or c == " " for c in text)
  return len(text) >= 40 and letters >= 0.75 * len(text)


def run(program: str, **flags) -> None:
  """Prints a command as one would type it, then runs it.

  Ctrl-C ends the program, too, which may have a checkpoint to save: this waits
  for it. A program that fails, or is interrupted, has said so in a line.
  """
  arguments = [f"--{name}={value}" for name, value in flags.items()]
  print("\n$ " + shlex.join(["python", program] + arguments), flush=True)

  # The terminal sends Ctrl-C to both processes. The program ends by it; this
  # one must wait until it has.
  command = [sys.executable, str(ROOT / program)] + arguments
  interrupt = None
  with subprocess.Popen(command) as process:
    while process.returncode is None:
      try:
        process.wait()
      except KeyboardInterrupt as error:
        interrupt = error

  # 130 is a shell's status for a command that Ctrl-C ended.
  if process.returncode:
    sys.exit(130 if interrupt else process.returncode)
  if interrupt:
    raise interrupt


def make_records(folder, name, **flags):
  run(
    "create_pretraining_data.py",
    input_file=folder / f"{name}.txt",
    output_file=folder / f"{name}.tfrecord",
    vocab_file=folder / "vocab.txt",
    **LENGTHS,
    **flags,
  )


def pretrain(folder, output_dir, **flags):
  """Runs run_pretraining.py; returns accuracy and loss on other records."""
  run(
    "run_pretraining.py",
    bert_config_file=folder / "bert_config.json",
    vocab_file=folder / "vocab.txt",
    input_file=folder / "train.tfrecord",
    eval_input_file=folder / "eval.tfrecord",
    output_dir=output_dir,
    **LENGTHS,
    do_eval="true",
    eval_batch_size=32,
    max_eval_steps=0,
    **flags,
  )
  lines = (output_dir / "eval_results.txt").read_text().splitlines()
  scores = dict(line.split(" = ") for line in lines)
  return float(scores["masked_lm_accuracy"]), float(scores["masked_lm_loss"])


def classify(folder: pathlib.Path, export: pathlib.Path) -> None:
  """Fine-tunes a classifier of five parts of the manual, and exports it."""
  # Every sixth sentence is evaluated.
  rows = read_parts()
  tables = folder / "parts"
  tables.mkdir(exist_ok=True)
  write_labelled(tables / "dev.tsv", rows[::6])
  train = [row for i, row in enumerate(rows) if i % 6]
  write_labelled(tables / "train.tsv", train)

  run(
    "run_classifier.py",
    task_name="file",
    data_dir=tables,
    model=folder / "pretrained",
    output_dir=folder / "classifier",
    do_train="true",
    do_eval="true",
    max_seq_length=64,
    learning_rate=1e-3,
    num_train_epochs=5,
  )

  shutil.rmtree(export, ignore_errors=True)  # From an earlier demo.
  run("export_saved_model.py", model=folder / "classifier", export_dir=export)


def frequency_baseline(folder) -> tuple[str, float, float]:
  """Scores two guesses that need no model, on the evaluation records.

  Returns the most frequent masked word of the training records, the accuracy of
  always guessing it, and the loss of predicting words by their frequencies
  there.
  """
  # All records are counted: 2^62 is more than any file has.
  spec = records.pretraining_spec(**LENGTHS)
  config = checkpoints.read_config(str(folder / "bert_config.json"))
  limits = records.pretraining_limits(LENGTHS["max_seq_length"], config)
  parse = functools.partial(records.parse_batch, spec=spec, limits=limits)
  train, evaluation = (
    loss_watch.sample([str(folder / name)], parse, most=2**62)
    for name in ("train.tfrecord", "eval.tfrecord")
  )

  [(best, _)] = train.words.most_common(1)
  guesses = loss_watch.guess(train, evaluation, config.vocab_size)
  tokenizer = tokenization.FullTokenizer(str(folder / "vocab.txt"))
  [word] = tokenizer.convert_ids_to_tokens([best])
  accuracy = guesses["masked_lm_accuracy"].score
  return word, accuracy, guesses["masked_lm_loss"].score


def write_config(folder, path) -> None:
  """Writes the config of a tiny encoder for the vocabulary."""
  words = len(tokenization.load_vocab(str(folder / "vocab.txt")))
  config = checkpoints.read_config(str(path))
  # In so narrow a model attention stays uniform for thousands of steps with an
  # initializer_range of 0.02, and dropout costs more than it helps.
  fields = {"vocab_size": words, "initializer_range": 0.1}
  fields |= {name: 0.0 for name in vars(config) if "dropout" in name}
  config = dataclasses.replace(config, **fields)
  (folder / "bert_config.json").write_text(config.to_json_string())


def print_table(before, after, baseline) -> None:
  """Prints masked-LM scores before and after, and those of word frequencies."""
  word, *alone = baseline
  print("\nMasked words, on text not trained on:\n")
  print(f"{'':34}{'accuracy':>10}{'loss':>8}")
  for name, (accuracy, loss) in (
    ("before pre-training", before),
    ("after pre-training", after),
    (f"word frequencies alone ({word!r})", alone),
  ):
    print(f"{name:34}{accuracy:10.1%}{loss:8.2f}")


def main() -> None:
  parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
  parser.add_argument("--output_dir", default="demo_output", type=pathlib.Path)
  parser.add_argument("--num_train_steps", default=2500, type=int)
  config = ROOT / "configs" / "bert_tiny.json"
  parser.add_argument("--bert_config_file", default=config, help="the encoder")
  options = parser.parse_args()
  folder = options.output_dir
  try:
    folder.mkdir(parents=True, exist_ok=True)
  except OSError as error:  # Such as a file of that name.
    parser.error(f"--output_dir={folder}: {error.strerror}")

  # From the manual to records. The corpus is small: 20 copies of it, each with
  # masks of its own.
  train = folder / "train.txt"
  write_corpus(train, folder / "eval.txt")
  run(
    "create_vocab.py",
    input_file=train,
    output_file=folder / "vocab.txt",
    vocab_size=VOCAB_SIZE,
  )
  make_records(folder, "train", dupe_factor=20)
  make_records(folder, "eval", dupe_factor=1)
  write_config(folder, options.bert_config_file)

  # The model before and after pre-training, on the same records.
  untrained = folder / "untrained"
  before = pretrain(folder, untrained, score_random_weights="true")
  after = pretrain(
    folder,
    folder / "pretrained",
    do_train="true",
    train_batch_size=64,
    learning_rate=1e-3,
    num_train_steps=options.num_train_steps,
    num_warmup_steps=options.num_train_steps // 10,
  )

  export = folder / "manual_parts"  # Which is also the title of the page.
  classify(folder, export)

  # All that people want to see comes last, below what the programs print.
  print_table(before, after, frequency_baseline(folder))
  for name in ("pretrained", "classifier"):
    report = (folder / name / "report.html").resolve()
    print(f"\nCurves and scores of {folder / name}: {report.as_uri()}")
  python = os.path.relpath(sys.executable)
  print(
    "\nAsk the classifier, on a page of http://127.0.0.1:8080/:\n"
    f"  {python} predict.py --export_dir={export} --serve"
  )


if __name__ == "__main__":
  main()
