"""Whether flags name paths that can be used; more is in test_mistakes."""

import os
import re

import pytest
import tensorflow as tf

from bert.data import path_checks


def test_a_mount_point_cannot_be_replaced(tmp_path, monkeypatch):
  path_checks.check("output", "empty_folder", str(tmp_path))
  monkeypatch.setattr("os.path.ismount", lambda path: True)
  with pytest.raises(ValueError, match="a mount point; name a folder in it"):
    path_checks.check("output", "empty_folder", str(tmp_path))


def test_a_pipe_is_only_for_what_is_read_once(tmp_path):
  # search.py's said that it is empty, and run_tagging.py's that it holds no
  # sentence: they had read it before.
  path = str(tmp_path / "pipe")
  os.mkfifo(path)
  path_checks.check("input_file", "files", path)
  path_checks.check("query_file", "input", path)
  message = (
    f"--train_file={path}: a pipe; expected a file, for it is read twice"
  )
  with pytest.raises(ValueError, match=f"^{re.escape(message)}$"):
    path_checks.check("train_file", "file", path)


def test_names_that_are_not_utf8_are_refused_before_any_work(tmp_path):
  """A training ended when it recorded the name, after minutes of features."""
  path = os.fsdecode(os.fsencode(tmp_path / "a") + b"\xff.txt")
  open(path, "w").close()
  cure = "a name that is not UTF-8; rename it"
  for kind in ("file", "input", "new_files", "new_folder", "model"):
    with pytest.raises(ValueError) as error:
      path_checks.check("train_file", kind, path)
    assert str(error.value) == f"--train_file={path}: {cure}"
  with pytest.raises(ValueError) as error:
    path_checks.check("input_file", "files", f"{tmp_path}/*")
  assert str(error.value) == f"--input_file={tmp_path}/*: {path}: {cure}"


def test_a_remote_folder_with_files_is_not_replaced():
  folder = "ram://test_path_checks/out"
  path_checks.check("output", "empty_folder", folder)
  tf.io.gfile.makedirs(folder)
  path_checks.check("output", "empty_folder", folder)
  with tf.io.gfile.GFile(f"{folder}/file", "w") as file:
    file.write("x")
  message = f"^--output={folder}: is there already; name a folder that is new"
  with pytest.raises(ValueError, match=message):
    path_checks.check("output", "empty_folder", folder)
