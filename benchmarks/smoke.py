"""Compares this checkout's speed with the speed that was kept. Linux only.

  make bench-smoke
  python benchmarks/smoke.py --update    # keep what is measured now

In about six minutes on two cores it measures each work as a share of the
speed of a yardstick, in turns of the same run: the floor of a model's work, its
products and AdamW (see finetuning.py), or plain Python that does something
alike. So a machine that is slower today changes little. smoke.json has the
shares, by processor. The script ends with exit status 1 and a line for each
work that has lost more than 5 % in two measurements.

For each work it prints how far apart the middle half of its rounds were. If
that is more than 5 %, the machine was too busy, and the outcome says nothing:
on a virtual Xeon with AMX it was 6 to 33 %, so that nothing is kept for it.
"""

import functools
import json
import pathlib
import sys
import tempfile

import contest
import finetuning
import numpy as np
import versions

FILE = pathlib.Path(__file__).with_suffix(".json")
MOST_LOST = 0.05
MINI = str(contest.ROOT / "configs" / "bert_mini.json")
UPDATES, SIZE, LENGTH, MASKED = 1, 64, 64, 20  # A turn of pre-training.
REPEATS = 4  # All sentences so often in a turn.

Workload = finetuning.Workload
Ratios = dict[str, float]  # Our speed by the yardstick's, by work.


def main() -> int:
  parser = contest.make_parser(__doc__, KINDS)
  small = str(contest.ROOT / "configs" / "bert_small.json")
  data_dir = str(contest.DATA / "glue" / "SST-2")
  parser.set_defaults(rounds=7, bert_config_file=small)
  parser.add_argument("--data_dir", default=data_dir)
  parser.add_argument("--batches", type=int, default=6, help="per turn")
  parser.add_argument("--sentences", type=int, default=384, help="to predict")
  parser.add_argument("--file", type=pathlib.Path, default=FILE)
  parser.add_argument("--update", action="store_true", help="write the file")
  arguments = contest.parse(parser)
  if contest.lacks_data(vars(arguments), "data_dir", "vocab_file"):
    return 0
  machine = contest.describe_machine()
  file = arguments.file
  kept_by_machine = json.loads(file.read_text()) if file.exists() else {}
  kept = kept_by_machine.get(machine, {})
  ratios = measure(arguments, {} if arguments.update else kept)
  if arguments.update:
    kept_by_machine[machine] = kept | ratios
    text = json.dumps(kept_by_machine, indent=2, sort_keys=True)
    file.write_text(f"{text}\n")
  elif set(ratios) - set(kept):
    print(f"{file.name} has not all of this for {machine}; --update adds it")
  lines = [] if arguments.update else describe_losses(kept, ratios)
  print("\n".join(lines or ["none has lost more than 5 % of what was kept"]))
  return 1 if lines else 0


def measure(arguments, kept: Ratios) -> Ratios:
  """Measures each work, and once more what has lost by the first time."""
  ratios = {}
  with tempfile.TemporaryDirectory() as folder:
    workload = Workload(
      data_dir=arguments.data_dir,
      vocab_file=arguments.vocab_file,
      bert_config_file=arguments.bert_config_file,
      max_seq_length=128,
      batch_size=32,
      batches=arguments.batches,
      padded_batches=1,
      sentences=arguments.sentences,
      folder=folder,
    )
    with contest.start_process() as process:
      process.submit(finetuning.make_sample, workload).result()
    for kind in arguments.kinds:
      precisions = arguments.precisions if kind in MODELS else [""]
      for precision in precisions:
        work = kind, precision, workload, arguments.rounds
        name = contest.title(kind, precision)
        ratios[name] = measure_ratio(*work)
        if describe_losses(kept, {name: ratios[name]}):
          ratios[name] = max(ratios[name], measure_ratio(*work))
  return ratios


