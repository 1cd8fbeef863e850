"""Masks of whole Chinese words: tokens stay characters, jieba groups them."""

import importlib
import pickle
import sys
import types

import pytest

from bert import contrib
from bert.cli import pretraining
from bert.data import pretraining_data
import program_flags
import record_programs
from record_programs import BEAM, PLAIN

jieba = pytest.importorskip("jieba", reason="needs requirements/jieba.txt")

DOCUMENTS = [
  ["我来到北京清华大学读书。", "他在 Google 的北京办公室工作，很忙。"],
  [
    "读书使人进步！",
    "北京是中国的首都，清华大学在北京。",
    "我读 embedded 书。",
  ],
  ["中国的大学很多。", "工作和读书都很重要。"],
]
TEXT = "\n\n".join("\n".join(sentences) for sentences in DOCUMENTS)
SPECIAL = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
ASCII = ["google", "em", "##bed", "##ded"]
# A character within a word is unknown.
CHARACTERS = sorted(c for c in set(TEXT) if not c.isascii() and c != "华")
VOCABULARY = SPECIAL + ASCII + CHARACTERS
FLAGS = {"do_whole_word_mask": True, "segmenter": "jieba"}
SMALL = {"max_seq_length": 24, "max_predictions_per_seq": 6}
# Ids of characters that continue a word in the plain computation.
INSIDE = 1000


@pytest.fixture(name="folder")
def write_text(tmp_path, write):
  write("vocab.txt", "\n".join(VOCABULARY))
  write("text.txt", TEXT)
  return tmp_path


def make(program=PLAIN, **flags):
  command = record_programs.command(program, **{**SMALL, **flags})
  return program_flags.run_here(command)


def read_vocabulary(**flags):
  settings = pretraining.RecordFlags(
    input_file="text.txt", output_file="out", vocab_file="vocab.txt", **flags
  )
  return pretraining.prepare(settings, ["text.txt"])


@pytest.mark.parametrize(
  ("text", "continuing"),
  [
    ("我来到北京", "0 0 1 0 1"),
    ("清华大学。读书", "0 1 1 1 0 0 1"),
    # Only runs of Chinese characters have words of several.
    ("北 京，北京", "0 0 0 0 1"),
    ("在 Google 的 embedded 北京", "0 0 0 0 1 1 0 1"),
    ("google", "0"),
    ("", ""),
  ],
)
@pytest.mark.usefixtures("folder")
def test_characters_of_a_word_continue_it(text, continuing):
  marked = read_vocabulary(**FLAGS)
  tokens = marked.tokenize(text)
  assert [int(t in marked.inner) for t in tokens] == [
    int(flag) for flag in continuing.split()
  ]
  # The same bytes as without words, also in another process.
  plain = read_vocabulary(do_whole_word_mask=True)
  assert tokens == plain.tokenize(text)
  assert b"".join(tokens) == b"".join(plain.tokenize(text))
  sent = pickle.loads(pickle.dumps(marked))
  assert [t in sent.inner for t in sent.tokenize(text)] == [
    t in marked.inner for t in tokens
  ]


def compute_plainly(settings):
  """Makes records with other ids for characters that continue a word.

  It is how others make them: "##" before such characters while masks are drawn,
  which is removed in the records.
  """

  def encode(text):
    ids = []
    for word in jieba.lcut(text):
      if word in ("Google", "embedded"):
        pieces = {"Google": ASCII[:1], "embedded": ASCII[1:]}[word]
        ids += [VOCABULARY.index(piece) for piece in pieces]
      elif word.strip():
        first, *rest = (
          VOCABULARY.index(c if c in CHARACTERS else "[UNK]") for c in word
        )
        ids += [first, *(INSIDE + i for i in rest)]
    return ids

  vocab = {token: index for index, token in enumerate(VOCABULARY)}
  inside = {f"##{token}": INSIDE + i for token, i in vocab.items()}
  tokenizer = types.SimpleNamespace(
    encode=encode,
    vocab={**inside, **vocab},
    continues_word=lambda token: token.startswith("##"),
  )
  vocabulary = pretraining_data.make_vocabulary(tokenizer, "vocab.txt")
  # No token of these is drawn in the place of another.
  vocabulary = vocabulary._replace(tokens=vocabulary.tokens[len(inside) :])
  make_block = pretraining_data.BlockMaker(vocabulary, settings)
  return make_block((0, DOCUMENTS)).records


