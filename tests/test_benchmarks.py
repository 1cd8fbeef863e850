"""Benchmarks: what they compute besides times, and the loop they call."""

import argparse
import ast
import functools
import importlib
import json
import math
import os
import re
import subprocess
import sys

import pytest

import bert
from bert.data import processor
import paths


def names_used(path):
  """Yields each of our modules in a file, with an attribute taken from it."""
  tree, modules = ast.parse(path.read_text()), {}
  for node in ast.walk(tree):
    if isinstance(node, ast.Import | ast.ImportFrom):
      package = f"{getattr(node, 'module', None) or ''}.".lstrip(".")
      for name in node.names:
        modules[name.asname or name.name] = package + name.name
  for node in ast.walk(tree):
    if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
      module = modules.get(node.value.id, "")
      if (paths.ROOT / f"{module.replace('.', '/')}.py").exists():
        yield module, node.attr


@pytest.mark.parametrize(
  "path", sorted((paths.ROOT / "benchmarks").glob("*.py")), ids=lambda p: p.stem
)
def test_benchmarks_call_what_there_is(path):
  """They take a few private functions, which no program would miss."""
  for module, name in names_used(path):
    assert hasattr(importlib.import_module(module), name), f"{module}.{name}"


def test_make_bench_starts_only_what_needs_no_flag():
  makefile = (paths.ROOT / "Makefile").read_text()
  left_out = re.search(r"BENCHMARKS := .*?,contest (.*?)\)", makefile, re.S)
  assert left_out
  need_a_flag = {
    path.stem
    for path in (paths.ROOT / "benchmarks").glob("*.py")
    if "required=True" in path.read_text()
  }
  assert "domain" in need_a_flag and need_a_flag <= set(left_out[1].split())


def test_contestants_load_their_own_libraries():
  """Their processes run the file of a benchmark before they choose one."""
  code = """
import runpy, sys
for path in sys.argv[1:]:
  runpy.run_path(path, run_name="__mp_main__")
  assert not {"tensorflow", "torch"} & sys.modules.keys(), path
"""
  files = [
    path
    for path in (paths.ROOT / "benchmarks").glob("*.py")
    if "contest.Contestant(" in path.read_text()
  ]
  assert len(files) > 3
  command = [sys.executable, "-c", code, *files]
  subprocess.run(command, cwd=paths.ROOT / "benchmarks", check=True)


@pytest.mark.slow
def test_an_update_of_fine_tuning(load_benchmark):
  memory = load_benchmark("memory")
  workload = memory.Workload("tiny", 2, 8, "float32", recompute=False)
  assert math.isfinite(memory.make_step(workload).run())


@pytest.mark.slow
@pytest.mark.parametrize(
  "name, amounts",
  [
    ("features", ["--sentences=64", "--padded_sentences=8"]),
    ("finetuning", ["--sentences=64", "--batches=2", "--batch_size=4"]),
  ],
)
def test_a_round_of_a_benchmark(name, amounts):
  """With a model so small, a missed aim is no fault."""
  if not (paths.SHARED / "data" / "glue").exists():
    pytest.skip(f"{paths.SHARED / 'data' / 'glue'} is absent")
  tiny = f"--bert_config_file={paths.ROOT / 'configs' / 'bert_tiny.json'}"
  command = [f"benchmarks/{name}.py", tiny, "--rounds=1", *amounts]
  result = subprocess.run(
    [sys.executable, *command], cwd=paths.ROOT, capture_output=True, text=True
  )
  assert result.returncode in (0, 1), result.stderr
  assert "Traceback" not in result.stderr
  assert "| ours, bucketed | " in result.stdout


@pytest.mark.slow
def test_jax_and_pytorch_make_an_update():
  for library in ("jax", "transformers"):
    pytest.importorskip(library, reason="needs jax and requirements/bench.txt")
  config = paths.ROOT / "configs" / "bert_tiny.json"
  command = ["benchmarks/gpu_update.py", f"--bert_config_file={config}"]
  command += ["--batch_sizes=8", "--rounds=1", "--precisions=float32"]
  result = subprocess.run(
    [sys.executable, *command],
    cwd=paths.ROOT,
    env={**os.environ, "JAX_PLATFORMS": "cpu", "CUDA_VISIBLE_DEVICES": "-1"},
    capture_output=True,
    text=True,
  )
  assert result.returncode == 0, result.stderr
  first, *_, ours, theirs = result.stdout.splitlines()
  assert float(first.rpartition(" ")[2]) < 1e-5
  assert ours.startswith("| ours, by JAX | ")
  assert theirs.startswith("| Hugging Face | ")


