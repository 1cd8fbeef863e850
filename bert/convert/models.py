"""A model of any library by Google's names: its variables, heads and files.

Reading runs no code: no graph is executed, and nothing that a pickle names is
called.
"""

from collections.abc import Callable, Iterable, Mapping
import dataclasses
import os
import re
from typing import Any, NamedTuple

import numpy as np

from bert import modeling
from bert.data import files
from bert.vocabularies import vocabulary_table
from bert.weights import checkpoints, fitting

GOOGLE = "a TF1 checkpoint"
# What a training recorded: what its model is, and how that answers.
SETTINGS, PREDICTION = "settings.json", "prediction.json"
# Shapes by letters: vocabulary, positions, token types, width of embeddings,
# hidden and intermediate size, labels. A # is the number of a layer.
# `variables` adds kernel and bias to a dense layer, gamma and beta to a
# LayerNorm.
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
  has_pooler: bool = True
  # Whether its outputs have names. Only heads with output_weights are asked.
  has_labels: bool = True


_WORDS, _NEXT = "cls/predictions/", "cls/seq_relationship/"
HEADS = {
  "encoder": Head("BertModel", ()),
  "pretraining": Head("BertForPreTraining", (_WORDS, _NEXT)),
  "masked_lm": Head("BertForMaskedLM", (_WORDS,), has_pooler=False),
  "next_sentence": Head("BertForNextSentencePrediction", (_NEXT,)),
  "classifier": Head("BertForSequenceClassification", ("output_",)),
  "multiple_choice": Head(
    "BertForMultipleChoice", ("output_",), has_labels=False
  ),
  "tagging": Head("BertForTokenClassification", ("output_",), has_pooler=False),
  "question_answering": Head(
    "BertForQuestionAnswering", ("cls/squad/",), has_pooler=False
  ),
}
_ALL_HEADS = Head("", ("",))  # Every name begins with the empty prefix.


@dataclasses.dataclass(frozen=True)
class ModelFolder:
  """A model as it was opened, and the files that belong to it, of any library.

  Opening reads no values, but those of Hugging Face's folders that must agree:
  copies of the word embeddings, and a file that belongs to another one.
  """

  weights: checkpoints.Weights  # By Google's names, read lazily.
  folders: tuple[str, ...]  # Where the files beside the weights are.
  config: modeling.EncoderConfig | None = None  # None if no file holds one.
  vocab_file: str | None = None
  do_lower_case: bool | None = None  # None if no file says it.
  problem: str | None = None  # The task of its head, if a file says it.
  labels: tuple[str, ...] = ()  # The head's; empty if unknown.
  library: str = GOOGLE  # Whose format it has, in words.
  assumed: tuple[str, ...] = ()  # Fields of the config that no file states.
  # The contents of SETTINGS and PREDICTION, by these names; {} if unknown.
  recorded: Mapping[str, Any] = dataclasses.field(default_factory=dict)

  @property
  def source(self) -> str:
    """The prefix of a checkpoint, or another library's folder."""
    return self.weights.source


@dataclasses.dataclass(frozen=True, kw_only=True)
class Model:
  """A model with its weights in memory, to be changed and written."""

  opened: ModelFolder  # As it was; what follows may have been changed since.
  config: modeling.BertConfig
  values: Mapping[str, np.ndarray]  # By Google's names.
  head: str  # A key of HEADS.
  vocabulary: list[str]
  vocab_file: str | None  # None for WordPieces.
  kind: vocabulary_table.VocabularyKind
  do_lower_case: bool
  problem: str | None
  labels: tuple[str, ...]

  @property
  def source(self) -> str:
    """The prefix of a checkpoint, or another library's folder."""
    return self.opened.source

  @property
  def recorded(self) -> Mapping[str, Any]:
    """What its training recorded, by SETTINGS and PREDICTION; {} if unknown."""
    # What is recorded of another head does not count.
    recorded = self.opened.recorded
    problem = recorded.get(SETTINGS, {}).get("problem")
    return recorded if problem and problem == self.problem else {}

  @property
  def vocabulary_name(self) -> str:
    """The name of its vocabulary's file in a folder."""
    return self.kind.name


