"""Tests of what features depend on."""

import pathlib

from bert.inputs import feature_sets


def test_the_key_depends_on_settings_and_contents(tmp_path):
  def make_key(length, name, content="a"):
    path = str(tmp_path / name)
    pathlib.Path(path).write_text(content)
    settings = {"max_seq_length": length, "tables": [{"path": path}]}
    return feature_sets.make_key(settings, [path])

  first = make_key(8, "data.tsv")
  assert make_key(8, "data.tsv") == first
  assert make_key(9, "data.tsv") != first
  # Copies in other places are the same data, if they are read alike.
  assert make_key(8, "copy.tsv") == first
  assert make_key(8, "copy.csv") != first
  assert make_key(8, "data.tsv", "b") != first
