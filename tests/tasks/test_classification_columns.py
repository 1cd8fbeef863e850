"""Labels in columns of their own: `toxic,insult`, with 0 and 1 in rows."""

import pytest

from bert.tasks import classification, classification_tasks
import program_flags
import tiny
import tiny_models

COLUMNS = classification_tasks.Columns(label=("toxic", "insult"))
HEAD = "text,insult,toxic\n"


def read(path, kind="train", **options):
  """Returns the labels of a file's examples, as run_classifier reads them."""
  task = classification_tasks.file_task(
    **{f"{kind}_file": path},
    columns=options.pop("columns", COLUMNS),
    problem_name="multi_label",
    **options,
  )
  assert task.labels == ("toxic", "insult")
  [(_, [table])] = task.sets(kind)
  return [example.label for example in classification.read_examples(table)]


def predict(folder, path):
  """Runs a prediction by random weights of a model of the two labels."""
  tiny_models.write_trained(
    folder / "trained", "multi_label", labels=COLUMNS.label
  )
  return tiny.run(
    "run_classifier",
    folder,
    task_name="file",
    data_dir="",
    problem="multi_label",
    label_columns=",".join(COLUMNS.label),
    predict_file=path,
    model=folder / "trained",
    bert_config_file="",
    init_checkpoint="",
    vocab_file="",
    do_train=False,
    do_eval=False,
    do_predict=True,
  )


@pytest.mark.parametrize(
  ("name", "content"),
  [
    ("t.csv", f"{HEAD}a,1,0\nb,0,0\nc,1.0,True\n"),
    ("t.tsv", "insult\ttoxic\ttext\n1\t0\ta\n 0 \tfalse\tb\n1\t1\tc\n"),
    (
      "t.jsonl",
      '{"text": "a", "toxic": 0, "insult": 1}\n'
      '{"text": "b", "toxic": false, "insult": 0.0}\n'
      '{"text": "c", "toxic": "1", "insult": true}\n',
    ),
  ],
)
def test_columns_of_zeros_and_ones_are_labels(write, name, content):
  expected = [("insult",), (), ("toxic", "insult")]
  path = write(name, content)
  for kind in ("train", "eval", "predict"):
    assert read(path, kind) == expected


def test_a_file_to_predict_may_lack_them(write):
  assert read(write("t.csv", "text\na\nb\n"), "predict") == [None, None]
  path = write("t.jsonl", '{"text": "a"}\n{"text": "b", "toxic": null}\n')
  assert read(path, "predict") == [None, None]
  # Without a label in either column, it is not known which ones apply.
  path = write("t.csv", f"{HEAD}a,,\nb,0,1\n")
  assert read(path, "predict") == [None, ("toxic",)]


def test_rows_without_labels_are_left_out_or_refused(write):
  path = write("t.csv", f"{HEAD}a,,\nb,0,1\n")
  assert read(path, skips_unlabelled=True) == [("toxic",)]
  message = "t.csv:2: no label; 1 of 2 rows have none; --skip_unlabelled="
  with pytest.raises(ValueError, match=message):
    read(path, skips_unlabelled=False)


@pytest.mark.parametrize(
  ("name", "content", "message"),
  [
    (
      "t.csv",
      f"{HEAD}a,0,0\nb,1,2\n",
      "t.csv:3: expected 0 or 1 in the column 'toxic' of --label_columns, "
      "found '2'",
    ),
    (
      "t.csv",
      f"{HEAD}a,0,-1\n",
      "t.csv:2: expected 0 or 1 in the column 'toxic' of --label_columns, "
      "found '-1'",
    ),
    (
      "t.csv",
      f"{HEAD}a,,1\n",
      "t.csv:2: expected 0 or 1 in the column 'insult' of --label_columns, "
      "found an empty cell",
    ),
    (
      "t.jsonl",
      '{"text": "a", "toxic": 1, "insult": null}\n',
      "t.jsonl:1: expected 0 or 1 in the column 'insult' of --label_columns, "
      "found an empty cell",
    ),
    (
      "t.jsonl",
      '{"text": "a", "toxic": [1], "insult": 0}\n',
      "t.jsonl:1: 'toxic' must be a string or a number, found a list",
    ),
    (
      "t.jsonl",
      '{"text": "a", "toxic": 1, "insult": 0}\n{"text": "b", "toxic": 1}\n',
      "t.jsonl:2: no key 'insult'; the keys are text, toxic",
    ),
    (
      "t.csv",
      "text,toxic\na,1\n",
      "t.csv: no column 'insult'; --label_columns takes the names of all "
      "labels; the first row is: text, toxic",
    ),
    (
      "t.csv",
      "text,toxic,insult,toxic\na,1,0,0\n",
      "t.csv: 2 columns are called 'toxic'; pass a number",
    ),
  ],
)
def test_wrong_columns_and_cells_are_refused(write, name, content, message):
  with pytest.raises(ValueError) as error:
    read(write(name, content))
  assert str(error.value) == message


def test_a_file_to_predict_has_all_of_them_or_none(write):
  path = write("t.csv", "text,toxic\na,1\n")
  with pytest.raises(ValueError, match="t.csv: no column 'insult'; --label_"):
    read(path, "predict")


def test_a_text_is_not_a_label(write):
  columns = COLUMNS._replace(text="insult")
  with pytest.raises(ValueError, match="'insult' cannot be a text and the lab"):
    read(write("t.csv", f"{HEAD}a,1,0\n"), columns=columns)


def test_predictions_are_scored_on_all_rows_or_on_none(write, tmp_path):
  path = write("t.csv", f"{HEAD}a,,\nb,0,1\nc,,\n")
  result = predict(tmp_path, path)
  message = f"{path}:2, {path}:4: no label; 2 of 3 rows have none: predictions "
  program_flags.assert_refused(result, message)


def test_labels_are_looked_for_in_more_than_the_first_line(write):
  row = '{"text": "b", "toxic": %s, "insult": 1}'
  path = write("t.jsonl", '{"text": "a"}\n' + row % '"x"' + "\n")
  with pytest.raises(ValueError, match="t.jsonl:2: expected 0 or 1 in the"):
    read(path, "predict")
