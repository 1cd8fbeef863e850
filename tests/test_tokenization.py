"""Tests of tokenization.py."""

import json
import pickle
import random
import sys
import time
import unicodedata

import pytest
import tensorflow as tf

from bert import tokenization
import hard_strings
import paths

GOLDEN = paths.SHARED / "golden" / "tokenization"


@pytest.fixture
def tokenizer(tmp_path):
  return tokenization.FullTokenizer(hard_strings.write_vocab(tmp_path))


def test_words_and_pieces(tokenizer):
  tokens = tokenizer.tokenize("UNwant\xe9d, running")
  assert tokens == ["un", "##want", "##ed", ",", "runn", "##ing"]
  assert tokenizer.convert_tokens_to_ids(tokens) == [10, 7, 8, 13, 11, 12]
  assert tokenizer.convert_ids_to_tokens([10, 7]) == ["un", "##want"]
  assert tokenizer.encode("UNwant\xe9d, running") == [10, 7, 8, 13, 11, 12]
  assert tokenizer.encode(b"the\xff") == [5]
  assert [tokenizer.continues_word(token) for token in tokens[:2]] == [0, 1]
  assert tokenizer.join(tokens) == "unwanted , running"
  assert tokenizer.join(["##a", "b", "##", "c"]) == "a b c"


@pytest.mark.parametrize(
  ("text", "lower", "kept"),
  [
    ("H\xe9llo", ["hello"], ["H\xe9llo"]),
    ("e\u0301x", ["ex"], ["e\u0301x"]),
    ("a\0b\ufffdc\x07d\x0be\x85f\u200dg", ["abcdefg"], ["abcdefg"]),
    ("a\tb\r\nc\xa0d\u3000e\u2028f", list("abcdef"), list("abcdef")),
    ("a\u4e2d\u6587b", ["a", "\u4e2d", "\u6587", "b"], None),
    ("\u3042\u30a2\uac00", None, ["\u3042\u30a2\uac00"]),
    ("\uff26\uff0c", ["\uff46", "\uff0c"], ["\uff26", "\uff0c"]),
    ("a$b^c`d~e", list("a$b^c`d~e"), list("a$b^c`d~e")),
    ("\xa3\xd75", ["\xa3\xd75"], ["\xa3\xd75"]),
    ("\u2260", ["="], ["\u2260"]),
    ("\u0301", [], ["\u0301"]),
    # A final sigma depends on its word, whose punctuation does not end it.
    ("\u0391\u03a3.\u0391", ["\u03b1\u03c3", ".", "\u03b1"], None),
    ("\u0391 \u0391\u03a3", ["\u03b1", "\u03b1\u03c2"], None),
    ("", [], []),
  ],
)
def test_basic_words(text, lower, kept):
  if lower is not None:
    assert tokenization.BasicTokenizer().tokenize(text) == lower
  if kept is not None:
    assert tokenization.BasicTokenizer(False).tokenize(text) == kept


def test_the_longest_of_the_kept_strings_counts():
  kept = ["[A", "", "[A]"]
  tokenizer = tokenization.BasicTokenizer(never_split=kept)
  assert tokenizer.tokenize("b[A] [A.") == ["b", "[A]", "[A", "."]
  assert tokenizer.split_at_never_split("b[A]") == ["b", "[A]", ""]


def test_words_over_the_limit_are_unknown():
  tokenizer = tokenization.WordpieceTokenizer({"[UNK]": 0, "a": 1, "##a": 2})
  assert tokenizer.tokenize("a" * 200) == ["a"] + ["##a"] * 199
  assert tokenizer.tokenize("a" * 201 + " a") == ["[UNK]", "a"]
  limited = tokenization.WordpieceTokenizer({"a": 1}, "?", 1)
  assert limited.tokenize("a aa b") == ["a", "?", "?"]
  assert tokenization.WordpieceTokenizer({}).tokenize("a") == ["[UNK]"]