def run_large_data(folder, gigabytes):
  command = ["benchmarks/large_data.py", f"--output_dir={folder}"]
  command += [f"--gigabytes={gigabytes}", "--rounds=1"]
  result = subprocess.run(
    [sys.executable, *command], cwd=paths.ROOT, capture_output=True, text=True
  )
  assert not list(folder.iterdir())
  return result


def test_records_that_no_disk_has_room_for(tmp_path):
  result = run_large_data(tmp_path, 1e9)
  assert result.returncode == 1 and not result.stdout
  (line,) = result.stderr.splitlines()
  begin = f"large_data.py: --gigabytes=1e+09: {tmp_path} has room for "
  assert line.startswith(begin)


@pytest.mark.slow
def test_records_of_a_cold_disk(tmp_path):
  result = run_large_data(tmp_path, 0.01)
  assert result.returncode == 0, result.stderr
  _, _, _, _, *rows, training, share = result.stdout.splitlines()
  assert [row.split(" | ")[1] for row in rows] == ["16", "16", "1"]
  assert re.search(r"it keeps \d+\.\d%, \d+\.\d% by processor", training)
  assert re.fullmatch(r"the step needs \d+\.\d% of what was read", share)


@pytest.mark.parametrize(
  ("argument", "message"),
  [
    ("--isa=avx3", "argument --isa: invalid choice: 'avx3'"),
    ("--isa=avx2", "--isa=avx2: this processor lacks it: an old one"),
    ("--cores=0,4096", "argument --cores: found '0,4096'; expected numbers"),
    ("--cores=first", "argument --cores: found 'first'; expected numbers"),
    (
      "--precisions=int4",
      "--precisions=int4: expected ['float32', 'bfloat16']",
    ),
  ],
)
def test_a_limit_that_the_machine_does_not_have(
  load_benchmark, monkeypatch, capsys, argument, message
):
  monkeypatch.setattr(processor, "instruction_sets", lambda: [])
  monkeypatch.setattr(processor, "describe", lambda: "an old one")
  monkeypatch.setattr(sys, "argv", ["benchmark", argument])
  contest = load_benchmark("contest")
  with pytest.raises(SystemExit) as end:
    contest.parse(contest.make_parser("Times.", ["train"]))
  assert end.value.code == 2
  assert message in capsys.readouterr().err.splitlines()[-1]


def test_an_instruction_set_and_cores_hold_for_the_processes(
  load_benchmark, monkeypatch, capsys
):
  """They have both before they import a library, and compute in float32."""
  monkeypatch.setattr(processor, "instruction_sets", lambda: ["avx2"])
  contest = load_benchmark("contest")
  for name in contest.ISAS["avx2"]:
    monkeypatch.setenv(name, "")  # What it was before is put back.
  all_cores = os.sched_getaffinity(0)
  core = min(all_cores)
  command = ["benchmark", "--isa=avx2", f"--cores={core}"]
  monkeypatch.setattr(sys, "argv", command)
  try:
    arguments = contest.parse(contest.make_parser("Times.", ["train"]))
    machine = contest.describe_machine()
    with contest.start_process() as process:
      pinned = process.submit(os.sched_getaffinity, 0).result()
      held = process.submit(os.getenv, "ATEN_CPU_CAPABILITY").result()
  finally:
    os.sched_setaffinity(0, all_cores)
  assert (arguments.precisions, pinned, held) == (["float32"], {core}, "avx2")
  assert "held to AVX2" in machine

  monkeypatch.setattr(sys, "argv", [*command[:2], "--precisions=bfloat16"])
  with pytest.raises(SystemExit):
    contest.parse(contest.make_parser("Times.", ["train"]))
  assert "aborts in others with --isa=avx2" in capsys.readouterr().err


@pytest.mark.slow
def test_the_phases_until_the_first_update():
  pytest.importorskip("transformers", reason="needs requirements/bench.txt")
  if not (paths.SHARED / "data" / "glue").exists():
    pytest.skip(f"{paths.SHARED / 'data' / 'glue'} is absent")
  command = ["benchmarks/start.py", "--models=tiny", "--rounds=1"]
  command.append("--precisions=float32")
  result = subprocess.run(
    [sys.executable, *command], cwd=paths.ROOT, capture_output=True, text=True
  )
  assert result.returncode == 0, result.stderr
  *_, tracing, update, total, verdict, _ = result.stdout.splitlines()
  assert re.fullmatch(r"\| tracing( \| \d+\.\d\d){2}( \| -){2} \|", tracing)
  for line in update, total:
    assert re.fullmatch(r"\| .+( \| \d+\.\d\d){4} \|", line)
  assert verdict.startswith("ours takes ")


