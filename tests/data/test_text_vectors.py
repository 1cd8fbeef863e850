"""Tests of the files of sentence-transformers that say how vectors are made."""

import json

import pytest

from data import text_vectors

TYPES = ("Transformer", "Pooling", "Normalize")


def write_modules(folder, names=TYPES, **pooling):
  """Writes modules.json and 1_Pooling/config.json."""
  modules = [
    {"idx": i, "path": "", "type": f"sentence_transformers.models.{name}"}
    for i, name in enumerate(names)
  ]
  (folder / "modules.json").write_text(json.dumps(modules))
  (folder / "1_Pooling").mkdir(exist_ok=True)
  pooling = {"word_embedding_dimension": 16, **pooling}
  (folder / "1_Pooling" / "config.json").write_text(json.dumps(pooling))


@pytest.mark.parametrize(
  ("names", "pooling", "expected"),
  [
    (TYPES, {"pooling_mode_mean_tokens": True}, ("mean", True)),
    (
      TYPES[:2],
      {"pooling_mode_cls_token": True, "pooling_mode_mean_tokens": False},
      ("cls", False),
    ),
    (TYPES[:2], {"pooling_mode_max_tokens": True}, ("max", False)),
    (TYPES, {"pooling_mode": "mean"}, ("mean", True)),
  ],
)
def test_what_is_known(tmp_path, names, pooling, expected):
  assert text_vectors.read(str(tmp_path)) == {}
  write_modules(tmp_path, names, **pooling)
  flags = text_vectors.read(str(tmp_path))
  assert (flags["pooling"], flags["normalize"]) == expected
  assert flags["layers"] == ("-1",)


MEAN = {"pooling_mode_mean_tokens": True}


def test_the_longest_input(tmp_path):
  write_modules(tmp_path, **MEAN)
  path = tmp_path / "sentence_bert_config.json"
  for content, expected in (
    ({"max_seq_length": 256}, 256),
    ({"max_seq_length": None}, None),
    ({}, None),
  ):
    path.write_text(json.dumps(content))
    assert text_vectors.read(str(tmp_path)).get("max_seq_length") == expected
  path.write_text('{"max_seq_length": "9"}')
  message = "sentence_bert_config.json: max_seq_length is '9', expected 3 to"
  with pytest.raises(ValueError, match=message):
    text_vectors.read(str(tmp_path))


@pytest.mark.parametrize(
  ("names", "pooling", "message"),
  [
    (
      TYPES,
      {"pooling_mode_weightedmean_tokens": True},
      "pooling weightedmean;",
    ),
    (
      TYPES,
      {"pooling_mode_lasttoken": True},
      "the pooling lasttoken; expected",
    ),
    (
      TYPES,
      {**MEAN, "pooling_mode_max_tokens": True},
      "the pooling mean, max;",
    ),
    (TYPES, {}, "the pooling None; expected"),
    ((*TYPES[:2], "Dense"), MEAN, "with Transformer, Pooling, Dense, and"),
    (("BoW",), MEAN, "makes vectors with BoW, and the pooling mean; expected"),
  ],
)
def test_what_is_not(tmp_path, names, pooling, message):
  write_modules(tmp_path, names, **pooling)
  with pytest.raises(ValueError, match="modules.json: makes vectors with") as e:
    text_vectors.read(str(tmp_path))
  assert message in str(e.value)
  assert str(e.value).endswith("cls, mean or max: pass --pooling instead")


@pytest.mark.parametrize("content", ["{}", "[1, null]", "[[]]", "x"])
def test_damaged_modules(tmp_path, content):
  write_modules(tmp_path, **MEAN)
  (tmp_path / "modules.json").write_text(content)
  with pytest.raises(ValueError, match="modules.json: "):
    text_vectors.read(str(tmp_path))
