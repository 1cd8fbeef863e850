"""Requests and answers of all kinds of models, without a model."""

import dataclasses

import numpy as np
import pytest

import tiny
import tiny_models

QUESTION = ["question", "context"]


def test_a_guessed_id_without_a_token_is_empty(tmp_path):
  # The last of equal lines counts, so id 5 has no token.
  tokens = "[PAD] [UNK] [CLS] [SEP] [MASK] b a b"
  (tmp_path / "two.txt").write_text("\n".join(tokens.split()))
  maker = tiny_models.make_maker(
    tmp_path, ["text"], "fill_mask", "two.txt", top_k=2
  )
  output = {
    "positions": np.array([1]),
    "ids": np.array([[7, 5]]),
    "probabilities": np.array([[0.5, 0.25]]),
  }
  answer = maker.answer(maker.encode({"text": "[MASK]"}), [output])
  assert answer["masks"] == [
    [{"token": "b", "probability": 0.5}, {"token": "", "probability": 0.25}]
  ]


@pytest.mark.parametrize(
  ("context", "message"),
  [
    (" ", "^context: the context is empty"),
    ("\u5317\u4eac\u5728\u5317\u4eac", "tokens that are not parts of its"),
  ],
)
def test_a_bad_context_is_an_error_of_its_request(tmp_path, context, message):
  path = tmp_path / "some.words"
  path.write_text("[PAD]\n[UNK]\n[CLS]\n[SEP]\n\u5317\u4eac\n\u5728\n")
  maker = tiny_models.make_maker(
    tmp_path, QUESTION, "question_answering", path.name
  )
  with pytest.raises(ValueError, match=message):
    maker.encode({"question": "?", "context": context})


def test_texts_that_would_not_be_read_are_refused_and_no_other_names(tmp_path):
  one = tiny_models.make_maker(tmp_path, ["text"])
  two = tiny_models.make_maker(tmp_path, ["text", "text_pair"])
  for maker, name, shown in (
    (one, "text_pair", "text_pair"),
    (one, "question", "question"),
    (two, "textPair", "textPair"),
    (two, "text_pairs", "text_pairs"),
    (two, "text_pair\ud800", r"text_pair\\ud800"),
  ):
    message = f"{shown} is not read; the model takes"
    with pytest.raises(ValueError, match=message) as caught:
      maker.encode({"text": "a", name: "b"})
    assert str(caught.value).encode()
  more = {"id": 7, "label": "pos", "text_id": 3, "layer": 0}
  assert two.encode({"text": "a", **more}) == two.encode({"text": "a"})


def test_an_entity_is_as_certain_as_its_words_on_average(tmp_path):
  settings = {"by_character": False, "label_scheme": "iob"}
  maker = tiny_models.make_maker(tmp_path, ["text"], "tagging", **settings)
  maker = type(maker)(
    dataclasses.replace(maker.card, labels=("O", "B-PER", "I-PER")),
    str(tmp_path / "vocab.txt"),
  )
  encoded = maker.encode({"text": "a b c"})
  shares = [[0.1, 0.8, 0.1], [0.2, 0.2, 0.6], [0.5, 0.25, 0.25]]
  # [CLS] and [SEP] have no label; what is after them is padding.
  logits = np.log([[1, 9, 9], *shares, [1, 9, 9], [1, 9, 9]])
  answer = maker.answer(encoded, [{"logits": logits}])
  (entity,) = answer["entities"]
  assert entity.pop("probability") == pytest.approx((0.8 + 0.6) / 2)
  assert entity == {"text": "a b", "type": "PER", "start": 0, "end": 3}
  assert [word["label"] for word in answer["words"]] == ["B-PER", "I-PER", "O"]
  found = [word["probability"] for word in answer["words"]]
  assert found == pytest.approx([0.8, 0.6, 0.5])


@pytest.mark.parametrize(("words", "is_cut"), [(14, False), (15, True)])
def test_a_text_that_is_cut_is_called_truncated(words, is_cut, tmp_path):
  maker = tiny_models.make_maker(tmp_path, ["text"], "fill_mask", top_k=1)
  encoded = maker.encode({"text": " ".join(["a"] * words)})
  assert len(encoded.rows[0].input_ids) == maker.card.max_seq_length
  output = {"positions": [-1], "ids": [[0]], "probabilities": [[1]]}
  answer = maker.answer(encoded, [{k: np.array(x) for k, x in output.items()}])
  assert answer == {"masks": [], "truncated": is_cut}


@pytest.mark.parametrize(("competes", "expected"), [(True, ""), (False, "b")])
def test_padding_hides_answers_only_where_it_did_in_training(
  competes, expected, tmp_path
):
  settings = tiny_models.PREDICTION["question_answering"]
  settings = settings | {"padding_competes": competes, "n_best_size": 1}
  maker = tiny_models.make_maker(
    tmp_path, QUESTION, "question_answering", **settings
  )
  assert maker.pads_fully == competes
  encoded = maker.encode({"question": "a", "context": "b c"})
  logits = np.zeros(maker.card.max_seq_length, np.float32)
  logits[3] = 2.0  # b, after [CLS] a [SEP].
  logits[7] = 5.0  # Padding, which begins at 6, and is no answer.
  outputs = [{"start_logits": logits, "end_logits": logits}]
  assert maker.answer(encoded, outputs)["answer"] == expected


@pytest.mark.parametrize(
  ("kind", "output", "shares"),
  [
    ("single_label", {"logits": [0.0, 1.0]}, [0.268941, 0.731059]),
    ("single_label", {"logits": [0.0, 14.0]}, [8.31528e-07, 0.999999]),
    ("multi_label", {"logits": [0.0, 1.0]}, [0.5, 0.731059]),
  ],
)
def test_probabilities_have_6_digits(tmp_path, kind, output, shares):
  maker = tiny_models.make_maker(
    tmp_path, ["text"], kind, **tiny_models.CLASSES
  )
  outputs = [{name: np.array(x) for name, x in output.items()}]
  answer = maker.answer(maker.encode({"text": "a"}), outputs)
  assert list(answer["probabilities"].values()) == shares


@pytest.mark.parametrize(
  ("count", "fits"), [(1, 0), (2, 1), (1024, 1), (1025, 0)]
)
def test_the_number_of_choices(tmp_path, count, fits):
  names = ["context", "question", "choices"]
  maker = tiny_models.make_maker(tmp_path, names, "multiple_choice")
  request = {"context": "a", "choices": ["b"] * count}
  if fits:
    assert len(maker.encode(request).rows) == count
    return
  message = f"^choices: found {count}, expected 2 to 1024$"
  with pytest.raises(ValueError, match=message):
    maker.encode(request)


def test_ends_of_lines_make_no_other_vocabulary(tmp_path):
  text = "\n".join(tiny.VOCABULARY)
  for name, content in (
    ("a.txt", f"{text}\n"),
    ("b.txt", text.replace("\n", "\r\n")),
    ("c.accents", text),
    ("d.txt", text.replace("film", "book")),
  ):
    (tmp_path / name).write_bytes(content.encode())
  plain, other, *different = (
    tiny_models.make_maker(tmp_path, ["text"], vocabulary=name)
    for name in ("a.txt", "b.txt", "c.accents", "d.txt")
  )
  assert plain.identify_tokens() == other.identify_tokens()
  digests = {maker.vocabulary_digest for maker in (plain, *different)}
  assert len(digests) == 3
