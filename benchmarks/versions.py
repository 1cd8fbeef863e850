"""Times this checkout beside another one. Linux only.

  git worktree add /tmp/old main~20
  python benchmarks/versions.py --baseline=/tmp/old

Updates of BERT-Base, the model of run_classifier.py on 32 x 13 tokens (SST-2's
average) and that of run_pretraining.py on 16 x 128; pre-training of the mini
model on 64 x 64; and predictions of BERT-Base, 64 x 16 tokens at a time. Each
turn is ten batches.
"""

import argparse
import functools
import importlib.util
import pathlib
import sys

import contest

SHAPES = {
  "finetuning": ("base", 32, 13),
  "pretraining": ("base", 16, 128),
  "mini": ("mini", 64, 64),
  "prediction": ("base", 64, 16),
}
BATCHES = 10  # In a turn.


def main() -> None:
  parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
  parser.add_argument("--baseline", help="root of the other checkout")
  parser.add_argument("--rounds", type=int, default=3)
  parser.add_argument("--kinds", type=contest.split, default=list(SHAPES))
  contest.add_limits(parser)
  arguments = contest.parse(parser)
  if not arguments.baseline:
    print("skipped: no other checkout; pass --baseline")
    return

  # A process each, which imports the package of its own checkout.
  roots = {"this checkout": str(contest.ROOT), "baseline": arguments.baseline}
  for kind in arguments.kinds:
    contestants = {
      name: contest.Contestant(
        functools.partial(make_turn, root), "tensorflow", {}
      )
      for name, root in roots.items()
    }

    for precision in arguments.precisions:
      group = kind, precision, contestants
      timings = contest.time_group(*group, kind, arguments.rounds)
      contest.print_table(*group, timings)


def make_turn(root: str, kind: str, precision: str) -> contest.Turn:
  """Makes a checkout's updates or predictions, as its own benchmarks do."""
  sys.path.insert(0, root)
  model, size, length = SHAPES[kind]
  if kind in ("finetuning", "prediction"):
    memory = load_benchmark(root, "memory")
    workload = memory.Workload(model, size, length, precision, recompute=False)
    if kind == "prediction":
      return make_prediction(workload)
    run = memory.make_step(workload).run
  else:
    training = load_benchmark(root, "training")
    config_file = str(contest.ROOT / "configs" / f"bert_{model}.json")
    workload = training.Workload(config_file, size, length, 20)
    run = training.prepare(f"{contest.OURS} {precision}", workload)

  # A turn counts its rows, so that tables can say examples a second.
  return contest.Turn(
    lambda: [run() for _ in range(BATCHES)][-1], BATCHES * size
  )


def make_prediction(workload) -> contest.Turn:
  """Makes the predictions of run_classifier.py, with random weights."""
  import tensorflow as tf

  from bert import heads, modeling, run_classifier
  from bert.training import prediction

  # The benchmark of the same checkout, which `load_benchmark` has imported.
  memory = sys.modules[type(workload).__module__]
  config_file = memory.config_file(workload.model)
  config = modeling.BertConfig.from_json_file(config_file)
  dtype = {"float32": "float32", "bfloat16": "mixed_bfloat16"}
  model = heads.ClassifierModel(config, 2, dtype[workload.precision])

  strategy = tf.distribute.get_strategy()
  predictor = prediction.Predictor(strategy, model, run_classifier.predict)
  features = memory.make_features(workload, config.vocab_size)
  batches = tf.data.Dataset.from_tensors(features).repeat(BATCHES)
  return contest.Turn(
    lambda: predictor(batches)["logits"].sum(), BATCHES * workload.batch_size
  )


def load_benchmark(root: str, name: str):
  """Imports a benchmark of a checkout; `training` is also a package."""
  path = pathlib.Path(root, "benchmarks", f"{name}.py")
  spec = importlib.util.spec_from_file_location(f"benchmark_{name}", path)
  module = importlib.util.module_from_spec(spec)
  sys.modules[spec.name] = module
  spec.loader.exec_module(module)
  return module


if __name__ == "__main__":
  main()
