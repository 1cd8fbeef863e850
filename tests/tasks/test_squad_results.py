"""Files of predictions, their scores and the threshold."""

import json

import pytest

from bert.tasks import squad, squad_answers, squad_metrics, squad_results
import report_tables

CONTEXT = "Steve  Smith's WINS, the"
RIGHT = squad_metrics.AnswerScores(1.0, 1.0)
WRONG = squad_metrics.AnswerScores(0.0, 0.0)
STEVE = squad_answers.Span("Steve", 0, 5, 5.0, 5.0, 0.75)
STEVE_SMITH = squad_answers.Span("Steve Smith", 0, 12, 5.0, 3.0, 0.5)
SMITH = squad_answers.Span("Smith", 7, 12, 4.0, 3.0, 0.25)
NONE = squad_answers.Span("", None, None, 1.0, 1.0, 0.125)


def predict(*spans, odds=None):
  return squad_answers.Prediction(spans, odds)


def ask(*answers, number=0, text="Who \u4e2d?"):
  answers = tuple(squad.Answer(answer, None) for answer in answers)
  return squad.Question(f"q{number}", text, CONTEXT, answers, "")


def score(prediction, *answers):
  return squad_results.score_prediction(ask(*answers), prediction)


def write(tmp_path, predictions, scored=()):
  """Writes predictions; returns the content of the files by their names."""
  scored = scored or [None] * len(predictions)
  pairs = enumerate(zip(predictions, scored, strict=True))
  squad_results.write_predictions(
    str(tmp_path),
    [
      squad_results.QuestionResult(ask(number=number), prediction, answer)
      for number, (prediction, answer) in pairs
    ],
    0.0,
    any(p and p.odds is not None for p in predictions),
  )
  return {path.name: path.read_text() for path in tmp_path.iterdir()}


def test_files_are_those_of_the_original(tmp_path):
  written = write(
    tmp_path, [predict(STEVE, NONE, odds=-10.0), predict(NONE, STEVE, odds=2.0)]
  )
  nbest = json.loads(written["nbest_predictions.json"])
  for name, content in {
    "predictions": {"q0": "Steve", "q1": ""},
    "null_odds": {"q0": -10.0, "q1": 2.0},
    "nbest_predictions": nbest,
  }.items():
    assert written[f"{name}.json"] == json.dumps(content, indent=4) + "\n"
  assert [span["text"] for span in nbest["q1"]] == ["", "Steve"]
  logits = {"start_logit": 5.0, "end_logit": 5.0}
  assert nbest["q0"][0] == {"text": "Steve", "probability": 0.75, **logits}
  assert "predict_metrics.json" not in written  # No answers are known.


def test_readable_predictions_have_places_and_runners_up(tmp_path):
  predictions = [
    predict(STEVE_SMITH, SMITH, NONE, odds=-4.0),
    predict(NONE, STEVE, odds=2.0),
  ]
  lines = write(tmp_path, predictions)["predictions.jsonl"].splitlines()
  first, second = map(json.loads, lines)
  place = {"probability": 0.25, "score": 7.0, "start": 7, "end": 12}
  assert first == {
    "id": "q0",
    "question": "Who \u4e2d?",
    "answer": "Steve Smith",
    "probability": 0.5,
    "score": 8.0,
    "start": 0,
    "end": 12,
    "no_answer_odds": -4.0,
    "runners_up": [{"answer": "Smith", **place}],
  }
  assert second["answer"] == "" and second["start"] is None
  assert second["probability"] == 0.125
  assert second["runners_up"][0]["answer"] == "Steve"


def test_no_question_makes_an_empty_object_and_an_error_no_file(tmp_path):
  with pytest.raises(AttributeError):
    write(tmp_path, [None])
  assert not list(tmp_path.iterdir())
  assert write(tmp_path, [])["predictions.json"] == "{}\n"


