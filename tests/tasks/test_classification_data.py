"""Tests of a task as feature files: labels, records, batches, logits."""

import csv
import types

import numpy as np
import pytest
import tensorflow as tf

from bert import modeling
from bert.inputs import batch_order
from bert.tasks import (
  classification,
  classification_data,
  classification_results,
  classification_tasks,
)
import paths
import tiny

GOLDEN = paths.SHARED / "golden" / "e2e" / "inputs"
TABLE = classification.Table("train.tsv", 1, label=0)


def make_settings(folder, **fields):
  defaults = {
    "vocab_file": str(folder / "vocab.txt"),
    "do_lower_case": True,
    "max_seq_length": 8,
    "doc_stride": None,
    "label_separator": ",",
    "labels": ("neg", "pos"),
    "problem": "single_label",
  }
  return classification_data.ClassificationFeatureSettings(
    **{**defaults, **fields}
  )


def open_train(folder, **fields):
  tiny.write_model(folder)
  task = classification_tasks.file_task(str(folder))
  settings = make_settings(folder, **fields)
  [train] = classification_data.find_sets(task, "train", settings)
  classification_data.make_features(train, str(folder))
  return train


def make_task(path=None, **fields):
  train = (TABLE._replace(path=str(path)),) if path else ()
  task = classification.ClassificationTask(
    "file", (), "single_label", train, (), (), ("accuracy",)
  )
  return task._replace(**fields)


def choose(folder, task, given=(), head=()):
  settings = types.SimpleNamespace(
    labels_file=str(folder / "labels.txt"), labels=given, label_separator=","
  )
  return classification_data.choose_labels(task, settings, head)


@pytest.mark.parametrize(
  ("before", "trains", "given", "head", "expected"),
  [
    (None, True, (), (), ("a", "b")),
    ("c\na\nb\n", False, (), (), ("c", "a", "b")),  # An earlier run has them.
    ("b\na\n", True, (), (), ("b", "a")),
    (None, False, ["pos", "neg"], (), ("pos", "neg")),
    (None, True, (), ["b", "a"], ("b", "a")),
    (None, False, (), ["b", "a"], ("b", "a")),
  ],
)
def test_labels_have_an_order(tmp_path, before, trains, given, head, expected):
  path = tmp_path / "train.tsv"
  path.write_text("b\tx\na\ty\n")
  if before:
    (tmp_path / "labels.txt").write_text(before)
  task = make_task(path if trains else None)
  assert choose(tmp_path, task, given, head) == expected


@pytest.mark.parametrize(
  ("before", "task", "given", "head", "message"),
  [
    ("a\nb\n", {"labels": ("b", "c")}, (), (), "use another --output_dir"),
    ("", {}, (), (), "pass --labels, or the --output_dir of"),
    ("", {}, ["a"], (), "expected two labels or more, found only a: pass"),
    ("a\n", {}, (), (), "expected two labels or more, found only a: pass"),
    ("", {"labels": ("a", "b")}, (), "ac", "a head for the labels a, c; those"),
    ("", {"problem": "regression"}, "01", (), "--labels: a regression has non"),
  ],
)
def test_labels_that_are_refused(tmp_path, before, task, given, head, message):
  if before:
    (tmp_path / "labels.txt").write_text(before)
  with pytest.raises(ValueError, match=message):
    choose(tmp_path, make_task(**task), given, head)


def test_features_are_refused_if_the_file_changes_meanwhile(tmp_path):
  tiny.write_tsv(tmp_path / "train.tsv", range(4))
  train = open_train(tmp_path)
  tiny.write_tsv(tmp_path / "train.tsv", range(1, 5))
  answers = classification_results.answer(
    np.zeros([4, 2]), "single_label", ["neg", "pos"], None
  )
  with pytest.raises(ValueError, match="train.tsv: changed while the program"):
    classification_data.write_predictions(str(tmp_path), train, answers)
  with pytest.raises(ValueError, match="train.tsv: changed while the program"):
    list(train.examples())
  assert not list(tmp_path.glob("*predictions*"))
  assert not list(tmp_path.glob("test_results*"))


