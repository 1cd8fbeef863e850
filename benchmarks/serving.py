"""Times predict.py's way of answering against a pipeline. Linux only.

python benchmarks/serving.py

Both have the same random weights: ours are exported by export_saved_model.py,
the peer's made of them by convert_checkpoint.py; the probabilities are compared
afterwards. Sentences are answered one by one (latency), and as a file of lines
(throughput). Last, the tokenizer in our graph takes turns with another one in a
graph, and the ids are compared with those of tokenization.py.
"""

import dataclasses
import itertools
import json
import operator
import os
import pathlib
import subprocess
import sys
import tempfile
import time
from typing import Any

import contest
import numpy as np

LABELS = ["negative", "positive"]
# The median of the peer's latencies by that of ours, at least.
LATENCY_TARGET = 1.5
MOST_DIFFERENCE = 1e-4  # Between probabilities.
# So often are all sentences tokenized in a turn, for once takes a moment.
TOKENIZER_PASSES = 20
# What makes the answers of random weights differ from sentence to sentence.
OUTPUT_SCALE = 20.0


@dataclasses.dataclass(frozen=True)
class Workload:
  """The sentences, and where the models are."""

  vocab_file: str
  bert_config_file: str
  max_seq_length: int
  batch_size: int  # Of the pipeline and of the tokenizers.
  sentences: int
  single_sentences: int
  folder: str  # For the models and the answers.

  @property
  def trained(self) -> str:
    """The folder of the weights, as a training leaves it."""
    return os.path.join(self.folder, "trained")

  @property
  def export(self) -> str:
    """Our SavedModel."""
    return os.path.join(self.folder, "export")

  @property
  def peer(self) -> str:
    """The same for Hugging Face."""
    return os.path.join(self.folder, "peer")

  @property
  def input_file(self) -> str:
    """The sentences, a line each."""
    return os.path.join(self.folder, "sentences.txt")

  def answers_file(self, name: str) -> str:
    """The path of the last answers of a contestant, a JSON line each."""
    return os.path.join(self.folder, f"{name}.jsonl")

  def latencies_file(self, name: str, turn: int) -> str:
    """The path of the milliseconds of a turn."""
    return os.path.join(self.folder, f"{name}-{turn}.npy")

  def read_lines(self) -> list[str]:
    """Reads the sentences."""
    text = pathlib.Path(self.input_file).read_text(encoding="utf-8")
    return text.splitlines()


def main() -> int:
  parser = contest.make_parser(__doc__, CONTESTANTS)
  parser.set_defaults(precisions=[""])
  data_dir = str(contest.DATA / "glue" / "SST-2")
  parser.add_argument("--data_dir", default=data_dir)
  parser.add_argument("--max_seq_length", type=int, default=128)
  parser.add_argument(
    "--batch_size", type=int, default=32, help="but for predict.py"
  )
  parser.add_argument("--sentences", type=int, default=2000, help="as a file")
  parser.add_argument(
    "--single_sentences", type=int, default=100, help="one by one"
  )
  options = vars(parser.parse_args())
  if contest.lacks_data(options, "data_dir", "vocab_file"):
    return 0
  rounds, kinds = options.pop("rounds"), options.pop("kinds")
  data_dir, _ = options.pop("data_dir"), options.pop("precisions")
  missed = 0
  with tempfile.TemporaryDirectory() as folder:
    workload = Workload(**options, folder=folder)
    with contest.start_process() as process:
      print(process.submit(write_inputs, data_dir, workload).result())
      if set(kinds) & {"latency", "throughput"}:
        process.submit(make_models, workload).result()
    for kind in kinds:
      group = kind, "", CONTESTANTS[kind]
      timings = contest.time_group(*group, workload, rounds)
      missed += contest.print_table(*group, timings)
      missed += CONCLUSIONS[kind](workload, timings)
      print(flush=True)
  return 1 if missed else 0


# The input.


