"""bert.Index: texts of files and from memory, built, opened, searched; refused.

What it shares with search.py, such as damage and resuming, is tried in
test_search.py; that both find the same is tried here.
"""

import gzip
import json
import os
import shutil

import numpy as np
import pytest

import bert
from bert import search, searching
from bert.data import atomic, files, vector_index
from bert.serving import export_card
import program_flags
import tiny
import tiny_models

LINES = ["the film was good", "bad", "a very awful plot", "great film"]


@pytest.fixture(scope="module")
def encoder(tmp_path_factory):
  folder = tmp_path_factory.mktemp("encoder")
  tiny_models.write_masked_lm(folder)
  tiny_models.write_modules(folder)
  prompts = {"prompts": {"query": "good ", "line": "bad "}}
  (folder / "config_sentence_transformers.json").write_text(json.dumps(prompts))
  flags = {"model_dir": "", "vocab_file": "", "model": folder}
  return tiny_models.export_onnx(folder, **flags)


@pytest.fixture(scope="module")
def model(encoder):
  return bert.load(encoder)


@pytest.fixture
def here(tmp_path, monkeypatch):
  monkeypatch.chdir(tmp_path)
  (tmp_path / "lines.txt").write_text("".join(f"{x}\n" for x in LINES))
  return tmp_path


def column_of(texts):
  return pytest.importorskip("pandas").Series(texts)


def names(folder):
  return sorted(path.name for path in folder.iterdir())


def test_a_query_gives_hits_and_a_list_a_list_of_hits(here, model):
  index = bert.Index.build(model, "lines.txt", "lines.npy")
  assert repr(index) == "<bert.Index lines.npy: 4 texts of lines.txt>"
  best, second = index.search("great film", k=2)
  line, score, text = best
  assert (line, text) == (4, "great film")
  assert score == pytest.approx(1, abs=1e-3) and score > second.score
  one, two = index.search(["bad", "great film"], k=1)
  assert [one[0].line, two[0].line] == [2, 4]
  assert index.search(np.array(["bad"]), k=1) == [one]
  assert index.search(("bad",), k=1) == [one]
  assert index.search([]) == []
  # There are four.
  assert sorted(hit.line for hit in index.search("bad")) == [1, 2, 3, 4]
  assert names(here) == ["lines.npy", "lines.npy.json", "lines.txt"]


def test_the_program_and_python_share_an_index(here, encoder, model):
  built = bert.Index.build(model, "lines.txt", "python.npy")
  found = built.search("good plot")
  for name in ("python.npy", "shell.npy"):
    program_flags.run_main(
      search,
      search.SearchSettings,
      model=encoder,
      input_file="lines.txt",
      index_file=name,
      query="good plot",
      output_file="out.jsonl",
    )
    [answer] = map(json.loads, (here / "out.jsonl").open())
    assert answer["results"] == [hit._asdict() for hit in found]
  for ending in ("npy", "npy.json"):
    python, shell = (here / f"{n}.{ending}" for n in ("python", "shell"))
    assert python.read_bytes() == shell.read_bytes()
  assert bert.Index.open("shell.npy", model).search("good plot") == found


@pytest.mark.parametrize("kind", [list, tuple, np.array, column_of])
def test_texts_from_memory_are_written_beside_the_index(here, model, kind):
  texts = kind([*LINES, "", "the film\nwas\r\n“good”"])
  path = here / "new" / "texts.npy"
  built = bert.Index.build(model, texts, path)
  assert names(here / "new") == [
    "texts.npy",
    "texts.npy.json",
    "texts.npy.jsonl",
  ]
  rows = [json.loads(x) for x in (here / "new/texts.npy.jsonl").open()]
  assert [row["text"] for row in rows] == list(texts)
  # A text is a line, as in a column that search.py reads.
  hits = built.search("the film was good", k=2)
  assert [(hit.line, hit.text) for hit in hits] == [
    (1, "the film was good"),
    (6, "the film was “good”"),
  ]
  before = {p: p.read_bytes() for p in path.parent.iterdir()}
  assert bert.Index.build(model, texts, path).search("bad") == built.search(
    "bad"
  )
  assert before == {p: p.read_bytes() for p in path.parent.iterdir()}
  for name in ("texts.npy", "texts.npy.jsonl"):
    with pytest.raises(
      ValueError, match="npy.jsonl: made of other texts: pass"
    ):
      bert.Index.build(model, LINES, path)
    (path.parent / name).unlink()
  with pytest.raises(ValueError, match=r"npy: made of other texts"):
    bert.Index.build(model, LINES, shutil.copy(here / "lines.txt", path))
  assert names(here / "new") == ["texts.npy", "texts.npy.json"]


