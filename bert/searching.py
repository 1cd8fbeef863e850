"""Finds the texts that are most similar to a query, by their vectors.

  model = bert.load("minilm_export")
  index = bert.Index.build(model, "texts.txt", "texts.npy")
  index.search("Where can I learn to play the guitar?", k=3)

search.py does the same from the shell. What they share names flags in its
messages; in Python these are arguments.
"""

from collections.abc import Iterable, Iterator, Sequence
import contextlib
import itertools
import json
import operator
import os
import re
import time
from typing import Any, BinaryIO, NamedTuple

import numpy as np

import bert
from bert.data import (
  files,
  messages,
  path_checks,
  progress,
  remote,
  text_files,
  text_prompts,
  vector_files,
  vector_index,
  vector_search,
)
from bert.vocabularies import lost_letters

# The record of an index has the vector of this text: two models make different
# vectors of it. Two --max_seq_length do, too, because the text is longer. A few
# lower-case words may not show what `Model.identify_tokens` does.
_PROBE = " ".join(f"the {number} films" for number in range(300))
# Scores of queries and texts that are in memory at once: 256 MB of float32.
_MOST_SCORES = 1 << 26
_MOST_QUERIES = 1024  # That are searched for at once.
# Bytes of a file whose texts stay in memory. Reading them again for each query
# would take longer than the search; those of a larger file are read again.
_MOST_KEPT = 1 << 26
_COMPARED_EVERY = 256  # Lines of --vectors_file.
_PAIR = " ||| "  # Between the two texts of a line, to extract_features.py.
_COLUMN = "text"  # In the file that a list of texts is written to.
# The flags in messages, and the arguments that are called otherwise.
_FLAG = re.compile(r"(?<!\S)--(model|input_file|index_file|text_column)\b")
_ARGUMENTS = {"input_file": "texts", "index_file": "path"}


class Hit(NamedTuple):
  """A text that was found."""

  line: int  # Its number among the texts, from 1.
  score: float  # The inner product of its vector and that of the query.
  text: str


class Source(NamedTuple):
  """What an index is made of: flags of search.py of the same names."""

  model: str  # Its name.
  input_file: str
  text_column: str | None
  index_file: str
  line_prompt_name: str | None
  vectors_file: str | None = None


def files_of(index_file: str) -> list[str]:
  """Returns the files of an index, and the one that is it while it is made."""
  return [index_file, f"{index_file}.json", f"{index_file}.part"]


def _check_is_no_input(source: Source) -> None:
  inputs = [source.input_file, source.vectors_file]
  taken = {os.path.realpath(path) for path in inputs if path}
  for path in files_of(source.index_file):
    if os.path.realpath(path) in taken:
      raise ValueError(
        f"--index_file={source.index_file}: the index would replace {path}, of "
        "which it is made; name another file"
      )


def _state_of(path: str) -> tuple[int, int, int] | None:
  """Returns what changes with a local file, without a look at its content."""
  if remote.is_remote(path):
    return None
  state = os.stat(path)
  return state.st_size, state.st_mtime_ns, state.st_ino