def write_inputs(data_dir: str, workload: Workload) -> str:
  """Draws sentences and writes them, a line each; says what is in them."""
  import tokenization

  pool = [
    sentence
    for name in ("dev.tsv", "test.tsv")
    for sentence in read_column(os.path.join(data_dir, name), "sentence")
  ]
  count = min(workload.sentences, len(pool))
  random = np.random.default_rng(contest.SEED)
  lines = [pool[i] for i in random.choice(len(pool), count, replace=False)]
  text = "".join(f"{line}\n" for line in lines)
  pathlib.Path(workload.input_file).write_text(text, encoding="utf-8")
  tokenizer = tokenization.FullTokenizer(workload.vocab_file)
  lengths = [2 + len(tokenizer.encode(line)) for line in lines]
  return (
    f"{count:,} of the {len(pool):,} sentences of SST-2's dev.tsv and test.tsv,"
    f" drawn with the seed {contest.SEED}, of {np.mean(lengths):.1f} tokens"
  )


def read_column(path: str, name: str) -> list[str]:
  """Reads a column of a TSV file with a header."""
  header, *rows = pathlib.Path(path).read_text(encoding="utf-8").splitlines()
  column = header.split("\t").index(name)
  return [row.split("\t")[column].strip() for row in rows]


def make_models(workload: Workload) -> None:
  """Writes random weights, exports them and converts them."""
  write_weights(workload)
  run_program(
    "export_saved_model.py",
    model_dir=workload.trained,
    vocab_file=workload.vocab_file,
    export_dir=workload.export,
    max_seq_length=workload.max_seq_length,
  )
  run_program(
    "convert_checkpoint.py",
    input=workload.trained,
    vocab_file=workload.vocab_file,
    output=workload.peer,
  )


def write_weights(workload: Workload) -> None:
  """Writes what a training of a classifier leaves."""
  import keras

  from data import files
  import heads
  import modeling
  from training import loop
  from weights import checkpoints

  keras.utils.set_random_seed(contest.SEED)
  config = modeling.BertConfig.from_json_file(workload.bert_config_file)
  model = heads.ClassifierModel(config, len(LABELS))
  model.output_weights.assign(OUTPUT_SCALE * model.output_weights.value)
  folder = pathlib.Path(workload.trained)
  folder.mkdir()
  (folder / "bert_config.json").write_text(config.to_json_string())
  settings = {
    "problem": "single_label",
    "do_lower_case": True,
    "vocab_file_sha256": files.hash_file(workload.vocab_file),
  }
  (folder / "settings.json").write_text(json.dumps(settings))
  (folder / "labels.txt").write_text("\n".join(LABELS) + "\n")
  checkpoints.save(str(folder), 1, loop.model_variables(model), keep=1)


def run_program(name: str, **values: Any) -> None:
  """Runs one of our programs; what it prints is shown if it fails."""
  flags = [f"--{name}={value}" for name, value in values.items()]
  command = [sys.executable, str(contest.ROOT / name), *flags]
  result = subprocess.run(command, capture_output=True, text=True)
  if result.returncode:
    raise RuntimeError(f"{name} failed:\n{result.stderr}")


# One sentence at a time.


def time_each(workload: Workload, name: str, answer) -> contest.Turn:
  """Makes a turn that answers sentences one by one and notes how long it took.

  Args:
    workload: the sentences are the first of its file.
    name: of the contestant.
    answer: takes a sentence, and returns the text of a line of JSON.
  """

  lines = workload.read_lines()[: workload.single_sentences]
  numbers = itertools.count()

  def run():
    milliseconds, characters = [], 0
    for line in lines:
      start = time.perf_counter()
      characters += len(answer(line))
      milliseconds.append(1e3 * (time.perf_counter() - start))
    np.save(workload.latencies_file(name, next(numbers)), milliseconds)
    return characters

  return contest.Turn(run, len(lines))


def make_our_latency(workload: Workload) -> contest.Turn:
  """Answers a line as predict.py does when no other has come yet."""
  import predict
  from serving import request_lines

  model, settings = load_ours(workload)
  most_tokens = settings.batch_size * model.facts.max_seq_length

  def answer(line):
    window = [request_lines.Line(model.encode({"text": line}), {"index": 0})]
    (result,) = predict.answer_window(model, window, most_tokens)
    return json.dumps(result, ensure_ascii=False)

  return time_each(workload, contest.OURS, answer)


