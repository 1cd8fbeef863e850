"""Tests of exports for ONNX Runtime: made, quantized, damaged, answering."""

import json
import pathlib
import shutil
import subprocess
import sys

import numpy as np
import pytest

import bert
from bert.contrib import gpt_vocabulary
from bert.data import files
from bert.serving import exported_model
import paths
import program_flags
import tiny
import tiny_models

NEEDS = "needs requirements/onnx.txt"
onnx = pytest.importorskip("onnx", reason=NEEDS)
onnxruntime = pytest.importorskip("onnxruntime", reason=NEEDS)

SITE = pathlib.Path(onnxruntime.__file__).parent.parent


@pytest.mark.parametrize("case", tiny_models.CASES)
def test_answers_are_those_of_the_model(case, tmp_path):
  requests = tiny_models.write_case(tmp_path, case, layers=1)
  path = tiny_models.export_onnx(tmp_path)
  exported, trained = bert.load(path), bert.load(tmp_path)
  assert exported.task == trained.task == tiny_models.CASES[case].kind
  assert exported.labels == trained.labels
  assert exported(requests) == tiny_models.close(trained(requests), abs=1e-4)
  request = exported._model.maker.encode(requests[0])
  attention = exported._model.attend(request, 0, 1)
  expected = trained._model.attend(request, 0, 1)
  assert attention == tiny_models.close(expected, abs=1e-4)
  file = tmp_path / "in.jsonl"
  file.write_text(json.dumps(requests[0]))
  command = program_flags.command("predict", export_dir=path, input_file=file)
  result = program_flags.run_here(command)
  assert json.loads(result.stdout) == {"index": 0, **exported(requests[0])}


def write_byte_pairs(folder):
  """Gives a trained model GPT-1's vocabulary in small; returns its path."""
  pieces = ["<unk>", *"goadb", "d</w>", "g</w>", "go", "od</w>"]
  path = folder / gpt_vocabulary.ENCODER
  path.write_text(json.dumps({piece: i for i, piece in enumerate(pieces)}))
  (folder / gpt_vocabulary.MERGES).write_text("#version: 0.2\ng o\no d</w>\n")
  (folder / "vocab.txt").unlink()
  settings = json.loads((folder / "settings.json").read_text())
  settings["vocab_file_sha256"] = files.hash_file(str(path))
  (folder / "settings.json").write_text(json.dumps(settings))
  return path


def test_a_vocabulary_that_no_graph_has(tmp_path):
  tiny_models.write_case(tmp_path, "single_label")
  path = write_byte_pairs(tmp_path)

  def export(format):
    tiny_models.run_export(tmp_path, format, format=format, vocab_file=path)

  export("onnx")
  exported, trained = bert.load(tmp_path / "onnx"), bert.load(tmp_path)
  texts = ["good dog", "bad", "odd good bag"]
  answers = exported(texts)
  assert answers == tiny_models.close(trained(texts), abs=1e-4)
  assert answers[0]["probabilities"] != answers[1]["probabilities"]
  message = "another vocabulary .with --format=onnx"
  with pytest.raises(ValueError, match=message):
    export("saved_model")
  assert not (tmp_path / "saved_model").exists()
  merges = tmp_path / "onnx" / gpt_vocabulary.MERGES
  merges.write_text(merges.read_text() + "b a\n")
  with pytest.raises(ValueError, match=gpt_vocabulary.MERGES):
    bert.load(tmp_path / "onnx")


def test_pretrained_models(tmp_path):
  tiny_models.write_masked_lm(tmp_path)
  flags = {"model_dir": "", "init_checkpoint": tmp_path}
  flags["bert_config_file"] = tmp_path / "config.json"
  path = tiny_models.export_onnx(tmp_path, "fill", top_k=2, **flags)
  texts = [{"text": "the [MASK] was [MASK]"}, {"text": "the film"}]
  assert [len(a["masks"]) for a in bert.load(path)(texts)] == [2, 0]
  path = tiny_models.export_onnx(tmp_path, "features", task="features", **flags)
  found = bert.load(path)(tiny_models.TEXTS)
  assert [len(a["vector"]) for a in found] == [16, 16, 16]


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
  folder = tmp_path_factory.mktemp("trained")
  tiny_models.write_trained(folder, **tiny_models.CLASSES)
  tiny_models.export_onnx(folder)
  return folder


