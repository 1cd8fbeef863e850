"""Times feature making and prediction on SQuAD against peers. Linux only.

python benchmarks/squad.py

Features are made of a whole file: from its JSON to a TFRecord file, by ours as
run_squad.py makes them and by the plain way, which is what a port of the
original would do. Afterwards their windows are compared. Hugging Face's go no
further than its lists, which its run_qa.py would write to a disk, too.

Predicted are some of the windows, as batches that are spread evenly over those
in which run_squad.py --padding_competes=false would predict the whole file.
"""

from collections.abc import Iterator
import contextlib
import dataclasses
import functools
import json
import os
import pathlib
import re
import shutil
import sys
import tempfile
from typing import Any, NamedTuple

import contest
import numpy as np

# What run_qa.py has its tokenizer work on at a time.
PEER_BATCH = 1000


@dataclasses.dataclass(frozen=True)
class Workload:
  """What features are made of, and what is predicted."""

  data_file: str
  questions: int  # In it.
  vocab_file: str
  bert_config_file: str
  max_seq_length: int
  doc_stride: int
  max_query_length: int
  num_processes: int
  batch_size: int
  windows: int  # To predict, about.
  folder: str  # For the features.

  @property
  def our_folder(self) -> str:
    """Where ours leaves its features."""
    return os.path.join(self.folder, "ours")

  @property
  def plain_file(self) -> str:
    """The TFRecord file of the plain way."""
    return os.path.join(self.folder, "plain.tf_record")

  @property
  def sample_file(self) -> str:
    """The path of the `Sample`."""
    return os.path.join(self.folder, "sample.npz")


class Sample(NamedTuple):
  """What is predicted: W windows of S tokens, in the order of the file."""

  batches: np.ndarray  # Numbers of the batches they are of, if bucketed.
  rows: np.ndarray  # int64 [W], indices in the feature file.
  input_ids: np.ndarray  # int64 [W, S].
  input_mask: np.ndarray
  segment_ids: np.ndarray


def main() -> int:
  parser = contest.make_parser(__doc__, CONTESTANTS)
  data_file = str(contest.DATA / "squad" / "dev-v1.1.json")
  parser.add_argument("--data_file", default=data_file)
  parser.add_argument("--articles", type=int, help="of the file; all if none")
  parser.add_argument("--max_seq_length", type=int, default=384)
  parser.add_argument("--doc_stride", type=int, default=128)
  parser.add_argument("--max_query_length", type=int, default=64)
  parser.add_argument("--num_processes", type=int, default=2)
  parser.add_argument("--batch_size", type=int, default=8, help="to predict")
  parser.add_argument("--windows", type=int, default=96, help="to predict")
  options = vars(contest.parse(parser))
  if contest.lacks_data(options, "data_file", "vocab_file"):
    return 0
  rounds, kinds = options.pop("rounds"), options.pop("kinds")
  precisions, articles = options.pop("precisions"), options.pop("articles")
  missed = 0
  with tempfile.TemporaryDirectory() as folder:
    if articles:
      options["data_file"] = cut_file(options["data_file"], articles, folder)
    questions = len(read_questions(options["data_file"]))
    workload = Workload(**options, questions=questions, folder=folder)
    if "features" in kinds:
      missed += time_features(workload, rounds)
    if "predict" in kinds:
      missed += time_prediction(workload, precisions, rounds)
  return 1 if missed else 0


def time_features(workload: Workload, rounds: int) -> int:
  """Lets the ways to make features take turns, and compares the outcome."""
  print(f"making features of {workload.questions:,} questions, the examples;")
  print("memory is without the processes that ours starts", flush=True)
  group = "features", "", CONTESTANTS["features"]
  timings = contest.time_group(*group, workload, rounds)
  missed = contest.print_table(*group, timings)
  has_peer = f"{contest.PEER}, fast" in timings
  with contest.start_process() as process:
    text, differs = process.submit(compare, workload, has_peer).result()
  print(f"{text}\n", flush=True)
  return missed + differs


def time_prediction(
  workload: Workload, precisions: list[str], rounds: int
) -> int:
  """Lets the ways to predict take turns."""
  with contest.start_process() as process:
    print(process.submit(make_sample, workload).result(), flush=True)
  missed = 0
  for precision in precisions:
    group = "predict", precision, CONTESTANTS["predict"]
    timings = contest.time_group(*group, workload, rounds)
    missed += contest.print_table(*group, timings)
    print(flush=True)
  return missed


# The questions.


def cut_file(path: str, articles: int, folder: str) -> str:
  """Writes the first articles of a file to another; returns its path."""
  content = json.loads(pathlib.Path(path).read_text(encoding="utf-8"))
  content["data"] = content["data"][:articles]
  target = os.path.join(folder, "questions.json")
  pathlib.Path(target).write_text(json.dumps(content), encoding="utf-8")
  return target


