"""Tests of signatures.py: answers in the graph equal those of our programs."""

import dataclasses
import random

import keras
import numpy as np
import pytest
import tensorflow as tf

from export import signatures
from export import span_graph
from export import tf_tokenization
import heads
import modeling
from tasks import metrics
from tasks import multiple_choice
from tasks import squad
from tasks import squad_answers
from tasks import squad_features
from tasks import tagging
import tiny_squad
import tokenization

SEQUENCE = 16
CONFIG = modeling.BertConfig.from_dict(
  {**tiny_squad.CONFIG, "initializer_range": 0.7, "num_hidden_layers": 2}
)
WORDS = tiny_squad.WORDS


@pytest.fixture(scope="module")
def vocab_file(tmp_path_factory):
  path = tmp_path_factory.mktemp("vocab") / "vocab.txt"
  path.write_text("\n".join(tiny_squad.VOCABULARY) + "\n")
  return str(path)


@pytest.fixture(scope="module")
def tokenizer(vocab_file):
  return tf_tokenization.TfTokenizer(vocab_file)


@pytest.fixture(scope="module")
def python(vocab_file):
  return tokenization.FullTokenizer(vocab_file, True, ["[MASK]"])


def random_texts(count, most, seed=1):
  source = random.Random(seed)
  return [
    " ".join(source.choices(WORDS, k=source.randrange(most)))
    for _ in range(count)
  ]


def pack(python, a, b=()):
  ids = python.encode(a), python.encode(b) if b else []
  tokenization.truncate_pair(*ids, SEQUENCE - (3 if b else 2))
  packed = tokenization.pack(*ids, cls_id=2, sep_id=3)
  return [tf.constant([values]) for values in packed]


def serve(graph, *texts):
  outputs = graph.serve(*map(tf.constant, texts))
  return {name: value.numpy() for name, value in outputs.items()}


@pytest.mark.parametrize("problem", ["single_label", "multi_label"])
def test_classifier(tokenizer, python, problem):
  model = heads.ClassifierModel(CONFIG, 3)
  graph = signatures.ClassifierGraph(
    model, tokenizer, SEQUENCE, problem, ["x", "y", "z"], [0.5, 0.9, 0.1]
  )
  texts, pairs = random_texts(6, 12), random_texts(6, 9, seed=2)
  pairs[0] = texts[1] = ""
  outputs = serve(graph, texts, pairs)
  for row, (a, b) in enumerate(zip(texts, pairs, strict=True)):
    logits = model(*pack(python, a, b)).numpy()[0]
    if problem == "single_label":
      expected = np.exp(logits) / np.exp(logits).sum()
      assert outputs["label"][row] == b"xyz"[logits.argmax() :][:1]
    else:
      expected = 1 / (1 + np.exp(-logits))
      chosen = [expected[0] >= 0.5, expected[1] >= 0.9, expected[2] >= 0.1]
      assert outputs["chosen"][row].tolist() == chosen
    np.testing.assert_allclose(
      outputs["probabilities"][row], expected, atol=1e-5
    )
    assert outputs["labels"][row].tolist() == [b"x", b"y", b"z"]
    tokens = len(a.split()) + len(b.split())
    room = SEQUENCE - (3 if b else 2)
    assert outputs["truncated"][row] == (tokens > room)
  assert outputs["truncated"].tolist().count(True) in range(1, 6)


def test_regression(tokenizer, python):
  model = heads.ClassifierModel(CONFIG, 1)
  graph = signatures.ClassifierGraph(
    model, tokenizer, SEQUENCE, "regression", []
  )
  outputs = serve(graph, ["the old house", ""], ["", "red"])
  assert sorted(outputs) == ["truncated", "value"]
  expected = model(*pack(python, "the old house")).numpy()[0, 0]
  assert outputs["value"][0] == pytest.approx(expected, abs=1e-5)