def features_of(record):
  import tensorflow as tf  # Slow; only this test needs it.

  features = tf.train.Example.FromString(record).features.feature
  return {
    name: [i % INSIDE for i in f.int64_list.value] or f.float_list.value[:]
    for name, f in features.items()
  }


def read(name):
  import tensorflow as tf

  return [record.numpy() for record in tf.data.TFRecordDataset(name)]


@pytest.mark.usefixtures("folder")
def test_records_equal_a_plain_computation():
  make(output_file="words", **FLAGS)
  made = list(map(features_of, read("words")))
  settings = pretraining_data.RecordSettings(do_whole_word_mask=True, **SMALL)
  assert made == list(map(features_of, compute_plainly(settings)))
  assert len(made) > 20
  # Without the flag other places are masked in the same text.
  make(output_file="pieces", do_whole_word_mask=True)
  assert read("pieces") != read("words")
  masked = [i for row in made for i in row["masked_lm_positions"] if i]
  assert len(masked) > 40


@pytest.mark.slow
@pytest.mark.usefixtures("folder")
def test_processes_and_beam_make_the_same_records():
  blocks = {**FLAGS, "documents_per_block": 2}
  make(output_file="one", **blocks)
  make(output_file="two", num_processes=2, **blocks)
  assert read("one") == read("two")
  pytest.importorskip("apache_beam", reason="requirements/beam.txt")
  done = make(BEAM, output_file="beam", **blocks)
  assert (done.returncode, done.stderr) == (0, "")
  assert sorted(read("one")) == sorted(read("beam"))


def test_other_vocabularies_have_no_words_to_mask(folder):
  (folder / "zh.words").write_text("\n".join(VOCABULARY))
  done = make(**{**FLAGS, "vocab_file": "zh.words"})
  message = (
    "--segmenter needs a vocab.txt, not zh.words: only there every Chinese"
  )
  program_flags.assert_refused(done, message)
  assert not (folder / "out").exists()


def test_a_training_takes_no_segmenter():
  with pytest.raises(ValueError, match="no flag is called --segmenter"):
    pretraining.PretrainingSettings.parse({"segmenter": "jieba"})


@pytest.mark.parametrize("program", [PLAIN, BEAM])
def test_without_jieba_a_line_says_how_to_install_it(
  folder, program, monkeypatch
):
  if program == BEAM:
    pytest.importorskip("apache_beam", reason="requirements/beam.txt")
  for name in ("word_masks", "word_vocabulary"):
    monkeypatch.delitem(sys.modules, f"bert.contrib.{name}", raising=False)
    monkeypatch.delattr(contrib, name, raising=False)
  monkeypatch.setitem(sys.modules, "jieba", None)
  done = make(program, documents_per_block=2, **FLAGS)
  program_flags.assert_refused(
    done,
    "jieba is needed for Chinese words (import of jieba halted; None in "
    "sys.modules): pip install --use-pep517 -r requirements/jieba.txt",
  )
  assert not (folder / "out").exists()


def test_a_long_run_of_characters_takes_no_square_of_its_length():
  word_masks = importlib.import_module("bert.contrib.word_masks")
  inside = word_masks.places_inside_words("\u9f98" * 100_000)
  assert max(inside, default=0) < 100_000
  word = "\u6a21\u578b"  # "Model".
  expected = set(range(1, 4000, 2))
  assert word_masks.places_inside_words(word * 2000) == expected
