"""The graph of a SentencePiece model, against Python."""

import pytest
import tensorflow as tf

pytest.importorskip("sentencepiece")

from export import tf_sentence_pieces  # noqa: E402
import paths  # noqa: E402
import tiny_sentence_pieces  # noqa: E402
from vocabularies import vocabulary_table  # noqa: E402

XNLI = paths.SHARED / "data" / "xnli" / "xnli.dev.tsv"


@pytest.fixture(name="path", scope="module")
def learn(tmp_path_factory):
  return tiny_sentence_pieces.learn(tmp_path_factory.mktemp("learned"))


def assert_same(path, texts, lowers=True, kept=()):
  graph = tf_sentence_pieces.make_tokenizer(path, lowers, kept)
  python = vocabulary_table.make_tokenizer(path, lowers, kept)
  ids = graph.encode(tf.constant(texts)).to_list()
  for text, found in zip(texts, ids, strict=True):
    assert found == python.encode(text), repr(text)
  return graph, python


@pytest.mark.parametrize("lowers", [True, False])
def test_ids(path, lowers):
  texts = ["The fox ", "", "\u5317\u4eac, FOX", "\u0130 x"]
  assert_same(path, texts, lowers)


def test_kept_tokens(path):
  texts = ["the [MASK] fox", "[MASK]", "", "fox[MASK].", "[MASK][MASK]the\n x"]
  assert_same(path, texts, True, ["[MASK]"])
  assert_same(
    path, [*texts, "[MASK][SEP]the[MASK]x"], True, ["[MASK]", "[SEP]"]
  )


def test_places(path):
  texts = ["The  quick fox", "", " \u5317\u4eac\u3002 x", "fox\u3000\u0130s"]
  graph, python = assert_same(path, texts)
  found = graph.encode_with_places(tf.constant(texts))
  for row, text in enumerate(texts):
    expected = python.tokenize_with_offsets(text)
    starts, ends = found[1][row].numpy(), found[2][row].numpy()
    for token, start, end in zip(expected, starts, ends, strict=True):
      assert text[start:end] == text[token.start : token.end]


def test_a_graph_has_no_other_vocabulary():
  path = paths.SHARED / "data" / "gpt1" / "encoder_bpe_40000.json"
  if not path.exists():
    pytest.skip(f"needs {path}")
  with pytest.raises(ValueError, match="this is another vocabulary"):
    tf_sentence_pieces.make_tokenizer(str(path)).check()


@pytest.mark.slow
def test_ten_thousand_lines_of_four_languages(tmp_path):
  if not XNLI.exists():
    pytest.skip(f"needs {XNLI}")
  lines = {"en": [], "zh": [], "sw": [], "ar": []}
  for row in XNLI.read_text().splitlines()[1:]:
    language, *cells = row.split("\t")
    if language in lines:
      lines[language] += cells[5:7]  # sentence1, sentence2
  chosen = [line for found in lines.values() for line in found[:2500]]
  assert len(chosen) == 10_000
  text = tmp_path / "text.txt"
  text.write_text("\n".join(chosen) + "\n")
  path = tiny_sentence_pieces.learn(tmp_path, text, vocab_size=4000)
  for start in range(0, 10_000, 1000):
    assert_same(path, chosen[start : start + 1000])