def test_attention(tokenizer, python):
  model = heads.ClassifierModel(CONFIG, 2)
  graph = signatures.ClassifierGraph(
    model, tokenizer, SEQUENCE, "single_label", ["x", "y"]
  )
  packed = graph.pack(tf.constant(["the house", "a"]), tf.constant(["", ""]))
  outputs = graph.attend(*packed[:3])
  probs = model.bert(
    *pack(python, "the house"), return_attention_probs=True
  ).attention_probs
  found = outputs.numpy()[0]
  for layer, expected in enumerate(probs):
    np.testing.assert_allclose(found[layer], expected[0], atol=1e-5)


@pytest.mark.parametrize("pooling", ["cls", "mean", "max"])
def test_vectors(tokenizer, python, pooling):
  model = modeling.BertModel(CONFIG)
  graph = signatures.VectorsGraph(model, tokenizer, SEQUENCE, -2, pooling)
  texts = ["the old house", "", "red"]
  vectors = serve(graph, texts, ["", "", "a tree"])["vectors"]
  for text, pair, found in zip(texts, ["", "", "a tree"], vectors, strict=True):
    states = (
      model(*pack(python, text, pair), return_hidden_states=True)
      .hidden_states[-2]
      .numpy()[0]
    )
    expected = {"cls": states[0], "mean": states.mean(0), "max": states.max(0)}
    np.testing.assert_allclose(found, expected[pooling], atol=1e-5)


def test_masks(vocab_file, python):
  model = heads.PretrainingModel(CONFIG)
  tokenizer = tf_tokenization.TfTokenizer(vocab_file, True, ["[MASK]"])
  graph = signatures.MaskGraph(model, tokenizer, SEQUENCE, 3)
  texts = ["the [MASK] was[MASK]", "no mask", ""]
  outputs = serve(graph, texts)
  logits = model(
    *pack(python, texts[0]), tf.constant([[2, 4]])
  ).masked_lm_logits.numpy()[0]
  best = np.argsort(-logits, axis=-1)[:, :3]
  expected = [python.convert_ids_to_tokens(row) for row in best]
  found = outputs["tokens"][0].tolist()
  assert [[t.decode() for t in row] for row in found] == expected
  assert outputs["tokens"][1:].tolist() == [[[b""] * 3] * 2] * 2
  shares = np.exp(logits) / np.exp(logits).sum(-1, keepdims=True)
  np.testing.assert_allclose(
    outputs["probabilities"][0],
    np.take_along_axis(shares, best, -1),
    atol=1e-5,
  )


LABELS = ["O", "B-COL", "I-COL", "B-OBJ", "I-OBJ", "E-OBJ", "S-COL"]


def test_tags_and_entities(tokenizer, python):
  keras.utils.set_random_seed(1)  # Others have found as few as 22 entities.
  model = heads.TaggerModel(CONFIG, len(LABELS))
  graph = signatures.TaggerGraph(model, tokenizer, SEQUENCE, LABELS, True)
  texts = [*random_texts(30, 13), "", "(red,tree) \x07 a", "zzz"]
  outputs = serve(graph, texts)
  total = 0
  for row, text in enumerate(texts):
    places = list(tagging.split_text(text))
    words = tuple(text[a:b] for a, b in places)
    sentence = tagging.Sentence(words, None, 0, "", 1, text, tuple(places))
    tags = []
    for feature in tagging.make_features([sentence], python, LABELS, SEQUENCE):
      ids = tf.constant([feature.input_ids])
      logits = model(ids, tf.ones_like(ids), tf.zeros_like(ids)).numpy()[0]
      mask = np.array(feature.label_mask) > 0
      tags += [LABELS[i] for i in logits.argmax(-1)[mask]]
    count = len(words)
    assert [w.decode() for w in outputs["words"][row][:count]] == list(words)
    assert [w.decode() for w in outputs["labels"][row][:count]] == tags
    assert not any(outputs["words"][row][count:])
    expected = [
      (e.type, places[e.start][0], places[e.end - 1][1])
      for e in metrics.find_entities(tags)
    ]
    names = ("types", "starts", "ends", "entities")
    found = [x for x in zip(*(outputs[n][row] for n in names), strict=True)]
    found = [x for x in found if x[1] >= 0]
    assert [(t.decode(), a, b) for t, a, b, _ in found] == expected
    assert [x[3].decode() for x in found] == [text[a:b] for _, a, b in expected]
    total += len(expected)
  assert total > 30


