"""Two runs with one seed leave the same files, byte for byte.

Curves aside, which hold the time.
"""

import json
import random

import pytest

import program_flags
import tiny
import tiny_models

WORDS = ["fine", "finer", "finest", "walk", "walked", "talk", "talking", "the"]


def read_all(folder):
  """Returns what the files of a folder hold, but for those that hold times."""
  return {
    str(path.relative_to(folder)): path.read_bytes()
    for path in folder.rglob("*")
    if path.is_file()
    and "tfevents" not in path.name
    and path.name != "report.html"
  }


def assert_same_files(first, second):
  """Compares what `read_all` returns."""
  assert sorted(first) == sorted(second)
  for name, content in first.items():
    assert second[name] == content, name


def assert_repeatable(folder, command, flag, least):
  """Runs a command twice; compares what it writes.

  Args:
    folder: to run in.
    command: the command line.
    flag: names the flag that says where to write.
    least: how many files it writes, at least.
  """
  written = []
  for name in ("first", "second"):
    (folder / name).mkdir()
    path = folder / name / "out"
    result = program_flags.run_here([*command, f"--{flag}={path}"])
    assert result.returncode == 0, result.stderr
    written.append(read_all(folder / name))
  assert len(written[0]) >= least
  assert_same_files(*written)


@pytest.fixture(name="corpus")
def write_corpus(tmp_path):
  source = random.Random(1)
  documents = [
    "\n".join(" ".join(source.choices(WORDS, k=9)) for _ in range(5))
    for _ in range(8)
  ]
  path = tmp_path / "corpus.txt"
  path.write_text("\n\n".join(documents) + "\n")
  return path


def test_create_vocab(corpus, tmp_path):
  command = program_flags.command(
    "create_vocab", input_file=corpus, vocab_size=40
  )
  assert_repeatable(tmp_path, command, "output_file", 1)


@pytest.mark.parametrize("flags", [{}, {"documents_per_block": 3}])
def test_create_pretraining_data(flags, corpus, tmp_path):
  (tmp_path / "vocab.txt").write_text("\n".join([*tiny.SPECIAL, *WORDS]) + "\n")
  command = program_flags.command(
    "create_pretraining_data",
    input_file=corpus,
    vocab_file=tmp_path / "vocab.txt",
    max_seq_length=32,
    max_predictions_per_seq=5,
    **flags,
  )
  assert_repeatable(tmp_path, command, "output_file", 1)


@pytest.mark.slow
@pytest.mark.parametrize("program", tiny.TRAINERS)
def test_programs_that_train(program, tmp_path):
  """With dropout, evaluations and, but for pre-training, predictions."""
  command = tiny.prepare(program, tmp_path)
  config = json.loads((tmp_path / "config.json").read_text())
  dropout = {"hidden_dropout_prob": 0.1, "attention_probs_dropout_prob": 0.1}
  (tmp_path / "config.json").write_text(json.dumps({**config, **dropout}))
  assert_repeatable(tmp_path, command, "output_dir", 6)


@pytest.fixture(name="model_folder", scope="module")
def write_model(tmp_path_factory):
  folder = tmp_path_factory.mktemp("model")
  tiny_models.write_masked_lm(folder)
  lines = ["the [MASK] was [MASK]", "a very [MASK] plot"]
  (folder / "in.txt").write_text("\n".join(lines) + "\n")
  return folder


@pytest.mark.parametrize(
  ("program", "flags"),
  [("extract_features", {"layers": "-1,0"}), ("fill_mask", {"top_k": 3})],
)
def test_programs_that_apply_a_model(program, flags, model_folder, tmp_path):
  flags = tiny_models.masked_lm_flags(
    model_folder,
    input_file=model_folder / "in.txt",
    output_format="jsonl",
    **flags,
  )
  command = program_flags.command(program, **flags)
  assert_repeatable(tmp_path, command, "output_file", 1)


@pytest.mark.parametrize("kind", ["google", "hugging_face"])
def test_convert_checkpoint(kind, model_folder, tmp_path):
  """With tokens whose vectors are random."""
  vocabulary = (model_folder / "vocab.txt").read_text()
  (tmp_path / "vocab.txt").write_text(vocabulary + "more\nand\n")
  command = program_flags.command(
    "convert_checkpoint",
    input=model_folder,
    bert_config_file=model_folder / "config.json",
    vocab_file=tmp_path / "vocab.txt",
    resize_vocab=len(vocabulary.split()) + 2,
    output_format=kind,
  )
  assert_repeatable(tmp_path, command, "output", 4)


@pytest.mark.slow
def test_export_saved_model_and_predict(tmp_path):
  """In processes of their own: each numbers the functions it makes.

  fingerprint.pb holds a random number beside the digests of the rest.
  """
  trained = tmp_path / "trained"
  tiny_models.write_trained(trained)
  written, answers = [], []
  for name in ("first", "second"):
    result = tiny_models.export(trained, export_dir=tmp_path / name)
    assert result.returncode == 0, result.stderr
    written.append(read_all(tmp_path / name))
    assert written[-1].pop("fingerprint.pb")
    result = tiny_models.run(
      "predict.py", b"a good film\nthe plot\n", export_dir=tmp_path / name
    )
    assert result.returncode == 0, result.stderr
    answers.append(result.stdout)
  assert_same_files(*written)
  assert answers[0] == answers[1]
  assert len(answers[0].splitlines()) == 2
