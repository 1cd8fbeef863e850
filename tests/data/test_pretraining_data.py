"""Tests of bert/data/pretraining_data.py."""

import dataclasses
import importlib.util
import json
import random
import types

import psutil
import pytest

from bert import tokenization
from bert.data import pretraining_data, record_writer, text_files
from bert.data.pretraining_data import Generator, RecordSettings
import paths

VOCAB = {
  token: index
  for index, token in enumerate(
    "[PAD] [UNK] [CLS] [SEP] [MASK] a b c d e f g h ##i ##j k l m n o".split()
  )
}


def encode(text):
  return [VOCAB.get(word, 1) for word in text.split()]


def make_vocabulary(encode=encode, vocab=VOCAB):
  tokenizer = types.SimpleNamespace(
    encode=encode,
    vocab=vocab,
    continues_word=lambda token: token.startswith("##"),
  )
  return pretraining_data.make_vocabulary(tokenizer, "vocab.txt")


VOCABULARY = make_vocabulary()
CORPUS = [
  [
    " ".join(rng.choices("abcdefghklmno", k=rng.randint(1, 9)))
    for _ in range(5)
  ]
  for rng in map(random.Random, range(23))
]
SMALL = RecordSettings(
  max_seq_length=16, max_predictions_per_seq=4, dupe_factor=2, random_seed=5
)


def tokens(text):
  return [bytes([VOCAB[word]]) for word in text.split()]


def text(tokens):
  words = list(VOCAB)
  return " ".join(words[token[0]] for token in tokens)


class Scripted(Generator):
  """Draws from a list, so that a test can say what chance does."""

  def __new__(cls, *unused_draws):
    return super().__new__(cls)

  def __init__(self, randoms=(), belows=()):
    super().__init__(0)
    self.randoms, self.belows = list(randoms), list(belows)

  def random(self):
    return self.randoms.pop(0)

  def below(self, limit):
    drawn = self.belows.pop(0)
    assert drawn < limit
    return drawn

  def shuffle(self, items):
    pass


def test_the_generator_draws_what_random_draws():
  ours, reference = Generator(3), random.Random(3)
  for length in [0, 1, 2, 63, 64, 65, 1023, 1024, 1025, 3000] * 2:
    items, expected = list(range(length)), list(range(length))
    ours.shuffle(items)
    reference.shuffle(expected)
    assert items == expected
  for limit in [*range(1, 70), 30522, 1 << 31, 1 << 33]:
    assert ours.below(limit) == reference.randint(0, limit - 1)
  assert ours.getstate() == reference.getstate()


@pytest.mark.parametrize(
  ("name", "good", "bad", "expected"),
  [
    ("max_seq_length", [5], [4], "at least 5"),
    ("max_predictions_per_seq", [1], [0], "at least 1"),
    ("masked_lm_prob", [0, 1], [-0.1, 1.1], "0 to 1"),
    ("short_seq_prob", [0, 1], [-0.1, 1.1], "0 to 1"),
    ("dupe_factor", [1], [0], "at least 1"),
    ("documents_per_block", [0, 2], [-1], "at least 0"),
  ],
)
def test_settings_have_limits(name, good, bad, expected):
  for value in good:
    RecordSettings(**{name: value})
  for value in bad:
    with pytest.raises(ValueError) as error:
      RecordSettings(**{name: value})
    assert str(error.value) == f"--{name}={value}: expected {expected}"


def test_a_block_of_one_document_is_refused():
  with pytest.raises(ValueError) as error:
    RecordSettings(documents_per_block=1)
  assert str(error.value) == (
    "--documents_per_block=1: expected 0 (no blocks) or at least 2, for random "
    "next sentences"
  )


def test_blank_lines_end_documents():
  lines = ["", "a", " b\r", "\t", "\u3000", "c", "", ""]
  assert list(pretraining_data.read_documents(lines)) == [["a", "b"], ["c"]]


