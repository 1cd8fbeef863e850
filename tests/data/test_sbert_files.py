"""Tests of the files of sentence-transformers that say how vectors are made."""

import json

import pytest

from bert.data import sbert_files
import sentence_folder

TYPES = ("Transformer", "Pooling", "Normalize")
MEAN = {"pooling_mode_mean_tokens": True}


def write(folder, changes=(), without=()):
  """Writes those files; `changes` are keys and values by the file's name."""
  changes = dict(changes)
  for name in {*sentence_folder.WRITTEN, *changes} - {*without}:
    content = sentence_folder.WRITTEN.get(name, {})
    if isinstance(content, dict):
      content = {**content, **changes.get(name, {})}
    path = folder / name
    path.parent.mkdir(exist_ok=True)
    path.write_text(json.dumps(content))


def write_modules(folder, names=TYPES, **pooling):
  """Writes modules.json and 1_Pooling/config.json as version 2 did."""
  modules = [
    {
      "idx": i,
      "path": f"{i}_{name}" if i else "",
      "type": f"sentence_transformers.models.{name}",
    }
    for i, name in enumerate(names)
  ]
  (folder / "modules.json").write_text(json.dumps(modules))
  (folder / "1_Pooling").mkdir(exist_ok=True)
  pooling = {"word_embedding_dimension": 16, **pooling}
  (folder / "1_Pooling" / "config.json").write_text(json.dumps(pooling))


@pytest.mark.parametrize(
  ("names", "pooling", "expected"),
  [
    (TYPES, MEAN, ("mean", True)),
    (
      TYPES[:2],
      {"pooling_mode_cls_token": True, "pooling_mode_mean_tokens": False},
      ("cls", False),
    ),
    (TYPES[:2], {"pooling_mode_max_tokens": True}, ("max", False)),
    (TYPES, {"pooling_mode": "mean"}, ("mean", True)),
    (TYPES, {"pooling_mode": ["max"]}, ("max", True)),
    # The newer key counts; without any, the library's default.
    (TYPES, {"pooling_mode": "cls", **MEAN}, ("cls", True)),
    (TYPES, {}, ("mean", True)),
  ],
)
def test_what_is_known(tmp_path, names, pooling, expected):
  assert sbert_files.read(str(tmp_path)) == {}
  write_modules(tmp_path, names, **pooling)
  flags = sbert_files.read(str(tmp_path))
  assert (flags["pooling"], flags["normalize"]) == expected
  assert flags["layers"] == ("-1",)


def test_what_version_6_writes(tmp_path):
  write(tmp_path)
  assert sbert_files.read(str(tmp_path)) == {
    "layers": ("-1",),
    "pooling": "mean",
    "dense": None,
    "normalize": True,
    "max_seq_length": 256,
    "lower_case": False,
    "prompts": {"document": "", "query": ""},
    "default_prompt_name": None,
  }
  assert sbert_files.read(str(tmp_path), reads_modules=False).keys() == {
    "max_seq_length",
    "lower_case",
    "prompts",
    "default_prompt_name",
  }


OTHERS = {
  "1_Pooling/config.json": [
    ("pooling_mode", "lasttoken"),
    ("pooling_mode", ["mean", "max"]),
    ("include_prompt", "false"),
    ("pooling_mode_mean_tokens", "false"),
    ("pooling_window", 3),
  ],
  "2_Normalize/config.json": [
    ("module_input_name", "token_embeddings"),
    ("module_output_name", "token_embeddings"),
    ("p", 1),
  ],
  "sentence_bert_config.json": [
    ("transformer_task", "fill-mask"),
    ("modality_config", {"message": {"method": "forward"}}),
    ("module_output_name", "scores"),
    ("processing_kwargs", {"text": {"max_length": 8}}),
    ("query_length", 8),
    ("document_length", 8),
    ("query_expansion", {"strategy": "min", "length": 8}),
    ("max_seq_length", "9"),
    ("max_seq_length", 2),
    ("do_lower_case", "false"),
    ("tokenizer_name_or_path", "another/model"),
    ("model_args", {"attn_implementation": "eager"}),
    ("processor_kwargs", {"model_max_length": 8}),
    ("config_kwargs", {"num_hidden_layers": 2}),
    ("max_length", 8),
  ],
  "config_sentence_transformers.json": [
    ("model_type", "SparseEncoder"),
    ("truncate_dim", 64),
    ("prompts", ["query: "]),
    ("default_prompt_name", 1),
    ("normalize", False),
  ],
  "tokenizer_config.json": [("model_max_length", "256")],
}