def make_example(number, text, label=None, text_b=None):
  return classification.Example(
    str(number), text, text_b, label, f"data.tsv:{number}", None
  )


def write_predictions(folder, logits, problem, examples, separator=","):
  """Returns the content of both files of predictions."""
  tiny.write_model(folder)
  settings = make_settings(
    folder, labels=("a", "b"), problem=problem, label_separator=separator
  )
  data = classification_data.ClassificationSet(
    kind="predict",
    settings=settings,
    paths=(),
    source={},
    read=lambda **facts: iter(examples),
    suffix="_x",
    tables=(classification.Table("", "text", "text_pair"),),
  )
  classification_data.make_features(data, str(folder))
  answers = classification_results.answer(np.array(logits), problem, ["a", "b"])
  classification_data.write_predictions(str(folder), data, answers)
  names = ("predictions_x.tsv", "test_results_x.tsv")
  return [(folder / name).read_text() for name in names]


def test_predictions_as_tables(tmp_path):
  rows = [make_example(7, "two\tcells\nand lines", "a", "pair")]
  logits = [[0.0, np.log(3.0)]]
  assert write_predictions(tmp_path, logits, "single_label", rows) == [
    "id\ttext\ttext_pair\tlabel\tpredicted\tprobability_a\tprobability_b\n"
    "7\ttwo cells and lines\tpair\ta\tb\t0.25\t0.75\n",
    "0.25\t0.75\n",
  ]


def test_rows_of_a_table_have_the_cells_of_its_header(tmp_path):
  # The first has neither pair nor label; the label of the second is a list.
  rows = [make_example(0, "x"), make_example(1, "y", ("a", "b"), "pair")]
  logits = [[9.0, 9.0], [9.0, -9.0]]
  text, numbers = write_predictions(tmp_path, logits, "multi_label", rows, "|")
  assert [line.split("\t")[:5] for line in text.splitlines()] == [
    ["id", "text", "text_pair", "label", "predicted"],
    ["0", "x", "", "", "a|b"],
    ["1", "y", "pair", "a|b", "a"],
  ]
  # The digits of float32.
  assert numbers.splitlines()[1] == "0.9998766\t0.00012339458"


def test_training_can_be_limited_to_the_first_examples(tmp_path):
  tiny.write_tsv(tmp_path / "train.tsv", range(20))
  tiny.write_tsv(tmp_path / "dev.tsv", range(20))
  whole = open_train(tmp_path)
  assert len(whole.features) == 20
  task, folder = classification_tasks.file_task(str(tmp_path)), str(tmp_path)
  [train], [dev] = (
    classification_data.find_sets(task, kind, whole.settings, 3)
    for kind in ("train", "eval")
  )
  for examples in (train, dev):
    classification_data.make_features(examples, folder)
  assert (len(train.features), train.features.facts["examples"]) == (3, 3)
  assert train.key != whole.key
  assert len(dev.features) == 20


def read_records(data):
  """Returns the features of each record, their kinds and values by name."""
  for row in data.features.read(range(len(data.features))):
    found = tf.train.Example.FromString(row).features.feature
    kinds = {name: value.WhichOneof("kind") for name, value in found.items()}
    yield {
      name: (kind, *getattr(found[name], kind).value)
      for name, kind in kinds.items()
    }


@pytest.mark.parametrize(
  ("problem", "label", "encoded"),
  [
    ("single_label", "pos", ("int64_list", 1)),
    ("multi_label", "pos", ("int64_list", 0, 1)),
    ("regression", "2.5", ("float_list", 2.5)),
  ],
)
def test_records(tmp_path, problem, label, encoded):
  (tmp_path / "train.tsv").write_text(f"label\ttext\n{label}\tgood film\n")
  [record] = read_records(open_train(tmp_path, problem=problem))
  good, film = map(tiny.VOCABULARY.index, ("good", "film"))
  assert record == {
    "input_ids": ("int64_list", 2, good, film, 3, 0, 0, 0, 0),
    "input_mask": ("int64_list", 1, 1, 1, 1, 0, 0, 0, 0),
    "segment_ids": ("int64_list", 0, 0, 0, 0, 0, 0, 0, 0),
    "label_ids": encoded,
    "is_real_example": ("int64_list", 1),
  }


