"""The tasks of GLUE and XNLI, and finding the columns of the user's files."""

import pytest

from bert.tasks import (
  classification,
  classification_problems,
  classification_tasks,
)
import paths

DATA = paths.SHARED / "data"
TASKS = classification_tasks.TASKS
ENTAILMENT = ("contradiction", "entailment", "neutral")


def texts(table):
  """Returns (id, text, second text, label) of each example."""
  return [tuple(e[:4]) for e in classification.read_examples(table)]


# GLUE and XNLI.


def test_tasks_are_found_by_any_spelling():
  names = "MRPC CoLA sst2 SST-2 stsb STS_B XNLI".split()
  tasks = map(classification_tasks.find_task, names)
  assert [task.name for task in tasks] == (
    "mrpc cola sst-2 sst-2 sts-b sts-b xnli".split()
  )
  with pytest.raises(ValueError) as error:
    classification_tasks.find_task("snli")
  assert str(error.value) == (
    "--task_name=snli: expected one of ax, cola, mnli, mrpc, qnli, qqp, rte,"
    " sst-2, sts-b, wnli, xnli, or file for files of your own"
  )


def test_no_file_is_asked_for_where_a_task_has_its_own():
  with pytest.raises(ValueError) as error:
    TASKS["ax"].sets("train")
  assert str(error.value) == (
    "--do_train: the task ax has no such data; it has texts for --do_predict,"
    " with a model that was trained on mnli"
  )


def test_every_task_is_whole():
  assert {name: task.metrics[0] for name, task in TASKS.items()} == {
    "ax": "matthews_correlation",
    "cola": "matthews_correlation",
    "mnli": "accuracy",
    "mrpc": "f1",
    "qnli": "accuracy",
    "qqp": "f1",
    "rte": "accuracy",
    "sst-2": "accuracy",
    "sts-b": "corr",
    "wnli": "accuracy",
    "xnli": "accuracy",
  }
  for name, task in TASKS.items():
    assert task.name == name
    assert task.problem in classification_problems.PROBLEMS
    assert bool(task.labels) == (task.problem != "regression")
    assert name == "xnli" or len(task.submissions) == len(task.test)
  # The names that the server expects.
  names = [name for task in TASKS.values() for name in task.submissions]
  expected = "AX CoLA MNLI-m MNLI-mm MRPC QNLI QQP RTE SST-2 STS-B WNLI".split()
  assert sorted(names) == [f"{name}.tsv" for name in expected]


def find_file(name, folder, file):
  """Returns a task in a folder, and the table of one of its files."""
  task = classification_tasks.find_task(name)
  task = classification_tasks.task_in_folder(task, str(folder))
  everything = (*task.train, *(table for _, table in (*task.dev, *task.test)))
  (table,) = (t for t in everything if t.path.endswith(f"/{file}"))
  return task, table


def read_glue(write, name, file, content):
  """Reads a file of a task that was written for the test."""
  write(f"data/{file}", content)
  return texts(find_file(name, "data", file)[1])


ELEVEN = "0|1|2|3|4|5|6|7|8|9|neutral|entailment"
# A task, its file, the rows with | for tabs, and the one example.
GLUE_ROWS = (
  ("cola", "train.tsv", 'x|0|*|"a', ("0", '"a', None, "unacceptable")),
  ("cola", "dev.tsv", "x|1||a|b", ("0", "a", None, "acceptable")),
  ("cola", "test.tsv", "index|sentence\n7|a", ("7", "a", None, None)),
  ("sst-2", "train.tsv", "sentence|label\na |1", ("0", "a ", None, "positive")),
  ("sst-2", "test.tsv", "index|sentence\n7|a", ("7", "a", None, None)),
  (
    "mrpc",
    "train.tsv",
    "\ufeffh\r\n1|7|8|a|b\r",
    ("0", "a", "b", "equivalent"),
  ),
  ("mrpc", "test.tsv", "i|1|2|#1|#2\n5|7|8|a|b", ("5", "a", "b", None)),
  ("mnli", "dev_matched.tsv", f"h\n{ELEVEN}", ("0", "8", "9", "entailment")),
  ("mnli", "test_mismatched.tsv", f"h\n7{ELEVEN[1:]}", ("7", "8", "9", None)),
  (
    "stsb",
    "dev.tsv",
    "sentence1|sentence2|score\na|b|2.50",
    ("0", "a", "b", "2.50"),
  ),
  ("qqp", "test.tsv", "id|question1|question2\n3|a|b", ("3", "a", "b", None)),
  (
    "qnli",
    "dev.tsv",
    "index|question|sentence|label\n3|a|b|entailment",
    ("0", "a", "b", "entailment"),
  ),
  (
    "ax",
    "diagnostic.tsv",
    "index|sentence1|sentence2\n3|a|b",
    ("3", "a", "b", None),
  ),
)


