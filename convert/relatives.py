"""Models of other names whose encoder is a BERT's: ELECTRA, DistilBERT.

Two tables say what differs: the fields of config.json, and the variables.
BERT-wwm, RoBERTa-wwm-ext and MacBERT are BERTs, in files and in name.
"""

from collections.abc import Mapping
import functools
from typing import Any

from convert import readers
from weights import checkpoints, fitting

# From their fields in config.json to BERT's.
_FIELDS = {
  "electra": {},
  "distilbert": {
    "dim": "hidden_size",
    "hidden_dim": "intermediate_size",
    "n_layers": "num_hidden_layers",
    "n_heads": "num_attention_heads",
    "activation": "hidden_act",
    "dropout": "hidden_dropout_prob",
    "attention_dropout": "attention_probs_dropout_prob",
  },
}
# From their variables to those of BERT, as transformers names both.
NAMES = {
  "electra": (
    (r"^electra\.", "bert."),
    (r"^(bert\.)?embeddings_project\.", "bert.embeddings.project."),
  ),
  "distilbert": (
    (r"^(distilbert\.)?embeddings\.", "bert.embeddings."),
    (r"^(distilbert\.)?transformer\.", "bert.encoder."),
    (r"\.attention\.q_lin\.", ".attention.self.query."),
    (r"\.attention\.k_lin\.", ".attention.self.key."),
    (r"\.attention\.v_lin\.", ".attention.self.value."),
    (r"\.attention\.out_lin\.", ".attention.output.dense."),
    (r"\.sa_layer_norm\.", ".attention.output.LayerNorm."),
    (r"\.ffn\.lin1\.", ".intermediate.dense."),
    (r"\.ffn\.lin2\.", ".output.dense."),
    (r"\.output_layer_norm\.", ".output.LayerNorm."),
    (r"^vocab_transform\.", "cls.predictions.transform.dense."),
    (r"^vocab_layer_norm\.", "cls.predictions.transform.LayerNorm."),
    (r"^vocab_projector\.", "cls.predictions.decoder."),
  ),
}
_ELECTRA_CHECKPOINT = (
  ("^electra/", "bert/"),
  ("/embeddings_project/", "/embeddings/project/"),
)
_BYTE_PAIRS = "its tokens are byte pairs or SentencePiece's, not word pieces"
_REFUSED = {
  **dict.fromkeys(("roberta", "xlm-roberta", "camembert"), _BYTE_PAIRS),
  **dict.fromkeys(("deberta", "deberta-v2"), _BYTE_PAIRS),
  "albert": "its layers share weights, its tokens are SentencePiece's",
  "mobilebert": "its layers have bottlenecks",
}


def to_bert_settings(path: str, settings: Mapping[str, Any]) -> dict[str, Any]:
  """Returns the config.json of the BERT that a model's encoder is.

  Raises:
    ValueError: it names no model, or one that differs too much; the reason is
      given.
  """
  if "model_type" not in settings:
    # Google's and Hugging Face's "gelu" differ: whose file it is must be said.
    raise ValueError(
      f'{path}: no model_type; add "model_type": "bert" if it is of a BERT'
    )
  model_type = str(settings["model_type"])
  if model_type in _REFUSED:
    raise ValueError(
      f"{path}: model_type is {model_type!r}: {_REFUSED[model_type]}"
    )
  if model_type not in _FIELDS:
    return dict(settings)
  renamed = _FIELDS[model_type]
  fields = {renamed.get(k, k): v for k, v in settings.items()}
  fields["model_type"] = "bert"
  if fields.get("embedding_size") == fields.get("hidden_size"):
    fields.pop("embedding_size", None)
  return fields


def open_electra(
  weights: checkpoints.Weights, folder: str
) -> readers.ModelFolder:
  """Gives a checkpoint of google-research/electra Google's names.

  The discriminator becomes the encoder. The checkpoint does not say how many
  heads it has: a bert_config.json has to.
  """
  variables, unread = {}, []
  for name, shape in weights.shapes.items():
    if name.startswith("electra/") and not fitting.is_training_state(name):
      load = functools.partial(weights.read, name)
      variables[readers.rename(name, _ELECTRA_CHECKPOINT)] = (
        readers.StoredVariable(load, shape)
      )
    else:
      unread.append(name)
  return readers.ModelFolder(
    readers.make_weights(weights.source, variables, unread),
    (folder,),
    library="google-research/electra",
  )
