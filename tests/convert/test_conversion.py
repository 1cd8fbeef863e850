"""Checkpoints converted there and back, changed, or refused in one line."""

import dataclasses
import functools
import json
import os
import pathlib
import re
import shutil
import sys
import types

import keras
import numpy as np
import pytest
import safetensors.numpy
import tensorflow as tf

import any_model
import bert
from bert import heads, run_classifier
from bert.cli import model_folder, output_folder, shared_flags
from bert.contrib import feature_tagger
from bert.convert import conversion, tokenizer_files, writing
from bert.data import sbert_files
from bert.vocabularies import vocabulary_table
from bert.weights import checkpoints
import paths
import program_flags
import tiny_models

needs_data = pytest.mark.skipif(
  not paths.SHARED.is_dir(), reason=f"no checkpoints in {paths.SHARED}"
)

SIZES = {"vocab_size": 12, "intermediate_size": 16}
CONFIG = dataclasses.replace(
  any_model.CONFIG, **SIZES, max_position_embeddings=6
)
ADAM, LAMB = ("adam_m", "adam_v"), ("LAMB", "LAMB_1")
TABLE = "embeddings.word_embeddings.weight"
VOCABULARY = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *"abcdefg"]


@pytest.fixture(autouse=True)
def own_folder(tmp_path, monkeypatch):
  monkeypatch.chdir(tmp_path)


convert = any_model.convert
write_google = functools.partial(
  any_model.write_google, config=CONFIG, tokens=VOCABULARY
)


def write_theirs(folder, **values):
  folder = pathlib.Path(folder)
  write_google(folder.parent / "source", **values)
  convert(input=folder.parent / "source", output=folder)
  return folder


def assert_equal(found, expected):
  assert sorted(found) == sorted(expected)
  for name, value in expected.items():
    assert found[name].dtype == value.dtype, name
    assert found[name].tobytes() == value.tobytes(), name


def names(folder="."):
  return sorted(os.listdir(folder))


def refuses(message, **values):
  """Asserts that a conversion ends with a line."""
  with pytest.raises((ValueError, OSError)) as caught:
    convert(**values)
  assert message in str(caught.value) and "\n" not in str(caught.value)


def read_json(path):
  return json.loads(pathlib.Path(path).read_text())


@pytest.mark.parametrize(
  "make_model",
  [
    heads.PretrainingModel,
    heads.SpanModel,
    lambda config: heads.ClassifierModel(config, 3),
    lambda config: feature_tagger.FeatureTaggerModel(
      config, 3, feature_layers=[-1], lstm_size=4
    ),
  ],
)
def test_there_and_back_is_equal_bit_for_bit(make_model):
  here, there, back = map(pathlib.Path, ("here", "there", "back"))
  before = write_google(here, make_model(CONFIG), slots=ADAM)
  assert convert(input=here, output=there) is None
  convert(input=there, output=back)
  assert_equal(any_model.values(back), before)
  # A training resumes from it: the step is in the name.
  assert checkpoints.latest_checkpoint(str(back)) == f"{back}/model.ckpt-7"
  for name in ("bert_config.json", "vocab.txt"):
    assert (back / name).read_bytes() == (here / name).read_bytes()


def test_the_files_of_sentence_transformers_are_kept():
  here, there, back = map(pathlib.Path, ("here", "there", "back"))
  write_google(here)
  tiny_models.write_modules(here)
  prompts = {"prompts": {"query": "Q: "}, "default_prompt_name": "query"}
  content = json.dumps(prompts)
  (here / "config_sentence_transformers.json").write_text(content)
  # The length that version 6 states is in a file that Google's lacks.
  (here / "tokenizer_config.json").write_text('{"model_max_length": 5}')
  before = sbert_files.read(str(here))
  assert (before["max_seq_length"], before["prompts"]) == (5, {"query": "Q: "})
  convert(input=here, output=there)
  convert(input=there, output=back)
  assert sbert_files.read(str(there)) == before
  assert sbert_files.read(str(back)) == before
  (here / "modules.json").write_text("[]")
  refuses("makes vectors with ; expected", input=here, output="other")