def test_words_beyond_the_window_are_cut(tokenizer):
  model = heads.TaggerModel(CONFIG, len(LABELS))
  graph = signatures.TaggerGraph(model, tokenizer, SEQUENCE, LABELS, False)
  outputs = serve(graph, ["red " * 14, "red " * 15])
  assert outputs["truncated"].tolist() == [False, True]
  assert outputs["words"].shape == (2, 14)
  assert "entities" not in outputs


def reference_answer(model, python, settings, question, context):
  """Answers as run_squad.py does."""
  encode = python.encode
  document = squad_features.Document(context, encode)
  query = encode(question)[: settings.max_query_length]
  windows = squad_features.make_windows(
    len(document.ids), SEQUENCE - len(query) - 3, settings.doc_stride
  )
  packed = [
    tokenization.pack(
      query,
      document.ids[window.start : window.start + window.length],
      cls_id=2,
      sep_id=3,
      max_seq_length=SEQUENCE,
    )
    for window in windows
  ]
  ids, mask, segments = map(tf.constant, zip(*packed, strict=True))
  logits = [np.float64(x) for x in model(ids, mask, segments)]
  if not settings.padding_competes:
    logits = [np.where(mask, x, -1e30) for x in logits]
  answerer = squad_answers.Answerer(
    squad_answers.Settings(
      settings.n_best_size,
      settings.max_answer_length,
      settings.version_2_with_negative,
      True,
      settings.whole_word_answers,
    ),
    python.convert_ids_to_tokens,
  )
  return answerer(document, len(query), windows, *logits)


@pytest.mark.parametrize("padding_competes", [False, True])
@pytest.mark.parametrize("may_be_none", [False, True])
@pytest.mark.parametrize("scale", [1.0, 100.0])
def test_answers_equal_those_of_squad(
  tokenizer, python, may_be_none, padding_competes, scale
):
  settings = span_graph.SpanSettings(
    4, 4, 5, 3, may_be_none, 0.0, padding_competes
  )
  model = heads.SpanModel(CONFIG)
  # Far enough apart for rounding not to decide, or many of one probability.
  model.output_weights.assign(scale * model.output_weights.value)
  graph = span_graph.SpanGraph(model, tokenizer, SEQUENCE, settings)
  questions = random_texts(30, 6, seed=3)
  contexts = [f"The  {text} OLD" for text in random_texts(30, 40, seed=4)]
  contexts[0] = "The  tree Was red"
  outputs = serve(graph, questions, contexts)
  answered = 0
  for row, (question, context) in enumerate(
    zip(questions, contexts, strict=True)
  ):
    expected = reference_answer(model, python, settings, question, context)
    asked = squad.Question("", question, None, "")
    described = squad_answers.describe(asked, expected, expected.decide(0.0))
    start = None if outputs["start"][row] < 0 else outputs["start"][row]
    end = None if outputs["end"][row] < 0 else outputs["end"][row]
    assert (start, end) == (described["start"], described["end"])
    answered += start is not None
    assert outputs["answer"][row].decode() == context[start or 0 : end or 0]
    for name in ("score", "probability", "no_answer_odds"):
      if name in described:
        found = outputs[name][row]
        assert found == pytest.approx(described[name], rel=1e-4, abs=1e-4), name
    is_cut = len(question.split()) > settings.max_query_length
    assert outputs["truncated"][row] == is_cut
  assert answered >= 3