@pytest.mark.parametrize(
  ("count", "sizes"),
  [(2, [2]), (3, [3]), (4, [4]), (5, [5]), (6, [4, 2]), (8, [4, 4])],
)
def test_no_block_has_a_document_alone(count, sizes):
  documents = [[str(number)] for number in range(count)]
  blocks = list(pretraining_data.cut_blocks(documents, 4))
  assert [len(block) for block in blocks] == sizes
  assert sum(blocks, []) == documents


@pytest.mark.parametrize(
  ("documents", "randoms", "belows", "expected"),
  [
    # No short pairs; splits after the second sentence; the actual next one.
    ([["a b", "c", "d e"], ["k"]], [0.1, 0.5], [1], [("a b c", "d e", False)]),
    # Splits after "a b", draws document 0, its own, then 1 from its second
    # sentence on. "c d e", left over, is alone: no split, no choice.
    (
      [["a b", "c d e"], ["k", "l m", "n"]],
      [0.1, 0.4],
      [0, 0, 1, 1, 1, 1],
      [("a b", "l m n", True), ("c d e", "l m", True)],
    ),
    # Ten draws of its own document: the random text comes from there.
    (
      [["a b", "c d e"], ["k"]],
      [0.1, 0.4],
      [0, *[0] * 10, 1, 1, 0],
      [("a b", "c d e", True), ("c d e", "k", True)],
    ),
    # A short pair, of two tokens; then each pair splits after its first.
    (
      [["a", "b", "c", "d"], ["k"]],
      [0.09, 0.5, 0.5],
      [0, 0, 0],
      [("a", "b", False), ("c", "d", False)],
    ),
  ],
)
def test_pairs_of_sentences(documents, randoms, belows, expected):
  documents = [[tokens(sentence) for sentence in d] for d in documents]
  rng, settings = Scripted(randoms, belows), RecordSettings(max_seq_length=8)
  pairs = list(pretraining_data.make_pairs(documents, 0, settings, rng))
  assert not rng.randoms and not rng.belows
  found = [(text(p.tokens_a), text(p.tokens_b), *p[2:]) for p in pairs]
  assert found == [(*pair, False) for pair in expected]


def test_truncation_takes_from_the_longer_span_at_either_end():
  # If the lengths are equal, the second one is truncated.
  rng = Scripted([0.4, 0.5, 0.4])
  pair = pretraining_data.truncate_randomly(
    tokens("a b c d e"), tokens("f g h"), 5, rng
  )
  assert [text(span) for span in pair] == ["b c d", "g h"]


@pytest.mark.parametrize(
  ("settings", "draws", "before", "expected"),
  [
    (  # 7 tokens: rounds 3.5 to the even 4.
      {"masked_lm_prob": 0.5},
      ([0.79, 0.8, 0.49, 0.8, 0.5, 0.0], [17]),
      "[CLS] a b [SEP] c d [SEP]",
      ("[CLS] [MASK] b [SEP] m [MASK] [SEP]", [1, 2, 4, 5]),
    ),
    (
      {"masked_lm_prob": 0},  # At least one.
      ([0],),
      "[CLS] a [SEP] b [SEP]",
      ("[CLS] [MASK] [SEP] b [SEP]", [1]),
    ),
    (
      {"masked_lm_prob": 1, "max_predictions_per_seq": 2},
      ([0, 0],),
      "[CLS] a [SEP] b c [SEP]",
      ("[CLS] [MASK] [SEP] [MASK] c [SEP]", [1, 3]),
    ),
    (  # "a ##i ##j" does not fit into two tokens; "##i" counts to "b".
      {"masked_lm_prob": 0.25, "do_whole_word_mask": True},
      ([0, 0],),
      "[CLS] a ##i ##j b [SEP] ##i c [SEP]",
      ("[CLS] a ##i ##j [MASK] [SEP] [MASK] c [SEP]", [4, 6]),
    ),
  ],
)
def test_masks(settings, draws, before, expected):
  before, rng = tokens(before), Scripted(*draws)
  length_a = before.index(tokens("[SEP]")[0]) + 1
  masked, found = pretraining_data.mask_tokens(
    before, length_a, VOCABULARY, RecordSettings(**settings), rng
  )
  assert not rng.randoms and not rng.belows
  assert (text(masked), found) == expected