def read_questions(path: str) -> list[tuple[str, str, str]]:
  """Reads id, question and context of all questions."""
  content = json.loads(pathlib.Path(path).read_text(encoding="utf-8"))
  return [
    (question["id"], question["question"], paragraph["context"])
    for article in content["data"]
    for paragraph in article["paragraphs"]
    for question in paragraph["qas"]
  ]


# Features: ours.


def make_our_features(workload: Workload) -> contest.Turn:
  """Makes them as run_squad.py does, in several processes."""
  from bert.tasks import squad_data  # noqa: F401, for TensorFlow is no part of the turn.

  def run():
    shutil.rmtree(workload.our_folder, ignore_errors=True)
    os.mkdir(workload.our_folder)
    return len(open_features(workload))

  return contest.Turn(run, workload.questions)


def open_features(workload: Workload):
  """Opens our features, made now if they are not there."""
  from bert.tasks import squad_data, squad_features

  settings = squad_features.SquadFeatureSettings(
    vocab_file=workload.vocab_file,
    do_lower_case=True,
    max_seq_length=workload.max_seq_length,
    doc_stride=workload.doc_stride,
    max_query_length=workload.max_query_length,
    version_2_with_negative=False,
  )
  examples = squad_data.find_set(
    "eval",
    workload.data_file,
    settings,
    num_processes=workload.num_processes,
  )
  squad_data.make_features(examples, workload.our_folder)
  return examples.features


# Features: the plain way.


def make_plain_features(workload: Workload) -> contest.Turn:
  """Makes them one question after the other; nothing is remembered."""
  import tensorflow as tf

  def run():
    count = 0
    with tf.io.TFRecordWriter(workload.plain_file) as writer:
      for features in plain_features(workload):
        writer.write(serialize(features))
        count += 1
    return count

  return contest.Turn(run, workload.questions)


def plain_features(workload: Workload) -> Iterator[dict[str, list[int]]]:
  """Tokenizes the words of a context anew for each of its questions.

  The original also noted, for each token, whether its window is the one that
  shows most around it. Ours does that when it chooses an answer, so it is left
  out here.
  """
  from bert import tokenization

  vocab = tokenization.load_vocab(workload.vocab_file)
  basic = tokenization.BasicTokenizer(do_lower_case=True)
  wordpiece = tokenization.WordpieceTokenizer(vocab)

  def encode(text):
    tokens = []
    for word in basic.tokenize(text):
      tokens += wordpiece.tokenize(word)
    return [vocab[token] for token in tokens]

  unique_id = 1_000_000_000
  for _, question, context in read_questions(workload.data_file):
    query = encode(question)[: workload.max_query_length]
    ids = []
    for word in re.findall(r"[^ \t\r\n\u202f]+", context):
      ids += encode(word)
    room = workload.max_seq_length - len(query) - 3
    start = 0
    while True:
      part = ids[start : start + room]
      first = [vocab["[CLS]"], *query, vocab["[SEP]"]]
      second = [*part, vocab["[SEP]"]]
      yield pad(first, second, unique_id, workload.max_seq_length)
      unique_id += 1
      if start + room >= len(ids):
        break
      start += min(workload.doc_stride, room)


def pad(
  first: list[int], second: list[int], unique_id: int, length: int
) -> dict[str, list[int]]:
  """Makes the features of a window."""
  padding = [0] * (length - len(first) - len(second))
  return {
    "unique_ids": [unique_id],
    "input_ids": first + second + padding,
    "input_mask": [1] * (len(first) + len(second)) + padding,
    "segment_ids": [0] * len(first) + [1] * len(second) + padding,
  }


def serialize(features: dict[str, list[int]]) -> bytes:
  """Makes a tf.train.Example."""
  import tensorflow as tf

  lists = {
    name: tf.train.Feature(int64_list=tf.train.Int64List(value=values))
    for name, values in features.items()
  }
  example = tf.train.Example(features=tf.train.Features(feature=lists))
  return example.SerializeToString()


# Features: Hugging Face.


def make_peer_features(workload: Workload) -> contest.Turn:
  """Makes them as its run_qa.py does for predictions."""
  import transformers  # noqa: F401, for its import is no part of the turn.

  def run():
    return sum(len(batch["input_ids"]) for batch in peer_features(workload))

  return contest.Turn(run, workload.questions)


