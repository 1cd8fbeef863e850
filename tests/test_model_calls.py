"""How a loaded model is called from Python: what it takes, and what it gives.

Arrays, probabilities, vectors, wrong calls, pickles and threads.
"""

import collections
from concurrent import futures
import copy
import inspect
import json
import multiprocessing
import os
import pickle
import shutil
import subprocess
import sys

import numpy as np
import pytest

import bert
from bert import extract_features, loading
from bert import model as calls
from bert.data import files, progress
from bert.serving import export_card
from bert.weights import checkpoints
import paths
import sentence_folder
import tiny
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
  tiny_models.export_onnx(folder, model_dir="", vocab_file="", model=folder)
  return folder


@pytest.fixture(scope="module")
def vector_model(encoder):
  return bert.load(encoder)


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
  folder = tmp_path_factory.mktemp("trained")
  tiny_models.write_trained(folder)
  tiny_models.export_onnx(folder)
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


def test_all_ways_to_pass_several_texts(classifier):
  wanted = classifier(TEXTS)
  assert [type(answer) for answer in wanted] == [dict] * 5
  assert classifier(np.array(TEXTS)) == wanted
  assert classifier(np.array(TEXTS, object)) == wanted
  assert classifier(np.array(TEXTS, np.dtypes.StringDType())) == wanted
  assert classifier(collections.UserList(TEXTS)) == wanted
  assert classifier(np.array(TEXTS)[1]) == classifier("bad")
  # A tuple is a pair, one input.
  pair = classifier(("bad", "film"))
  assert type(pair) is dict and pair == classifier([("bad", "film")])[0]


def test_a_column_of_pandas(classifier):
  pandas = pytest.importorskip("pandas")
  table = pandas.DataFrame({"text": TEXTS}, index=[7, 5, 3, 1, 9])
  wanted = classifier(TEXTS)
  assert classifier(table["text"]) == wanted
  assert classifier(table["text"].astype("category")) == wanted
  shares = classifier.predict_proba(table["text"])
  np.testing.assert_array_equal(shares, classifier.predict_proba(TEXTS))
  table.loc[3, "text"] = None
  with pytest.raises(ValueError, match=r"inputs\[2\] is (float|NoneType)"):
    classifier(table["text"])
  with pytest.raises(ValueError, match="inputs: DataFrame of 2 dimensions"):
    classifier(table)


def test_no_texts(vector_model, classifier):
  for nothing in ([], np.array([]), collections.UserList()):
    assert classifier(nothing) == []
    assert classifier.predict_proba(nothing).shape == (0, 2)
    assert vector_model.encode(nothing).shape == (0, 16)
    assert vector_model.encode(nothing).dtype == np.float32


@pytest.mark.parametrize("case", ["single_label", "windows", "multi_label"])
def test_probabilities_are_those_of_the_answers(tmp_path, case):
  requests = tiny_models.write_case(tmp_path, case) * 3
  model = bert.load(tmp_path)
  found = model.predict_proba(requests)
  assert found.shape == (len(requests), 2) and found.dtype == np.float32
  assert model.labels == ("neg", "pos")
  for row, answer in zip(found, model(requests), strict=True):
    wanted = [answer["probabilities"][label] for label in model.labels]
    np.testing.assert_allclose(row, wanted, rtol=1e-5)
  if case != "multi_label":
    np.testing.assert_allclose(found.sum(1), 1.0, atol=1e-6)
  one = model.predict_proba(requests[0])
  assert one.shape == (2,)
  np.testing.assert_allclose(one, found[0], rtol=1e-5)


@pytest.mark.parametrize(
  "case", ["regression", "multiple_choice", "tagging", "question_answering"]
)
def test_only_a_classifier_gives_probabilities(tmp_path, case):
  requests = tiny_models.write_case(tmp_path, case)
  model = bert.load(tmp_path)
  message = f"predict_proba: {tmp_path} is a model for {case}; expected a class"
  with pytest.raises(ValueError, match=message):
    model.predict_proba(requests)
  with pytest.raises(
    ValueError, match=f"encode: {tmp_path} is a model for {case}, not"
  ):
    model.encode(requests)