def original_features(lines, text, text_pair, label, labels, tokenizer, length):
  """Makes records the way the original did, step by step."""
  for line in csv.reader(lines, delimiter="\t", quotechar=None):
    tokens_a = tokenizer.tokenize(line[text])
    tokens_b = tokenizer.tokenize(line[text_pair]) if text_pair else []
    if tokens_b:
      while len(tokens_a) + len(tokens_b) > length - 3:
        longer = tokens_a if len(tokens_a) > len(tokens_b) else tokens_b
        longer.pop()
    else:
      tokens_a = tokens_a[: length - 2]
    tokens = ["[CLS]", *tokens_a, "[SEP]"]
    segment_ids = [0] * len(tokens)
    if tokens_b:
      tokens += [*tokens_b, "[SEP]"]
      segment_ids += [1] * (len(tokens_b) + 1)
    ids = tokenizer.convert_tokens_to_ids(tokens)
    padding = [0] * (length - len(ids))
    number = 0 if label is None else labels.index(line[label])
    yield {
      "input_ids": ("int64_list", *ids, *padding),
      "input_mask": ("int64_list", *[1] * len(ids), *padding),
      "segment_ids": ("int64_list", *segment_ids, *padding),
      "label_ids": ("int64_list", number),
      "is_real_example": ("int64_list", 1),
    }


@pytest.mark.skipif(not GOLDEN.is_dir(), reason=f"no golden cases in {GOLDEN}")
@pytest.mark.parametrize("length", [16, 128])
@pytest.mark.parametrize(
  ("name", "file", "kind", "has_header", "columns"),
  [
    ("CoLA", "train", "train", False, (3, None, 1)),
    ("CoLA", "dev", "eval", False, (3, None, 1)),
    ("CoLA", "test", "predict", True, (1, None, None)),
    ("MRPC", "train", "train", True, (3, 4, 0)),
    ("MRPC", "dev", "eval", True, (3, 4, 0)),
    ("MRPC", "test", "predict", True, (3, 4, None)),
    ("MNLI", "train", "train", True, (8, 9, -1)),
    ("MNLI", "dev_matched", "eval", True, (8, 9, -1)),
    ("MNLI", "test_matched", "predict", True, (8, 9, None)),
  ],
)
def test_records_are_those_of_the_original(
  tmp_path, name, file, kind, has_header, columns, length
):
  folder = str(GOLDEN / name)
  task = classification_tasks.find_task(name)
  task = classification_tasks.task_in_folder(task, folder)
  vocab_file = str(paths.SHARED / "data" / "vocab" / "uncased_vocab.txt")
  fields = {"vocab_file": vocab_file, "labels": task.labels}
  settings = make_settings(tmp_path, max_seq_length=length, **fields)
  data, *_ = classification_data.find_sets(task, kind, settings)
  classification_data.make_features(data, str(tmp_path))
  text = (GOLDEN / name / f"{file}.tsv").read_text(encoding="utf-8")
  lines = filter(None, text.split("\n")[has_header:])
  tokenizer = data.make_tokenizer()
  in_file = [label for label, _ in task.train[0].renamed_labels]
  labels = in_file or task.labels
  assert list(read_records(data)) == list(
    original_features(lines, *columns, labels, tokenizer, length)
  )