@pytest.mark.parametrize(
  ("name", "package"),
  [("vocab.accents", "tokenizers"), ("vocab.unidic_lite", "fugashi")],
)
def test_the_kind_of_a_vocabulary_travels(name, package):
  transformers = pytest.importorskip("transformers")
  pytest.importorskip(package)
  letters = [*"aà猫b", "##à", "##は"]
  write_google("here", tokens=[*VOCABULARY[:5], *letters])
  os.rename("here/vocab.txt", f"here/{name}")
  convert(input="here", output="there", do_lower_case=True)
  convert(input="there", output="back")
  assert (name in names("back"), "vocab.txt" in names("there")) == (True, True)
  text = "AÀ 猫は B"
  ours = vocabulary_table.make_tokenizer(f"back/{name}")
  theirs = transformers.AutoTokenizer.from_pretrained("there")
  assert theirs.tokenize(text) == ours.tokenize(text)
  assert "à" in "".join(ours.tokenize(text))

  # As that library writes it: a tokenizer.json, if it has one.
  theirs.save_pretrained("again")
  kind, _ = tokenizer_files.read_kind("again")
  assert kind.name == name
  # KerasHub's files do not say it.
  refuses_keras = pytest.raises(ValueError, match="pass --output_format=google")
  with refuses_keras:
    writing.write("keras_hub", "keras", any_model.read("back"))


def test_a_flag_says_the_kind_of_a_vocabulary(theirs):
  convert(input=theirs, output="here", strip_accents=False, do_lower_case=True)
  assert "vocab.accents" in names("here")
  # Cased text keeps its accents anyway.
  convert(input=theirs, output="x", strip_accents=False, do_lower_case=False)
  assert "vocab.txt" in names("x")


@needs_data
@pytest.mark.parametrize("case", ["pretrained", "mrpc", "squad"])
def test_the_original_s_checkpoints_there_and_back(case):
  source = paths.SHARED / "golden/e2e" / case
  vocabulary = paths.SHARED / "data/vocab/uncased_vocab.txt"
  convert(input=source, output="there", vocab_file=vocabulary)
  convert(input="there", output="back")
  assert_equal(any_model.values("back"), any_model.values(source))


def test_rows_without_a_token_are_counted(theirs, capsys):
  convert(input=theirs, output="out", resize_vocab=200)
  assert "rows of embeddings without a token: 188\n" in capsys.readouterr().out
  assert model_folder.open_model("out").config.vocab_size == 200


def test_another_epsilon_is_followed(theirs):
  """Some models of Hugging Face's were trained with 1e-5."""
  here, there, back = map(pathlib.Path, ("here", "there", "back"))
  shutil.copytree(theirs, here)
  any_model.edit_json(here / "config.json", layer_norm_eps=1e-5)
  convert(input=here, output=there)
  convert(input=there, output=back)
  assert read_json(there / "bert_config.json")["layer_norm_eps"] == 1e-5
  assert read_json(back / "config.json") == read_json(here / "config.json")
  for folder in (here, there):
    encoder, _ = model_folder.make_encoder(model_folder.open_model(str(folder)))
    epsilons = {
      layer.epsilon
      for layer in encoder._flatten_layers()
      if isinstance(layer, keras.layers.LayerNormalization)
    }
    assert epsilons == {1e-5}
  pytest.importorskip("keras_hub")
  message = "its encoder or its vocabulary is not BERT's"
  refuses(message, input=there, output="hub", output_format="keras_hub")


def test_a_dense_kernel_is_transposed_and_a_table_is_not():
  before = write_google("here")
  convert(input="here", output="there")
  file = safetensors.numpy.load_file("there/model.safetensors")
  kernel = before["bert/encoder/layer_1/intermediate/dense/kernel"]
  stored = file["bert.encoder.layer.1.intermediate.dense.weight"]
  assert stored.shape == (16, 8) and np.array_equal(stored, kernel.T)
  table = before["cls/seq_relationship/output_weights"]
  assert np.array_equal(file["cls.seq_relationship.weight"], table)