INPUT = "expected str, a tuple or a dict with text, text_pair"


@pytest.mark.parametrize(
  ("texts", "message"),
  [
    (3, rf"inputs\[0\] is int \(3\), {INPUT}"),
    (None, rf"inputs\[0\] is NoneType \(None\), {INPUT}"),
    (b"bad", rf"inputs\[0\] is bytes \(b'bad'\), {INPUT}"),
    ({"a", "b"}, rf"inputs\[0\] is set \(\{{'.', '.'\}}\), {INPUT}"),
    (["a", None], r"inputs\[1\] is NoneType \(None\), exp"),
    (["a", ["b"]], r"inputs\[1\] is list \(\['b'\]\), exp"),
    (["a", b"b"], r"inputs\[1\] is bytes \(b'b'\), exp"),
    (["a", float("nan")], r"inputs\[1\] is float \(nan\), exp"),
    (np.array(["a", np.nan], object), r"inputs\[1\] is float \(nan\), exp"),
    (np.array([1.5]), r"inputs\[0\] is float \(1.5\), exp"),
    (np.array([b"a"]), r"inputs\[0\] is bytes \(b'a'\), exp"),
    (np.array([["a"]]), "inputs: ndarray of 2 dimensions; expected one dim"),
    (np.array("a"), "inputs: ndarray of 0 dimensions; expected one dim"),
    (["a", ("a", "b", "c")], r"inputs\[1\]: 3 texts; the model takes text, "),
    (["a", ()], r"inputs\[1\]: text is nothing, expected a string; the mod"),
    (["a", ("b", 5)], r"inputs\[1\]: text_pair is int, expected a string"),
    ([{"txt": "a"}], r"inputs\[0\]: txt is not read; the model takes text, "),
    ([{"question": "a"}], r"inputs\[0\]: question is not read; the model"),
    ([{"other": "a"}], r"inputs\[0\]: text is nothing, expected a string"),
    (["\ud800"], r"inputs\[0\]: text holds \\ud800, half of a surrogate pair"),
  ],
)
def test_wrong_texts(classifier, vector_model, texts, message):
  for call in (classifier, classifier.predict_proba, vector_model.encode):
    with pytest.raises(ValueError, match=f"^{message}") as error:
      call(texts)
    assert "\n" not in str(error.value)


def test_a_wrong_text_is_found_before_any_is_computed(classifier, monkeypatch):
  monkeypatch.delattr(classifier._model, "_engine")
  with pytest.raises(ValueError, match=r"inputs\[5000\] is int \(3\)"):
    classifier(["a"] * 5000 + [3])


@pytest.mark.parametrize(
  ("options", "error", "message"),
  [
    ({"batch_size": 0}, ValueError, "batch_size is 0, expected 1 or more"),
    ({"batch_size": 2.0}, TypeError, "'float' object cannot be interpreted"),
    ({"batch_size": "8"}, TypeError, "'str' object cannot be interpreted"),
    ({"prompt_name": "qery"}, ValueError, "prompt_name=qery: the prompts of"),
    ({"prompt_name": 3}, ValueError, "prompt_name=3: the prompts of the mod"),
    ({"size": 3}, TypeError, "unexpected keyword argument 'size'"),
  ],
)
def test_wrong_options_of_vectors(vector_model, options, error, message):
  for texts in (["a"], []):
    with pytest.raises(error, match=message):
      vector_model.encode(texts, **options)


def test_a_classifier_has_no_prompts(classifier):
  with pytest.raises(ValueError, match="prompt_name=query: only models of vec"):
    classifier(["a"], prompt_name="query")


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_a_vector_that_is_not_finite(encoder, value):
  model = bert.load(encoder)
  variables = checkpoints.model_variables(model._model._engine.trained.model)
  table = variables["bert/embeddings/word_embeddings"]
  values = table.numpy()
  vocabulary = (encoder / "vocab.txt").read_text().split()
  values[vocabulary.index("awful")] = value
  table.assign(values)
  message = r"^inputs\[2\]: the model's vector of 'an awful film' holds NaN or"
  with pytest.raises(ValueError, match=message):
    model.encode(["the film", "bad", "an awful film", "awful"])
  assert np.isfinite(model.encode(["the film", "bad"])).all()