@pytest.mark.parametrize(
  ("file", "key", "value"),
  [(file, *case) for file, cases in OTHERS.items() for case in cases],
)
def test_other_keys_and_values_are_refused_by_name(tmp_path, file, key, value):
  write(tmp_path, {file: {key: value}})
  with pytest.raises(ValueError) as caught:
    sbert_files.read(str(tmp_path))
  message = str(caught.value)
  named = "the pooling" if value in ("lasttoken", ["mean", "max"]) else key
  assert f"{tmp_path / file}: {named}" in message and "\n" not in message


@pytest.mark.parametrize(
  ("changes", "expected"),
  [
    ({}, 512),
    ({"tokenizer_config.json": {"model_max_length": 10**30}}, 512),
    ({"tokenizer_config.json": {"model_max_length": 1e30}}, 512),
    ({"tokenizer_config.json": {"model_max_length": 300}}, 300),
    ({"config.json": {"max_position_embeddings": 64}}, 64),
    ({"bert_config.json": {"max_position_embeddings": 64}}, 64),
    ({"sentence_bert_config.json": {"max_seq_length": None}}, 512),
    (
      {
        "sentence_bert_config.json": {"max_seq_length": 128},
        "tokenizer_config.json": {"model_max_length": 300},
      },
      128,
    ),
    ({"sentence_distilbert_config.json": {"max_seq_length": 128}}, 128),
    (
      {
        "sentence_bert_config.json": {},
        "sentence_distilbert_config.json": {"max_seq_length": 128},
      },
      128,
    ),
  ],
)
def test_the_longest_input(tmp_path, changes, expected):
  write_modules(tmp_path, **MEAN)
  for name, content in changes.items():
    (tmp_path / name).write_text(json.dumps(content))
  assert sbert_files.read(str(tmp_path))["max_seq_length"] == expected


def test_prompts(tmp_path):
  name, prompts = "config_sentence_transformers.json", {"q": "Q: ", "d": None}
  write(tmp_path, {name: {"prompts": prompts, "default_prompt_name": "q"}})
  flags = sbert_files.read(str(tmp_path))
  assert flags["prompts"] == {"q": "Q: ", "d": ""}
  assert flags["default_prompt_name"] == "q"
  write(tmp_path, {name: {"default_prompt_name": "title"}})
  message = "default_prompt_name=title: the prompts of the model: document, qu"
  with pytest.raises(ValueError, match=message):
    sbert_files.read(str(tmp_path))
  write(tmp_path, {name: {"prompts": {"q": 1}}})
  with pytest.raises(ValueError, match="the prompt 'q' is 1; expected a text"):
    sbert_files.read(str(tmp_path))
  apart = {"1_Pooling/config.json": {"include_prompt": False}}
  write(tmp_path, apart)  # Without prompts it changes nothing.
  assert sbert_files.read(str(tmp_path))["pooling"] == "mean"
  write(tmp_path, {**apart, name: {"prompts": prompts}})
  with pytest.raises(ValueError, match="prompts, with include_prompt of false"):
    sbert_files.read(str(tmp_path))


@pytest.mark.parametrize(
  ("place", "message"),
  [
    ("3_Pooling", None),
    ("a/pooling", None),
    ("../1_Pooling", "module 1: path is '../1_Pooling': not in this folder"),
    ("a/../../b", "not in this folder"),
    ("/tmp", "module 1: path is '/tmp': not in this folder"),
    ("..\\b", "not in this folder"),
    (None, "module 1: path is None, expected str"),
  ],
)
def test_the_folder_of_pooling(tmp_path, place, message):
  write_modules(tmp_path, TYPES[:2], pooling_mode="mean")
  path = tmp_path / "modules.json"
  modules = json.loads(path.read_text())
  path.write_text(json.dumps([modules[0], {**modules[1], "path": place}]))
  if message:
    with pytest.raises(ValueError) as caught:
      sbert_files.read(str(tmp_path))
    assert message in str(caught.value)
    return
  with pytest.raises(OSError, match="config.json"):
    sbert_files.read(str(tmp_path))
  (tmp_path / place).mkdir(parents=True)
  (tmp_path / place / "config.json").write_text('{"pooling_mode": "max"}')
  assert sbert_files.read(str(tmp_path))["pooling"] == "max"


@pytest.mark.parametrize(
  ("names", "message"),
  [
    ((*TYPES, "Dense"), "with Transformer, Pooling, Normalize, Dense;"),
    (
      (*TYPES[:2], "Dense", "Dense"),
      "with Transformer, Pooling, Dense, Dense; expected Transformer, Pooling, "
      "perhaps Dense, perhaps Normalize:",
    ),
    (
      ("BoW",),
      "makes vectors with BoW; expected Transformer, Pooling, perhaps",
    ),
    ((), "makes vectors with ; expected"),
  ],
)
def test_other_modules(tmp_path, names, message):
  write_modules(tmp_path, names, **MEAN)
  with pytest.raises(ValueError, match="modules.json: makes vectors with") as e:
    sbert_files.read(str(tmp_path))
  assert message in str(e.value)
  assert str(e.value).endswith("pass --pooling instead")
  assert "pooling" not in sbert_files.read(str(tmp_path), reads_modules=False)