@pytest.mark.parametrize("slots", [ADAM, LAMB])
def test_says_what_is_where_and_strips(capsys, slots):
  write_google("here", slots=slots)
  convert(input="here", output="whole")
  said, end, *block = capsys.readouterr().out.splitlines()
  assert said == "read here/model.ckpt-7: 2 layers of 8, --head=pretraining"
  assert re.fullmatch(r"finished in \d+\.\d s", end)
  assert block == [
    "  wrote whole:",
    "    model.safetensors: 46 variables, for BertForPreTraining",
    "    google_only.safetensors, which a conversion back reads: 92 slots, "
    "global_step; BertForPreTraining has no place for that",
    "    config.json: hidden_act is gelu_pytorch_tanh",
    "    vocab.txt: 12 tokens, do_lower_case=true",
    "  next: python fill_mask.py --model=whole '--text=This is a [MASK].'",
  ]
  convert(input="here", output="stripped", strip=True, output_format="google")
  said = capsys.readouterr().out
  assert "left out: 93 variables of the state of the training" in said
  assert names("stripped") == [
    "README.md",
    "bert_config.json",
    "bert_model.ckpt.data-00000-of-00001",
    "bert_model.ckpt.index",
    "vocab.txt",
  ]
  kept = any_model.values("stripped")
  assert len(kept) == 46 and not any(name.endswith(slots) for name in kept)
  convert(input="here", output="hf", strip=True)
  assert "google_only.safetensors" not in names("hf")


def test_float16_rounds_weights_and_no_slots():
  before = write_google("here", slots=ADAM)
  convert(input="here", output="half", output_format="google", float16=True)
  for name, value in any_model.values("half").items():
    is_weight = "adam" not in name and name != "global_step"
    expected = before[name].astype("f2") if is_weight else before[name]
    assert value.dtype == expected.dtype and np.array_equal(value, expected)
  convert(input="here", output="hf", strip=True, float16=True)
  assert read_json("hf/config.json")["dtype"] == "float16"
  any_model.load("hf", heads.PretrainingModel(CONFIG))  # Widened.


def test_dtypes_that_numpy_or_safetensors_lack():
  before = write_google("here")
  name = "bert/pooler/dense/bias"
  half = tf.cast(before[name], tf.bfloat16)
  prefix = checkpoints.write("here", {**before, name: half}, 7)
  values = any_model.read(prefix).values
  assert values[name].dtype == np.float32
  assert np.array_equal(values[name], tf.cast(half, tf.float32))
  text = tf.constant(["a"])
  checkpoints.write("here", {**before, "text": text}, 7)
  refuses("pass the --head to keep", input="here", output="there")
  convert(input="here", output="ok", head="pretraining")


@pytest.mark.parametrize(
  ("name", "value", "message"),
  [
    ("output_bias", 1.0, "output_bias holds float32 with 0 axes; expected flo"),
    ("cls/predictions/output_bias", [1] * 12, "output_bias holds int32 with 1"),
  ],
)
def test_a_head_is_arrays_of_floats(name, value, message):
  before = write_google("here")
  checkpoints.write("here", {**before, name: tf.constant(value)}, 7)
  refuses(message, input="here", output="there")


def test_float16_refuses_what_overflows(theirs):
  model = any_model.read(theirs)
  values = {"output_bias": np.float32([1.0, 1e5])}
  with pytest.raises(ValueError, match="--float16: output_bias holds 100000.0"):
    conversion.to_float16(dataclasses.replace(model, values=values))


def test_positions_are_repeated():
  write_google("here", slots=ADAM)
  convert(input="here", output="long", grow_positions=14)
  assert read_json("long/config.json")["max_position_embeddings"] == 14
  before, after = map(any_model.values, ("here", "long"))
  name = "bert/embeddings/position_embeddings"
  old = before[name]
  assert np.array_equal(after[name], np.concatenate([old, old, old[:2]]))
  assert np.array_equal(after[f"{name}/adam_v"][:6], before[f"{name}/adam_v"])
  assert not after[f"{name}/adam_v"][6:].any()


def test_positions_are_interpolated():
  write_google("here", slots=ADAM)
  flags = {"grow_positions": 11, "new_positions": "interpolated"}
  convert(input="here", output="long", **flags)
  before, after = map(any_model.values, ("here", "long"))
  name = "bert/embeddings/position_embeddings"
  for variable in (name, f"{name}/adam_v"):
    old = before[variable]
    # Every second one of 11 rows is one of the 6, those between their means.
    np.testing.assert_allclose(after[variable][::2], old, rtol=1e-6)
    means = (old[1:] + old[:-1]) / 2
    np.testing.assert_allclose(after[variable][1::2], means, rtol=1e-6)
  assert after[name].dtype == before[name].dtype


