"""A trained model that answers texts from Python; bert/loading.py loads it.

Texts come as lists, arrays or columns; answers are dicts, or arrays of
probabilities or vectors.
"""

from collections.abc import Iterator, Sequence
import operator
import os
from typing import Any

import numpy as np

from bert.data import hub, imports, messages, progress
from bert.inputs import batch_order
from bert.serving import answer_maker, exported_model

Answer = dict[str, Any]

# Inputs that are read and sorted by length together; as in extract_features.py,
# so that vectors are computed in the same batches.
_BLOCK = 4096
_MOST_SILENT = 10_000  # With more inputs, a call shows how far it is.


class Model:
  """A trained model; `load` makes it.

  Several threads may call one model. A model is pickled as its folder, which
  must be there, and answer in the same way, where the pickle is opened.

  Attributes:
    task: a key of `bert.serving.answers.MAKERS`.
    labels: their names; () for a task without labels.
    inputs: the names of the texts that it takes, in the order of a pair.
    max_seq_length: the most tokens of an input.
    engine: the library that computes, such as "onnxruntime".
    folder: of the model, as `load` got it.
    strips_marks: whether lower-casing strips accents and vowel signs.
    prompts: of a model of vectors: what may precede every text, by name.
  """

  def __init__(
    self,
    model: exported_model.ExportedModel,
    folder: str,
    threads: int = 0,
    engine: str = "",
  ):
    """Keeps a model and the arguments of `load` that made it."""
    self._model = model
    self.task: str = model.card.kind
    self.labels: tuple[str, ...] = model.card.labels
    self.inputs: tuple[str, ...] = model.card.inputs
    self.max_seq_length: int = model.card.max_seq_length
    self.engine: str = model.engine_name or "tensorflow"
    self.folder = folder
    self.strips_marks: bool = model.maker.strips_marks
    self.prompts: dict[str, str] = model.card.settings.get("prompts") or {}

    # A pickle may be opened where another folder is the current one.
    if os.path.exists(folder):
      folder = os.path.abspath(folder)
    self._source = folder, threads, engine

  @property
  def weights_sha256(self) -> str:
    """The SHA-256 of the weights; "" if an earlier export does not state it."""
    return self._model.weights_sha256

  @property
  def answers_sha256(self) -> str:
    """The SHA-256 of what answers depend on besides the weights."""
    return self._model.answers_sha256

  def identify_tokens(self, prompt_name: str | None = None) -> str:
    """Returns a digest of how texts become tokens.

    Two models with equal weights make other vectors if it differs: by the
    vocabulary, the casing, the length, or the text of the prompt.

    Args:
      prompt_name: as for `__call__`.
    """
    maker = self._model.maker
    if prompt_name is not None:
      maker = maker.with_prompt(prompt_name)
    return maker.identify_tokens()

  def __repr__(self) -> str:
    labels = f"labels={messages.list_names(self.labels)}, " * bool(self.labels)
    return (
      f"<bert.Model task={self.task}, {labels}max_seq_length="
      f"{self.max_seq_length}, engine={self.engine}, "
      f"folder={hub.name_of(self.folder)}>"
    )

  def __reduce__(self):
    # Whoever loads a model imports this file first.
    from bert import loading

    digests = self.weights_sha256, self.answers_sha256
    return loading.load_again, (*self._source, *digests)

  def __call__(
    self, texts: Any, prompt_name: str | None = None
  ) -> Answer | list[Answer]:
    """Answers one input, or a list of inputs.

    Args:
      texts: an input or several. An input is a text; a tuple of texts, such as
        (question, context); or a dict of texts by the names of `inputs`, with
        choices as a list or a tuple. Several inputs come as a list, another
        sequence, a NumPy array or a pandas Series.
      prompt_name: only for models of vectors: the name of the prompt to put
        before every text, such as "query". None: the model's default.

    Returns:
      An answer, as predict.py writes it, but without the index. A list of
      answers if `texts` are several inputs, or none.

    Raises:
      ValueError: the model does not take this input; the message has its
        number.
    """
    inputs, are_several = self._list_inputs(texts)
    answers = []
    for requests in self._read_blocks(inputs, prompt_name):
      answers += self._model.answer(requests)
    return answers if are_several else answers[0]

  def predict_proba(self, texts: Any) -> np.ndarray:
    """Computes the probabilities of `labels`, of a classifier.

    Args:
      texts: as `__call__` takes them: N inputs.

    Returns:
      Float32 [N, labels], not rounded; [labels] if `texts` is one input. Those
      of a model with one label for each text add up to 1.

    Raises:
      ValueError: the model is for another task, or does not take an input.
    """
    compute = getattr(self._model.maker, "probabilities", None)
    if not self.labels or not compute:
      raise ValueError(
        f"predict_proba: {self.folder} is a model for {self.task}; expected a "
        "classifier with labels, as run_classifier.py trains them"
      )
    inputs, are_several = self._list_inputs(texts)

    # The empty array is for no inputs.
    shares = [np.zeros([0, len(self.labels)], np.float32)]
    for requests in self._read_blocks(inputs):
      shares.append(compute(requests, self._model.outputs(requests)))
    joined = np.concatenate(shares)
    return joined if are_several else joined[0]

  def encode(
    self, texts: Any, batch_size: int = 32, prompt_name: str | None = None
  ) -> np.ndarray:
    """Computes vectors of texts, with a model of vectors.

    Those of a folder of sentence-transformers are bit for bit the vectors that
    extract_features.py writes as npz with --precision=float32, because the
    texts are in the same batches. In another batch, which other texts in the
    call or another `batch_size` make, float32 adds up in another order: the
    last of its seven digits may differ.

    Args:
      texts: as `__call__` takes them: N inputs.
      batch_size: the batch size for inputs of the full length. Batches of
        shorter inputs contain more of them.
      prompt_name: as for `__call__`.

    Returns:
      Float32 [N, H]; [H] if `texts` is one input.

    Raises:
      ValueError: the model is for another task or does not take an input, or
        a vector is not finite.
    """
    if self.task != "features":
      raise ValueError(
        f"encode: {self.folder} is a model for {self.task}, not vectors; "
        "run_embedding.py trains a model of vectors"
      )
    if operator.index(batch_size) < 1:
      raise ValueError(f"batch_size is {batch_size}, expected 1 or more")
    inputs, are_several = self._list_inputs(texts)

    # Without an input the model computes one all the same: that of a text says
    # how long vectors are.
    if not inputs:
      return self.encode([""], prompt_name=prompt_name)[:0]

    blocks = []
    for requests in self._read_blocks(inputs, prompt_name):
      # A text that is too long for vectors is truncated: it is one row.
      rows = [row for request in requests for row in request.rows]
      batches = batch_order.make_batches(
        np.array([len(row.input_ids) for row in rows]),
        batch_size,
        self.max_seq_length,
        is_static=False,
      )
      blocks.append(self._model.vectors(rows, batches))
    vectors = np.concatenate(blocks)

    # A comparison with NaN is always false: a search would never find such a
    # text, and no message would say so.
    damaged = np.flatnonzero(~np.isfinite(vectors).all(-1))
    if len(damaged):
      number = damaged[0]
      raise ValueError(
        f"inputs[{number}]: the model's vector of {inputs[number]!r:.80} holds "
        "NaN or infinity: its weights are damaged"
      )
    return vectors if are_several else vectors[0]

  def _list_inputs(self, texts) -> tuple[list[Any], bool]:
    """Returns the inputs, and whether they came as several."""
    if getattr(texts, "ndim", 1) != 1 and not isinstance(texts, str):
      raise ValueError(
        f"inputs: {type(texts).__name__} of {texts.ndim} dimensions; expected "
        "one dimension: a text, a tuple or a dict for each input"
      )

    # Arrays of NumPy and Series of pandas have `tolist`.
    are_several = False
    if not isinstance(texts, str | bytes | tuple | dict):
      if hasattr(texts, "tolist"):
        texts = texts.tolist()
      are_several = isinstance(texts, Sequence)
    inputs = list(texts) if are_several else [texts]

    # A cell of a table without a value is NaN, None or another object.
    for number, text in enumerate(inputs):
      if not isinstance(text, str | tuple | dict):
        raise ValueError(
          f"inputs[{number}] is {type(text).__name__} "
          f"({messages.shorten(repr(text))}), expected str, a tuple or a dict "
          f"with {', '.join(self.inputs)}"
        )
    return inputs, are_several

  def _read_blocks(
    self, inputs: list[Any], prompt_name: str | None = None
  ) -> Iterator[list[answer_maker.Encoded]]:
    """Yields the requests of inputs, block by block, and shows progress."""
    if self.engine == "tensorflow":
      imports.check_process()

    # The prompt holds for this call alone: `with_prompt` returns a copy.
    maker = self._model.maker
    if prompt_name is not None:
      maker = maker.with_prompt(prompt_name)

    total = len(inputs)
    bar = progress.Progress(total)
    for first in range(0, total, _BLOCK):
      # The maker takes tuples and dicts; a lone text is a tuple of one.
      block = [
        (text,) if isinstance(text, str) else text
        for text in inputs[first : first + _BLOCK]
      ]
      yield maker.encode_all(block, first)

      # The caller has computed the block when it asks for the next one.
      done = first + len(block)
      if total > _MOST_SILENT and bar.is_due():
        speed = f"{bar.units_per_second(done):,.1f} texts/s"
        line = f"{done:,} of {total:,} texts  {speed}  ETA {bar.eta(done)}"
        bar.print_line(line, done)
    progress.clear()
