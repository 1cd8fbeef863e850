"""Measures the tests with mutmut: each expression changed, one at a time.

  pip install -r requirements/mutants.txt
  python benchmarks/mutants.py --output_dir=/tmp/mutants --files tokenization

mutmut makes every change that it knows (`<` becomes `<=`, 1 becomes 2, an
argument disappears) and runs the tests that call the changed function. Prints
how many changes the tests notice in each file, and writes survivors.txt, a line
for each change that they do not notice. Those in equivalent_mutants.txt, beside
this script, change nothing that could be seen; each has its reason there.

A killed run resumes. It measures HEAD, in a copy: the checkout stays as it is.
After you have written tests for what survived, --retry tries that again. Eight
files take hours. mutmut leaves constants of modules and decorated functions as
they are; mutations.py changes some of those.
"""

import argparse
import ast
import collections
from collections.abc import Iterator, Sequence
import difflib
import inspect
import json
import multiprocessing
import os
import pathlib
import re
import shutil
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[1]
EQUIVALENT = pathlib.Path(__file__).with_name("equivalent_mutants.txt")

# A file, by its place in the package, and the tests that run for its mutants.
FILES = {
  "bert/tokenization.py": [
    "tests/test_tokenization.py",
    "tests/test_fuzz_tokenization.py",
    "tests/data/test_packing.py",
    "tests/vocabularies/test_extension.py",
    "tests/tasks/test_masked_words.py",
  ],
  "bert/data/pretraining_data.py": [
    "tests/data/test_pretraining_data.py",
    "tests/inputs/test_dynamic_masking.py",
    "tests/contrib/test_word_masks.py",
  ],
  "bert/training/same_run.py": [
    "tests/training/test_same_run.py",
    "tests/training/test_run_records.py",
    "tests/training/test_phases.py",
  ],
  "bert/weights/checkpoints.py": [
    "tests/weights",
    "tests/test_damaged_files.py",
  ],
  "bert/optimization.py": [
    "tests/test_optimization.py",
    "tests/training/test_clipping.py",
    "tests/training/test_step.py",
  ],
  "bert/training/step.py": [
    "tests/training/test_step.py",
    "tests/training/test_clipping.py",
    "tests/training/test_gradient_cache.py",
    "tests/training/test_loop.py",
  ],
  "bert/modeling.py": [
    "tests/test_modeling.py",
    "tests/test_heads.py",
  ],
  "bert/heads.py": [
    "tests/test_heads.py",
    "tests/test_losses.py",
    "tests/test_modeling.py",
  ],
}

_SETTINGS = """
[tool.mutmut]
source_paths = ["bert"]
only_mutate = {files}
also_copy = {others}
process_isolation = "forkserver"
forkserver_warmup = "import"
preload_modules_file = "preloaded.txt"
pytest_add_cli_args = ["-p", "no:cacheprovider", "--deselect={deadly}"]
pytest_add_cli_args_test_selection = {tests}
timeout_multiplier = 10.0
timeout_constant = 5.0
"""

# Its worker dies on purpose; without a pool of workers, the tests do.
_DEADLY = (
  "tests/data/test_pretraining_data.py::"
  "test_a_process_that_dies_is_an_error_with_the_cure"
)
# What is imported once, before processes are forked: nothing that computes, for
# TensorFlow's threads would not survive. Some test files do at their import.
_PRELOADED = ["hypothesis", "bert.run_classifier", "bert.run_pretraining"]
_NOT_COPIED = {"bert", "mutants", "shared"}  # By mutmut, where it runs tests.

# What a mutant's exit status says. pytest has 0 if all passed; mutmut adds 33
# if no test calls the function.
_STATUS = {None: "not run", 0: "survived", 33: "not tested"}


def main() -> None:
  parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
  parser.add_argument("--output_dir", type=pathlib.Path, required=True)
  names = [pathlib.Path(file).stem for file in FILES]
  parser.add_argument("--files", nargs="*", default=names, choices=names)
  parser.add_argument("--processes", type=int, default=2)
  parser.add_argument(
    "--retry",
    action="store_true",
    help="run what survived once more, with the tests of the checkout",
  )
  arguments = parser.parse_args()

  copy = arguments.output_dir / "copy"
  if not copy.exists():
    make_copy(copy)
  wanted: list[int | None] = [None]
  if arguments.retry:
    shutil.copytree(ROOT / "tests", copy / "tests", dirs_exist_ok=True)
    wanted = list(_STATUS)

  settings = (copy / "pyproject.toml").read_text(encoding="utf-8")
  settings = settings.split("\n[tool.mutmut]")[0]
  equivalent = {
    line.split("  # ")[0]
    for line in EQUIVALENT.read_text(encoding="utf-8").splitlines()
  }
  survivors = []
  for file, tests in FILES.items():
    if pathlib.Path(file).stem not in arguments.files:
      continue
    others = sorted({path.name for path in copy.glob("[!.]*")} - _NOT_COPIED)
    added = _SETTINGS.format(
      files=[*FILES], tests=tests, others=others, deadly=_DEADLY
    )
    (copy / "pyproject.toml").write_text(settings + added, encoding="utf-8")
    run_mutmut(copy, file, arguments.processes, wanted)

    statuses = collections.Counter()
    for status, change in outcomes(copy, file):
      if status != "noticed" and change in equivalent:
        status = "equivalent"
      statuses[status] += 1
      if status in ("survived", "not tested"):
        survivors.append(f"{change}  # {status}")
    print(f"{file:32} {dict(statuses)}", flush=True)
  path = arguments.output_dir / "survivors.txt"
  path.write_text("\n".join([*survivors, ""]), encoding="utf-8")
  print(f"  wrote {path}: {len(survivors)} changes that no test notices")