def test_a_table_of_phases(load_benchmark, capsys):
  """Medians of three rounds; the peer lacks one of the phases."""
  ours = [{"imports": (x, 2 * x), "model": (1, 2)} for x in (3.0, 2.0, 4.0)]
  theirs = [{"imports": (x, 9.0)} for x in (4.0, 5.0, 2.0)]
  load_benchmark("start").print_table("tiny", {"ours": ours, "theirs": theirs})
  lines = capsys.readouterr().out.splitlines()
  assert lines[1] == "| tiny | ours | processor | theirs | processor |"
  assert "| imports | 3.00 | 6.00 | 4.00 | 9.00 |" in lines
  assert "| model | 1.00 | 2.00 | - | - |" in lines
  assert lines[-3:-1] == [
    "| until the first update | 4.00 | 8.00 | 4.00 | 9.00 |",
    "ours takes 1.00 of the time",
  ]


def test_what_lost_too_much_since_it_was_kept(load_benchmark):
  """Less than 5 % is noise, and what was not kept cannot lose."""
  lines = load_benchmark("smoke").describe_losses(
    {"a": 0.8, "b": 0.5}, {"a": 0.74, "b": 0.48, "c": 0.1}
  )
  assert lines == ["a: 0.7400 of the yardstick, 0.8000 was kept: 7.5 % slower"]


@pytest.mark.slow
def test_the_guard_measures_keeps_and_compares(tmp_path):
  """What is kept is made a hundred times as fast, so that all has lost."""
  if not (paths.SHARED / "data" / "glue").exists():
    pytest.skip(f"{paths.SHARED / 'data' / 'glue'} is absent")
  tiny = f"--bert_config_file={paths.ROOT / 'configs' / 'bert_tiny.json'}"
  file = tmp_path / "smoke.json"
  command = [sys.executable, "benchmarks/smoke.py", tiny, f"--file={file}"]
  command += ["--kinds=prediction,records", "--precisions=float32"]
  command += ["--rounds=1", "--sentences=64", "--batches=2"]
  run = functools.partial(
    subprocess.run, cwd=paths.ROOT, capture_output=True, text=True
  )
  kept = run([*command, "--update"])
  assert kept.returncode == 0, kept.stderr
  [(machine, ratios)] = json.loads(file.read_text()).items()
  assert sorted(ratios) == ["prediction, float32", "records"]

  faster = {name: 100 * ratio for name, ratio in ratios.items()}
  file.write_text(json.dumps({machine: faster}))
  compared = run(command)
  assert compared.returncode == 1
  *_, prediction, records = compared.stdout.splitlines()
  assert prediction.startswith("prediction, float32: ")
  assert records.startswith("records: ") and "% slower" in records


def test_a_table_of_curves(load_benchmark):
  """Means and deviations of two seeds, at those steps that both have."""
  table = load_benchmark("pretraining_curves").table
  runs = [{100: [7.0, 0.1, 0.5], 300: [5.0, 0.2, 0.5]}, {100: [6.0, 0.2, 0.7]}]
  assert list(table({"tiny": runs})) == [
    "| model | steps | masked-LM loss | its accuracy | next sentence |",
    "|---|---|---|---|---|",
    "| tiny | 100 | 6.50 ± 0.71 | 0.150 ± 0.071 | 0.600 ± 0.141 |",
  ]


def test_mutations_change_texts_that_stand_in_the_code(load_benchmark):
  mutations = load_benchmark("mutations")
  for group in mutations.GROUPS.values():
    for old, new in group.mutations:
      assert mutations.find(paths.ROOT, group.files, old), old
      assert old != new
    assert all((paths.ROOT / test).exists() for test in group.tests)


@pytest.mark.parametrize(("old", "status"), [("a = 1", 0), ("b = 1", 1)])
def test_a_mutation_that_is_not_found_fails(
  load_benchmark, tmp_path, old, status
):
  mutations = load_benchmark("mutations")
  (tmp_path / "a.py").write_text("a = 1\n")
  (tmp_path / "test_a.py").write_text(
    "import a\n\n\ndef test(): assert a.a == 1"
  )
  group = mutations.Group(["a.py"], ["test_a.py"], [(old, "a = 2")])
  assert mutations.measure(tmp_path, "group", group) == status


def test_a_sentence_a_line(load_benchmark):
  split = load_benchmark("mini_corpus").split_sentences
  text = 'It rained, e.g. in Rome.  "So?" (He left.) At 5 p.m. it\nstopped.'
  assert split(text).split("\n") == [
    "It rained, e.g. in Rome.",
    '"So?" (He left.) At 5 p.m. it stopped.',
  ]


def test_a_rate_is_chosen_by_the_first_seed_and_shown_for_all(load_benchmark):
  transfer = load_benchmark("transfer")
  best = {(0.1, 1): 0.5, (0.2, 1): 0.7, (0.2, 2): 0.9}
  row = transfer.tune(
    lambda rate, seed: [0.1, best[rate, seed], 0.3],
    lambda rate, seed: best[rate, seed] / 2,
    rates=[0.1, 0.2],
    seeds=[1, 2],
  )
  assert row == (0.2, [[0.1, 0.7, 0.3], [0.1, 0.9, 0.3]], [0.35, 0.45])
  assert transfer.percent(row.test) == "40.0 ± 7.1"
  assert transfer.percent([0.5]) == "50.0" and not transfer.percent([])


