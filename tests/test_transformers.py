"""Outputs and training of transformers' classes are ours."""

import functools
import importlib
import os
import types

os.environ.setdefault("USE_TF", "0")

import numpy as np
import pytest

import any_model
from bert.cli import model_folder

torch = pytest.importorskip("torch", reason="needs requirements/bench.txt")
transformers = pytest.importorskip("transformers")

import tensorflow as tf

from bert import (
  heads,
  modeling,
  optimization,
  run_classifier,
  run_squad,
  run_tagging,
  tokenization,
)
from bert.convert import writing
from bert.training import loop, reporting, training_plan
import paths
import tiny
import tiny_training

SIZES = any_model.SIZES | {
  "hidden_size": 16,
  "num_attention_heads": 4,
  "type_vocab_size": 2,
}
LABELS = 3
LENGTH = 12
STEPS, ROWS = 12, 12

CLASSIFIER = functools.partial(heads.ClassifierModel, num_labels=LABELS)
CHOOSER = functools.partial(heads.ClassifierModel, num_labels=1)
TAGGER = functools.partial(heads.TaggerModel, num_labels=LABELS)
# For each head: the end of the class's name, our model, the class's outputs.
CASES = {
  "pretraining": (
    "PreTraining",
    heads.PretrainingModel,
    ("prediction_logits", "seq_relationship_logits"),
  ),
  "masked_lm": ("MaskedLM", heads.PretrainingModel, ["logits"]),
  "classifier": ("SequenceClassification", CLASSIFIER, ["logits"]),
  "question_answering": (
    "QuestionAnswering",
    heads.SpanModel,
    ("start_logits", "end_logits"),
  ),
  "tagging": ("TokenClassification", TAGGER, ["logits"]),
  "next_sentence": (
    "NextSentencePrediction",
    heads.PretrainingModel,
    ["logits"],
  ),
  # The three inputs are the choices of one question.
  "multiple_choice": ("MultipleChoice", CHOOSER, ["logits"]),
}


def class_of(name):
  return getattr(transformers, f"BertFor{name}")


def our_outputs(model, head):
  inputs = any_model.make_inputs()
  if head in ("pretraining", "masked_lm", "next_sentence"):
    positions = np.tile(np.arange(LENGTH, dtype=np.int32), [len(inputs[0]), 1])
    words, next_sentence = model(*inputs, positions)
    outputs = {"masked_lm": [words], "next_sentence": [next_sentence]}
    return outputs.get(head, [words, next_sentence])
  outputs = model(*inputs)
  if head == "multiple_choice":
    return [np.transpose(outputs)]
  return outputs if isinstance(outputs, tuple) else [outputs]


def assert_same(ours, model, names):
  inputs = any_model.make_inputs()
  tensors = [torch.tensor(np.int64(x)) for x in inputs]
  if isinstance(model, transformers.BertForMultipleChoice):
    tensors = [x[None] for x in tensors]
  with torch.no_grad():
    theirs = model.eval()(*tensors)
  for name, our in zip(names, ours, strict=True):
    # The numbers of padding differ.
    by_token = theirs[name].ndim > 2 or name in ("start_logits", "end_logits")
    rows = inputs[1].astype(bool) if by_token else slice(None)
    any_model.assert_near(our, theirs[name], rows, atol=1e-4)


@pytest.mark.parametrize(
  ("head", "activation"),
  [*((head, "gelu") for head in CASES), ("pretraining", "gelu_erf")],
)
def test_transformers_computes_what_we_do(head, activation, tmp_path):
  name, make_model, names = CASES[head]
  config = modeling.BertConfig(**SIZES, hidden_act=activation)
  ours, folder = make_model(config), tmp_path / "ours"
  any_model.write_google(folder, ours, config)
  model = any_model.read(folder, head=head)
  writing.write("hugging_face", str(tmp_path / "theirs"), model)
  theirs, report = class_of(name).from_pretrained(
    tmp_path / "theirs", output_loading_info=True
  )
  assert not any(report.values())
  assert_same(our_outputs(ours, head), theirs, names)