@pytest.mark.parametrize("whole_words", [False, True])
def test_answers_end_inside_words_or_not(tmp_path, whole_words):
  path = tmp_path / "vocab.txt"
  pieces = ["lat", "##tic", "##e", "##s"]
  path.write_text("\n".join([*tiny_squad.VOCABULARY, *pieces]) + "\n")
  settings = span_graph.SpanSettings(
    4, 4, 5, 3, padding_competes=False, whole_word_answers=whole_words
  )
  python = tokenization.FullTokenizer(str(path))
  keras.utils.set_random_seed(1)
  model = heads.SpanModel(dataclasses.replace(CONFIG, vocab_size=30))
  model.output_weights.assign(100.0 * model.output_weights.value)
  graph = span_graph.SpanGraph(
    model, tf_tokenization.TfTokenizer(str(path)), SEQUENCE, settings
  )
  contexts = [
    f"{text} Lattice {text} lattices" for text in random_texts(20, 6, seed=5)
  ]
  outputs = serve(graph, ["what"] * 20, contexts)
  inside = 0
  for row, context in enumerate(contexts):
    span = reference_answer(model, python, settings, "what", context).answer
    start, end = outputs["start"][row], outputs["end"][row]
    assert (start, end) == (span.start, span.end)
    share = outputs["probability"][row]
    assert share == pytest.approx(span.probability, rel=1e-4)
    around = f" {context} "
    inside += around[end + 1].isalpha() or around[start].isalpha()
  assert (inside == 0) == whole_words


def test_no_context(tokenizer):
  settings = span_graph.SpanSettings()
  model = heads.SpanModel(CONFIG)
  graph = span_graph.SpanGraph(
    model, tokenizer, SEQUENCE, settings._replace(max_query_length=4)
  )
  outputs = serve(graph, ["what", "", "what"], ["", "", "red"])
  assert outputs["answer"].tolist() == [b"", b"", b"red"]
  assert outputs["probability"].tolist() == [0, 0, 1]
  assert outputs["start"].tolist() == [-1, -1, 0]


def test_choices_equal_those_of_run_multiple_choice(tokenizer, python):
  model = heads.ClassifierModel(CONFIG, 1)
  model.output_weights.assign(20.0 * model.output_weights.value)
  graph = signatures.ChoiceGraph(model, tokenizer, SEQUENCE)
  questions = [
    ("the old house", "", ["red", "a tree"]),
    ("", "what was", ["a house", "the tree", "red"]),
    ("the tree was", "what", ["old", "red " * 12]),
  ]
  outputs = serve(
    graph,
    [context for context, _, _ in questions],
    [question for _, question, _ in questions],
    ["\n".join(choices) for _, _, choices in questions],
  )
  for row, (context, question, choices) in enumerate(questions):
    example = multiple_choice.Example(
      "", context, question, tuple(map(str.strip, choices)), None, ""
    )
    (made,) = multiple_choice.make_features([example], python, SEQUENCE)
    logits = []
    for ids, segments in zip(made.input_ids, made.segment_ids, strict=True):
      ids, segments = tf.constant([ids]), tf.constant([segments])
      logits.append(model(ids, tf.ones_like(ids), segments).numpy()[0, 0])
    expected = np.zeros(3)
    expected[: len(logits)] = np.exp(logits) / np.exp(logits).sum()
    np.testing.assert_allclose(
      outputs["probabilities"][row], expected, atol=1e-5
    )
    best = expected.argmax()
    assert outputs["predicted"][row] == best
    assert outputs["choice"][row].decode() == example.choices[best]
    assert outputs["truncated"][row] == made.was_cut
  assert outputs["truncated"].tolist() == [False, False, True]
  assert np.ptp(outputs["probabilities"][1]) > 0.01


