"""Vocabularies of Japanese: MeCab finds words, WordPiece splits them."""

import importlib
import importlib.util
import random
import sys
import types
import unicodedata

import pytest

from bert.vocabularies import vocabulary_table

pytest.importorskip("fugashi", reason="needs requirements/mecab.txt")
pytest.importorskip("unidic_lite", reason="needs requirements/mecab.txt")
DICTIONARIES = ["unidic_lite", "ipadic"]

# The first sentences of a novel of 1905 and of a story of 1918, and what is
# hard: half-width kana, full-width letters, composed and decomposed voicing.
LINES = [
  "吾輩は猫である。名前はまだ無い。",
  "どこで生れたかとんと見当がつかぬ。",
  "或日の事でございます。御釈迦様は極楽の蓮池のふちを、独りでぶらぶら御歩きになっていらっしゃいました。",
  "ﾃﾞﾊﾟｰﾄで Ｃｏｆｆｅｅ を３杯飲んだ！",
  "か\u3099き\u3099 がぎ ①㍿ Café CAFÉ",
  "東京都　京都府\t北海道",
  "",
]
TOKENS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "猫", "吾輩", "##輩"]
TOKENS += [
  "で",
  "ある",
  "は",
  "名前",
  "。",
  "デパート",
  "coffee",
  "Coffee",
  "3",
]
TOKENS += ["が", "ぎ", "東京", "都", "京都", "##府", "北海道", "cafe", "café"]


def make(tmp_path, dictionary="unidic_lite", tokens=TOKENS, *others):
  if not importlib.util.find_spec(dictionary):
    pytest.skip(f"{dictionary} is absent: requirements/mecab.txt")
  path = tmp_path / f"vocab.{dictionary}"
  path.write_text("\n".join(tokens) + "\n", encoding="utf-8")
  return vocabulary_table.make_tokenizer(str(path), *others)


def test_text_becomes_words(tmp_path):
  tokenizer = make(tmp_path)
  text = "吾輩は猫である。ﾃﾞﾊﾟｰﾄ Ｃｏｆｆｅｅ CAFÉ"
  tokens = "吾輩 は 猫 で ある 。 デパート coffee café".split()
  assert tokenizer.tokenize(text) == tokens
  assert tokenizer.encode(text.encode()) == [TOKENS.index(t) for t in tokens]
  cased = make(tmp_path, "unidic_lite", TOKENS, False)
  assert cased.tokenize("Ｃｏｆｆｅｅ CAFÉ") == ["Coffee", "[UNK]"]
  assert tokenizer.tokenize("猫\0は\ud800") == ["猫", "は"]


def test_tokens_know_their_places(tmp_path):
  tokenizer = make(tmp_path, "unidic_lite", TOKENS, True, ["[MASK]"])
  text = " 吾輩[MASK]ﾃﾞﾊﾟｰﾄ か\u3099\0㍿ CAFE\u0301"
  found = tokenizer.tokenize_with_offsets(text)
  assert [t.token for t in found] == tokenizer.tokenize(text)
  sources = [text[a:b] for _, a, b in found]
  assert sources[:4] == ["吾輩", "[MASK]", "ﾃﾞﾊﾟｰﾄ", "か\u3099"]
  assert sources[-1] == "CAFE\u0301"


def random_lines(count):
  """Yields Japanese sentences, shuffled, with odd characters in them."""
  source = random.Random(3)
  words = list("ﾊﾟｶﾞＡｚ９㍻½ﬁ゛゜ー\u3099\u309a\u0301각 .,-\u3000")
  words += [line[i : i + 3] for line in LINES for i in range(0, len(line), 2)]
  for _ in range(count):
    chosen = source.choices(words, k=source.randrange(1, 15))
    chosen.append(
      chr(source.choice([0x3041, 0x30A1, 0x4E00]) + source.randrange(80))
    )
    source.shuffle(chosen)
    yield "".join(chosen)


