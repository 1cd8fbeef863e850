"""Guesses and scores of a whole program, against the model asked directly."""

import io
import json
import math
import re
import sys

import numpy as np
import pytest
import tensorflow as tf

import bert
from bert import fill_mask
from bert.weights import checkpoints
import program_flags
import tiny
import tiny_models

VOCABULARY = tiny.VOCABULARY
CLS, SEP, MASK = map(VOCABULARY.index, ("[CLS]", "[SEP]", "[MASK]"))


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
  folder = tmp_path_factory.mktemp("model")
  return folder, tiny_models.write_masked_lm(folder)


def run(folder, blocks=(), **flags):
  """Runs the program in this process, with blocks of other sizes if given."""
  flags = {**tiny_models.masked_lm_flags(folder), **flags}
  kind = fill_mask.FillMaskSettings
  program_flags.run_main(fill_mask, kind, blocks, **flags)


def run_on(folder, tmp_path, texts, **flags):
  """Runs it on a file; returns the objects it wrote."""
  path = tmp_path / "in.txt"
  path.write_text("".join(f"{text}\n" for text in texts))
  output = tmp_path / "out.jsonl"
  flags = {"output_format": "jsonl", "output_file": output, **flags}
  run(folder, input_file=path, **flags)
  return [json.loads(line) for line in output.read_text().splitlines()]


def ask(model, ids, position):
  """Returns the probabilities of the token at a position of one text."""
  ids = tf.constant([[CLS, *ids, SEP]])
  positions = tf.constant([[position + 1]])
  output = model(ids, tf.ones_like(ids), tf.zeros_like(ids), positions)
  return tf.nn.softmax(output.masked_lm_logits[0, 0]).numpy()


def test_masks_are_filled(trained, tmp_path):
  folder, model = trained
  texts = ["the [MASK] was [MASK]", "", "[MASK]"]
  items = run_on(folder, tmp_path, texts, top_k=3)
  assert [item["line"] for item in items] == [0, 1, 2]
  assert [item["text"] for item in items] == texts
  assert [len(item["masks"]) for item in items] == [2, 0, 1]
  the, was = VOCABULARY.index("the"), VOCABULARY.index("was")
  for mask, position in zip(items[0]["masks"], (1, 3), strict=True):
    expected = ask(model, [the, MASK, was, MASK], position)
    best = np.argsort(-expected)[:3]
    assert [guess["token"] for guess in mask] == [VOCABULARY[i] for i in best]
    probabilities = [guess["probability"] for guess in mask]
    np.testing.assert_allclose(probabilities, expected[best], atol=2e-6)


def test_more_guesses_than_tokens(trained, tmp_path):
  (item,) = run_on(trained[0], tmp_path, ["[MASK]"], top_k=1000)
  (mask,) = item["masks"]
  assert sorted(guess["token"] for guess in mask) == sorted(VOCABULARY)
  total = sum(guess["probability"] for guess in mask)
  assert total == pytest.approx(1, abs=1e-4)


def test_scores_are_those_of_one_mask_at_a_time(trained, tmp_path):
  folder, model = trained
  texts = ["the film was very good", "", "a bad plot"]
  items = run_on(folder, tmp_path, texts, score=True)
  for item, text in zip(items, texts, strict=True):
    ids = [VOCABULARY.index(word) for word in text.split()]
    expected = [
      math.log(ask(model, [*ids[:i], MASK, *ids[i + 1 :]], i)[ids[i]])
      for i in range(len(ids))
    ]
    assert item["tokens"] == text.split()
    np.testing.assert_allclose(item["log_probs"], expected, atol=1e-5)


def test_a_causal_model_is_read_from_left_to_right(tmp_path, capsys):
  config = {"causal_attention": True, "num_hidden_layers": 2}
  tiny.write_model(tmp_path, config)
  model = tiny_models.make_masked_lm(tmp_path)
  checkpoints.save(str(tmp_path), 0, checkpoints.model_variables(model), keep=0)
  texts = ["the film was very good", "a " * 30]
  short, long = run_on(tmp_path, tmp_path, texts, score=True)
  assert "next:" not in capsys.readouterr().err  # It cannot be exported.
  ids = [VOCABULARY.index(word) for word in texts[0].split()]
  whole = tf.constant([[CLS, *ids, SEP]])
  ones, places = tf.ones_like(whole), tf.range(len(ids))[None]
  logits = model(whole, ones, 0 * ones, places).masked_lm_logits
  expected = tf.nn.log_softmax(logits[0]).numpy()[range(len(ids)), ids]
  np.testing.assert_allclose(short["log_probs"], expected, atol=1e-5)
  assert len(long["log_probs"]) == 30


def test_blocks_change_nothing(trained, tmp_path):
  texts = ["the film", "a good plot was fine", "bad", "", "the cast was poor"]
  whole = run_on(trained[0], tmp_path, texts, score=True)
  flags = {"blocks": {"block_lines": 2, "block_ids": 5}, "batch_size": 1}
  cut = run_on(trained[0], tmp_path, texts, score=True, **flags)
  for one, other in zip(whole, cut, strict=True):
    assert one["text"] == other["text"]
    np.testing.assert_allclose(one["log_probs"], other["log_probs"], atol=2e-6)


