"""EM and F1 by hand, and thresholds whose best is counted on fingers."""

import pytest

from bert.tasks import squad_metrics
from bert.tasks.squad_metrics import score_answer


def test_normalize_answer():
  normalize = squad_metrics.normalize_answer
  assert normalize("The  U.S. Army, a force") == "us army force"
  assert normalize("An a the") == ""
  assert normalize("Theatre and\tanthem") == "theatre and anthem"
  assert normalize("$20-30%") == "2030"
  assert normalize("l’été") == "l’été"  # Only ASCII's punctuation counts.


BRONCOS = "Denver Broncos"


@pytest.mark.parametrize(
  ("answer", "truths", "version_2", "scores"),
  [
    ("the Denver Broncos", [BRONCOS], False, (1, 1)),
    # One common word of two given and one wanted: P 1/2, R 1.
    (BRONCOS, ["Broncos"], False, (0, 2 / 3)),
    # The best truth counts: P 1, R 1/2 beside P 1, R 1/3.
    ("Denver", ["Denver Broncos team", BRONCOS], False, (0, 2 / 3)),
    # A word that is given twice is found only as often as it is wanted.
    ("very very good", ["very good"], False, (0, 2 * (2 / 3) / (2 / 3 + 1))),
    ("", ["Denver"], False, (0, 0)),
    # v1.1 finds no common word in two empty answers.
    ("the", ["a"], False, (1, 0)),
    ("", [], True, (1, 1)),
    ("Denver", [], True, (0, 0)),
    ("", ["Denver"], True, (0, 0)),
    # An empty truth beside another one does not count.
    ("", ["the", "Denver"], True, (0, 0)),
    ("", ["the"], True, (1, 1)),
    (BRONCOS, ["Broncos"], True, (0, 2 / 3)),
    ("Denver", ["the Denver Broncos"], True, (0, 2 / 3)),
  ],
)
def test_answers_of_both_versions(answer, truths, version_2, scores):
  assert score_answer(answer, truths, version_2) == pytest.approx(scores)


def test_chinese_answers_are_compared_by_characters():
  # Three of the four characters given are the three wanted.
  scores = score_answer("在北京市。", ["北京市"], units="mixed")
  assert scores == pytest.approx((0, 2 * 0.75 / 1.75))
  assert score_answer("北京市。", ["北京市"], units="mixed") == (1, 1)
  # The letter A is no article there.
  scores = score_answer("维生素", ["维生素A"], False, units="mixed")
  assert scores == pytest.approx((0, 6 / 7))


@pytest.mark.parametrize(
  ("answer", "truth", "scores"),
  [
    # A particle: three of four characters. No word is the same.
    ("서울은", "서울", (0, 2 * (2 / 3) / (2 / 3 + 1))),
    # Spaces count for a match, and not for F1.
    ("서울 시", "서울시", (0, 1)),
    ("1989년  2월", "1989년 2월", (1, 1)),
    # Words of ASCII are characters, too: three of five are in both, and "The"
    # is no article.
    ("The 서울", "The", (0, 2 * 0.6 / 1.6)),
    ("KBS", "kbs2", (0, 2 * 0.75 / 1.75)),
    # Brackets become spaces, other punctuation of ASCII vanishes.
    ("《서울》", "서울", (1, 1)),
    ("서울(시)", "서울 시", (1, 1)),
    ("서울-시", "서울시", (1, 1)),
    # KorQuAD does not know these brackets: two of the four are wanted.
    ("「서울」", "서울", (0, 2 * 0.5 / 1.5)),
    ("()", "서울", (0, 0)),
  ],
)
def test_korean_answers_have_the_scores_of_korquad(answer, truth, scores):
  found = score_answer(answer, [truth], units="characters")
  assert found == pytest.approx(scores)


def test_particles_cost_a_korean_answer_everything_among_words():
  answer, truth = "서울은", ["서울", "서울시"]
  assert score_answer(answer, truth, units="words") == (0, 0)
  assert score_answer(answer, truth, units="characters").f1 == 0.8
  # A question without an answer, as in version 2.
  assert score_answer("", [], True, "characters") == (1, 1)
  assert score_answer("서울", [], True, "characters") == (0, 0)


@pytest.mark.parametrize(
  ("answer", "truth", "f1"),
  [
    # Five characters of Thai, with the vowel above; three of them are wanted.
    ("ที่นา", "ที่", 2 * 0.6 / 1.6),
    # Kana and a word of ASCII, which is one unit: 3 of 4.
    ("「パリ」で NHK", "パリ NHK", 2 * 0.75 / 1.75),
  ],
)
def test_other_characters_are_units(answer, truth, f1):
  assert score_answer(answer, [truth], units="mixed").f1 == pytest.approx(f1)
  assert score_answer(answer, [truth], units="words").f1 < f1


