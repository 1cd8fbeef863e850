"""The variables of BERT and of its heads: Google's names and shapes."""

import re
from typing import NamedTuple

# Shapes by letters: vocabulary, positions, token types, width of embeddings,
# hidden and intermediate size, labels. A dense layer has kernel and
# bias, LayerNorm for gamma and beta, and # for the number of a layer.
_VARIABLES = (
  ("bert/embeddings/word_embeddings", "VE"),
  ("bert/embeddings/position_embeddings", "PE"),
  ("bert/embeddings/token_type_embeddings", "TE"),
  ("bert/embeddings/LayerNorm", "E"),
  ("bert/embeddings/project", "EH"),
  ("bert/encoder/layer_#/attention/self/query", "HH"),
  ("bert/encoder/layer_#/attention/self/key", "HH"),
  ("bert/encoder/layer_#/attention/self/value", "HH"),
  ("bert/encoder/layer_#/attention/output/dense", "HH"),
  ("bert/encoder/layer_#/attention/output/LayerNorm", "H"),
  ("bert/encoder/layer_#/intermediate/dense", "HI"),
  ("bert/encoder/layer_#/output/dense", "IH"),
  ("bert/encoder/layer_#/output/LayerNorm", "H"),
  ("bert/pooler/dense", "HH"),
  ("cls/predictions/transform/dense", "HE"),
  ("cls/predictions/transform/LayerNorm", "E"),
  ("cls/predictions/output_bias", "V"),
  ("cls/seq_relationship/output_weights", "2H"),
  ("cls/seq_relationship/output_bias", "2"),
  ("cls/squad/output_weights", "2H"),
  ("cls/squad/output_bias", "2"),
  ("output_weights", "LH"),
  ("output_bias", "L"),
)


class Head(NamedTuple):
  """The layers on top of BERT in a class of transformers."""

  architecture: str  # The name of the class.
  prefixes: tuple[str, ...]  # Begin its variables' names at Google.
  has_pooler: bool
  has_labels: bool = True  # Else its outputs have no names.


HEADS = {
  "encoder": Head("BertModel", (), True),
  "pretraining": Head(
    "BertForPreTraining", ("cls/predictions/", "cls/seq_relationship/"), True
  ),
  "masked_lm": Head("BertForMaskedLM", ("cls/predictions/",), False),
  "next_sentence": Head(
    "BertForNextSentencePrediction", ("cls/seq_relationship/",), True
  ),
  "classifier": Head("BertForSequenceClassification", ("output_",), True),
  "multiple_choice": Head(
    "BertForMultipleChoice", ("output_",), True, has_labels=False
  ),
  "tagging": Head("BertForTokenClassification", ("output_",), False),
  "question_answering": Head(
    "BertForQuestionAnswering", ("cls/squad/",), False
  ),
}


def variables(
  config, head: str | None = None, labels: int | None = None
) -> dict[str, tuple[int | None, ...]]:
  """Returns the shapes of variables by name.

  Args:
    config: a `modeling.BertConfig`.
    head: a key of HEADS; None for the variables of all of them.
    labels: the outputs of a classifier, if that is known.
  """
  sizes = {
    "V": config.vocab_size,
    "P": config.max_position_embeddings,
    "T": config.type_vocab_size,
    "E": config.embedding_width,
    "H": config.hidden_size,
    "I": config.intermediate_size,
    "2": 2,
    "L": labels,
  }
  top = HEADS[head] if head else Head("", ("",), True)
  absent = set() if top.has_pooler else {"bert/pooler/dense"}
  if config.embedding_width == config.hidden_size:
    absent.add("bert/embeddings/project")
  if not getattr(config, "embedding_layer_norm", True):  # GPT's.
    absent.add("bert/embeddings/LayerNorm")
  shapes = {}
  for row, letters in _VARIABLES:
    if row in absent or not row.startswith(("bert/", *top.prefixes)):
      continue
    shape = tuple(sizes[letter] for letter in letters)
    for number in range(config.num_hidden_layers if "#" in row else 1):
      path = row.replace("#", str(number))
      if path.endswith("/LayerNorm"):
        shapes |= {f"{path}/gamma": shape, f"{path}/beta": shape}
      elif re.search(r"/(dense|query|key|value|project)$", path):
        shapes |= {f"{path}/kernel": shape, f"{path}/bias": shape[1:]}
      else:
        shapes[path] = shape
  return shapes