def test_texts_of_the_command_line(trained, capsys):
  run(trained[0], text="the film was [MASK]", top_k=2)
  output = capsys.readouterr()
  table = r"the film was \[MASK\]\n(  \S+ +\d+\.\d %\n){2}"
  assert re.fullmatch(table, output.out)
  assert re.search(r"^finished in .*\n  1 line\(s\), ", output.err, re.M)


def test_the_standard_input_is_scored(trained, capsys, monkeypatch):
  text = io.TextIOWrapper(io.BytesIO(b"the film\n\nbad"))
  monkeypatch.setattr(sys, "stdin", text)
  run(trained[0], score=True)
  output = capsys.readouterr()
  lines = output.out.splitlines()
  assert lines[0].split() == ["tokens", "log-likelihood", "perplexity", "text"]
  assert [line.split()[0] for line in lines[1:]] == ["2", "0", "1"]
  assert re.search(r"^  3 tokens, pseudo-log-likelihood -", output.err, re.M)


def test_who_types_may_try_again(trained, capsys, monkeypatch):
  text = io.TextIOWrapper(io.BytesIO(b"the film\nthe [MASK]\n"))
  text.isatty = lambda: True
  monkeypatch.setattr(sys, "stdin", text)
  run(trained[0], top_k=1)
  output = capsys.readouterr()
  assert "standard input:1: no [MASK] in 'the film'" in output.err
  assert output.out.startswith("the [MASK]\n")


@pytest.mark.parametrize(
  "flags,message",
  [
    ({"text": "the film"}, "--text: no [MASK] in 'the film'; put one where"),
    ({"text": "a [MASK]", "score": True}, "--text: 'a [MASK]' holds a [MASK]"),
    ({"text": "a", "input_file": "b"}, "--text and --input_file=b are both"),
  ],
)
def test_bad_flags(trained, flags, message):
  with pytest.raises(ValueError, match=re.escape(message)):
    run(trained[0], **flags)


def test_a_bad_line_of_a_file_leaves_no_output(trained, tmp_path):
  texts = ["a [MASK]", "", "the film"]
  with pytest.raises(ValueError, match=r"in\.txt:3: no \[MASK\] in 'the film'"):
    run_on(trained[0], tmp_path, texts)
  assert [path.name for path in tmp_path.iterdir()] == ["in.txt"]


def test_a_model_without_a_masked_lm_head(tmp_path):
  tiny_models.write_masked_lm(tmp_path, lambda name: name.startswith("bert/"))
  with pytest.raises(ValueError) as error:
    run(tmp_path, text="[MASK]")
  message = str(error.value)
  assert "has no masked-LM head, it lacks cls/predictions/output_b" in message
  assert "/dense/kernel: give one that was pre-trained and not fine" in message


def test_the_next_sentence_is_not_needed(tmp_path, capsys):
  unneeded = ("cls/seq_relationship", "bert/pooler")
  tiny_models.write_masked_lm(tmp_path, lambda n: not n.startswith(unneeded))
  run(tmp_path, text="[MASK]")
  assert capsys.readouterr().out.startswith("[MASK]\n")


def test_rows_without_a_token_are_no_guesses(tmp_path, capsys):
  """Tables of released models are padded, some by a thousand rows.

  Rows in the middle may lack a token, too: here those below 200 with odd ids.
  """
  ids = {token: 2 * i for i, token in enumerate(VOCABULARY)}
  rows = 2 * len(VOCABULARY) + 1000
  tiny.write_model(tmp_path, {"num_hidden_layers": 2, "vocab_size": rows})
  (tmp_path / "vocab.txt").unlink()
  whole = {"model": {"type": "WordPiece", "vocab": ids}}
  (tmp_path / "tokenizer.json").write_text(json.dumps(whole))
  model = tiny_models.make_masked_lm(tmp_path)
  variables = checkpoints.model_variables(model)
  bias = variables["cls/predictions/output_bias"]
  # The last rows are likeliest, and of the others those without a token.
  bias.assign(np.arange(rows) % 2 * 50 + np.arange(rows) / 100)
  checkpoints.save(str(tmp_path), 0, variables, keep=0)
  program_flags.run_main(
    fill_mask,
    fill_mask.FillMaskSettings,
    model=tmp_path,
    text="the [MASK]",
    top_k=2000,
    max_seq_length=tiny.SEQUENCE,
    output_format="jsonl",
  )
  found = capsys.readouterr()
  item = json.loads(found.out)
  guesses = [guess["token"] for guess in item["masks"][0]]
  assert sorted(guesses) == sorted(VOCABULARY)
  assert sum(guess["probability"] for guess in item["masks"][0]) == (
    pytest.approx(1, abs=1e-4)
  )
  missing = rows - len(VOCABULARY)
  said = f"note: {missing:,} of the model's {rows:,} rows of embeddings"
  assert said in found.err
  export = tiny_models.export_onnx(
    tmp_path, model_dir="", vocab_file="", model=tmp_path, top_k=2000
  )
  [masks] = bert.load(export)("the [MASK]")["masks"]
  assert sorted(guess["token"] for guess in masks) == sorted(VOCABULARY)
