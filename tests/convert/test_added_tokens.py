"""Tests of --add_tokens: new rows, the old ones, and wrong vocabularies."""

import dataclasses
import pathlib

import numpy as np
import pytest

import any_model
from bert import heads

OLD = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "[unused0]", "gen", "##e"]
OLD += ["##ase", "drug", "[unused1]", "[", "]"]
# Two in the place of [unusedN], two behind.
NEW = [*OLD[:5], "gene", *OLD[6:10], "[drug]", *OLD[11:], "##ease", "\u03b2"]
# The ids of the new tokens, and of the pieces that they were.
SPELLED = {5: [6, 7], 10: [11, 9, 12], 13: [7, 8], 14: [1]}
KEPT = [id_ for id_ in range(len(OLD)) if id_ not in SPELLED]
TABLE, BIAS = "bert/embeddings/word_embeddings", "cls/predictions/output_bias"
CONFIG = dataclasses.replace(any_model.CONFIG, vocab_size=len(OLD))


@pytest.fixture(name="before")
def write_model(tmp_path, monkeypatch):
  """Writes a model with Adam's slots, and new.txt; returns its values."""
  monkeypatch.chdir(tmp_path)
  pathlib.Path("new.txt").write_text("\n".join(NEW) + "\n", "utf-8")
  return any_model.write_google(
    "here", config=CONFIG, tokens=OLD, slots=("adam_m", "adam_v")
  )


def convert(**flags):
  flags = {"input": "here", "add_tokens": "new.txt", "output": "new", **flags}
  any_model.convert(output_format="google", **flags)
  return any_model.values(flags["output"])


def test_new_rows_are_the_means_of_their_pieces(before, capsys):
  after = convert()
  assert sorted(after) == sorted(before)
  for name in (TABLE, BIAS):
    assert len(after[name]) == len(NEW)
    assert np.array_equal(after[name][KEPT], before[name][KEPT])
    for id_, pieces in SPELLED.items():
      mean = sum(before[name][piece] for piece in pieces) / len(pieces)
      np.testing.assert_allclose(after[name][id_], mean, rtol=1e-6)
    for slot in (f"{name}/adam_m", f"{name}/adam_v"):
      assert np.array_equal(after[slot][KEPT], before[slot][KEPT])
      assert not after[slot][[*SPELLED]].any()

  # All other variables are the same to the bit.
  for name in before:
    if not name.startswith((TABLE, BIAS)):
      assert np.array_equal(after[name], before[name]), name
  assert pathlib.Path("new/vocab.txt").read_text("utf-8").split() == NEW
  assert '"vocab_size": 15' in pathlib.Path("new/bert_config.json").read_text()
  said = capsys.readouterr()
  assert "4 new tokens, 2 of them in rows of [unusedN]\n" in said.out
  assert "note: no text has the token '[drug]' (1 in all), because" in said.err


def test_a_new_token_keeps_its_accents(before, capsys):
  new = [*OLD[:5], "g\xe9n", *OLD[6:]]
  pathlib.Path("new.txt").write_text("\n".join(new) + "\n", "utf-8")
  convert(do_lower_case=True, strip_accents=False)
  assert "no text has the token" not in capsys.readouterr().err
  tokens = pathlib.Path("new/vocab.accents").read_text("utf-8").split()
  assert tokens == new
  convert(do_lower_case=True, output="stripped")
  assert "no text has the token 'g\xe9n'" in capsys.readouterr().err


def test_texts_of_old_tokens_have_the_same_outputs(before):
  ids, mask, segments = any_model.make_inputs()
  ids = np.take(KEPT, ids % len(KEPT)).astype(np.int32)
  ids[0, 0] = 0
  outputs = []
  convert()
  for folder, size in (("here", len(OLD)), ("new", len(NEW))):
    config = dataclasses.replace(CONFIG, vocab_size=size)
    model = heads.PretrainingModel(config)
    any_model.load(folder, model)
    outputs.append(model.bert(ids, mask, segments))
  for old, new in zip(outputs[0], outputs[1], strict=True):
    assert np.array_equal(old, new)


def test_random_rows_are_as_in_a_new_model(before):
  tables = []
  for output, seed in (("one", 1), ("same", 1), ("two", 2)):
    after = convert(output=output, new_rows="random", seed=seed)
    assert np.array_equal(after[TABLE][KEPT], before[TABLE][KEPT])
    assert not after[BIAS][[*SPELLED]].any()
    tables.append(after[TABLE][[*SPELLED]])
  assert np.array_equal(tables[0], tables[1])
  assert not np.isclose(tables[0], tables[2]).any()
  assert 0 < np.abs(tables[0]).max() <= 0.04 and 0.01 < tables[0].std() < 0.03


def test_a_model_of_another_library_gets_them_too(before):
  any_model.convert(input="here", output="theirs")
  expected = convert()
  found = convert(input="theirs", output="again")
  assert np.array_equal(found[TABLE], expected[TABLE])
  any_model.convert(
    input="theirs",
    output="hf",
    add_tokens="new.txt",
    output_format="hugging_face",
  )
  assert np.array_equal(any_model.values("hf")[BIAS], expected[BIAS])


def test_rows_without_a_token_are_used_first(before):
  any_model.convert(
    input="here", output="larger", resize_vocab=20, output_format="google"
  )
  after = convert(input="larger")
  assert after[TABLE].shape == (20, 8)
  mean = before[TABLE][[7, 8]].mean(0)
  np.testing.assert_allclose(after[TABLE][13], mean, rtol=1e-6)


@pytest.mark.parametrize(
  ("tokens", "message"),
  [
    (OLD[:-2], "new.txt:12: the end: expected '[', as in the vocabulary of h"),
    ([*OLD[:6], "x", *OLD[7:]], "new.txt:7: 'x': expected 'gen', as in the v"),
    ([*OLD[:9], "x", *OLD[9:]], "new.txt:10: 'x': expected 'drug', as in the"),
    ([*OLD, "gene", "gene"], "new.txt:15: 'gene': it is on line 14, too; expe"),
    ([*OLD, "drug"], "new.txt:14: 'drug': it is on line 10, too; expected a t"),
    ([*OLD, "a gene"], "new.txt:14: 'a gene': expected a token without spaces"),
    ([*OLD, "ge\0ne"], "new.txt:14: 'ge\\x00ne': expected a token without sp"),
    ([*OLD, "a\u2028"], "new.txt:14: 'a\\u2028': expected a token without spa"),
    ([*OLD, "", "gene"], "new.txt:14: '': expected a token without spaces and"),
    ([*OLD, "##"], "new.txt:14: '##': expected a token without spaces and con"),
    (OLD, "new.txt: expected tokens that the vocabulary of here/model.ckpt-7"),
    ([], "new.txt: empty; expected one token a line"),
  ],
)  # fmt: skip
def test_a_wrong_vocabulary_is_refused(before, tokens, message):
  text = "".join(f"{token}\n" for token in tokens)
  pathlib.Path("new.txt").write_text(text, "utf-8")
  with pytest.raises(ValueError) as caught:
    convert()
  assert message in str(caught.value) and "\n" not in str(caught.value)
  assert not pathlib.Path("new").exists()


def test_a_model_of_other_pieces_is_refused(before):
  pathlib.Path("here/vocab.txt").rename("here/vocab.words")
  with pytest.raises(ValueError, match="has a vocab.words; expected WordPi"):
    convert()
