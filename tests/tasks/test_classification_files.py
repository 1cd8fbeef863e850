"""Finding the columns of the user's files."""

import pytest

import paths
from tasks import classification, classification_files

DATA = paths.SHARED / "data"


@pytest.fixture
def write(tmp_path, monkeypatch):
  """Gives a function that writes a file into the current folder."""
  monkeypatch.chdir(tmp_path)

  def write_file(name, content):
    path = tmp_path / name
    path.parent.mkdir(exist_ok=True)
    path.write_text(content, encoding="utf-8", newline="")
    return name

  return write_file


def find(path, *columns, **options):
  """Returns the columns and the header that are found in a file."""
  table = classification_files.find_table(
    path, classification_files.Columns(*columns), **options
  )
  assert table.path == path
  return tuple(table[1:6])


def test_files_are_found_in_a_folder(write):
  write("data/train.csv", "label,text\n1,a\n")
  write("data/test.jsonl", '{"text": "b"}\n')
  task = classification_files.file_task("data", problem="multi_label")
  assert task.train == (
    classification.Table("data/train.csv", "text", label="label", header=True),
  )
  assert task.dev == () and not task.has_text_pair
  ((name, test),) = task.test
  assert name == "test"
  assert test == classification.Table(
    "data/test.jsonl", "text", label_required=False
  )
  assert (task.name, task.labels, task.problem) == ("file", (), "multi_label")


def test_files_that_are_given_come_first(write):
  write("data/train.tsv", "text\tlabel\na\tb\n")
  write("data/dev.tsv", "text\tlabel\na\tb\n")
  write("other.csv", "x,y,z\n1,2,3\n")
  task = classification_files.file_task(
    "data",
    eval_file="other.csv",
    predict_file="other.csv",
    train_file="other.csv",
    text_column="y",
    text_pair_column="-1",
    label_column="0",
    id_column="x",
  )
  assert task.has_text_pair
  assert task.train[0] == classification.Table(
    "other.csv", "y", -1, 0, "x", header=True
  )
  assert task.dev[0][1] == task.train[0]
  assert task.test[0][1] == task.train[0]._replace(label_required=False)


@pytest.mark.parametrize(
  ("names", "message"),
  [
    (
      ["train.doc"],
      "no train, dev or test file there; expected a name such as train.tsv,"
      " ending in .tsv, .csv, .jsonl, with or without .gz or .xz after it",
    ),
    (
      ["dev.tsv", "dev.csv.gz"],
      "holds dev.tsv and dev.csv.gz; keep one of them",
    ),
  ],
)
def test_folders_that_are_refused(write, names, message):
  for name in names:
    write(f"data/{name}", "")
  with pytest.raises(ValueError) as error:
    classification_files.file_task("data")
  assert str(error.value) == f"--data_dir=data: {message}"


@pytest.mark.parametrize(
  ("content", "columns", "expected"),
  [
    ("label,text", (), ("text", None, "label", None, True)),
    ("text,text_b,label", (), ("text", None, "label", None, True)),
    ("a,b,c", ("b", None, "a"), ("b", None, "a", None, True)),
    ("a,b,c", ("b", "c", 0), ("b", "c", 0, None, True)),
    ("text,b,label", (1, None, 0), (1, None, 0, None, True)),
    (
      "text,label",
      (None, None, None, "guid"),
      ("text", None, "label", None, True),
    ),
    ("a,b", (0, None, 1), (0, None, 1, None, False)),
  ],
)
def test_columns_of_files_to_learn_from(write, content, columns, expected):
  path = write("t.csv", f"{content}\n{content}\n")
  assert find(path, *columns) == expected


def test_columns_of_json_are_its_keys(write):
  path = write("t.jsonl", '{"text": "a", "label": 1}\n{"text": "b"}\n')
  assert find(path) == ("text", None, "label", None, None)
  path = write("t.jsonl", '{"text": "a", "x": "b"}\n')
  found = find(path, None, "x", label_required=False)
  assert found == ("text", "x", None, None, None)


@pytest.mark.parametrize(
  ("content", "columns", "expected"),
  [
    ("text,x\na,b\n", (), ("text", None, None, None, True)),
    ("x,y\na,b\n", ("y", None, "label"), ("y", None, None, None, True)),
    ("a\nb\n", (), (0, None, None, None, False)),
    ("a\nb\n", (1, None, 0), (0, None, None, None, False)),
    ("a,b\n", (0,), (0, None, None, None, False)),
    ("a,b\n", (0, None, 2), (0, None, None, None, False)),
    ("a,b\n", (0, 1, -1), (0, 1, None, None, False)),
    ("x,text\na,b\n", ("text", None, -1), ("text", None, None, None, True)),
    ("a,b\n", (0, None, 1, 1), (0, None, 1, 1, False)),
  ],
)
def test_files_to_predict_need_no_labels(write, content, columns, expected):
  path = write("t.csv", content)
  assert find(path, *columns, label_required=False) == expected


def test_a_header_can_be_given(write):
  path = write("t.csv", "a,b\nc,d\n")
  assert find(path, 0, None, 1, header=True) == (0, None, 1, None, True)
  path = write("t.csv", "text,label\nc,d\n")
  assert find(path, 0, None, 1, header=False) == (0, None, 1, None, False)


def write_labels(write, labels):
  content = "".join(f"{label}\ttext {i}\n" for i, label in enumerate(labels))
  return write("t.tsv", content)


@pytest.mark.parametrize(
  ("first", "rest"),
  [("sentiment", ["pos", "neg"] * 2), ("Score", ["1.5", "1.5"])],
)
def test_a_first_row_that_looks_like_a_header_is_asked_for(write, first, rest):
  path = write_labels(write, [first, *rest])
  with pytest.raises(ValueError) as error:
    find(path, 1, None, 0)
  assert str(error.value) == (
    f"t.tsv:1: is this a header? {first!r} is the label of no other row; pass"
    " --header=yes or --header=no"
  )
  assert find(path, 1, None, 0, header=False) == (1, None, 0, None, False)
  assert find(path, 1, None, 0, header=True) == (1, None, 0, None, True)


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
  path = write_labels(write, labels)
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
    (
      "text\tlabel\n",
      ("text", None, 0),
      "column 0 cannot be a text and the label",
    ),
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
  columns = {"text_column": 0, "text_pair_column": 1, "label_column": 2}
  task = classification_files.file_task(
    predict_file=path, header=False, **columns
  )
  with pytest.raises(ValueError, match="test.tsv:1: "):
    list(classification.read_examples(task.test[0][1]))


@pytest.mark.parametrize(
  ("file", "columns", "problem", "count", "labels"),
  [
    (
      "sms_spam.tsv",
      {"text_column": "1", "label_column": "0"},
      "single_label",
      5574,
      ["ham", "spam"],
    ),
    (
      "chnsenticorp/train.tsv",
      {"text_column": "text_a"},
      "single_label",
      9600,
      ["0", "1"],
    ),
    (
      "multilabel/train.tsv",
      {"text_column": "0", "label_column": "1", "id_column": "2"},
      "multi_label",
      43410,
      [str(number) for number in range(28)],
    ),
  ],
)
def test_real_files(file, columns, problem, count, labels):
  if not (DATA / file).exists():
    pytest.skip(f"{DATA / file} is absent")
  task = classification_files.file_task(
    train_file=str(DATA / file), problem=problem, **columns
  )
  examples = list(classification.read_examples(task.train[0]))
  assert len(examples) == count
  assert classification.find_labels(examples, problem) == labels
