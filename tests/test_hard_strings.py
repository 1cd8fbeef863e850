"""Hard texts get the same ids and answers from everything that takes text."""

import functools
import importlib.metadata
import itertools
import json

import pytest
import tensorflow as tf

import bert
from bert import tokenization
from bert.export import tf_tokenization
from bert.vocabularies import vocabulary_table
import hard_strings
import slow_tokenizer
import tiny
import tiny_models

pytest.importorskip("onnxruntime", reason="needs requirements/onnx.txt")

LENGTH = 40  # Tokens; some texts have more.
VOCABULARIES = ["uncased", "cased", "lower pieces", "pieces"]
close = functools.partial(tiny_models.close, abs=1e-4)


@pytest.fixture(scope="module")
def texts():
  return hard_strings.hard_texts(500)


@pytest.fixture(scope="module", params=VOCABULARIES)
def vocabulary(request, texts, tmp_path_factory):
  """Returns the path of a vocabulary of the texts, and whether it is lower."""
  folder = tmp_path_factory.mktemp("vocabulary")
  lower = request.param in ("uncased", "lower pieces")
  if "pieces" not in request.param:
    basic = tokenization.BasicTokenizer(lower)
    return hard_strings.write_hard_vocab(folder, texts, basic), lower
  pytest.importorskip("sentencepiece")
  if importlib.metadata.version("sentencepiece") != "0.2.1":
    pytest.skip(
      "others break ties otherwise: see requirements/sentencepiece.txt"
    )
  lines = [text for text in texts[::2] if len(text) < 100] + [tiny.ENGLISH]
  path = folder / "text.txt"
  path.write_text("\n".join(lines * 20) + "\n")
  others = {"vocab_size": 400, "do_lower_case": lower}
  return tiny.learn_sentence_pieces(folder, path, **others), lower


@pytest.mark.slow
def test_ids(texts, vocabulary):
  path, lower = vocabulary
  python = vocabulary_table.make_tokenizer(path, lower)
  graph = tf_tokenization.make_tokenizer(path, lower)
  in_graph = graph.encode(tf.constant(texts)).to_list()
  for text, found in zip(texts, in_graph, strict=True):
    ids = python.encode(text)
    tokens = python.convert_ids_to_tokens(ids)
    assert python.tokenize(text) == tokens, ascii(text)
    offsets = python.tokenize_with_offsets(text)
    assert [token.token for token in offsets] == tokens, ascii(text)
    assert found == ids, ascii(text)
    if path.endswith(".txt"):
      assert slow_tokenizer.tokenize(text, python.vocab, lower) == tokens
  assert len({id for ids in in_graph for id in ids}) > 200
  # Bytes that are no UTF-8, as halves of surrogate pairs, are dropped.
  halves = [t.encode("utf-8", "surrogatepass") for t in hard_strings.SURROGATES]
  found = graph.encode(tf.constant(halves)).to_list()
  assert found == list(map(python.encode, halves))


def write_model(folder, vocabulary, kind, make, **settings):
  path, lower = vocabulary
  tiny_models.write_trained(
    folder,
    kind,
    make,
    vocab_file=path,
    max_seq_length=LENGTH,
    do_lower_case=lower,
    **settings,
  )
  flags = {"vocab_file": "", "model_dir": "", "model": folder}
  return [folder] + [
    tiny_models.run_export(folder, format, format=format, **flags)
    for format in ("saved_model", "onnx")
  ]


