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
