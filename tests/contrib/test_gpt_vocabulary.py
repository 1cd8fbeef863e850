"""GPT-1's byte pairs, with transformers as the oracle, on the real files."""

import json
import os
import random
import types

os.environ.setdefault("USE_TF", "0")

import pytest

from bert.cli import pretraining
from bert.contrib import gpt_vocabulary
from bert.vocabularies import vocabulary_table
import paths

FILES = paths.SHARED / "data" / "gpt1"
TEXTS = [
  "Unaffable Cafés cost 20% (of 1,895)!",
  "the the internationalization of antidisestablishmentarianism",
  "\u5317\u4eac is Beijing; \u00dcber-na\u00efve \u00b5-law",
  "",
]


@pytest.fixture(name="tokenizer", scope="module")
def make_tokenizer():
  if not FILES.exists():
    pytest.skip(f"needs {FILES}")
  path = str(FILES / gpt_vocabulary.ENCODER)
  return vocabulary_table.make_tokenizer(path)


def test_ids_are_those_of_transformers(tokenizer):
  transformers = pytest.importorskip(
    "transformers", reason="needs requirements/bench.txt"
  )
  merges = (FILES / gpt_vocabulary.MERGES).read_text().splitlines()[1:]
  theirs = transformers.OpenAIGPTTokenizer(
    vocab=json.loads((FILES / gpt_vocabulary.ENCODER).read_text()),
    merges=[tuple(line.split()) for line in merges if line],
  )
  corpus = sorted((paths.SHARED / "data" / "corpus").glob("*.txt"))
  lines = corpus[0].read_text().splitlines()[:300] if corpus else []
  for text in TEXTS + lines:
    expected = theirs(text)["input_ids"]
    assert tokenizer.encode(text) == expected, text


def merge_one_by_one(word, ranks):
  """As the paper has it: every occurrence of the best pair, again and again."""
  pieces = [*word[:-1], word[-1:] + "</w>"]
  while True:
    pairs = set(zip(pieces, pieces[1:], strict=False)) & ranks.keys()
    if not pairs:
      return pieces
    best = min(pairs, key=ranks.get)
    merged = []
    for piece in pieces:
      if merged and (merged[-1], piece) == best:
        merged[-1] += piece
      else:
        merged.append(piece)
    pieces = merged


def test_pieces_of_random_words(tmp_path):
  source = random.Random(1)
  for _ in range(300):
    known = ["a", "b", "a</w>", "b</w>"]
    pairs = []
    for _ in range(12):
      pair = tuple(source.choices(known, k=2))
      pairs.append(pair)
      known.append("".join(pair))
    source.shuffle(pairs)  # A pair may come before what makes its pieces.
    (tmp_path / "merges").write_text("".join(f"{a} {b}\n" for a, b in pairs))
    splitter = gpt_vocabulary.BpeSplitter({}, str(tmp_path / "merges"))
    for _ in range(10):
      word = "".join(source.choices("ab", k=source.randrange(1, 30)))
      expected = merge_one_by_one(word, splitter._ranks)
      assert splitter.pieces(word) == expected


def test_a_long_word_takes_no_quadratic_time(tmp_path):
  (tmp_path / "merges").write_text("a b\nab ab\nabab ab\n")
  splitter = gpt_vocabulary.BpeSplitter({}, str(tmp_path / "merges"))
  # A square of this would take hours.
  assert splitter.pieces("ab" * 200_000)[:2] == ["abab", "abab"]


def test_tokens_and_their_places(tokenizer):
  text = "Unaffable Caf\xe9!"
  tokens = ["un", "af", "fable</w>", "cafe</w>", "!</w>"]
  assert tokenizer.tokenize(text) == tokens
  places = tokenizer.tokenize_with_offsets(text)
  sources = [text[t.start : t.end] for t in places]
  assert sources == ["Un", "af", "fable", "Caf\xe9", "!"]


def test_special_tokens_follow_the_vocabulary(tokenizer):
  ids = tokenizer.convert_tokens_to_ids(["[PAD]", "[CLS]", "[SEP]", "[MASK]"])
  assert ids == [40478, 40479, 40480, 40481]
  assert tokenizer.convert_tokens_to_ids(["[UNK]", "<unk>"]) == [0, 0]


@pytest.mark.parametrize(
  ("encoder", "merges", "message"),
  [
    ({"a": 0}, "a b", "expected GPT-1's <unk> and"),
    ({"<unk>": 0, "a": 2}, "a b", "ids from 0 on"),
    ({"<unk>": 0}, None, "no vocab_40000.bpe beside it"),
    ({"<unk>": 0}, "a b c", "expected two pieces a line"),
  ],
)
def test_damaged_files_are_named(encoder, merges, message, tmp_path):
  path = tmp_path / gpt_vocabulary.ENCODER
  path.write_text(json.dumps(encoder))
  if merges is not None:
    (tmp_path / gpt_vocabulary.MERGES).write_text(f"#version: 0.2\n{merges}\n")
  with pytest.raises(ValueError, match=message):
    vocabulary_table.make_tokenizer(str(path))


@pytest.mark.usefixtures("tokenizer")
def test_whole_words_cannot_be_masked():
  message = "--do_whole_word_mask=true: .*json does"
  settings = types.SimpleNamespace(
    vocab_file=str(FILES / gpt_vocabulary.ENCODER), do_whole_word_mask=True
  )
  with pytest.raises(ValueError, match=message):
    pretraining.read_vocabulary(settings)