@pytest.mark.parametrize(
  ("head", "activation"),
  [*((head, "gelu") for head in CASES), ("pretraining", "gelu_new")],
)
def test_we_compute_what_transformers_does(head, activation, tmp_path):
  name, make_model, names = CASES[head]
  settings = transformers.BertConfig(
    **SIZES,
    hidden_act=activation,
    initializer_range=0.3,
    num_labels=2 if head == "question_answering" else LABELS,
  )
  torch.manual_seed(3)
  theirs = class_of(name)(settings)
  for parameter in theirs.parameters():
    parameter.data += 0.2 * torch.randn(parameter.shape)
  theirs.save_pretrained(tmp_path)
  config = model_folder.open_model(str(tmp_path)).config
  ours = make_model(config)
  loaded = any_model.load(
    tmp_path,
    ours,
    lambda name: "/pooler/" in name or name.startswith("cls/"),
  )
  assert not loaded.unused
  assert_same(our_outputs(ours, head), theirs, names)


@pytest.fixture
def pretraining_model():
  return transformers.BertForPreTraining(transformers.BertConfig(**SIZES))


def test_shards_are_read_as_one(pretraining_model, tmp_path):
  theirs = pretraining_model
  theirs.save_pretrained(tmp_path, max_shard_size="8KB")
  assert not (tmp_path / "model.safetensors").exists()
  values = any_model.values(tmp_path)
  # The embeddings, 2 layers, the pooler, the heads of masked words and of the
  # next sentence.
  assert len(values) == 5 + 16 * 2 + 2 + 5 + 2
  kernel = theirs.bert.encoder.layer[1].output.dense.weight.detach().numpy()
  assert np.array_equal(
    values["bert/encoder/layer_1/output/dense/kernel"], kernel.T
  )


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_half_precision_is_read(dtype, pretraining_model, tmp_path):
  theirs = pretraining_model.to(getattr(torch, dtype))
  theirs.save_pretrained(tmp_path)
  table = theirs.bert.embeddings.word_embeddings.weight.detach().float()
  found = any_model.values(tmp_path)["bert/embeddings/word_embeddings"]
  assert np.array_equal(np.float32(found), table.numpy())


@pytest.mark.parametrize("do_lower_case", [True, False])
def test_tokenizers_agree_in_both_directions(do_lower_case, tmp_path):
  vocabulary = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "a", "##b", "c"]
  vocabulary += ["\u6587", "A", "bc", "e", "\xe9"]
  config = modeling.BertConfig(**{**SIZES, "vocab_size": len(vocabulary)})
  any_model.write_google(tmp_path / "ours", None, config, vocabulary)
  model = any_model.read(tmp_path / "ours", do_lower_case=do_lower_case)
  writing.write("hugging_face", str(tmp_path / "one"), model)
  theirs = transformers.AutoTokenizer.from_pretrained(tmp_path / "one")
  ours = tokenization.FullTokenizer(
    str(tmp_path / "one/vocab.txt"), do_lower_case, never_split=["[MASK]"]
  )
  for text in ("ab Ab a [MASK] bc,\u6587C", "\xc9 \xe9 E", "abab"):
    assert theirs.tokenize(text) == ours.tokenize(text)
  assert theirs.model_max_length == SIZES["max_position_embeddings"]
  # transformers 5 writes tokenizer.json alone, without a vocab.txt.
  theirs.save_pretrained(tmp_path / "one")
  (tmp_path / "one/vocab.txt").unlink()
  again = any_model.read(str(tmp_path / "one"))
  assert again.vocabulary == vocabulary
  assert again.do_lower_case == do_lower_case


