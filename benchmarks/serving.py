"""Times predict.py's way of answering against a pipeline. Linux only.

python benchmarks/serving.py

All have the same random weights: ours are exported by export_saved_model.py for
ONNX Runtime (in float32 and int8; OpenVINO runs the first one, too) and
TensorFlow, the peer's made of them by convert_checkpoint.py; the probabilities
are compared afterwards. Processes start and answer one sentence (start);
sentences are answered one by one (latency), and as a file of lines
(throughput). Last, the tokenizer in our graph
takes turns with another one in a graph, and the ids are compared with those of
tokenization.py.
"""

import dataclasses
import functools
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
INT8, TENSORFLOW = "ours, int8", "ours, TensorFlow"
OPENVINO = "ours, OpenVINO"
LIBRARIES = {TENSORFLOW: "tensorflow", OPENVINO: "openvino"}
# The folders of our exports, by contestant.
EXPORTS = {
  contest.OURS: "onnx",
  INT8: "int8",
  OPENVINO: "onnx",
  TENSORFLOW: "saved_model",
}
# Batch sizes of the pipeline; its best one counts.
PEER_SIZES = (8, 32)
PEERS = {f"{contest.PEER}, batch {size}": size for size in PEER_SIZES}
# How many times as fast as the peer each must be.
LATENCY_TARGETS = {contest.OURS: 1.4, INT8: 4.0, OPENVINO: 2.5}
THROUGHPUT_TARGETS = {contest.OURS: 2.0, INT8: 3.0}
MOST_START = 1.0  # Seconds from the start of a process to its answer.
# Between probabilities and the peer's. Those of int8 and of OpenVINO, which may
# compute in bfloat16, are only printed: random weights, of which small
# differences make an answer, tell nothing about them.
MOST_DIFFERENCE = 1e-4
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
  batch_size: int  # For the tokenizers.
  sentences: int
  single_sentences: int
  folder: str  # For the models and the answers.

  @property
  def trained(self) -> str:
    """The folder of the weights, as a training leaves it."""
    return os.path.join(self.folder, "trained")

  def export(self, name: str) -> str:
    """The export of a contestant of ours."""
    return os.path.join(self.folder, EXPORTS[name])

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

  def latencies_file(self, kind: str, name: str, turn: int) -> str:
    """The path of the milliseconds of a turn."""
    return os.path.join(self.folder, f"{kind}-{name}-{turn}.npy")

  def read_lines(self) -> list[str]:
    """Reads the sentences."""
    text = pathlib.Path(self.input_file).read_text(encoding="utf-8")
    return text.splitlines()


def main() -> int:
  parser = contest.make_parser(__doc__, CONTESTANTS)
  data_dir = str(contest.DATA / "glue" / "SST-2")
  parser.add_argument("--data_dir", default=data_dir)
  parser.add_argument("--max_seq_length", type=int, default=128)
  parser.add_argument(
    "--batch_size", type=int, default=32, help="of the tokenizers"
  )
  parser.add_argument("--sentences", type=int, default=2000, help="as a file")
  parser.add_argument(
    "--single_sentences", type=int, default=100, help="one by one"
  )
  options = vars(contest.parse(parser))
  if contest.lacks_data(options, "data_dir", "vocab_file"):
    return 0
  rounds, kinds = options.pop("rounds"), options.pop("kinds")
  data_dir, _ = options.pop("data_dir"), options.pop("precisions")
  missed = 0
  with tempfile.TemporaryDirectory() as folder:
    workload = Workload(**options, folder=folder)
    with contest.start_process() as process:
      print(process.submit(write_inputs, data_dir, workload).result())
      if set(kinds) & {"start", "latency", "throughput"}:
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
  from bert import tokenization

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
  for name, format in ((contest.OURS, "onnx"), (TENSORFLOW, "saved_model")):
    run_program(
      "export_saved_model.py",
      model_dir=workload.trained,
      vocab_file=workload.vocab_file,
      export_dir=workload.export(name),
      format=format,
    )
  paths = workload.trained, workload.vocab_file, workload.export(INT8)
  paths = map(os.path.abspath, paths)
  command = [sys.executable, "-c", _WRITE_INT8, *paths]
  subprocess.run(command, cwd=contest.ROOT, check=True, capture_output=True)
  run_program(
    "convert_checkpoint.py",
    input=workload.trained,
    vocab_file=workload.vocab_file,
    output=workload.peer,
  )


def write_weights(workload: Workload) -> None:
  """Writes what a training of a classifier leaves."""
  import keras

  from bert import heads, modeling
  from bert.data import files
  from bert.weights import checkpoints

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
  prediction = {
    "max_seq_length": workload.max_seq_length,
    "doc_stride": None,
    "window_pooling": "mean",
    "has_text_pair": False,
  }
  (folder / "prediction.json").write_text(json.dumps(prediction))
  checkpoints.save(str(folder), 1, checkpoints.model_variables(model), keep=1)


