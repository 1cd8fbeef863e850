"""Reading tagged words, converting tags, windows and features."""

import pytest

from bert import tokenization
from bert.tasks import tagging, tagging_schemes

CONLL = """-DOCSTART- -X- O O

EU NNP I-NP I-ORG
rejects VBZ I-VP O

Peter NNP I-NP I-PER


-DOCSTART- -X- O O

Blackburn NNP I-NP I-PER
"""
VOCABULARY = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "a", "b", "c", "##d", "e"]


def write(tmp_path, text):
  path = tmp_path / "data.txt"
  path.write_text(text, encoding="utf-8")
  return tagging.Source(str(path))


def read(tmp_path, text, **changes):
  source = write(tmp_path, text)._replace(**changes)
  return list(tagging.read_sentences(source))


@pytest.fixture
def tokenizer(tmp_path):
  path = tmp_path / "vocab.txt"
  path.write_text("\n".join(VOCABULARY) + "\n")
  return tokenization.FullTokenizer(str(path))


def test_sentences_and_documents_of_conll(tmp_path):
  sentences = read(tmp_path, CONLL, scheme="iob1")
  assert [(s.words, s.tags, s.document, s.line) for s in sentences] == [
    (("EU", "rejects"), ("I-ORG", "O"), 0, 3),
    (("Peter",), ("I-PER",), 0, 6),
    (("Blackburn",), ("I-PER",), 1, 11),
  ]


COLUMNS = {"token_column": 2, "tag_column": 1, "scheme": "none"}


@pytest.mark.parametrize(
  ("text", "columns", "words", "tags"),
  [
    ("0 DT The\n1 NN cat\n", COLUMNS, ("The", "cat"), ("DT", "NN")),
    # A space beside a tag is not part of it.
    ("Al\tB-PER \n \t O\n", {}, ("Al", " "), ("B-PER", "O")),
    # Tabs separate words with spaces; a mark and returns are no text.
    (
      "\ufeffNew York\tB-LOC\r\n\u3000\tO\r\n\r\n",
      {},
      ("New York", "\u3000"),
      ("B-LOC", "O"),
    ),
    ("#\tSYM\n1-2\tNUM\n", {"scheme": "none"}, ("#", "1-2"), ("SYM", "NUM")),
  ],
)
def test_words_and_tags_are_columns(tmp_path, text, columns, words, tags):
  [sentence] = read(tmp_path, text, **columns)
  assert (sentence.words, sentence.tags) == (words, tags)


def test_comments_and_tokens_of_several_words_are_skipped(tmp_path):
  text = (
    "# sent_id = news-1\n1\tAl\tPROPN\n2-3\tdunno\t_\n2\tdu\tAUX\n"
    "2.1\tn\tPART\n3\tno\tVERB\n\n# text = Al\n1\t#\tSYM\n"
  )
  columns = {"token_column": 1, "tag_column": 2, "scheme": "none"}
  first, second = read(tmp_path, text, **columns)
  assert first[:2] == (("Al", "du", "no"), ("PROPN", "AUX", "VERB"))
  assert (second.words, second.line) == (("#",), 9)
  source = write(tmp_path, text)._replace(**columns)
  comment, *lines = tagging.append_column(source, "abcd")
  assert comment == "# sent_id = news-1"
  assert lines[:3] == ["1\tAl\tPROPN\ta", "2-3\tdunno\t_", "2\tdu\tAUX\tb"]


def test_files_to_predict_may_have_tags(tmp_path):
  def is_tagged(text, *columns):
    path = write(tmp_path, text).path
    return tagging.inspect_file(path, *columns, "iob2", False).is_tagged

  assert is_tagged("B-PER Anna\n", 1, 0)
  assert is_tagged("Anna O\n", 0, -1)
  assert is_tagged("\tAnna\tB-PER\n", 1, -1)
  assert not is_tagged("Anna\n", 0, -1)
  assert not is_tagged("\tAnna\n", 1, -1)
  assert not is_tagged("Anna O\n", 0, 2)


FEW = "columns (see --token_column and --tag_column), found"
SWAPPED = {"token_column": 1, "tag_column": 0}


