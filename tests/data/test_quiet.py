"""What TensorFlow logs at its import is hidden, its failures are shown."""

import os
import shutil
import sys

import pytest

import paths
import program_flags


def import_with(folder, source, before="", **environment):
  """Imports a TensorFlow of this source as `data.quiet` does."""
  (folder / "tensorflow.py").write_text(source)
  code = "from data import quiet; quiet.import_tensorflow(); print('done')"
  code = before + code
  path = os.pathsep.join([str(folder), str(paths.ROOT)])
  return program_flags.run_command(
    [sys.executable, "-c", code], PYTHONPATH=path, **environment
  )


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


_MODELING = """
import modeling
modeling.BertModel(modeling.BertConfig(9))(modeling.tf.constant([[2, 3]]))
"""
_ENCODER = "import bert; bert.load_encoder('models/mini')"
_EXPORT = """
import contextlib, types
from serving import exported_model
with contextlib.suppress(ValueError):
  card = types.SimpleNamespace(format="saved_model")
  exported_model.open_engine("nowhere", card)
"""


@pytest.mark.parametrize("code", [_MODELING, _ENCODER, _EXPORT])
def test_modules_and_a_first_operation_are_silent(code):
  result = run_alone(code, paths.ROOT)
  assert (result.returncode, result.stdout, result.stderr) == (0, "", "")


def test_a_copy_of_modeling_needs_no_other_file(tmp_path):
  shutil.copy(paths.ROOT / "modeling.py", tmp_path)
  code = "import modeling; print(modeling.__file__)"
  result = run_alone(code, tmp_path)
  assert result.stdout == f"{tmp_path / 'modeling.py'}\n", result.stderr
