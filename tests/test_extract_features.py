"""Vectors of texts: the original's file, pooling by hand, streaming, faults."""

import gzip
import json
import re
import shlex
import sys

import numpy as np
import pytest
import tensorflow as tf

import bert
from bert import extract_features
from bert.cli import inference_settings, text_programs
import paths
import program_flags
import tiny
import tiny_models

GOLDEN = paths.SHARED / "golden" / "e2e"

# Many lengths, with a pair and an empty one; not sorted.
TEXTS = [
  "the film was good",
  "",
  "a very very awful plot and a poor cast and the film was bad",
  "bad ||| the plot was fine",
  "cast",
  "a great cast and a very fine film",
  "the plot",
]


@pytest.fixture(scope="module")
def model_folder(tmp_path_factory):
  folder = tmp_path_factory.mktemp("model")
  tiny_models.write_masked_lm(folder)
  return folder


def extract(model_folder, path, texts=TEXTS, blocks=(), **flags):
  """Runs the program in this process; returns the file it wrote."""
  content = "".join(f"{text}\n" for text in texts)
  (path / "in.txt").write_text(content, errors="surrogateescape")
  output = path / "out"
  flags = {
    **tiny_models.masked_lm_flags(model_folder),
    "input_file": path / "in.txt",
    "output_file": output,
    "layers": "-1,0",
    **flags,
  }
  kind = extract_features.VectorSettings
  program_flags.run_main(extract_features, kind, blocks, **flags)
  return output


def read_vectors(path):
  """Reads a file of JSON Lines; returns [T, L, H] or [L, H] for each line."""

  def values(layers):
    return [layer["values"] for layer in layers]

  vectors = []
  for number, line in enumerate(path.read_text().splitlines()):
    item = json.loads(line)
    assert item["linex_index"] == number
    tokens = [values(token["layers"]) for token in item.get("features", ())]
    vectors.append(np.array(tokens or values(item["layers"])))
  return vectors


@pytest.mark.skipif(not GOLDEN.is_dir(), reason=f"no golden cases in {GOLDEN}")
def test_the_originals_file(tmp_path):
  command = program_flags.command(
    "extract_features",
    vocab_file=f"{paths.SHARED}/data/vocab/uncased_vocab.txt",
    bert_config_file=f"{GOLDEN}/pretrained/bert_config.json",
    init_checkpoint=f"{GOLDEN}/pretrained/bert_model.ckpt",
    input_file=f"{GOLDEN}/inputs/features.txt",
    output_file=f"{tmp_path}/features.jsonl",
    do_lower_case=True,
    layers="-1,-2",
    max_seq_length=96,
    batch_size=8,
    use_tpu=False,
    master="",
    num_tpu_cores=8,
    use_one_hot_embeddings=False,
  )
  result = program_flags.run_command(command)
  assert result.returncode == 0, result.stderr
  number = re.compile(r"-?\d+\.?\d*(?:e-\d+)?(?=[,\]])")
  actual = (tmp_path / "features.jsonl").read_text()
  expected = (GOLDEN / "expected" / "features.jsonl").read_text()
  assert number.sub("#", actual) == number.sub("#", expected)
  np.testing.assert_allclose(
    np.array(number.findall(actual), float),
    np.array(number.findall(expected), float),
    atol=1e-4,
  )


STATES = [[[-1, -2], [-3, -4], [9, 9]], [[-1, -5], [-2, 1], [0, 0]]]


@pytest.mark.parametrize(
  "pooling,expected",
  [
    ("none", STATES),
    ("cls", [[-1, -2], [-1, -5]]),
    # The third token is padding in the first text, real in the second.
    ("mean", [[-2, -3], [-1, -4 / 3]]),
    ("max", [[-1, -2], [0, 1]]),
  ],
)
def test_pooling(pooling, expected):
  states = [[[[7, 7], [7, 7], [7, 7]]] * 2, STATES]
  features = {"input_mask": tf.constant([[1, 1, 0], [1, 1, 1]])}
  result = extract_features.make_vectors(states, features, [-1], pooling)
  [vectors] = np.moveaxis(result["vectors"], -2, 0)
  np.testing.assert_allclose(vectors, expected, rtol=1e-6)


def test_layers_are_those_of_the_model(tmp_path):
  model = tiny_models.write_masked_lm(tmp_path)
  (vectors,) = read_vectors(extract(tmp_path, tmp_path, ["the film"]))
  ids = [tiny.VOCABULARY.index(t) for t in ("[CLS]", "the", "film")]
  states = model.bert(tf.constant([[*ids, 3]]), return_hidden_states=True)
  expected = np.stack([states.hidden_states[i][0] for i in (2, 1)], axis=1)
  np.testing.assert_allclose(vectors, expected, atol=2e-6)


BLOCKS = {"blocks": {"block_lines": 3, "block_bytes": 1500}, "batch_size": 1}


@pytest.mark.parametrize(
  ("pooling", "flags", "least", "most"),
  [
    ("none", BLOCKS, 0, 2e-6),
    ("mean", BLOCKS, 0, 2e-6),
    ("none", {"pad_to_max_length": True, "batch_size": 3}, 0, 2e-6),
    ("none", {"precision": "bfloat16"}, 1e-4, 0.1),
  ],
)
def test_the_way_of_computing_changes_little(
  model_folder, tmp_path, pooling, flags, least, most
):
  expected = read_vectors(extract(model_folder, tmp_path, pooling=pooling))
  flags = {"pooling": pooling, **flags}
  found = read_vectors(extract(model_folder, tmp_path, **flags))
  assert len(expected) == len(TEXTS)
  pairs = zip(expected, found, strict=True)
  assert least <= max(np.abs(a - b).max() for a, b in pairs) < most


