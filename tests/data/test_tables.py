"""Tests of bert/data/tables.py."""

import gzip
import lzma

import pytest

from bert.data import tables


def rows(path, **options):
  return [tuple(row) for row in tables.read_rows(path, **options)]


def columns(path, *wanted, **options):
  return [tuple(row) for row in tables.read_columns(path, wanted, **options)]


def test_tsv_has_no_quotes_and_any_line_ends(write):
  path = write("t.tsv", '\ufeffa\t"b\r\n\n \t\r\n"c\t d \n\u2028x\ty\rz')
  assert rows(path) == [
    ("t.tsv:1", ["a", '"b']),
    ("t.tsv:4", ['"c', " d "]),
    ("t.tsv:5", ["\u2028x", "yz"]),
  ]


def test_csv_has_quotes_with_anything_within(write):
  text = 'a,"b, ""c"""\r\n"two\nlines\n",d\n,\n\ne,f"g"\n g," ""h"""\n'
  path = write("t.csv", text)
  assert rows(path) == [
    ("t.csv:1", ["a", 'b, "c"']),
    ("t.csv:2", ["two\nlines\n", "d"]),
    ("t.csv:7", ["e", 'f"g"']),
    ("t.csv:8", [" g", ' "h"']),
  ]


def test_json_lines_keep_the_spelling_of_numbers(write):
  path = write(
    "t.jsonl", '\ufeff{"a": "x\\ud83d\\ude00"}\r\n\n{"b": [1.50, 2, NaN]}'
  )
  assert rows(path) == [
    ("t.jsonl:1", {"a": "x\U0001f600"}),
    ("t.jsonl:3", {"b": ["1.50", "2", None]}),
  ]
  (_, cells), _ = rows(write("t.jsonl", '{"a": 1, "b": "1"}\n{}'))
  assert list(map(type, cells.values())) == [tables.Number, str]


def test_compressed_files_and_long_cells(write):
  text = "word " * 100_000
  for ending, content in (
    ("csv.gz", gzip.compress(f'"{text}",b\n'.encode())),
    ("TSV.xz", lzma.compress(f"{text}\tb\n".encode())),
  ):
    path = write(f"t.{ending}", content)
    assert rows(path) == [(f"t.{ending}:1", [text, "b"])]


def test_rows_are_read_as_they_are_asked_for(write):
  source = tables.read_rows(write("t.tsv", b"a\tb\n\xff\n"))
  assert next(source).cells == ["a", "b"]
  with pytest.raises(ValueError, match="t.tsv:2: not UTF-8: b"):
    next(source)


@pytest.mark.parametrize(
  ("name", "content", "message"),
  [
    ("t.tsv", b"a\nb\0c\n", "t.tsv:2: a NUL byte; expected text in UTF-8"),
    ("t.tsv", "a\tb\n".encode("utf-16"), "t.tsv:1: not UTF-8: b"),
    ("t.tsv.gz", b"plain", "t.tsv.gz: damaged compressed file"),
    ("t.csv", 'a\n"b\nc\n', 't.csv:2: the quote (") that opens a cell is'),
    ("t.csv", 'a\n"b"c\n', "t.csv:2: text after a closing quote"),
    ("t.csv", 'x,y\nbad, "b"\n', "t.csv:2: a space before the quote"),
    ("t.csv", 'x,y\nbad, "a, b"\n', "t.csv:2: a space before the quote"),
    ("t.csv", "a\nb\rc\n", "t.csv:2: a carriage return in the middle"),
    ("t.jsonl", '{}\n{"a": }\n', "t.jsonl:2: Expecting value (column 7); expe"),
    ("t.jsonl", '[1,\r"b"]', "t.jsonl:1: expected a JSON object, found [1, "),
    ("t.jsonl", '{"a": ' + "[" * 100_000, "t.jsonl:1: JSON that is nested"),
    ("t.jsonl", '{"a": "x\\uD800"}', "t.jsonl:1: holds \\ud800, half of a sur"),
    ("t.jsonl", '{"\\udfff": 1}', "t.jsonl:1: holds \\udfff, half of a surro"),
    ("t.xml", "{}", "t.xml: expected a name that ends in .tsv, .txt, .csv"),
    (
      "t.json",
      '[\n{"a": 1}\n]',
      "t.json:1: Expecting value (column 2); expe",
    ),
    (
      "t.json",
      '[{"a": 1}]',
      't.json:1: expected a JSON object, found [{"a": 1}]; of an array, jq -c ',
    ),
    (
      "t.csv",
      "# made today\n# by me\na,b\n",
      "t.csv:1: a comment, '# made today'? The row in line 3 has 2 columns",
    ),
  ],
)
def test_faults_name_the_line(write, name, content, message):
  with pytest.raises(ValueError) as error:
    rows(write(name, content))
  assert str(error.value).startswith(message)
  assert "\n" not in str(error.value)


def test_a_quote_that_is_never_closed_does_not_fill_the_memory(write):
  path = write("t.csv", "a\n" + '"' + (1023 * "b" + "\n") * (1 << 14) + "b")
  source = tables.read_rows(path)
  assert next(source).cells == ["a"]
  with pytest.raises(ValueError, match="t.csv:2: a cell of more than 16777216"):
    next(source)


def test_columns_by_name_and_number(write):
  path = write("t.tsv", " id \ttext\tlabel\n1\tgood\tpos\n2\tbad\tneg\n")
  assert columns(path, "text", None, -1, 0) == [
    ("t.tsv:2", ["good", None, "pos", "1"]),
    ("t.tsv:3", ["bad", None, "neg", "2"]),
  ]


