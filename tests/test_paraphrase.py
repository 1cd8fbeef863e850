"""paraphrase-MiniLM-L3-v2, published as an ONNX graph: read, never executed.

python -m pytest -m slow -s tests/test_paraphrase.py

prints the numbers of docs/results.md.
"""

import numpy as np
import pytest

from bert import convert_checkpoint, extract_features
from bert.inputs import text_inputs
from bert.vocabularies import vocabulary_table
import paths
import program_flags
import published

pytestmark = [
  pytest.mark.slow,
  paths.needs_paraphrase,
  paths.needs_minilm,
  published.needs_data,
]
LENGTH = 128
PUBLISHED = 0.824059  # What the graph reaches in ONNX Runtime.
GRAPH = paths.PARAPHRASE / "paraphrase-MiniLM-L3-v2.onnx"
# The package has no vocabulary: it is that of the other MiniLMs.
VOCABULARY = paths.MINILM / "vocab.txt"


@pytest.fixture(scope="module", name="pairs")
def read_pairs():
  return published.read_pairs()


@pytest.fixture(scope="module", name="texts")
def read_texts(pairs):
  """Returns 600 texts and the pairs; the graph has no second segment."""
  _, first, second = pairs
  texts = published.read_texts(600)
  return [text.replace(" ||| ", " ") for text in texts] + first + second


def extract(folder, texts, **flags):
  (folder / "in.txt").write_text("\n".join(texts) + "\n", "utf-8")
  program_flags.run_main(
    extract_features,
    extract_features.VectorSettings,
    input_file=folder / "in.txt",
    vocab_file=VOCABULARY,
    pooling="mean",
    layers="-1",
    max_seq_length=LENGTH,
    output_format="npz",
    output_file=folder / "out.npz",
    **flags,
  )
  with np.load(folder / "out.npz") as found:
    return found["vectors"][:, 0]


@pytest.fixture(scope="module", name="vectors")
def make_vectors(tmp_path_factory, texts):
  folder = tmp_path_factory.mktemp("vectors")
  return extract(folder, texts, model=paths.PARAPHRASE)


@pytest.fixture(scope="module", name="expected")
def run_graph(texts):
  """Returns what ONNX Runtime computes: one text at a time, without padding."""
  onnxruntime = pytest.importorskip("onnxruntime")
  session = onnxruntime.InferenceSession(GRAPH)
  tokenizer = vocabulary_table.make_tokenizer(str(VOCABULARY), True)
  vectors = []
  for row in map(text_inputs.RowMaker(tokenizer, LENGTH), texts):
    ids = np.array([row["input_ids"]], np.int64)
    inputs = {"input_ids": ids, "attention_mask": np.ones_like(ids)}
    *_, vector = session.run(None, inputs)
    vectors.append(vector.reshape(-1))
  return np.array(vectors)


def score(vectors, pairs):
  scores, first, _ = pairs
  first, second = np.split(vectors[-2 * len(first) :], 2)
  return published.correlate_ranks(published.cosines(first, second), scores)


def test_vectors_are_those_of_the_graph(vectors, expected, texts, pairs):
  assert len(texts) == 600 + 2 * len(pairs[0])
  difference = np.abs(vectors - expected).max()
  ours, theirs = score(vectors, pairs), score(expected, pairs)
  print(
    f"\n| {difference:.1e} of {np.abs(expected).max():.2f} |"
    f" {theirs:.6f} | {ours:.6f} |"
  )
  assert difference < 2e-6
  assert theirs == pytest.approx(PUBLISHED, abs=1e-6)
  assert ours == pytest.approx(PUBLISHED, abs=1e-6)


def test_a_converted_model_is_the_same(texts, tmp_path):
  program_flags.run_main(
    convert_checkpoint,
    convert_checkpoint.ConversionSettings,
    input=paths.PARAPHRASE,
    output=tmp_path / "google",
    vocab_file=VOCABULARY,
  )
  vectors = extract(tmp_path, texts[:100], model=paths.PARAPHRASE)
  again = extract(tmp_path, texts[:100], model=tmp_path / "google")
  np.testing.assert_array_equal(again, vectors)