@pytest.mark.slow
def test_labels(texts, vocabulary, tmp_path):
  folders = write_model(
    tmp_path, vocabulary, "single_label", None, **tiny_models.CLASSES
  )
  pairs = [
    {"text": a, "text_pair": b if number % 2 else ""}
    for number, (a, b) in enumerate(zip(texts, texts[::-1], strict=True))
  ]
  answers, *others = (bert.load(folder)(pairs) for folder in folders)
  for found in others:
    for pair, a, b in zip(pairs, found, answers, strict=True):
      assert a == close(b), ascii(pair)
  shares = [a["probabilities"]["pos"] for a in answers]
  assert len({round(share, 4) for share in shares}) > 200
  for folder in folders:
    for text in hard_strings.SURROGATES:
      with pytest.raises(ValueError, match=r"text holds .*surrogate pair"):
        bert.load(folder)(text)
  serve = tf.saved_model.load(folders[1]).signatures["serving_default"]
  columns = {n: tf.constant([p[n] for p in pairs]) for n in pairs[0]}
  found = serve(**columns)
  assert found["truncated"].numpy().tolist() == [
    answer["truncated"] for answer in answers
  ]
  assert found["probabilities"].numpy()[:, 1].tolist() == close(shares)


def compare_spans(folder, vocabulary, questions, **flags):
  """Compares the answers of run_squad.py and of exports; returns them."""
  path, lower = vocabulary
  paragraphs = [
    {
      "context": q["context"],
      "qas": [{"id": str(i), "question": q["question"]}],
    }
    for i, q in enumerate(questions)
  ]
  predict_file = folder / "dev.json"
  predict_file.write_text(json.dumps({"data": [{"paragraphs": paragraphs}]}))
  changes = {"initializer_range": 0.7, "max_position_embeddings": 64}
  changes["vocab_size"] = vocabulary_table.size_of(path)
  tiny.succeed(
    "run_squad",
    folder,
    changes,
    vocab_file=path,
    do_lower_case=lower,
    do_train=True,
    train_file=tiny.write_squad(folder / "train.json", range(16)),
    do_predict=True,
    predict_file=predict_file,
    num_train_epochs=1,
    max_seq_length=32,
    num_processes=1,
    **flags,
  )
  rows = map(json.loads, (folder / "out" / "predictions.jsonl").open())
  expected = list(map(tiny_models.shown_span, rows))
  for format in ("saved_model", "onnx"):
    flags = {"vocab_file": "", "model_dir": "", "model": folder / "out"}
    export = tiny_models.run_export(folder, format, format=format, **flags)
    found = bert.load(export)(questions)
    for question, a, b in zip(questions, found, expected, strict=True):
      del a["truncated"]
      assert a == close(b), ascii(question)
  return expected


# Around unknown pieces, marks without a letter, and characters of which NFKC
# makes several, or a space and a mark.
CONTEXTS = [
  "The quick \u6f22\u5b57 fox \u2603 jumps over \u2603the\u2603 dog",
  "quick \u0301 brown \u0301fox\u0301 and\u0301 the e\u0301 dog \u0323\u0301",
  "the \ufb01x \u2460 \uff21\uff42 \xbd dog\u2026 \xa8 \u337f over\xb4s \ufdfa",
  "\u5317\u4eac\u662f\uff76\uff9e dog\u2603\u4e2d the\u56fd fox \u2603\u0301 a"
  " \u9996 over \ufb01\u3002",
  "fox\u200bdog \ud55c\uad6d \u1112\u1161\u11ab the\xa0lazy\u3000dog \xad a",
]


def test_spans_of_pieces(tmp_path):
  pytest.importorskip("sentencepiece")
  vocabulary = tiny.learn_sentence_pieces(tmp_path), True
  questions = [
    {"question": question, "context": context}
    for context in CONTEXTS
    for question in ("the \u2603 fox?", "\u5317\u4eac \ufb01 \u0301")
  ]
  answers = compare_spans(tmp_path, vocabulary, questions)
  assert len({answer["answer"] for answer in answers}) > 3


@pytest.mark.slow
def test_spans(texts, vocabulary, tmp_path):
  # The windows of a text that repeats itself are equal, and so are their spans.
  texts = [text for text in texts if len(text) < 20 * len(set(text)) + 5]
  contexts = [f"{b} the {a} want {b}" for a, b in itertools.pairwise(texts)]
  questions = [
    {"question": question, "context": context}
    for question, context in zip(texts, contexts, strict=False)
    if question.strip()
  ]
  answers = compare_spans(tmp_path, vocabulary, questions, doc_stride=16)
  assert len({answer["answer"] for answer in answers}) > 200
