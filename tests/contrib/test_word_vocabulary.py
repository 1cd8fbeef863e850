"""Vocabularies of words: Chinese text is cut by jieba."""

import functools
import sys

import pytest

from bert import create_vocab
from bert.cli import vocab_settings
from bert.contrib import word_vocabulary as words
from bert.tasks import squad_features
from bert.vocabularies import vocabulary_table
import program_flags

pytest.importorskip("jieba", reason="needs requirements/jieba.txt")

WORDS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "我", "来到", "北京"]
WORDS += ["清华大学", "caf", "cafe", ",", "，", "读书", "京", "的"]


@pytest.fixture(name="path")
def write_vocabulary(tmp_path):
  path = tmp_path / "zh.words"
  path.write_text("\n".join(WORDS) + "\n")
  return str(path)


@pytest.mark.parametrize(
  ("text", "tokens"),
  [
    ("我来到北京清华大学读书", "我 来到 北京 清华大学 读书"),
    # Only runs are words; a deleted character ends a run, too.
    ("北 京，北\x0b京的", "[UNK] 京 ， [UNK] 京 的"),
    # No piece of a word: it is known as a whole or unknown.
    ("我Café, cafes 网易杭研", "我 cafe , [UNK] [UNK] [UNK] [UNK]"),
    # A compatibility form and a character that jieba does not know.
    ("我\uf9e4\U0002000b", "我 [UNK] [UNK]"),
    ("", ""),
  ],
)
def test_text_becomes_words(path, text, tokens):
  tokenizer = vocabulary_table.make_tokenizer(path)
  assert tokenizer.tokenize(text) == tokens.split()
  ids = tokenizer.convert_tokens_to_ids(tokens.split())
  assert tokenizer.encode(text) == ids
  assert tokenizer.encode(text.encode()) == ids


def test_words_know_their_places(path):
  tokenizer = vocabulary_table.make_tokenizer(path, True, ["[MASK]"])
  text = " 我来到[MASK]北京, CAFÉ网易"
  found = tokenizer.tokenize_with_offsets(text)
  tokens = "我 来到 [MASK] 北京 , cafe [UNK]"
  assert " ".join(token for token, _, _ in found) == tokens
  sources = "我 来到 [MASK] 北京 , CAFÉ 网易"
  assert " ".join(text[a:b] for _, a, b in found) == sources


def test_create_vocab_takes_the_most_frequent_words(tmp_path, capsys):
  text = tmp_path / "text"
  text.write_text("我来到北京。\n我来到清华大学。\n我来到北京的 café。\n")
  path = tmp_path / "new.words"
  flags = {"input_file": text, "output_file": path, "vocab_size": 9}
  run = functools.partial(
    program_flags.run_main, create_vocab, vocab_settings.VocabSettings, **flags
  )
  with pytest.raises(ValueError, match="none of .model, .words"):
    run()
  run(model="words")
  assert path.read_text().split() == [*WORDS[:5], "。", "我", "来到", "北京"]
  said = capsys.readouterr().out
  assert said.startswith("3 lines, 14 words, 7 different\n[UNK] for 21.43%")
  assert vocabulary_table.saved_names(str(path)) == {"vocab.words": str(path)}


def test_answers_within_words_are_refused(path):
  encode = vocabulary_table.make_tokenizer(path).encode
  document = squad_features.Document("我来到北京清华大学", encode)
  with pytest.raises(ValueError, match="needs contexts with spaces"):
    _ = document.first_tokens
  spaced = squad_features.Document("cafe cafe, 我 cafe cafe", encode)
  assert spaced.first_tokens == [0, 1, 3, 4, 5, 6]


def test_no_graph_cuts_words(path):
  from bert.export import tf_tokenization

  with pytest.raises(ValueError, match="this is another vocabulary"):
    tf_tokenization.make_tokenizer(path)


def test_without_jieba_a_line_says_how_to_install_it(path, monkeypatch):
  monkeypatch.delitem(sys.modules, words.__name__)
  monkeypatch.setitem(sys.modules, "jieba", None)
  with pytest.raises(ImportError, match="-r requirements/jieba.txt"):
    vocabulary_table.make_tokenizer(path)
