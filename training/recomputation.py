"""Gradient checkpointing: trains BERT's layers in less memory.

Chen et al., "Training Deep Nets with Sublinear Memory Cost",
https://arxiv.org/abs/1604.06174, section 4.1: only the input of each encoder
layer is kept for the backward pass, which recomputes the rest.
"""

from typing import Any

import tensorflow as tf

import modeling
from training import prediction


def recompute_layers(bert: modeling.BertModel) -> None:
  """Makes a BERT recompute its encoder layers in the backward pass.

  Outputs and gradients do not change: dropout is a function of its seed. Calls
  without a seed, which do not train, do not change at all; calls with a seed
  cannot return the attention.
  """
  encoder = bert.encoder

  def call(hidden, input_mask, seed=None):
    states, attention = [], []
    for i, block in enumerate(encoder.blocks):
      inputs = (hidden, input_mask, modeling.fold_in(seed, i))
      hidden, probs = _call_block(block, *inputs)
      states.append(hidden)
      attention.append(probs)
    return states, attention

  encoder.call = call


def _call_block(
  block: modeling.EncoderLayer,
  hidden: tf.Tensor,
  input_mask: tf.Tensor,
  seed: tf.Tensor | None,
) -> tuple[tf.Tensor, tf.Tensor | None]:
  """Calls an encoder layer; with the same arguments and results."""
  if seed is None:
    return block(hidden, input_mask)

  def run(inputs, input_mask, seed):
    hidden, *weights = inputs
    # As tensors: a custom gradient cannot use variables of a strategy.
    with prediction.substituted(block.variables, weights):
      return block(hidden, input_mask, seed)[0]

  @tf.custom_gradient
  def call(*inputs):
    def gradient(upstream):
      # The dependency keeps TensorFlow from merging the two passes again. The
      # seed needs it too: else masks are kept.
      with tf.control_dependencies([upstream]):
        again, others = tf.nest.map_structure(
          tf.identity, [list(inputs), [input_mask, seed]]
        )
      with tf.GradientTape() as tape:
        tape.watch(again)
        output = run(again, *others)
      return tape.gradient(output, again, upstream)

    return run(inputs, input_mask, seed), gradient

  output: Any = call(hidden, *(v.value for v in block.variables))
  return output, None
