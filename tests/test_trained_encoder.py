"""An encoder that others trained, in our layers: its values on real texts.

BERT-tiny, fine-tuned on SST-2: two layers of 128, whose GELU is the exact one.
"""

import numpy as np
import pytest
import tensorflow as tf

from bert import heads, modeling
import paths

FOLDER = paths.SHARED / "data/checkpoints/bert_tiny_sst2_encoder"
TEXTS = [
  "src_tmp_embeddings_6d24994b",
  "src_tmp_embeddings_640fa453",
  "inputs-sst2_2556da8b",
  "sample-inputs_0_2556da8b",
  "src_tmp_embeddings_2556da8b",
]

pytestmark = pytest.mark.skipif(
  not FOLDER.is_dir(), reason=f"no trained encoder in {FOLDER}"
)


def load(name):
  with np.load(FOLDER / name) as arrays:
    return {name.replace("|", "/"): arrays[name] for name in arrays}


@pytest.fixture(scope="module")
def model():
  config = modeling.BertConfig(
    vocab_size=2,  # The embeddings are not part of it.
    hidden_size=128,
    num_hidden_layers=2,
    num_attention_heads=2,
    intermediate_size=512,
    hidden_act="gelu_erf",
    max_position_embeddings=2,
  )
  model = heads.ClassifierModel(config, num_labels=2)
  ours = {v.path: v for v in model.variables if "/embeddings/" not in v.path}
  values = load("encoder_float32.npz")
  assert values.keys() == ours.keys()
  for name, value in values.items():
    ours[name].assign(value)
  return model


@pytest.mark.parametrize("text", TEXTS)
def test_layers_pooler_and_logits(model, text):
  expected = load("embedding_outputs_and_expected.npz")
  embedded = tf.constant(expected[f"{text}/embedding_output"])[None]
  mask = tf.ones(embedded.shape[:2], tf.int32)
  states, _ = model.bert.encoder(embedded, mask)
  attended, _ = model.bert.encoder.blocks[0].attention(embedded, mask)
  pooled = model.bert.pooler(states[-1])
  logits = tf.matmul(pooled, model.output_weights.value, transpose_b=True)
  for name, value in {
    "layer_0/attention/output": attended[0],
    "layer_0/output": states[0][0],
    "layer_1/output": states[1][0],
    "pooler": pooled,
    "logits": logits + model.output_bias.value,
  }.items():
    np.testing.assert_allclose(
      value, expected[f"{text}/expected/{name}"], atol=2e-5, err_msg=name
    )