def test_new_tokens_get_rows_like_new_weights():
  write_google("here")
  vocabulary = pathlib.Path("more.txt")
  tokens = [*VOCABULARY, *(f"new{number}" for number in range(500))]
  vocabulary.write_text("\n".join(tokens) + "\n")
  arguments = {"input": "here", "vocab_file": vocabulary, "resize_vocab": 512}
  name = "bert/embeddings/word_embeddings"
  tables = []
  for output, seed in (("one", 1), ("same", 1), ("two", 2)):
    convert(output=output, seed=seed, **arguments)
    tables.append(any_model.values(output)[name])
  before = any_model.values("here")
  assert np.array_equal(tables[0], tables[1])
  assert not np.array_equal(tables[0], tables[2])
  assert np.array_equal(tables[0][:12], before[name])
  new = tables[0][12:]
  assert np.abs(new).max() <= 0.04 and 0.016 < new.std() < 0.019
  bias = any_model.values("one")["cls/predictions/output_bias"]
  assert bias.shape == (512,) and not bias[12:].any()


def test_labels_and_problems_travel(capsys):
  settings = '{"problem": "multi_label", "do_lower_case": false}'
  texts = {"labels_txt": "bad\n\u597d\n", "settings_json": settings}
  write_google("here", heads.ClassifierModel(CONFIG, 2), **texts)
  convert(input="here", output="there")
  found = read_json("there/config.json")
  assert found["architectures"] == ["BertForSequenceClassification"]
  assert found["id2label"] == {"0": "bad", "1": "\u597d"}
  assert found["label2id"] == {"bad": 0, "\u597d": 1}
  assert found["problem_type"] == "multi_label_classification"
  assert not read_json("there/tokenizer_config.json")["do_lower_case"]
  convert(input="there", output="back")
  assert pathlib.Path("back/labels.txt").read_text() == "bad\n\u597d\n"
  assert read_json("back/settings.json")["problem"] == "multi_label"
  said = capsys.readouterr().out
  assert said.count("problem: multi_label, without tuned thresholds: 0.5") == 2
  convert(input="back", output="bare", head="encoder", output_format="google")
  assert not {"labels.txt", "settings.json"} & {*names("bare")}
  # Its vocabulary looks like that of a model of lower-cased text.
  convert(input="back", output="again")
  assert not read_json("again/tokenizer_config.json")["do_lower_case"]
  # Without a problem_type, transformers takes names of labels for classes.
  any_model.edit_json(pathlib.Path("there/config.json"), problem_type="drop")
  assert model_folder.open_model("there").problem == "single_label"


@pytest.mark.parametrize(
  ("problem", "count", "labels"),
  [
    ("single_label", 3, ("LABEL_0", "LABEL_1", "LABEL_2")),
    ("regression", 1, ()),
  ],
)
def test_a_head_of_which_nothing_is_stated(
  tmp_path, capsys, problem, count, labels
):
  """As transformers saves one whose labels nobody named."""
  make_model = functools.partial(heads.ClassifierModel, num_labels=count)
  names = tuple("abc"[:count])
  tiny_models.write_trained(tmp_path / "run", problem, make_model, names)
  if problem == "regression":
    (tmp_path / "run" / "labels.txt").unlink()
  convert(input=tmp_path / "run", output="there")
  any_model.edit_json(
    pathlib.Path("there/config.json"),
    **dict.fromkeys(("id2label", "label2id", "problem_type"), "drop"),
  )
  pathlib.Path("there/google_only.json").unlink()
  model = any_model.read("there")
  assert (model.problem, model.labels) == (problem, labels)
  convert(input="there", output="back")
  line = "how it answers is not known: pass --max_seq_length and the like, or"
  assert f"problem: {problem}; {line} it reads 16" in capsys.readouterr().out
  assert bert.load("back").task == problem
  # A training from it is free to name its labels.
  assert initial_labels("there") == ()