def strip_accents(text):
  """Returns what the original makes of a text before it splits it."""
  text = unicodedata.normalize("NFD", text)
  return "".join(c for c in text if unicodedata.category(c) != "Mn")


def test_marks_have_the_order_of_unicode():
  characters = list(map(chr, range(0x300, sys.maxunicode + 1)))
  marks = [c for c in characters if unicodedata.category(c).startswith("M")]
  kept = [c for c in marks if unicodedata.combining(c)]
  kept = [c for c in kept if unicodedata.category(c) != "Mn"]
  assert "\u302e" in kept and "\U0001d165" in kept
  made = [c for c in characters if unicodedata.normalize("NFD", c) != c]
  rng, basic = random.Random(1), tokenization.BasicTokenizer()
  for _ in range(20_000):
    kinds = rng.choices([marks, kept, kept, made, "ab"], k=rng.randrange(9))
    text = "".join(map(rng.choice, kinds))
    expected = strip_accents(text.translate(tokenization._CLEAN).lower())
    assert "".join(basic.tokenize(text)) == "".join(expected.split()), ascii(
      text
    )


@pytest.mark.parametrize("lower", [True, False])
@pytest.mark.parametrize(
  "run", ["\u0301\u0323", "\u302e\U0001d165", "\u0f73", "\u03a3'", "e\u0301"]
)
def test_time_is_linear_in_the_length_of_a_run(tmp_path, run, lower):
  path = hard_strings.write_vocab(tmp_path)
  tokenizer = tokenization.FullTokenizer(path, lower)
  text = "the " + run * 50_000
  start = time.monotonic()
  assert tokenizer.encode(text)[0] == 5
  assert tokenizer.tokenize_with_offsets(text)[0].end == 3
  # Sorted by insertion, the first ones took a minute.
  assert time.monotonic() - start < 10


def test_kept_tokens_may_be_an_iterator(tmp_path):
  path = hard_strings.write_vocab(tmp_path)
  tokenizer = tokenization.FullTokenizer(path, True, iter(["[MASK]"]))
  assert tokenizer.tokenize("the [MASK]") == ["the", "[MASK]"]
  with pytest.raises(ValueError, match=r"no line '\[X\]' among 18 tokens"):
    tokenization.FullTokenizer(path, True, iter(["[X]"]))


def check(tokenizer, text):
  """Compares the three ways to split a text; returns the one with offsets."""
  tokens = tokenizer.tokenize(text)
  ids = tokenizer.convert_tokens_to_ids(tokens)
  assert tokenizer.encode(text) == ids, ascii(text)
  offsets = tokenizer.tokenize_with_offsets(text)
  assert [token.token for token in offsets] == tokens, ascii(text)
  return offsets


def test_never_split_tokens_survive_whole(tmp_path):
  tokenizer = tokenization.FullTokenizer(
    hard_strings.write_vocab(tmp_path), never_split=["[MASK]"]
  )
  text = "The[MASK]. the [MASK], [mask]"
  tokens = ["the", "[MASK]", ".", "the", "[MASK]", ","] + ["[UNK]"] * 3
  offsets = check(tokenizer, text)
  assert [token.token for token in offsets] == tokens
  assert text[offsets[4].start : offsets[4].end] == "[MASK]"


def test_a_kept_token_may_have_what_is_stripped_elsewhere(tmp_path):
  vocab = hard_strings.write_vocab(tmp_path, [*hard_strings.VOCAB, "e\u0301 x"])
  tokenizer = tokenization.FullTokenizer(vocab, never_split=["e\u0301 x"])
  text = "the e\u0301 x the"
  offsets = check(tokenizer, text)
  assert [text[t.start : t.end] for t in offsets] == ["the", "e\u0301 x", "the"]


