"""Applies an exported model: requests in, answers out.

`answers` encodes requests and makes answers; an engine computes;
request_lines and http_server take the requests.
"""

import base64
from collections.abc import Callable, Iterator, Mapping, Sequence
import functools
import os
from typing import Any, Protocol

import numpy as np

from bert.data import files, packing, processor, progress, sbert_files
from bert.serving import answer_maker, answers, export_card, formats
from bert.vocabularies import vocabulary_table

# Inputs of the full length in a batch, by default. On two cores, larger ones
# are slower: they are padded more.
BATCH_SIZE = 4
MOST_THREADS = 1024  # More than any machine has cores that share the work well.


# What runs an export of --format=onnx; the first one is the default.
ENGINES = tuple(formats.FORMATS["onnx"].engines)
# Texts by which OpenVINO compares its types of numbers. The second one has a
# mask, so that a model of masked words has something to guess.
_PROBES = (
  "The film starts slowly, but after half an hour nobody looks at the clock.",
  "In 1998 the company moved its office from Paris to [MASK].",
)


# The fields of a card on which answers depend, besides weights and vocabulary.
_DECIDING = ("kind", "inputs", "labels", "thresholds", "max_seq_length")
_DECIDING += ("do_lower_case", "settings")
# From inputs by name to outputs by name.
Run = Callable[[Mapping[str, np.ndarray]], Mapping[str, np.ndarray]]