def test_a_temperature_is_not_converted_silently(tmp_path, capsys):
  run = tmp_path / "run"
  tiny_models.write_trained(run)
  (run / "temperature.json").write_text("{}")
  convert(input=run, output="there")
  line = "problem: single_label, without its temperature: probabilities as the"
  assert line in capsys.readouterr().out
  assert line in pathlib.Path("there/README.md").read_text()


@pytest.mark.parametrize(
  "problem",
  ["multi_label", pytest.param("regression", marks=pytest.mark.slow)],
)
def test_a_converted_classifier_answers_as_its_run(tmp_path, capsys, problem):
  run, long = tmp_path / "run", "a very good film and the plot was poor " * 2
  rows = f"good film,bad\nvery poor plot,awful\n{long},bad\n"
  count = 1 if problem == "regression" else 2
  make_model = functools.partial(heads.ClassifierModel, num_labels=count)
  tiny_models.write_trained(run, problem, make_model)
  if problem == "regression":
    (run / "labels.txt").unlink()
  # The model has 16 positions, the default are 128 tokens.
  answers = {"max_seq_length": 9, "doc_stride": 2, "window_pooling": "max"}
  (run / "prediction.json").write_text(json.dumps(answers))
  convert(input=run, output="there")
  convert(input="there", output="back")
  convert(input=run, output="same", output_format="google")
  for folder in ("back", "same"):
    assert read_json(f"{folder}/prediction.json") == answers
  (tmp_path / "new.csv").write_text(rows)
  flags = {"task_name": "file", "predict_file": "new.csv", "do_predict": True}
  flags |= {"header": "no", "text_column": 0, "text_pair_column": 1}
  predicted = {}
  for model in ("run", "there", "back", "same"):
    program_flags.run_main(
      run_classifier,
      run_classifier.ClassifierSettings,
      **{**flags, "model": model, "output_dir": f"{model}_out"},
    )
    said = capsys.readouterr().err
    for flag in (f"problem={problem}", "max_seq_length=9", "doc_stride=2"):
      assert f"--{flag}, as {model}" in said
    predicted[model] = pathlib.Path(f"{model}_out/predictions.tsv").read_text()
  assert len({*predicted.values()}) == 1
  model = bert.load("back")
  assert model.task == problem and model.inputs == ("text", "text_pair")
  # A task of fixed files is of its own problem.
  pathlib.Path("test.tsv").write_text("index\tsentence\n0\tGood film.\n")
  flags = {"task_name": "cola", "data_dir": ".", "do_predict": True}
  with pytest.raises(ValueError, match="--problem: --task_name=file takes it"):
    program_flags.run_main(
      run_classifier,
      run_classifier.ClassifierSettings,
      **{**flags, "model": "there", "output_dir": "out"},
    )


def initial_labels(path):
  open_model = functools.partial(model_folder.open_model, str(path))
  settings = shared_flags.StartSettings(
    init_checkpoint=str(path), open_model=open_model
  )
  return settings.initial_labels()


@pytest.mark.parametrize(
  ("names", "labels"),
  [
    ({"0": "neg", "1": "pos"}, ("neg", "pos")),
    ({"1": "neg", "0": "pos"}, ("pos", "neg")),
    ({"0": "LABEL_0", "1": "LABEL_1"}, ()),  # Nobody named them.
    ("drop", ()),
  ],
)
def test_labels_of_a_hugging_face_folder(names, labels, theirs):
  folder = pathlib.Path("there")
  shutil.copytree(theirs, folder)
  any_model.edit_json(folder / "config.json", id2label=names)
  assert model_folder.open_model(str(folder)).labels == labels
  opened = model_folder.open_model(str(folder / "model.safetensors"))
  assert (opened.source, opened.labels) == (str(folder), labels)
  # The labels are of a head that is not read.
  assert initial_labels(folder) == ()


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_no_file_stays_mapped(theirs):
  """Its pages would count as memory of the process, beside the model's."""
  folder = pathlib.Path("there")
  shutil.copytree(theirs, folder)
  weights = model_folder.open_model(str(folder)).weights
  for name in weights.shapes:
    weights.read(name)
  maps = pathlib.Path("/proc/self/maps").read_text()
  assert str(folder.resolve()) not in maps