@pytest.mark.parametrize(
  ("text", "changes", "message"),
  [
    (
      "a b O\nc d\n",
      {},
      ":2: expected 3 columns as in the lines before, found 2",
    ),
    ("a\n", {}, f":1: expected at least 2 {FEW} 1"),
    ("x\n", SWAPPED, f":1: expected at least 2 {FEW} 1"),
    ("a x y O\n\nb O\n", {"tag_column": 3}, f":3: expected at least 4 {FEW} 2"),
    (
      "a O\nb X\n",
      {"scheme": "bmes"},
      ":2: the tag 'X' is outside of the scheme bmes: expected O, or B- or M- "
      "or E- or S- and a type (see --tag_scheme and --tag_column)",
    ),
    ("a\tO\n\tO\n", {}, ":2: the word is empty"),
    ("\n-DOCSTART- O\n\n", {}, ": holds no sentence"),
    (
      "Al B-PER\rsaw O\r\rRome B-LOC\r",
      {},
      r":1: a carriage return within a line; lines end with \n or \r\n",
    ),
  ],
)
def test_bad_lines_are_named(tmp_path, text, changes, message):
  with pytest.raises(ValueError) as error:
    read(tmp_path, text, **changes)
  assert str(error.value) == f"{tmp_path / 'data.txt'}{message}"


def test_schemes_are_found(tmp_path):
  def find(tags):
    text = "".join(f"w {tag}\n" for tag in tags.split())
    return tagging.find_scheme(write(tmp_path, text))

  assert find("I-A B-A O I-B I-A I-A I-A") == "iob1"
  assert find("B-A B-A O B-B B-A I-A I-A") == "iob2"
  assert find("S-A S-A O S-B B-A I-A E-A") == "iobes"
  assert find("S-A S-A O S-B B-A M-A E-A") == "bmes"
  assert find("U-A U-A O U-B B-A I-A L-A") == "bilou"
  assert find("W-A W-A O W-B B-A M-A E-A") == "bmewo"
  assert find("O B-A L-A") == "bilou" and find("O S-A") == "iobes"
  assert find("O B-A I-A") == "iob2"
  assert find("B-A I-A O I-A") == "iob2"  # The second begins wrongly.
  assert find("I-A O B-A") == "iob2"  # As no B does in IOB1.
  assert find("B M E S") == "bmes"
  assert find("DT NN O") == "none"


def test_tags_of_which_some_have_no_scheme_are_refused(tmp_path):
  source = write(tmp_path, "w NNP\nw B-NP-like\n")
  with pytest.raises(ValueError) as error:
    tagging.find_scheme(source)
  assert str(error.value) == (
    f"{source.path}:1: the tag 'NNP' is outside of every scheme: expected O, "
    "or one of B-, E-, I-, L-, M-, S-, U-, W- and a type (--tag_scheme=none "
    "takes all tags as they are)"
  )


def test_the_line_of_a_wrong_tag_is_its_own_behind_lines_without_words(
  tmp_path,
):
  text = "1\tAl\tB-PER\n2-3\tdunno\t_\n2\tdu\tO\n# c\n3\tno\tPER\n"
  source = write(tmp_path, text)._replace(token_column=1)
  with pytest.raises(ValueError, match=r"data.txt:5: the tag 'PER' is outside"):
    tagging.find_scheme(source)


@pytest.mark.parametrize("tag", ["PER-B", "B_PER", "person-artist"])
def test_tags_beside_o_that_mark_no_entities_are_named(tmp_path, capsys, tag):
  path = write(tmp_path, f"saw O\nAl {tag}\n").path
  assert tagging.inspect_file(path, 0, -1, "auto").scheme == "none"
  said = capsys.readouterr().err
  assert said.startswith(f"note: {path}:2: there is a tag O, but '{tag}' marks")
  assert said.count("\n") == 1
  tagging.inspect_file(path, 0, -1, "none")
  assert not capsys.readouterr().err


@pytest.mark.parametrize(
  ("line", "count", "tags"),
  [("w{0} T{0}\n", 21, 21), ("Al saw {0}\tX V X{0}\n", 2, 2)],
)
def test_tags_that_occur_once_are_not_learned(tmp_path, line, count, tags):
  text = "".join(line.format(number) for number in range(count))
  sentences = read(tmp_path, text, scheme="none")
  message = f"{tags} of its {tags} tags occur only once"
  with pytest.raises(ValueError, match=f"data.txt: {message}"):
    tagging.find_labels(sentences, "none")


@pytest.mark.parametrize(
  ("text", "words", "comments"),
  [
    ("# id news-1\nAl B-PER\n#win O\n# O\n", "Al #win #", 1),
    ("# id = 1\n# one\nAl\tO\n#\tO\n", "Al #", 2),
    ("#win O\n# O\n", "#win #", 0),
  ],
)
def test_comments_are_skipped_and_said_where_words_begin_with_a_hash(
  tmp_path, capsys, text, words, comments
):
  path = write(tmp_path, text).path
  source = tagging.inspect_file(path, 0, -1, "iob2")
  [sentence] = tagging.read_sentences(source)
  assert " ".join(sentence.words) == words
  assert capsys.readouterr().err == ""  # A program opens it twice.
  tagging.note_comments(source)
  said = capsys.readouterr().err
  assert bool(said) == bool(comments)
  if comments:
    assert "data.txt:1: a line that begins with # and has other" in said
    assert f"on {comments - 1} other lines" in said
    tags = ["O"] * len(sentence.words)
    lines = list(tagging.append_column(source, tags))
    assert lines[0] == text.split("\n")[0]


