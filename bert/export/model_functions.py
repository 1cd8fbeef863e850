"""A trained model as TensorFlow functions, of which exports are made.

They take ids of tokens; `bert.serving.answers` makes answers of the numbers.
Shapes: B texts, S tokens, L labels, H hidden, M masks, K guesses.
"""

from collections.abc import Mapping
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from bert import heads
from bert.export import trained_models
from bert.serving import answers
from bert.training import same_run
from bert.vocabularies import vocabulary_table


class ModelFunctions:
  """Computes the numbers of which a trained model's answers are made.

  `compute` and `attention` are functions of tensors, of which exports are made;
  an `exported_model.Engine` runs them here, in memory. `input_names` are those
  of the tensors, each int32 [B, S] but for what a head takes besides.
  """

  def __init__(self, trained: trained_models.TrainedModel, vocab_file: str):
    self.trained = trained
    self.vocab_file = vocab_file
    self.maker = answers.find_maker(trained.kind)
    self.max_seq_length = trained.answer_settings["max_seq_length"]

    # Which tokens there are to guess.
    vocab = vocabulary_table.load_vocab(vocab_file)
    self.num_tokens = len(vocabulary_table.ids_of_tokens(vocab))
    rows = trained.config.vocab_size
    # Added to logits: no row of the embeddings without a token is a guess.
    bias = vocabulary_table.bias_of_rows(vocab, rows)
    self.row_bias = np.array(bias, np.float32)
    self.mask_id = vocab.get(answers.MASK)  # None if it has no such token.

    # Models that were only pre-trained: what their answers need is made here.
    pretrained = {answers.FEATURES: self._pool, answers.FILL_MASK: self._guess}
    self._compute = pretrained.get(trained.kind, self._apply_head)
    self.input_names = heads.HeadModel.input_names
    if trained.kind not in pretrained:
      self.input_names = trained.model.input_names
    self.traced = tf.function(self.compute, self.input_specs())

  def input_specs(self, has_one_shape: bool = False) -> list[tf.TensorSpec]:
    """Describes the inputs: any number of any length, or one of the longest."""
    shapes = dict.fromkeys(self.input_names, [None, None])
    if has_one_shape:
      shapes = dict.fromkeys(self.input_names, [1, self.max_seq_length])
      more = self.maker.more_inputs
      shapes |= {name: [1, len(row)] for name, row in more.items()}
    return [tf.TensorSpec(s, tf.int32, name) for name, s in shapes.items()]

  def compute(self, *inputs: tf.Tensor) -> dict[str, tf.Tensor]:
    """Computes what `answers` reads, of the tensors of `input_names`."""
    return self._compute(*inputs)

  def _apply_head(self, *inputs):
    """Computes the outputs of a trained head; onnx_graph.py keeps in step."""
    outputs = self.trained.model.named_outputs(*inputs)
    if self.maker.number:
      return {self.maker.number: outputs["logits"][:, 0]}
    if self.maker.activation:
      activate = getattr(tf.nn, self.maker.activation)
      outputs["probabilities"] = activate(outputs["logits"])
    return outputs

  def _pool(self, *ids):
    states = self.trained.model(*ids, return_hidden_states=True).hidden_states

    settings = self.trained.answer_settings
    state = states[1:][settings["layer"]]  # The first is the embedding.
    vectors = heads.pool(state, ids[1], settings["pooling"])
    vectors = getattr(self.trained.model, "project", tf.identity)(vectors)
    if settings.get("normalize"):
      vectors = heads.normalize(vectors)
    return {"vectors": vectors}

  def _guess(self, input_ids, *others):
    """Guesses masked words, whose positions are int32 [B, M], -1 for none.

    The ids, int32, and probabilities of the guesses are [B, M, K].
    """
    # Where the masks of each text are; texts have different numbers of them.
    places = tf.range(tf.shape(input_ids)[1])[None] + tf.zeros_like(input_ids)
    masks = tf.ragged.boolean_mask(places, input_ids == self.mask_id)
    positions = masks.to_tensor(default_value=-1)  # [B, M]

    # At a place that only fills up, the first token is scored for nothing.
    output = self.trained.model(input_ids, *others, tf.maximum(positions, 0))
    logits = output.masked_lm_logits + self.row_bias

    count = min(self.trained.answer_settings["top_k"], self.num_tokens)
    best, ids = tf.math.top_k(tf.nn.softmax(logits), count)
    return {"positions": positions, "ids": ids, "probabilities": best}

  def attention(self, *inputs: tf.Tensor) -> dict[str, tf.Tensor]:
    """Computes the attention of inputs: [B, layers, heads, S, S]."""
    # A model for vectors is the encoder itself, without a head. Inputs that a
    # head takes besides are not the encoder's.
    encoder = getattr(self.trained.model, "bert", self.trained.model)
    ids = inputs[: len(heads.HeadModel.input_names)]
    probs = encoder(*ids, return_attention_probs=True).attention_probs
    return {"attention": tf.stack(probs, 1)}

  def run(self, inputs: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Computes as an `exported_model.Engine`."""
    outputs = self.traced(*self._tensors(inputs))
    return {name: value.numpy() for name, value in outputs.items()}

  def attend(self, inputs: Mapping[str, np.ndarray]) -> np.ndarray:
    """Computes the attention as an `exported_model.Engine`."""
    return self.attention(*self._tensors(inputs))["attention"].numpy()

  def hash_weights(self) -> str:
    """Returns the SHA-256 of the weights."""
    return same_run.hash_weights(self.trained.model)

  def _tensors(self, inputs):
    return [tf.constant(inputs[name]) for name in self.input_names]


class Variables(tf.Module):
  """What is saved beside a function: a model's variables, a tokenizer's tables.

  They are not the model, as Keras's objects are of no use without Keras.
  """

  def __init__(self, model: keras.layers.Layer, tokenizer: Any = None):
    super().__init__()
    self.weights = [variable.value for variable in model.variables]
    self.tokenizer = tokenizer
