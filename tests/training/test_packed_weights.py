"""Processes that only predict in bfloat16 let oneDNN keep their weights."""

import sys

import pytest

from bert import extract_features, run_classifier
from bert.data import processor
import paths
import program_flags

_MODEL = {"model": "x", "precision": "bfloat16"}
_TEXTS = _MODEL | {"input_file": "x", "output_file": "x"}
_TASK = _MODEL | {"task_name": "x", "output_dir": "x"}


@pytest.mark.parametrize(
  ("kind", "values", "packs"),
  [
    (extract_features.VectorSettings, _TEXTS, True),
    (extract_features.VectorSettings, _TEXTS | {"precision": "float32"}, False),
    (extract_features.VectorSettings, _TEXTS | {"precision": "auto"}, True),
    (extract_features.VectorSettings, _TEXTS | {"use_tpu": True}, False),
    (run_classifier.ClassifierSettings, _TASK | {"do_predict": True}, True),
    (run_classifier.ClassifierSettings, _TASK | {"do_train": True}, False),
  ],
)
def test_only_bfloat16_without_training_packs(kind, values, packs, monkeypatch):
  settings, ask = kind.parse(values), "multiplies_bfloat16"
  monkeypatch.setattr(processor, ask, lambda: True)
  assert settings.packs_weights is packs
  monkeypatch.setattr(processor, ask, lambda: False)
  assert not settings.packs_weights


# The next test packs.
@pytest.mark.parametrize(
  "packs", [pytest.param(True, marks=pytest.mark.slow), False]
)
def test_the_environment_does_not_pack_in_a_training(packs):
  code = "from bert.data import imports; "
  code += (
    f"imports.import_tensorflow({packs}); print(imports.weights_are_packed())"
  )
  result = program_flags.run_command(
    [sys.executable, "-c", code],
    PYTHONPATH=str(paths.ROOT),
    TF_ONEDNN_ASSUME_FROZEN_WEIGHTS="1",
  )
  assert result.stdout == f"{packs}\n"


# Two models, and the first once more with the weights of the second. Roundings
# of bfloat16 move a state by less than 0.2; the models are more than 1 apart,
# so a state that comes from the wrong weights is noticed.
_SCRIPT = """
from bert.data import imports
imports.import_tensorflow(packs_weights=True)
import keras, numpy as np, tensorflow as tf
from bert.encoders import compiled
from bert import modeling
from bert.training import prediction

config = modeling.BertConfig(
  100, 64, 2, num_attention_heads=4, intermediate_size=128,
  initializer_range=0.2)
ids = tf.reshape(tf.range(400) % 100, [20, 20])
data = tf.data.Dataset.from_tensors({"ids": ids})

def forward(model, features, seed=None):
  return model(features["ids"], return_hidden_states=True)

def predict(output, features):
  return {"states": tf.cast(output.hidden_states[-1], tf.float32)}

models, found = [], []
for seed in (1, 2):
  keras.utils.set_random_seed(seed)
  models.append(compiled.BertModel(config, "mixed_bfloat16"))
plain = tf.function(lambda ids: predict(forward(models[0], {"ids": ids}), {}))
plain(ids)
predictors = [
  prediction.Predictor(tf.distribute.get_strategy(), model, predict, forward)
  for model in models]
found += [predictor(data)["states"] for predictor in predictors]
outputs = [forward(model, {"ids": ids}) for model in models]
expected = [predict(output, {})["states"] for output in outputs]
for a, b in zip(*(model.variables for model in models)):
  a.assign(b.value)
found += [predictors[0](data)["states"] for _ in range(2)]

# A function that is not made anew computes with its first weights.
stale = np.abs(plain(ids)["states"] - expected[1]).max() > 1
for states, right in zip(found, [*expected, *expected[1:] * 2], strict=True):
  assert np.abs(states - right).max() < 0.2, np.abs(states - right).max()
assert np.abs(found[0] - found[1]).max() > 1

# Matrices are kept in the type that they are multiplied in; tables are not.
kinds = {v.dtype for v in models[0].variables if v.name == "kernel"}
tables = {v.dtype for v in models[0].variables if "embeddings" in v.path}
assert (kinds, tables) == ({"bfloat16"}, {"float32"}), (kinds, tables)
assert not prediction.matrices_to_cast(models[0])
assert (found[1] == found[2]).all() and (found[2] == found[3]).all()
print("packed" if stale else "not packed")
"""


def test_other_weights_in_bfloat16_get_their_own_answers():
  """Which shows something only where weights are packed."""
  result = program_flags.run_command(
    [sys.executable, "-c", _SCRIPT], PYTHONPATH=str(paths.ROOT)
  )
  assert result.returncode == 0, result.stderr
  assert result.stdout == "packed\n" or not processor.multiplies_bfloat16()