def test_scores_are_of_what_is_written(tmp_path, capsys):
  predictions = {
    predict(STEVE, NONE, odds=-10.0): ["Steve"],  # Right.
    predict(NONE, STEVE, odds=2.0): [],  # Right: there is no answer.
    predict(NONE, STEVE, odds=3.0): ["Steve"],  # Wrong.
    predict(SMITH, NONE, odds=-5.0): ["Steve Smith"],  # One of two words.
  }
  scored = [score(found, *truth) for found, truth in predictions.items()]
  written = write(tmp_path, list(predictions), scored)
  metrics = json.loads(written["predict_metrics.json"])["metrics"]
  assert metrics["exact_match"] == 50.0
  assert metrics["f1"] == pytest.approx(100 * (1 + 1 + 0 + 2 / 3) / 4)
  assert metrics["no_answer_exact_match"] == 100.0
  # The third question could be answered without answering the second only if
  # its odds were lower: 2.0 < 3.0. To answer all gains 1 and loses 1.
  assert metrics["best_f1_threshold"] == -5.0
  assert not any(name.startswith("eval_") for name in metrics)
  output = capsys.readouterr().out
  assert "predict_metrics.json: exact_match 50.0000  f1 66" in output


def test_scores_say_what_they_count(tmp_path, capsys):
  korean = ask("\uc11c\uc6b8")._replace(
    context="\uc11c\uc6b8\uc740 \uc218\ub3c4\uc774\ub2e4."
  )
  seoul = squad_answers.Span("\uc11c\uc6b8\uc740", 0, 3, 5.0, 5.0, 0.75)
  results = [
    squad_results.QuestionResult(
      question, found, squad_results.score_prediction(question, found)
    )
    for question, found in (
      (korean, predict(seoul)),
      (ask("Smith", number=1), predict(STEVE)),
      (korean._replace(question_id="q2"), predict(seoul)),
    )
  ]
  scores = squad_results.write_predictions(str(tmp_path), results, 0.0, False)
  # Three characters for two that are wanted, twice; and a wrong word.
  assert scores.totals == {
    "exact_match": 0.0,
    "f1": pytest.approx(100 * (0.8 + 0 + 0.8) / 3),
  }
  stated = (
    "answers compared: 2 by characters, as KorQuAD does; 1 by words, as SQuAD "
    "does"
  )
  assert stated in capsys.readouterr().out.splitlines()
  assert f"<p>{stated}</p>" in squad_results.describe(scores)
  written = json.loads((tmp_path / "predict_metrics.json").read_text())
  assert written["answer_units"] == {"characters": 2, "words": 1}
  # The flag decides for all texts.
  found = squad_results.score_prediction(korean, predict(seoul), "words")
  assert (found.units, found.answered) == ("words", WRONG)


def test_no_answer_of_version_1_is_scored_as_an_empty_one():
  empty = squad_answers.Span("empty", None, None, 0.0, 0.0)
  assert score(predict(empty), "Steve").scores(0.0) == WRONG


def make_scored(text, scores, odds=None):
  return squad_metrics.ScoredAnswer(text, scores, WRONG, odds, True)


@pytest.mark.parametrize(
  ("answers", "warning"),
  [
    ([("a", WRONG), ("a", RIGHT)], "every question gets the answer 'a'; it"),
    ([("", WRONG), ("", WRONG)], "every question gets no answer; it"),
    ([("a", RIGHT, 1.0), ("b", RIGHT, 2.0)], "every question gets no answer;"),
    ([("a", WRONG), ("b", WRONG)], None),
    ([("a", RIGHT), ("a", RIGHT)], None),  # It is the answer to both.
    ([("a", WRONG)], None),  # One question says nothing.
  ],
)
def test_a_collapsed_model_is_reported(answers, warning, capsys):
  answers = [make_scored(*values) for values in answers]
  squad_results.warn_if_collapsed(answers, 0.0)
  errors = capsys.readouterr().err
  assert warning in errors if warning else not errors


