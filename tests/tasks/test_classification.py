"""Tests of bert/tasks/classification.py."""

import gzip

import pytest

from bert import tokenization
from bert.tasks import classification
from bert.tasks.classification import Example, Table

WORDS = "[PAD] [UNK] [CLS] [SEP] [MASK] a b c d e f g h".split()


@pytest.fixture
def tokenizer(tmp_path):
  path = tmp_path / "vocab.txt"
  path.write_text("\n".join(WORDS))
  return tokenization.FullTokenizer(str(path))


def read(*args, **options):
  return list(classification.read_examples(Table(*args, **options)))


def example(text_a="a", text_b=None, label="0", location="dev.tsv:17"):
  return Example("0", text_a, text_b, label, location, None)


def labelled(*labels):
  return [example(label=label) for label in labels]


def test_csv(write):
  path = write("t.csv", 'guid,label,text\n7,1,"two\nlines, ""x"""\n8,0,b\n')
  assert read(path, "text", None, "label", "guid") == [
    Example("7", 'two\nlines, "x"', None, "1", "t.csv:2", None),
    Example("8", "b", None, "0", "t.csv:4", None),
  ]


def test_json_lines(write):
  path = write(
    "t.jsonl.gz",
    gzip.compress(
      b'{"q": "a", "p": "b", "y": "pos", "n": 7}\n'
      b'{"q": "", "p": null, "y": 1.50, "n": "x"}\n'
      b'{"q": "c", "p": "", "y": ["u", 2, true], "n": true, "more": {}}\n'
    ),
  )
  assert read(path, "q", "p", "y", "n") == [
    Example("7", "a", "b", "pos", "t.jsonl.gz:1", None),
    Example("x", "", None, "1.50", "t.jsonl.gz:2", None),
    Example("true", "c", "", ("u", "2", "true"), "t.jsonl.gz:3", None),
  ]


def test_groups_are_filtered_and_labels_renamed(write):
  path = write("t.tsv", "zh\tno\ta\nen\tno\tb\nar\tyes\tc\nzh\tyes\td\n")
  table = Table(
    path,
    2,
    label=1,
    group=0,
    groups=("zh", "ar"),
    renamed_labels=(("no", "not"),),
  )
  assert list(classification.read_examples(table)) == [
    Example("0", "a", None, "not", "t.tsv:1", "zh"),
    Example("1", "c", None, "yes", "t.tsv:3", "ar"),
    Example("2", "d", None, "yes", "t.tsv:4", "zh"),
  ]
  with pytest.raises(ValueError) as error:
    list(classification.read_examples(table._replace(groups=("de", "fr"))))
  assert str(error.value) == (
    "t.tsv: holds no example of de, fr; it has ar, en, zh"
  )


def test_labels_need_not_be_there(write):
  def label(name, content):
    path = write(name, content)
    (found,) = read(path, "text", None, "label", label_required=False)
    return found.label

  assert label("t.csv", "text\na\n") is None
  assert label("t.csv", "text,label\na,\n") is None
  assert label("t.csv", "text,label\na,x\n") == "x"
  assert label("t.jsonl", '{"text": "a"}') is None
  assert label("t.jsonl", '{"text": "a", "label": null}') is None
  assert label("t.jsonl", '{"text": "a", "label": ["x"]}') == ("x",)
  assert label("t.jsonl", '{"text": "a", "label": []}') is None


def test_a_file_is_read_as_examples_are_asked_for(write):
  path = write("t.tsv", "a\tb\nc\n")
  examples = classification.read_examples(Table(path, 1))
  assert next(examples).text_a == "b"
  with pytest.raises(ValueError, match="t.tsv:2: expected at least 2 columns"):
    next(examples)


STRING = "must be a string, found"
STRING_OR_NUMBER = "must be a string or a number, found"


@pytest.mark.parametrize(
  ("content", "message"),
  [
    ("", ": holds no example"),
    ('{"text": 1, "label": 1}', f":1: 'text' {STRING} the number 1"),
    ('{"text": null, "label": 1}', f":1: 'text' {STRING} null"),
    (
      '{"text": "", "label": 1, "pair": 0}',
      f":1: 'pair' {STRING} the number 0",
    ),
    ('{"text": "", "label": {}}', f":1: 'label' {STRING_OR_NUMBER} an object"),
    ('{"text": "", "label": [[]]}', f":1: 'label' {STRING_OR_NUMBER} a list"),
    ('{"text": "a", "label": null}', ":1: no label; 1 of 1 rows have none"),
  ],
)
def test_faulty_files(write, content, message):
  with pytest.raises(ValueError) as error:
    pair = "pair" if "pair" in content else None
    read(write("t.jsonl", content), "text", pair, "label")
  assert str(error.value) == f"t.jsonl{message}"


def test_a_query_id_is_a_string_or_a_number(write):
  path = write("t.jsonl", '{"t": "a", "q": 7}\n{"t": "b", "q": ["x"]}')
  examples = classification.read_examples(Table(path, "t", group="q"))
  assert next(examples).group == "7"
  with pytest.raises(ValueError) as error:
    next(examples)
  assert str(error.value) == f"t.jsonl:2: 'q' {STRING_OR_NUMBER} a list"