def test_finished_trainings_are_not_made_again(load_benchmark, tmp_path):
  """The other rate was worse; a row of the table is written by hand."""
  real_results = load_benchmark("real_results")
  values = {"rates": [1e-4, 3e-4], "seeds": [1, 2], "epochs": 2}
  values |= {"output_dir": tmp_path, "weights": "bert", "libraries": ["ours"]}
  values |= {"precision": "bfloat16", "bias_correction": "true"}
  options = argparse.Namespace(**values, max_train_examples=None)
  plan = real_results.make_plans(tmp_path)["conll"]
  trainings = real_results.Trainings("conll", "ours", plan, options)
  rows = [
    trainings.key(1e-4, 1) | {"dev": [0.4, 0.5], "test": 0.1},
    trainings.key(3e-4, 1) | {"dev": [0.6, 0.4], "test": 0.5},
    trainings.key(3e-4, 2) | {"dev": [0.5, 0.8], "test": 0.7},
  ]
  timing = {"seconds": 60.0, "core_seconds": 110.0, "disturbance": 0.25}
  lines = [f"{json.dumps(row | timing)}\n" for row in rows]
  (tmp_path / "rows.jsonl").write_text("".join(lines))
  cells = ["conll", "f1", "ours", "0.0003", "70.0 ± 14.1", "60.0 ± 14.1"]
  [found] = real_results.compare("conll", plan, options)
  assert found == [*cells, "60", "110", "1.00", "25%"]


@pytest.mark.slow
@paths.needs_minilm
def test_a_row_of_both_libraries(tmp_path):
  folder = paths.SHARED / "data" / "glue"
  if not folder.exists():
    pytest.skip(f"{folder} is absent")
  command = ["benchmarks/real_results.py", f"--output_dir={tmp_path}"]
  command += ["--tasks=rte", "--rates=1e-4", "--seeds=1", "--epochs=1"]
  command += ["--max_train_examples=32"]
  for _ in range(2):  # The second time, both are read from rows.jsonl.
    result = subprocess.run(
      [sys.executable, *command], cwd=paths.ROOT, capture_output=True, text=True
    )
    assert result.returncode == 0, result.stderr
  assert not result.stderr
  _, _, _, ours, theirs = result.stdout.splitlines()
  assert ours.startswith("| rte | accuracy | ours | 0.0001 | ")
  assert theirs.startswith("| rte | accuracy | Hugging Face | 0.0001 | ")


@pytest.mark.slow
def test_long_texts_writes_a_model_that_answers(load_benchmark, tmp_path):
  folder = tmp_path / "model"
  code = load_benchmark("long_texts")._WRITE_MODEL
  command = [sys.executable, "-c", code, paths.ROOT / "models/mini", folder]
  subprocess.run(command, cwd=paths.ROOT, check=True)
  (answer,) = bert.load(str(folder))([{"question": "who?", "context": "ada"}])
  assert answer["answer"] in ("", "ada")


def test_a_field_s_corpus_has_no_sentence_of_the_test_part(
  load_benchmark, tmp_path
):
  domain = load_benchmark("domain")
  parts = {"train": "a\tO\nb\tB-D", "devel": "c\tO", "test": "d\tO\n\ne\tO"}
  parts = {f"{domain.TASK}/{name}.tsv": text for name, text in parts.items()}
  parts |= {
    "X-IOB/train.tsv": "a\tO\nb\tO\n\ne\tO\n\nf\tO\ng\tO\n",
    "X-IOB/test.tsv": "h\tO",
    "X-IOBES/train.tsv": "i\tO",
    "GENIA-pos/train.tsv": "j\tNN\n\n\nc\tNN\n",
  }
  for name, text in parts.items():
    path = tmp_path / "data" / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
  for command in (["init", "-q"], ["add", "."], ["commit", "-qm", "data"]):
    author = ["-c", "user.name=x", "-c", "user.email=x@example.org"]
    subprocess.run(["git", *author, *command], cwd=tmp_path, check=True)
  (tmp_path / "out").mkdir()
  domain.write_data(domain.Files(tmp_path), tmp_path / "out")
  corpus = (tmp_path / "out/corpus.txt").read_text()
  assert corpus == "j\n\na b\n\nf g\n"  # In the order of the folders.
  assert (tmp_path / "out/test.txt").read_text() == "d\tO\n\ne\tO\n"
  assert (tmp_path / "out/test_text.txt").read_text() == "d\ne\n"