def peer_features(workload: Workload) -> Iterator[dict[str, Any]]:
  """Tokenizes batches of questions, and notes what their answers need.

  That is the question of each window, and where in the context each of its
  tokens is. What run_qa.py calls doc_stride is the overlap of two windows, so
  that its windows are further apart than the original's.
  """
  tokenizer = contest.make_peer_tokenizer(workload.vocab_file)
  questions = read_questions(workload.data_file)
  for start in range(0, len(questions), PEER_BATCH):
    part = questions[start : start + PEER_BATCH]
    ids, texts, contexts = map(list, zip(*part, strict=True))
    batch = tokenizer(
      [text.lstrip() for text in texts],
      contexts,
      truncation="only_second",
      max_length=workload.max_seq_length,
      stride=workload.doc_stride,
      return_overflowing_tokens=True,
      return_offsets_mapping=True,
      padding="max_length",
    )
    samples = batch.pop("overflow_to_sample_mapping")
    batch["example_id"] = [ids[sample] for sample in samples]
    for i, places in enumerate(batch["offset_mapping"]):
      sequences = batch.sequence_ids(i)
      batch["offset_mapping"][i] = [
        place if sequence == 1 else None
        for place, sequence in zip(places, sequences, strict=True)
      ]
    yield batch


# Features: what they have in common.


def compare(workload: Workload, has_peer: bool) -> tuple[str, bool]:
  """Compares the windows of the last turns.

  Returns:
    What was found, in words, and whether the plain way's differ from ours.
  """
  import tensorflow as tf

  with contextlib.redirect_stdout(None):  # It says what it has opened.
    features = open_features(workload)
  ours = parse(features.read(range(len(features))), workload)
  plain = tf.data.TFRecordDataset(workload.plain_file)
  plain = parse(list(plain.as_numpy_iterator()), workload)
  same_count = len(plain["input_ids"]) == len(ours["input_ids"])
  different = len(ours["input_ids"])
  if same_count:
    different = np.zeros(different, bool)
    for name, values in ours.items():
      different |= (values != plain[name]).any(1)
    different = int(different.sum())
  text = (
    f"ours made {len(ours['input_ids']):,} windows, the plain way "
    f"{len(plain['input_ids']):,}; {different:,} differ"
  )
  if has_peer:
    text += f"\n{compare_with_peer(workload, features.example_of_row, ours)}"
  return text, bool(different)


def compare_with_peer(workload: Workload, examples, ours) -> str:
  """Compares the first windows of questions, which do not depend on strides."""
  count, first = 0, {}
  for batch in peer_features(workload):
    for example_id, ids in zip(
      batch["example_id"], batch["input_ids"], strict=True
    ):
      first.setdefault(example_id, ids)
      count += 1
  rows = np.unique(examples, return_index=True)[1]
  theirs = np.array(list(first.values()))
  different = (ours["input_ids"][rows] != theirs).any(1).sum()
  return (
    f"{contest.PEER} made {count:,} windows, which overlap by the stride; of "
    f"the first ones of the {len(theirs):,} questions {different:,} differ"
  )


def parse(records: list[bytes], workload: Workload) -> dict[str, np.ndarray]:
  """Reads W serialized windows, int64 [W, max_seq_length] and [W, 1]."""
  import tensorflow as tf

  names = ("input_ids", "input_mask", "segment_ids")
  sizes = {**dict.fromkeys(names, workload.max_seq_length), "unique_ids": 1}
  spec = {
    name: tf.io.FixedLenFeature([size], tf.int64)
    for name, size in sizes.items()
  }
  parsed = tf.io.parse_example(records, spec)
  return {name: values.numpy() for name, values in parsed.items()}


# Prediction: ours, what run_squad.py runs.


def open_run(workload: Workload, precision: str, padding_competes: bool):
  """Makes what run_squad.py predicts with, from its flags."""
  from bert import run_squad
  from bert.cli import devices, fine_tuning
  from bert.tasks import squad_data

  # A model answers in one of the two ways, and keeps to it.
  folder = workload.our_folder + "-padded" * padding_competes
  write_random_weights(workload, folder)
  contest.set_flags(
    run_squad.SquadSettings,
    predict_file=workload.data_file,
    vocab_file=workload.vocab_file,
    bert_config_file=workload.bert_config_file,
    output_dir=folder,
    max_seq_length=workload.max_seq_length,
    doc_stride=workload.doc_stride,
    max_query_length=workload.max_query_length,
    num_processes=workload.num_processes,
    predict_batch_size=workload.batch_size,
    precision=precision,
    padding_competes=padding_competes,
    do_predict=True,
  )
  with contextlib.redirect_stdout(None):  # It says what it has opened.
    settings = fine_tuning.read_settings(run_squad.SquadSettings)
    strategy = devices.make_strategy(settings)
    plan = run_squad.plan_threshold(settings)
    data = run_squad.open_data(settings, plan)
    run = fine_tuning.open_run(settings, data, strategy).__enter__()
    for examples in data.sets:
      squad_data.make_features(examples, run.local_folder)
    run.make_model(
      run_squad.create_model,
      functools.partial(run_squad.predict, settings=settings),
    )
    return run