# In a process of its own: this file has the name of a package. Random weights
# would pass no comparison.
_WRITE_INT8 = """
import os, sys
from bert.export import exporting, model_functions, trained_models
trained_dir, vocab_file, folder = sys.argv[1:]
os.mkdir(folder)
trained = trained_models.load_output_dir(trained_dir, vocab_file)
graph = model_functions.ModelFunctions(trained, vocab_file)
exporting._write(folder, graph, "onnx", quantizes=True)
"""


def run_program(name: str, **values: Any) -> None:
  """Runs one of our programs; what it prints is shown if it fails."""
  flags = [f"--{name}={value}" for name, value in values.items()]
  command = [sys.executable, str(contest.ROOT / name), *flags]
  result = subprocess.run(command, capture_output=True, text=True)
  if result.returncode:
    raise RuntimeError(f"{name} failed:\n{result.stderr}")


# A process that answers one sentence.

_PEER_START = """
import sys, torch, transformers
pipeline = transformers.pipeline(
  "text-classification", model=sys.argv[1], tokenizer=sys.argv[1],
  device="cpu", top_k=None)
print(pipeline(sys.argv[2]), flush=True)
"""


def make_our_start(name: str, workload: Workload) -> contest.Turn:
  script = str(contest.ROOT / "predict.py")
  line = workload.read_lines()[0]
  flags = [f"--export_dir={workload.export(name)}", f"--text={line}"]
  flags += ["--engine=openvino"] if name == OPENVINO else []
  return time_process(workload, name, [script, *flags])


def make_peer_start(workload: Workload) -> contest.Turn:
  line = workload.read_lines()[0]
  code = ["-c", _PEER_START, workload.peer, line]
  return time_process(workload, contest.PEER, code)


def time_process(
  workload: Workload, name: str, arguments: list[str]
) -> contest.Turn:
  """Makes a turn that runs Python once; notes its answer's time, its memory."""
  numbers = itertools.count()

  def run():
    start = time.perf_counter()
    process = subprocess.Popen(
      [sys.executable, *arguments],
      stdout=subprocess.PIPE,
      stderr=subprocess.DEVNULL,
    )
    answer = process.stdout.readline()
    seconds = time.perf_counter() - start
    process.stdout.close()
    _, status, usage = os.wait4(process.pid, 0)
    if status:
      raise RuntimeError(f"{name} ended with status {status}")
    path = workload.latencies_file("start", name, next(numbers))
    np.save(path, [seconds, usage.ru_maxrss / 2**10])
    return len(answer)

  return contest.Turn(run, 1)


def judge_start(workload: Workload, timings: contest.Timings) -> int:
  """Prints seconds and memory; returns whether a target is missed."""
  print("\n| process | seconds | peak MB |")
  print("|---|---|---|")
  found = {
    name: np.median(read_turns(workload, "start", name), 0) for name in timings
  }
  for name, (seconds, memory) in found.items():
    print(f"| {name} | {seconds:.2f} | {memory:.0f} |")
  print(f"targets: {MOST_START} s, half of the memory of TensorFlow")
  missed = [
    name
    for name in (contest.OURS, INT8)
    if found[name][0] > MOST_START or found[name][1] > found[TENSORFLOW][1] / 2
  ]
  return int(bool(missed) and is_calm(timings))


def read_turns(workload: Workload, kind: str, name: str) -> list[np.ndarray]:
  """Reads the notes of a contestant's turns but the first, which warms up."""
  paths = (workload.latencies_file(kind, name, i) for i in range(1, 999))
  return list(map(np.load, itertools.takewhile(os.path.exists, paths)))


def is_calm(timings: contest.Timings) -> bool:
  """Returns whether no turn was disturbed."""
  all_turns = itertools.chain.from_iterable(timings.values())
  return not any(map(contest.is_disturbed, all_turns))


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
    path = workload.latencies_file("latency", name, next(numbers))
    np.save(path, milliseconds)
    return characters

  return contest.Turn(run, len(lines))


def make_our_latency(name: str, workload: Workload) -> contest.Turn:
  """Answers a line as predict.py does when no other has come yet."""
  model, settings = load_ours(workload, name)
  tokens = settings.batch_size * model.card.max_seq_length

  def answer(line):
    [result] = model.answer([model.maker.encode({"text": line})], tokens)
    return json.dumps({"index": 0, **result}, ensure_ascii=False)

  return time_each(workload, name, answer)


def make_peer_latency(workload: Workload) -> contest.Turn:
  pipeline = make_pipeline(workload)
  return time_each(
    workload, contest.PEER, lambda line: json.dumps(pipeline(line)[0])
  )


def load_ours(workload: Workload, name: str):
  """Loads an export as predict.py does; returns it and the flags."""
  from bert import predict
  from bert.serving import exported_model

  contest.set_flags(
    predict.PredictSettings,
    export_dir=workload.export(name),
    input_file=workload.input_file,
    output_file=workload.answers_file(name),
  )
  engine = "openvino" if name == OPENVINO else ""
  model = exported_model.ExportedModel(workload.export(name), engine=engine)
  if engine:
    print(f"computing with {model.engine_name}", file=sys.stderr)
  return model, predict.PredictSettings.read()


