"""Reading questions with choices, their features, scores and predictions."""

import json
import random
import time

import pytest

from bert import tokenization
from bert.data import packing
from bert.tasks import multiple_choice

SWAG = """,video-id,fold-ind,startphrase,sent1,sent2,gold-source,ending0,\
ending1,ending2,ending3,label
0,v1,5,"A b, c",A b.,He,gold,"runs, fast",sits,eats,flies,2
1,v2,6,x,C d.,,gold,one,two,three,,0
"""
VOCABULARY = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "a", "b", "c", "d", "e"]


def read(tmp_path, text, name="data.csv"):
  path = tmp_path / name
  path.write_text(text, encoding="utf-8")
  return list(multiple_choice.read_examples(str(path)))


@pytest.fixture
def tokenizer(tmp_path):
  path = tmp_path / "vocab.txt"
  path.write_text("\n".join(VOCABULARY) + "\n")
  return tokenization.FullTokenizer(str(path))


def test_swag_is_read(tmp_path):
  first, second = read(tmp_path, SWAG)
  assert first == multiple_choice.Example(
    "0",
    "A b.",
    "He",
    ("runs, fast", "sits", "eats", "flies"),
    2,
    f"{tmp_path}/data.csv:2",
  )
  assert second.question == "" and second.choices == ("one", "two", "three")


def test_json_lines_are_read(tmp_path):
  rows = [
    {"id": 7, "context": "A.", "choices": ["b", "c"], "label": 1},
    {"question": "Who?", "choices": ["b", "c", "d"]},
  ]
  text = "".join(json.dumps(row) + "\n" for row in rows)
  assert read(tmp_path, text, "data.json")
  first, second = read(tmp_path, text, "data.jsonl")
  assert first[:5] == ("7", "A.", "", ("b", "c"), 1)
  assert second[:5] == ("1", "", "Who?", ("b", "c", "d"), None)


WRONG_LABEL = "expected the number of the right choice, found"
# Changes of a row of JSON Lines, and the message.
WRONG_ROWS = (
  ({"label": -1}, "the label -1 is not one of the 2 choices: expected 0 to 1"),
  ({"label": True}, f"{WRONG_LABEL} true"),
  ({"label": 0.5}, f"{WRONG_LABEL} '0.5'"),
  ({"choices": ["b"]}, "expected two choices or more, found 1"),
  ({"choices": "b"}, "'choices' must be a list of strings, found a string"),
  ({"choices": ["b", 3]}, "'choices' must be a string, found the number 3"),
  ({"id": [1]}, "'id' must be a string or a number, found a list"),
  ({"context": " "}, "neither a context nor a question"),
)
WRONG_TABLES = (
  (
    "sent1,ending0,ending1,label\na,b,c,0\na,b,c,2\n",
    ":3: the label 2 is not one of the 2 choices: expected 0 to 1",
  ),
  ("sent1,ending0,ending1,label\na,b,c,B\n", f":2: {WRONG_LABEL} 'B'"),
  ("sent1,ending0,ending1,ending2\na,b,,c\n", ":2: choice 1 is empty"),
  (
    "sent1,sent2,label\na,b,0\n",
    ": no column 'ending0'; the columns are sent1, sent2, label",
  ),
  (
    "sent1,ending0,ending1,ending3\na,b,c,d\n",
    ": no column 'ending2'; the columns are sent1, ending0, ending1, ending3",
  ),
  ("sent1,ending0,ending1\n", ": holds no example"),
  ("", ": holds no example"),
)


@pytest.mark.parametrize(("changes", "message"), WRONG_ROWS)
def test_wrong_rows_are_located(tmp_path, changes, message):
  row = {"context": "a", "choices": ["b", "c"], **changes}
  with pytest.raises(ValueError) as error:
    read(tmp_path, f"\n{json.dumps(row)}\n", "data.jsonl")
  assert str(error.value) == f"{tmp_path}/data.jsonl:2: {message}"


@pytest.mark.parametrize(("text", "message"), WRONG_TABLES)
def test_wrong_tables_are_located(tmp_path, text, message):
  with pytest.raises(ValueError) as error:
    read(tmp_path, text)
  assert str(error.value) == f"{tmp_path}/data.csv{message}"


def make_example(context, question, *choices, label=None):
  return multiple_choice.Example("0", context, question, choices, label, "x:1")


def features(example, tokenizer, max_seq_length=16):
  (feature,) = multiple_choice.make_features(
    [example], tokenizer, max_seq_length
  )
  return feature


def test_each_choice_is_an_input_behind_the_question(tokenizer):
  example = make_example("a b", "c", "d", "e e", label=1)
  assert features(example, tokenizer) == (
    [[2, 4, 5, 3, 6, 7, 3], [2, 4, 5, 3, 6, 8, 8, 3]],
    [[0, 0, 0, 0, 1, 1, 1], [0] * 4 + [1] * 4],
    1,
    False,
    "x:1",
  )


@pytest.mark.parametrize(
  ("example", "length", "input_ids", "was_cut"),
  [
    (("", "a", "d", "e"), 16, [[2, 4, 3, 7, 3], [2, 4, 3, 8, 3]], False),
    (
      ("a b c d", "", "e", "d e"),
      6,
      [[2, 4, 5, 3, 8, 3], [2, 4, 5, 3, 7, 3]],
      True,
    ),
    # A choice without tokens has no second part.
    (("a", "", "\u200b", "b"), 16, [[2, 4, 3], [2, 4, 3, 5, 3]], False),
  ],
)
def test_inputs_without_a_context_or_of_many_tokens(
  tokenizer, example, length, input_ids, was_cut
):
  feature = features(make_example(*example), tokenizer, length)
  assert (feature.input_ids, feature.was_cut) == (input_ids, was_cut)


@pytest.mark.parametrize("length", [5, 6, 9, 12])
def test_long_texts_are_truncated_as_if_encoded_for_each_choice(
  tokenizer, length
):
  rng = random.Random(length)
  cls_id, sep_id = tokenizer.convert_tokens_to_ids(["[CLS]", "[SEP]"])
  for _ in range(200):
    context, question, *choices = (
      " ".join(rng.choices("abcde", k=rng.randrange(14))) for _ in range(4)
    )
    example = multiple_choice.Example(
      "0", context or "a", question, tuple(choices), None, ""
    )
    [feature] = multiple_choice.make_features([example], tokenizer, length)
    was_cut = False
    for choice, ids in zip(choices, feature.input_ids, strict=True):
      a = tokenizer.encode(example.context)
      b = tokenizer.encode(f"{question} {choice}")
      was_cut |= len(a) + len(b) > length - 3
      packing.truncate_pair(a, b, length - 3)
      packed = packing.pack(a, b, cls_id=cls_id, sep_id=sep_id)
      assert ids == packed.input_ids
    assert feature.was_cut == was_cut


def test_a_long_text_is_not_encoded_for_each_choice(tokenizer):
  long, choices = "a " * 200_000, ("b",) * 1000
  for texts in ((long, ""), ("a", long)):
    example = multiple_choice.Example("0", *texts, choices, None, "")
    start = time.monotonic()
    [feature] = multiple_choice.make_features([example], tokenizer, 16)
    assert time.monotonic() - start < 5  # Else about half a minute.
    assert feature.was_cut and len(feature.input_ids) == 1000
