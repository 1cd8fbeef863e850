"""Tests of create_pretraining_data.py as its users run it."""

import gzip
import json
import os
import signal

import psutil
import pytest

from bert import create_pretraining_data
from bert.cli import pretraining
import disk_events
import paths
import program_flags
import record_programs
from record_programs import PLAIN
import tiny

SHARDS = {"num_shards": 2, "documents_per_block": 2}


@pytest.fixture
def folder(tmp_path, write):
  write("vocab.txt", "\n".join(tiny.CORPUS_WORDS))
  write("text.txt", tiny.make_corpus(20))
  return tmp_path


def run(**flags):
  return program_flags.run_here(record_programs.command(PLAIN, **flags))


def records_in(path, compression=None):
  import tensorflow as tf  # Slow; only the tests of the records need it.

  dataset = tf.data.TFRecordDataset(str(path), compression_type=compression)
  return list(dataset.as_numpy_iterator())


def test_records_summary_and_files(folder):
  (folder / "more.txt.gz").write_bytes(
    gzip.compress(tiny.make_corpus(9, 1).encode())
  )
  flags = {"input_file": "text.txt,*.gz", "output_file": "new dir/a,new dir/b"}
  done = record_programs.run(PLAIN, **flags)
  assert (done.returncode, done.stderr) == (0, "")
  # The end of a file ends no document.
  assert (
    "28 documents, 145 sentences, 1,740 tokens (0.00% [UNK], 12.0 a sentence)"
    in done.stdout
  )
  a, b = records_in(folder / "new dir/a"), records_in(folder / "new dir/b")
  assert (
    "  wrote new dir/a, new dir/b\n  103 steps of 32 are 3.97 epochs of "
    f"{len(a) + len(b)} records\n  next: python {paths.ROOT}/run_pre"
  ) in done.stdout
  # What so few records train in minutes.
  config = "--bert_config_file=configs/bert_mini.json"
  assert f" '--input_file=new dir/a,new dir/b' {config} --v" in done.stdout
  assert "--num_train_steps=103 --num_warmup_steps=10 --do_train" in done.stdout
  assert sorted(os.listdir(folder / "new dir")) == ["a", "b"]
  assert f"{len(a) + len(b):,} records" in done.stdout
  assert len(a) - len(b) in (0, 1)


@pytest.mark.parametrize(
  ("names", "is_held_out"),
  [
    ("eval.tfrecord", True),
    ("wiki_valid.tfrecord", True),
    ("dev-0.rec,dev-1.rec", True),
    ("held_out.tfrecord", True),
    ("medieval.tfrecord", False),
    ("train.tfrecord,dev.tfrecord", False),
  ],
)
def test_held_out_records_are_not_to_be_trained_on(names, is_held_out, capsys):
  settings = pretraining.RecordFlags(
    input_file="", output_file="", vocab_file="vocab.txt"
  )
  pretraining.print_end(settings, names.split(","), 100, 0.0)
  said = capsys.readouterr().out
  assert ("--do_train" not in said) == is_held_out
  advice = f"give run_pretraining.py --eval_input_file={names} and --do_eval"
  assert (advice in said) == is_held_out


def test_the_next_command_of_one_job_of_several_is_for_all_of_them(capsys):
  settings = create_pretraining_data.PretrainingDataSettings(
    input_file="", output_file="my[1].rec", vocab_file="v.txt", num_shards=4
  )
  outputs = ["my[1].rec-00003-of-00004"]
  pretraining.print_end(settings, outputs, 1000, 0.0)
  lines = capsys.readouterr().out.splitlines()
  assert lines[1:4] == [
    "  wrote my[1].rec-00003-of-00004",
    "  what follows is for when all 4 jobs have ended",
    "  if each makes 1,000 records: 500 steps of 32 are 4.0 epochs of 4,000 "
    "records",
  ]
  assert " '--input_file=my[[]1].rec-*-of-00004' " in lines[4]
  assert " --num_train_steps=500 --num_warmup_steps=50 " in lines[4]


def test_records_without_masks_need_no_copies(folder):
  sizes = {}
  for name, flags in {
    "ten": {},
    "one": {"dupe_factor": 1},
    "bare": {"masks": False},
    "bare two": {"masks": False, "dupe_factor": 2},
    "rows": {"masks": False, "next_sentence": False},
  }.items():
    done = run(output_file=name, **flags)
    assert done.returncode == 0, done.stderr
    sizes[name] = len(records_in(folder / name))
  assert sizes["ten"] > 8 * sizes["one"]
  assert sizes["bare"] < 1.5 * sizes["one"]
  assert sizes["bare two"] > 1.5 * sizes["bare"]
  assert "--dynamic_masking=true --next_sentence=false\n" in done.stdout


def test_rows_of_a_column_are_documents(folder):
  documents = (folder / "text.txt").read_text().strip().split("\n\n")
  lines = [json.dumps({"title": "x", "text": text}) for text in documents]
  (folder / "text.jsonl").write_text("\n".join(lines))
  program_flags.succeed(record_programs.command(PLAIN, output_file="plain"))
  flags = {"input_file": "text.jsonl", "output_file": "column"}
  program_flags.assert_refused(
    run(**flags), "text.jsonl: JSON Lines, not plain text, with the keys title"
  )
  flags["text_column"] = "text"
  program_flags.succeed(record_programs.command(PLAIN, **flags))
  assert (folder / "plain").read_bytes() == (folder / "column").read_bytes()


def test_blocks_processes_and_compression(folder):
  for processes in (1, 2):
    flags = {"num_processes": processes, "output_file": f"out{processes}"}
    done = run(documents_per_block=3, compress=True, **flags)
    assert (done.returncode, done.stderr) == (0, "")
  assert (folder / "out1").read_bytes() == (folder / "out2").read_bytes()
  assert records_in(folder / "out1", "GZIP")


