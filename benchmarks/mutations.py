"""Measures the tests: changes one formula at a time and runs what should fail.

  python benchmarks/mutations.py --revision=HEAD

Prints a line per mutation, "caught" or "survived", and a sum per group. If the
text of a mutation is not found, the exit status is 1: mend the table. The
mutations are made in a copy: the checkout stays as it is. Needs git, what the
tests need and, for the tests of golden cases, ../shared. Takes half an hour.
"""

import argparse
import pathlib
import subprocess
import sys
import tempfile
from typing import NamedTuple

ROOT = pathlib.Path(__file__).resolve().parents[1]


class Group(NamedTuple):
  """A part of the code, the tests that protect it, and ten mutations.

  Each mutation is the old text, which stands in one of the files once, and the
  new text. Files are tried in their order.
  """

  files: list[str]
  tests: list[str]
  mutations: list[tuple[str, str]]


GROUPS = {
  "tokenization": Group(
    ["tokenization.py", "bert/data/packing.py"],
    [
      "tests/test_tokenization.py",
      "tests/test_fuzz_tokenization.py",
      "tests/data/test_packing.py",
    ],
    [
      ("(0x3400, 0x4DBF)", "(0x3400, 0x4DB0)"),
      ('category(char) == "Mn"', 'category(char) == "Mc"'),
      (r'char in "\0\ufffd"', r'char in "\0"'),
      ("(sources[-1][0], place + 1)", "(sources[-1][0], place)"),
      ("len(word) > self.max_input", "len(word) >= self.max_input"),
      ('not char.isalnum() and char != " "', 'char not in "$+<=>^`|~ "'),
      ("max(total // 2, total", "max((total + 1) // 2, total"),
      ('normalize("NFD"', 'normalize("NFC"'),
      (r'chunk.isascii() or "\u03a3" in chunk', "chunk.isascii()"),
      ("[1] * (len(ids_b) + 1)", "[1] * len(ids_b) + [0]"),
    ],
  ),
  "pretraining_data": Group(
    ["bert/data/pretraining_data.py"],
    ["tests/data/test_pretraining_data.py"],
    [
      ("round(len(tokens) * settings", "int(len(tokens) * settings"),
      ("rng.random() < 0.8", "rng.random() < 0.9"),
      ("rng.random() >= 0.5", "rng.random() >= 0.4"),
      ("range(length_a, len(tokens) - 1)", "range(length_a, len(tokens))"),
      ("end - start == 1 or rng.random() < 0.5", "rng.random() < 0.5"),
      ("end = split", "end += 0"),
      (
        "len(positions) + len(word) <= wanted",
        "len(positions) + len(word) < wanted",
      ),
      ("block += ahead", "block = ahead"),
      ("if end_a - start_a > end_b", "if end_a - start_a >= end_b"),
      ('b"\\1" if pair.is_random', 'b"\\1" if not pair.is_random'),
    ],
  ),
  "squad": Group(
    [
      "bert/tasks/squad_metrics.py",
      "bert/tasks/squad_features.py",
      "bert/data/packing.py",
    ],
    [
      "tests/tasks/test_squad_metrics.py",
      "tests/tasks/test_squad_features.py",
      "tests/data/test_packing.py",
    ],
    [
      (r"\b(a|an|the)\b", r"\b(a|an)\b"),
      ("filter(None, ", "filter(str.isalpha, "),
      ("if version_2 and not (given", "if not (given"),
      ("2 * precision * recall / (precision + recall)", "precision * recall"),
      ("np.where(has_answer, scores, -1.0)", "np.where(has_answer, scores, 0)"),
      ("np.diff(sorted_odds) > 0", "np.diff(sorted_odds) >= 0"),
      ("windows[i].length - 1 - left", "windows[i].length - left"),
      ("max_seq_length - len(query) - 3", "max_seq_length - len(query) - 2"),
      ("end >= window.start + window", "end > window.start + window"),
      ("else min(left, right)", "else max(left, right)"),
    ],
  ),
  "optimization": Group(
    ["optimization.py"],
    ["tests/test_optimization.py", "tests/training/test_clipping.py"],
    [
      ("init_lr * (1.0 - done", "init_lr * (1.1 - done"),
      ("tf.where(step < num_warmup", "tf.where(step <= num_warmup"),
      ("tf.minimum(1.0, CLIP_NORM", "tf.minimum(2.0, CLIP_NORM"),
      ("0.9, 0.999, 1e-6", "0.9, 0.999, 1e-8"),
      ("v_correction + EPSILON", "v_correction - EPSILON"),
      ("direction += ", "direction -= "),
      ('"LayerNorm"', '"LayerNorms"'),
      ("layerwise_lr_decay**count", "layerwise_lr_decay ** (count + 1)"),
      ("tf.where(row_norms > 0.0, row_norms, halves)", "halves + 0.0"),
      ("math.ceil(epochs", "math.floor(epochs"),
    ],
  ),
  "modeling": Group(
    ["modeling.py", "bert/encoders/compiled.py"],
    ["tests/test_modeling.py", "tests/test_golden.py", "tests/encoders"],
    [
      ("MASKED_SCORE = -10000.0", "MASKED_SCORE = -10.0"),
      ("LAYER_NORM_EPSILON = 1e-12", "LAYER_NORM_EPSILON = 1e-3"),
      ("(tf.nn.gelu, approximate=True)", "(tf.nn.gelu, approximate=False)"),
      ("tf.float32) / math.sqrt(", "tf.float32) * math.sqrt("),
      ("tf.float32) * (1.0 / (1.0 - rate)), x", "tf.float32), x"),
      ("bits >= round(rate * 2**16)", "bits >= round(rate * 2**15)"),
      ("self.dense(hidden[:, 0])", "self.dense(hidden[:, -1])"),
      ("words + segments + positions", "words + positions"),
      ("fold_in(seed, i)", "fold_in(seed, 0)"),
      ("stddev=config.initializer_range", "stddev=0.3"),
    ],
  ),
}