def test_a_folder_with_index_and_texts_may_move(here, model):
  (here / "a").mkdir()
  for texts in (LINES, "a/lines.txt"):
    shutil.copy("lines.txt", "a/lines.txt")
    built = bert.Index.build(model, texts, "a/i.npy", prompt_name="line")
    found = built.search("film", prompt_name="query")
    shutil.move("a", "b")
    opened = bert.Index.open("b/i.npy", model)
    assert opened.search("film", prompt_name="query") == found
    assert opened.search("film") != found
    shutil.rmtree("b")
    (here / "a").mkdir()


def test_a_copy_reads_its_own_texts(here, model):
  (here / "o").mkdir()
  built = bert.Index.build(model, LINES, "o/i.npy")
  found = built.search("film")
  shutil.copytree("o", "copy")
  for path in (here / "o").iterdir():
    path.unlink()
  bert.Index.build(model, LINES[:2], "o/i.npy")
  assert bert.Index.open("copy/i.npy", model).search("film") == found
  # A file of the same name beside it is another one.
  (here / "d").mkdir()
  bert.Index.build(model, "lines.txt", "d/i.npy")
  (here / "d/lines.txt").write_text("other\n")
  assert bert.Index.open("d/i.npy", model).search("film") == found
  # Neither has the text of the index.
  (here / "lines.txt").write_text("other\n")
  with pytest.raises(ValueError, match="made of other text than is in texts=l"):
    bert.Index.open("d/i.npy", model)