ROWS = "text,label\na,x\nb,\nc,\nd,y\ne, \nf,\n"


def test_all_rows_without_a_label_are_counted(write):
  path = write("t.csv", ROWS)
  message = "t.csv:3, t.csv:4, t.csv:6, ...: no label; 4 of 6 rows have none"
  for skips, cure in ((None, ""), (False, "; --skip_unlabelled=true leaves")):
    with pytest.raises(ValueError) as error:
      read(path, "text", None, "label", skips_unlabelled=skips)
    assert str(error.value).startswith(message + cure)
    assert ("--skip" in str(error.value)) == bool(cure)


def test_rows_without_a_label_are_left_out_where_asked_for(write):
  path, facts = write("t.csv", ROWS), {"left_out": 0}
  table = Table(path, "text", label="label", skips_unlabelled=True)
  found = list(classification.read_examples(table, facts=facts))
  assert [(e.example_id, e.text_a, e.label) for e in found] == [
    ("0", "a", "x"),
    ("3", "d", "y"),
  ]
  assert facts == {"left_out": 4}
  table = table._replace(path=write("none.csv", "text,label\na,\n"))
  with pytest.raises(ValueError, match="1 of 1 rows have none"):
    list(classification.read_examples(table))


def test_an_empty_cell_may_say_that_no_label_applies(write):
  path = write("t.csv", ROWS)
  found = read(path, "text", None, "label", empty_is_label=True)
  assert [e.label for e in found] == ["x", "", "", "y", "", ""]


def test_labels_are_found_and_sorted():
  def find(problem, *labels, separator=","):
    return classification.find_labels(labelled(*labels), problem, separator)

  assert find("single_label", "pos", "neg", "Neg") == ["Neg", "neg", "pos"]
  assert find("single_label", "10", "9", "-1", "9") == ["-1", "9", "10"]
  assert find("single_label", "10", "9", "x") == ["10", "9", "x"]
  assert find("single_label", "1.5", "1") == ["1", "1.5"]
  assert find("multi_label", "b, a", "", "a,,c ") == ["a", "b", "c"]
  assert find("multi_label", ("b", "a,b"), ()) == ["a,b", "b"]
  assert find("single_label", *"aabbccddeefgh") == list("abcdefgh")
  found = find("multi_label", "a|b", "c, d", separator="|")
  assert found == ["a", "b", "c, d"]


FEW = "expected two labels or more, found only"
NONE = "expected a label or more, found only rows without one"
LISTS = "a list of labels; expected one (several need --problem=multi_label)"
ONCE = "{} of its {} labels occur only once (x0, x1, x10, ...)"
COLUMN = "is it the right column?"
CURE = "If so, pass all of them with --labels"


@pytest.mark.parametrize(
  ("labels", "problem", "message"),
  [
    (["x", "x"], "single_label", f"dev.tsv: {FEW} x; {COLUMN}"),
    (["", ","], "multi_label", f"dev.tsv: {NONE}; {COLUMN}"),
    (["a", ""], "single_label", "dev.tsv:17: no label"),
    (["a", None], "multi_label", "dev.tsv:17: no label"),
    (["a", ("b", "c")], "single_label", f"dev.tsv:17: {LISTS}"),
    (
      [f"x{n}" for n in range(21)],
      "single_label",
      f"dev.tsv: {ONCE.format(21, 21)}; {COLUMN} {CURE}",
    ),
    # A column of texts, some of which are there twice.
    (
      [f"x{n}" for n in [*range(30), *range(20, 30)]],
      "single_label",
      f"dev.tsv: {ONCE.format(20, 30)}; {COLUMN} {CURE}",
    ),
  ],
)
def test_labels_that_cannot_be_right(labels, problem, message):
  with pytest.raises(ValueError) as error:
    classification.find_labels(labelled(*labels), problem)
  assert str(error.value) == message


def test_labels_become_numbers():
  def encode(problem, label):
    encode = classification.make_label_encoder("abc", problem, ";")
    return repr(encode(example(label=label)))

  assert encode("single_label", "b") == "1"
  assert encode("single_label", None) == "0"
  assert encode("multi_label", "c;a; c") == "[1, 0, 1]"
  assert encode("multi_label", "") == "[0, 0, 0]"
  assert encode("multi_label", ("b",)) == "[0, 1, 0]"
  assert encode("multi_label", None) == "[0, 0, 0]"
  assert encode("regression", "-2.50") == "-2.5"
  assert encode("regression", None) == "0.0"