def test_labels_of_a_training(tmp_path):
  model = heads.ClassifierModel(CONFIG, 2)
  write_google(tmp_path, model, labels_txt="pos\nneg\n")
  pathlib.Path("best").mkdir()
  for path in tmp_path.glob("model.ckpt-7.*"):
    shutil.copy(path, "best")
  pathlib.Path("link").symlink_to("best")
  for path in (tmp_path, "best", "link", "best/", "best/model.ckpt-7"):
    assert initial_labels(path) == ("pos", "neg")
  os.chdir("best")
  assert initial_labels("model.ckpt-7") == ("pos", "neg")


@pytest.mark.parametrize(
  ("problem", "architecture"),
  [
    ("tagging", "BertForTokenClassification"),
    ("multiple_choice", "BertForMultipleChoice"),
    ("single_label", "BertForSequenceClassification"),
  ],
)
def test_the_head_is_that_of_the_program_that_trained_it(problem, architecture):
  run = pathlib.Path("run")
  model = heads.ClassifierModel(CONFIG, 1)
  write_google(run, model, settings_json=json.dumps({"problem": problem}))
  # The best weights of a run have its files in the folder above.
  (run / "best").mkdir()
  for path in run.glob("*ckpt*"):
    path.rename(run / "best" / path.name)
  (run / "checkpoint").unlink()
  convert(input=run / "best", output="there")
  found = read_json("there/config.json")
  assert found["architectures"] == [architecture]
  head = "classifier" if problem == "single_label" else problem
  assert any_model.read("there").head == head


def test_a_run_is_converted_with_its_best_weights(capsys):
  write_google("run")
  write_google("run/best")
  for path in ("bert_config.json", "vocab.txt"):
    os.remove(f"run/best/{path}")
  convert(input="run", output="there")
  assert capsys.readouterr().out.startswith("read run/best/model.ckpt-7: ")

  # With the vocabulary of its training alone: the converted one has no record.
  settings = {"vocab_file_sha256": "0"}
  pathlib.Path("run/settings.json").write_text(json.dumps(settings))
  refuses("run/vocab.txt: run was trained with another one; pass", input="run")


def test_a_head_can_be_left_out(capsys):
  write_google("here")
  convert(input="here", output="there", head="masked_lm")
  left_out = "cls/seq_relationship/output_bias, cls/seq_relationship/output_w"
  assert f"left out: {left_out}" in capsys.readouterr().out
  found = read_json("there/config.json")
  assert found["architectures"] == ["BertForMaskedLM"]
  # It is what fill_mask.py reads, with the pooler from google_only.
  assert len(any_model.values("there")) == 44


def test_old_names_and_tied_copies_are_understood():
  folder = write_theirs("there")
  before = any_model.values(folder)

  def rename(tensors):
    values = {}
    for name, value in tensors.items():
      old = name.replace("LayerNorm.weight", "LayerNorm.gamma")
      old = old.replace("LayerNorm.bias", "LayerNorm.beta")
      values[old.removeprefix("bert.")] = value
    bias = values.pop("cls.predictions.bias")
    return values | {
      "embeddings.position_ids": np.arange(6)[None],
      "cls.predictions.decoder.bias": bias,
      "cls.predictions.decoder.weight": tensors[f"bert.{TABLE}"],
    }

  edit_tensors(rename)(folder)
  assert_equal(any_model.values(folder), before)


def test_a_run_that_fails_leaves_nothing(monkeypatch):
  write_google("here")

  def fail(path, lines):
    raise OSError(28, "No space left on device", path)

  monkeypatch.setattr(writing.files, "write_lines", fail)
  refuses("No space left", input="here", output="there")
  assert names() == ["here"]


def edit_tensors(change):
  def apply(folder):
    path = folder / "model.safetensors"
    tensors = safetensors.numpy.load_file(path)
    safetensors.numpy.save_file(change(tensors), path)

  return apply


def make_float8(folder):
  header = b'{"x": {"dtype": "F8_E4M3", "shape": [4], "data_offsets": [0, 4]}}'
  content = len(header).to_bytes(8, "little") + header + bytes(4)
  (folder / "model.safetensors").write_bytes(content)


def make_index(weight_map):
  def change(folder):
    (folder / "model.safetensors").rename(folder / "1.safetensors")
    path = folder / "model.safetensors.index.json"
    path.write_text(json.dumps({"weight_map": weight_map}))

  return change