def test_shards_of_array_jobs_are_the_records_of_one_process(
  folder, monkeypatch
):
  flags = {"documents_per_block": 3, "output_file": "out"}
  assert run(**flags).returncode == 0
  flags["num_shards"] = 2
  for index in (0, 1):
    monkeypatch.setenv("JOB_COMPLETION_INDEX", str(index))
    done = run(**flags, num_processes=1 + index)
    assert (done.returncode, done.stderr) == (0, "")
  names = ["out-00000-of-00002", "out-00001-of-00002"]
  shards = [records_in(folder / name) for name in names]
  # Blocks take turns, in the order of the text.
  whole, rest = records_in(folder / "out"), [*map(iter, shards)]
  turn, ahead = 0, [next(records) for records in rest]
  for record in whole:
    turn = turn if record == ahead[turn] else 1 - turn
    assert record == ahead[turn]
    ahead[turn] = next(rest[turn], None)
  assert ahead == [None, None] and min(map(len, shards)) > 50
  again = run(**flags, shard_index=0)  # Before the variable.
  assert again.stdout == f"{names[0]} is there: delete it to make it again\n"

  # An array is sent again, but not with the same flags.
  for changed, part in (({"masked_lm_prob": 0.2}, "flags"), ({}, "text")):
    if not changed:
      with open(folder / "text.txt", "a") as file:
        file.write("\n\na b\nc d\n")
    line = run(**{**flags, **changed}, shard_index=0).stderr
    fault = f"{names[0]}: made with other {part}; delete it to make it again"
    assert line == f"{PLAIN}.py: error: {fault}\n"
  line = run(**{**flags, "num_shards": 3}, shard_index=1).stderr
  assert line == (
    f"{PLAIN}.py: error: {names[0]}: of another set of shards than "
    "out-00001-of-00003: delete one set, or name the files of the other alone\n"
  )


def test_one_job_may_have_a_number_and_write_several_files(folder):
  done = run(shard_index=0, output_file="a,b")
  assert (done.returncode, done.stderr) == (0, "")
  assert records_in(folder / "a") and records_in(folder / "b")


def test_documents_alone_in_their_blocks_are_counted(folder):
  (folder / "text.txt").write_text("a b\n\n\u200b\n\nc d\n\ne f\n")
  done = run(documents_per_block=2)
  assert done.returncode == 0
  assert done.stderr.startswith("note: 1 of them made no records: random next")


def test_a_warning_of_few_predictions(folder):
  (folder / "text.txt").write_text("a b c\n\n" * 9 + "d e\n\nf z\n")
  done = run(max_predictions_per_seq=3)
  assert done.returncode == 0
  assert "3.23% [UNK]" in done.stdout
  (few,) = done.stderr.splitlines()
  assert few.startswith("warning: --max_predictions_per_seq=3 masks fewer")


@pytest.mark.parametrize(
  ("flags", "message"),
  [
    ({"input_file": "latin.txt"}, "latin.txt:3: not UTF-8: b'"),
    ({"input_file": "cut.txt.gz"}, "cut.txt.gz: damaged compressed file"),
  ],
)
def test_bad_input_ends_in_one_line_and_loses_nothing(folder, flags, message):
  record_programs.write_bad_texts(folder)
  (folder / "out").write_text("old")
  before = {p: p.is_file() and p.read_bytes() for p in folder.iterdir()}
  done = run(**flags)
  program_flags.assert_refused(done, message)
  assert done.stdout == ""
  after = {p: p.is_file() and p.read_bytes() for p in folder.iterdir()}
  assert after == before


@pytest.mark.parametrize("number", ["x", "-1", "2", "1.0"])
def test_a_wrong_number_of_an_array_job_is_named(folder, number, monkeypatch):
  monkeypatch.setenv("SLURM_ARRAY_TASK_ID", number)
  message = f"SLURM_ARRAY_TASK_ID={number}: expected a number from 0 to 1"
  program_flags.assert_refused(run(**SHARDS), message)


@pytest.mark.parametrize("processes", [1, 2])
def test_an_error_in_the_middle_leaves_the_old_file(folder, processes):
  (folder / "out").write_text("old")
  with open(folder / "text.txt", "ab") as file:
    file.write(b"\n\nbad \xff")
  done = run(documents_per_block=2, num_processes=processes)
  program_flags.assert_refused(done, ": not UTF-8: b'bad \\xff'; convert it")
  assert (folder / "out").read_text() == "old"
  assert sorted(os.listdir(folder)) == ["out", "text.txt", "vocab.txt"]


@pytest.mark.parametrize("documents_per_block", [0, 2])
def test_a_full_disk_leaves_nothing_behind(folder, documents_per_block):
  with disk_events.limited_files(1 << 15):
    done = run(documents_per_block=documents_per_block, dupe_factor=99)
  program_flags.assert_refused(done, "error: out: File too large")
  assert sorted(os.listdir(folder)) == ["text.txt", "vocab.txt"]


@pytest.mark.parametrize("stop", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupted_run_can_be_repeated(folder, stop):
  (folder / "text.txt").write_text(tiny.make_corpus(400))
  flags = {"documents_per_block": 20, "num_processes": 2}
  workers = []

  def is_working(process):
    workers[:] = psutil.Process(process).children()
    return len(workers) > 3  # The first two keep loky's semaphores.

  record_programs.interrupt(PLAIN, stop, is_working, dupe_factor=1000, **flags)
  _, alive = psutil.wait_procs(workers, timeout=10)
  assert not alive
  assert run(dupe_factor=1, **flags).returncode == 0
  assert sorted(os.listdir(folder)) == ["out", "text.txt", "vocab.txt"]
