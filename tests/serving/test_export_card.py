"""A damaged export.json is one line that names what is wrong."""

import dataclasses
import hashlib
import json

import pytest

from bert.serving import answers, export_card, exported_model
import tiny_models

DELETED = object()


@pytest.fixture
def good(tmp_path):
  maker = tiny_models.make_maker(tmp_path, ["text"])
  return json.loads(json.dumps(dataclasses.asdict(maker.card)))


def read(folder, content):
  (folder / "export.json").write_text(json.dumps(export_card.seal(content)))
  return export_card.read(str(folder), answers.check)


def test_facts_come_back(tmp_path, good):
  card = read(tmp_path, good)
  assert card.labels == ("neg", "pos")
  assert json.loads(json.dumps(dataclasses.asdict(card))) == good


@pytest.mark.parametrize(
  ("name", "value", "message"),
  [
    ("version", DELETED, "version None, expected 4"),
    ("version", 1, "version 1, expected 4: export the model again"),
    ("kind", "poetry", "kind is 'poetry', expected one of"),
    ("kind", 5, "kind is 5, expected str"),
    ("labels", DELETED, "labels is None, expected tuple"),
    ("labels", [], "0 labels of the kind single_label"),
    ("labels", [1], "labels is 1, expected str"),
    ("labels", "neg", "labels is 'neg', expected tuple"),
    ("inputs", None, "inputs is None"),
    ("max_seq_length", "128", "max_seq_length is '128', expected int"),
    ("max_seq_length", True, "max_seq_length is True, expected int"),
    ("max_seq_length", -1, "max_seq_length is -1, expected 3 to 16"),
    ("max_seq_length", 10**9, "max_seq_length is 1000000000, expected 3 to 16"),
    ("num_heads", 10**9, "num_heads is 1000000000, expected 0 to 9999"),
    ("inputs", ["a"], "inputs are ('a',), expected ('text', 'text_pair')"),
    ("thresholds", ["a"], "thresholds is 'a', expected int or float"),
    ("settings", {}, "window_pooling is None, expected mean or max"),
    (
      "settings",
      {"doc_stride": None, "window_pooling": "median"},
      "window_pooling is 'median', expected mean or max",
    ),
    (
      "settings",
      {"doc_stride": 16, "window_pooling": "max"},
      "--doc_stride=16: expected 1 to 14",
    ),
    (
      "settings",
      {"doc_stride": 1.5, "window_pooling": "mean"},
      "doc_stride is 1.5, expected 1 to 999999 or None",
    ),
  ],
)
def test_what_is_wrong_is_named(tmp_path, good, name, value, message):
  content = {**good, name: value}
  if value is DELETED:
    del content[name]
  with pytest.raises(ValueError) as caught:
    read(tmp_path, content)
  assert message in str(caught.value)
  assert str(caught.value).endswith("export the model again")


@pytest.mark.parametrize(
  ("content", "message"),
  [
    *((x, "no readable export.json") for x in (b"", b"{", b"\xff", None)),
    *((x, "no readable export.json") for x in (b"[" * 100_000, b"[1]")),
    (b'{"version": 4, "sha256": ""}', "not as it was written; copy or export"),
  ],
)
def test_what_cannot_be_read(tmp_path, content, message):
  if content is not None:
    (tmp_path / "export.json").write_bytes(content)
  with pytest.raises(ValueError, match=message):
    export_card.read(str(tmp_path))


def test_another_vocabulary(tmp_path, good):
  def load(content):
    read(tmp_path, content)
    return exported_model.ExportedModel(str(tmp_path), engine=object())

  path = tmp_path / "vocab.txt"
  good["hashes"] = {"vocab.txt": hashlib.sha256(path.read_bytes()).hexdigest()}
  assert load(good).maker.is_required == {"text": True}
  path.write_text(path.read_text().replace("good\ngreat", "great\ngood"))
  with pytest.raises(ValueError, match="vocab.txt: not the file that export.j"):
    load(good)
  assert load({**good, "hashes": {}})  # Exports of earlier versions.
  (tmp_path / "vocab.model").touch()
  with pytest.raises(ValueError, match="vocab.txt: not the file that export.j"):
    load({**good, "hashes": {"vocab.model": ""}})


def test_thresholds_are_one_a_label(tmp_path, good):
  content = {**good, "kind": "multi_label", "thresholds": [0.5]}
  with pytest.raises(ValueError, match="1 thresholds for 2 labels"):
    read(tmp_path, content)
  content["thresholds"] = [0.5, 1]
  assert read(tmp_path, content).thresholds == (0.5, 1)


def test_labels_are_those_of_the_kind(tmp_path, good):
  content = {**good, "kind": "question_answering"}
  with pytest.raises(ValueError, match="2 labels of the kind question_answ"):
    read(tmp_path, content)