def make_copy(copy: pathlib.Path) -> None:
  """Copies HEAD, and the programs and nouns into bert/, as a wheel has them.

  There the name of a module is its path, by which mutmut finds its mutants.
  """
  copy.mkdir(parents=True)
  archive = subprocess.check_output(["git", "archive", "HEAD"], cwd=ROOT)
  subprocess.run(["tar", "-x"], cwd=copy, input=archive, check=True)
  for path in copy.glob("*.py"):
    shutil.copy(path, copy / "bert")

  (copy / "preloaded.txt").write_text("\n".join(_PRELOADED), encoding="utf-8")

  # mutmut runs the tests a folder deeper, so that the data beside a checkout
  # are in the copy.
  (copy / "shared").symlink_to(ROOT.parent / "shared")


def run_mutmut(
  copy: pathlib.Path, file: str, processes: int, wanted: Sequence[int | None]
) -> None:
  """Runs the mutants of a file whose status is one of the wanted ones."""
  # Which tests call which function: each file has other tests.
  (copy / "mutants" / "mutmut-stats.json").unlink(missing_ok=True)
  module = file.removesuffix(".py").replace("/", ".")
  names = [f"{module}.*"]
  done = copy / "mutants" / f"{file}.meta"
  if done.exists():
    codes = json.loads(done.read_text())["exit_code_by_key"]
    names = [name for name, code in codes.items() if code in wanted]
  if names:
    command = ["run", "--max-children", str(processes), *names]
    # A process for each file, because mutmut runs once in a process.
    process = multiprocessing.get_context("spawn").Process(
      target=call_mutmut, args=(copy, command)
    )
    process.start()
    process.join()
    if process.exitcode:
      sys.exit(f"mutmut ended with {process.exitcode}; see {log_of(copy)}")


def log_of(copy: pathlib.Path) -> pathlib.Path:
  return copy.with_name("log.txt")


def call_mutmut(copy: pathlib.Path, command: list[str]) -> None:
  """Calls mutmut with two things more than it does itself."""
  with log_of(copy).open("ab") as log:
    for descriptor in (1, 2):
      os.dup2(log.fileno(), descriptor)
  os.chdir(copy)
  sys.path[0] = ""  # Instead of benchmarks/.

  from mutmut import __main__
  from mutmut.mutation import trampoline
  from mutmut.runners import harness
  from mutmut.state import state

  # Keras asks for signatures in a way that ignores `__wrapped__`.
  wrap = trampoline.wrap_in_trampoline

  def wrap_with_signature(*arguments, **keywords):
    decorate = wrap(*arguments, **keywords)

    def decorate_with_signature(function):
      wrapped = decorate(function)
      wrapped.__signature__ = inspect.signature(function)
      return wrapped

    return decorate_with_signature

  trampoline.wrap_in_trampoline = wrap_with_signature

  # The fast tests find most mutants: they run first.
  runner = harness.PytestRunner
  choose = runner._pytest_args_regular_run

  def choose_in_order(self, tests):
    seconds = state().duration_by_test
    return choose(self, sorted(tests, key=lambda test: seconds.get(test, 0.0)))

  runner._pytest_args_regular_run = choose_in_order
  __main__.cli(command)


def outcomes(copy: pathlib.Path, file: str) -> Iterator[tuple[str, str]]:
  """Yields for each mutant if the tests noticed it, and what it changes."""
  tree = ast.parse((copy / "mutants" / file).read_text(encoding="utf-8"))
  functions = {
    node.name: ast.unparse(node).replace(node.name, "", 1).splitlines()
    for node in ast.walk(tree)
    if isinstance(node, ast.FunctionDef)
  }
  codes = json.loads((copy / "mutants" / f"{file}.meta").read_text())
  for key, code in codes["exit_code_by_key"].items():
    name = key.rsplit(".", 1)[1]
    original = re.sub(r"__mutmut_\d+$", "__mutmut_orig", name)
    lines = difflib.unified_diff(
      functions[original], functions[name], lineterm="", n=0
    )
    change = " ".join(
      f"{line[0]} {line[1:].strip()}"
      for line in lines
      if not line.startswith(("---", "+++", "@@"))
    )
    yield (
      _STATUS.get(code, "noticed"),
      f"{file}: {original.removesuffix('__mutmut_orig')}: {change}",
    )


if __name__ == "__main__":
  main()
