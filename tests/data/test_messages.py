"""Tests of bert/data/messages.py."""

from bert.data import messages


def test_names_in_messages_are_few_and_on_one_line():
  names = ["two\nlines", "x" * 50, *map(str, range(30))]
  text = messages.list_names(names)
  assert text.startswith(f"two lines, {'x' * 40}..., 0, 1")
  assert text.endswith(", 17, ...")