@pytest.mark.parametrize(
  ("context", "units"),
  [
    ("Seoul is a city.", "words"),
    ("", "words"),
    ("12 ½ %", "words"),
    # Names in another script do not decide.
    ("Seoul (서울특별시) is the capital of Korea.", "words"),
    ("Bangkok, กรุงเทพ in Thai, is the capital of Thailand.", "words"),
    ("L'été à Paris.", "words"),
    ("서울은 수도이다.", "characters"),
    # Most words hold Korean letters, though most letters are Latin.
    ("서울의 Broadcasting 회사가 KBS이다.", "characters"),
    ("北京是中国的首都。", "mixed"),
    # A Chinese text without a space is one word, with Korean letters.
    ("首尔（서울）是韩国的首都。", "mixed"),
    ("パリはフランスのみやこです。", "mixed"),
    ("東京は日本の首都である。", "mixed"),
    ("กรุงเทพเป็นเมืองหลวงของไทย", "mixed"),
    ("ວຽງຈັນເປັນນະຄອນຫຼວງ", "mixed"),
    ("រាជធានីភ្នំពេញ", "mixed"),
    ("ရန်ကုန်မြို့", "mixed"),
  ],
)
def test_a_text_decides_the_units(context, units):
  assert squad_metrics.choose_units(context) == units
  assert squad_metrics.choose_units(context, "words") == "words"
  assert squad_metrics.choose_units(context, "characters") == "characters"


def make_scored(answered, odds=None, has_answer=True):
  """Returns a `ScoredAnswer`: silence is right where there is no answer."""
  answered = squad_metrics.AnswerScores(*answered)
  silent = squad_metrics.AnswerScores(*[float(not has_answer)] * 2)
  return squad_metrics.ScoredAnswer("", answered, silent, odds, has_answer)


def test_scores_of_version_1_are_means_in_percent():
  answers = [make_scored((1, 1)), make_scored((0, 0.5))]
  assert squad_metrics.score(answers, 0.0) == {"exact_match": 50.0, "f1": 75.0}


def test_metrics_have_the_digits_of_the_official_programs():
  scores = [(i < 3, 0.1) for i in range(10570)]
  total = 0.0
  for _, f1 in scores:
    total += f1
  assert squad_metrics.score([make_scored(s) for s in scores], 0.0) == {
    "exact_match": 0.02838221381267739,
    "f1": 100.0 * total / 10570,
  }
  answers = [
    make_scored((False, 0.1), 1.0),
    make_scored((False, 0.1), 2.0),
    make_scored((0, 0), 3.0, has_answer=False),
  ]
  metrics = squad_metrics.score(answers, 0.0)
  assert metrics["best_f1"] == 100.0 * ((1.0 + 0.1) + 0.1) / 3


def test_scores_of_version_2():
  answers = [
    make_scored((1, 1), -3.0),
    make_scored((0, 0), 1.0, has_answer=False),  # No answer is given to this
    make_scored((0, 0.5), 2.0),  # and this one.
    make_scored((0, 0), -1.0, has_answer=False),
  ]
  assert squad_metrics.score(answers, 0.5) == {
    "exact_match": 50.0,
    "f1": 50.0,
    "has_answer_exact_match": 50.0,
    "has_answer_f1": 50.0,
    "no_answer_exact_match": 50.0,
    "no_answer_f1": 50.0,
    # Answering only the first: it and the two without an answer are right.
    "best_exact_match": 75.0,
    "best_exact_match_threshold": -3.0,
    "best_f1": 75.0,
    "best_f1_threshold": -3.0,
  }


@pytest.mark.parametrize(
  ("scores", "odds", "has_answer", "expected"),
  [
    # Beyond 2 there is nothing to win.
    ([1, 0.5, 0], [1, 2, 3], [True, True, False], (2.5 / 3, 2)),
    # Nothing should be answered: a threshold below all.
    ([0, 0], [1, 2], [False, True], (0.5, 0)),
    # Equal odds are answered together: 1 won and 1 lost is nothing.
    ([1, 0], [5, 5], [True, False], (0.5, 4)),
    ([1, 0, 1], [5, 5, 6], [True, False, True], (2 / 3, 6)),
    ([1], [-2], [True], (1, -2)),
  ],
)
def test_best_threshold(scores, odds, has_answer, expected):
  best, threshold = squad_metrics.best_threshold(scores, odds, has_answer)
  assert (best / 100, threshold) == pytest.approx(expected)