DENSE = {"in_features": 16, "out_features": 4}
TANH, GELU = (f"torch.nn.modules.activation.{x}" for x in ("Tanh", "GELU"))


def write_dense(folder, names=("model.safetensors",), **settings):
  write_modules(folder, (*TYPES[:2], "Dense", "Normalize"), **MEAN)
  place = folder / "2_Dense"
  place.mkdir()
  (place / "config.json").write_text(json.dumps({**DENSE, **settings}))
  for name in names:
    (place / name).touch()
  return place


@pytest.mark.parametrize(
  ("settings", "names", "expected"),
  [
    # The library's defaults.
    ({}, ["pytorch_model.bin"], (True, "tanh", "pytorch_model.bin")),
    # What version 6 writes, in a folder with both files.
    (
      {
        "bias": False,
        "activation_function": GELU,
        "module_input_name": "sentence_embedding",
        "module_output_name": "sentence_embedding",
      },
      ["pytorch_model.bin", "model.safetensors"],
      (False, "gelu_erf", "model.safetensors"),
    ),
  ],
)
def test_a_dense_layer(tmp_path, settings, names, expected):
  place = write_dense(tmp_path, names, **settings)
  flags = sbert_files.read(str(tmp_path))
  has_bias, activation, name = expected
  assert flags["pooling"] == "mean" and flags["normalize"]
  assert flags["dense"] == {
    "weights": str(place / name),
    "shape": (4, 16),
    "has_bias": has_bias,
    "activation": activation,
  }


@pytest.mark.parametrize(
  ("key", "value"),
  [
    ("in_features", None),
    ("out_features", 0),
    ("out_features", "4"),
    ("bias", 1),
    ("activation_function", "torch.nn.modules.activation.PReLU"),
    ("activation_function", "own_code.Tanh"),
    ("activation_function", ["x"]),
    ("module_input_name", "token_embeddings"),
    ("module_output_name", "token_embeddings"),
    ("use_residual", True),
    ("dropout", 0.1),
  ],
)
def test_other_dense_layers_are_refused_by_name(tmp_path, key, value):
  place = write_dense(tmp_path, **{key: value})
  with pytest.raises(ValueError) as caught:
    sbert_files.read(str(tmp_path))
  message = str(caught.value)
  assert message.startswith(f"{place / 'config.json'}: {key} is {value!r}")
  assert "\n" not in message


def test_a_dense_layer_without_weights(tmp_path):
  place = write_dense(tmp_path, names=())
  message = f"{place}: holds no model.safetensors nor pytorch_model.bin"
  with pytest.raises(ValueError, match=message):
    sbert_files.read(str(tmp_path))
  # Whoever names a pooling needs none.
  assert "dense" not in sbert_files.read(str(tmp_path), reads_modules=False)


@pytest.mark.parametrize(
  ("row", "message"),
  [
    ({"kwargs": ["task"]}, r"module 1: kwargs is \['task'\], expected \[\]"),
    (
      {"type": "own_code.Pooling"},
      "vectors with Transformer, own_code.Pooling",
    ),
    ({"dropout": 1}, "module 1: dropout is 1: an unknown key"),
  ],
)
def test_rows_of_modules(tmp_path, row, message):
  write_modules(tmp_path, TYPES[:2], **MEAN)
  path = tmp_path / "modules.json"
  modules = json.loads(path.read_text())
  path.write_text(json.dumps([modules[0], {**modules[1], **row}]))
  with pytest.raises(ValueError, match=message):
    sbert_files.read(str(tmp_path))


@pytest.mark.parametrize("content", ["{}", "[1, null]", "[[]]", "x"])
def test_damaged_modules(tmp_path, content):
  write_modules(tmp_path, **MEAN)
  (tmp_path / "modules.json").write_text(content)
  with pytest.raises(ValueError, match="modules.json: "):
    sbert_files.read(str(tmp_path))


def test_a_copy_states_the_length_of_another_file(tmp_path):
  first, second = tmp_path / "first", tmp_path / "second"
  first.mkdir()
  write(first, {"sentence_bert_config.json": {"do_lower_case": True}})
  before = sbert_files.read(str(first))
  made = sbert_files.copy(str(first), str(second))
  assert sorted(made) == [
    "1_Pooling/config.json",
    "2_Normalize/config.json",
    "config_sentence_transformers.json",
    "modules.json",
    "sentence_bert_config.json",
  ]
  assert sbert_files.read(str(second)) == before
  assert before["max_seq_length"] == 256 and before["lower_case"]
  assert sbert_files.copy(str(tmp_path), str(second)) == []
