"""How a loaded model is called from Python: what it takes, and what it gives.

Arrays, probabilities, vectors, wrong calls, pickles and threads.
"""

import inspect

import numpy as np
import pytest

import bert
from bert import extract_features
import sentence_folder
import tiny_models

TEXTS = ["the film was good", "bad", "", "a very very awful plot " * 2, "bad"]


@pytest.fixture(scope="module")
def encoder(tmp_path_factory):
  """Returns a folder of sentence-transformers, with an export and prompts."""
  folder = tmp_path_factory.mktemp("encoder")
  tiny_models.write_masked_lm(folder)
  tiny_models.write_modules(folder, max_seq_length=12)
  (folder / "config_sentence_transformers.json").write_text(
    '{"prompts": {"query": "a very bad "}, "default_prompt_name": null}'
  )
  tiny_models.run_export(folder, model_dir="", vocab_file="", model=folder)
  return folder


@pytest.fixture(scope="module")
def vector_model(encoder):
  return bert.load(encoder)


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
  folder = tmp_path_factory.mktemp("trained")
  tiny_models.write_trained(folder)
  tiny_models.run_export(folder)
  return folder


@pytest.fixture(scope="module")
def classifier(trained):
  return bert.load(trained / "export")


def make_texts(count):
  """Returns texts of 0 to 14 tokens, the same ones every time."""
  words = np.array("the film was good bad a very awful plot cast".split())
  random = np.random.default_rng(1)
  lengths = random.integers(0, 15, count)
  return [" ".join(random.choice(words, length)) for length in lengths]


def test_vectors_are_those_of_extract_features_to_the_bit(
  encoder, vector_model
):
  # Four batches, and two blocks of 4,096 lines.
  for count, batch_size in ((100, 2), (4100, 32)):
    texts = make_texts(count)
    wanted = sentence_folder.extract(
      encoder, texts, batch_size=batch_size, precision="float32"
    )
    found = vector_model.encode(texts, batch_size=batch_size)
    assert found.dtype == np.float32 and found.shape == (count, 16)
    np.testing.assert_array_equal(found, wanted)


def test_the_default_batch_size_is_that_of_extract_features():
  parameter = inspect.signature(bert.Model.encode).parameters["batch_size"]
  settings = extract_features.VectorSettings(
    input_file="-", output_file="-", init_checkpoint=""
  )
  assert parameter.default == settings.batch_size


def test_a_prompt_of_vectors_has_a_name(encoder, vector_model):
  wanted = sentence_folder.extract(
    encoder, TEXTS, prompt_name="query", precision="float32"
  )
  found = vector_model.encode(TEXTS, prompt_name="query")
  np.testing.assert_array_equal(found, wanted)
  assert np.abs(found - vector_model.encode(TEXTS)).max() > 0.01


def test_an_export_makes_the_same_vectors(encoder, vector_model):
  found = bert.load(encoder / "export").encode(TEXTS)
  assert found.dtype == np.float32
  np.testing.assert_allclose(found, vector_model.encode(TEXTS), atol=1e-5)
  # Pairs, and one input alone; `model()` gives the same numbers as lists.
  pairs = [("bad", "film"), {"text": "bad", "text_pair": "film"}, "bad"]
  found = vector_model.encode(pairs)
  np.testing.assert_allclose(found[0], found[1], atol=1e-6)
  assert np.abs(found[0] - found[2]).max() > 0.01
  answers = [answer["vector"] for answer in vector_model(pairs)]
  np.testing.assert_allclose(found, answers, atol=1e-6)
  one = vector_model.encode("bad")
  assert one.shape == (16,)
  np.testing.assert_allclose(one, found[2], atol=1e-6)
