"""Answers from logits made by hand."""

import math
from unittest import mock

import numpy as np
import pytest

from bert import tokenization
from bert.contrib import gpt_vocabulary
from bert.data import packing
from bert.tasks import squad_answers, squad_features
from bert.vocabularies import sentence_pieces

# "##er" and "##'" stand for what a tokenizer may cut a word into.
VOCABULARY = "[UNK] steve smith ' s wins ##er , big the".split()
IDS = {token: index for index, token in enumerate(VOCABULARY)}
CONTEXT = "Steve  Smith's WINS, the"
# Its tokens: 0      1    2 3  4   5   6
TOKENS = ["steve", "smith", "'", "s", "wins", ",", "the"]
WHOLE = (packing.Window(0, len(TOKENS)),)
TWO = (packing.Window(0, 5), packing.Window(2, 5))


def make_document(context=CONTEXT):
  basic = tokenization.BasicTokenizer()
  return squad_features.Document(
    context, lambda word: [IDS.get(w, 0) for w in basic.tokenize(word)]
  )


def low(parts=1, length=12):
  """Returns logits, [2, parts, length]; [CLS] question [SEP] text [SEP]."""
  return np.full([2, parts, length], -9, np.float32)


def search(
  logits,
  parts=WHOLE,
  document=None,
  pieces=VOCABULARY,
  n_best_size=3,
  max_answer_length=4,
  has_null=False,
  kind=tokenization.FullTokenizer,
  **others,
):
  """Answers a question of one token, in pieces of a kind of tokenizer."""
  maker = mock.Mock()
  maker.settings.version_2_with_negative = has_null
  maker.settings.do_lower_case = True
  maker.to_tokens = lambda ids: [pieces[i] for i in ids]
  tokenizer = object.__new__(kind)
  tokenizer.basic_tokenizer = tokenization.BasicTokenizer()
  maker.join = tokenizer.join
  maker.basic_tokenizer = tokenizer.basic_tokenizer
  settings = squad_answers.AnswerSettings(
    n_best_size, max_answer_length, **others
  )
  find = squad_answers.SpanSearch(maker, settings)
  return find(document or make_document(), 1, parts, *logits)


def answer(starts, ends, null=None, parts=WHOLE, **others):
  """Answers a question; logits are given by token of the text."""
  logits = low(len(parts))
  for row, values in enumerate((starts, ends)):
    for token, value in values.items():
      for index, window in enumerate(parts):
        if window.start <= token < window.start + window.length:
          logits[row, index, token - window.start + 3] = value
  if null is not None:
    logits[:, :, 0] = null
  return search(logits, parts, has_null=null is not None, **others)


def texts(prediction):
  return [span.text for span in prediction.spans]


PIECES = (
  (sentence_pieces.Tokenizer, "▁steve ▁smi th ' s ▁wins ,"),
  (gpt_vocabulary.Tokenizer, "steve</w> smi th</w> '</w> s</w> wins</w> ,</w>"),
)


@pytest.mark.parametrize(("kind", "pieces"), PIECES, ids=["marks", "ends"])
@pytest.mark.parametrize(
  ("first", "last", "text"),
  [(0, 0, "Steve"), (1, 2, "Smith"), (0, 4, "Steve Smith's"), (2, 2, "th")]
  + [(5, 5, "WINS"), (3, 5, "'s WINS")],
)
def test_pieces_with_marks_are_found_in_their_words(
  kind, pieces, first, last, text
):
  document = squad_features.Document(
    "Steve  Smith's WINS,", lambda words: list(range(len(pieces.split())))
  )
  # Set as if it had been computed, since these pieces come from no tokenizer:
  # where the pieces of Steve, Smith's and WINS, begin, and how many there are.
  document.__dict__["first_tokens"] = [0, 1, 5, 7]
  logits = low()
  logits[0, 0, first + 3] = logits[1, 0, last + 3] = 5
  found = search(
    logits, WHOLE, document, pieces.split(), max_answer_length=9, kind=kind
  )
  assert found.answer.text == text


def test_starts_and_ends_are_combined_best_first():
  prediction = answer({0: 5, 1: 4}, {1: 3, 4: 2.5}, n_best_size=2)
  # Five tokens are more than max_answer_length, so "0 to 4" is not listed.
  assert [(s.text, s.start_logit, s.end_logit) for s in prediction.spans] == [
    ("Steve Smith", 5, 3),
    ("Smith", 4, 3),
  ]
  assert [CONTEXT[s.start : s.end] for s in prediction.spans] == [
    "Steve  Smith",  # Both spaces of the source.
    "Smith",
  ]
  total = math.exp(8 - 8) + math.exp(7 - 8)
  assert prediction.spans[0].probability == pytest.approx(1 / total)
  assert prediction.odds is None
  assert prediction.answer.text == prediction.decide(0.0).text == "Steve Smith"


def test_answers_lose_no_more_than_they_must():
  # The token "smith" is part of the word "Smith's"; "wins" of "WINS,".
  assert texts(answer({1: 5}, {1: 5}))[0] == "Smith"
  assert texts(answer({1: 5}, {3: 5}))[0] == "Smith's"
  assert texts(answer({4: 5}, {4: 5}))[0] == "WINS"
  # The same text is listed once.
  found = texts(answer({4: 5}, {4: 5}, parts=TWO, n_best_size=20))
  assert found.count("WINS") == 1