class Index:
  """Texts to search, and their vectors; `build` or `open` makes it.

  Attributes:
    vectors: of the texts, float16 [N, H], mapped into memory.
    seconds: how long comparing vectors has taken so far.
  """

  def __init__(
    self, source: Source, model: bert.Model, part: BinaryIO | None = None
  ):
    """Opens an index; makes it if it is not there.

    Args:
      source: what it is made of.
      model: that of `source.model`, which makes the vectors.
      part: see `vector_index.make`.
    """
    _check_is_no_input(source)
    self._source, self._model = source, model
    # Another folder may be the current one when texts are read again.
    self._file = source.input_file
    if not remote.is_remote(self._file):
      self._file = os.path.abspath(self._file)
    self.seconds = 0.0
    path, text = source.index_file, source.input_file
    self._kept: list[str] = []
    self._state = _state_of(text)
    size = text_files.known_size([text])
    if size and size < _MOST_KEPT:
      self._kept = list(self._read_texts())

    # What the index depends on. An index whose record differs from this would
    # give wrong answers, and is refused.
    probe = model.encode(_PROBE, prompt_name=source.line_prompt_name)
    record = {
      "model": source.model,
      "input_file": text,
      # Another column is another text. Its name is part of this value, and has
      # no key, so that the records of indices without a column stay as they
      # were.
      "sha256": files.hash_file(text) + (source.text_column or ""),
      "lines": sum(1 for _ in self._read_texts()),
      "probe": probe.tolist(),
      vector_index.PROMPT: source.line_prompt_name,
      "weights_sha256": model.weights_sha256,
      "tokens_sha256": model.identify_tokens(source.line_prompt_name),
    }
    if not record["lines"]:
      raise ValueError(f"--input_file={text}: it is empty")

    # `make` resumes what a killed run left; `read` compares the records.
    if not files.exists(path):
      if model.strips_marks:
        lost_letters.report(self._read_texts(), text)
      self._shape = record["lines"], len(probe)
      vector_index.make(path, record, self._make_rows, part)
    self.vectors = vector_index.read(path, record)

  def __repr__(self) -> str:
    path, text = self._source.index_file, self._source.input_file
    return f"<bert.Index {path}: {len(self.vectors):,} texts of {text}>"

  @classmethod
  def build(
    cls,
    model: bert.Model,
    texts: Any,
    path: str | os.PathLike,
    text_column: str | int | None = None,
    prompt_name: str | None = None,
  ) -> "Index":
    """Makes an index, or resumes one after a kill; opens it if it is there.

    Args:
      model: of vectors, from `bert.load`.
      texts: the path of a file, one text per line; or a list, a tuple, a NumPy
        array or a pandas Series of texts. These are written beside the index:
        for texts.npy to texts.npy.jsonl.
      path: of the index, such as texts.npy.
      text_column: the name, or the number from 0, of a column of a table in
        TSV, CSV or JSON Lines; None for plain text.
      prompt_name: of the model's prompt to put before every text; None: the
        prompt that the model states.

    Raises:
      TypeError: an argument is of another type.
      ValueError: the model makes no vectors; there are no texts; or the index
        that is there is damaged, or was made of something else.
      OSError: another process is making this index, or the disk is full.
    """
    # A column may be the number 0.
    column = None if text_column is None else str(text_column)
    path = os.fsdecode(path)
    with _naming_arguments(model, path):
      path_checks.check("index_file", "new_files", path or os.curdir)
      text_prompts.find_prompt(model.prompts, prompt_name, "prompt_name")
      if isinstance(texts, str | bytes | os.PathLike):
        file = os.fsdecode(texts)
        path_checks.check("input_file", "file", file)
        text_files.check([file], column)
        return cls(Source(model.folder, file, column, path, prompt_name), model)
      if column is not None:
        raise ValueError(f"text_column is {column!r}, but texts is not a file")
      listed = _list_texts(texts, "texts")
      if not listed:
        raise ValueError("texts is empty")
      # From the look at its files until it is made, they are ours alone.
      is_made = files.exists(path)
      lock = contextlib.nullcontext() if is_made else vector_index.locked(path)
      with lock as part, _written(listed, path) as file:
        source = Source(model.folder, file, _COLUMN, path, prompt_name)
        return cls(source, model, part)

  @classmethod
  def open(cls, path: str | os.PathLike, model: bert.Model) -> "Index":
    """Opens an index that `build` or search.py has made.

    Args:
      path: of the index. The file of its texts must be beside the index, or
        where it was.
      model: of the same weights as the one that the index was made with.

    Raises:
      TypeError: an argument is of another type.
      ValueError: there is no such index, it is damaged, the model is another
        one, or the texts have changed.
    """
    path = os.fsdecode(path)
    with _naming_arguments(model, path):
      path_checks.check("index_file", "file", path)
      record = vector_index.read_record(path)

      # What follows the 64 digits is the column: see `__init__`.
      digest, column = record["sha256"][:64], record["sha256"][64:]
      file = _find_texts(path, record["input_file"], digest)
      prompt = record.get(vector_index.PROMPT)
      return cls(Source(model.folder, file, column, path, prompt), model)

  def search(
    self, queries: Any, k: int = 10, prompt_name: str | None = None
  ) -> list[Hit] | list[list[Hit]]:
    """Finds the texts that are most similar to a query, or to each of several.

    Args:
      queries: a text; or a list, a tuple, a NumPy array or a pandas Series.
      k: how many texts to find; an index may have fewer.
      prompt_name: of the model's prompt to put before every query; None: the
        prompt that the model states.

    Returns:
      What was found for the query, the most similar text first. For several
      queries, a list of such lists.

    Raises:
      TypeError: an argument is of another type.
      ValueError: `k` is not positive, the model lacks the prompt, or the file
        of the texts has changed.
    """
    if operator.index(k) < 1:
      raise ValueError(f"k is {k}, expected 1 or more")
    is_one = isinstance(queries, str)
    texts = _list_texts([queries] if is_one else queries, "queries")
    found = list(self.search_each(texts, k, prompt_name))
    return found[0] if is_one else found

  def search_each(
    self, queries: list[str], k: int, prompt_name: str | None = None
  ) -> Iterator[list[Hit]]:
    """Yields what was found for each query; see `search`."""
    # Every query has a score for every text, so few queries fit into memory.
    at_once = max(1, _MOST_SCORES // len(self.vectors))
    at_once = min(at_once, _MOST_QUERIES)  # Each has `k` hits, too.
    for first in range(0, len(queries), at_once):
      block = queries[first : first + at_once]
      query_vectors = self._model.encode(block, prompt_name=prompt_name)

      # The time of the search alone, without the model.
      begin = time.monotonic()
      numbers, scores = vector_search.find(self.vectors, query_vectors, k)
      self.seconds += time.monotonic() - begin

      # A file that does not fit into memory is read again for the lines found.
      wanted = set(numbers.ravel().tolist())
      lines = enumerate(self._read_texts())
      texts = {number: line for number, line in lines if number in wanted}
      for pairs in map(zip, numbers.tolist(), scores.tolist()):
        yield [Hit(number + 1, s, texts[number]) for number, s in pairs]

  def _read_texts(self) -> Iterable[str]:
    """Returns the lines to search, or the texts of the column."""
    if self._kept:
      return self._kept

    # In another text, other lines have the numbers of the vectors.
    if _state_of(self._file) != self._state:
      file = self._source.input_file
      raise ValueError(f"{file}: it has changed since the index was opened")
    return text_files.read(self._file, self._source.text_column)

  def _make_rows(self, done: int) -> Iterator[np.ndarray]:
    """Yields the rows of the index, block by block.

    Args:
      done: how many lines a killed run has left; they are skipped.

    Yields:
      float16 [vector_index.BLOCK, H]; the last block may be smaller.
    """
    source, total = self._source, self._shape[0]
    stored, name = None, f"--model={source.model}"
    if path := source.vectors_file:
      stored = vector_files.read(path, *self._shape)
      name = f"--vectors_file={path}"

    lines = itertools.islice(self._read_texts(), done, None)
    bar = progress.Progress(total, done)
    while block := list(itertools.islice(lines, vector_index.BLOCK)):
      if stored is None:
        vectors = self._model.encode(block, prompt_name=source.line_prompt_name)
      else:
        vectors = stored[done : done + len(block)]

      # Rounding refuses NaN, and names its line. So it comes before the
      # comparison, which would say that the vector is of another model.
      rows = vector_index.to_float16(vectors, done, name)
      if stored is not None:
        self._compare(block, vectors, done)
      yield rows

      # The caller has written the block when it asks for the next one.
      done += len(block)
      if bar.is_due():
        speed = f"{bar.units_per_second(done):,.1f} lines/s"
        line = f"{done:,} of {total:,} lines  {speed}  ETA {bar.eta(done)}"
        bar.print_line(line, done)
    progress.clear()

  def _compare(self, block: list[str], vectors: np.ndarray, first: int) -> None:
    """Compares a block of --vectors_file with the vectors of the model.

    Args:
      block: N lines of the text file.
      vectors: what --vectors_file has for them, float [N, H].
      first: the number of the first line of the block, from 0.

    Raises:
      ValueError: names the first line whose two vectors differ.
    """
    # Encoding all lines would cost what --vectors_file saves, so only some are
    # compared. A line too many shifts all lines after it, so the last one shows
    # it. A smaller --max_seq_length changes long lines alone.
    numbers = range(len(block))
    chosen = {*numbers[::_COMPARED_EVERY], len(block) - 1}
    chosen.add(max(numbers, key=lambda number: len(block[number])))

    # extract_features.py encodes these lines as pairs, search.py as one text.
    chosen.update([n for n in numbers if _PAIR in block[n]][:2])

    texts = [block[number] for number in sorted(chosen)]
    source = self._source
    expected = self._model.encode(texts, prompt_name=source.line_prompt_name)

    for number, vector in zip(sorted(chosen), expected, strict=True):
      if vector_index.differ(vectors[number], vector):
        cure = ""
        if _PAIR in block[number]:
          cure = ": to extract_features.py, ||| separates two texts"
        raise ValueError(
          f"--vectors_file={source.vectors_file}: the vector of line "
          f"{first + number + 1} is not that of --model={source.model} and "
          f"--input_file{cure}"
        )


def check(model: bert.Model, name: str, path: str) -> None:
  """Raises a ValueError if a model or a path is not fit for an index.

  Args:
    model: to make vectors with.
    name: of the model.
    path: of the index.
  """
  if model.task != "features":
    raise ValueError(
      f"--model={name}: for {model.task}, not vectors; "
      "run_embedding.py trains a model of vectors"
    )
  if remote.is_remote(path):
    raise ValueError(
      f"--index_file={path}: expected a local path: it is mapped into memory"
    )


@contextlib.contextmanager
def _naming_arguments(model: bert.Model, path: str) -> Iterator[None]:
  """Checks arguments; names them, not flags, in the messages of the body."""
  if not isinstance(model, bert.Model):
    kind = type(model).__name__
    raise TypeError(f"model is {kind}, expected what bert.load returns")
  try:
    check(model, model.folder, path)
    yield
  except ValueError as error:
    message = _FLAG.sub(lambda m: _ARGUMENTS.get(m[1], m[1]), str(error))
    raise ValueError(message) from None


@contextlib.contextmanager
def _written(listed: list[str], path: str) -> Iterator[str]:
  """Writes a list of texts beside an index that the body makes.

  Yields the file. It goes again if the body fails before a block of the index
  is made: the next call may bring other texts.
  """
  rows = [json.dumps({_COLUMN: text}, ensure_ascii=False) for text in listed]

  # They are written before the index, so one that is there without them is of
  # other texts.
  file, part = f"{path}.jsonl", f"{path}.part"
  is_same = files.exists(file) and list(files.read_lines(file)) == rows
  made = [name for name in (file, path) if files.exists(name)]
  made += [part] if vector_index.count_begun(path) else []
  if made and not is_same:
    cure = "pass another path"
    if not files.exists(path) and os.path.getsize(part):
      cure = f"remove {part}, {path}.json and {file} to begin anew"
    raise ValueError(f"{made[0]}: made of other texts: {cure}")
  if not is_same:
    files.write_lines(file, rows)

  try:
    yield file
  except BaseException:  # Ctrl-C, too.
    is_begun = files.exists(path) or vector_index.count_begun(path)
    if not is_same and not is_begun:
      files.remove(file)
    raise


def _find_texts(path: str, recorded: str, digest: str) -> str:
  """Returns the file of an index's texts: beside it, or where it was.

  Args:
    path: of the index.
    recorded: where the texts were. Somebody may have moved or copied the folder
      with both, or have another current folder.
    digest: the SHA-256 of the file. If no file has it, the last one found is
      returned, and `Index` says that it has changed.

  Raises:
    ValueError: there is no such file.
  """
  beside = os.path.join(os.path.dirname(path), os.path.basename(recorded))
  found = [
    file
    for file in dict.fromkeys((beside, recorded))
    if os.path.isfile(file) or remote.is_remote(file)
  ]
  if not found:
    raise ValueError(f"{path}: made of {recorded}, which is missing")

  # The content of the last one is checked later, as of every file.
  *others, last = found
  return next((f for f in others if files.hash_file(f) == digest), last)


def _list_texts(texts: Any, name: str) -> list[str]:
  """Returns texts as a list; errors begin with the name of an argument."""
  # Arrays of NumPy and Series of pandas have `tolist`. A table of pandas is no
  # sequence: its items would be the names of its columns.
  listed = texts.tolist() if hasattr(texts, "tolist") else texts
  if isinstance(listed, str) or not isinstance(listed, Sequence):
    raise TypeError(f"{name} is {type(texts).__name__}, expected a list of str")

  for number, text in enumerate(listed):
    if not isinstance(text, str):
      kind = type(text).__name__
      raise TypeError(f"{name}[{number}] is {kind}, expected str")
    messages.check_unicode(text, f"{name}[{number}]")
  return list(listed)