def test_a_run_that_made_nothing_does_not_hold_the_name(
  here, model, monkeypatch
):
  encode = model.encode

  def stop(texts, **prompt):
    if texts == LINES:
      raise KeyboardInterrupt
    return encode(texts, **prompt)

  def begin(path):
    with monkeypatch.context() as patch:
      patch.setattr(model, "encode", stop)
      with pytest.raises(KeyboardInterrupt):
        bert.Index.build(model, LINES, path)

  begin("i.npy")
  assert names(here) == ["i.npy.json", "i.npy.part", "lines.txt"]
  index = bert.Index.build(model, LINES[:3], "i.npy")
  assert [hit.text for hit in index.search("bad", k=1)] == ["bad"]
  assert len(index.vectors) == 3 and not os.path.exists("i.npy.part")

  # Another process makes it, or the model is damaged: nothing is left behind.
  begin("j.npy")
  with atomic.locked("j.npy.part"):
    with pytest.raises(OSError, match="j.npy.part: another process is writing"):
      bert.Index.build(model, LINES[:3], "j.npy")
  with monkeypatch.context() as patch:
    patch.setattr(model, "encode", lambda texts, **prompt: 1 // 0)
    with pytest.raises(ZeroDivisionError):
      bert.Index.build(model, LINES, "j.npy")
  assert not os.path.exists("j.npy.jsonl")

  # The refused one of two calls at once leaves the other's texts alone.
  def build_again(texts, **prompt):
    for other in (LINES, LINES[:3]):
      with pytest.raises(OSError, match="j.npy.part: another process is writ"):
        bert.Index.build(model, other, "j.npy")
    return encode(texts, **prompt)

  with monkeypatch.context() as patch:
    patch.setattr(model, "encode", build_again)
    bert.Index.build(model, LINES, "j.npy")
  assert bert.Index.open("j.npy", model).search("bad", k=1)[0].text == "bad"
  for name in ("j.npy", "j.npy.json", "j.npy.jsonl"):
    (here / name).unlink()
  begin("j.npy")

  # A file that this call has not written is never replaced.
  (here / "j.npy.jsonl").write_text("mine\n")
  with pytest.raises(ValueError, match="j.npy.jsonl: made of other texts: rem"):
    bert.Index.build(model, LINES, "j.npy")
  (here / "j.npy.part").unlink()
  with pytest.raises(ValueError, match="j.npy.jsonl: made of other texts: pas"):
    bert.Index.build(model, LINES, "j.npy")
  assert (here / "j.npy.jsonl").read_text() == "mine\n"


def export_otherwise(encoder, folder, fields):
  """Copies an export with other fields of its card, or another vocabulary."""
  shutil.copytree(encoder, folder)
  card = json.loads((folder / "export.json").read_text())
  card = {**card, **fields, "settings": card["settings"] | fields["settings"]}
  if "vocabulary" in fields:
    (folder / "vocab.txt").write_text("\n".join(card.pop("vocabulary")) + "\n")
    digest = files.hash_file(str(folder / "vocab.txt"))
    card["hashes"] = {**card["hashes"], "vocab.txt": digest}
  files.write_json(str(folder / "export.json"), export_card.seal(card))


@pytest.mark.parametrize(
  "fields",
  [
    {"do_lower_case": False},
    {"max_seq_length": 15},
    {"settings": {"default_prompt_name": "line"}},
    {"settings": {"lower_case": True}},
    {"vocabulary": [*tiny.SPECIAL, *tiny.VOCABULARY[:4:-1]]},
  ],
)
def test_models_that_make_other_tokens_are_refused(
  here, encoder, model, monkeypatch, fields
):
  """Whatever the vector of the fixed text shows of it."""
  monkeypatch.setattr(vector_index, "differ", lambda *vectors: False)
  bert.Index.build(model, "lines.txt", "i.npy")
  export_otherwise(encoder, here / "other", {"settings": {}, **fields})
  other = bert.load(here / "other")
  assert other.weights_sha256 == model.weights_sha256
  message = "i.npy: made of .* with another vocabulary, casing, length or def"
  with pytest.raises(ValueError, match=message):
    bert.Index.build(other, "lines.txt", "i.npy")
  with pytest.raises(ValueError, match=message):
    bert.Index.open("i.npy", other)

  # A prompt that is named is the same prompt. Earlier records do not say it.
  if "default_prompt_name" in fields.get("settings", {}):
    bert.Index.build(model, "lines.txt", "j.npy", prompt_name="line")
    bert.Index.open("j.npy", other)
  record = files.read_json("i.npy.json")
  del record["tokens_sha256"]
  files.write_json("i.npy.json", record)
  assert len(bert.Index.open("i.npy", other).vectors) == len(LINES)


def test_a_column_is_opened_again(here, model):
  rows = [{"other": "x", "body": text} for text in LINES]
  (here / "rows.jsonl").write_text("".join(f"{json.dumps(r)}\n" for r in rows))
  (here / "rows.tsv").write_text("".join(f"{text}\tx\n" for text in LINES))
  for name, column in (("rows.jsonl", "body"), ("rows.tsv", 0)):
    path = f"{name}.npy"
    bert.Index.build(model, here / name, path, text_column=column)
    [hit] = bert.Index.open(path, model).search("great film", k=1)
    assert (hit.line, hit.text) == (4, "great film")


def test_a_kill_is_resumed_with_texts_from_memory(here, model, monkeypatch):
  monkeypatch.setattr(vector_index, "BLOCK", 2)
  whole = bert.Index.build(model, LINES, "whole.npy")
  encode = model.encode

  def stop(texts, **prompt):
    if texts == LINES[2:]:
      raise KeyboardInterrupt
    return encode(texts, **prompt)

  with monkeypatch.context() as patch:
    patch.setattr(model, "encode", stop)
    with pytest.raises(KeyboardInterrupt):
      bert.Index.build(model, LINES, "i.npy")
  message = "npy.jsonl: made of other texts: remove i.npy.part, i.npy.json and"
  with pytest.raises(ValueError, match=f"{message} i.npy.jsonl to begin anew$"):
    bert.Index.build(model, LINES[:3], "i.npy")
  with pytest.raises(ValueError, match="path=i.npy: no such file"):
    bert.Index.open("i.npy", model)
  resumed = bert.Index.build(model, LINES, "i.npy")
  np.testing.assert_array_equal(resumed.vectors, whole.vectors)
  assert not os.path.exists("i.npy.part")


def test_a_large_file_is_read_again_unless_it_changed(here, model, monkeypatch):
  kept = bert.Index.build(model, "lines.txt", "i.npy")
  monkeypatch.setattr(searching, "_MOST_KEPT", 8)
  read = bert.Index.open("i.npy", model)
  (here / "other").mkdir()
  monkeypatch.chdir(here / "other")
  assert read.search("plot") == kept.search("plot")
  monkeypatch.chdir(here)
  with open("lines.txt", "a") as file:
    file.write("more\n")
  assert len(kept.search("plot")) == 4
  with pytest.raises(ValueError, match="lines.txt: it has changed since the"):
    read.search("plot")
  with pytest.raises(
    ValueError, match="i.npy: made of other text than is in texts=lines.txt now"
  ):
    bert.Index.open("i.npy", model)


BUILD = {
  "no list": (dict(texts=3), TypeError, "texts is int, expected a list of str"),
  "no texts": (dict(texts=None), TypeError, "texts is NoneType, expected"),
  "names": (dict(texts={"a": 1}), TypeError, "texts is dict, expected a list"),
  "numbers": (dict(texts=["a", 3]), TypeError, r"texts\[1\] is int, expected"),
  "NaN": (dict(texts=["a", np.nan]), TypeError, r"texts\[1\] is float, exp"),
  "rows": (dict(texts=np.array([["a"]])), TypeError, r"texts\[0\] is list"),
  "a text": (dict(texts=np.array("a")), TypeError, "texts is ndarray, expect"),
  "half": (dict(texts=["\ud800"]), ValueError, r"texts\[0\] holds .ud800, hal"),
  "empty": (dict(texts=[]), ValueError, "texts is empty"),
  "empty file": (dict(texts="empty.txt"), ValueError, "texts=empty.txt: it is"),
  "no file": (dict(texts="no.txt"), ValueError, "texts=no.txt: no such file"),
  "folder": (dict(texts="."), ValueError, "texts=.: a folder; expected a file"),
  "column of a list": (
    dict(texts=LINES, text_column="x"),
    ValueError,
    "text_column is 'x', but texts is not a file",
  ),
  "no column": (
    dict(texts="rows.jsonl", text_column="x"),
    ValueError,
    "rows.jsonl:1: no key 'x'; the keys are text",
  ),
  "a table": (
    dict(texts="rows.jsonl"),
    ValueError,
    "with the keys text: pass text_column, to read one",
  ),
  "path of a folder": (dict(path="."), ValueError, "path=.: . is a folder"),
  "no path": (dict(path=""), ValueError, "path=.: . is a folder; expected the"),
  "number as path": (dict(path=3), TypeError, "expected str, bytes or os.Path"),
  "below a file": (dict(path="rows.jsonl/i"), ValueError, "is a file, not a f"),
  "remote": (dict(path="gs://i"), ValueError, "path=gs://i: expected a local"),
  "prompt": (
    dict(prompt_name="x"),
    ValueError,
    "prompt_name=x: the prompts of the model: query, line",
  ),
  "name as model": (dict(model="x"), TypeError, "model is str, expected what"),
}


@pytest.mark.parametrize("case", BUILD)
def test_wrong_builds_write_nothing(here, model, case):
  changes, kind, message = BUILD[case]
  (here / "empty.txt").write_text("")
  (here / "rows.jsonl").write_text('{"text": "a"}\n')
  before = names(here)
  arguments = {"model": model, "texts": LINES, "path": "i.npy", **changes}
  with pytest.raises(kind, match=f"^.*{message}") as error:
    bert.Index.build(**arguments)
  assert "\n" not in str(error.value) and "--" not in str(error.value)
  assert names(here) == before


def test_wrong_models_write_nothing(here, model, tmp_path_factory):
  folder = tmp_path_factory.mktemp("trained")
  tiny_models.write_case(folder, "tagging")
  tagger = bert.load(folder)
  message = "^model=.*: for tagging, not vectors; run_embedding.py trains a"
  bert.Index.build(model, LINES, "i.npy")
  before = names(here)
  with pytest.raises(ValueError, match=message):
    bert.Index.build(tagger, LINES, "j.npy")
  with pytest.raises(ValueError, match=message):
    bert.Index.open("i.npy", tagger)
  assert names(here) == before


def test_wrong_calls_of_open(here, model):
  with pytest.raises(ValueError, match="path=i.npy: no such file"):
    bert.Index.open("i.npy", model)
  with pytest.raises(ValueError, match="path=.: a folder; expected a file"):
    bert.Index.open(".", model)
  with pytest.raises(ValueError, match="path=gs://i: expected a local path"):
    bert.Index.open("gs://i", model)
  with pytest.raises(TypeError, match="model is str, expected what bert.load"):
    bert.Index.open("i.npy", "model")
  with pytest.raises(
    ValueError, match="lines.txt: lacks lines.txt.json, which"
  ):
    bert.Index.open("lines.txt", model)
  bert.Index.build(model, LINES, "i.npy")
  (here / "i.npy.jsonl").unlink()
  with pytest.raises(
    ValueError, match="i.npy: made of i.npy.jsonl, which is missing"
  ):
    bert.Index.open("i.npy", model)


@pytest.mark.parametrize(
  ("arguments", "kind", "message"),
  [
    ((["a", 3],), TypeError, r"queries\[1\] is int, expected str"),
    ((3,), TypeError, "queries is int, expected a list of str"),
    (({"a"},), TypeError, "queries is set, expected a list of str"),
    (("a", 0), ValueError, "k is 0, expected 1 or more"),
    (("a", -1), ValueError, "k is -1, expected 1 or more"),
    (("a", 1.5), TypeError, "'float' object cannot be interpreted"),
    (("a", "1"), TypeError, "'str' object cannot be interpreted"),
    (("a", 1, "x"), ValueError, "prompt_name=x: the prompts of the model: que"),
  ],
)
def test_wrong_searches(here, model, arguments, kind, message):
  index = bert.Index.build(model, LINES, "i.npy")
  with pytest.raises(kind, match=message):
    index.search(*arguments)


@pytest.mark.parametrize("ending", ["", ".json", ".part"])
def test_an_index_never_replaces_its_texts(here, model, ending):
  path = here / f"i.npy{ending}"
  path.write_text('{"text": "a"}\n')
  with pytest.raises(ValueError, match="the index would replace .*i.npy"):
    column = "text" if ending == ".json" else None
    bert.Index.build(model, path, "i.npy", text_column=column)
  assert path.read_text() == '{"text": "a"}\n'


def test_a_compressed_file_that_changed_is_noticed(here, model):
  with gzip.open("lines.txt.gz", "wt") as file:
    file.writelines(f"{line}\n" for line in LINES)
  index = bert.Index.build(model, "lines.txt.gz", "i.npy")
  assert index.search("plot", k=1)[0].text in LINES
  with gzip.open("lines.txt.gz", "wt") as file:
    file.writelines(f"{line}\n" for line in reversed(LINES))
  with pytest.raises(ValueError, match="lines.txt.gz: it has changed since"):
    index.search("plot")


def test_many_queries_are_answered_in_blocks(here, model, monkeypatch):
  index = bert.Index.build(model, LINES, "i.npy")
  whole = index.search(LINES * 2)
  monkeypatch.setattr(searching, "_MOST_QUERIES", 3)
  assert index.search(LINES * 2) == whole
