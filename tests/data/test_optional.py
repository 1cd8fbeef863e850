"""Programs name optional packages that are missing, before any work."""

import sys

import pytest

import paths
import program_flags

MINI = paths.ROOT / "models" / "mini"
TEXT = paths.ROOT / "sample_text.txt"


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
      "waitress",
      "predict",
      {"serve": True, "export_dir": "none"},
      "serving",
    ),
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
  monkeypatch.delitem(sys.modules, "contrib.word_vocabulary", raising=False)
  monkeypatch.setitem(sys.modules, package, None)
  result = program_flags.run_here(program_flags.command(program, **flags))
  program_flags.assert_refused(result, f"{package} is needed for ")
  assert f" -r requirements/{requirements}.txt" in result.stderr
  assert not result.stdout
  assert not list(tmp_path.iterdir())