def variables(
  config: modeling.BertConfig, head: str | None = None, labels: int = 0
) -> dict[str, tuple[int, ...]]:
  """Returns the shapes of variables by Google's names.

  Args:
    config: of the encoder.
    head: a key of HEADS; None for the variables of all heads.
    labels: how many outputs a classifier has; 0 if only the names matter.
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

  # Rows of the table that this encoder or this head lacks.
  top = HEADS[head] if head else _ALL_HEADS
  absent = set() if top.has_pooler else {"bert/pooler/dense"}
  if config.embedding_width == config.hidden_size:
    absent.add("bert/embeddings/project")
  if not config.has_embedding_norm:
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


class StoredVariable(NamedTuple):
  """A variable of another library, in the shape it has in Google's."""

  load: Callable[[], np.ndarray]  # May return its elements in another shape.
  shape: tuple[int, ...]

  def transposed(self) -> "StoredVariable":
    """Returns the transposed matrix."""
    load, shape = self
    return StoredVariable(
      lambda: np.asarray(load()).reshape(shape).T, shape[::-1]
    )


def make_weights(
  source: str,
  variables: Mapping[str, StoredVariable],
  unread: Iterable[str] = (),
  release: Callable[[], None] = lambda: None,
) -> checkpoints.Weights:
  """Makes weights of variables by Google's names.

  Args:
    source: where they are from, for messages.
    variables: how each is read, and its shape.
    unread: the stored names of variables that BERT lacks.
    release: frees what reading keeps open or in memory.
  """

  def read(name):
    load, shape = variables[name]
    with checkpoints.naming_damage(f"{source}: {name} is damaged"):
      return np.asarray(load()).reshape(shape)

  shapes = {name: tuple(v.shape) for name, v in variables.items()}
  # These names are printed: a control character could change the terminal.
  printable = [name if name.isprintable() else repr(name) for name in unread]
  return checkpoints.Weights(source, shapes, read, tuple(printable), release)


def rename(name: str, renaming: Iterable[tuple[str, str]]) -> str:
  """Returns a name in which patterns are replaced, one after the other."""
  for pattern, replacement in renaming:
    name = re.sub(pattern, replacement, name)
  return name


def find_shards(
  folder: str, whole: str, index: str, ending: str
) -> dict[str, list[str]]:
  """Returns the files of a model's weights, and the names of tensors in each.

  If all weights are in one file, it is that file, without names.

  Args:
    folder: of the model.
    whole: the name of the file that may hold all weights.
    index: the name of the JSON file whose weight_map says where tensors are.
    ending: of the names of its files, such as ".safetensors".
  """
  path = os.path.join(folder, whole)
  index = os.path.join(folder, index)
  if files.exists(path):
    return {path: []}

  # The index leads from a tensor to its file; this turns it around. Keras lists
  # several files for a layer that it has cut.
  places = files.read_json(index).get("weight_map")
  if not isinstance(places, dict) or not places:
    raise ValueError(f"{index}: has no weight_map")
  shards: dict[str, list[str]] = {}
  for tensor, names in places.items():
    for name in map(str, names if isinstance(names, list) else [names]):
      shards.setdefault(name, []).append(tensor)

  for name in shards:
    # A name such as ../../x would lead out of the folder.
    if not re.fullmatch(rf"[\w.-]+{re.escape(ending)}", name):
      raise ValueError(f"{index}: {name!r:.80} is not the name of a shard")
    if not files.exists(os.path.join(folder, name)):
      raise ValueError(f"{index}: {name:.80} is missing in the folder")
  return {os.path.join(folder, name): shards[name] for name in sorted(shards)}


def check_layers(source: str, config: modeling.BertConfig, stored: int) -> None:
  """Refuses a config that has more layers than there are variables.

  Args:
    source: where both are from, for the message.
    config: of the encoder.
    stored: the number of stored variables.
  """
  if config.num_hidden_layers > stored:  # Listing them may take all memory.
    raise ValueError(
      f"{source}: num_hidden_layers is {config.num_hidden_layers} in its "
      f"config, the weights are {stored}"
    )


def refuse_unknown(source: str, names: Iterable[str]) -> None:
  """Raises a ValueError that names the variables that BERT lacks, if any."""
  if listing := fitting.listing(f"+ {name}" for name in names):
    raise ValueError(f"{source}: its encoder is not a BERT's: {listing}")
