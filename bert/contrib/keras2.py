"""Files of Keras 2 with a BERT of keras-bert or bert-for-tf2: `model.save*`.

Keras names a variable by its layer: keras-bert's Encoder-1-FeedForward counts
layers from 1, bert-for-tf2's bert/encoder/layer_0 is nearly Google's. Nothing
of a file is executed: in the description of the model one number is looked for.
"""

import os
import re

from bert import modeling
from bert.convert import models, tf_files
from bert.weights import fitting

# From the names of a file, with a slash before, to Google's.
_NAMES = (
  (r":\d+$", ""),
  # keras-bert's; of the variables of a layer, Wq is a kernel and bq a bias.
  (r"^.*/Encoder-(\d+)-", r"bert/encoder/from_1_\1/"),
  ("/MultiHeadSelfAttention-Norm/", "/attention/output/LayerNorm/"),
  ("/FeedForward-Norm/", "/output/LayerNorm/"),
  (r"/(?:MultiHeadSelfAttention|FeedForward)_W(\w)$", r"/\1/kernel"),
  (r"/(?:MultiHeadSelfAttention|FeedForward)_b(\w)$", r"/\1/bias"),
  ("/q/", "/attention/self/query/"),
  ("/k/", "/attention/self/key/"),
  ("/v/", "/attention/self/value/"),
  ("/o/", "/attention/output/dense/"),
  ("/1/", "/intermediate/dense/"),
  ("/2/", "/output/dense/"),
  ("^.*/Embedding-Token/embeddings$", "bert/embeddings/word_embeddings"),
  ("^.*/Embedding-Position/embeddings$", "bert/embeddings/position_embeddings"),
  ("^.*/Embedding-Segment/\\w+$", "bert/embeddings/token_type_embeddings"),
  ("^.*/Embedding-Norm/", "bert/embeddings/LayerNorm/"),
  ("^.*/NSP-Dense/", "bert/pooler/dense/"),
  ("^.*/NSP/kernel$", "cls/seq_relationship/output_weights"),
  ("^.*/NSP/bias$", "cls/seq_relationship/output_bias"),
  ("^.*/MLM-(Dense|Norm)/", r"cls/predictions/transform/\1/"),
  ("/transform/Dense/", "/transform/dense/"),
  ("/transform/Norm/", "/transform/LayerNorm/"),
  ("^.*/MLM-Sim/bias$", "cls/predictions/output_bias"),
  # bert-for-tf2's.
  (r"^.*/(embeddings/\w+_embeddings)/embeddings$", r"bert/\1"),
  (r"^.*/(embeddings/LayerNorm|encoder/layer_\d+)/", r"bert/\1/"),
  (r"(layer_\d+)/intermediate/(kernel|bias)$", r"\1/intermediate/dense/\2"),
)
# With one layer: layers are looked up without their number.
_KNOWN = set(models.variables(modeling.BertConfig(2, 2, 1, 1), "pretraining"))


def open_model(path: str) -> models.ModelFolder:
  """Opens a file; without a description of the model it has no config.

  A ValueError says that it is damaged, or that it holds no such BERT.
  """
  stored, attributes = tf_files.open_datasets(path)
  description = str(attributes.get("model_config", ""))

  # What is not BERT's, such as a classifier on top, is left out, which the
  # programs say. But an encoder that lacks a weight would compute otherwise, so
  # that an unknown name inside of it ends the reading.
  variables: dict[str, models.StoredVariable] = {}
  unread = []
  unknown = []
  for name, variable in stored.items():
    google = _to_google(name)
    if name.startswith("optimizer_weights/"):
      unread.append(name)
    elif google in variables:
      raise ValueError(
        f"{path}: two of its variables are {google}: two models are in it; "
        "save one"
      )
    elif re.sub(r"layer_\d+", "layer_0", google) in _KNOWN:
      # Google's matrix has a row for each of the two answers, Keras's a column.
      is_head = google == "cls/seq_relationship/output_weights"
      variables[google] = variable.transposed() if is_head else variable
    else:
      is_inside = google.startswith("bert/encoder/")
      (unknown if is_inside else unread).append(name)

  models.refuse_unknown(path, unknown)
  # A file of another model may have an encoder's names, but no table of words.
  if "bert/embeddings/word_embeddings" not in variables:
    raise ValueError(
      f"{path}: holds no BERT by the names of keras-bert or bert-for-tf2, but "
      f"{sorted(stored)[:5]!r:.300}"
    )

  return models.ModelFolder(
    models.make_weights(path, variables, unread),
    (os.path.dirname(path) or ".",),
    _find_config(path, variables, description),
    library="Keras 2",
    assumed=("hidden_act",),
  )


def _to_google(name: str) -> str:
  """Returns Google's name of a variable; of others, some name."""
  google = models.rename(f"/{name}", _NAMES)
  return re.sub(
    r"^bert/encoder/from_1_(\d+)",
    lambda match: f"bert/encoder/layer_{int(match[1]) - 1}",
    google,
  )


def _find_config(
  path: str, variables: dict[str, models.StoredVariable], description: str
) -> modeling.BertConfig | None:
  """Returns the config that shapes and a description show, if it has one."""
  heads = set(re.findall(r'"(?:head_num|num_heads)": (\d{1,6})\b', description))
  if len(heads) != 1:  # Keras's `save_weights` describes no model.
    return None

  # Sizes are those of the weights; only the number of heads is in none of them.
  shapes = {name: variable.shape for name, variable in variables.items()}
  fields = {**fitting.fields_of(shapes), "num_attention_heads": int(*heads)}
  try:
    return modeling.BertConfig.from_dict(fields)
  except ValueError as error:
    raise ValueError(f"{path}: not the weights of a BERT: {error}") from None