@pytest.mark.parametrize(
  ("text", "sources"),
  [
    ("UNwant\xe9d", ["UN", "want", "\xe9d"]),
    ("wante\u0301d ", ["want", "e\u0301d"]),
    ("the\0\u4e2de.\u0301", ["the", "\u4e2d", "e", ".\u0301"]),
    (" w\xada\x07 nothing", ["w\xada", "nothing"]),
  ],
)
def test_offsets_slice_the_source(tokenizer, text, sources):
  found = check(tokenizer, text)
  assert [text[t.start : t.end] for t in found] == sources


@pytest.mark.parametrize("do_lower_case", [True, False])
def test_encode_and_offsets_agree_with_tokenize(tmp_path, do_lower_case):
  letters = sorted(
    set("".join(hard_strings.ODD).lower()) - set(" \u2028\u3000\x85")
  )
  vocab = hard_strings.write_vocab(
    tmp_path, hard_strings.VOCAB + letters + ["##" + c for c in letters]
  )
  tokenizer = tokenization.FullTokenizer(vocab, do_lower_case)
  for text in hard_strings.random_strings(5000):
    for token in check(tokenizer, text):
      source = text[token.start : token.end]
      assert len(tokenizer.tokenize(source)) >= 1, ascii(text)


def test_lone_characters_are_one_word():
  # `encode` takes them out of their words: allowed if all that this changes is
  # the case of a sigma, which it looks for.
  basic = tokenization.BasicTokenizer()
  for first, last in [(0x2000, 0x30FF), (0x3400, 0x3500), (0xF900, 0xFFFF)]:
    for char in map(chr, range(first, last)):
      if tokenization._LONE_RUNS.match(char)[1]:
        assert len(basic.tokenize(f"x{char}y")) == 3
        assert len(basic.tokenize(char)) == 1
        assert unicodedata.combining(char) == 0


@pytest.mark.skipif(not GOLDEN.is_dir(), reason=f"no golden cases in {GOLDEN}")
@pytest.mark.parametrize("case", ["lower", "keep"])
@pytest.mark.parametrize("name", ["uncased", "cased", "chinese", "multi_cased"])
def test_golden(name, case):
  tokenizer = tokenization.FullTokenizer(
    str(paths.SHARED / "data" / "vocab" / f"{name}_vocab.txt"), case == "lower"
  )
  lines = (GOLDEN / f"golden.{name}.{case}.jsonl").read_text(encoding="utf-8")
  for line in lines.rstrip("\n").split("\n"):
    text, ids = json.loads(line).values()
    assert tokenizer.encode(text) == ids, ascii(text)
    check(tokenizer, text)


def test_the_caches_are_bounded(tokenizer, monkeypatch):
  monkeypatch.setattr(tokenization, "CACHE_ENTRIES", 3)
  limit = tokenization.CACHE_KEY_LENGTH
  kept = tokenizer._encoder._chunks
  sizes, lengths = set(), set()
  for number in range(10):
    text = f"the {number} \u4e2d{'e' * 100} {number:0{limit + number % 3}}"
    assert tokenizer.encode(text)[0] == 5
    sizes.add(len(kept))
    lengths |= set(map(len, kept))
  assert max(sizes) == 3
  assert max(lengths) == limit


def test_a_tokenizer_can_be_sent_and_its_ids_are_not_the_callers(tokenizer):
  for text in ("unwanted", "the"):
    expected = list(tokenizer.encode(text))
    tokenizer.encode(text).clear()
    assert tokenizer.encode(text) == expected
  copy = pickle.loads(pickle.dumps(tokenizer))
  assert copy.encode("unwanted the") == [10, 7, 8, 5]


def test_vocabulary_lines(tmp_path):
  path = tmp_path / "vocab.txt"
  path.write_bytes(b"\xef\xbb\xbf[UNK]\r\n a \r\n\xe2\x80\xa8\r\nb\r\na")
  assert tokenization.load_vocab(str(path)) == {
    "[UNK]": 0,
    "a": 4,  # The last of equal tokens gets the id.
    "": 2,  # U+2028 is no end of a line, and is stripped.
    "b": 3,
  }