def make_peer_latency(workload: Workload) -> contest.Turn:
  pipeline = make_pipeline(workload)
  return time_each(
    workload, contest.PEER, lambda line: json.dumps(pipeline(line)[0])
  )


def load_ours(workload: Workload):
  """Loads our SavedModel as predict.py does; returns its settings, too."""
  from cli import flag_values
  import predict
  from serving import exported_model

  contest.set_flags(
    predict.define_flags,
    export_dir=workload.export,
    input_file=workload.input_file,
    output_file=workload.answers_file(contest.OURS),
  )
  settings = flag_values.read()
  return exported_model.ExportedModel(settings.export_dir), settings


def make_pipeline(workload: Workload):
  """Makes Hugging Face's pipeline, which gives the probabilities of labels."""
  import torch
  import transformers

  torch.set_num_threads(os.cpu_count())
  return transformers.pipeline(
    "text-classification",
    model=workload.peer,
    tokenizer=workload.peer,
    device="cpu",
    top_k=None,
    truncation=True,
    max_length=workload.max_seq_length,
  )


def judge_latency(workload: Workload, timings: contest.Timings) -> int:
  """Prints the latencies of all turns; returns whether the target is missed."""
  print("\n| milliseconds | median | 99th percentile | ours is |")
  print("|---|---|---|---|")
  found = {}
  for name in timings:
    paths = map(workload.latencies_file, itertools.repeat(name), range(1, 999))
    turns = map(np.load, itertools.takewhile(os.path.exists, paths))
    found[name] = np.percentile(np.concatenate(list(turns)), [50, 99])
  missed = 0
  for name, values in found.items():
    verdict = ""
    if name != contest.OURS:
      ratios = values / found[contest.OURS]
      verdict = f"{ratios[0]:.2f} and {ratios[1]:.2f} times as fast"
      verdict += f" (target {LATENCY_TARGET})"
      missed += ratios[0] < LATENCY_TARGET
    print(f"| {name} | {values[0]:.1f} | {values[1]:.1f} | {verdict} |")
  all_turns = itertools.chain.from_iterable(timings.values())
  is_calm = not any(map(contest.is_disturbed, all_turns))
  return int(missed > 0 and is_calm)


# A file of sentences.


def make_our_throughput(workload: Workload) -> contest.Turn:
  """Answers the lines of a file as predict.py does, into another."""
  import predict

  model, settings = load_ours(workload)
  clock = predict.Clock(is_verbose=False)
  return contest.Turn(
    lambda: float(predict.answer_lines(model, settings, clock)),
    len(workload.read_lines()),
  )


def make_peer_throughput(workload: Workload) -> contest.Turn:
  """Gives the pipeline the list of lines, and writes its answers."""
  pipeline = make_pipeline(workload)

  def run():
    lines = workload.read_lines()
    answers = pipeline(lines, batch_size=workload.batch_size)
    text = "".join(f"{json.dumps(answer)}\n" for answer in answers)
    pathlib.Path(workload.answers_file(contest.PEER)).write_text(text)
    return len(answers)

  return contest.Turn(run, len(workload.read_lines()))


def judge_throughput(workload: Workload, timings: contest.Timings) -> int:
  """Compares the last answers; returns whether they differ."""
  if contest.PEER not in timings:
    return 0
  ours, theirs = (
    np.array(list(map(read, read_answers(workload, name))))
    for name, read in (
      (contest.OURS, lambda row: list(row["probabilities"].values())),
      (contest.PEER, by_label),
    )
  )
  difference = np.abs(ours - theirs).max()
  print(
    f"the probabilities differ by {difference:.1g} at most; of the second label"
    f" they are from {ours[:, 1].min():.3f} to {ours[:, 1].max():.3f}"
  )
  return int(not difference <= MOST_DIFFERENCE)


def read_answers(workload: Workload, name: str) -> list[Any]:
  text = pathlib.Path(workload.answers_file(name)).read_text(encoding="utf-8")
  return list(map(json.loads, text.splitlines()))