@pytest.mark.parametrize(("name", "file", "rows", "expected"), GLUE_ROWS)
def test_glue_columns(write, name, file, rows, expected):
  content = rows.replace("|", "\t") + "\n"
  assert read_glue(write, name, file, content) == [expected]


def test_broken_rows_are_skipped_in_the_training_file_of_qqp_only(
  write, capsys
):
  content = (
    "id\tqid1\tqid2\tquestion1\tquestion2\tis_duplicate\n"
    "1\t2\t3\ta\n4\t5\t6\tb\tc\t1\n"
  )
  [example] = read_glue(write, "qqp", "train.tsv", content)
  assert example == ("0", "b", "c", "duplicate")
  assert capsys.readouterr().err == (
    "data/train.tsv: skipped 1 rows of too few columns\n"
  )
  with pytest.raises(ValueError) as error:
    read_glue(write, "qqp", "dev.tsv", content)
  assert str(error.value) == (
    "data/dev.tsv:2: expected at least 6 columns, found 4 (is a tab missing?)"
  )


def test_mismatched_files_may_be_absent(write):
  write("data/dev_matched.tsv", "")
  write("data/test_mismatched.tsv", "")
  task = classification_tasks.task_in_folder(TASKS["mnli"], "data")
  assert [name for name, _ in task.dev] == ["matched"]
  assert [name for name, _ in task.test] == ["matched", "mismatched"]
  assert task.test[1][1].path == "data/test_mismatched.tsv"


def test_xnli_languages(write):
  dev = (
    "header\n"
    "ar\tneutral\t\t\t\t\ta\tb\t1\t2\n"
    "zh\tneutral\t\t\t\t\tc\td\t1\t2\n"
    "de\tentailment\t\t\t\t\te\tf\t1\t2\n"
  )
  write("xnli.dev.tsv", dev)
  write("xnli.test.tsv", dev)
  train = (
    "premise\thypo\tlabel\n{0}1\t{0}2\tcontradictory\n{0}3\t{0}4\tneutral\n"
  )
  for language in ("zh", "de"):
    write(f"multinli/multinli.train.{language}.tsv", train.format(language))
  task = classification_tasks.xnli_task([" zh", "de"])
  task = classification_tasks.task_in_folder(task, ".")
  assert [texts(table) for table in task.train] == [
    [("0", "zh1", "zh2", "contradiction"), ("1", "zh3", "zh4", "neutral")],
    [("0", "de1", "de2", "contradiction"), ("1", "de3", "de4", "neutral")],
  ]
  for _, table in (*task.dev, *task.test):
    assert [e[1:] for e in classification.read_examples(table)] == [
      ("c", "d", "neutral", f"{table.path}:3", "zh"),
      ("e", "f", "entailment", f"{table.path}:4", "de"),
    ]


def test_xnli_is_chinese_by_default():
  task = TASKS["xnli"]
  assert [t.path for t in task.train] == ["multinli/multinli.train.zh.tsv"]
  assert task.dev[0][1].groups == ("zh",)
  with pytest.raises(ValueError, match="--xnli_language: expected a code"):
    classification_tasks.xnli_task([" "])


# How many examples there are in files.
REAL_FILES = {
  "CoLA": {"train.tsv": 8551, "dev.tsv": 1043, "test.tsv": 1063},
  "SST-2": {"train.tsv": 67349, "dev.tsv": 872, "test.tsv": 1821},
  "MRPC": {"train.tsv": 3667, "dev.tsv": 408, "test.tsv": 1725},
  "STS-B": {"train.tsv": 5749, "dev.tsv": 1500, "test.tsv": 1379},
  "QQP": {"train.tsv": 8999, "dev.tsv": 1000},
  "MNLI": {"train.tsv": 8999, "dev_matched.tsv": 1000},
  "QNLI": {"dev.tsv": 5463, "test.tsv": 5463},
  "RTE": {"train.tsv": 2490, "dev.tsv": 277, "test.tsv": 3000},
  "WNLI": {"train.tsv": 635, "dev.tsv": 71, "test.tsv": 146},
  "AX": {"diagnostic.tsv": 1104},
}


