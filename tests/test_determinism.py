"""Two runs with one seed leave the same files, byte for byte.

tests/test_programs.py has the same for the programs that train.
"""

import os
import subprocess

import numpy as np
import pytest

from bert.weights import checkpoints
import paths
import program_flags
import tiny
import tiny_models


@pytest.fixture(name="folder", scope="module")
def write_inputs(tmp_path_factory):
  """A model, texts for it, a corpus, and a vocabulary of two words more."""
  folder = tmp_path_factory.mktemp("inputs")
  tiny_models.write_masked_lm(folder)
  (folder / "in.txt").write_text("the [MASK] was [MASK]\na very [MASK] plot\n")
  lines = [tiny.make_text(number, tiny.GOOD + tiny.BAD) for number in range(40)]
  lines = [line + "\n" * (n % 5 == 0) for n, line in enumerate(lines)]
  (folder / "corpus.txt").write_text("\n".join(lines))
  (folder / "longer.txt").write_text(
    (folder / "vocab.txt").read_text() + "more\nrows\n"
  )
  return folder


def make_twice(tmp_path, program, flag, flags, run=program_flags.run_here):
  """Runs a program twice; returns what it writes where a flag says."""
  for name in ("first", "second"):
    (tmp_path / name).mkdir()
    written = {flag: tmp_path / name / "out"}
    result = run(program_flags.command(program, **flags, **written))
    assert result.returncode == 0, result.stderr
  first, second = (paths.contents(tmp_path / n) for n in ("first", "second"))
  assert first
  return first, second


RECORDS = {
  "input_file": "corpus.txt",
  "vocab_file": "vocab.txt",
  "max_seq_length": 32,
  "max_predictions_per_seq": 5,
}
TEXTS = {
  "input_file": "in.txt",
  "output_format": "jsonl",
  "bert_config_file": "config.json",
  "vocab_file": "vocab.txt",
  "init_checkpoint": ".",
  "max_seq_length": 16,
}
# With tokens whose vectors are random.
CONVERSION = {
  "input": ".",
  "bert_config_file": "config.json",
  "vocab_file": "longer.txt",
  "resize_vocab": 21,
}
ADDED = {
  "input": ".",
  "bert_config_file": "config.json",
  "add_tokens": "longer.txt",
  "new_rows": "random",
}


@pytest.mark.parametrize(
  ("program", "flags"),
  [
    ("create_vocab", {"input_file": "corpus.txt", "vocab_size": 60}),
    ("create_pretraining_data", RECORDS),
    ("create_pretraining_data", {**RECORDS, "documents_per_block": 3}),
    ("extract_features", {**TEXTS, "layers": "-1,0"}),
    ("fill_mask", {**TEXTS, "top_k": 3}),
    ("convert_checkpoint", CONVERSION),
    ("convert_checkpoint", {**CONVERSION, "output_format": "hugging_face"}),
    ("convert_checkpoint", ADDED),
  ],
)
def test_two_runs_of_a_program_write_the_same(
  program, flags, folder, tmp_path, monkeypatch
):
  monkeypatch.chdir(folder)
  flag = "output" if program == "convert_checkpoint" else "output_file"
  first, second = make_twice(tmp_path, program, flag, flags)
  assert paths.differences(first, second) == []


@pytest.mark.slow
def test_export_saved_model_and_predict(tmp_path):
  """In processes of their own: each numbers the functions it makes.

  fingerprint.pb holds a random number beside the digests of the rest.
  """
  tiny_models.write_trained(tmp_path / "trained")
  flags = {"model_dir": tmp_path / "trained"}
  flags["vocab_file"] = tmp_path / "trained" / "vocab.txt"
  run = program_flags.run_command
  first, second = make_twice(
    tmp_path, "export_saved_model", "export_dir", flags, run
  )
  assert paths.differences(first, second) == ["out/fingerprint.pb"]
  answers = [
    run(program_flags.command("predict", export_dir=path, text="a good film"))
    for path in tmp_path.glob("*/out")
  ]
  assert answers[0].stdout == answers[1].stdout != ""


@pytest.mark.slow
def test_cores_change_the_weights_by_rounding_alone(tmp_path):
  """On another number of cores, sums are added up in another order."""
  command = tiny.prepare("run_classifier", tmp_path)
  weights = []
  for cores in (1, 2, 2):
    out = tmp_path / str(len(weights))
    subprocess.run(
      [*command, f"--output_dir={out}"],
      check=True,
      capture_output=True,
      preexec_fn=lambda cores=cores: os.sched_setaffinity(
        0, sorted(os.sched_getaffinity(0))[:cores]
      ),
    )
    prefix = checkpoints.latest_checkpoint(str(out))
    values = dict(checkpoints.read(prefix))
    weights.append(np.concatenate([np.ravel(v) for v in values.values()]))

  one, two, again = weights
  np.testing.assert_array_equal(two, again)
  distance = np.linalg.norm(one - two) / np.linalg.norm(two)
  assert distance < 1e-6