@pytest.mark.parametrize(
  ("whole_words", "first", "last", "expected"),
  [
    (False, 1, 2, "iron lattic"),  # As in the original.
    (True, 1, 2, "iron lattice"),
    (False, 3, 3, "e"),
    (True, 3, 3, "lattice"),
    (True, 4, 4, "Tower"),  # Punctuation is no piece of the word.
    (True, 6, 6, "s"),
  ],
)
def test_answers_end_inside_words_or_not(whole_words, first, last, expected):
  pieces = ["the", "iron", "lattic", "##e", "tower", "'", "s"]
  context = "the iron lattice Tower's"
  encoded = {context: range(7), "the": [0], "iron": [1], "lattice": [2, 3]}
  encoded["Tower's"] = [4, 5, 6]
  document = squad_features.Document(context, encoded.__getitem__)
  logits = low()
  logits[0, 0, 3 + first] = logits[1, 0, 3 + last] = 5
  found = search(
    logits, WHOLE, document, pieces, whole_word_answers=whole_words
  ).answer
  assert found.text == context[found.start : found.end] == expected


def test_a_start_counts_only_in_the_window_with_most_context():
  logits = low(2)
  # Token 4 is the last of the first window, so only the second one's counts.
  logits[:, 0, 3 + 4] = 5
  logits[:, 1, 3 + 2] = 1
  best = search(logits, TWO).spans[0]
  assert (best.text, best.start_logit, best.end_logit) == ("WINS", 1, 1)


def test_what_is_no_text_takes_up_places():
  # Padding and the question are among the two best, as in the original.
  logits = low()
  logits[0, 0, [1, 11]] = 7
  logits[:, 0, 3] = 5
  prediction = search(logits, n_best_size=2)
  assert texts(prediction) == ["empty"]
  assert prediction.answer is None
  assert texts(search(logits, n_best_size=3))[0] == "Steve"


def test_no_answer_is_ranked_among_the_answers():
  prediction = answer({0: 5, 1: 1}, {0: 5, 1: 1}, null=2.5)
  assert texts(prediction) == ["Steve", "Steve Smith", ""]
  assert prediction.odds == 5 - 10
  assert prediction.decide(-5).text == "Steve"
  assert prediction.decide(-5.1) is None
  prediction = answer({0: 1}, {0: 1}, null=2.5)
  assert texts(prediction)[0] == ""
  assert prediction.odds == 5 - 2
  assert prediction.decide(3.0).text == "Steve"
  assert prediction.decide(0.0) is None
  # It is listed even beyond the best.
  prediction = answer({0: 5}, {0: 5}, null=-8.9, n_best_size=1)
  assert texts(prediction) == ["Steve", ""]


def test_the_window_least_sure_of_no_answer_decides():
  logits = low(2)
  logits[:, 0, 0], logits[:, 1, 0] = 3, 1
  spans = search(logits, TWO, has_null=True).spans
  null = next(span for span in spans if span.text == "")
  assert (null.start_logit, null.end_logit) == (1, 1)


def test_a_list_without_any_answer_is_no_answer():
  # Here the original ended in a traceback.
  logits = low()
  logits[:, 0, [0, 1, 2]] = 5
  prediction = search(logits, has_null=True)
  assert texts(prediction) == [""]
  assert prediction.odds == 1e6
  assert prediction.decide(1000.0) is None


def test_find_tokens():
  def find(wanted, words):
    aligned = squad_answers.align(words, tokenization.BasicTokenizer())
    part = squad_answers.find_tokens(wanted, aligned)
    return part and words[slice(*part)]

  assert find("steve smith", "Steve Smith's") == "Steve Smith"
  found = find("steve smith", "a \t\nSteve \u202f Smith's")
  assert found == "Steve \u202f Smith"
  assert find("cafe", "the (Café)") == "Café"  # One letter for one letter.
  assert find("北 京", "在北京。") == "北京"
  assert find("smith", "Stevesmiths") == "smith"  # Part of a word.
  assert find("1 , 000", "$1,000") == "1,000"
  assert find("jones", "Steve Smith's") is None  # As of an unknown token.
  assert find("i", "I\u0307 see") is None  # A letter of its own vanished.
  # No space to the original, but to tokenizers.
  assert find("a b", "a\u00a0b") is None
  assert find("", "Steve") is None


def test_long_words_that_cannot_be_cut_are_tokenized_once(monkeypatch):
  context = "a," * 500 + "e\u0301"  # One word, of which a letter vanishes.
  align = mock.Mock(side_effect=squad_answers.align)
  monkeypatch.setattr(squad_answers, "align", align)
  document = make_document(context)
  count = len(document.ids)
  assert document.word_of(0) == document.word_of(count - 1)
  logits = np.random.default_rng(0).normal(size=[2, 1, count + 4])
  most = {"n_best_size": 20, "max_answer_length": 30}
  found = search(logits, [packing.Window(0, count)], document, **most)
  assert texts(found) == [context]
  assert align.call_count == 1


def test_words_that_cannot_be_cut_are_the_answer_and_noted(capsys):
  logits = low()
  logits[:, 0, 3 + 4] = 5
  unknown = ["[UNK]"] * len(VOCABULARY)
  prediction = search(logits, pieces=unknown, verbose_logging=True)
  assert prediction.spans[0].text == "WINS,"
  assert "note: no '[UNK]' found in 'WINS,'\n" in capsys.readouterr().err
