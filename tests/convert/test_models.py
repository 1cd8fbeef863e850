"""The table of variables, beside the models themselves."""

import dataclasses
import math

import pytest

import any_model
from bert import convert_checkpoint, heads, modeling
from bert.convert import models


@pytest.mark.parametrize("width", [None, 4, 8])
@pytest.mark.parametrize(
  ("head", "make"),
  [
    ("encoder", modeling.BertModel),
    ("pretraining", heads.PretrainingModel),
    ("question_answering", heads.SpanModel),
  ],
)
def test_shapes_are_those_of_the_models(head, make, width):
  config = dataclasses.replace(any_model.CONFIG, embedding_size=width)
  found = models.variables(config, head)
  expected = {v.path: tuple(v.shape) for v in make(config).variables}
  if head == "question_answering":  # Hugging Face's has no pooler.
    expected = {k: v for k, v in expected.items() if "/pooler/" not in k}
  assert found == expected


@pytest.mark.parametrize(
  "name, count", [("base", 109482240), ("large", 335141888)]
)
def test_parameters_of_released_models(name, count):
  config = modeling.BertConfig.from_json_file(f"configs/bert_{name}.json")
  shapes = models.variables(config, "encoder").values()
  assert sum(map(math.prod, shapes)) == count


def test_the_flag_has_all_heads():
  assert tuple(models.HEADS) == convert_checkpoint.HEADS
