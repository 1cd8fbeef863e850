"""Paths that only TensorFlow opens: read from ram://, written to file://.

A file of ram:// is in memory alone, so that no plain `open` finds it; but it
cannot rename a folder with its files, as new folders are. Nor does a plain
`open` find file:///tmp/x.
"""

import os

import numpy as np
import pytest
import tensorflow as tf

import any_model
import bert
from bert import convert_checkpoint, heads
from bert.convert import formats
from bert.data import remote
import program_flags
import tiny
import tiny_models

TABLE = "bert/embeddings/word_embeddings"


def copy_to_ram(folder, target):
  """Copies the files of a local folder; returns the remote one."""
  for parent, _, names in os.walk(folder):
    inside = os.path.relpath(parent, folder)
    for name in names:
      path = os.path.normpath(f"{inside}/{name}")
      tf.io.gfile.copy(os.path.join(parent, name), f"{target}/{path}", True)
  return target


def test_two_remote_files_of_one_name_are_kept_apart():
  for folder in ("one", "two"):
    with tf.io.gfile.GFile(f"ram://copies/{folder}/x.bin", "wb") as file:
      file.write(folder)
    with tf.io.gfile.GFile(f"ram://copies/{folder}/x.bin.data", "wb") as file:
      file.write("beside")
  one, two = (
    remote.local_copy(f"ram://copies/{n}/x.bin", f"ram://copies/{n}/x.bin.data")
    for n in ("one", "two")
  )
  for path, expected in ((one, "one"), (two, "two"), (f"{one}.data", "beside")):
    with open(path) as file:
      assert file.read() == expected
  assert os.path.basename(one) == "x.bin"
  with pytest.raises(OSError, match="ram://copies/none"):
    remote.local_copy("ram://copies/none")


@pytest.mark.parametrize("output_format", ["hugging_face", "keras_hub"])
def test_two_remote_models_keep_their_weights(tmp_path, output_format):
  if output_format == "keras_hub":
    pytest.importorskip("keras_hub", reason="needs requirements/bench.txt")
  folders = {}
  for name in ("a", "b"):
    model = heads.ClassifierModel(any_model.CONFIG, 3)
    any_model.write_google(tmp_path / name, model)
    program_flags.run_main(
      convert_checkpoint,
      convert_checkpoint.ConversionSettings,
      model=tmp_path / name,
      output=f"file://{tmp_path}/{name}/{output_format}",
      output_format=output_format,
    )
    local = tmp_path / name / output_format
    folders[tmp_path / name] = copy_to_ram(
      local, f"ram://{output_format}/{name}"
    )
  # Both are opened before a variable of the first is read.
  opened = {local: formats.open_model(x) for local, x in folders.items()}
  for local, found in opened.items():
    expected = formats.open_model(str(local)).weights.read(TABLE)
    np.testing.assert_array_equal(found.weights.read(TABLE), expected)


@pytest.mark.parametrize("kind", ["onnx", "saved_model"])
def test_a_remote_run_is_exported_to_a_remote_folder(tmp_path, kind):
  if kind == "onnx":
    pytest.importorskip("onnxruntime", reason="needs requirements/onnx.txt")
  requests = tiny_models.write_case(tmp_path, "single_label")
  texts = [request["text"] for request in requests]
  run = copy_to_ram(tmp_path, f"ram://runs/{kind}")
  expected = bert.load(tmp_path)(texts)
  assert bert.load(run)(texts) == expected
  flags = {"model_dir": run, "vocab_file": f"{run}/vocab.txt", "format": kind}
  flags["export_dir"] = f"file://{tmp_path}/export"
  tiny_models.run_export(tmp_path, **flags)
  close = tiny_models.close(expected, abs=1e-5)
  assert bert.load(flags["export_dir"])(texts) == close
  export = copy_to_ram(tmp_path / "export", f"ram://exports/{kind}")
  assert bert.load(export)(texts) == close
  with pytest.raises(ValueError, match=r"ram://nothing: no such folder"):
    bert.load("ram://nothing")


def test_a_saved_model_of_remote_sentence_pieces(tmp_path):
  pytest.importorskip("sentencepiece")
  vocab_file = tiny.learn_sentence_pieces(tmp_path)
  (tmp_path / "run").mkdir()
  tiny_models.write_trained(tmp_path / "run", vocab_file=vocab_file)
  run = copy_to_ram(tmp_path / "run", "ram://pieces/run")
  flags = {"model_dir": run, "vocab_file": f"{run}/vocab.model"}
  flags |= {"format": "saved_model", "export_dir": tmp_path / "export"}
  tiny_models.run_export(tmp_path, **flags)
  texts = ["The fox", "x"]
  expected = tiny_models.close(bert.load(tmp_path / "run")(texts), abs=1e-5)
  assert bert.load(tmp_path / "export")(texts) == expected
