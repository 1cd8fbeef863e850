"""Words, windows and records of questions, by hand and against plain loops."""

import random

import pytest

from bert.data import record_writer
from bert.tasks import squad, squad_features
from bert.tasks.squad_features import SquadFeatureSettings

VOCABULARY = (
  "[PAD] [UNK] [CLS] [SEP] [MASK] the year was 1895 ( ) . what ? un ##do ##ing"
  " 北 京 是 。 a b c d e f g h"
).split()
SETTINGS = SquadFeatureSettings("", True, 16, 4, 4, False)


@pytest.fixture(scope="module")
def vocab_file(tmp_path_factory):
  path = tmp_path_factory.mktemp("vocabulary") / "vocab.txt"
  path.write_text("\n".join(VOCABULARY) + "\n", encoding="utf-8")
  return str(path)


@pytest.fixture
def make_maker(vocab_file):
  def make(is_training=False, **changes):
    values = {**vars(SETTINGS), "vocab_file": vocab_file, **changes}
    return squad_features.FeatureMaker(
      SquadFeatureSettings(**values), is_training
    )

  return make


def ask(context, question="what ?", answers=None, location="here"):
  return squad.Question("q", question, context, answers, location)


def read(maker, context):
  """Returns the document of a context."""
  [(document, _)] = maker.documents([ask(context)])
  return document


def tokens(maker, ids):
  return " ".join(maker.to_tokens(ids))


def test_words_are_between_the_spaces_of_the_original(make_maker):
  # A no-break space does not separate words, a narrow one does.
  context = " the\u00a0year\u202fwas\n(1895)."
  document = read(make_maker(), context)
  words = [context[start:end] for start, end in document.words]
  assert words == ["the\u00a0year", "was", "(1895)."]
  assert tokens(make_maker(), document.ids) == "the year was ( 1895 ) ."
  assert document.first_tokens == [0, 2, 3, 7]
  assert [document.word_of(i) for i in range(7)] == [0, 0, 1, 2, 2, 2, 2]
  # A character of whitespace belongs to the word before it; -1 if none is.
  assert [document.word_at(i) for i in (0, 1, 9, 10, 13, 14)] == [
    *(-1, 0, 0, 1, 1, 2)
  ]


def test_words_without_tokens_are_skipped(make_maker):
  document = read(make_maker(), "\u200b the \u200b year")
  assert document.first_tokens == [0, 0, 1, 1, 2]
  assert [document.word_of(i) for i in range(2)] == [1, 3]


def test_tokens_of_words_are_those_of_the_text(make_maker):
  # Some texts are without spaces, some characters are deleted, combine, or
  # depend on what is around them.
  maker, source = make_maker(), random.Random(1)
  characters = "ab1.北京。\u0391\u03a3\u0301\u200b\x0b\x1c\x85\u00a0\u202f \n"
  for _ in range(1000):
    context = "".join(source.choices(characters, k=source.randint(1, 12)))
    document = squad_features.Document(context, maker.encode)
    first_tokens, ids = [0], []
    for start, end in document.words:
      ids += maker.encode(context[start:end])
      first_tokens.append(len(ids))
    assert document.ids == ids
    assert document.first_tokens == first_tokens


def test_chinese_characters_are_words_only_of_a_chinese_text(make_maker):
  chinese = read(make_maker(), "北京是1895。")
  assert [end for _, end in chinese.words] == [1, 2, 3, 8]
  english = read(make_maker(), "the 北京 year was 1895")
  assert [end for _, end in english.words] == [3, 6, 11, 15, 20]


def test_find_answer(make_maker):
  maker = make_maker()

  def find(context, text, start):
    document = read(maker, context)
    span = squad_features.find_answer(document, squad.Answer(text, start))
    return span and tokens(maker, document.ids[span[0] : span[1] + 1])

  assert find("the year was (1895).", "1895", 14) == "1895"
  assert find("the year was (1895).", "year was", 4) == "year was"
  assert find("the year  was 1895", "year was", 4) == "year was"
  # Two words off, but still within the words that are there.
  assert find("the year was (1895).", "189", 14) == "( 1895 ) ."
  assert find("undoing the year", "doing", 2) == "un ##do ##ing"
  assert find("北京是1895。", "京", 1) == "京"
  assert find("the year was 1895", "the", 4) is None
  for start in (99, -4, None):
    assert find("the year was 1895", "1895", start) is None
  assert find("the year was 1895", "", 4) is None
  # To the original, whitespace before the first word belonged to the last.
  assert find(" the year", "the", 0) is None
  assert find(" the", "t", 0) is None
  assert find(" the", " the", 0) == "the"
  # The second of two is found by its start.
  document, answer = read(maker, "北京是北京。"), squad.Answer("京", 4)
  assert squad_features.find_answer(document, answer) == (4, 4)


@pytest.fixture
def make_rows(make_maker):
  """Returns the rows of a question, and of its windows features, parsed."""
  import tensorflow as tf

  def parse(row):
    features = tf.train.Example.FromString(row).features.feature
    return {k: list(v.int64_list.value) for k, v in features.items()}

  def make(question, is_training=True, **changes):
    [rows] = make_maker(is_training, **changes)([question])
    return rows, [parse(row) for row, _ in rows.rows]

  return make


