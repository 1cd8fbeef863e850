"""The line about letters that lower-casing strips, and who prints it."""

import json
import os

import pytest

from bert.inputs import feature_files, feature_sets
from bert.tasks import classification, multiple_choice, squad, tagging
from bert.vocabularies import lost_letters
import program_flags
import tiny
import tiny_models

HINDI = "\u0928\u092e\u0938\u094d\u0924\u0947"  # Six signs, two of them marks.
STRIPPED = "\u0928\u092e\u0938\u0924"
GA, KA = "\u304c", "\u304b"  # The first is the second with a dakuten.


@pytest.mark.parametrize(
  ("texts", "share", "example", "made"),
  [
    ([HINDI], "33.3%", HINDI, STRIPPED),
    (["abc", f"{KA}{KA}\u3002{GA}"], "14.3%", f"{KA}{KA}\u3002{GA}", None),
    (["x" * 90_000, "\xe9" * 10_000], "9.1%", "\xe9" * 6, "e" * 6),
  ],
)
def test_the_share_and_an_example(texts, share, example, made, capsys):
  lost_letters.report(texts, "some.txt")
  made = made or example.replace(GA, KA)
  [line] = capsys.readouterr().err.splitlines()
  assert line.startswith(
    f"note: some.txt: lower-casing strips {share} of the letters and signs, "
    f"so that {example!r} becomes {made!r}; "
  )


def test_no_line_about_a_few_accents_or_what_is_not_looked_at(capsys):
  lost_letters.report(["a" * 199 + "\xe9"], "some.txt")
  lost_letters.report(["a" * 100_000, HINDI], "some.txt")
  lost_letters.report(["", " 12 "], "some.txt")
  assert capsys.readouterr().err == ""


@pytest.mark.parametrize("lower", [True, False])
@pytest.mark.parametrize("program", ["create_vocab", "create_pretraining_data"])
def test_programs_that_read_text_print_it_once(tmp_path, program, lower):
  path = tmp_path / "hi.txt"
  path.write_text(f"{HINDI}\n\n{HINDI}\n" * 50, encoding="utf-8")
  tiny.write_model(tmp_path)
  flags = {"input_file": path, "output_file": tmp_path / "out"}
  if program == "create_pretraining_data":
    flags["vocab_file"] = tmp_path / "vocab.txt"
  result = program_flags.succeed(
    program_flags.command(program, **flags, do_lower_case=lower)
  )
  expected = f"note: {path}: lower-casing strips 33.3% of the letters"
  assert result.stderr.count(expected) == int(lower)


def test_letters_that_json_escapes_are_counted(tmp_path, capsys):
  path = tmp_path / "hi.jsonl"
  path.write_text(json.dumps({"text": HINDI}))
  tiny.write_model(tmp_path)
  vocab_file = str(tmp_path / "vocab.txt")
  lost_letters.report_file(str(path), vocab_file, True, "text")
  assert "strips 33.3% of the letters" in capsys.readouterr().err


def test_a_model_of_sentence_pieces_keeps_marks(tmp_path):
  path = tmp_path / "hi.txt"
  path.write_text(f"{HINDI} {STRIPPED} abc\n" * 50, encoding="utf-8")
  flags = {"input_file": path, "output_file": tmp_path / "new.model"}
  flags |= {"model": "unigram", "vocab_size": 20}
  result = program_flags.succeed(program_flags.command("create_vocab", **flags))
  assert "lower-casing strips" not in result.stderr


def test_the_texts_of_all_kinds_of_examples():
  examples = [
    classification.Example("1", "a", "b", "pos", "x.tsv:1", None),
    squad.Question("1", "c", "d", None, "x.json"),
    multiple_choice.Example("1", "e", "", ("f", "g"), 0, "x.csv:2"),
    tagging.Sentence(("h",), None, 0, "", 1, "h", ((0, 1),)),
  ]
  found = list(feature_sets.texts_of(examples))
  assert sorted(found) == ["a", "b", "c", "d", "e", "f", "g", "h"]


def test_features_that_are_made_print_it_once(tmp_path, capsys):
  tiny.write_model(tmp_path)
  path = tmp_path / "train.tsv"
  path.write_text(f"{HINDI}\tpos\n", encoding="utf-8")
  settings = feature_sets.FeatureSettings(str(tmp_path / "vocab.txt"), True, 16)

  def read(path):
    yield classification.Example("0", HINDI, None, "pos", f"{path}:1", None)

  def make():
    data = feature_sets.find_set(read, "train", str(path), settings)
    row = feature_files.Row(b"row", 3, 0)
    data.open_or_make(str(tmp_path), [row], {})
    return capsys.readouterr().err

  assert f"note: {path}: lower-casing strips 33.3% of the letters" in make()
  assert make() == ""  # The features are there.


def test_lines_of_a_file_for_a_model(tmp_path):
  tiny_models.write_masked_lm(tmp_path)
  path = tmp_path / "hi.txt"
  path.write_text(f"{HINDI}\n", encoding="utf-8")
  flags = tiny_models.masked_lm_flags(tmp_path)
  flags |= {"input_file": path, "output_file": tmp_path / "out.jsonl"}
  flags["layers"] = -1
  result = program_flags.succeed(
    program_flags.command("extract_features", **flags)
  )
  assert result.stderr.count("lower-casing strips 33.3%") == 1


def test_lines_that_are_searched(tmp_path):
  tiny_models.write_masked_lm(tmp_path)
  tiny_models.write_modules(tmp_path, max_seq_length=16)
  path = tmp_path / "hi.txt"
  path.write_text(f"{HINDI}\nthe film\n", encoding="utf-8")
  command = program_flags.command(
    "search",
    model=tmp_path,
    input_file=path,
    index_file=tmp_path / "index",
    query="film",
  )
  for count in (1, 0):  # The second run finds the index.
    result = program_flags.succeed(command)
    assert result.stderr.count("lower-casing strips 15.4%") == count


def test_a_pipe_is_left_to_the_program(tmp_path, capsys):
  tiny.write_model(tmp_path)
  read_end, write_end = os.pipe()
  os.write(write_end, f"{HINDI}\n".encode())
  os.close(write_end)
  with open(read_end, "rb") as pipe:
    path = f"/dev/fd/{read_end}"
    lost_letters.report_file(path, str(tmp_path / "vocab.txt"), True)
    assert pipe.read().decode() == f"{HINDI}\n"
  assert capsys.readouterr().err == ""
