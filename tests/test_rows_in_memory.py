"""Data from memory: what each program reads, and how tables become rows."""

import datetime
import importlib
import json

import numpy as np
import pytest

from bert.data import data_rows, tables
from bert.tasks import tagging
import paths
import program_flags
import tiny


def write(folder, data):
  """Writes rows; returns them as a program reads them."""
  path, _ = data_rows.write(str(folder), "train_data", data)
  return [row.cells for row in tables.read_rows(path)]


def test_values_of_python_and_numpy(tmp_path):
  rows = [
    {"text": "two\nlines \u2028\x85\0", "n": np.int64(3), "ok": np.bool_(True)},
    {"text": np.str_("a"), "n": np.float32(0.5), "list": ("a", "b")},
    {"text": None, "n": float("nan"), "list": np.array(["a"]), "set": {"b"}},
    {"day": datetime.date(2020, 1, 2), "more": {"a": [np.float64(1)]}},
  ]
  assert write(tmp_path, tuple(rows)) == [
    {"text": "two\nlines \u2028\x85\0", "n": "3", "ok": True},
    {"text": "a", "n": "0.5", "list": ["a", "b"]},
    {"text": None, "n": None, "list": ["a"], "set": ["b"]},
    {"day": "2020-01-02", "more": {"a": ["1.0"]}},
  ]


def test_a_data_frame(tmp_path):
  pandas = pytest.importorskip("pandas")
  frame = pandas.DataFrame(
    {
      "text": ["a", None],
      "label": pandas.Categorical([np.nan, "y"]),
      "n": [1, 2],
      "ok": [True, False],
      "count": pandas.array([1, None], dtype="Int64"),
      "time": pandas.to_datetime(["2020-01-02", None]),
    },
    index=[7, 3],
  )
  time = "2020-01-02T00:00:00"
  assert write(tmp_path, frame) == [
    dict(text="a", label=None, n="1", ok=True, count="1", time=time),
    dict(text=None, label="y", n="2", ok=False, count=None, time=None),
  ]

  two = pandas.MultiIndex.from_tuples([("a", "b"), ("a", "c")])
  for wrong, message in (
    (frame[:0], "train_data has no rows"),
    (frame["n"], "train_data[0] is int, expected a dict"),
    (frame.T, "train_data[0]: the column 7 is not named by a str"),
    (
      pandas.DataFrame([[1, 2]], columns=two),
      "train_data[0]: the column ('a', 'b') is not named by a str",
    ),
    (
      pandas.DataFrame([[1, 2]], columns=["a", "a"]),
      "train_data: two columns have the same name",
    ),
  ):
    with pytest.raises((TypeError, ValueError)) as error:
      data_rows.write(str(tmp_path / "new"), "train_data", wrong)
    assert str(error.value) == message
  assert not (tmp_path / "new").exists()


def test_a_dataset_of_the_hub_has_names_of_labels(tmp_path):
  datasets = pytest.importorskip("datasets")
  names = datasets.ClassLabel(names=["O", "B-PER"])
  features = datasets.Features(
    {
      "tokens": datasets.List(datasets.Value("string")),
      "tags": datasets.List(names),
      "label": names,
    }
  )
  columns = {"tokens": [["a", "b"]] * 2, "tags": [[0, 1]] * 2, "label": [1, -1]}
  dataset = datasets.Dataset.from_dict(columns, features)
  expected = [
    {"tokens": ["a", "b"], "tags": ["O", "B-PER"], "label": label}
    for label in ("B-PER", None)
  ]
  for data in (
    dataset,
    dataset.with_format("numpy"),
    dataset.to_iterable_dataset(),
  ):
    assert write(tmp_path, data) == expected


class Rows:
  """What a library may have instead of a list: rows, and names of labels."""

  def __init__(self, rows, **features):
    self.rows, self.features = rows, features

  def __iter__(self):
    return iter(self.rows)


class Labels:
  names = ("O", "B-PER")


class ListOfLabels:
  feature = Labels


def test_numbers_of_labels_become_names(tmp_path):
  """As in `datasets`, which not everybody has."""
  rows = [
    {"tags": [0, 1], "label": 1, "text": "a"},
    {"tags": np.array([1]), "label": -1, "text": "b"},
    {"tags": None, "label": None, "text": "c"},
  ]
  data = Rows(rows, tags=ListOfLabels, label=Labels, text=None)
  assert write(tmp_path, data) == [
    {"tags": ["O", "B-PER"], "label": "B-PER", "text": "a"},
    {"tags": ["B-PER"], "label": None, "text": "b"},
    {"tags": None, "label": None, "text": "c"},
  ]


def sentence(number):
  words, tags = tiny.make_sentence(number)
  return {"tokens": words, "tags": tags}


def choice(number):
  context, choices, label = tiny.make_choices(number)
  return {"context": context, "choices": choices, "label": label}


def question(number):
  made = tiny.make_question(number)
  [values] = made["qas"]
  return {"context": made["context"], **values}


def pair(number):
  text, _ = tiny.make_examples([number])[0]
  return {"text": text, "other": " ".join(text.split()[::-1])}


