"""Models of SentencePiece behind the interface of WordPiece."""

import functools
import random
import shutil
import time

import pytest

from bert.vocabularies import sentence_pieces, vocabulary_table
import tiny

sentencepiece = pytest.importorskip("sentencepiece")


@pytest.fixture(name="path", scope="module")
def learn_once(tmp_path_factory):
  return tiny.learn_sentence_pieces(tmp_path_factory.mktemp("learned"))


def test_a_model_begins_with_the_special_pieces(path):
  tokenizer = vocabulary_table.make_tokenizer(path)
  names = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
  assert tokenizer.convert_tokens_to_ids(names) == [0, 1, 2, 3, 4]
  # As text they are text: nobody can write one.
  assert not {0, 2, 3, 4} & set(tokenizer.encode("[CLS] [MASK] [PAD]"))


def test_places_are_those_of_the_text(path):
  tokenizer = vocabulary_table.make_tokenizer(path, True, ["[MASK]"])
  text = "The  QUICK [MASK] fox, \u5317\u4eac\u3002"
  tokens = tokenizer.tokenize_with_offsets(text)
  assert [t.token for t in tokens] == tokenizer.tokenize(text)
  sources = [text[t.start : t.end] for t in tokens]
  assert "".join(sources) == "".join(text.split())
  assert "[MASK]" in sources


def test_text_right_after_a_kept_token_continues_its_word(path):
  tokenizer = vocabulary_table.make_tokenizer(path, True, ["[MASK]"])
  plain = vocabulary_table.make_tokenizer(path)
  whole = plain.encode("fox.")  # As in training: a piece is replaced.
  text = "[MASK]. [MASK][MASK]ox"
  ids = tokenizer.encode(text)
  assert tokenizer.convert_ids_to_tokens(ids[:2]) == ["[MASK]", "."]
  assert ids[1] == whole[-1]
  tokens = [t.token for t in tokenizer.tokenize_with_offsets(text)]
  assert tokens == tokenizer.tokenize(text)
  assert not any(token.startswith("\u2581") for token in tokens[-2:])
  # A space begins a word.
  assert tokenizer.encode("[MASK] fox")[1:] == plain.encode("fox")


def test_case_is_kept_or_dropped(path):
  lower = vocabulary_table.make_tokenizer(path)
  cased = vocabulary_table.make_tokenizer(path, do_lower_case=False)
  assert lower.encode("THE FOX") == lower.encode("the fox")
  assert cased.encode("THE FOX") != cased.encode("the fox")


def test_a_mark_begins_a_word(path):
  tokenizer = vocabulary_table.make_tokenizer(path)
  assert not tokenizer.continues_word("\u2581the")
  assert tokenizer.continues_word("ing")
  assert not tokenizer.continues_word("[MASK]")


def test_another_or_a_damaged_model_is_refused(tmp_path):
  text = tmp_path / "text.txt"
  text.write_text((tiny.ENGLISH + "\n") * 9)
  sentencepiece.SentencePieceTrainer.Train(
    input=str(text),
    model_prefix=str(tmp_path / "plain"),
    vocab_size=40,
    hard_vocab_limit=False,
    minloglevel=2,
  )
  with pytest.raises(ValueError, match=r"no piece \[PAD\], \[CLS\], \[SEP\]"):
    vocabulary_table.load_vocab(str(tmp_path / "plain.model"))
  (tmp_path / "x.model").write_bytes(b"no model")
  with pytest.raises(ValueError, match="x.model: not a SentencePiece model"):
    vocabulary_table.load_vocab(str(tmp_path / "x.model"))


@pytest.mark.parametrize(
  ("name", "message"),
  [("x", "x:2: not UTF-8: b"), ("x.gz", "x.gz: damaged compressed")],
)
def test_a_text_that_cannot_be_read_is_named(tmp_path, name, message):
  (tmp_path / name).write_bytes(b"a\n\xff")
  with pytest.raises(ValueError, match=message):
    tiny.learn_sentence_pieces(tmp_path, text=tmp_path / name)


@pytest.mark.parametrize("model", ["unigram", "bpe"])
def test_no_line_is_left_out_and_an_empty_text_is_refused(tmp_path, model):
  path = tmp_path / "blocks.txt"
  path.write_text("a quiz \u2585\nthe fox\n" * 500 + "zebra " * 900)
  learn = functools.partial(
    tiny.learn_sentence_pieces, tmp_path, path, model=model
  )
  learned = vocabulary_table.make_tokenizer(learn(vocab_size=40))
  assert "[UNK]" not in learned.tokenize("quiz zebra")
  path.write_text("\n \u2581\n")
  with pytest.raises(ValueError, match="--input_file: it holds no words"):
    learn(vocab_size=40)
  path.write_text("the fox\n")
  with pytest.raises(ValueError, match="--vocab_size=5: Vocabulary size"):
    learn(vocab_size=5)


def test_a_model_that_was_replaced_is_read_again(path, tmp_path):
  def encode(path):
    return vocabulary_table.make_tokenizer(str(path)).encode("the quick fox")

  copy = tmp_path / "x.model"
  shutil.copyfile(path, copy)
  first = encode(copy)
  other = tiny.learn_sentence_pieces(tmp_path, model="bpe", vocab_size=120)
  assert other == str(copy)
  shutil.copyfile(copy, tmp_path / "new.model")
  assert encode(copy) == encode(tmp_path / "new.model") != first


def test_long_runs_of_unknown_characters_are_given_in_parts(path, monkeypatch):
  whole = vocabulary_table.make_tokenizer(path, True, ["[MASK]"])
  parts = vocabulary_table.make_tokenizer(path, True, ["[MASK]"])
  rng, cut = random.Random(1), 0
  alphabet = [
    "fox",
    " ",
    ".",
    "[MASK]",
    "\u0301\u0323",
    "\u0e01",
    "\u1100\u1161",
  ]
  for _ in range(2000):
    picked = rng.choices(alphabet, [2, 2, 1, 1, 6, 9, 2], k=rng.randrange(40))
    text = "".join(picked)
    monkeypatch.setattr(sentence_pieces, "_LONGEST_RUN", 1 << 30)
    expected = whole.encode(text), whole.tokenize_with_offsets(text)
    monkeypatch.setattr(sentence_pieces, "_LONGEST_RUN", 8)
    assert parts.encode(text) == expected[0], ascii(text)
    assert parts.tokenize_with_offsets(text) == expected[1], ascii(text)
    cut += len(list(parts._cut_runs(text)))
  assert cut > 1000


def test_the_time_of_a_run_is_linear_in_its_length(path):
  tokenizer = vocabulary_table.make_tokenizer(path)
  text = "the " + "\u0301\u0323" * 250_000
  start = time.monotonic()
  ids = tokenizer.encode(text)
  assert ids[-1] == tokenizer.vocab["[UNK]"] != ids[-2]
  assert time.monotonic() - start < 10  # Half a minute if given at once.
