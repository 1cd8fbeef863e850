"""Questions to a masked-LM head, and how its answers are written."""

import math

import numpy as np
import pytest

from bert import tokenization
from bert.inputs import text_inputs
from bert.tasks import masked_words

VOCABULARY = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "a", "b", "c", "d"]
CLS, SEP, MASK, A, B, C, D = 2, 3, 4, 5, 6, 7, 8


@pytest.fixture
def tokenizer(tmp_path):
  path = tmp_path / "vocab.txt"
  path.write_text("\n".join(VOCABULARY) + "\n")
  return tokenization.FullTokenizer(str(path), never_split=["[MASK]"])


class FakePredict:
  """Says that the token is as likely as 1 / (its id)."""

  def __init__(self):
    self.rows, self.positions, self.truth = [], [], []

  def __call__(self, rows):
    results = []
    for row in rows:
      [position], [truth] = row["masked_lm_positions"], row["masked_lm_ids"]
      self.rows.append(row["input_ids"])
      self.positions.append(position)
      self.truth.append(truth)
      ids, shares = np.array([truth, A]), np.array([0.5, 0.25])
      result = {"ids": ids, "probabilities": shares, "log_prob": -np.log(truth)}
      results.append(result)
    return results


def make_words(tokenizer, length=8, **options):
  predict = FakePredict()
  words = masked_words.MaskedWords(tokenizer, length, predict, **options)
  return words, predict


def test_a_perplexity_beyond_floats_is_limited():
  assert masked_words.perplexity(-3e5, 2) == math.exp(700)
  assert masked_words.perplexity(0.0, 0) is None


def test_a_guessed_id_without_a_token_is_empty(tmp_path):
  path = tmp_path / "vocab.txt"
  path.write_text("\n".join([*VOCABULARY, "a"]) + "\n")  # Twice: id 9 counts.
  words, _ = make_words(tokenization.FullTokenizer(str(path), True, ["[MASK]"]))
  cloze = words.find_masks(*make_lines("[MASK]"))
  assert next(words.fill([cloze])) == [[("[MASK]", 0.5), ("", 0.25)]]


def make_lines(*texts):
  return [
    text_inputs.InputLine(i, text, f"in.txt:{i + 1}")
    for i, text in enumerate(texts)
  ]


def test_a_long_text_is_truncated_around_the_mask(tokenizer):
  words, predictor = make_words(tokenizer, length=5)
  assert list(words.score([words.find_words(*make_lines("a b c d a a b"))]))
  assert predictor.rows == [
    [CLS, MASK, B, C, SEP],
    [CLS, A, MASK, C, SEP],
    [CLS, B, MASK, D, SEP],
    [CLS, C, MASK, A, SEP],
    [CLS, D, MASK, A, SEP],
    [CLS, A, MASK, B, SEP],
    [CLS, A, A, MASK, SEP],
  ]
  assert predictor.positions == [1, 2, 2, 2, 2, 2, 3]
  assert predictor.truth == [A, B, C, D, A, A, B]


def test_every_mask_is_asked_for(tokenizer):
  words, predictor = make_words(tokenizer)
  nothing = [words.find_masks(line) for line in make_lines("", " ")]
  assert list(words.fill(nothing)) == [[], []]
  assert predictor.rows == []
  lines = make_lines("a [MASK] b [MASK]", "", "[MASK]")
  questions = list(map(words.find_masks, lines))
  assert [question.positions for question in questions] == [[1, 3], [], [0]]
  guess = [masked_words.Guess("[MASK]", 0.5), masked_words.Guess("a", 0.25)]
  assert list(words.fill(questions)) == [[guess, guess], [], [guess]]
  # The other mask of a line is left where it is.
  assert predictor.rows == [
    [CLS, A, MASK, B, MASK, SEP],
    [CLS, A, MASK, B, MASK, SEP],
    [CLS, MASK, SEP],
  ]


def test_every_word_is_masked_in_turn(tokenizer):
  words, predictor = make_words(tokenizer)
  lines = make_lines("c", "a b", "\u200b")
  scores = list(words.score(list(map(words.find_words, lines))))
  assert [score.tokens for score in scores] == [["c"], ["a", "b"], []]
  assert scores[1].log_probs == pytest.approx([-math.log(A), -math.log(B)])
  totals = [score.pseudo_log_likelihood for score in scores]
  assert totals == pytest.approx([-math.log(C), -math.log(A * B), 0])
  assert scores[0].pseudo_perplexity == pytest.approx(C)
  assert scores[1].pseudo_perplexity == pytest.approx(math.sqrt(A * B))
  assert scores[2].pseudo_perplexity is None
  assert predictor.rows == [
    [CLS, MASK, SEP],
    [CLS, MASK, B, SEP],
    [CLS, A, MASK, SEP],
  ]


@pytest.mark.parametrize("options", [{}, {"max_rows": 3}])
def test_a_long_text_is_scored_in_parts(tokenizer, options):
  words, _ = make_words(tokenizer, **options)
  (line,) = make_lines("a b c d " * 5)
  (score,) = words.score([words.find_words(line)])
  expected = [-math.log(i) for i in [A, B, C, D] * 5]
  assert score.log_probs == pytest.approx(expected)


def test_guesses_are_written():
  masks = [
    [masked_words.Guess("the", 0.98765432), masked_words.Guess("\u4e2d", 0.01)],
    [masked_words.Guess("b", 0.5)],
  ]
  line = text_inputs.InputLine(3, "[MASK] x [MASK]", "")
  assert masked_words.guesses_table(line, masks) == (
    "[MASK] x [MASK]\n"
    "  mask 1  the  98.8 %\n"
    "          \u4e2d     1.0 %\n"
    "  mask 2  b  50.0 %"
  )
  one = line._replace(text="x [MASK]")
  assert masked_words.guesses_table(one, masks[1:]) == "x [MASK]\n  b  50.0 %"
  assert masked_words.guesses_json(one, masks[:1]) == (
    '{"line": 3, "text": "x [MASK]", "masks": [[{"token": "the", '
    '"probability": 0.987654}, {"token": "\u4e2d", "probability": 0.01}]]}'
  )


def test_scores_are_written():
  score = masked_words.Score(["a", "b"], [-1.0, -2.0])
  line, nothing = make_lines("a b", "")
  assert masked_words.score_json(line, score) == (
    '{"line": 0, "text": "a b", "pseudo_log_likelihood": -3.0, '
    '"pseudo_perplexity": 4.481689, "tokens": ["a", "b"], '
    '"log_probs": [-1.0, -2.0]}'
  )
  empty = masked_words.Score([], [])
  assert masked_words.score_json(nothing, empty) == (
    '{"line": 1, "text": "", "pseudo_log_likelihood": 0.0, '
    '"pseudo_perplexity": null, "tokens": [], "log_probs": []}'
  )
  assert [
    masked_words.SCORE_HEADER,
    masked_words.score_table(line, score),
    masked_words.score_table(nothing, empty),
  ] == [
    "tokens  log-likelihood    perplexity  text",
    "     2           -3.00          4.48  a b",
    "     0            0.00             -  ",
  ]