def write_random_weights(workload: Workload, folder: str) -> None:
  """Leaves a model in a folder, as run_squad.py predicts with no other."""
  from bert import modeling, run_squad
  from bert.weights import checkpoints

  os.makedirs(folder, exist_ok=True)
  if not checkpoints.latest_checkpoint(folder):
    config = modeling.BertConfig.from_json_file(workload.bert_config_file)
    model = run_squad.create_model(config, None, "float32")
    checkpoints.save(folder, 1, checkpoints.model_variables(model), keep=1)


def make_sample(workload: Workload) -> str:
  """Makes our features if need be, and the `Sample`; says what is in it."""
  program = open_run(workload, "float32", padding_competes=False)
  [split] = program.data.test
  order = program.batch_order(split, workload.batch_size)
  lengths = split.features.lengths
  count = max(1, round(workload.windows / len(lengths) * len(order)))
  batches = (np.arange(count) + 0.5) * len(order) / count
  batches = batches.astype(int)
  rows = np.sort(np.concatenate([order[i] for i in batches]))
  features = parse(split.features.read(rows), workload)
  del features["unique_ids"]
  sample = Sample(batches=batches, rows=rows, **features)
  np.savez(workload.sample_file, **sample._asdict())
  return (
    f"predicting {len(rows):,} of {len(lengths):,} windows, {count} of "
    f"{len(order):,} batches; they have {lengths[rows].mean():.1f} tokens on "
    f"average, all have {lengths.mean():.1f}; a window is an example"
  )


@functools.cache
def load_sample(workload: Workload) -> Sample:
  with np.load(workload.sample_file) as file:
    return Sample(**file)


def make_our_prediction(
  workload: Workload, precision: str, padding_competes: bool
) -> contest.Turn:
  """Computes logits as run_squad.py does."""
  from bert.inputs import batch_order
  from bert.tasks import squad_data

  program = open_run(workload, precision, padding_competes)
  [split], sample = program.data.test, load_sample(workload)
  rows = sample.rows
  if padding_competes:
    # The batches of the whole file would hold other windows, equally long.
    order = batch_order.make_batches(rows, workload.batch_size, 0, True)
    order = [rows[indices] for indices in order]
  else:
    order = program.batch_order(split, workload.batch_size)
    order = [order[i] for i in sample.batches]
  parse_rows = program.parser(split)

  def run():
    logits = squad_data.compute_logits(
      program.predictor, split, parse_rows, order, program.local_folder
    )
    return logits[rows].sum()

  return contest.Turn(run, len(rows))


# Prediction: Hugging Face, what its run_qa.py runs.


def make_peer_prediction(workload: Workload, precision: str) -> contest.Turn:
  """Predicts windows padded to max_seq_length, as they come."""
  import torch

  model = contest.make_peer_model(
    "BertForQuestionAnswering", workload.bert_config_file
  )
  model = model.eval().to(getattr(torch, precision))
  sample = load_sample(workload)

  @torch.inference_mode()
  def run():
    logits = []
    for start in range(0, len(sample.rows), workload.batch_size):
      part = slice(start, start + workload.batch_size)
      result = model(
        input_ids=torch.from_numpy(sample.input_ids[part]),
        attention_mask=torch.from_numpy(sample.input_mask[part]),
        token_type_ids=torch.from_numpy(sample.segment_ids[part]),
      )
      pair = torch.stack([result.start_logits, result.end_logits])
      logits.append(pair.float().numpy())
    return np.concatenate(logits, axis=1).sum()

  return contest.Turn(run, len(sample.rows))


# By kind and name; the first one is compared with the others.
CONTESTANTS = {
  "features": {
    contest.OURS: contest.Contestant(make_our_features, "tensorflow", {}),
    "plain": contest.Contestant(make_plain_features, "tensorflow", {"": 4.0}),
    f"{contest.PEER}, fast": contest.Contestant(
      make_peer_features, "transformers", {"": 1.0}
    ),
  },
  "predict": {
    f"{contest.OURS}, bucketed": contest.Contestant(
      functools.partial(make_our_prediction, padding_competes=False),
      "tensorflow",
      {},
    ),
    f"{contest.OURS}, padded": contest.Contestant(
      functools.partial(make_our_prediction, padding_competes=True),
      "tensorflow",
      {},
    ),
    f"{contest.PEER}, padded": contest.Contestant(
      make_peer_prediction,
      "transformers",
      {"float32": 1.5, "bfloat16": 1.5},
    ),
  },
}


if __name__ == "__main__":
  sys.exit(main())