def main() -> None:
  parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
  parser.add_argument("--revision", default="HEAD", help="a commit")
  parser.add_argument("--groups", nargs="*", default=list(GROUPS))
  arguments = parser.parse_args()

  # A copy of the commit: work that is not committed is not measured.
  command = ["git", "archive", arguments.revision]
  archive = subprocess.check_output(command, cwd=ROOT)
  with tempfile.TemporaryDirectory() as folder:
    copy = pathlib.Path(folder, "copy")
    copy.mkdir()
    subprocess.run(["tar", "-x"], cwd=copy, input=archive, check=True)

    # What the original computed lies next to a checkout, and tests look there.
    copy.with_name("shared").symlink_to(ROOT.parent / "shared")

    missing = 0
    for name in arguments.groups:
      missing += measure(copy, name, GROUPS[name])

  sys.exit(1 if missing else 0)


def measure(root: pathlib.Path, name: str, group: Group) -> int:
  """Prints the outcome of each mutation; returns how many are not found."""
  if fails(root, group.tests):
    raise SystemExit(f"{name}: the tests fail without any mutation")

  # Each mutation stands alone: the file is restored before the next one.
  outcomes = []
  for old, new in group.mutations:
    path = find(root, group.files, old)
    outcome = "no such text"
    if path:
      text = path.read_text(encoding="utf-8")
      path.write_text(text.replace(old, new), encoding="utf-8")
      outcome = "caught" if fails(root, group.tests) else "survived"
      path.write_text(text, encoding="utf-8")
    outcomes.append(outcome)
    print(f"{name:16} {outcome:12} {old}  ->  {new}", flush=True)

  caught = outcomes.count("caught")
  print(f"{name:16} {caught} of {len(outcomes)} caught", flush=True)
  return outcomes.count("no such text")


def find(root: pathlib.Path, files: list[str], old: str) -> pathlib.Path | None:
  """Returns the first file that has a text once."""
  for path in map(root.joinpath, files):
    if path.exists() and path.read_text(encoding="utf-8").count(old) == 1:
      return path
  return None


def fails(root: pathlib.Path, tests: list[str]) -> bool:
  """Returns whether one of the tests fails."""
  # An older --revision may lack some of the files.
  existing = [test for test in tests if (root / test).exists()]

  # Without caches: a mutation may leave the size and the second of a file as
  # they were, and Python would take the compiled file of the text before.
  command = [sys.executable, "-B", "-m", "pytest", "-x", "-q", *existing]
  command += ["-p", "no:cacheprovider"]
  status = subprocess.run(command, cwd=root, capture_output=True).returncode
  return status != 0


if __name__ == "__main__":
  main()
