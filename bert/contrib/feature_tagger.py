"""The feature-based tagger: a BiLSTM on a frozen BERT (section 5.3).

Shapes: B batch, S sequence, H hidden, L labels.
"""

from collections.abc import Sequence

import keras
import tensorflow as tf

from bert import heads, modeling
from bert.contrib import bilstm
from bert.encoders import encoder_table


class FeatureTaggerModel(heads.HeadModel):
  """A BiLSTM on a frozen BERT; called like a `TaggerModel`.

  Args:
    config: of BERT.
    num_labels: L.
    dtype: of BERT; see `modeling.BertModel`. The rest is float32.
    feature_layers: the numbers of the layers whose outputs are the input of the
      LSTMs, concatenated; 0 means the embeddings and -1 the last layer. After
      "mix" they are summed by learned weights instead, see `ScalarMix`; "mix"
      alone stands for all of them.
    lstm_size: units of the LSTMs in each direction.
    dropout_rate: on the input of every LSTM and of the output.
  """

  scores_tokens = True
  recorded = {"feature_layers": (list,), "lstm_size": (range(1, 10**4),)}

  def __init__(
    self,
    config: modeling.EncoderConfig,
    num_labels: int,
    dtype: str | None = None,
    feature_layers: Sequence[str | int] = (-4, -3, -2, -1),
    lstm_size: int = 768,
    dropout_rate: float = 0.1,
  ):
    super().__init__(dtype="float32", name="feature_tagger")

    # For `get_config`: Keras makes the model again from these.
    self._settings = {
      "num_labels": num_labels,
      "feature_layers": list(feature_layers),
      "lstm_size": lstm_size,
      "dropout_rate": dropout_rate,
    }
    self.dropout_rate = dropout_rate

    # Frozen: the optimizer gets no variable of BERT.
    self.bert = encoder_table.make_encoder(config, dtype)
    self.bert.trainable = False
    self.layers_used = _read_layers(feature_layers, config.num_hidden_layers)

    # A sum of layers is as wide as one of them, a concatenation as all.
    count = len(self.layers_used)
    is_mixed = "mix" in feature_layers
    self.mix = ScalarMix(count) if is_mixed else None
    size = config.hidden_size * (1 if is_mixed else count)

    # The paper's tagger: two layers of BiLSTMs (section 5.3), then logits.
    self.lstms = []
    for index in range(2):
      lstm = bilstm.BiLstm(
        size, lstm_size, name=f"lstm_{index}", dtype="float32"
      )
      lstm.build()
      self.lstms.append(lstm)
      size = 2 * lstm_size
    self.output_weights, self.output_bias = heads.make_output(num_labels, size)

  def get_config(self):
    return super().get_config() | self._settings

  @classmethod
  def from_training(cls, config, num_labels, settings):
    own = {name: settings[name] for name in cls.recorded}
    return cls(config, num_labels, "float32", **own)

  def call(self, input_ids, input_mask, segment_ids, seed=None, training=False):
    seed = modeling.choose_seed(seed, training)
    hidden = self.features(input_ids, input_mask, segment_ids)

    # Each dropout draws by a number of its own, else all would drop the same.
    for index, lstm in enumerate(self.lstms):
      hidden = self._drop(hidden, seed, index)
      hidden = lstm(hidden, input_mask)  # [B, S, 2 * lstm_size]
    dropped = self._drop(hidden, seed, len(self.lstms))
    return heads.score_tokens(dropped, self.output_weights, self.output_bias)

  def features(self, input_ids, input_mask, segment_ids):
    """Returns the outputs of the frozen layers, float32 [B, S, H or more]."""
    # Without dropout: BERT does not learn here, its outputs are only read.
    inputs = input_ids, input_mask, segment_ids
    output = self.bert(*inputs, return_hidden_states=True, training=False)

    # Without a gradient, TensorFlow computes no backward pass of BERT.
    used = [output.hidden_states[layer] for layer in self.layers_used]
    used = [tf.cast(tf.stop_gradient(state), tf.float32) for state in used]
    return tf.concat(used, -1) if self.mix is None else self.mix(used)

  def _drop(self, x, seed, index):
    return modeling.dropout(x, self.dropout_rate, modeling.fold_in(seed, index))


class ScalarMix(keras.layers.Layer):
  """Sums tensors of one shape by learned weights, like ELMo's layers.

  Peters et al., https://arxiv.org/abs/1802.05365, equation 1. Call with a list
  of float32 tensors.
  """

  def __init__(self, count: int):
    super().__init__(dtype="float32", name="scalar_mix")
    self.count = count
    self.build()

  def build(self, input_shape=None):
    self.mix_weights = self.add_weight(
      name="mix_weights", shape=[self.count], initializer="zeros"
    )
    self.scale = self.add_weight(name="scale", shape=[], initializer="ones")

  def call(self, tensors):
    # Zeros at first, so that all layers have the same share: softmax(0).
    shares = tf.unstack(tf.nn.softmax(self.mix_weights.value))
    terms = [w * x for w, x in zip(shares, tensors, strict=True)]
    return self.scale.value * tf.add_n(terms)


def _read_layers(names: Sequence[str | int], num_layers: int) -> list[int]:
  """Returns the layers that `feature_layers` names; a ValueError if none."""
  # The embeddings are layer 0: there is one output more than layers.
  if list(names) == ["mix"]:
    return list(range(num_layers + 1))

  # Compared as strings: `int` would also read "1_0" and " 2".
  numbers = list(map(str, names))
  if numbers[:1] == ["mix"]:
    numbers = numbers[1:]
  allowed = range(-num_layers - 1, num_layers + 1)
  if not numbers or not set(numbers) <= set(map(str, allowed)):
    raise ValueError(
      f"--feature_layers={','.join(map(str, names))}: expected mix, or numbers "
      f"from {allowed[0]} to {allowed[-1]}, such as -2,-1 or mix,-2,-1"
    )
  return list(map(int, numbers))
