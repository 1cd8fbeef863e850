"""Encoders of sentences: exports that pool and normalise, and Python."""

import json
import shutil
import urllib.request

import numpy as np
import pytest
import tensorflow as tf

import bert
from bert import run_embedding, search
from bert.serving import answers, exported_model
import browser
import program_flags
import sentence_folder
import tiny
import tiny_models

TEXTS = [
  "the film was good",
  "bad",
  "",
  "a very very awful plot " * 2 + "a film",
]


@pytest.fixture(scope="module")
def encoder(tmp_path_factory):
  """Returns a folder of sentence-transformers: means of length 1."""
  folder = tmp_path_factory.mktemp("encoder")
  tiny_models.write_masked_lm(folder)
  tiny_models.write_modules(folder, max_seq_length=12)
  return folder


@pytest.fixture(scope="module")
def expected(encoder):
  """Returns what extract_features.py makes of the texts."""
  return sentence_folder.extract(encoder, TEXTS)


def export(folder, name="export", format="onnx", **flags):
  flags = {"model_dir": "", "vocab_file": "", "model": folder, **flags}
  flags["format"] = format
  return tiny_models.run_export(folder, name, **flags)


def vectors_of(folder, texts=TEXTS):
  return np.array([answer["vector"] for answer in bert.load(folder)(texts)])


@pytest.mark.parametrize("format", ["onnx", "saved_model"])
def test_an_export_makes_the_vectors_of_its_folder(
  encoder, expected, format, capsys
):
  # It has a masked-LM head too, but its folder says what it is for.
  path = export(encoder, format, format=format)
  printed = capsys.readouterr()
  line = "--pooling=mean --normalize=true --max_seq_length=12, as "
  line += "sentence-transformers' files in "
  assert f"{line}{encoder} say\n" in printed.err
  assert "max_seq_length 12  layer -1  pooling mean  normalize\n" in printed.out
  found = vectors_of(path)
  np.testing.assert_allclose(found, expected, atol=1e-5)
  np.testing.assert_allclose(np.linalg.norm(found, axis=1), 1.0, atol=1e-5)
  command = program_flags.command("predict", export_dir=path, text=TEXTS[0])
  answer = json.loads(program_flags.run_here(command).stdout)
  np.testing.assert_allclose(answer["vector"], expected[0], atol=1e-5)


def test_the_folder_itself_makes_them_in_python(encoder, expected):
  model = bert.load(encoder)
  assert model.task == "features"
  assert model(TEXTS[3])["truncated"] and not model(TEXTS[0])["truncated"]
  np.testing.assert_allclose(vectors_of(encoder), expected, atol=1e-5)


def test_flags_replace_what_the_folder_states(encoder, expected):
  path = export(encoder, "longer", max_seq_length=16, normalize=False)
  assert not bert.load(path)(TEXTS[3])["truncated"]
  found = vectors_of(path, TEXTS[:3])
  sizes = np.linalg.norm(found, axis=1, keepdims=True)
  assert np.abs(sizes - 1.0).min() > 0.1
  np.testing.assert_allclose(found / sizes, expected[:3], atol=1e-5)
  path = export(encoder, "cls", pooling="cls")
  assert not np.allclose(vectors_of(path), expected, atol=0.1)


def copy_model(encoder, folder):
  """Copies a model without its exports."""
  exports = [path.parent.name for path in encoder.glob("*/export.json")]
  shutil.copytree(encoder, folder, ignore=shutil.ignore_patterns(*exports))


PROMPTS = {"query": "a very bad ", "passage": "THE "}


@pytest.fixture(scope="module")
def prompted(encoder, tmp_path_factory):
  """Returns the folder with prompts, of which one is the default."""
  folder = tmp_path_factory.mktemp("prompted") / "model"
  copy_model(encoder, folder)
  settings = {"prompts": PROMPTS, "default_prompt_name": "query"}
  path = folder / "config_sentence_transformers.json"
  path.write_text(json.dumps(settings))
  return folder


def extract(folder, texts=TEXTS, **flags):
  return sentence_folder.extract(folder, texts, **flags)