def test_what_a_model_says_of_itself(
  trained, encoder, classifier, vector_model
):
  assert repr(classifier) == (
    "<bert.Model task=single_label, labels=neg, pos, max_seq_length=16, "
    f"engine=onnxruntime, folder={trained / 'export'}>"
  )
  assert repr(vector_model) == (
    "<bert.Model task=features, max_seq_length=12, engine=tensorflow, "
    f"folder={encoder}>"
  )


def test_a_pickle_holds_the_folder(trained, tmp_path, monkeypatch, capfd):
  # In another process and another folder, without TensorFlow.
  shutil.copytree(trained / "export", tmp_path / "model")
  monkeypatch.chdir(tmp_path)
  model = bert.load("model", threads=1)
  wanted = model(TEXTS)
  (tmp_path / "pickled").write_bytes(pickle.dumps(model))
  assert len(pickle.dumps(model)) < 500
  code = (
    "import json, pickle, sys; model = pickle.load(open(sys.argv[1], 'rb'))"
  )
  code += "; print(json.dumps(model(json.loads(sys.argv[2]))))"
  code += "; sys.exit('tensorflow' in sys.modules)"
  found = subprocess.check_output(
    [sys.executable, "-c", code, tmp_path / "pickled", json.dumps(TEXTS)],
    cwd=paths.ROOT,
  )
  assert json.loads(found) == wanted
  assert copy.deepcopy(model)(TEXTS) == wanted


def test_a_pickle_of_a_trained_folder(tmp_path):
  tiny_models.write_trained(tmp_path)
  model = bert.load(tmp_path)
  content = pickle.dumps(model)
  loaded = pickle.loads(content)
  assert loaded(TEXTS) == model(TEXTS)
  assert loaded.folder == str(tmp_path)
  # It was trained further: answers would be those of another model.
  trained = tiny_models.write_trained(tmp_path)
  trained.output_bias.assign([1.0, 0.0])
  checkpoints.save(
    str(tmp_path), 8, checkpoints.model_variables(trained), keep=1
  )
  with pytest.raises(ValueError, match="not those of the model that was pick"):
    pickle.loads(content)
  shutil.rmtree(tmp_path)
  with pytest.raises(ValueError, match="no such folder"):
    pickle.loads(content)


@pytest.mark.parametrize(
  "change", [{"labels": ["pos", "neg"]}, {"max_seq_length": 15}, {}]
)
def test_a_pickle_of_a_folder_that_answers_otherwise(trained, tmp_path, change):
  folder = shutil.copytree(trained / "export", tmp_path / "model")
  content = pickle.dumps(bert.load(folder))
  card = json.loads((folder / "export.json").read_text()) | change
  if not change:
    words = [*tiny.SPECIAL, *tiny.VOCABULARY[:4:-1]]
    (folder / "vocab.txt").write_text("\n".join(words) + "\n")
    digest = files.hash_file(str(folder / "vocab.txt"))
    card["hashes"]["vocab.txt"] = digest
  files.write_json(str(folder / "export.json"), export_card.seal(card))
  with pytest.raises(ValueError, match="model: it does not answer as the mod"):
    pickle.loads(content)
  # As a pickle of an earlier version, which does not say it.
  weights = bert.load(folder).weights_sha256
  assert loading.load_again(str(folder), 0, "", weights)