@pytest.mark.parametrize("name", REAL_FILES)
def test_real_glue_files(name):
  folder = DATA / "glue" / name
  if not folder.is_dir():
    pytest.skip(f"{folder} is absent")
  for file, count in REAL_FILES[name].items():
    task, table = find_file(name, folder, file)
    examples = list(classification.read_examples(table))
    ids = [example.example_id for example in examples]
    assert ids == list(map(str, range(count)))
    encode = classification.make_label_encoder(task.labels, task.problem)
    is_labelled = table.label is not None
    assert len(set(map(encode, examples))) > is_labelled
    # Texts, not ids.
    assert sum(len(example.text_a) for example in examples) > 20 * count
    for example in examples:
      assert (example.text_b is None) == (table.text_pair is None)
      assert (example.label is not None) == is_labelled


def test_real_xnli_files():
  folder = DATA / "xnli"
  if not folder.is_dir():
    pytest.skip(f"{folder} is absent")
  for languages, counts in (
    (["zh"], [2490, 5010]),
    (["sw", "en"], [4980, 10020]),
  ):
    task = classification_tasks.xnli_task(languages)
    task = classification_tasks.task_in_folder(task, str(folder))
    for (_, table), count in zip((*task.dev, *task.test), counts, strict=True):
      examples = list(classification.read_examples(table))
      assert len(examples) == count
      assert {example.group for example in examples} == set(languages)
      assert classification.find_labels(examples, task.problem) == list(
        ENTAILMENT
      )


def test_a_submission_has_labels_of_the_task_or_scores_from_0_to_5(tmp_path):
  def submit(name, *predictions):
    folder = str(tmp_path / "new")
    rows = [(str(index), value) for index, value in enumerate(predictions)]
    classification_tasks.write_submission(folder, TASKS[name], "test", rows)

  submit("rte", "entailment", "not_entailment")
  assert (tmp_path / "new" / "RTE.tsv").read_text() == (
    "index\tprediction\n0\tentailment\n1\tnot_entailment\n"
  )
  submit("mrpc", "not_equivalent", "equivalent")
  assert (tmp_path / "new" / "MRPC.tsv").read_text() == (
    "index\tprediction\n0\t0\n1\t1\n"  # As in the files.
  )
  submit("sts-b", -0.5, 2.34567, 5.1)
  assert (tmp_path / "new" / "STS-B.tsv").read_text() == (
    "index\tprediction\n0\t0.000\n1\t2.346\n2\t5.000\n"
  )
  with pytest.raises(ValueError, match="RTE.tsv: 'neutral' is no label of rte"):
    submit("rte", "neutral")


# Files of the user's own.


def find(path, *columns, **options):
  """Returns the columns and the header that are found in a file."""
  table = classification_tasks.find_table(
    path, classification_tasks.Columns(*columns), **options
  )
  assert table.path == path
  return tuple(table[1:6])


def test_files_are_found_in_a_folder(write):
  write("data/train.csv", "label,text\n1,a\n")
  write("data/test.jsonl", '{"text": "b"}\n')
  task = classification_tasks.file_task("data", problem_name="multi_label")
  assert task.train == (
    classification.Table(
      "data/train.csv",
      "text",
      label="label",
      header=True,
      empty_is_label=True,
    ),
  )
  assert task.dev == () and not task.has_text_pair
  ((name, test),) = task.test
  assert name == "test"
  assert test == classification.Table(
    "data/test.jsonl", "text", label_required=False, empty_is_label=True
  )
  assert (task.name, task.labels, task.problem) == ("file", (), "multi_label")


@pytest.mark.parametrize(
  ("name", "text"),
  [
    ("t.tsv", "text\tlabel\ttext_pair\na\tb\tc\n"),
    ("t.jsonl", '{"text": "a", "label": "b", "text_pair": "c"}\n'),
  ],
)
def test_a_second_text_that_is_not_read_is_noted(write, capsys, name, text):
  write(name, text)
  assert classification_tasks.find_table(name).text_pair is None
  note = f"note: {name}: the column text_pair is not read; --text_pair_column="
  assert note in capsys.readouterr().err
  pairs = classification_tasks.Columns(text_pair="text_pair")
  assert classification_tasks.find_table(name, pairs).text_pair == "text_pair"
  assert not capsys.readouterr().err


def test_files_that_are_given_come_first(write):
  write("data/train.tsv", "text\tlabel\na\tb\n")
  write("data/dev.tsv", "text\tlabel\na\tb\n")
  write("other.csv", "x,y,z\n1,2,3\n")
  task = classification_tasks.file_task(
    "data",
    eval_file="other.csv",
    predict_file="other.csv",
    train_file="other.csv",
    columns=classification_tasks.Columns("y", "-1", "0", "x"),
  )
  assert task.has_text_pair
  assert task.train[0] == classification.Table(
    "other.csv", "y", -1, 0, "x", header=True
  )
  assert task.dev[0][1] == task.train[0]
  assert task.test[0][1] == task.train[0]._replace(label_required=False)