def test_rows_of_windows(make_maker, make_rows):
  # [CLS], 2 tokens of the question and 2 [SEP] leave 5 for the text; the
  # windows begin 3 apart. Of several answers the first is trained on.
  answers = (squad.Answer("d", 6), squad.Answer("a", 0))
  question = ask("a b c d e f g h", "what ?", answers)
  sizes = {"max_seq_length": 10, "doc_stride": 3}
  rows, (first, second) = make_rows(question, **sizes)
  assert [length for _, length in rows.rows] == [10, 10]
  found = [tokens(make_maker(), w["input_ids"]) for w in (first, second)]
  assert found == [
    "[CLS] what ? [SEP] a b c d e [SEP]",
    "[CLS] what ? [SEP] d e f g h [SEP]",
  ]
  assert first["segment_ids"] == [0] * 4 + [1] * 6
  assert first["input_mask"] == [1] * 10
  assert [w["start_positions"] for w in (first, second)] == [[7], [4]]
  assert [w["end_positions"] for w in (first, second)] == [[7], [4]]
  assert first["is_impossible"] == [0]
  assert first["unique_ids"] == [1_000_000_000]
  _, (to_predict, _) = make_rows(question, is_training=False, **sizes)
  assert to_predict == {
    name: first[name]
    for name in ("input_ids", "input_mask", "segment_ids", "unique_ids")
  }


def test_an_answer_outside_of_a_window_is_at_its_beginning(make_rows):
  sizes = {"max_seq_length": 11, "doc_stride": 3}
  question = ask("a b c d e f g h", "what ?", (squad.Answer("a b", 0),))
  rows, (first, second) = make_rows(question, **sizes)
  assert first["end_positions"] == [5]
  assert second["start_positions"] == [0]
  assert second["input_mask"] == [1] * 10 + [0]
  assert second["segment_ids"] == [0] * 4 + [1] * 6 + [0]
  assert rows.outside == 1
  # Its last word is the first beyond the first window.
  question = question._replace(answers=(squad.Answer("f g", 10),))
  _, (first, _) = make_rows(question, **sizes)
  assert first["end_positions"] == [0]


def test_a_question_without_an_answer(make_rows):
  question = ask("a b", answers=())
  _, [features] = make_rows(question, version_2_with_negative=True)
  assert features["is_impossible"] == [1]
  assert features["start_positions"] == features["end_positions"] == [0]


def test_an_empty_list_of_answers_is_one_of_version_2(make_rows):
  for answers, labelled in ((None, False), ((), True)):
    question = ask("a b", answers=answers)
    rows, _ = make_rows(question, False, version_2_with_negative=True)
    assert rows.unlabelled_at == ("" if labelled else "here")
    assert make_rows(question, False)[0].unlabelled_at == "here"
    rows, _ = make_rows(question)
    assert (rows.rows, rows.unlabelled_at) == ([], "here")


def test_unique_ids_are_filled_in_later(make_maker):
  [rows] = make_maker()([ask("a b")])
  [(row, _)] = rows.rows
  filled = squad_features.set_unique_id(row, 12_345)
  assert filled == row.replace(
    record_writer.encode_integer(1_000_000_000),
    record_writer.encode_integer(1_000_012_345),
  )


def test_long_questions_are_truncated(make_maker, make_rows):
  rows, [features] = make_rows(ask("a b", "c d e f g"), is_training=False)
  assert rows.was_cut
  assert tokens(make_maker(), features["input_ids"][:6]) == (
    "[CLS] c d e f [SEP]"
  )
  rows, _ = make_rows(ask("a b", "c d e f"), is_training=False)
  assert not rows.was_cut


def test_answers_without_tokens_are_named(make_rows):
  question = ask("a \u200b b", answers=(squad.Answer("\u200b", 2),))
  message = "here: no token in the answer '\\u200b'"
  assert make_rows(question)[0].misplaced == message


@pytest.mark.parametrize(
  ("start", "message"),
  [
    (1, "here: at answer_start 1 is ' b ', not the answer 'b c'"),
    (None, "here: no answer_start for 'b c'"),
  ],
)
def test_misplaced_answers_are_left_out_of_training(make_rows, start, message):
  question = ask("a b c", answers=(squad.Answer("b c", start),))
  rows, _ = make_rows(question)
  assert (rows.rows, rows.misplaced) == ([], message)
  rows, _ = make_rows(question, is_training=False)
  assert len(rows.rows) == 1


def test_a_context_without_a_token_is_refused(make_maker):
  with pytest.raises(ValueError, match="here: the context is empty: no token"):
    make_maker(False)([ask("\u200b", answers=None)])


def test_a_question_that_leaves_no_room_is_an_error():
  with pytest.raises(ValueError, match="--max_seq_length=16: expected more"):
    SquadFeatureSettings("", True, 16, 4, 13, False)
  SquadFeatureSettings("", True, 16, 4, 12, False)