def test_a_record_is_packed_and_padded():
  import tensorflow as tf  # Slow; only the parity tests need it.

  settings = RecordSettings(10, max_predictions_per_seq=2, dupe_factor=1)
  make = pretraining_data.BlockMaker(VOCABULARY, settings)
  block = make((0, [["a b c"], ["d e"]]))
  assert len(block.records) == 2
  for record in block.records:
    features = tf.train.Example.FromString(record).features.feature
    values = {
      name: list(f.int64_list.value or f.float_list.value)
      for name, f in features.items()
    }
    assert values["input_mask"] == [1] * 8 + [0] * 2
    assert values["next_sentence_labels"] == [1]
    assert values["masked_lm_weights"] == [1.0, 0.0]
    position, unused = values["masked_lm_positions"]
    values["input_ids"][position] = values["masked_lm_ids"][0]
    assert unused == values["masked_lm_ids"][1] == 0
    a, b = encode("a b c"), encode("d e")
    assert (values["input_ids"], values["segment_ids"]) in (
      ([2, *a, 3, *b, 3, 0, 0], [0] * 5 + [1] * 3 + [0] * 2),
      ([2, *b, 3, *a, 3, 0, 0], [0] * 4 + [1] * 4 + [0] * 2),
    )
  assert block.statistics == (2, 2, 5, 0, 0, 0)


def read(record):
  import tensorflow as tf  # Slow; only these tests need it.

  features = tf.train.Example.FromString(record).features.feature
  return {name: list(f.int64_list.value) for name, f in features.items()}


def test_records_without_masks_hold_the_text():
  settings = RecordSettings(10, dupe_factor=1, masks=False)
  make = pretraining_data.BlockMaker(VOCABULARY, settings)
  records = make((0, [["a b c"], ["d e"]])).records
  a, b = encode("a b c"), encode("d e")
  padding = {"input_mask": [1] * 8 + [0] * 2, "next_sentence_labels": [1]}
  expected = [
    {
      "input_ids": [2, *first, 3, *second, 3, 0, 0],
      "segment_ids": [0] * (len(first) + 2) + [1] * (len(second) + 1) + [0] * 2,
      **padding,
    }
    for first, second in ((a, b), (b, a))
  ]
  found = sorted(map(read, records), key=expected.index)
  assert found == expected


@pytest.mark.parametrize(
  ("document", "sequences"),
  [
    (["a b", "c", "d e f"], ["a b c", "d e f"]),
    (["a b c d e f g", "h"], ["a b c d", "e f g h"]),  # None is dropped.
    (["a", "b c d e", "f g"], ["a", "b c d e", "f g"]),
  ],
)
def test_sequences_are_whole_sentences_of_a_document(document, sequences):
  document = [tokens(sentence) for sentence in document]
  settings = RecordSettings(max_seq_length=6, next_sentence=False)
  made = list(pretraining_data.make_pairs([document], 0, settings, Scripted()))
  assert [text(pair.tokens_a) for pair in made] == sequences
  assert {str(pair[1:]) for pair in made} == {"([], False, False)"}


@pytest.mark.parametrize("masks", [False, True])
def test_a_record_without_next_sentence(masks):
  settings = RecordSettings(
    8, 2, dupe_factor=1, masks=masks, next_sentence=False
  )
  make = pretraining_data.BlockMaker(VOCABULARY, settings)
  block = make((0, [["a b", "c d"]]))  # One document is enough.
  assert pretraining_data.add_up([block.statistics], settings).documents == 1
  (values,) = map(read, block.records)
  if masks:
    assert values.pop("masked_lm_weights") == []  # Floats.
    (position, unused), (label, _) = (
      values.pop("masked_lm_positions"),
      values.pop("masked_lm_ids"),
    )
    assert unused == 0 and 1 <= position <= 4
    values["input_ids"][position] = label
  assert values == {
    "input_ids": [2, *encode("a b c d"), 3, 0, 0],
    "input_mask": [1] * 6 + [0] * 2,
    "segment_ids": [0] * 8,
  }