@pytest.mark.parametrize("pooling", ["none", "max"])
def test_a_line_by_itself_gives_the_same_as_npz(
  model_folder, tmp_path, pooling
):
  flags = {"pooling": pooling}
  whole = read_vectors(extract(model_folder, tmp_path, **flags))[2]
  flags["output_format"] = "npz"
  with np.load(extract(model_folder, tmp_path, TEXTS[2:3], **flags)) as alone:
    vectors = alone["vectors"].reshape(whole.shape)
  np.testing.assert_allclose(vectors, whole, atol=2e-6)


def test_a_folder_of_sentence_transformers_has_its_own_defaults(
  tmp_path, capsys
):
  tiny_models.write_masked_lm(tmp_path)
  flags = {"pooling": "mean", "layers": "-1"}
  expected = read_vectors(extract(tmp_path, tmp_path, **flags))
  tiny_models.write_modules(tmp_path)
  assert read_vectors(extract(tmp_path, tmp_path, **flags))[0].shape == (1, 16)
  assert "sentence-transformers" not in capsys.readouterr().err
  kind = extract_features.VectorSettings
  flags = {
    **tiny_models.masked_lm_flags(tmp_path),
    "input_file": tmp_path / "in.txt",
    "output_file": tmp_path / "out",
  }
  program_flags.run_main(extract_features, kind, **flags)
  line = "--layers=-1 --pooling=mean --normalize=true, as "
  line += "sentence-transformers' files in "
  assert f"{line}{tmp_path} say\n" in capsys.readouterr().err
  found = read_vectors(tmp_path / "out")
  for vector, mean in zip(found, expected, strict=True):
    np.testing.assert_allclose(vector, mean / np.linalg.norm(mean), atol=2e-6)
  # The flags that are given count.
  flags |= {"layers": "0,-1", "normalize": False}
  program_flags.run_main(extract_features, kind, **flags)
  assert "\n--pooling=mean, as " in f"\n{capsys.readouterr().err}"
  found = read_vectors(tmp_path / "out")
  np.testing.assert_allclose(found[0][1:], expected[0], atol=2e-6)


def test_a_pooling_that_is_not_known(tmp_path):
  tiny_models.write_masked_lm(tmp_path)
  tiny_models.write_modules(tmp_path, "pooling_mode_lasttoken")
  (tmp_path / "in.txt").write_text("the film\n")
  kind = extract_features.VectorSettings
  with pytest.raises(ValueError, match="the pooling lasttoken; expected"):
    program_flags.run_main(
      extract_features,
      kind,
      **tiny_models.masked_lm_flags(tmp_path),
      input_file=tmp_path / "in.txt",
      output_file=tmp_path / "out",
    )


def test_compressed_text_and_the_summary(model_folder, tmp_path, capsys):
  path = tmp_path / "in.gz"
  path.write_bytes(gzip.compress(("a " * 20 + "\nthe film\n").encode()))
  vectors = read_vectors(extract(model_folder, tmp_path, input_file=path))
  assert [len(v) for v in vectors] == [16, 4]
  output = capsys.readouterr().out
  assert "2 lines, 16 tokens" in output
  assert "\n  1 line(s) truncated to --max_seq_length=16 tokens\n" in output
  assert re.search(
    r"^finished in [\d.]+ s\n  wrote .*\n  .*\n"
    r"  next: python export_saved_model.py .* --task=features --export_dir=",
    output,
    re.MULTILINE,
  )


def test_a_column_of_json_lines_has_the_vectors_of_its_texts(
  model_folder, tmp_path
):
  expected = read_vectors(extract(model_folder, tmp_path, pooling="mean"))
  path = tmp_path / "in.jsonl"
  lines = (json.dumps({"id": 1, "text": text}) for text in TEXTS)
  path.write_text("\n".join(lines))
  flags = {"input_file": path, "pooling": "mean"}
  with pytest.raises(ValueError, match="in.jsonl: JSON Lines, not plain text"):
    extract(model_folder, tmp_path, **flags)
  output = extract(model_folder, tmp_path, text_column="text", **flags)
  np.testing.assert_array_equal(read_vectors(output), expected)


def test_a_proposed_command_has_flags_of_value_1():
  settings = inference_settings.InferenceSettings(
    model="mini", max_seq_length=16
  )
  command = text_programs.export_command(settings, "features", layer=1)
  assert "--layer=1 " in command


@pytest.mark.slow
def test_what_is_proposed_exports_the_vectors(tmp_path, monkeypatch, capsys):
  """Also of a model that was trained for a task, which has another export."""
  monkeypatch.chdir(tmp_path)
  (tmp_path / "run").mkdir()
  tiny_models.write_trained(tmp_path / "run")
  run = {"model": "run", "pooling": "max", "layers": "-2", "max_seq_length": 16}
  (tmp_path / "in.txt").write_text("the film\n")
  program_flags.run_main(
    extract_features,
    extract_features.VectorSettings,
    input_file="in.txt",
    output_file="out.jsonl",
    **run,
  )
  _, command = capsys.readouterr().out.split(
    "next: python export_saved_model.py"
  )
  root = str(paths.ROOT / "export_saved_model.py")
  program_flags.succeed([sys.executable, root, *shlex.split(command)])
  vector = json.loads((tmp_path / "out.jsonl").read_text())
  vector = vector["layers"][0]["values"]
  found = bert.load("features_export")("the film")
  np.testing.assert_allclose(found["vector"], vector, atol=2e-6)


def test_a_checkpoint_of_another_model(tmp_path):
  tiny_models.write_masked_lm(tmp_path, lambda n: "layer_1/output" not in n)
  with pytest.raises(ValueError, match="- bert/encoder/layer_1/output/Layer"):
    extract(tmp_path, tmp_path)
