"""Two workers: one is killed, or has other data than the other."""

import os
import pathlib
import random
import time

import kills
import processes
import rows
import trainings

import tiny
import workers

_MOST_SECONDS = 60  # That the other may take to end.


class _Pair:
  """Two workers that train together, in place of a `processes.Child`."""

  def __init__(self, trainings, out):
    self.workers = [
      processes.Child(
        training.make_command(out),
        training.folder / f"worker-{index}.log",
        lambda variables=variables: os.environ.update(variables),
      )
      for index, (training, variables) in enumerate(
        zip(trainings, workers.environments(), strict=True)
      )
    ]
    self.started = time.monotonic()

  def wait(self):
    for worker in self.workers:
      worker.wait()
    return self.poll()

  def poll(self):
    statuses = [worker.poll() for worker in self.workers]
    return None if None in statuses else max(statuses)

  @property
  def status(self):
    return self.poll()

  def text(self):
    return self.workers[0].text()


class _PairTraining(trainings.Training):
  """A training by two workers, with the interface of its base."""

  def start(self, out, prepare=None):
    return _Pair([self, self], out)


def kill_worker(folder: pathlib.Path, rounds: int, seed: int) -> rows.Row:
  """Kills one of two workers at a random moment of their training."""
  row = rows.Row("one worker of two killed")
  generator = random.Random(seed)
  training = trainings.pretraining(
    folder, steps=400, every=5, distribution="multi_worker"
  )
  whole = _PairTraining(*training).run_whole()
  chain = kills.Chain(whole, row)

  while row.rounds < rounds:
    # Both have to be at work: they save a checkpoint first.
    pair = chain.start()
    chain.wait_for_saved(pair, 1)
    time.sleep(generator.uniform(0, 2))
    if chain.has_ended(pair):
      continue

    victim = generator.randrange(2)
    _lose(row, pair, victim)
    chain.end_round()
  chain.finish()
  return row


def _lose(row, pair, victim):
  pair.workers[victim].kill()

  start = time.monotonic()
  other = pair.workers[1 - victim]
  other.wait(_MOST_SECONDS)
  seconds = time.monotonic() - start

  # The table counts in steps of five seconds.
  if other.status is None:
    row.complain(f"the other did not end in {_MOST_SECONDS} s")
    other.kill()
  elif "another worker has ended" in other.error():
    least = 5 * int(seconds // 5)
    row.note(f"the other ended in {least} to {least + 5} s")
  else:
    row.complain(f"status {other.status}: {other.text()[-3000:]}")


def give_other_data(folder: pathlib.Path, rounds: int, seed: int) -> rows.Row:
  """Gives one of two workers other records: both must refuse to train."""
  row = rows.Row("workers with different data")
  generator = random.Random(seed)

  # The same training twice, but for one of its three files of records.
  flags = {"steps": 40, "every": 10, "distribution": "multi_worker"}
  training = trainings.pretraining(folder / "one", **flags)
  other = trainings.pretraining(folder / "other", **flags)
  records = folder / "other" / f"{generator.randrange(3)}.tfrecord"
  tiny.write_records(records, range(500, 530))

  training = _PairTraining(*training)
  whole = training.run_whole()

  while row.rounds < rounds:
    # From the start or from a checkpoint; either worker has the other data.
    step = generator.choice([0, 10, 20, 30])
    out = whole.copy(f"differing-{row.rounds}", step)
    both = [training, other]
    generator.shuffle(both)
    pair = _Pair(both, out)
    pair.wait()
    row.rounds += 1

    errors = [worker.error() for worker in pair.workers]
    expected = "the workers do not have the same"
    if all(expected in error for error in errors):
      row.note("both ended in one line")
    else:
      row.complain(f"{errors}: {[w.text()[-2000:] for w in pair.workers]}")
      continue

    # They have saved nothing, and with equal data the training ends well.
    if trainings.saved_steps(out)[-1:] != ([step] if step else []):
      row.lost += 1
      row.complain(f"there are the checkpoints {trainings.saved_steps(out)}")

    again = training.start(out)
    again.wait()
    faults = whole.check_end(out)
    row.recovered += not faults
    if faults:
      row.complain(f"{faults}: {again.text()[-3000:]}")
  return row