def test_a_default_prompt_is_applied_and_said(encoder, prompted, capsys):
  wanted = vectors_of(encoder, [PROMPTS["query"] + text for text in TEXTS])
  assert np.abs(wanted - vectors_of(encoder)).max() > 0.01
  capsys.readouterr()
  np.testing.assert_allclose(extract(prompted), wanted, atol=1e-5)
  line = "'a very bad ' precedes every text: the prompt query, the default\n"
  assert line in capsys.readouterr().err
  np.testing.assert_allclose(vectors_of(prompted), wanted, atol=1e-5)
  assert line in capsys.readouterr().err
  for format in ("onnx", "saved_model"):
    path = export(prompted, format, format=format)
    np.testing.assert_allclose(vectors_of(path), wanted, atol=1e-5)
  assert "prompts query, passage  default_prompt_name query" in (
    capsys.readouterr().out
  )
  serve = tf.saved_model.load(path).signatures["serving_default"]
  found = serve(text=tf.constant(TEXTS), text_pair=tf.constant([""] * 4))
  np.testing.assert_allclose(found["vectors"], wanted, atol=1e-5)
  # A pooling of the user's own changes nothing else that the files state.
  flags = {"pooling": "mean", "normalize": True, "layers": "-1"}
  found = extract(prompted, **flags)
  np.testing.assert_allclose(found, wanted, atol=1e-5)


def test_other_prompts_have_names(encoder, prompted):
  wanted = vectors_of(encoder, [PROMPTS["passage"] + text for text in TEXTS])
  found = extract(prompted, prompt_name="passage")
  np.testing.assert_allclose(found, wanted, atol=1e-5)
  path = export(prompted, "named")
  for folder in (prompted, path):
    model = bert.load(folder)
    found = [answer["vector"] for answer in model(TEXTS, prompt_name="passage")]
    np.testing.assert_allclose(found, wanted, atol=1e-5)
    with pytest.raises(
      ValueError, match="prompt_name=title: the prompts of th"
    ):
      model(TEXTS, "title")
  request = {"text": TEXTS[0], "prompt_name": "passage"}
  found = model([request])[0]["vector"]
  np.testing.assert_allclose(found, wanted[0], atol=1e-5)
  # A server applies a name beside the inputs to all that have none.
  address = browser.serve(exported_model.ExportedModel(path))
  other = {"text": TEXTS[1], "prompt_name": "query"}
  inputs = [{"text": TEXTS[0]}, other]
  body = json.dumps({"inputs": inputs, "prompt_name": "passage"}).encode()
  with urllib.request.urlopen(f"{address}predict", body) as response:
    answers = json.load(response)["outputs"]
  expected = [wanted[0], model([other])[0]["vector"]]
  found = [answer["vector"] for answer in answers]
  np.testing.assert_allclose(found, expected, atol=1e-5)
  with pytest.raises(ValueError, match=r"prompt_name=\['x'\]: the prompts of"):
    model([{"text": TEXTS[0], "prompt_name": ["x"]}])
  with pytest.raises(ValueError, match="-prompt_name=x: the prompts of the mo"):
    extract(prompted, prompt_name="x")
  with pytest.raises(ValueError, match="-prompt_name=x: .* of the model: none"):
    extract(encoder, prompt_name="x")
  with pytest.raises(
    ValueError, match="--prompt_name: --pooling=none makes no"
  ):
    extract(prompted, prompt_name="query", pooling="none")


def test_a_training_refuses_a_model_with_a_default_prompt(prompted, tmp_path):
  pairs = tiny.write_partners(tmp_path / "train.tsv", range(16))
  with pytest.raises(ValueError, match="ask for a prompt before every text"):
    program_flags.run_main(
      run_embedding,
      run_embedding.EmbeddingSettings,
      model=prompted,
      train_file=pairs,
      do_train=True,
      output_dir=tmp_path / "out",
    )
  assert not (tmp_path / "out").exists()


def test_search_has_prompts_for_queries_and_lines(prompted, tmp_path, capsys):
  (tmp_path / "in.txt").write_text("good\nthe film\n")
  model = bert.load(prompted)

  def score(index, **names):
    program_flags.run_main(
      search,
      search.SearchSettings,
      model=prompted,
      input_file=tmp_path / "in.txt",
      index_file=tmp_path / index,
      output_file=tmp_path / "out.jsonl",
      query="good",
      **names,
    )
    answer = json.loads((tmp_path / "out.jsonl").read_text())
    return {item["text"]: item["score"] for item in answer["results"]}

  names = {"prompt_name": "query", "line_prompt_name": "passage"}
  query, line = (model("good", name)["vector"] for name in names.values())
  assert score("one", **names)["good"] == pytest.approx(
    np.dot(query, line), abs=2e-3
  )
  said = capsys.readouterr().err
  assert "'a very bad ' precedes every query: the prompt query\n" in said
  assert "'THE ' precedes every line: the prompt passage\n" in said
  assert score("two")["good"] == pytest.approx(1.0, abs=2e-3)
  for flag in names:  # Before any work.
    with pytest.raises(ValueError, match=f"--{flag}=x: the prompts of the mod"):
      score("three", **{flag: "x"})
  assert not (tmp_path / "three").exists()
  with pytest.raises(ValueError, match="lines with the prompt passage, not No"):
    score("one", prompt_name="query")


