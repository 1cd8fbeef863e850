"""TensorFlow's import is silent, and missing optional packages are named."""

import os
import shutil
import sys

import pytest

import paths
import program_flags

MINI = paths.ROOT / "models" / "mini"
TEXT = paths.ROOT / "sample_text.txt"


def import_with(folder, source, before="", **environment):
  """Imports a TensorFlow of this source as `bert.data.imports` does."""
  (folder / "tensorflow.py").write_text(source)
  code = (
    "from bert.data import imports; imports.import_tensorflow(); print('done')"
  )
  code = before + code
  path = os.pathsep.join([str(folder), str(paths.ROOT)])
  return program_flags.run_command(
    [sys.executable, "-c", code], PYTHONPATH=path, **environment
  )


def test_an_interrupt_waits_for_the_end_of_an_import(tmp_path):
  """A C extension would turn it into an ImportError."""
  source = "import os, signal\nos.kill(os.getpid(), signal.SIGINT)\n"
  source += "print('imported', flush=True)"
  result = import_with(tmp_path, source)
  assert result.stdout == "imported\n"
  assert result.stderr.endswith("KeyboardInterrupt\n")


def test_tensorflows_log_is_hidden_unless_its_import_fails(tmp_path):
  hidden = {"TF_CPP_MIN_LOG_LEVEL": "3"}
  noise = "import os; os.write(2, b'I0000 no CUDA\\n')\n"
  result = import_with(tmp_path, noise, **hidden)
  assert (result.stdout, result.stderr) == ("done\n", "")
  result = import_with(tmp_path, noise, TF_CPP_MIN_LOG_LEVEL="0")
  assert (result.stdout, result.stderr) == ("done\n", "I0000 no CUDA\n")
  nowhere = "import tempfile; tempfile.tempdir = '/nowhere'\n"
  result = import_with(tmp_path, noise, nowhere, **hidden)
  assert (result.stdout, result.stderr) == ("done\n", "I0000 no CUDA\n")
  failure = "raise ImportError('libtensorflow.so: no such file')"
  result = import_with(tmp_path, noise + failure, **hidden)
  assert result.stderr.startswith("I0000 no CUDA\n")
  assert "libtensorflow.so: no such file" in result.stderr


def run_alone(code, folder):
  """Runs Python in a folder, without the level of logs that the tests set."""
  command = ["env", "-u", "TF_CPP_MIN_LOG_LEVEL", "-C", folder, sys.executable]
  return program_flags.run_command([*command, "-c", code])


_ENCODER = "import bert; bert.load_encoder('models/mini')"
_EXPORT = """
import contextlib, types
from bert.serving import exported_model
with contextlib.suppress(ValueError):
  card = types.SimpleNamespace(
    format="saved_model", quantization={}, hashes={}
  )
  exported_model.open_engine("nowhere", card)
"""


@pytest.mark.parametrize(
  "code", [_ENCODER, pytest.param(_EXPORT, marks=pytest.mark.slow)]
)
def test_work_from_python_is_silent(code):
  result = run_alone(code, paths.ROOT)
  assert (result.returncode, result.stdout, result.stderr) == (0, "", "")


def test_a_copy_of_modeling_needs_no_other_file(tmp_path):
  shutil.copy(paths.ROOT / "modeling.py", tmp_path)
  code = "import modeling; print(modeling.__file__)"
  result = run_alone(code, tmp_path)
  assert result.stdout == f"{tmp_path / 'modeling.py'}\n", result.stderr


@pytest.mark.parametrize(
  ("package", "program", "flags", "requirements"),
  [
    (
      package,
      "export_saved_model",
      {"model": MINI, "format": "onnx", "export_dir": "new"},
      "onnx",
    )
    for package in ("onnx", "onnxruntime")
  ]
  + [
    (
      "keras_hub",
      "convert_checkpoint",
      {"input": MINI, "output_format": "keras_hub", "output": "new"},
      "keras_hub",
    ),
    (
      "sentencepiece",
      "create_vocab",
      {"input_file": TEXT, "model": "unigram", "output_file": "new.model"},
      "sentencepiece",
    ),
    (
      "jieba",
      "create_vocab",
      {"input_file": TEXT, "model": "words", "output_file": "new.words"},
      "jieba",
    ),
  ],
)
def test_what_is_missing_is_named_before_any_work(
  tmp_path, monkeypatch, package, program, flags, requirements
):
  monkeypatch.chdir(tmp_path)
  monkeypatch.delitem(
    sys.modules, "bert.contrib.word_vocabulary", raising=False
  )
  monkeypatch.setitem(sys.modules, package, None)
  result = program_flags.run_here(program_flags.command(program, **flags))
  program_flags.assert_refused(result, f"{package} is needed for ")
  assert f" -r requirements/{requirements}.txt" in result.stderr
  assert not result.stdout
  assert not list(tmp_path.iterdir())


def test_programs_and_modules_are_imported_silently():
  """The tokenizer is imported without TensorFlow."""
  code = "import sys\nfrom bert import tokenization\n"
  code += "assert 'tensorflow' not in sys.modules\n"
  code += "from bert import modeling, run_classifier\n"
  result = program_flags.run_command(
    [sys.executable, "-c", code], PYTHONPATH=str(paths.ROOT)
  )
  assert (result.returncode, result.stderr) == (0, "")
