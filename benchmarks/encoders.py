"""Times other encoders beside BERT's of the same size. Linux only.

  python benchmarks/encoders.py --size=base

Training is run_pretraining.py's update of 16 x 128 tokens, prediction the
vectors of 32 x 128, each five times a turn.
"""

import argparse
import functools

import contest
import versions

TYPES = ("bert", "text_cnn", "bilstm")
KINDS = {"training": 16, "prediction": 32}  # Batch sizes.
LENGTH = 128
REPEATS = 5  # In a turn.


def make_updates(config_file: str, kind: str, precision: str) -> contest.Turn:
  """Makes the updates of an encoder's pre-training."""
  pretraining = versions.load_benchmark(str(contest.ROOT), "training")
  workload = pretraining.Workload(config_file, KINDS[kind], LENGTH, 20)
  update = pretraining.make_ours(workload, precision)
  return contest.Turn(
    lambda: [update() for _ in range(REPEATS)][-1], REPEATS * KINDS[kind]
  )


def make_vectors(config_file: str, kind: str, precision: str) -> contest.Turn:
  """Makes the vectors of batches without padding."""
  import tensorflow as tf

  from bert.encoders import encoder_table
  from bert.training import prediction
  from bert.weights import checkpoints

  # The ids of the pre-training benchmark: every row is full.
  pretraining = versions.load_benchmark(str(contest.ROOT), "training")
  size = KINDS[kind]
  workload = pretraining.Workload(config_file, size, LENGTH, 20)
  features = pretraining.make_features(workload)
  names = ("input_ids", "input_mask", "segment_ids")

  dtype = {"float32": "float32", "bfloat16": "mixed_bfloat16"}[precision]
  config = checkpoints.read_config(config_file)
  model = encoder_table.make_encoder(config, dtype)
  predictor = prediction.Predictor(
    tf.distribute.get_strategy(),
    model,
    lambda output, batch: {"pooled": output.pooled_output},
    lambda model, batch, seed: model(*(batch[n] for n in names), seed),
  )
  batches = tf.data.Dataset.from_tensors({n: features[n] for n in names})
  batches = batches.repeat(REPEATS)
  return contest.Turn(
    lambda: float(predictor(batches)["pooled"].sum()), REPEATS * size
  )


def main() -> None:
  parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
  parser.add_argument("--size", choices=("tiny", "base"), default="base")
  parser.add_argument("--rounds", type=int, default=3)
  parser.add_argument("--kinds", type=contest.split, default=list(KINDS))
  contest.add_limits(parser)
  arguments = contest.parse(parser)

  configs = contest.ROOT / "configs"
  for kind in arguments.kinds:
    make = make_updates if kind == "training" else make_vectors
    contestants = {
      name: contest.Contestant(
        functools.partial(make, str(configs / f"{name}_{arguments.size}.json")),
        "tensorflow",
        {},
      )
      for name in TYPES
    }

    # All encoders take turns in each precision.
    for precision in arguments.precisions:
      group = kind, precision, contestants
      timings = contest.time_group(*group, kind, arguments.rounds)
      contest.print_table(*group, timings)


if __name__ == "__main__":
  main()