@pytest.fixture
def export(trained, tmp_path):
  return shutil.copytree(trained / "export", tmp_path / "export")


def test_folder_and_card(trained):
  folder = trained / "export"
  hashed = ["model.onnx", "model.onnx.data", "vocab.txt"]
  names = ["README.md", "bert_config.json", "export.json", "labels.txt"]
  assert sorted(path.name for path in folder.iterdir()) == names + hashed
  hashes = json.loads((folder / "export.json").read_text())["hashes"]
  assert sorted(hashes) == [*hashed, "weights"]
  card = (folder / "README.md").read_text()
  assert card.count("\n") <= 15 and "quantization" not in card


def test_threads(trained):
  model = exported_model.ExportedModel(str(trained / "export"), threads=1)
  options = model._engine._session.get_session_options()
  assert options.intra_op_num_threads == 1


def edit_card(export, **values):
  path = export / "export.json"
  content = {**json.loads(path.read_text()), **values}
  path.write_text(json.dumps(exported_model.export_card.seal(content)))


# tests/mistakes/4_models.txt has files that are cut or missing.
@pytest.mark.parametrize("name", ["model.onnx", "model.onnx.data", "vocab.txt"])
def test_a_byte_of_a_file_is_damaged(export, name):
  tiny.damage(export / name, 50)
  message = f"{name}: not the file that export.json describes"
  with pytest.raises(ValueError, match=message):
    bert.load(export)


def test_weights_are_written_over_while_they_are_open(export):
  model = bert.load(export)
  text = tiny_models.TEXTS[0]
  answer = model(text)

  # Another file of the same name changes nothing.
  path = export / "model.onnx.data"
  content = path.read_bytes()
  path.unlink()
  path.write_bytes(content)
  assert model(text) == answer

  model = bert.load(export)
  path.write_bytes(content)
  with pytest.raises(ValueError, match="data: was written over while this mod"):
    model(text)


def test_labels_of_another_model(export):
  edit_card(export, labels=["a", "b", "c"])
  with pytest.raises(ValueError, match="has 3 labels, the model scores 2"):
    bert.load(export)


def test_operation_that_the_runtime_lacks(export):
  model = onnx.load(export / "model.onnx", load_external_data=False)
  model.graph.node[-1].op_type = "Unheard"
  (export / "model.onnx").write_bytes(model.SerializeToString())
  hashes = exported_model.export_card.read(str(export)).hashes
  new = files.hash_file(str(export / "model.onnx"))
  edit_card(export, hashes={**hashes, "model.onnx": new})
  version = f"onnxruntime {onnxruntime.__version__}"
  message = f"{version} cannot run it; install the latest or .*Unheard"
  with pytest.raises(ValueError, match=message) as error:
    bert.load(export)
  assert "\n" not in str(error.value)


def test_missing_packages_are_named(trained, export, monkeypatch, tmp_path):
  monkeypatch.setitem(sys.modules, "onnxruntime", None)
  with pytest.raises(ImportError, match="onnxruntime is needed .*pip install"):
    bert.load(export)
  monkeypatch.undo()
  monkeypatch.setitem(sys.modules, "onnx", None)
  shutil.rmtree(export)
  with pytest.raises(ImportError, match="onnx is needed .*onnx.txt"):
    tiny_models.export_onnx(trained, tmp_path / "export")
  assert not list(tmp_path.iterdir())


# Quantization.


def write_questions(path, numbers):
  rows = [tiny.make_question(number, True) for number in numbers]
  pairs = [(row["qas"][0]["question"], row["context"]) for row in rows]
  path.write_text("".join(f"{a}\t{b}\n" for a, b in pairs))


def write_texts(path, numbers):
  path.write_text(
    "".join(f"{text}\n" for text, _ in tiny.make_examples(numbers))
  )


FILES = {
  "single_label": ("dev.tsv", tiny.write_pairs),
  "tagging": ("dev.txt", write_texts),
  "question_answering": ("dev.tsv", write_questions),
  "multiple_choice": ("dev.csv", tiny.write_swag),
}
COLUMNS = {"text_column": "text", "text_pair_column": "text_b"}