def add_one(tensors):
  return {name: value + 1 for name, value in tensors.items()}


def untie(tensors):
  other = tensors[f"bert.{TABLE}"] + 1
  return tensors | {"cls.predictions.decoder.weight": other}


def remove(name):
  return lambda folder: (folder / name).unlink()


def edit(**fields):
  return lambda folder: any_model.edit_json(folder / "config.json", **fields)


def write(name, content):
  return lambda folder: (folder / name).write_bytes(content)


def tokenize(**fields):
  def change(folder):
    vocab = {token: number for number, token in enumerate(VOCABULARY)}
    contents = {"model": {"vocab": vocab, **fields}}
    (folder / "tokenizer.json").write_text(json.dumps(contents))
    (folder / "vocab.txt").unlink()

  return change


def truncate(folder):
  path = folder / "model.safetensors"
  path.write_bytes(path.read_bytes()[:-1])


def rename(folder):
  (folder / "model.safetensors").rename(folder / "pytorch_model.bin")


@pytest.mark.parametrize(
  ("change", "message"),
  [
    (rename, "there/pytorch_model.bin: not readable: neither of PyTorch's tw"),
    (remove("config.json"), "No such file or directory: "),
    (remove("model.safetensors"), "there: no checkpoint there; the folder h"),
    (remove("vocab.txt"), "there: holds no vocab.txt: pass --vocab_file"),
    (write_google, "there: several checkpoints, name one: "),
    (edit_tensors(add_one), "google_only.safetensors: does not belong to the"),
    (edit_tensors(untie), "decoder.weight is not the table of the word emb"),
    (truncate, "model.safetensors: not readable: Error while deserializing"),
    (write("model.safetensors", b"\xff" * 100), "header too large"),
    (write("config.json", b"{"), "config.json: not a JSON file: "),
    (write("config.json", b"[1]"), "config.json: expected a JSON object"),
    (write("config.json", b"9" * 5000), "not a JSON file: Exceeds the limit"),
    (edit(num_hidden_layers=10**12), "there: num_hidden_layers is 1000000000"),
    (edit(model_type="drop"), 'config.json: no model_type; add "model_type"'),
    (edit(model_type="roberta"), "is 'roberta': its tokens are byte pairs or"),
    (edit(model_type="albert"), "is 'albert': its layers share weights"),
    (edit(model_type="mobilebert"), "'mobilebert': its layers have bottlene"),
    (edit(position_embedding_type="x"), "is 'x'; this BERT has 'absolute'"),
    (edit(is_decoder=True), "is_decoder is True; this BERT has False"),
    (edit(layer_norm_eps=0), "layer_norm_eps is 0; expected a number above"),
    (edit(layer_norm_eps="x"), "layer_norm_eps is 'x'"),
    (edit(tie_word_embeddings=False), "tie_word_embeddings is False; this"),
    (edit(hidden_act="silu"), "is 'silu'; known of Hugging Face's: gelu, "),
    (
      edit(hidden_size=10, intermediate_size=20),
      "there does not fit its config (its hidden_size is 8, its config's 10, "
      "its intermediate_size is 16, its config's 20): "
      "bert/embeddings/LayerNorm/beta: shape (8,), its config's is (10,); ",
    ),
    (edit(num_hidden_layers=1), "+ bert.encoder.layer.1."),
    (edit(num_hidden_layers=3), "(its num_hidden_layers is 2, its config's 3)"),
    (edit(vocab_size=13), "/word_embeddings: shape (12, 8), its config's i"),
    (edit(id2label={"1": "x"}), "id2label is {'1': 'x'}; expected {\"0\": "),
    (make_index({"x": "../../a"}), "index.json: '../../a' is not the name of"),
    (make_index({"x": "a.safetensors"}), "a.safetensors is missing in the fol"),
    (
      make_index({"x": "1.safetensors", "bert.x": "1.safetensors"}),
      "/1.safetensors: lacks 'bert.x' (2 in all), which model.safetensors.inde",
    ),
    (make_float8, "model.safetensors: 'x' holds F8_E4M3; expected F32, F16 or"),
    (make_index({}), "model.safetensors.index.json: has no weight_map"),
    (
      make_index({"x": "9" * 5000 + ".safetensors"}),
      f"model.safetensors.index.json: {'9' * 80} is missing in the folder",
    ),
    (write("vocab.txt", b"[PAD]\n\xff\n"), "vocab.txt:2: not UTF-8: b"),
    (tokenize(type="BPE"), "tokenizer.json: does not hold the vocabulary of a"),
    (tokenize(continuing_subword_prefix="@@"), "type WordPiece with the pref"),
  ],
)  # fmt: skip
def test_a_bad_folder_is_refused_in_one_line(change, message, theirs):
  folder = pathlib.Path("there")
  shutil.copytree(theirs, folder)
  change(folder)
  refuses(message, input=folder, output="out")
  assert names() == ["there"]


