"""Writes a SavedModel, for predict.py and TensorFlow Serving, and opens it.

Its signatures: `ids` computes numbers, of which `bert.serving.answers` makes
answers, and `attention` shows where the model looks. Classifiers and vectors
also have `serving_default`, from strings to answers, for TensorFlow Serving.
Only this file, which splits texts in the graph, and the engine that runs such a
graph need tensorflow-text, whose import takes 120 MB.
Shapes: B texts, L labels, H hidden.
"""

from collections.abc import Callable

import tensorflow as tf

from bert.data import text_prompts
from bert.export import model_functions, tf_tokenization
from bert.serving import export_card, exported_model, tensorflow_engine
from bert.vocabularies import vocabulary_table


def _make_string_server(
  functions: model_functions.ModelFunctions, tokenizer
) -> Callable:
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
  folder: str,
  functions: model_functions.ModelFunctions,
  quantizes: bool = False,
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
    model_functions.Variables(trained.model, tokenizer),
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