def by_label(answer: list[dict[str, Any]]) -> list[float]:
  """Returns a pipeline's scores, which it sorts, in the order of LABELS."""
  scores = {row["label"]: row["score"] for row in answer}
  return [scores[label] for label in LABELS]


# The tokenizer in the graph.


def make_our_tokenizer(workload: Workload) -> contest.Turn:
  return time_tokenizer(workload, encode_ours(workload))


def make_fast_bert(workload: Workload) -> contest.Turn:
  return time_tokenizer(workload, encode_fast_bert(workload))


def encode_ours(workload: Workload):
  """Returns the function from strings [B] to ids [B, (T)]."""
  from export import tf_tokenization

  return tf_tokenization.TfTokenizer(workload.vocab_file).encode


def encode_fast_bert(workload: Workload):
  """Returns the same of tensorflow-text's own tokenizer for BERT."""
  import tensorflow_text

  import tokenization

  # It takes neither empty nor repeated tokens.
  vocab = tokenization.load_vocab(workload.vocab_file)
  inverse = {index: token for token, index in vocab.items() if token.strip()}
  tokens = [
    inverse.get(i, f"[no token {i}]") for i in range(max(vocab.values()) + 1)
  ]
  tokenizer = tensorflow_text.FastBertTokenizer(
    tokens, lower_case_nfd_strip_accents=True
  )
  return lambda texts: tokenizer.tokenize(texts)


def time_tokenizer(workload: Workload, encode) -> contest.Turn:
  """Makes a turn that encodes all sentences in batches, several times."""
  import tensorflow as tf

  def count(texts):
    return tf.size(encode(texts).flat_values)

  spec = [tf.TensorSpec([None], tf.string)]
  function = tf.function(count, input_signature=spec)
  lines, size = workload.read_lines(), workload.batch_size
  batches = [
    tf.constant(lines[i : i + size]) for i in range(0, len(lines), size)
  ]

  def run():
    return sum(
      int(function(batch)) for _ in range(TOKENIZER_PASSES) for batch in batches
    )

  return contest.Turn(run, TOKENIZER_PASSES * len(lines))


def judge_tokenizer(workload: Workload, timings: contest.Timings) -> int:
  """Counts the sentences with other ids; returns whether ours has some."""
  with contest.start_process() as process:
    counts = process.submit(count_differing, workload).result()
  for name, count in counts.items():
    print(f"{name}: {count:,} sentences have other ids than tokenization.py")
  return int(counts[contest.OURS] > 0)


def count_differing(workload: Workload) -> dict[str, int]:
  """Returns, by contestant, how many sentences get other ids."""
  import tokenization

  lines = workload.read_lines()
  tokenizer = tokenization.FullTokenizer(workload.vocab_file)
  expected = list(map(tokenizer.encode, lines))
  encoders = {contest.OURS: encode_ours, FAST_BERT: encode_fast_bert}
  return {
    name: sum(map(operator.ne, make(workload)(lines).to_list(), expected))
    for name, make in encoders.items()
  }


FAST_BERT = "FastBertTokenizer"
# By kind and name; the first one is compared with the others.
CONTESTANTS = {
  "latency": {
    contest.OURS: contest.Contestant(make_our_latency, "tensorflow", {}),
    # Its target is that of the medians, see `judge_latency`.
    contest.PEER: contest.Contestant(make_peer_latency, "transformers", {}),
  },
  "throughput": {
    contest.OURS: contest.Contestant(make_our_throughput, "tensorflow", {}),
    contest.PEER: contest.Contestant(
      make_peer_throughput, "transformers", {"": 2.0}
    ),
  },
  "tokenizer": {
    contest.OURS: contest.Contestant(make_our_tokenizer, "tensorflow", {}),
    FAST_BERT: contest.Contestant(make_fast_bert, "tensorflow_text", {}),
  },
}
CONCLUSIONS = {
  "latency": judge_latency,
  "throughput": judge_throughput,
  "tokenizer": judge_tokenizer,
}


if __name__ == "__main__":
  sys.exit(main())