def test_no_choices(tokenizer):
  graph = signatures.ChoiceGraph(
    heads.ClassifierModel(CONFIG, 1), tokenizer, SEQUENCE
  )
  outputs = serve(graph, ["the house"] * 2, ["", ""], ["", "\n red\n\n"])
  assert outputs["choices"].tolist() == [[b""], [b"red"]]
  assert outputs["probabilities"].tolist() == [[0.0], [1.0]]
  assert outputs["predicted"].tolist() == [-1, 0]


def test_ids_take_what_the_tokenizer_makes(tokenizer):
  model = heads.ClassifierModel(CONFIG, 2)
  graph = signatures.ClassifierGraph(
    model, tokenizer, SEQUENCE, "single_label", ["x", "y"]
  )
  functions = signatures.make_functions(graph)
  texts = tf.constant(["red tree", "a"]), tf.constant(["old", ""])
  expected = serve(graph, *texts)["probabilities"]
  found = functions["ids"](*graph.pack(*texts)[:3])["probabilities"]
  np.testing.assert_allclose(found, expected, atol=1e-6)
  found = functions["serving_default"](*texts)["probabilities"]
  np.testing.assert_allclose(found, expected, atol=1e-6)


def test_whitespace_around_choices_is_that_of_python(tokenizer):
  graph = signatures.ChoiceGraph(
    heads.ClassifierModel(CONFIG, 1), tokenizer, SEQUENCE
  )
  texts = "\u00a0red\u3000\n\u2003\n\x1ca tree\x85"
  outputs = serve(graph, ["\u3000"], ["what"], [texts])
  assert outputs["choices"].tolist() == [[b"red", b"a tree"]]


def test_windows_of_questions_with_most_context():
  source = random.Random(1)
  for _ in range(40):
    made, rows = [], []
    for row in range(source.randint(1, 3)):
      size, stride = source.randint(1, 20), source.randint(1, 20)
      count = source.randint(1, 60)
      windows = squad_features.make_windows(count, size, stride)
      made.append((windows, count))
      rows += [row] * len(windows)
    every = [window for windows, _ in made for window in windows]
    starts, sizes = np.array(every, np.int32).T
    places = [
      p for windows, count in made for p in [range(count)] * len(windows)
    ]
    most = max(map(len, places))
    asked = [[*p, *[10**6] * (most - len(p))] for p in places]
    graph_windows = tf_tokenization.Windows(
      None, *map(tf.constant, (rows, starts, sizes)), None
    )
    found = span_graph._has_most_context(
      graph_windows, tf.constant(asked, tf.int32)
    )
    first = 0
    for windows, _ in made:
      for i, window in enumerate(windows):
        inside = range(window.start, window.start + window.length)
        assert found[first + i].numpy()[list(inside)].tolist() == [
          squad_features.is_max_context(windows, i, p) for p in inside
        ]
      first += len(windows)


def test_no_texts(tokenizer, vocab_file):
  masks = tf_tokenization.TfTokenizer(vocab_file, True, ["[MASK]"])
  settings = span_graph.SpanSettings(4, 4)
  common = tokenizer, SEQUENCE
  for graph in (
    signatures.ClassifierGraph(
      heads.ClassifierModel(CONFIG, 2), *common, "single_label", ["x", "y"]
    ),
    signatures.VectorsGraph(modeling.BertModel(CONFIG), *common, -1, "mean"),
    signatures.ChoiceGraph(heads.ClassifierModel(CONFIG, 1), *common),
    signatures.MaskGraph(heads.PretrainingModel(CONFIG), masks, SEQUENCE, 3),
    signatures.TaggerGraph(
      heads.TaggerModel(CONFIG, len(LABELS)), *common, LABELS, True
    ),
    span_graph.SpanGraph(heads.SpanModel(CONFIG), *common, settings),
  ):
    none = [tf.zeros([0], tf.string) for _ in graph.inputs]
    for values in serve(graph, *none).values():
      assert len(values) == 0