def draw_rows(problem):
  """Returns the features of rows of different lengths, with random labels."""
  source = np.random.default_rng(5)
  # Where padding competes for answers, its embedding learns in ours alone.
  least = LENGTH if problem == "question_answering" else 4
  mask = np.arange(LENGTH) < source.integers(least, LENGTH + 1, [ROWS, 1])
  draw = functools.partial(source.integers, dtype=np.int32)
  labels = {
    "single_label": lambda: draw(0, LABELS, [ROWS, 1]),
    "multi_label": lambda: draw(0, 2, [ROWS, LABELS]),
    "regression": lambda: source.normal(size=[ROWS, 1]).astype("f4"),
    "tagging": lambda: draw(0, LABELS, [ROWS, LENGTH]),
    "question_answering": lambda: draw(0, 4, [2, ROWS]),
  }[problem]()
  features = {
    "input_ids": draw(5, SIZES["vocab_size"], mask.shape) * mask,
    "input_mask": np.int32(mask),
    "segment_ids": np.int32((np.arange(LENGTH) >= 4) & mask),
    "is_real_example": np.ones(ROWS, np.int32),
  }
  if problem == "question_answering":
    names = ("start_positions", "end_positions")
    return features | dict(zip(names, labels, strict=True))
  known = mask & (draw(0, 3, mask.shape) > 0)
  return features | {"label_ids": labels, "label_mask": np.int32(known)}


def classifies(problem, num_labels):
  loss = functools.partial(
    run_classifier.loss, problem_name=problem, class_weights=tf.ones(num_labels)
  )
  return "classifier", heads.ClassifierModel, loss, num_labels


# The head's name and class, the loss of the program that trains it, the labels.
TRAININGS = {
  "single_label": classifies("single_label", LABELS),
  "multi_label": classifies("multi_label", LABELS),
  "regression": classifies("regression", 1),
  "tagging": ("tagging", heads.TaggerModel, run_tagging.loss, LABELS),
  "question_answering": (
    "question_answering",
    lambda config, num_labels, dropout_rate: heads.SpanModel(config),
    functools.partial(
      run_squad.loss, settings=types.SimpleNamespace(padding_competes=True)
    ),
    2,
  ),
}


# tests/test_losses.py has the losses of all.
@pytest.mark.parametrize(
  "problem",
  [
    name
    if name in ("single_label", "question_answering")
    else pytest.param(name, marks=pytest.mark.slow)
    for name in TRAININGS
  ],
)
def test_training_is_that_of_transformers(problem, tmp_path, monkeypatch):
  """From the same weights, without dropout and warm-up, with Adam's correction.

  After a warm-up of a tenth the original's rate falls from nine tenths, theirs
  from the whole.
  """
  monkeypatch.syspath_prepend(str(paths.ROOT / "benchmarks"))
  timed_program = importlib.import_module("timed_program")
  # The original's norm takes a repeated word's gradients one by one.
  monkeypatch.setattr(optimization, "CLIP_NORM", 1e9)
  head, make_model, loss, num_labels = TRAININGS[problem]
  # Their texts are padded to 16 tokens.
  sizes = SIZES | tiny.NO_DROPOUT | {"max_position_embeddings": 16}
  config = modeling.BertConfig(**sizes)
  model = make_model(config, num_labels=num_labels, dropout_rate=0.0)
  any_model.write_google(tmp_path / "ours", model, config)
  opened = any_model.read(tmp_path / "ours", head=head)
  writing.write("hugging_face", str(tmp_path / "theirs"), opened)
  peer = timed_program.load_peer(
    tmp_path / "theirs", problem, num_labels, classifier_dropout=0.0
  )

  rows, size = draw_rows(problem), 4
  update = timed_program.make_update(
    peer, problem, STEPS, learning_rate=1e-2, warmup=0.0, precision="float32"
  )
  order = np.arange(STEPS * size).reshape(STEPS, size) % ROWS
  theirs = [
    update({name: tf.constant(value[i]) for name, value in rows.items()})
    for i in order
  ]

  optimizer = optimization.create_optimizer(
    model.trainable_variables, 1e-2, STEPS, 0, corrects_bias=True
  )
  plan = training_plan.TrainingPlan(
    str(tmp_path / "run"), STEPS, size, iterations_per_loop=1
  )
  source = tiny_training.make_input(rows)
  task = training_plan.TrainingTask(model, optimizer, loss, source, plan)
  loop.train(tf.distribute.get_strategy(), {"": task}, plan)
  points = reporting.read_curves(plan.output_dir, STEPS)
  ours = [point["loss"] for point in points]
  assert max(np.abs(np.diff(ours))) > 0.1
  np.testing.assert_allclose(ours, theirs, rtol=1e-4)