def test_a_threshold_is_tuned_and_read_again(tmp_path, capsys):
  def choose(flag, tuned, prefers_tuned):
    return squad_results.choose_threshold(flag, prefers_tuned, tuned)

  folder = str(tmp_path)
  assert squad_results.read_threshold([folder], str) is None
  answered = []
  for odds, *truths in ((1.5, "Steve"), (2.5,)):
    prediction = predict(STEVE, odds=odds)
    scored = score(prediction, *truths)
    result = squad_results.QuestionResult(ask(), prediction, scored)
    answered.append(result)
  assert squad_results.tune_threshold(answered) == 1.5
  squad_results.write_threshold(folder, 1.5, "this")
  tuned = squad_results.read_threshold([folder], lambda: "this")
  assert tuned.values == [1.5]
  assert choose("auto", tuned, prefers_tuned=True) == 1.5
  assert not capsys.readouterr().err
  # Another one is the user's choice, but exports have this one.
  assert choose("0.5", tuned, prefers_tuned=False) == 0.5
  note = "threshold=0.5; exports of its folder have the tuned one"
  assert note in capsys.readouterr().err
  assert squad_results.read_threshold([folder], lambda: "other") is None
  assert "tuned for other weights" in capsys.readouterr().err
  assert choose("0.5", None, prefers_tuned=True) == 0.5
  with pytest.raises(ValueError, match="=auto: no threshold was tuned for "):
    choose("auto", None, prefers_tuned=True)


def test_a_threshold_is_a_number_or_auto():
  values = ("0.0", "-1.5", " Auto")
  assert list(map(squad_results.parse_threshold, values)) == [0.0, -1.5, None]
  for value in ("high", "nan"):
    message = f"={value}: expected a number, or auto"
    with pytest.raises(ValueError, match=message):
      squad_results.parse_threshold(value)


def test_a_spool_computes_its_items_once(tmp_path):
  items = [predict(STEVE, odds=float(number)) for number in range(3)]
  spool = squad_results.Spool(iter(items), str(tmp_path))
  assert list(spool) == list(spool) == items


# The section of report.html.


def test_word_that_asks():
  word_of = squad_results.question_word
  assert word_of("Whose is the whole?") == "whose"
  assert word_of("The whole of it") == "other"
  assert word_of("In which of them, and why?") == "which"
  assert word_of("HOW MUCH is it?") == "how much"
  assert word_of("However, how?") == "how"
  assert word_of("\u4ed6\u662f\u8c01\uff1f") == "\u8c01"


def test_length_of_the_shortest_answer():
  def length(*answers):
    return squad_results.answer_length(ask(*answers))

  assert length() == "no answer"
  assert length("one") == "1"
  assert length("one two three", "one two") == "2"
  assert length("a b c d e") == "3 to 5"
  assert length("a b c d e f") == "6 to 10"
  assert length("a b c d e f g h i j k") == "more than 10"
  assert length("\u5317\u4eac\u5e02\u3002") == "3 to 5"
  assert length("\uc11c\uc6b8") == "2"


def test_scores_by_kind(tmp_path):
  """They are collected while answers are written: no file is read for them."""
  results = [
    squad_results.QuestionResult(
      ask(*truths, text=text), predict(STEVE), score(predict(STEVE), *truths)
    )
    for text, *truths in (
      ("Who is it?", "Steve"),
      ("Who was it?", "Steve Smith the First"),
      ("When?", "x"),
    )
  ]
  scores = squad_results.write_predictions(str(tmp_path), results, 0.0, False)
  text = squad_results.describe(scores)
  assert report_tables.rows_of(text, "By question word") == [
    ["who", "2", "50.0000", "75.0000"],
    ["when", "1", "0.0000", "0.0000"],
  ]
  title = "By length of the shortest true answer"
  assert report_tables.rows_of(text, title) == [
    ["1", "2", "50.0000", "50.0000"],
    ["3 to 5", "1", "0.0000", "50.0000"],
  ]
  assert '<td dir="auto">50</td>' in text
