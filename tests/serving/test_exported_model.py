"""Exports as a processor finds them."""

import dataclasses

import pytest

from bert.data import processor
from bert.serving import exported_model
import tiny_models

NOTE = (
  "note: {}: an int8 export of an older version, whose products saturate on "
  "this processor, which has no VNNI: answers may differ from those that were "
  "compared; export the model again\n"
)


@pytest.mark.parametrize(
  ("quantization", "saturates", "notes"),
  [
    ({"dtype": "int8"}, True, 1),
    ({"dtype": "int8"}, False, 0),
    ({"dtype": "int8", "saturates": False}, True, 0),
    ({}, True, 0),
  ],
)
def test_an_int8_export_that_may_saturate_is_named(
  tmp_path, monkeypatch, capsys, quantization, saturates, notes
):
  monkeypatch.setattr(processor, "saturates_int8", lambda: saturates)
  card = tiny_models.make_maker(tmp_path, ["text"]).card
  card = dataclasses.replace(card, format="onnx", quantization=quantization)
  with pytest.raises((OSError, ValueError), match=r"model\.onnx"):
    exported_model.open_engine(str(tmp_path), card, name="onnxruntime")
  assert capsys.readouterr().err.count(NOTE.format(tmp_path)) == notes


@pytest.mark.parametrize("format", ["litert", "flatbuffer"])
def test_a_format_that_no_engine_runs(tmp_path, format):
  card = tiny_models.make_maker(tmp_path, ["text"]).card
  card = dataclasses.replace(card, format=format)
  message = f"its format is {format}; this takes onnx or saved_model"
  with pytest.raises(ValueError, match=message):
    exported_model.open_engine(str(tmp_path), card)