def measure_ratio(
  kind: str, precision: str, workload: Workload, rounds: int
) -> float:
  """Returns the median of our speed by the yardstick's; prints its range."""
  contestants = {
    name: contest.Contestant(make, "tensorflow", {})
    for name, make in zip(("ours", "yardstick"), KINDS[kind], strict=True)
  }
  timings = contest.time_group(kind, precision, contestants, workload, rounds)
  ratios = [
    ours.speed / theirs.speed
    for ours, theirs in zip(*timings.values(), strict=True)
  ]
  low, middle, high = (np.quantile(ratios, part) for part in (0.25, 0.5, 0.75))
  print(f"{contest.title(kind, precision)}: {middle:.4f} of the yardstick")
  print(f"half of the rounds within {100 * (high - low) / middle:.1f} %\n")
  sys.stdout.flush()
  return round(float(middle), 4)


def describe_losses(kept: Ratios, ratios: Ratios) -> list[str]:
  """Returns a line for each work that has lost too much."""
  return [
    f"{name}: {ratio:.4f} of the yardstick, {kept[name]:.4f} was kept: "
    f"{100 - 100 * ratio / kept[name]:.1f} % slower"
    for name, ratio in ratios.items()
    if name in kept and ratio < kept[name] * (1 - MOST_LOST)
  ]


# Pre-training.


def load_pretraining():
  """Imports the benchmark; `training` is also a package."""
  training = versions.load_benchmark(str(contest.ROOT), "training")
  return training, training.Workload(MINI, SIZE, LENGTH, MASKED)


def make_pretraining(_: Workload, precision: str) -> contest.Turn:
  """The updates of run_pretraining.py, of the mini model."""
  training, workload = load_pretraining()
  step = training.make_ours(workload, precision)
  return contest.Turn(
    lambda: [step() for _ in range(UPDATES)][-1], UPDATES * SIZE
  )


def make_pretraining_floor(_: Workload, precision: str) -> contest.Turn:
  """The products of those updates, that of masked words with it, and AdamW."""
  from bert import modeling

  training, workload = load_pretraining()
  _, optimizer = training.make_our_model(workload, precision)
  config = modeling.BertConfig.from_json_file(MINI)
  hidden = config.hidden_size
  head = [(SIZE * MASKED, hidden, n) for n in (hidden, config.vocab_size)]
  return finetuning.make_updates_floor(
    optimizer, config, precision, SIZE, [LENGTH] * UPDATES, head
  )


# Tokens and records.


def read_lines(workload: Workload) -> list[str]:
  path = pathlib.Path(workload.data_dir, "train.tsv")
  return path.read_text(encoding="utf-8").splitlines() * REPEATS


def make_tokenization(workload: Workload) -> contest.Turn:
  """Makes ids of sentences by a new tokenizer, whose cache is empty."""
  from bert import tokenization

  lines = read_lines(workload)
  return contest.Turn(
    lambda tokenizer: sum(len(tokenizer.encode(line)) for line in lines),
    len(lines),
    lambda: (tokenization.FullTokenizer(workload.vocab_file),),
  )


def make_records(workload: Workload) -> contest.Turn:
  """Writes TFRecords of rows of 16 ids, padded to 128."""
  from bert.data import record_writer

  random = np.random.default_rng(contest.SEED)
  rows = random.integers(0, 30000, [40000, 16]).tolist()
  path = pathlib.Path(workload.folder, "records")

  def run():
    with record_writer.open_shards([str(path)]) as write:
      for row in rows:
        write(record_writer.encode_inputs([row], [[]], 128))
    return path.stat().st_size

  return contest.Turn(run, len(rows))


def make_split(workload: Workload) -> contest.Turn:
  """Makes ids of words by a dictionary that starts empty."""
  lines = read_lines(workload)

  def run():
    ids = {}
    for line in lines:
      _ = [ids.setdefault(word, len(ids)) for word in line.lower().split()]
    return len(ids)

  return contest.Turn(run, len(lines))


# By kind: what is measured, and its yardstick.
KINDS = {
  "fine-tuning": (
    functools.partial(finetuning.make_our_training, is_padded=False),
    functools.partial(finetuning.make_floor, is_padded=False),
  ),
  "prediction": (
    finetuning.make_our_prediction,
    finetuning.make_prediction_floor,
  ),
  "pre-training": (make_pretraining, make_pretraining_floor),
  "tokenization": (make_tokenization, make_split),
  "records": (make_records, make_split),
}
MODELS = ("fine-tuning", "prediction", "pre-training")  # These have precisions.


if __name__ == "__main__":
  sys.exit(main())