@pytest.mark.parametrize(
  ("rows", "fields", "facts", "lengths", "examples"),
  [
    (
      ["pos\tgood", "neg\tbad", "pos\t" + "the " * 9],
      {},
      (3, 1, 3, [1, 2]),
      [3, 3, 8],
      [0, 1, 2],
    ),
    (
      ["2.5\tgood", "-4\tbad"],
      {"labels": (), "problem": "regression"},
      (2, 0, 2, [-1.5]),
      [3, 3],
      [0, 1],
    ),
    (  # Class weights balance windows.
      ["pos\tgood", "neg\t" + "the " * 12, "pos\tfine"],
      {"doc_stride": 3},
      (3, 0, 3, [3, 2]),
      [3, 8, 8, 8, 3],
      [0, 1, 1, 1, 2],
    ),
  ],
)
def test_examples_and_windows_are_counted(
  tmp_path, rows, fields, facts, lengths, examples
):
  text = "\n".join(["label\ttext", *rows]) + "\n"
  (tmp_path / "train.tsv").write_text(text)
  features = open_train(tmp_path, **fields).features
  names = ("examples", "cut", "labelled", "label_sums")
  facts = dict(zip(names, facts, strict=True))
  assert features.facts == {**facts, "empty": 0, "left_out": 0}
  assert features.lengths.tolist() == lengths
  assert features.example_of_row.tolist() == examples


def test_empty_texts_and_rows_that_are_left_out_are_said(tmp_path, capsys):
  tiny.write_model(tmp_path)
  rows = ["label\ttext", "neg\t ", "\tbad", "pos\t", "pos\tgood", "\tfine"]
  (tmp_path / "train.tsv").write_text("\n".join(rows) + "\n")
  settings = make_settings(tmp_path)
  for skips in (True, False):
    task = classification_tasks.file_task(str(tmp_path), skips_unlabelled=skips)
    [train] = classification_data.find_sets(task, "train", settings)
    if skips:
      classification_data.make_features(train, str(tmp_path))
      said = capsys.readouterr().out
      assert "train (train): 3 examples, 2 of them with an empty text, " in said
      assert "\n  2 rows without a label are left out\n" in said
    else:
      message = "train.tsv:6: no label; 2 of 5 rows have none; --skip_unlab"
      with pytest.raises(ValueError, match=message):
        classification_data.make_features(train, str(tmp_path))


@pytest.mark.parametrize(
  ("change", "numbers"),
  [
    ({"max_seq_length": 7}, range(4)),
    ({"doc_stride": 2}, range(4)),
    ({"do_lower_case": False}, range(4)),
    ({"labels": ("pos", "neg")}, range(4)),
    ({}, range(5, 9)),  # Other data.
  ],
)
def test_features_are_made_again_for_other_flags_or_data(
  tmp_path, capsys, change, numbers
):
  tiny.write_tsv(tmp_path / "train.tsv", range(4))
  open_train(tmp_path)
  open_train(tmp_path)
  assert "unchanged" in capsys.readouterr().out
  tiny.write_tsv(tmp_path / "train.tsv", numbers)
  open_train(tmp_path, **change)
  assert "unchanged" not in capsys.readouterr().out


@pytest.mark.parametrize("is_static", [False, True])
def test_logits_are_in_the_order_of_the_file(tmp_path, is_static):
  tiny.write_tsv(tmp_path / "train.tsv", range(11))
  train = open_train(tmp_path, max_seq_length=16)
  features = train.features

  def count_tokens(batches, total):
    # Stands for a model: its logit is the number of tokens.
    parts = [tf.nest.map_structure(np.asarray, batch) for batch in batches]
    return {
      "logits": np.concatenate([p["input_mask"].sum(1) for p in parts])[
        :, None
      ].astype(np.float32),
      "label_ids": np.concatenate([p["label_ids"] for p in parts]),
    }

  config = modeling.EncoderConfig(len(tiny.VOCABULARY), type_vocab_size=2)
  parse = train.make_parser(config, is_static)
  order = batch_order.make_batches(features.lengths, 4, 10, is_static)
  results = features.predict(count_tokens, order, parse)
  source = train.training_input(parse, 2, 1)
  assert source.describe_row(2) == f"{tmp_path / 'train.tsv'}:4"
  logits, targets = classification_data.pool_outputs(train, results, "mean")
  assert logits[:, 0].tolist() == features.lengths.tolist()
  assert targets.tolist() == [n % 2 for n in range(11)]