def example(number):
  text, label = tiny.make_examples([number])[0]
  return {"text": text, "label": label}


PAIRS = {"text_column": "text", "text_pair_column": "other"}
PROGRAMS = {
  "run_classifier": (example, {}),
  "run_tagging": (sentence, {}),
  "run_squad": (question, {}),
  "run_multiple_choice": (choice, {}),
  "run_embedding": (pair, PAIRS),
}


# The others' rows are read as files are, whose readers have tests of their own.
@pytest.mark.parametrize(
  "program",
  [
    name
    if name in ("run_squad", "run_tagging")
    else pytest.param(name, marks=pytest.mark.slow)
    for name in PROGRAMS
  ],
)
def test_each_program_trains_and_predicts_from_memory(program, tmp_path):
  make, flags = PROGRAMS[program]
  command = tiny.command(program, tmp_path, train_batch_size=8, **flags)
  given = program_flags.read_command(command)
  rows = [make(number) for number in range(24)]
  module = importlib.import_module(f"bert.{program}")

  given |= {"num_train_epochs": 1, "max_seq_length": tiny.SEQUENCE}
  others = {} if program == "run_squad" else {"eval_data": rows[:5]}
  result = module.run(
    **given, **others, train_data=rows, predict_data=rows[16:]
  )
  assert result.history
  assert (tmp_path / "out" / "report.html").exists()
  written = {p.name.split("-")[0] for p in (tmp_path / "out").glob("*.jsonl")}
  assert written >= {"train_data", "predict_data"}
  assert result.load().task


@pytest.mark.slow  # tests/test_run_classifier.py has the same of a file.
def test_too_few_rows_for_a_batch_are_an_error_that_is_easily_mended(tmp_path):
  """The features of the rows are made by then, and serve the next call."""
  from bert import run_classifier

  command = tiny.command("run_classifier", tmp_path)
  given = program_flags.read_command(command)
  given |= {"train_batch_size": 32, "num_train_epochs": 1}
  rows = [example(number) for number in range(10)]
  with pytest.raises(ValueError, match="lower --train_batch_size=32$"):
    run_classifier.run(**given, train_data=rows)
  run_classifier.run(**{**given, "train_batch_size": 5}, train_data=rows)


def read_tags(path, text, **changes):
  path.write_text(text, encoding="utf-8")
  source = tagging.Source(str(path))._replace(**changes)
  return list(tagging.read_sentences(source)), source


def test_a_sentence_a_line_of_json(tmp_path):
  rows = [
    {"tokens": ["Al", "#win", "1 000"], "tags": ["B-PER", "O", "O"]},
    {"tokens": ["-DOCSTART-", 5], "tags": ["O", "O"]},
  ]
  text = "\n\n".join(map(json.dumps, rows)) + "\n"
  sentences, source = read_tags(tmp_path / "a.jsonl", text)
  assert [(s.words, s.tags, s.document, s.line) for s in sentences] == [
    (("Al", "#win", "1 000"), ("B-PER", "O", "O"), 0, 1),
    (("-DOCSTART-", "5"), ("O", "O"), 0, 3),
  ]
  assert tagging.find_scheme(source) == "iob2"
  assert list(tagging.append_column(source, "abcde")) == [
    "Al\tB-PER\ta",
    "#win\tO\tb",
    "1 000\tO\tc",
    "",
    "-DOCSTART-\tO\td",
    "5\tO\te",
    "",
  ]

  # A file to predict has no tags.
  path = tmp_path / "b.json"
  path.write_text('{"tokens": ["Al", "ran"]}\n{"tokens": ["a"], "tags": null}')
  source = tagging.inspect_file(str(path), 0, -1, "auto", needs_tags=False)
  assert not source.is_tagged
  assert [s.words for s in tagging.read_sentences(source)] == [
    ("Al", "ran"),
    ("a",),
  ]
  with pytest.raises(ValueError, match="b.json:1: no key 'tags'"):
    list(tagging.read_sentences(source._replace(is_tagged=True)))


@pytest.mark.slow  # What is read of both is compared above.
def test_json_and_columns_train_the_same_tagger(tmp_path):
  from bert import run_tagging

  results = []
  for kind in ("columns", "json"):
    folder = tmp_path / kind
    folder.mkdir()
    rows = [sentence(number) for number in range(20)]
    if kind == "json":
      lines = [json.dumps(row) for row in rows]
    else:
      pairs = [zip(row["tokens"], row["tags"], strict=True) for row in rows]
      lines = ["\n".join(f"{w} {t}" for w, t in p) + "\n" for p in pairs]
    ending = "jsonl" if kind == "json" else "txt"
    (folder / f"train.{ending}").write_text("\n".join(lines) + "\n")
    tiny.write_model(folder, program="run_tagging")
    flags = tiny.flags_for(folder, train_file=folder / f"train.{ending}")
    run_tagging.run(**flags, train_batch_size=8, num_train_epochs=1)
    contents = paths.contents(folder / "out")
    results.append({n: c for n, c in contents.items() if "ckpt" in n})
  assert paths.differences(*results) == [] and results[0]
