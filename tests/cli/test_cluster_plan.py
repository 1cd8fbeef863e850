"""A training on many devices, calculated from one update."""

import re

import pytest

from bert.cli import cluster_plan
from bert.training import training_plan
import program_flags
import tiny


@pytest.mark.parametrize(
  ("parameters", "num_devices", "gigabits", "seconds"),
  [
    (1_000_000_000, 2, 8, 4),  # 4 GB to the only other one, at 1 GB a second.
    (336_000_000, 16, 100, 0.2016),  # BERT-Large.
    (336_000_000, 1, 100, 0),
  ],
)
def test_an_all_reduce_sends_each_gradient_twice(
  parameters, num_devices, gigabits, seconds
):
  found = cluster_plan.all_reduce_seconds(parameters, num_devices, gigabits)
  assert found == pytest.approx(seconds)


@pytest.mark.parametrize(
  ("update", "all_reduce", "accumulation"),
  [
    (1.0, 0.0, 1),
    (1.0, 0.11, 1),  # 0.11 of 1.11 s.
    (1.0, 0.12, 2),  # 0.12 of 1.12 s is more than a tenth, of 2.12 s less.
    (1.0, 1.0, 10),  # 1 of 10 s would be a tenth, and not below.
    (0.25, 2.0, 73),
  ],
)
def test_accumulation_lowers_communication_below_a_tenth(
  update, all_reduce, accumulation
):
  found = cluster_plan.smallest_accumulation(update, all_reduce)
  assert found == accumulation


@pytest.mark.parametrize(
  ("accumulation", "plan"),
  [
    # As it is: 8 s of which 2 are communication, 1,001 times.
    (2, (2, 64, 1001, 8008 / 3600, 0.25, 1e-4, 1e-4)),
    # Four times the batch: 26 s, 250.25 times.
    (8, (8, 256, 251, 6526 / 3600, 2 / 26, 4e-4, 2e-4)),
    # Half of the batch: 5 s, 2,002 times.
    (1, (1, 32, 2002, 10010 / 3600, 0.4, 5e-5, 1e-4 * 0.5**0.5)),
  ],
)
def test_a_plan_sees_as_many_examples_with_another_batch(accumulation, plan):
  given = training_plan.TrainingPlan(
    "", 1001, train_batch_size=64, gradient_accumulation_steps=2
  )
  found = cluster_plan.make_plan(given, 1e-4, 3.0, 2.0, accumulation)
  assert found == pytest.approx(plan)


# 40 words, 16 positions and 2 segments of 16; a layer, the heads; and what only
# next sentences train, which is not sent without them: pooler and head.
@pytest.mark.parametrize(
  ("has_folder", "next_sentence", "gradients"),
  [(True, True, "3,834"), (False, False, "3,528")],
)
def test_a_dry_run_shows_plans_and_leaves_the_folder(
  has_folder, next_sentence, gradients, tmp_path
):
  out = tmp_path / "out"
  if has_folder:
    out.mkdir()
    (out / "notes.txt").write_text("mine")
  before = [(path.name, path.stat().st_mtime_ns) for path in out.glob("*")]
  records = [tiny.make_values(number) for number in range(40)]
  if not next_sentence:
    for values in records:
      del values["next_sentence_labels"]
  result = tiny.succeed(
    "run_pretraining",
    tmp_path,
    input_file=tiny.write_values(tmp_path / "records", *records),
    do_train=True,
    train_batch_size=16,
    gradient_accumulation_steps=2,
    learning_rate=1e-4,
    num_train_steps=1000,
    next_sentence=next_sentence,
    dry_run=4,
    bandwidth_gbit=1e6,
  )
  after = [(path.name, path.stat().st_mtime_ns) for path in out.glob("*")]
  assert (after, out.exists()) == (before, has_folder)

  lines = result.stdout.splitlines()
  start = lines.index(
    "--dry_run=4 at 1e+06 Gb/s: nothing was trained or written"
  )
  _, device, step, _, *rows = lines[start:]
  speed = r"each device: 0\.8 GB for 2 x 16 tokens at a time; [\d.e+]+ examples"
  assert re.search(speed, device)
  assert f"an all-reduce of {gradients} gradients, " in step
  found = [row.split() for row in rows if re.match(r" +\d", row)]
  assert [[*row[:3], *row[4:]] for row in found] == [
    ["1", "8", "2,000", "0.0%", "5e-05", "7.07e-05"],
    ["2", "16", "1,000", "0.0%", "0.0001", "0.0001"],
    ["4", "32", "500", "0.0%", "0.0002", "0.000141"],
    ["8", "64", "250", "0.0%", "0.0004", "0.0002"],
    ["16", "128", "125", "0.0%", "0.0008", "0.000283"],
  ]
  enough = "--gradient_accumulation_steps=1 --train_batch_size=8 on"
  assert f"  communication is below 10 % from {enough}" in rows


def test_a_dry_run_is_of_a_training(tmp_path):
  result = tiny.run(
    "run_pretraining",
    tmp_path,
    input_file=tiny.write_records(tmp_path / "records", range(4)),
    do_eval=True,
    dry_run=4,
    bandwidth_gbit=10,
  )
  program_flags.assert_refused(result, "--dry_run=4 needs --do_train")
