"""Finds the lines of a file that are most similar to a text, by their vectors.

  python search.py --model=minilm_export --input_file=texts.txt \\
    --index_file=texts.npy --query="Where can I learn to play the guitar?"

The first run makes the index, and resumes that after a kill. Scores are inner
products of vectors: cosines if the model makes them of length 1.
"""

from collections.abc import Iterator
import dataclasses
import functools
import itertools
import json
import sys
import time
from typing import Any

import numpy as np

import bert
from bert.cli import flag_texts, program, typed_flags
from bert.data import (
  files,
  progress,
  remote,
  text_files,
  text_prompts,
  vector_files,
  vector_index,
  vector_search,
)
from bert.vocabularies import lost_letters

_index = typed_flags.group("Index")
_search = typed_flags.group("Search")
# Flags that need one of these two.
_query = functools.partial(_search, needs=("query", "query_file"))


@dataclasses.dataclass(frozen=True, kw_only=True)
class SearchSettings(typed_flags.Settings):
  """The settings of this program."""

  model: str = _index(
    typed_flags.REQUIRED,
    "The model that makes the vectors: an export, a folder of "
    "sentence-transformers, or its name on the Hugging Face Hub.",
    path="model",
  )
  input_file: str = _index(
    typed_flags.REQUIRED, "The texts to search, one per line.", path="file"
  )
  text_column: str | None = _index(None, flag_texts.TEXT_COLUMN)
  index_file: str = _index(
    typed_flags.REQUIRED,
    "The .npy file of their vectors. The program makes it if it does not "
    "exist.",
    path="new_files",
  )
  vectors_file: str | None = _index(
    None,
    "Makes the index from this .npz file of extract_features.py, one vector "
    "per line.",
    path="file",
  )
  query: tuple[str, ...] = _search(
    (),
    "A text to search for. You may pass the flag several times.",
    repeated=True,
  )
  query_file: str | None = _search(
    None, "A file with more queries, one per line.", path="input"
  )
  prompt_name: str | None = _query(
    None,
    "The name of the model's prompt to put before every query, such as query. "
    "Default: the prompt that the model states.",
  )
  line_prompt_name: str | None = _index(
    None,
    "The name of the model's prompt to put before every line. Default: the "
    "prompt that the model states.",
  )
  top_k: int = _query(10, "How many lines to find for each query.", least=1)
  rerank: str | None = _query(
    None,
    "A run_classifier.py model of text pairs. It reads the query together with "
    "each of the best lines and sorts these lines by its score. --rerank_lines "
    "says how many lines.",
    path="model",
  )
  rerank_lines: int = _search(
    100,
    "With --rerank: how many of the best lines to sort again, at least "
    "--top_k.",
    least=1,
    needs="rerank",
  )
  rerank_label: str = _search(
    "1",
    "With --rerank: the label whose probability is the score.",
    needs="rerank",
  )
  output_file: str | None = _search(
    None,
    "A JSON Lines file for the answers. Without it, the program prints a "
    "table.",
    path="new_files",
  )


# The record of an index has the vector of this text: two models make different
# vectors of it. Two --max_seq_length do, too, because the text is longer.
_PROBE = " ".join(f"the {number} films" for number in range(300))
# Scores of queries and lines that are in memory at once: 256 MB of float32.
_MOST_SCORES = 1 << 26
_COMPARED_EVERY = 256  # Lines of --vectors_file.
_PAIR = " ||| "  # Between the two texts of a line, to extract_features.py.


def read_texts(settings: SearchSettings) -> Iterator[str]:
  """Yields the lines to search, or the texts of the column."""
  return text_files.read(settings.input_file, settings.text_column)


def encode(
  model: bert.Model, texts: list[str], prompt_name: str | None = None
) -> np.ndarray:
  """Computes the vectors of texts.

  Args:
    model: a model of vectors.
    texts: N texts.
    prompt_name: the prompt to put before each; None: the model's default.

  Returns:
    The vectors, float32 [N, H]. A ValueError if one is not finite.
  """
  answers = model(texts, prompt_name)
  vectors = np.array([answer["vector"] for answer in answers], np.float32)

  # A comparison with NaN is always false: such a line would never be found, and
  # no message would say so.
  for text, vector in zip(texts, vectors, strict=True):
    if not np.isfinite(vector).all():
      raise ValueError(
        f"the model's vector of {text!r:.80} holds NaN or infinity: its "
        "weights are damaged"
      )
  return vectors


