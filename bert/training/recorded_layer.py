"""Records an encoder layer once for all layers, so that training starts sooner.

`tf.function` records what Python calls. BERT-Base calls its encoder layer 12
times, and would be recorded and optimized as 12 layers, with 12 backward
passes: half of the time from the command to the first update. The layers differ
only in their weights. Here the layer is a function of its weights, recorded
once and called 12 times, as a compiler of other languages would do it.

The operations are the same, in the same order, and so are the numbers.
"""

import tensorflow as tf

from bert import modeling
from bert.encoders import compiled
from bert.training import prediction


def record_once(bert: modeling.BertModel) -> None:
  """Makes the layers of an encoder share one recording where they are trained.

  Outputs and gradients do not change. Calls without a seed, which do not train,
  do not change at all; calls with a seed cannot return the attention.

  Only layers of bert/encoders/compiled.py are known to be alike. A class of
  somebody else may do in one layer what it does not do in the next, so a model
  with other layers stays as it is; and so does one whose layers are made with
  different configs, such as a dropout that grows from layer to layer.
  """
  if not isinstance(bert, compiled.BertModel):
    return
  encoder = bert.encoder
  blocks = encoder.blocks
  # Another encoder may do more than call its layers.
  if type(encoder) is not modeling.Encoder:
    return
  if type(blocks[0]) is not compiled.EncoderLayer:
    return
  if any(_kind(block) != _kind(blocks[0]) for block in blocks):
    return

  # TensorFlow would otherwise copy the function to where it is called, and then
  # optimize every copy.
  @tf.function(autograph=False, experimental_attributes={"_noinline": True})
  def call_layer(hidden, input_mask, seed, weights):
    # The first layer stands for all: it computes with the weights it is given.
    with prediction.substituted(blocks[0].variables, weights):
      # The attention is not returned: as a result, it would get a gradient, an
      # array of zeros as large as itself.
      return blocks[0](hidden, input_mask, seed)[0]

  def call(hidden, input_mask, seed=None):
    # Without a seed, oneDNN may keep packed weights in the operations of a
    # layer: these belong to one layer.
    if seed is None:
      return type(encoder).call(encoder, hidden, input_mask)

    states = []
    for i, block in enumerate(blocks):
      # `value` may be a variable, or what `substituted` has put in its place.
      weights = [tf.convert_to_tensor(v.value) for v in block.variables]
      hidden = call_layer(
        hidden, input_mask, modeling.fold_in(seed, i), weights
      )
      states.append(hidden)
    return states, [None] * len(states)

  encoder.call = call


def _kind(block):
  """Returns what layers share that differ only in their weights."""
  variables = [(v.name, v.shape) for v in block.variables]
  return type(block), block.config, block.dtype_policy, variables
