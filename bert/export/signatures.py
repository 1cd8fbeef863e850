"""A trained model as TensorFlow functions: the signatures of a SavedModel.

`ids` computes numbers, of which `bert.serving.answers` makes answers, and
`attention` shows where the model looks. Classifiers and vectors also have
`serving_default`, from strings to answers, for TensorFlow Serving.
Shapes: B texts, S tokens, L labels, H hidden, M masks, K guesses.
"""

from collections.abc import Callable, Mapping
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from bert import heads
from bert.data import text_prompts
from bert.export import tf_tokenization, trained_models
from bert.serving import answers, export_card, exported_model, tensorflow_engine
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


def _make_string_server(functions: ModelFunctions, tokenizer) -> Callable:
  """Returns the function from strings [B] to answers; text_pair may be "".

  These are vectors [B, H]; value [B]; or labels and probabilities [B, L], with
  label [B] or chosen, bool [B, L]. And truncated, bool [B].
  """
  trained = functions.trained
  most = functions.max_seq_length
  python = vocabulary_table.make_tokenizer(functions.vocab_file)
  cls_id, sep_id = python.convert_tokens_to_ids(["[CLS]", "[SEP]"])
  labels = tf.constant(list(trained.labels), tf.string)
  get = trained.answer_settings.get
  prompt = text_prompts.find_prompt(
    get("prompts"), get("default_prompt_name"), "prompt_name"
  )

  def serve(text, text_pair=None):
    if text_pair is None:
      text_pair = tf.zeros_like(text)

    # As `answers.Features` prepares texts: a prompt before the first alone.
    texts = [prompt + text if prompt else text, text_pair]
    if get("lower_case"):
      texts = map(tf_tokenization.lower_characters, texts)
    ids_a, ids_b = (tokenizer.encode(x, most) for x in texts)
    *inputs, was_cut = tf_tokenization.pack(ids_a, ids_b, cls_id, sep_id, most)
    outputs = {**functions.traced(*inputs), "truncated": was_cut}

    # A vector or a number is the answer; probabilities need their labels.
    if "logits" not in outputs:
      return outputs
    del outputs["logits"]
    probabilities = outputs["probabilities"]
    outputs["labels"] = tf.broadcast_to(labels, tf.shape(probabilities))

    # As `Problem.decide` of classification_problems.py, which is in numpy.
    if functions.maker.has_thresholds:
      return {**outputs, "chosen": probabilities >= list(trained.thresholds)}
    best = tf.argmax(probabilities, -1)
    return {**outputs, "label": tf.gather(labels, best)}

  return serve


def save(
  folder: str, functions: ModelFunctions, quantizes: bool = False
) -> None:
  """Writes a SavedModel; the head of this file names its signatures.

  Args:
    folder: to write to.
    functions: of the model.
    quantizes: must be False, as this format has no products of int8; it is an
      argument because all writers of `formats.FORMATS` are called alike.
  """
  # From ids to numbers.
  trained = functions.trained
  specs = functions.input_specs()
  # Traced once for two signatures: half the graph, half the time to load.
  named = {"ids": tf.function(lambda *ids: functions.traced(*ids), specs)}
  if hasattr(trained.config, "num_attention_heads"):
    named["attention"] = tf.function(functions.attention, specs)

  # From strings to answers, for classifiers and vectors: the makers that take a
  # pair. Where a maker would make windows (--doc_stride), this cuts the text.
  tokenizer = None
  texts = functions.maker.texts
  if "text_pair" in texts:
    tokenizer = tf_tokenization.make_tokenizer(
      functions.vocab_file, trained.do_lower_case
    )
    serve = _make_string_server(functions, tokenizer)
    names = texts if trained.has_text_pair else texts[:1]
    strings = [tf.TensorSpec([None], tf.string, name) for name in names]
    named["serving_default"] = tf.function(serve, strings)

  tf.saved_model.save(
    Variables(trained.model, tokenizer),
    folder,
    signatures=named,
    options=tf.saved_model.SaveOptions(experimental_custom_gradients=False),
  )


def load(folder: str, card: export_card.Card) -> exported_model.Run:
  """Opens a new export, to compare it, and tries what takes strings."""
  engine = tensorflow_engine.Engine(folder)

  # A fault of the graph that splits texts shows here, not at the first user.
  serve = engine.model.signatures.get("serving_default")
  if serve:
    names = serve.structured_input_signature[1]
    serve(**{name: tf.constant(["a b", ""]) for name in names})
  return engine.run