@pytest.mark.parametrize(
  "format",
  ["onnx", "memory", pytest.param("saved_model", marks=pytest.mark.slow)],
)
def test_several_threads_call_one_model(trained, encoder, format, tmp_path):
  folders = {"memory": trained, "onnx": trained / "export"}
  folder = folders.get(format, tmp_path)
  if format == "saved_model":
    tiny_models.run_export(trained, export_dir=tmp_path, format=format)
  model = bert.load(folder)
  texts = make_texts(60)
  wanted = model(texts)

  def answer(number):
    order = np.random.default_rng(number).permutation(len(texts))
    found = model([texts[index] for index in order])
    shares = model.predict_proba([texts[index] for index in order])
    return order, found, shares

  with futures.ThreadPoolExecutor(8) as pool:
    for order, found, shares in pool.map(answer, range(40)):
      expected = [wanted[index] for index in order]
      assert found == tiny_models.close(expected, abs=1e-5)
      first = [answer["probabilities"]["neg"] for answer in expected]
      np.testing.assert_allclose(shares[:, 0], first, atol=1e-5)


def test_progress_is_shown_above_ten_thousand_texts(
  classifier, vector_model, capsys, monkeypatch
):
  assert (calls._MOST_SILENT, calls._BLOCK) == (10_000, 4096)
  monkeypatch.setattr(calls, "_MOST_SILENT", 5)
  monkeypatch.setattr(calls, "_BLOCK", 3)
  monkeypatch.setattr(progress, "_SECONDS_PER_LINE", 0)
  classifier(["bad"] * 5)
  vector_model.encode(["bad"] * 5)
  assert not capsys.readouterr().err
  for call in (classifier, classifier.predict_proba, vector_model.encode):
    assert len(call(["bad"] * 7)) == 7
    first, second, third = capsys.readouterr().err.splitlines()
    assert first.startswith("3 of 7 texts  ")
    assert " texts/s  ETA " in second
    assert third.startswith("7 of 7 texts  ")
  # Numbers of inputs count over all blocks.
  with pytest.raises(ValueError, match=r"^inputs\[6\]: 3 texts; the model"):
    classifier(["bad"] * 6 + [("a", "b", "c")])


def test_importing_the_package_imports_nothing_that_takes_long():
  code = "import sys, bert; print(bert.__version__, [x for x in sys.modules if "
  code += "x.split('.')[0] in ('numpy', 'tensorflow', 'onnxruntime')])"
  command = [sys.executable, "-c", code]
  assert subprocess.check_output(command, cwd=paths.ROOT) == b"0.1 []\n"


def call_in_child(model, texts, connection):
  try:
    connection.send([answer["label"] for answer in model(texts)])
  except Exception as error:
    connection.send(repr(error))


def ask_forked(model, texts):
  """Returns what a process that is forked now makes of texts."""
  context = multiprocessing.get_context("fork")
  ours, theirs = context.Pipe()
  child = context.Process(target=call_in_child, args=(model, texts, theirs))
  child.start()
  theirs.close()
  try:
    assert ours.poll(60), "it hangs"
    return ours.recv()
  finally:
    child.kill()
    child.join()


@pytest.mark.filterwarnings("ignore:.*fork")
def test_a_forked_process_says_that_tensorflow_would_wait(trained):
  said = ask_forked(bert.load(trained), ["good"])
  assert "was forked from one in which TensorFlow has computed" in said


# Loaded where nothing else has used TensorFlow, and called in a fork.
_LOADED_ALONE = """
import sys
sys.path.append("tests/helpers")
import bert, test_model_calls
model = bert.load(sys.argv[1])
print(test_model_calls.ask_forked(model, ["good"]))
"""


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:.*fork")
def test_a_saved_model_says_so_too(trained):
  folder = tiny_models.run_export(trained, "saved", format="saved_model")
  command = [sys.executable, "-c", _LOADED_ALONE, str(folder)]
  places = os.pathsep.join(["tests", str(paths.ROOT)])
  said = subprocess.run(
    command,
    cwd=paths.ROOT,
    env={**os.environ, "PYTHONPATH": places},
    capture_output=True,
    text=True,
  )
  assert "was forked from one in which" in said.stdout, said.stderr


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:.*fork")
def test_a_forked_process_can_use_an_onnx_export(classifier):
  texts = make_texts(64)
  expected = [answer["label"] for answer in classifier(texts)]
  assert ask_forked(classifier, texts) == expected