@pytest.mark.parametrize(
  ("problem", "label", "message"),
  [
    ("single_label", "x", "dev.tsv:17: unknown label 'x'; known: a, b, c"),
    ("single_label", "a,b", "dev.tsv:17: unknown label 'a,b'; known: a, b, c"),
    ("single_label", "", "dev.tsv:17: no label"),
    ("single_label", (), "dev.tsv:17: no label"),
    ("multi_label", "a,x", "dev.tsv:17: unknown label 'x'; known: a, b, c"),
    ("regression", "", "dev.tsv:17: expected a number, found nothing"),
    ("regression", "x", "dev.tsv:17: expected a number, found 'x'"),
    ("regression", "nan", "dev.tsv:17: expected a number, found 'nan'"),
    ("regression", "-inf", "dev.tsv:17: expected a number, found '-inf'"),
    ("regression", "1e39", "dev.tsv:17: expected a number, found '1e39'"),
    ("regression", "1_0", "dev.tsv:17: expected a number, found '1_0'"),
    ("regression", ("1",), "dev.tsv:17: expected a number, found ('1',)"),
  ],
)
def test_wrong_labels_name_their_place(problem, label, message):
  encode = classification.make_label_encoder("abc", problem)
  with pytest.raises(ValueError) as error:
    encode(example(label=label))
  assert str(error.value) == message


def features(tokenizer, examples, *args):
  """Returns (text, segment ids, index, was cut) of each feature."""
  encode_label = classification.make_label_encoder("01", "single_label")
  found = classification.make_features(examples, tokenizer, encode_label, *args)
  return [
    (
      " ".join(WORDS[i].strip("[]") for i in feature.input_ids),
      "".join(map(str, feature.segment_ids)),
      feature.example_index,
      feature.was_cut,
    )
    for feature in found
  ]


def test_texts_and_pairs(tokenizer):
  examples = [
    example("a B", "c"),
    example("a", ""),
    example("", " \t"),
    example("", "a"),
    example("a b c d e f"),
    example("a b c d e", "f g"),
    example("a b", "c d e f g"),
    example("a b c d", "e f g h"),
  ]
  assert features(tokenizer, examples, 7) == [
    ("CLS a b SEP c SEP", "000011", 0, False),
    ("CLS a SEP", "000", 1, False),
    ("CLS SEP", "00", 2, False),
    ("CLS SEP a SEP", "0011", 3, False),
    ("CLS a b c d e SEP", "0000000", 4, True),
    ("CLS a b SEP f g SEP", "0000111", 5, True),
    ("CLS a b SEP c d SEP", "0000111", 6, True),
    ("CLS a b SEP e f SEP", "0000111", 7, True),
  ]


@pytest.mark.parametrize(
  ("pair", "args", "texts", "was_cut"),
  [
    (("a b c d e f", None), (6, 2), ["a b c d", "c d e f"], False),
    (("a b c d e", None), (6, 4), ["a b c d", "e"], False),
    (("a b c d", None), (6, 2), ["a b c d"], False),
    (("a b", "c d e f g"), (8, 2), ["a b SEP c d e", "a b SEP e f g"], False),
    # A long first text leaves room for the stride.
    (("a b c d e", "f g h"), (8, 2), ["a b c SEP f g", "a b c SEP h"], True),
    (("a b c d e f", "g"), (8, 2), ["a b c d SEP g"], True),
  ],
)
def test_long_texts_become_windows(tokenizer, pair, args, texts, was_cut):
  found = features(tokenizer, [example(*pair)], *args)
  assert [text for text, *_ in found] == [f"CLS {text} SEP" for text in texts]
  assert [rest for _, _, *rest in found] == [[0, was_cut]] * len(texts)


@pytest.mark.parametrize("stride", [1, 2, 3, 5, 9])
@pytest.mark.parametrize("length_a", [1, 5, 12, 20])
@pytest.mark.parametrize("length_b", [0, 1, 4, 13])
def test_windows_leave_out_no_token_of_the_long_text(
  tokenizer, stride, length_a, length_b
):
  pair = [
    " ".join("abcdefgh"[i % 8] for i in range(n)) for n in (length_a, length_b)
  ]
  found = features(tokenizer, [example(*pair)], 13, stride)
  assert all(len(segments) <= 13 for _, segments, _, _ in found)
  before = "SEP " if length_b else "CLS "
  parts = [text[:-4].rpartition(before)[2].split() for text, *_ in found]
  rebuilt = parts[-1]
  for part in reversed(parts[:-1]):
    rebuilt = part[:stride] + rebuilt
  assert " ".join(rebuilt) == (pair[1] or pair[0])


@pytest.mark.parametrize(
  ("args", "message"),
  [
    ((4,), "--max_seq_length=4: expected at least 5 for a pair"),
    ((8, 0), "--doc_stride=0: expected 1 to 6"),
    ((8, 7), "--doc_stride=7: expected 1 to 6"),
    ((8, 5), "--doc_stride=5: expected at most 4 for pairs"),
  ],
)
def test_too_little_room(tokenizer, args, message):
  with pytest.raises(ValueError) as error:
    features(tokenizer, [example("a b c", "d e f")], *args)
  assert str(error.value).startswith(message)


def test_a_vocabulary_without_special_tokens_is_refused(tmp_path):
  (tmp_path / "vocab.txt").write_text("[UNK]\na\n")
  tokenizer = tokenization.FullTokenizer(str(tmp_path / "vocab.txt"))
  with pytest.raises(ValueError, match=r"'\[CLS\]' is not in the vocabulary"):
    features(tokenizer, [example()], 8)
