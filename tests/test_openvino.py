"""Exports of --format=onnx, run by OpenVINO."""

from concurrent import futures
import json
import shutil
import subprocess
import sys

import numpy as np
import pytest

import bert
from bert.data import processor
from bert.serving import exported_model
import paths
import program_flags
import tiny
import tiny_models

NEEDS = "needs requirements/openvino.txt and onnx.txt"
openvino = pytest.importorskip("openvino", reason=NEEDS)
pytest.importorskip("onnxruntime", reason=NEEDS)

from bert.serving import openvino_engine  # noqa: E402

HAS_BFLOAT16 = processor.multiplies_bfloat16() and "BF16" in (
  openvino_engine._one_core().get_property("CPU", "OPTIMIZATION_CAPABILITIES")
)
TEXTS = ["the film was good", "bad", "good good film was bad the film"]


# The graphs of all are tried with ONNX Runtime: see test_onnx_exports.py.
@pytest.mark.parametrize(
  "case",
  [
    case
    if case in ("single_label", "question_answering")
    else pytest.param(case, marks=pytest.mark.slow)
    for case in tiny_models.CASES
  ],
)
def test_answers_are_those_of_onnxruntime(case, tmp_path, monkeypatch):
  requests = tiny_models.write_case(tmp_path, case)
  path = tiny_models.export_onnx(tmp_path)
  exact = exported_model.ExportedModel(path)
  encoded = exact.maker.encode_all(requests)
  close = exported_model.ExportedModel(path, engine="openvino")
  kind = "bfloat16 (differs by " if HAS_BFLOAT16 else "float32"
  assert close.engine_name.startswith(f"openvino, {kind}")
  # Another span or token may win in bfloat16, so outputs are compared.
  for row in (row for request in encoded for row in request.rows):
    ids = exported_model._pad([row], len(row.input_ids))
    found, expected = close._engine.run(ids), exact._engine.run(ids)
    assert found.keys() == expected.keys()
    for name in expected.keys() - {"ids"}:
      most = 0.05 * max(1.0, np.abs(expected[name]).max(initial=0))
      np.testing.assert_allclose(
        found[name], expected[name], atol=most, rtol=0, err_msg=name
      )
  monkeypatch.setattr(openvino_engine, "_MOST_DIFFERENCE", -1.0)
  equal = exported_model.ExportedModel(path, engine="openvino")
  assert equal.engine_name.startswith("openvino, float32")
  wanted = exact.answer(encoded)
  assert equal.answer(encoded) == tiny_models.close(wanted, abs=1e-4)
  attention = exact.attend(encoded[0], 1, 0)
  found = equal.attend(encoded[0], 1, 0)
  assert found == tiny_models.close(attention, abs=1e-4)


@pytest.fixture(scope="module")
def export(tmp_path_factory):
  folder = tmp_path_factory.mktemp("trained")
  tiny_models.write_trained(folder, **tiny_models.CLASSES)
  return tiny_models.export_onnx(folder)


def test_int8_is_for_onnxruntime(tmp_path):
  """OpenVINO takes longer than for a float32 export."""
  tiny_models.write_trained(tmp_path, **tiny_models.CLASSES)
  tiny.write_pairs(tmp_path / "dev.tsv", range(60))
  path = tiny_models.export_onnx(
    tmp_path,
    quantize="int8",
    eval_file=tmp_path / "dev.tsv",
    max_changed=1,
    text_column="text",
    text_pair_column="text_b",
  )
  with pytest.raises(ValueError, match="int8 .*: leave out --engine, or exp"):
    bert.load(path, engine="openvino")
  assert bert.load(path, engine="onnxruntime")(TEXTS[0]) == bert.load(path)(
    TEXTS[0]
  )


def test_threads_get_their_own_answers(export):
  model = bert.load(export, engine="openvino")
  expected = [model(text) for text in TEXTS]
  with futures.ThreadPoolExecutor(4) as pool:
    assert list(pool.map(model, TEXTS * 20)) == expected * 20


def test_a_number_that_is_none_is_refused(export, monkeypatch):
  compile_rightly = openvino_engine.Engine._compile

  def compile_wrongly(self, precision, attends=False):
    infer = compile_rightly(self, precision, attends)
    if precision == "f32":
      return infer
    return lambda ids: {k: v * np.nan for k, v in infer(ids).items()}

  monkeypatch.setattr(openvino_engine.Engine, "_compile", compile_wrongly)
  model = exported_model.ExportedModel(str(export), engine="openvino")
  assert not HAS_BFLOAT16 or model.engine_name == (
    "openvino, float32; bfloat16 (differs by nan% from float32)"
  )


# The first export is released when the second has replaced it.
REPLACE_A_MODEL = """
import signal, sys
from bert.serving import exported_model

for _ in range(2):
  model = exported_model.ExportedModel(sys.argv[1], engine="openvino")
del model
signal.signal(signal.SIGINT, lambda *_: print("caught"))
signal.raise_signal(signal.SIGINT)
"""


def test_ctrl_c_is_caught_after_a_model_was_replaced(export):
  """A crash, if each engine has a runtime of its own: see `_one_core`."""
  command = [sys.executable, "-X", "faulthandler", "-c", REPLACE_A_MODEL]
  result = subprocess.run(
    [*command, str(export)], cwd=paths.ROOT, capture_output=True, text=True
  )
  assert (result.returncode, result.stdout) == (0, "caught\n"), result.stderr


@pytest.mark.parametrize("engine", exported_model.ENGINES)
def test_predict_says_what_computes(export, engine):
  flags = {"export_dir": export, "text": TEXTS[0], "engine": engine}
  result = program_flags.succeed(program_flags.command("predict", **flags))
  assert result.stderr.startswith(f"computing with {engine}")
  assert json.loads(result.stdout)["label"] in ("neg", "pos")


def test_what_cannot_run_is_one_line(export, tmp_path, monkeypatch):
  with pytest.raises(
    ValueError, match="engine=fast: .*expected one of onnxrun"
  ):
    bert.load(export, engine="fast")
  tiny_models.write_trained(tmp_path, **tiny_models.CLASSES)
  other = tiny_models.run_export(tmp_path, format="saved_model")
  message = "--engine=openvino: .* has the format saved_model; .*--format=onnx"
  with pytest.raises(ValueError, match=message):
    bert.load(other, engine="openvino")
  with pytest.raises(ValueError, match="a model, not an export"):
    bert.load(tmp_path, engine="openvino")
  monkeypatch.setitem(sys.modules, "openvino", None)
  message = "openvino is needed for --engine=openvino .*/openvino.txt"
  with pytest.raises(ImportError, match=message):
    bert.load(export, engine="openvino")


def test_weights_are_written_over_while_they_are_open(export, tmp_path):
  copy = shutil.copytree(export, tmp_path / "copy")
  model = bert.load(copy, engine="openvino")
  model(TEXTS[0])
  path = copy / "model.onnx.data"
  path.write_bytes(path.read_bytes())
  with pytest.raises(ValueError, match="data: was written over while this mod"):
    model(TEXTS[0])


def test_a_damaged_model(export, tmp_path):
  copy = shutil.copytree(export, tmp_path / "copy")
  (copy / "model.onnx").write_bytes(b"not a graph")
  with pytest.raises(ValueError, match="model.onnx: not the file that export"):
    bert.load(copy, engine="openvino")
  (copy / "model.onnx").unlink()
  with pytest.raises(ValueError, match="model.onnx: No such file"):
    bert.load(copy, engine="openvino")