class Engine(Protocol):
  """Computes with input_ids, input_mask and segment_ids, int32 [B, S].

  A head may take more inputs; they come by their names. An engine that --engine
  can choose also has a `name` for people, which may say how it computes.
  """

  def run(self, inputs: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Computes the outputs that `answers` reads, a row for each input."""
    ...

  def attend(self, inputs: Mapping[str, np.ndarray]) -> np.ndarray:
    """Computes the attention, float32 [B, layers, heads, S, S]."""
    ...


class ExportedModel:
  """A model from a folder that export_saved_model.py wrote.

  Its `maker` encodes requests and makes answers. A ValueError if the folder
  holds something else, or another vocabulary than the one that was exported.
  The engine has so many threads, 0 for one for each core; it may be given, or
  its name, one of `ENGINES`.
  """

  def __init__(
    self,
    folder: str,
    threads: int = 0,
    engine: Engine | str = "",
    card: export_card.Card | None = None,
    vocab_file: str | None = None,
  ):
    self.card = card or export_card.read(folder, answers.check)

    # With another vocabulary, ids would mean other tokens: answers would be
    # wrong without a word. The oldest exports have no hashes.
    vocab_file = vocab_file or vocabulary_table.find([folder])
    if not vocab_file:
      raise ValueError(f"{folder}: holds no vocabulary: export it again")
    for name in vocabulary_table.saved_names(vocab_file):
      if self.card.hashes:
        export_card.check_file(folder, name, self.card)

    self.name = os.path.basename(os.path.abspath(folder))
    self.maker = answers.find_maker(self.card.kind)(self.card, vocab_file)

    # Only the engine that is asked for by name, OpenVINO, needs probes.
    if isinstance(engine, str):
      probes = _make_probes(self.maker) if engine else []
      engine = open_engine(folder, self.card, threads, engine, probes)
    self._engine = engine
    self.engine_name: str = getattr(engine, "name", "")

  def size(self, row: packing.PackedIds) -> int:
    """Returns the least length that an input is padded to."""
    if self.maker.pads_fully:
      return self.card.max_seq_length
    return len(row.input_ids)

  def compute(
    self, rows: Sequence[packing.PackedIds]
  ) -> list[answer_maker.Outputs]:
    """Computes the outputs of inputs in one call of the engine."""
    outputs = self._run(rows)

    # From arrays for all rows to arrays for each row.
    return [
      {name: values[place] for name, values in outputs.items()}
      for place in range(len(rows))
    ]

  def _run(self, rows):
    """Computes the outputs of inputs, [B, ...] by name."""
    return self._engine.run(_pad(rows, max(map(self.size, rows))))

  @functools.cached_property
  def weights_sha256(self) -> str:
    """The SHA-256 of the weights; "" if an earlier export does not state it."""
    hash_weights = getattr(self._engine, "hash_weights", None)
    if hash_weights:  # The model is in memory.
      return hash_weights()
    return self.card.hashes.get(export_card.WEIGHTS, "")

  @property
  def answers_sha256(self) -> str:
    """The SHA-256 of what answers depend on besides the weights."""
    decides = {name: getattr(self.card, name) for name in _DECIDING}
    return export_card.digest([decides, self.maker.vocabulary_digest])

  def answer(
    self, requests: Sequence[answer_maker.Encoded], most_tokens: int = 0
  ) -> list[answer_maker.Answer]:
    """Answers requests of `maker.encode`; `most_tokens` as for `outputs`."""
    return self.maker.answer_all(requests, self.outputs(requests, most_tokens))

  def outputs(
    self, requests: Sequence[answer_maker.Encoded], most_tokens: int = 0
  ) -> list[answer_maker.Outputs]:
    """Computes the outputs of all rows, by batches of similar length.

    A batch has `most_tokens`, padding included, unless it is a single input; 0:
    those of BATCH_SIZE inputs.
    """
    rows = [row for request in requests for row in request.rows]
    most_tokens = most_tokens or BATCH_SIZE * self.card.max_seq_length

    # Rows are computed in the order of their length, to pad little; the outputs
    # go back to the places of their rows.
    outputs: list[answer_maker.Outputs] = [{}] * len(rows)
    for indices in group_by_length(list(map(self.size, rows)), most_tokens):
      computed = self.compute([rows[index] for index in indices])
      for index, output in zip(indices, computed, strict=True):
        outputs[index] = output
    return outputs

  def vectors(
    self, rows: Sequence[packing.PackedIds], batches: Sequence[np.ndarray]
  ) -> np.ndarray:
    """Computes the vectors of inputs, float32 [N, H].

    Args:
      rows: N inputs of a model of vectors.
      batches: the indices of the rows of each batch; each row occurs once.
    """
    parts = [
      self._run([rows[index] for index in indices])["vectors"]
      for indices in batches
    ]

    # From the order of the batches to that of the rows.
    computed = np.concatenate(parts)
    vectors = np.empty_like(computed)
    vectors[np.concatenate(batches)] = computed
    return vectors

  def check_head(
    self, request: answer_maker.Encoded, layer: Any = None, head: Any = None
  ) -> None:
    """Raises a ValueError if there is no such head, or no token.

    Args:
      request: whose first input `attend` would look at.
      layer: a number from 0, as a client gave it; None together with `head`
        for all heads of all layers.
      head: likewise.
    """
    if not self.card.num_heads:
      raise ValueError("the model's encoder has no attention")
    if not request.rows:
      raise ValueError("there are no words in the text")
    layers, heads = self.card.num_layers, self.card.num_heads
    is_one = layer is not None or head is not None
    for name, value, count in (("layer", layer, layers), ("head", head, heads)):
      if is_one and (type(value) is not int or not 0 <= value < count):
        raise ValueError(
          f"{name} is {value!r}; expected a number from 0 to {count - 1}"
        )

  def attend(
    self,
    request: answer_maker.Encoded,
    layer: int | None = None,
    head: int | None = None,
  ) -> answer_maker.Answer:
    """Returns tokens of a request's first input, and a head's attention.

    Args:
      request: of `maker.encode`. `check_head` says whether it has an input, and
        whether the model has such a head.
      layer: the number of a layer from 0.
      head: the number of a head. Without `layer` and `head`, the attention of
        all heads [layers, heads, S, S] comes as base64 of 16-bit integers,
        little-endian, 65535 for 1.
    """
    row = request.rows[0]
    maps = self._engine.attend(_pad([row], len(row.input_ids)))[0]
    if layer is not None:
      attention = maps[layer, head].round(5).tolist()
    else:
      # In decimal digits, the maps of all heads would be several times as long.
      numbers = (maps * 65535).round().astype("<u2")
      attention = base64.b64encode(numbers.tobytes()).decode()
    return {"tokens": self.maker.tokens(row), "attention": attention}


def open_engine(
  folder: str,
  card: export_card.Card,
  threads: int = 0,
  name: str = "",
  probes: Sequence[Mapping[str, np.ndarray]] = (),
) -> Engine:
  """Loads the model of an export with a named engine, or that of its format.

  Args:
    folder: of the export.
    card: its export.json.
    threads: how many the engine has; 0: one for each core.
    name: of the engine, one of `ENGINES`; "" for the default of the format.
    probes: inputs by name, int32 [1, S], by which OpenVINO finds the type of
      its numbers.

  Raises:
    ValueError: no such engine runs this export.
  """
  export_format = formats.FORMATS.get(card.format)
  engines = export_format.engines if export_format else {}
  if name and name not in engines:
    raise ValueError(
      f"--engine={name}: {folder} has the format {card.format}; expected one "
      f"of {', '.join(ENGINES)}, and an export of --format=onnx"
    )

  # Products of int8 are for ONNX Runtime alone: OpenVINO takes longer for them
  # than for a float32 export.
  if card.quantization:
    if name == "openvino":
      raise ValueError(
        f"--engine=openvino: {folder} has int8 products, with which OpenVINO "
        "is slower than with float32: leave out --engine, or export the model "
        "without --quantize"
      )

    # Exports of older versions do not say how they saturate: they may.
    if card.quantization.get("saturates", True) and processor.saturates_int8():
      progress.note(
        f"note: {folder}: an int8 export of an older version, whose products "
        "saturate on this processor, which has no VNNI: answers may differ "
        "from those that were compared; export the model again"
      )

  if not engines:
    readable = " or ".join(
      sorted(name for name, row in formats.FORMATS.items() if row.engines)
    )
    raise ValueError(
      f"{folder}: its format is {card.format}; this takes {readable}"
    )
  return engines[name or next(iter(engines))](folder, card, threads, probes)


def _make_probes(
  maker: answer_maker.AnswerMaker,
) -> list[dict[str, np.ndarray]]:
  """Makes inputs of one row each, of texts that any model may be given."""
  rows = []
  for text in _PROBES:
    texts: dict[str, Any] = {name: text for name in maker.is_required}
    if answer_maker.CHOICES in texts:
      texts[answer_maker.CHOICES] = [text, "No."]
    rows += maker.encode(texts).rows[:1]
  return [_pad([row], len(row.input_ids)) for row in rows]


def _pad(rows, length: int) -> dict[str, np.ndarray]:
  """Returns inputs by name: those of tokens are int32 [B, length]."""
  padded = {}
  for name in rows[0]._fields:
    values = [getattr(row, name) for row in rows]

    # Only what a head takes besides may have another width.
    is_of_tokens = name in packing.INPUT_NAMES
    width = length if is_of_tokens else max(map(len, values))

    # As in training, inputs are padded with zeros, in the mask as well.
    padded[name] = np.zeros([len(rows), width], np.int32)
    for index, row_values in enumerate(values):
      padded[name][index, : len(row_values)] = row_values
  return padded


def group_by_length(sizes: Sequence[int], most: int) -> Iterator[list[int]]:
  """Yields the indices of items of similar size, the largest last.

  The largest size of a group times its number is at most `most`, unless it has
  one item.

  >>> list(group_by_length([5, 1, 9, 2, 30], 10))
  [[1, 3], [0], [2], [4]]
  """
  # Sizes rise, so the last one of a group is its largest.
  group: list[int] = []
  for index in sorted(range(len(sizes)), key=lambda index: sizes[index]):
    if group and sizes[index] * (len(group) + 1) > most:
      yield group
      group = []
    group.append(index)
  if group:
    yield group


def makes_vectors(folder: str) -> bool:
  """Returns whether a folder holds an encoder of sentences, and no head."""
  # A folder with a head as well answers by it: settings.json has its problem.
  settings = files.read_json_if_any(os.path.join(folder, "settings.json"))
  is_encoder = files.exists(os.path.join(folder, sbert_files.MODULES))
  return is_encoder and not answers.is_trained(str(settings.get("problem")))