@pytest.fixture(scope="module")
def theirs(tmp_path_factory):
  return write_theirs(tmp_path_factory.mktemp("theirs") / "there", slots=ADAM)


@pytest.mark.parametrize(
  ("values", "message"),
  [
    ({"vocab_file": "z.txt", "resize_vocab": 13}, "z.txt:12: expected 'g', as"),
    ({"input": "1.safetensors"}, "one file of a model folder: pass the fold"),
  ],
)
def test_bad_flags_are_refused(values, message, theirs):
  pathlib.Path("z.txt").write_text("\n".join([*VOCABULARY[:-1], "z", "new"]))
  pathlib.Path("1.safetensors").write_bytes(b"x")
  refuses(message, **{"input": theirs, "output": "out", **values})
  assert names() == ["1.safetensors", "z.txt"]


def test_labels_must_be_as_many_as_the_head_has():
  write_google("here", heads.ClassifierModel(CONFIG, 3), labels_txt="a\nb\n")
  message = "2 labels, but the head has 3: pass"
  for name in ("hugging_face", "google"):
    refuses(message, input="here", output="there", output_format=name)
  pathlib.Path("three.txt").write_text("x\ny\nz\n")
  flags = {"labels_file": "three.txt", "do_lower_case": False}
  flags["bert_config_file"] = "here/bert_config.json"
  convert(input="here", output="there", **flags)
  found = read_json("there/config.json")
  assert found["label2id"] == {"x": 0, "y": 1, "z": 2}


@needs_data
@pytest.mark.parametrize(
  ("name", "expected"),
  [("uncased", True), ("cased", False), ("multi_cased", False)],
)
def test_the_vocabulary_shows_the_casing(name, expected):
  path = str(paths.SHARED / f"data/vocab/{name}_vocab.txt")
  vocabulary = vocabulary_table.load_vocab(path)
  assert vocabulary_table.is_cased(vocabulary) != expected


@pytest.mark.parametrize(
  ("name", "value", "expected"),
  [("hidden_act", "gelu_erf", "gelu"), ("num_attention_heads", 4, 2)],
)
def test_another_config_is_refused(name, value, expected, theirs):
  config = dataclasses.replace(CONFIG, **{name: value})
  pathlib.Path("x.json").write_text(config.to_json_string())
  refuses(
    f"x.json: {name} is {value!r}, that of the weights in {theirs} is "
    f"{expected!r}: correct it, or leave out this config",
    input=theirs,
    output="out",
    bert_config_file="x.json",
  )


def test_fine_tuning_starts_without_a_pooler(capsys):
  write_google("source", heads.SpanModel(CONFIG))
  convert(input="source", output="there")
  pathlib.Path("there/google_only.safetensors").unlink()

  model = heads.SpanModel(CONFIG)
  # To predict, it needs all that it uses; to train, what there is.
  for do_train in (False, True):
    settings = types.SimpleNamespace(
      output_dir="out",
      init_checkpoint="there",
      bert_config_file="there/config.json",
      do_train=do_train,
      open_model=lambda: model_folder.open_model("there"),
    )
    output_folder.load_weights_of_run(settings, model)
  random = "bert/pooler/dense/bias, bert/pooler/dense/kernel"
  said = capsys.readouterr().out
  assert f"not in it, they start with random values: {random}" in said
  before = any_model.values("source")["cls/squad/output_weights"]
  assert np.array_equal(model.output_weights.numpy(), before)