def compare(
  settings: SearchSettings,
  model: bert.Model,
  block: list[str],
  vectors: np.ndarray,
  first: int,
) -> None:
  """Compares a block of --vectors_file with the vectors that the model makes.

  Args:
    settings: the flags, for the prompt and for the message.
    model: makes the vectors to compare with.
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

  # extract_features.py encodes these lines as pairs, this program as one text.
  chosen.update([n for n in numbers if _PAIR in block[n]][:2])

  texts = [block[number] for number in sorted(chosen)]
  expected = encode(model, texts, settings.line_prompt_name)

  for number, vector in zip(sorted(chosen), expected, strict=True):
    if vector_index.differ(vectors[number], vector):
      cure = ""
      if _PAIR in block[number]:
        cure = f": to extract_features.py, {_PAIR.strip()} separates two texts"
      raise ValueError(
        f"--vectors_file={settings.vectors_file}: the vector of line "
        f"{first + number + 1} is not that of --model={settings.model} and "
        f"--input_file{cure}"
      )


def make_rows(
  settings: SearchSettings, model: bert.Model, shape: tuple[int, int], done: int
) -> Iterator[np.ndarray]:
  """Yields the rows of the index, block by block.

  Args:
    settings: say where the vectors are from.
    model: makes them, or checks some of those in --vectors_file.
    shape: of the whole index: lines, and numbers of a vector.
    done: how many lines a killed run has left; they are skipped.

  Yields:
    float16 [vector_index.BLOCK, H]; the last block may be smaller.
  """
  stored, source = None, f"--model={settings.model}"
  if path := settings.vectors_file:
    stored, source = vector_files.read(path, *shape), f"--vectors_file={path}"

  lines = itertools.islice(read_texts(settings), done, None)
  bar = progress.Progress(shape[0], done)
  while block := list(itertools.islice(lines, vector_index.BLOCK)):
    if stored is None:
      vectors = encode(model, block, settings.line_prompt_name)
    else:
      vectors = stored[done : done + len(block)]

    # Rounding refuses NaN, and names its line. So it comes before the
    # comparison, which would say that the vector is of another model.
    rows = vector_index.to_float16(vectors, done, source)
    if stored is not None:
      compare(settings, model, block, vectors, done)
    yield rows

    # The caller has written the block when it asks for the next one.
    done += len(block)
    if bar.is_due():
      speed = f"{bar.units_per_second(done):,.1f} lines/s  ETA {bar.eta(done)}"
      bar.print_line(f"{done:,} of {shape[0]:,} lines  {speed}", done)
  progress.clear()


def open_index(settings: SearchSettings, model: bert.Model) -> np.ndarray:
  """Returns the vectors of the lines, float16 [N, H]; makes them if needed."""
  path, text = settings.index_file, settings.input_file
  if remote.is_remote(path):
    raise ValueError(
      f"--index_file={path}: expected a local path: it is mapped into memory"
    )

  # What the index depends on. An index whose record differs from this would
  # give wrong answers, and is refused.
  record = {
    "model": settings.model,
    "input_file": text,
    # Another column is another text. Its name is part of this value, and has no
    # key, so that the records of indices without a column stay as they were.
    "sha256": files.hash_file(text) + (settings.text_column or ""),
    "lines": sum(1 for _ in read_texts(settings)),
    "probe": encode(model, [_PROBE], settings.line_prompt_name)[0].tolist(),
    "line_prompt_name": settings.line_prompt_name,
    "weights_sha256": model.weights_sha256,
  }
  if not record["lines"]:
    raise ValueError(f"--input_file={text}: it is empty")

  # `make` resumes what a killed run left; `read` compares the records.
  if not files.exists(path):
    if model.strips_marks:
      lost_letters.report(read_texts(settings), text)
    shape = record["lines"], len(record["probe"])
    rows = functools.partial(make_rows, settings, model, shape)
    vector_index.make(path, record, rows)
  return vector_index.read(path, record)


def open_model(settings: SearchSettings) -> bert.Model:
  """Loads --model; a ValueError if it makes no vectors, or lacks a prompt."""
  model = bert.load(settings.model)
  if model.task != "features":
    raise ValueError(
      f"--model={settings.model}: for {model.task}, not vectors; "
      "run_embedding.py trains a model of vectors"
    )

  # Some models were trained with different prompts for queries and for lines.
  for flag, text in (("prompt_name", "query"), ("line_prompt_name", "line")):
    if (name := getattr(settings, flag)) is not None:
      prompt = text_prompts.find_prompt(model.prompts, name, f"--{flag}")
      progress.note(f"{prompt!r} precedes every {text}: the prompt {name}")
  return model


def open_reranker(settings: SearchSettings) -> bert.Model:
  """Loads --rerank; a ValueError if it does not score pairs."""
  model = bert.load(settings.rerank)
  if "text_pair" not in model.inputs or model.task == "features":
    raise ValueError(
      f"--rerank={settings.rerank}: a model for {model.task} of "
      f"{', '.join(model.inputs)}; expected one that run_classifier.py trained "
      "on pairs"
    )

  # A model that gives a number has no labels.
  label = settings.rerank_label
  if model.labels and label not in model.labels:
    labels = ", ".join(model.labels)
    raise ValueError(f"--rerank_label={label}: expected one of {labels}")
  return model


def answer(
  settings: SearchSettings,
  queries: list[str],
  nearest: tuple[np.ndarray, np.ndarray],
  reranker: bert.Model | None,
) -> Iterator[dict[str, Any]]:
  """Yields the answer to each query, with the texts of the lines.

  Args:
    settings: say how many lines an answer has, and by which label they are
      sorted again.
    queries: Q texts.
    nearest: from `vector_search.find`: numbers of lines, and scores; [Q, N].
    reranker: from `open_reranker`; None leaves lines and scores as they are.

  Yields:
    {"query": ..., "results": [...]}, the best line first; lines count from 1.
  """
  # The file may not fit into memory. It is read again for the lines found.
  wanted = set(nearest[0].ravel().tolist())
  lines = enumerate(read_texts(settings))
  texts = {number: line for number, line in lines if number in wanted}

  numbers_and_scores = (array.tolist() for array in nearest)
  for query, numbers, scores in zip(queries, *numbers_and_scores, strict=True):
    results = [
      {"line": number + 1, "score": score, "text": texts[number]}
      for number, score in zip(numbers, scores, strict=True)
    ]

    # The reranker gives each line another score. A model of a number has no
    # labels: the number is the score. Of equal scores, the more similar line
    # stays first, because Python's sort is stable.
    if reranker:
      pairs = [(query, result["text"]) for result in results]
      for result, judgement in zip(results, reranker(pairs), strict=True):
        shares = judgement.get("probabilities")
        score = shares[settings.rerank_label] if shares else judgement["value"]
        result |= {"score": score, "similarity": result["score"]}
      results.sort(key=lambda result: -result["score"])
    yield {"query": query, "results": results[: settings.top_k]}


def main() -> None:
  """Makes or opens the index, and answers the queries."""
  start = time.monotonic()
  settings = SearchSettings.read()

  # An index may take hours: what can be wrong with files, models and prompts is
  # found before.
  text_files.check([settings.input_file], settings.text_column)
  queries = list(settings.query)
  if settings.query_file:
    queries += files.read_lines(settings.query_file)
  model = open_model(settings)
  reranker = open_reranker(settings) if settings.rerank else None

  # The first run writes here, all later ones only read.
  vectors = open_index(settings, model)

  # The model of --rerank sees only the lines that are found by their vectors.
  count = max(settings.top_k, settings.rerank_lines if reranker else 1)

  # Every query has a score for every line, so few queries fit into memory.
  at_once = max(1, _MOST_SCORES // len(vectors))
  seconds = 0.0
  with files.open_lines(settings.output_file) as write:
    for first in range(0, len(queries), at_once):
      block = queries[first : first + at_once]
      query_vectors = encode(model, block, settings.prompt_name)

      # The summary has the time of the search alone, without the models.
      begin = time.monotonic()
      nearest = vector_search.find(vectors, query_vectors, count)
      seconds += time.monotonic() - begin

      for item in answer(settings, block, nearest, reranker):
        if settings.output_file:
          write(json.dumps(item, ensure_ascii=False))
          continue
        write(item["query"])
        for r in item["results"]:
          write(f"  {r['score']:6.3f}  {r['line']:>8,}  {r['text']}")

  # Answers may go to the standard output, so the summary does not.
  each = f"; {seconds / len(queries):.3f} s a query" if queries else ""
  summary = f"{settings.index_file}: {len(vectors):,} lines{each}"
  program.print_end(start, summary, file=sys.stderr)


if __name__ == "__main__":
  program.run_program(main, SearchSettings)