@pytest.mark.parametrize("dictionary", DICTIONARIES)
@pytest.mark.parametrize(
  "count", [50, pytest.param(2000, marks=pytest.mark.slow)]
)
@pytest.mark.parametrize("lower", [True, False])
def test_ids_are_those_of_transformers(tmp_path, dictionary, lower, count):
  transformers = pytest.importorskip("transformers")
  lines = [*LINES, *random_lines(count)]
  characters = sorted(set("".join(lines).lower()) - set(" \t\u3000"))
  tokens = [*TOKENS, *characters, *(f"##{c}" for c in characters[::2])]
  tokens = list(dict.fromkeys(tokens))
  ours = make(tmp_path, dictionary, tokens, lower)
  theirs = transformers.BertJapaneseTokenizer(
    str(tmp_path / f"vocab.{dictionary}"),
    do_lower_case=lower,
    word_tokenizer_type="mecab",
    mecab_kwargs={"mecab_dic": dictionary},
  )
  for line in lines:
    expected = theirs.convert_tokens_to_ids(theirs.tokenize(line))
    assert ours.encode(line) == expected, ascii(line)
    places = ours.tokenize_with_offsets(line)
    assert [t.token for t in places] == ours.tokenize(line)
    assert all(text.strip() for text in (line[a:b] for _, a, b in places))


def test_no_graph_finds_words(tmp_path):
  from bert.export import tf_tokenization

  make(tmp_path)
  with pytest.raises(ValueError, match="this is another vocabulary"):
    tf_tokenization.make_tokenizer(str(tmp_path / "vocab.unidic_lite"))


@pytest.mark.parametrize("package", ["fugashi", "unidic_lite"])
def test_a_line_says_how_to_install_it(tmp_path, monkeypatch, package):
  make(tmp_path)
  monkeypatch.delitem(sys.modules, "bert.contrib.mecab_vocabulary")
  monkeypatch.setitem(sys.modules, package, None)
  with pytest.raises(ImportError, match=r"-r requirements/mecab\.txt"):
    vocabulary_table.make_tokenizer(str(tmp_path / "vocab.unidic_lite"))


def test_a_text_of_any_length_has_its_words(tmp_path):
  """MeCab ends the process at a million characters."""
  tokenizer = make(tmp_path)
  sentence = "吾輩は猫である。"
  tokens = tokenizer.tokenize(sentence)
  assert tokenizer.tokenize(sentence * 5000) == tokens * 5000
  pairs = tokenizer.tokenize_with_offsets(sentence * 5000)
  assert [token for token, *_ in pairs] == tokens * 5000
  assert pairs[-1][1:] == (39_999, 40_000)
  # Without a place to cut, it is cut somewhere.
  assert tokenizer.tokenize("猫" * 1_000_000)


def test_a_run_of_marks_takes_no_square_of_time(monkeypatch):
  module = importlib.import_module("bert.contrib.mecab_vocabulary")
  splitter = module.WordSplitter(False, (), "unidic_lite")
  # Marks of the classes 240, 220 and 230; the last two characters are two each.
  marks = ["\u0345", "\u0316", "\u0301", "\u0344", "\u0f73"]
  monkeypatch.setattr(module, "_LONG", 0)
  source = random.Random(1)
  for _ in range(300):
    text = "".join(source.choices([*marks, "か", "\u3099", "e"], k=12))
    expected = unicodedata.normalize("NFKC", text)
    assert "".join(splitter.tokenize(text)) == expected

  # NFKC alone would take two minutes.
  monkeypatch.undo()
  run = marks[0] * 100_000 + marks[1] * 100_000
  expected = "猫" + marks[1] * 100_000 + marks[0] * 100_000
  assert "".join(splitter.tokenize("猫" + run)) == expected


def test_it_has_no_chinese_words_to_mask(tmp_path):
  pytest.importorskip("jieba", reason="requirements/jieba.txt")
  make(tmp_path)
  path = str(tmp_path / "vocab.unidic_lite")
  vocabulary = types.SimpleNamespace(file=path)
  with pytest.raises(ValueError, match="--segmenter needs a vocab.txt, not"):
    importlib.import_module("bert.contrib.word_masks").mark_words(
      vocabulary, True
    )