@pytest.mark.parametrize("name", ["dev", "valid", "val"])
def test_files_to_evaluate_on_have_several_names(name, write):
  write("data/train.tsv", "text\tlabel\na\tx\nb\ty\n")
  write(f"data/{name}.tsv", "text\tlabel\na\tx\n")
  [(of_set, table)] = classification_tasks.file_task("data").dev
  assert (of_set, table.path) == ("dev", f"data/{name}.tsv")


def test_a_folder_without_files_is_refused(write):
  write("data/train.doc", "")
  with pytest.raises(ValueError) as error:
    classification_tasks.file_task("data")
  assert str(error.value) == (
    "--data_dir=data: no file of train, dev, valid, val, test there; expected "
    "a name such as train.tsv, ending in .tsv, .csv, .jsonl, .json, with or "
    "without .gz or .xz after it; it holds train.doc"
  )


def test_the_folder_above_that_of_a_task_is_refused(write):
  write("glue/MRPC/test.tsv", "")
  with pytest.raises(ValueError) as error:
    classification_tasks.task_in_folder(TASKS["mrpc"], "glue")
  assert str(error.value) == (
    "--data_dir=glue: expected train.tsv or dev.tsv or test.tsv there; it holds"
    " MRPC; did you mean glue/MRPC?"
  )


@pytest.mark.parametrize(
  ("required", "content", "columns", "expected"),
  [
    (True, "label,text", (), ("text", None, "label", None, True)),
    (True, "text,text_b,label", (), ("text", None, "label", None, True)),
    (True, "a,b,c", ("b", None, "a"), ("b", None, "a", None, True)),
    (True, "a,b,c", ("b", "c", 0), ("b", "c", 0, None, True)),
    (True, "text,b,label", (1, None, 0), (1, None, 0, None, True)),
    (
      True,
      "text,label",
      (None, None, None, "guid"),
      ("text", None, "label", None, True),
    ),
    (True, "a,b", (0, None, 1), (0, None, 1, None, False)),
    # Files to predict need no labels.
    (False, "text,x", (), ("text", None, None, None, True)),
    (False, "x,y", ("y", None, "label"), ("y", None, None, None, True)),
    (False, "a", (), (0, None, None, None, False)),
    (False, "a", (1, None, 0), (0, None, None, None, False)),
    (False, "a,b", (0,), (0, None, None, None, False)),
    (False, "a,b", (0, None, 2), (0, None, None, None, False)),
    (False, "a,b", (0, 1, -1), (0, 1, None, None, False)),
    (False, "x,text", ("text", None, -1), ("text", None, None, None, True)),
    (False, "a,b", (0, None, 1, 1), (0, None, 1, 1, False)),
  ],
)
def test_columns_are_found(write, required, content, columns, expected):
  path = write("t.csv", f"{content}\n{content}\n")
  assert find(path, *columns, label_required=required) == expected


def test_columns_of_json_are_its_keys(write):
  path = write("t.jsonl", '{"text": "a", "label": 1}\n{"text": "b"}\n')
  assert find(path) == ("text", None, "label", None, None)
  path = write("t.jsonl", '{"text": "a", "x": "b"}\n')
  found = find(path, None, "x", label_required=False)
  assert found == ("text", "x", None, None, None)


def test_a_header_can_be_given(write):
  for content, header in (("a,b\nc,d\n", True), ("text,label\nc,d\n", False)):
    path = write("t.csv", content)
    columns = (0, None, 1, None, header)
    assert find(path, 0, None, 1, header=header) == columns


def write_labels(write, *labels):
  content = "".join(f"{label}\ttext {i}\n" for i, label in enumerate(labels))
  return write("t.tsv", content)


@pytest.mark.parametrize(
  "labels", [["sentiment", *["pos", "neg"] * 2], ["Score", "1.5", "1.5"]]
)
def test_a_first_row_that_looks_like_a_header_is_asked_for(write, labels):
  path = write_labels(write, *labels)
  with pytest.raises(ValueError) as error:
    find(path, 1, None, 0)
  assert str(error.value) == (
    f"t.tsv:1: is this a header? {labels[0]!r} is the label of no other row;"
    " pass --header=yes or --header=no"
  )
  for header in (True, False):
    columns = (1, None, 0, None, header)
    assert find(path, 1, None, 0, header=header) == columns