def test_a_comment_with_the_columns_of_the_rows_is_named(tmp_path):
  source = write(tmp_path, "# id\nAl B-PER\n")
  message = r"data.txt:1 \(a comment\?\): the tag 'id' is outside of "
  with pytest.raises(ValueError, match=f"{message}every scheme"):
    tagging.find_scheme(source)
  with pytest.raises(ValueError, match=f"{message}the scheme iob2"):
    list(tagging.read_sentences(source))


def test_labels_are_all_prefixes_of_the_types_of_which_there_is_one(tmp_path):
  sentences = read(tmp_path, "a I-B\nb O\n\nc B-A\n", scheme="iob1")
  labels = tagging.find_labels(sentences, "iob2")
  assert labels == ["O", "B-A", "I-A", "B-B", "I-B"]
  assert tagging_schemes.scheme_of_labels(labels) == "iob2"
  labels = tagging.find_labels(sentences, "bmes")
  assert labels[:5] == ["O", "B-A", "M-A", "E-A", "S-A"]
  assert tagging_schemes.scheme_of_labels(labels) == "bmes"
  assert tagging.find_labels(sentences, "none") == ["B-A", "I-B", "O"]
  for scheme in ("iob2", "none"):
    with pytest.raises(ValueError, match="two labels or more, found only O"):
      tagging.find_labels(read(tmp_path, "a O\n"), scheme)


def test_a_column_is_added(tmp_path):
  source = write(tmp_path, "-DOCSTART- O\n\nAl\tI-X\r\nde O\n\n\nZ O\n")
  lines = list(tagging.append_column(source, ["B-X", "I-X", "O"]))
  assert lines[:4] == ["-DOCSTART- O O", "", "Al\tI-X\tB-X", "de O I-X"]
  assert lines[4:] == ["", "", "Z O O"]


def make_sentence(words, tags=None, document=0):
  tags = tags and tuple(tags.split())
  return tagging.Sentence(tuple(words.split()), tags, document, "x", 1)


LABELS = ["O", "B-X", "I-X"]


def make_features(tokenizer, *sentences, size=16, document_context=False):
  return list(
    tagging.make_features(sentences, tokenizer, LABELS, size, document_context)
  )


@pytest.mark.parametrize(
  ("words", "tags", "features"),
  [
    # CLS a ##d b SEP
    ("ad b", "I-X O", ([2, 4, 7, 5, 3], [0, 2, 0, 0, 0], [0, 1, 0, 1, 0])),
    # Every word has a token; its tag is not known.
    ("a \u200b zzz", None, ([2, 4, 1, 1, 3], [0, 3, 3, 3, 0], [0, 1, 1, 1, 0])),
    # A tag unseen in training has the number after the last.
    ("a b", "B-Y B-X", ([2, 4, 5, 3], [0, 3, 1, 0], [0, 1, 1, 0])),
  ],
)
def test_first_tokens_have_the_labels(tokenizer, words, tags, features):
  [feature] = make_features(tokenizer, make_sentence(words, tags))
  assert feature[:3] == features


def test_a_word_longer_than_the_window_is_cut(tokenizer):
  sentence = make_sentence("addddddddd b", "B-X O")
  features = make_features(tokenizer, sentence, size=5)
  assert [f.input_ids for f in features] == [[2, 4, 7, 7, 3], [2, 5, 3]]


def test_no_word_is_lost_whatever_the_window(tokenizer):
  sentences = [make_sentence("a cd e " * n) for n in (1, 5, 2)]
  for size in (3, 4, 5, 7, 10, 64):
    for context in (False, True):
      counts = [0, 0, 0]
      for feature in make_features(
        tokenizer, *sentences, size=size, document_context=context
      ):
        assert len(feature.input_ids) <= size
        counts[feature.sentence] += sum(feature.label_mask)
      assert counts == [3, 15, 6]


def test_document_context_is_of_the_same_document_and_has_no_labels(tokenizer):
  sentences = [
    make_sentence("e e", "O O"),
    make_sentence("a b", "B-X O"),
    make_sentence("c", "B-X"),
    make_sentence("e", "O", document=1),
  ]
  features = make_features(tokenizer, *sentences, document_context=True)
  assert features[1].input_ids == [2, 8, 8, 4, 5, 6, 3]
  assert features[1].label_mask == [0, 0, 0, 1, 1, 0, 0]
  assert features[1].label_ids == [0, 0, 0, 1, 0, 0, 0]
  assert features[3].input_ids == [2, 8, 3]
  assert [f.sentence for f in features] == [0, 1, 2, 3]