@pytest.mark.parametrize("case", FILES)
def test_int8_is_compared_on_texts(case, tmp_path, capsys):
  requests = tiny_models.write_case(tmp_path, case)
  name, write = FILES[case]
  write(tmp_path / name, range(60))
  flags = {"eval_file": tmp_path / name, "max_eval_examples": 50}
  flags |= COLUMNS if case == "single_label" else {}
  path = tiny_models.export_onnx(
    tmp_path, quantize="int8", max_changed=1, **flags
  )
  found = exported_model.ExportedModel(path).card.quantization
  assert found["dtype"] == "int8" and found["answers"] >= 50
  assert found["sample"] == f"50 of the 60 texts of {name}, evenly spread"
  shown = f"{found['changed']:,} of {found['answers']:,} answers changed"
  assert shown in capsys.readouterr().out
  card = (tmp_path / "export" / "README.md").read_text()
  assert f"| int8 products | {shown}" in card
  # The numbers are those of int8, and not those of another model. They are
  # compared before an answer is chosen, for another label or span may win.
  exact, rounded = (
    exported_model.ExportedModel(folder)
    for folder in (tiny_models.export_onnx(tmp_path, "float32"), path)
  )
  for request in exact.maker.encode_all(requests):
    for row in request.rows:
      ids = exported_model._pad([row], len(row.input_ids))
      wanted, found = exact._engine.run(ids), rounded._engine.run(ids)
      for name, values in wanted.items():
        most = 0.2 * max(1.0, np.abs(values).max())
        assert 0 < np.abs(found[name] - values).max() < most, name


def test_more_changes_than_the_limit_are_not_published(trained, monkeypatch):
  folder = trained
  tiny.write_pairs(folder / "dev.tsv", range(60))
  # Weights get the integers up to this number: below 0.5, all are rounded to 0.
  monkeypatch.setattr("bert.export.onnx_graph.LARGEST_INT8", 0.4)
  message = r"--quantize: [1-9]\d* of 60 answers changed .*--max_changed"
  flags = {"quantize": "int8", "eval_file": folder / "dev.tsv", **COLUMNS}
  before = sorted(folder.iterdir())
  with pytest.raises(ValueError, match=message):
    tiny_models.export_onnx(folder, "lost", **flags)
  assert sorted(folder.iterdir()) == before


@pytest.mark.parametrize(
  ("flags", "message"),
  [
    ({}, "--quantize=int8 needs --eval_file"),
    ({"eval_file": "dev.txt"}, "--eval_file=dev.txt: no such file"),
  ],
)
def test_quantization_needs_a_file(trained, flags, message):
  with pytest.raises((ValueError, OSError), match=message):
    tiny_models.export_onnx(trained, "none", quantize="int8", **flags)
  assert not (trained / "none").exists()


# Without TensorFlow.


FORBID = """
import importlib.abc, runpy, sys
class Forbidden(importlib.abc.MetaPathFinder):
  def find_spec(self, name, path=None, target=None):
    if name.partition(".")[0] in %r:
      raise ImportError(f"{name} is forbidden here")
sys.meta_path.insert(0, Forbidden())
sys.path.insert(0, %r)
"""
PREDICT = "sys.argv[0] = 'predict.py'\n"
PREDICT += "runpy.run_path('predict.py', run_name='__main__')"
LOAD = "import bert, json; folder = sys.argv[1].partition('=')[2]\n"
LOAD += "print(json.dumps(bert.load(folder)(input())))"
NEEDED = {"numpy", "onnxruntime"}


@pytest.mark.parametrize(
  ("code", "needed"), [(PREDICT, {*NEEDED, "absl"}), (LOAD, NEEDED)]
)
def test_answers_need_no_other_packages(trained, code, needed):
  installed = {path.name.partition(".")[0] for path in SITE.iterdir()}
  forbid = FORBID % (sorted(installed - needed), str(paths.ROOT))
  result = subprocess.run(
    [sys.executable, "-c", forbid + code, f"--export_dir={trained / 'export'}"],
    input=b"the film was good\n",
    capture_output=True,
    cwd=paths.ROOT,
    timeout=60,
  )
  assert result.stderr == b""
  assert json.loads(result.stdout)["label"] in ("neg", "pos")
