"""The tokenizer on random text, against a slow reference."""

import json

from hypothesis import example, given
from hypothesis import strategies as st
import pytest

from bert import tokenization
from bert.inputs import text_inputs
import fuzzing
import slow_tokenizer

pytestmark = pytest.mark.fuzz

# Letters of many kinds, few of each, so that pieces of the vocabulary are met.
LETTERS = "abAB0\xdf\xe9\u0130\u03a3\u03c3\u03c2\u4e2d\u6587\uac01\u1100\u1161"
MARKS = ".-$[]#\xbf\u3002\uff0c\u2014\u0301\u0323\u0345\u302e\U0001d165\u0903"
SPACES = " \t\n\r\x0b\x0c\x1c\x85\xa0\u2028\u3000\0\x7f\xad\u200b\ufeff\ufffd"
OTHERS = "\u1e9b\ufb01\u212b\u0958\U0002f800\U0001f600\ud800\ufa0e\u2fff"
KEPT = ("[MASK]", "[MASK]a", "a b", "##b", "\u4e2d", "\u03a3")
VOCABULARY = (
  *("[UNK]", "[CLS]", "[SEP]", *KEPT),
  *(*"ab0.-$#[]\u03c3\u03c2\u6587\u3002", "A", "\xe9", "e", "\uac01"),
  *("ab", "##a", "##ab", "##\u03c3", "##\u03c2", "##\u1161", "\u1100", "##0"),
  *("##\u302e", "##\u0903", "i", "##\u0307", "ss", "##\xdf", "f", "\ufb01"),
)


def texts():
  """Returns a strategy for text in which words and their like are frequent."""
  pieces = st.one_of(
    st.text(LETTERS, max_size=6),
    st.text(LETTERS + MARKS, max_size=6),
    st.text(LETTERS + MARKS + SPACES + OTHERS, max_size=4),
    st.sampled_from([*VOCABULARY, *SPACES, "a" * 200, "a" * 201]),
    st.characters(),
  )
  return st.lists(pieces, max_size=8).map("".join)


def vocabularies():
  pieces = st.text("ab\u03c3\u4e2d.", min_size=1, max_size=3)
  tokens = pieces | pieces.map("##{}".format)
  return st.lists(tokens, max_size=12).map(
    lambda tokens: ["[UNK]", "[CLS]", "[SEP]", *KEPT, *tokens]
  )


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
  return tmp_path_factory.mktemp("fuzz")


def make_tokenizer(folder, tokens, lower, kept=()):
  path = folder / "vocab.txt"
  path.write_text("\n".join(tokens) + "\n", encoding="utf-8")
  return tokenization.FullTokenizer(str(path), lower, kept)


def check(tokenizer, text, lower, kept):
  expected = slow_tokenizer.tokenize(text, tokenizer.vocab, lower, kept)
  assert tokenizer.tokenize(text) == expected
  ids = [tokenizer.vocab[token] for token in expected]
  assert tokenizer.encode(text) == ids
  assert tokenizer.encode(text) == ids  # From the cache.
  found = tokenizer.tokenize_with_offsets(text)
  assert [token.token for token in found] == expected
  check_offsets(found, text, lower, kept)


def check_offsets(found, text, lower, kept):
  """Checks that tokens are made of the text they are said to be made of."""
  ends = 0
  for index, (token, start, end) in enumerate(found):
    assert 0 <= start < end <= len(text)
    # Nothing that would be a token is left out between two.
    assert not words(text[ends:start], lower)
    neighbours = found[max(index - 1, 0) : index] + found[index + 1 : index + 2]
    is_shared = any(n.start < end and start < n.end for n in neighbours)
    ends = max(ends, end)
    if token in kept and text[start:end] == token:
      continue
    source = "".join(words(text[start:end], lower))
    made = token if token == "[UNK]" else token.removeprefix("##")
    if is_shared:
      assert small_sigma(made) in small_sigma(source) or token == "[UNK]"
    elif token != "[UNK]":
      assert small_sigma(source) in (small_sigma(made), small_sigma(token))
  assert not words(text[ends:], lower)


def words(text, lower):
  return slow_tokenizer.split_words(text, lower)


def small_sigma(text):
  # Which of the two it is depends on what is around it.
  return text.replace("\u03c2", "\u03c3")


@pytest.mark.parametrize("lower", [True, False])
@pytest.mark.parametrize("kept", [(), KEPT[:1], KEPT])
@given(text=texts())
@example(text="\u03a3A\u03a3. A\u03a3b\u0301\u0323")
def test_a_fixed_vocabulary(folder, lower, kept, text):
  tokenizer = make_tokenizer(folder, VOCABULARY, lower, kept)
  check(tokenizer, text, lower, kept)


@given(
  vocabulary=vocabularies(),
  lower=st.booleans(),
  kept=st.lists(st.sampled_from(KEPT)),
  text=texts(),
)
def test_any_vocabulary(folder, vocabulary, lower, kept, text):
  tokenizer = make_tokenizer(folder, vocabulary, lower, kept)
  check(tokenizer, text, lower, kept)


@given(text=st.binary(max_size=30))
def test_bytes_are_text_without_what_is_no_utf_8(folder, text):
  tokenizer = make_tokenizer(folder, VOCABULARY, True)
  decoded = text.decode("utf-8", "ignore")
  assert tokenizer.tokenize(text) == tokenizer.tokenize(decoded)
  assert tokenizer.encode(text) == tokenizer.encode(decoded)


@given(fuzzing.any_bytes() | fuzzing.mutated("[UNK]\na\n##\u4e2d\n".encode()))
def test_vocabulary_files(folder, content):
  path = folder / "any.txt"
  path.write_bytes(content)
  vocabulary = fuzzing.value_or_error(tokenization.load_vocab, path)
  if vocabulary is not None:
    lines = content.decode().removeprefix("\ufeff").split("\n")
    assert {lines[i].strip(): i for i in vocabulary.values()} == vocabulary
    fuzzing.check_writable(json.dumps(vocabulary))


@given(a=texts(), b=st.none() | texts(), max_seq_length=st.integers(3, 40))
def test_lines_of_text_become_rows(folder, a, b, max_seq_length):
  tokenizer = make_tokenizer(folder, VOCABULARY, True)
  line = (a if b is None else f"{a} ||| {b}").replace("\n", "")
  row = text_inputs.RowMaker(tokenizer, max_seq_length)(line)
  ids = row["input_ids"]
  assert len(ids) <= max_seq_length
  assert {len(values) for values in row.values()} == {len(ids)}
  first, found, second = line.strip().rpartition(" ||| ")
  texts = (first, second) if found else (line, "")
  slow = [slow_tokenizer.tokenize(t, tokenizer.vocab, True) for t in texts]
  whole = sum(map(len, slow)) + (3 if slow[1] else 2)
  if whole <= max_seq_length:
    tail = [*slow[1], "[SEP]"] if slow[1] else []
    tokens = ["[CLS]", *slow[0], "[SEP]", *tail]
    assert tokenizer.convert_ids_to_tokens(ids) == tokens