def blocks_of(settings, num_processes=1, vocabulary=VOCABULARY):
  return list(
    pretraining_data.make_blocks(CORPUS, vocabulary, settings, num_processes)
  )


def test_jobs_share_the_blocks_and_one_process_says_how_far_it_is():
  settings = dataclasses.replace(SMALL, documents_per_block=4)
  whole = blocks_of(settings)
  parts = []
  for job in range(3):
    made = pretraining_data.make_blocks(
      CORPUS, VOCABULARY, settings, progress=parts.append, share=(job, 3)
    )
    assert list(made) == whole[job::3]
  # Four documents, twice each.
  assert parts[:8] == [n / 8 for n in range(1, 9)]


@pytest.fixture
def vocabulary(tmp_path):
  """VOCABULARY with a tokenizer that other processes can import."""
  (tmp_path / "vocab.txt").write_text("\n".join(VOCAB))
  tokenizer = tokenization.FullTokenizer(str(tmp_path / "vocab.txt"))
  return pretraining_data.make_vocabulary(tokenizer, "vocab.txt")


def children():
  """Returns the processes that this one started, but for loky's trackers."""
  return [
    process.pid
    for process in psutil.Process().children()
    if "resource_tracker" not in " ".join(process.cmdline())
  ]


def test_processes_change_no_record(vocabulary):
  settings = dataclasses.replace(SMALL, documents_per_block=4)
  make = pretraining_data.BlockMaker(VOCABULARY, settings)
  expected = [make((n, CORPUS[4 * n : 4 * n + 4])) for n in range(6)]
  assert blocks_of(settings) == expected
  large = dataclasses.replace(SMALL, documents_per_block=1000)
  assert blocks_of(large) == blocks_of(SMALL)
  before = children()
  for num_processes in (2, 9):
    assert blocks_of(settings, num_processes, vocabulary) == expected
  assert children() == before


def test_seed_and_place_of_a_block_change_its_records():
  made = set()
  for seed in (5, 6):
    settings = dataclasses.replace(SMALL, random_seed=seed)
    make = pretraining_data.BlockMaker(VOCABULARY, settings)
    made |= {tuple(make((number, CORPUS[:4])).records) for number in range(3)}
  assert len(made) == 6


def test_the_shortest_sequences_and_truncated_pairs():
  settings = RecordSettings(max_seq_length=5, short_seq_prob=1, dupe_factor=1)
  assert blocks_of(settings)[0].records
  settings = RecordSettings(max_seq_length=8, dupe_factor=1, short_seq_prob=0.0)
  corpus = [["a b c d e f"] * 3, ["b"]]
  block = pretraining_data.BlockMaker(VOCABULARY, settings)((0, corpus))
  assert block.statistics.truncated_pairs == 4


def test_a_process_that_dies_is_an_error_with_the_cure():
  vocabulary = make_vocabulary(eval)
  settings = RecordSettings(documents_per_block=2)
  documents = [["__import__('os')._exit(1)"]] * 9
  before = children()
  message = "a worker process died, .* lower --documents_per_block or --num_pro"
  with pytest.raises(OSError, match=message):
    list(pretraining_data.make_blocks(documents, vocabulary, settings, 2))
  assert children() == before


def test_documents_without_tokens_are_left_out():
  corpus = [["a"], ["\x00"], ["b"]]
  vocabulary = VOCABULARY._replace(tokenize=lambda t: tokens(t.strip("\x00")))
  block = pretraining_data.BlockMaker(vocabulary, SMALL)((0, corpus))
  assert block.statistics.documents == 2


