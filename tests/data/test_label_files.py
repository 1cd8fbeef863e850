"""Files of labels."""

import pytest

from bert.data import label_files


def test_labels_are_written_and_read(tmp_path):
  path = str(tmp_path / "new" / "labels.txt")
  labels = ["b", "a c", "\u6587", "x\u2028y"]
  label_files.write(path, labels)
  assert label_files.read(path) == labels
  with open(path, "rb") as file:
    assert file.read() == "b\na c\n\u6587\nx\u2028y\n".encode()


@pytest.mark.parametrize(
  ("beside", "given", "head", "chosen"),
  [
    # Weights have learned the order of the file.
    (["settings.json", "model.ckpt-7.index"], ["a", "b"], [], ["b", "a"]),
    (["settings.json", "best"], [], ["a", "b"], ["b", "a"]),
    # A user wrote it before the training.
    ([], ["a", "b"], [], ["b", "a"]),
    # A run that evaluated other weights, or that ended before it had any.
    (["settings.json"], ["a", "b", "c"], [], ["a", "b", "c"]),
    (["settings.json"], [], ["a", "b"], ["a", "b"]),
    # Nothing else says which labels there are.
    (["settings.json"], [], [], ["b", "a"]),
  ],
)
def test_whose_labels_count(tmp_path, beside, given, head, chosen):
  path = tmp_path / "labels.txt"
  path.write_text("b\na\n")
  for name in beside:
    (tmp_path / name).write_text("{}")
  found = label_files.choose(str(path), given, origin="those", head=head)
  assert list(found) == chosen


@pytest.mark.parametrize(
  "labels", [["a", "a"], ["a\nb"], ["a\rb"], [""], [" a"], ["\ufeffa"]]
)
def test_labels_that_cannot_be_written(tmp_path, labels):
  path = tmp_path / "labels.txt"
  with pytest.raises(ValueError, match=r"labels.txt: cannot hold the label '"):
    label_files.write(str(path), labels)
  assert not path.exists()


@pytest.mark.parametrize(
  ("content", "message"),
  [
    ("\ufeffa\r\nb\n\n", "l.txt:3: a blank line; expected a label"),
    (
      "\ufeffa\r\nb\na\n",
      "l.txt:3: the label 'a' is on line 1 too; expected each label once",
    ),
    ("", "l.txt: holds no label; expected one a line"),
  ],
)
def test_faulty_label_files(tmp_path, content, message):
  path = tmp_path / "l.txt"
  path.write_text(content, newline="")
  with pytest.raises(ValueError) as error:
    label_files.read(str(path))
  assert str(error.value) == message.replace("l.txt", str(path), 1)