def make_pipeline(workload: Workload):
  """Makes Hugging Face's pipeline, which gives the probabilities of labels."""
  import torch
  import transformers

  torch.set_num_threads(len(os.sched_getaffinity(0)))
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
  """Prints the latencies of all turns; returns whether a target is missed."""
  print("\n| milliseconds | median | 99th percentile | faster than the peer |")
  print("|---|---|---|---|")
  found = {}
  for name in timings:
    turns = np.concatenate(read_turns(workload, "latency", name))
    found[name] = np.percentile(turns, [50, 99])
  missed = False
  for name, values in found.items():
    verdict = ""
    if name in LATENCY_TARGETS and contest.PEER in found:
      ratios, target = found[contest.PEER] / values, LATENCY_TARGETS[name]
      verdict = f"{ratios[0]:.2f} and {ratios[1]:.2f} times (target {target})"
      missed |= bool(ratios[0] < target)
    print(f"| {name} | {values[0]:.1f} | {values[1]:.1f} | {verdict} |")
  return int(missed and is_calm(timings))


# A file of sentences.


def make_our_throughput(name: str, workload: Workload) -> contest.Turn:
  """Answers the lines of a file as predict.py does, into another."""
  from bert import predict

  model, settings = load_ours(workload, name)

  def run():
    return float(predict.answer_lines(model, settings))

  return contest.Turn(run, len(workload.read_lines()))


def make_peer_throughput(name: str, workload: Workload) -> contest.Turn:
  """Gives the pipeline the list of lines, and writes its answers."""
  pipeline = make_pipeline(workload)

  def run():
    lines = workload.read_lines()
    answers = pipeline(lines, batch_size=PEERS[name])
    text = "".join(f"{json.dumps(answer)}\n" for answer in answers)
    pathlib.Path(workload.answers_file(contest.PEER)).write_text(text)
    return len(answers)

  return contest.Turn(run, len(workload.read_lines()))


def judge_throughput(workload: Workload, timings: contest.Timings) -> int:
  """Compares speeds and the last answers; returns whether one is missed."""
  peers = [timings[name] for name in PEERS if name in timings]
  if not peers:
    return 0
  missed = False
  for name, target in THROUGHPUT_TARGETS.items():
    ratios = [
      ours.speed / max(peer.speed for peer in theirs)
      for ours, *theirs in zip(timings[name], *peers, strict=True)
    ]
    ratio = np.median(ratios)
    missed |= bool(ratio < target)
    print(f"{name}: {ratio:.2f} times the peer at its best (target {target})")
  theirs = np.array(list(map(by_label, read_answers(workload, contest.PEER))))
  for name in EXPORTS:
    rows = read_answers(workload, name)
    ours = np.array([list(row["probabilities"].values()) for row in rows])
    difference = np.abs(ours - theirs).max()
    print(f"{name}: probabilities differ from the peer's by {difference:.1g}")
    if name not in (INT8, OPENVINO) and not difference <= MOST_DIFFERENCE:
      return 1
  low, high = theirs[:, 1].min(), theirs[:, 1].max()
  print(f"of the second label they are from {low:.3f} to {high:.3f}")
  return int(missed and is_calm(timings))


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
  from bert.export import tf_tokenization

  return tf_tokenization.make_tokenizer(workload.vocab_file).encode


def encode_fast_bert(workload: Workload):
  """Returns the same of tensorflow-text's own tokenizer for BERT."""
  import tensorflow_text

  from bert import tokenization

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
  from bert import tokenization

  lines = workload.read_lines()
  tokenizer = tokenization.FullTokenizer(workload.vocab_file)
  expected = list(map(tokenizer.encode, lines))
  encoders = {contest.OURS: encode_ours, FAST_BERT: encode_fast_bert}
  return {
    name: sum(map(operator.ne, make(workload)(lines).to_list(), expected))
    for name, make in encoders.items()
  }


FAST_BERT = "FastBertTokenizer"


def make_ours(make) -> contest.Contestants:
  """Makes a contestant of each of our exports, the first one first."""
  return {
    name: contest.Contestant(
      functools.partial(make, name),
      LIBRARIES.get(name, "onnxruntime"),
      {},
    )
    for name in EXPORTS
  }


# By kind and name; the first one is compared with the others.
CONTESTANTS = {
  "start": {
    **make_ours(make_our_start),
    contest.PEER: contest.Contestant(make_peer_start, "transformers", {}),
  },
  "latency": {
    **make_ours(make_our_latency),
    contest.PEER: contest.Contestant(make_peer_latency, "transformers", {}),
  },
  "throughput": {
    **make_ours(make_our_throughput),
    **{
      name: contest.Contestant(
        functools.partial(make_peer_throughput, name), "transformers", {}
      )
      for name in PEERS
    },
  },
  "tokenizer": {
    contest.OURS: contest.Contestant(make_our_tokenizer, "tensorflow", {}),
    FAST_BERT: contest.Contestant(make_fast_bert, "tensorflow_text", {}),
  },
}
CONCLUSIONS = {
  "start": judge_start,
  "latency": judge_latency,
  "throughput": judge_throughput,
  "tokenizer": judge_tokenizer,
}


if __name__ == "__main__":
  sys.exit(main())