def test_what_is_counted_and_texts_that_make_no_record():
  make = pretraining_data.BlockMaker(VOCABULARY, SMALL)
  assert make((0, [["a ?", "?"], ["b"]])).statistics == (2, 3, 4, 2, 0, 0)
  for documents, message in (
    (
      [],
      "there is no block for this job: lower --num_shards, or "
      "--documents_per_block",
    ),
    ([[]], "--input_file: the input holds no text; expected some"),
    (
      [[["a"]]],
      "--input_file: the input is one document; random next sentences need "
      "another: put a blank line between documents, also where files end",
    ),
  ):
    counts = [make((0, block)).statistics for block in documents]
    with pytest.raises(ValueError) as error:
      pretraining_data.add_up(counts, SMALL)
    assert str(error.value) == message


def test_a_document_alone_in_its_block_makes_no_pairs():
  corpus = [["\x00"], ["a b", "c"], ["\x00"], ["\x00"], ["b"], ["b"]]
  vocabulary = VOCABULARY._replace(tokenize=lambda t: tokens(t.strip("\x00")))
  settings = dataclasses.replace(SMALL, documents_per_block=2)
  blocks = list(pretraining_data.make_blocks(corpus, vocabulary, settings))
  assert [block.statistics.documents for block in blocks] == [1, 0, 2]
  assert [block.statistics.documents_alone for block in blocks] == [1, 0, 0]
  assert [bool(block.records) for block in blocks] == [False, False, True]
  counts = [block.statistics for block in blocks]
  assert pretraining_data.add_up(counts, settings).documents_alone == 1
  with pytest.raises(ValueError, match="_block=2 holds two documents; random"):
    pretraining_data.add_up(counts[:2], settings)
  # Rows of one sequence need no other document.
  settings = dataclasses.replace(settings, next_sentence=False)
  [first, *_] = pretraining_data.make_blocks(corpus, vocabulary, settings)
  assert first.records and not first.statistics.documents_alone


def test_special_tokens_of_a_vocabulary():
  special = (b"\2", b"\3", b"\4", b"\1")  # [CLS], [SEP], [MASK], [UNK]
  assert make_vocabulary()[2:6] == special


def test_a_vocabulary_without_special_tokens():
  with pytest.raises(ValueError) as error:
    make_vocabulary(vocab={"[SEP]": 0, "[UNK]": 1})
  assert str(error.value) == (
    "vocab.txt: no [CLS], [MASK] among its 2 tokens; expected the vocabulary "
    "of a BERT, one token a line"
  )


# The number of a case in digests.json: text and flags.
@pytest.mark.parametrize(
  "number",
  [
    pytest.param(1, id="english_whole_words"),
    pytest.param(3, id="chinese_three_files"),
    pytest.param(0, id="english_defaults", marks=pytest.mark.slow),
    pytest.param(2, id="english_cased_short", marks=pytest.mark.slow),
  ],
)
def test_records_equal_the_originals(number, tmp_path):
  golden = paths.SHARED / "golden/pretraining_data/digests.json"
  if not golden.exists():
    pytest.skip(f"{golden} is absent")
  spec = importlib.util.spec_from_file_location(
    "record_digest", paths.SHARED / "tools/record_digest.py"
  )
  record_digest = importlib.util.module_from_spec(spec)
  spec.loader.exec_module(record_digest)
  case = json.loads(golden.read_text())[number]
  lower = case["flags"].pop("do_lower_case", "true") == "true"
  whole = case["flags"].pop("do_whole_word_mask", "false") == "true"
  settings = RecordSettings(do_whole_word_mask=whole, **case["flags"])
  vocab_file = str(paths.SHARED / "data" / case["vocab_file"])
  tokenizer = tokenization.FullTokenizer(vocab_file, lower)
  vocabulary = pretraining_data.make_vocabulary(tokenizer, vocab_file)
  inputs = [str(paths.SHARED / "data" / path) for path in case["input_files"]]
  documents = pretraining_data.read_documents(text_files.Text(inputs).lines())
  outputs = [str(tmp_path / str(i)) for i in range(case["num_output_files"])]
  with record_writer.open_shards(outputs) as write:
    for block in pretraining_data.make_blocks(documents, vocabulary, settings):
      for record in block.records:
        write(record)
  assert record_digest.digest(outputs) == (case["records"], case["digest"])