def test_a_remote_vocabulary():
  with tf.io.gfile.GFile("ram://remote_vocab.txt", "wb") as file:
    file.write("[UNK]\n\u4e2d\n".encode())
  vocab = tokenization.load_vocab("ram://remote_vocab.txt")
  assert vocab == {"[UNK]": 0, "\u4e2d": 1}
  with pytest.raises(OSError, match=r"^ram://none\.txt: "):
    tokenization.load_vocab("ram://none.txt")


@pytest.mark.parametrize(
  ("content", "message"),
  [
    (b"", "vocab.txt: empty; expected one token a line"),
    (b"\n\n", "vocab.txt: empty"),
    (
      b"a\nb\n",
      r"vocab.txt: no line '\[UNK\]' among 2 tokens; expected the vocabulary "
      "of a BERT, one token a line$",
    ),
    (b"\n" * 30 + b"\xff", r"vocab.txt:31: not UTF-8: b'(\\n){20}\\xff'; conv"),
    (
      b"[UNK]\nb\nc\xff" + b"d" * 30,
      r"vocab.txt:3: not UTF-8: b'\[UNK\]\\nb\\nc\\xffd{19}'; convert it, of "
      "Latin-1 by iconv -f latin1 -t utf8$",
    ),
    (b"[UNK]\nb\n", r"vocab.txt: no line '\[X\]' among 2 tokens"),
  ],
)
def test_bad_vocabularies_are_named(tmp_path, content, message):
  path = tmp_path / "vocab.txt"
  path.write_bytes(content)
  with pytest.raises(ValueError, match=message):
    tokenization.FullTokenizer(str(path), never_split=["[X]"])


def test_missing_tokens_and_ids_are_named(tokenizer):
  with pytest.raises(ValueError, match="'nope' is not in the vocabulary"):
    tokenizer.convert_tokens_to_ids(["the", "nope"])
  with pytest.raises(ValueError, match="99 is not in the vocabulary"):
    tokenizer.convert_ids_to_tokens([99])
  with pytest.raises(ValueError, match="'b' is not in"):
    tokenization.convert_tokens_to_ids(vocab={"a": 0}, tokens=["b"])
  assert tokenization.convert_ids_to_tokens(inv_vocab={0: "a"}, ids=[0]) == [
    "a"
  ]


def test_text_of_another_type_is_named(tokenizer):
  assert tokenization.printable_text(b"caf\xc3\xa9") == "caf\xe9"
  with pytest.raises(ValueError, match="expected str or bytes, not int: 5"):
    tokenizer.encode(5)


@pytest.mark.parametrize(
  ("folder", "lower", "trained"),
  [
    ("uncased_L-12_H-768_A-12", True, None),
    ("uncased_L-2_H-128_A-2", False, "lower-cased"),
    ("gs://models/cased_L-24_H-1024_A-16", True, "cased"),
    ("wwm_cased_L-24_H-1024_A-16", False, None),
    ("a/multi_cased_L-12_H-768_A-12", True, "cased"),
    ("multilingual_L-12_H-768_A-12", True, None),
    ("chinese_L-12_H-768_A-12", False, "lower-cased"),
    ("my_cased_model", True, None),
  ],
)
def test_casing_fits_the_released_checkpoint(folder, lower, trained):
  check = tokenization.validate_case_matches_checkpoint
  check(lower, None)
  for rest in ("", "/", "/bert_model.ckpt"):
    if trained is None:
      check(lower, folder + rest)
      continue
    with pytest.raises(ValueError) as error:
      check(lower, folder + rest)
    assert str(error.value) == (
      f"--init_checkpoint={folder}{rest}: {folder.rsplit('/')[-1]} was trained "
      f"on {trained} text; pass --do_lower_case={str(not lower).lower()}"
    )
