"""The scores of questions by their kind."""

import pytest

import report_tables
from tasks import squad
from tasks import squad_metrics
from tasks import squad_report


@pytest.mark.parametrize(
  ("text", "word"),
  [
    ("Whose is the whole?", "whose"),
    ("The whole of it", "other"),
    ("In which of them, and why?", "which"),
    ("HOW MUCH is it?", "how much"),
    ("However, how?", "how"),
    ("\u4ed6\u662f\u8c01\uff1f", "\u8c01"),
  ],
)
def test_word_that_asks(text, word):
  assert squad_report.question_word(text) == word


@pytest.mark.parametrize(
  ("answers", "length"),
  [
    ((), "no answer"),
    (("one",), "1"),
    (("one two three", "one two"), "2"),
    (("a b c d e",), "3 to 5"),
    (("a b c d e f",), "6 to 10"),
    (("a b c d e f g h i j k",), "more than 10"),
    (("\u5317\u4eac\u5e02\u3002",), "3 to 5"),
  ],
)
def test_length_of_the_shortest_answer(answers, length):
  answers = tuple(squad.Answer(text, None) for text in answers)
  question = squad.Question("q", "Who?", answers, "")
  assert squad_report.answer_length(question) == length


def test_scores_by_kind():
  kinds = squad_report.Breakdown()
  for text, answer, *scores in (
    ("Who is it?", "x", 1.0, 1.0),
    ("Who was it?", "x y", 0.0, 0.5),
    ("When?", "x", 0.0, 0.0),
  ):
    question = squad.Question("q", text, (squad.Answer(answer, None),), "")
    kinds.add(question, squad_metrics.AnswerScores(*scores))
  text = kinds.describe({"f1": 50.0})
  assert report_tables.rows_of(text, "By question word") == [
    ["who", "2", "50.0000", "75.0000"],
    ["when", "1", "0.0000", "0.0000"],
  ]
  title = "By length of the shortest true answer"
  assert report_tables.rows_of(text, title) == [
    ["1", "2", "50.0000", "50.0000"],
    ["2", "1", "0.0000", "50.0000"],
  ]
  assert '<td dir="auto">50</td>' in text