def test_text_is_lower_cased_before_a_cased_tokenizer(encoder, tmp_path):
  folder = tmp_path / "lower"
  copy_model(encoder, folder)
  tiny_models.write_modules(folder, max_seq_length=12, do_lower_case=True)
  (folder / "tokenizer_config.json").write_text('{"do_lower_case": false}')
  words = (folder / "vocab.txt").read_text().split("\n")
  words[-2:-1] = ["caf\xe9"]
  (folder / "vocab.txt").write_text("\n".join(words))
  lower, upper = (
    ["the caf\xe9 \u03c3\u03b1\u03c3", "bad"],
    ["THE CAF\xc9", "BAD"],
  )
  upper[0] += " \u03a3\u0391\u03a3"
  wanted = extract(folder, lower)
  np.testing.assert_allclose(extract(folder, upper), wanted, atol=1e-6)
  np.testing.assert_allclose(vectors_of(folder, upper), wanted, atol=1e-5)
  path = export(folder, "lower", format="saved_model")
  np.testing.assert_allclose(vectors_of(path, upper), wanted, atol=1e-5)
  serve = tf.saved_model.load(path).signatures["serving_default"]
  found = serve(text=tf.constant(upper), text_pair=tf.constant([""] * 2))
  np.testing.assert_allclose(found["vectors"], wanted, atol=1e-5)


def test_a_folder_of_transformers_5(encoder, expected, tmp_path):
  """It has no vocab.txt, and its length is the tokenizer's."""
  folder = tmp_path / "five"
  copy_model(encoder, folder)
  (folder / "sentence_bert_config.json").unlink()
  (folder / "vocab.txt").unlink()
  vocab = {word: i for i, word in enumerate(tiny.VOCABULARY)}
  whole = {"model": {"type": "WordPiece", "vocab": vocab}}
  (folder / "tokenizer.json").write_text(json.dumps(whole))
  settings = {"model_max_length": 12, "do_lower_case": True}
  (folder / "tokenizer_config.json").write_text(json.dumps(settings))
  np.testing.assert_allclose(vectors_of(folder), expected, atol=1e-5)
  np.testing.assert_allclose(extract(folder), expected, atol=1e-5)
  path = export(folder)
  np.testing.assert_allclose(vectors_of(path), expected, atol=1e-5)
  lines = (tmp_path / "five" / "export" / "vocab.txt").read_text()
  assert lines == "".join(f"{word}\n" for word in tiny.VOCABULARY)


def test_settings_of_a_training_do_not_make_it_a_classifier(
  encoder, expected, tmp_path
):
  folder = tmp_path / "encoder"
  copy_model(encoder, folder)
  path = folder / "settings.json"
  for problem in ("embedding", None, ["regression"]):
    path.write_text(json.dumps({"problem": problem}))
    np.testing.assert_allclose(vectors_of(folder), expected, atol=1e-5)
  path.write_text(json.dumps({"problem": "regression"}))
  with pytest.raises(ValueError, match="vocab_file_sha256 is None"):
    bert.load(folder)


def test_an_earlier_export_with_vectors_of_any_length_is_not_refused(tmp_path):
  """Its card does not say `normalize`."""
  maker = tiny_models.make_maker(
    tmp_path, ["text"], "features", layer=-1, pooling="mean"
  )
  settings = {**maker.card.settings, "max_seq_length": tiny.SEQUENCE}
  answers.check_settings("features", settings, tiny.SEQUENCE)


def test_int8_is_compared_by_cosines(encoder, tmp_path):
  words = "film plot cast was good bad very".split()
  texts = tmp_path / "texts.txt"
  texts.write_text(
    "".join(f"{words[i % 7]} {words[i % 5]}\n" for i in range(60))
  )
  flags = {"quantize": "int8", "eval_file": texts, "max_changed": 1}
  found = bert.load(export(encoder, "int8", **flags))._model.card.quantization
  assert found["answers"] == 60 and "; cosines 1.0000" in found["detail"]


def test_a_folder_without_weights_or_vocabulary(encoder, tmp_path):
  tiny_models.write_modules(tmp_path)
  with pytest.raises(ValueError, match="expected the --export_dir of"):
    bert.load(tmp_path)
  (tmp_path / "vocab.txt").write_bytes((encoder / "vocab.txt").read_bytes())
  with pytest.raises(ValueError, match="no checkpoint there; the folder holds"):
    bert.load(tmp_path)