@pytest.mark.parametrize(
  "labels",
  [
    ["pos", "neg", "pos"],
    ["3.5", "1", "1", "1", "1"],
    ["b,a", "a", "a", "a", "a"],
    ["d", "a", "b", "c", "a"],  # Few rows for many labels.
    ["a"],
  ],
)
def test_a_first_label_need_not_return(write, labels):
  path = write_labels(write, *labels)
  assert find(path, 1, None, 0) == (1, None, 0, None, False)


@pytest.mark.parametrize(
  ("name", "content", "columns", "missing", "role", "row"),
  [
    ("t.tsv", "ham\ta\nspam\tb\n", (), "text", "text", "ham, a"),
    ("t.tsv", "ham\ta\n", (1,), "label", "label", "ham, a"),
    ("t.csv", "text_a,label\n", (), "text", "text", "text_a, label"),
    ("t.tsv", "a\tb\tc\n", ("x", None, "b"), "x", "text", "a, b, c"),
    ("t.csv", "text,label\n", (None, "b"), "b", "text_pair", "text, label"),
    ("t.jsonl", '{"a": 1}\n', (), "text", "text", "a"),
  ],
)
def test_columns_that_are_missing(
  write, name, content, columns, missing, role, row
):
  with pytest.raises(ValueError) as error:
    find(write(name, content), *columns)
  assert str(error.value) == (
    f"{name}: no column {missing!r}; pass --{role}_column, a name or a number"
    f" from 0; the first row is: {row}"
  )


@pytest.mark.parametrize(
  ("content", "columns", "message"),
  [
    ("\n", (), "holds no example"),
    ("text\tx\n", ("text", None, 0), "column 0 cannot be a text and the label"),
    ("a\ta\tb\n", ("a", None, "b"), "2 columns are called 'a'; pass a number"),
  ],
)
def test_columns_that_are_refused(write, content, columns, message):
  with pytest.raises(ValueError) as error:
    find(write("t.tsv", content), *columns)
  assert str(error.value) == f"t.tsv: {message}"


def test_files_to_predict_need_the_columns_that_are_given(write):
  path = write("t.csv", "text,label\na,b\n")
  with pytest.raises(ValueError, match="t.csv: no column 'guid'"):
    find(path, None, None, None, "guid", label_required=False)
  path = write("test.tsv", "a\n")
  columns = classification_tasks.Columns(0, 1, 2)
  task = classification_tasks.file_task(
    predict_file=path, header=False, columns=columns
  )
  with pytest.raises(ValueError, match="test.tsv:1: "):
    list(classification.read_examples(task.test[0][1]))


EMOTIONS = [str(number) for number in range(28)]


@pytest.mark.parametrize(
  ("file", "columns", "problem", "count", "labels"),
  [
    ("sms_spam.tsv", ("1", None, "0"), "single_label", 5574, ["ham", "spam"]),
    ("chnsenticorp/train.tsv", ("text_a",), "single_label", 9600, ["0", "1"]),
    ("multilabel/train.tsv", (0, None, 1, 2), "multi_label", 43410, EMOTIONS),
  ],
)
def test_real_files(file, columns, problem, count, labels):
  if not (DATA / file).exists():
    pytest.skip(f"{DATA / file} is absent")
  columns = classification_tasks.Columns(*columns)
  task = classification_tasks.file_task(
    train_file=str(DATA / file), problem_name=problem, columns=columns
  )
  examples = list(classification.read_examples(task.train[0]))
  assert len(examples) == count
  assert classification.find_labels(examples, problem) == labels


def test_the_column_of_a_query(tmp_path):
  path = tmp_path / "dev.tsv"
  path.write_text("q\ttext\tlabel\n7\ta\t1\n8\tb\t0\n")
  columns = classification_tasks.Columns(query="q")
  task = classification_tasks.file_task(eval_file=str(path), columns=columns)
  [(_, table)] = task.dev
  found = classification.read_examples(table)
  assert [example.group for example in found] == ["7", "8"]
  assert "mrr_at_10" in task.metrics and task.metrics[0] == "accuracy"
  message = "no column 'x'; pass --query_column, a name"
  with pytest.raises(ValueError, match=message):
    classification_tasks.file_task(
      eval_file=str(path), columns=classification_tasks.Columns(query="x")
    )
  with pytest.raises(ValueError, match="--query_column: several labels"):
    classification_tasks.file_task(
      eval_file=str(path), columns=columns, problem_name="multi_label"
    )