def test_numbers_alone_mean_that_there_is_no_header(write):
  path = write("t.csv", "a,b\nc,d\n")
  assert columns(path, 1) == [("t.csv:1", ["b"]), ("t.csv:2", ["d"])]
  assert columns(path, 1, header=True) == [("t.csv:2", ["d"])]


def test_columns_of_json_are_keys(write):
  path = write("t.jsonl", '{"a": "x", "b": null}\n{"a": ["y"], "c": true}\n')
  assert columns(path, "a", None, "c", optional=["c"]) == [
    ("t.jsonl:1", ["x", None, None]),
    ("t.jsonl:2", [["y"], None, True]),
  ]


def test_rows_with_cells_too_few_or_too_many(write):
  def cells(name, content, *wanted, **options):
    found = columns(write(name, content), *wanted, **options)
    return [cells for _, cells in found]

  for name in ("t.tsv", "t.csv", "t.jsonl"):
    assert cells(name, "\n \r\n", "text") == []
  # A column may be missing.
  found = cells("t.csv", "text\nx\n", "text", "b", optional=["b"])
  assert found == [["x", None]]
  found = cells("t.tsv", "a\tb\nc\td\te\n", 0, -1, allows_long_rows=True)
  assert found == [["a", "b"], ["c", "e"]]
  # Empty cells do not make a row long.
  assert cells("t.csv", "a,b\nc,d, ,\n", 0, -1) == [["a", "b"], ["c", "d"]]


def test_a_first_row_may_begin_with_a_hash(write):
  for text in ("#win\tpos\nlost\tneg\n", "#win\tpos\n#lost\tneg\n", "# a\nb\n"):
    found = rows(write("t.tsv", text))
    assert [cells for _, cells in found] == [
      line.split("\t") for line in text.splitlines()
    ]


@pytest.mark.parametrize(
  ("content", "quoted", "row"),
  [
    # A newline in quotes, as a spreadsheet writes it; the next lines are rows.
    ('x\ty\n"a\nb"\tz\n', "t.tsv:2", "t.tsv:2 has 1"),
    ('x\ty\n"a ""b"\tz\n"c\tz\n d\n', "t.tsv:3", "t.tsv:4 has 1"),
    ('x\ty\n"a\tb"\tz\n', "t.tsv:2", "t.tsv:2 has 3"),
  ],
)
def test_the_quote_that_tsv_does_not_know_is_named(write, content, quoted, row):
  with pytest.raises(ValueError) as error:
    columns(write("t.tsv", content), "x", "y")
  assert str(error.value) == (
    f'{quoted}: a cell opens a quote (") that is not closed in its line, and '
    f"the row of {row} columns; TSV has no quotes: save it as CSV"
  )


def test_json_lines_may_be_called_json(write):
  path = write("t.json", '{"a": "x"}\n{"a": "y"}\n')
  assert columns(path, "a") == [("t.json:1", ["x"]), ("t.json:2", ["y"])]


def test_short_rows_are_skipped_and_counted_where_asked_for(write, capsys):
  path = write("t.tsv", "a\tb\nc\nd\te\nf\n")
  found = columns(path, 1, skips_short_rows=True)
  assert found == [("t.tsv:1", ["b"]), ("t.tsv:3", ["e"])]
  said = capsys.readouterr().err
  assert said == "t.tsv: skipped 2 rows of too few columns\n"


SHORT = ":2: expected at least 2 columns, found 1"
LONG = ":2: expected 2 columns, found 3"


@pytest.mark.parametrize(
  ("name", "content", "wanted", "message"),
  [
    ("t.tsv", "a\tb\nc d\n", 1, f"{SHORT} (is a tab missing?)"),
    (
      "t.tsv",
      "a\tb\n# c\n",
      1,
      f"{SHORT} (is it a comment? Remove such lines)",
    ),
    ("t.csv", "a,b\nc\n", -1, f"{SHORT} (is a comma missing?)"),
    (
      "t.csv",
      "a,b\nc,d,e\n",
      0,
      f"{LONG} (is there a comma without quotes within a text?)",
    ),
    ("t.tsv", "a\tb\nc\td\te\n", 0, f"{LONG} (is there a tab within a text?)"),
    ("t.tsv", "a\tb\n", -3, ": no column -3 among 2 columns"),
    ("t.tsv", "a\tb\n", "x", ": no column 'x'; the columns are a, b"),
    ("t.tsv", "a\ta\n", "a", ": 2 columns are called 'a'; pass a number"),
    (
      "t.jsonl",
      '{"a": 1}',
      0,
      ": column 0 is given by number, but JSON Lines have only names, "
      "such as --text_column=text",
    ),
    ("t.jsonl", '{"a": 1}\n{"b": 2}', "a", ":2: no key 'a'; the keys are b"),
  ],
)
def test_missing_columns(write, name, content, wanted, message):
  with pytest.raises(ValueError) as error:
    columns(write(name, content), wanted)
  assert str(error.value) == name + message


def test_a_name_needs_a_header(write):
  with pytest.raises(ValueError, match="column 'a' is given by name, but the"):
    columns(write("t.tsv", "a\n"), "a", header=False)


def test_values_are_described(write):
  values = '["x", 1e5, null, true, [], {}]'
  ((_, cells),) = rows(write("t.jsonl", f'{{"a": {values}}}'))
  described = ", ".join(map(tables.describe, cells["a"]))
  assert described == "a string, the number 1e5, null, true, a list, an object"
