"""Finds the lines of a file that are most similar to a text, by their vectors.

  python search.py --model=minilm_export --input_file=texts.txt \\
    --index_file=texts.npy --query="Where can I learn to play the guitar?"

The first run makes the index, and resumes that after a kill. Scores are inner
products of vectors: cosines if the model makes them of length 1.
"""

from collections.abc import Iterator
import dataclasses
import io
import itertools
import json
import sys
import time
from typing import Any

import numpy as np

import bert
from cli import program
from data import atomic, files, progress

_index = program.group("Index")
_search = program.group("Search")


@dataclasses.dataclass(frozen=True, kw_only=True)
class SearchSettings(program.Settings):
  """The settings of this program."""

  model: str = _index(
    None,
    "What makes vectors: an export, a folder of sentence-transformers, or its "
    "name on the Hub.",
    required=True,
    path="model",
  )
  input_file: str = _index(
    None, "The texts, one a line.", required=True, path="file"
  )
  index_file: str = _index(
    None,
    "The .npy of their vectors; made if it is not there.",
    required=True,
    path="new_files",
  )
  vectors_file: str | None = _index(
    None,
    "Makes the index of this .npz of extract_features.py: a vector a line.",
    path="file",
  )
  query: tuple[str, ...] = _search(
    (), "A text to search for; may be given again.", repeated=True
  )
  query_file: str | None = _search(
    None, "More of them, one a line.", path="input"
  )
  top_k: int = _search(10, "Lines to find for each query.", least=1)
  rerank: str | None = _search(
    None,
    "A run_classifier.py model of pairs, which scores query and line together "
    "and orders the first --rerank_lines anew.",
    path="model",
  )
  rerank_lines: int = _search(100, "See --rerank.", least=1)
  rerank_label: str = _search(
    "1", "With --rerank: the label whose probability is the score."
  )
  output_file: str | None = _search(
    None,
    "JSON Lines of the answers, instead of a table to read.",
    path="new_files",
  )


_LINES = 1024  # Encoded at once: a run that resumes makes the same batches.
_ROWS = 512  # Vectors multiplied at once: they stay in the cache.
_MOST_SCORES = 1 << 26  # In memory.
_RECORD = {"model": str, "input_file": str, "sha256": str, "lines": int}
# Two models differ in its vector, and so does one with two --max_seq_length.
_PROBE = " ".join(f"the {number} films" for number in range(300))


def encode(model: bert.Model, texts: list[str]) -> np.ndarray:
  """Computes the vectors of texts, float32 [N, H]."""
  return np.array([answer["vector"] for answer in model(texts)], np.float32)


def differ(found: np.ndarray, expected: np.ndarray) -> bool:
  """Returns whether vectors differ by more than bfloat16 rounds."""
  return np.abs(found - expected).max() > 0.05 * np.abs(expected).max()


def check(path: str, old: dict[str, Any], new: dict[str, Any]) -> None:
  """Raises a ValueError if an index is of another model or other text."""
  files.check_values(old, {name: (kind,) for name, kind in _RECORD.items()})
  probes, fault = [np.array(record["probe"]) for record in (old, new)], ""
  if len(probes[0]) != len(probes[1]):
    sizes = "{} numbers a vector, not the {}".format(*map(len, probes))
    fault = f"{old['model']}, {sizes} of --model={new['model']}"
  elif differ(*probes):
    fault = (
      f"{old['model']}, whose vectors --model={new['model']} does not make"
    )
  elif old["sha256"] != new["sha256"]:
    fault = f"other text than is in --input_file={new['input_file']} now"
  if fault:
    raise ValueError(f"{path}: made of {fault}: pass another --index_file")


def build(
  settings: SearchSettings, model: bert.Model, record: dict[str, Any]
) -> None:
  """Makes the index, from where a killed run left it."""
  total, width, header = record["lines"], len(record["probe"]), io.BytesIO()
  described = {"descr": "<f2", "fortran_order": False, "shape": (total, width)}
  np.lib.format.write_array_header_1_0(header, described)
  stored, part = None, f"{settings.index_file}.part"
  if path := settings.vectors_file:
    stored = np.load(path)["vectors"]
    if stored.shape != (total, 1, width):
      raise ValueError(
        f"--vectors_file={path}: vectors of the shape {stored.shape}, expected "
        f"{(total, 1, width)}, by the lines of --input_file and --model"
      )
  with open(part, "ab") as file, atomic.locked(part) as is_free:
    if is_free is False:
      raise OSError(f"{part}: another process is writing it")
    done = max(0, file.tell() - header.tell()) // (2 * width * _LINES) * _LINES
    file.truncate(header.tell() + 2 * width * done if done else 0)
    file.write(b"" if done else header.getvalue())
    lines = itertools.islice(files.read_lines(settings.input_file), done, None)
    bar = progress.Progress(total, done)
    for block in iter(lambda: [*itertools.islice(lines, _LINES)], []):
      vectors = encode(model, block if stored is None else block[:1])
      if stored is not None:
        first, vectors = vectors[0], stored[done : done + len(block), 0]
        if differ(vectors[0], first):
          raise ValueError(
            f"--vectors_file={path}: the vector of line {done + 1} is not that "
            f"of --model={settings.model} and --input_file"
          )
      file.write(vectors.astype("<f2").tobytes())
      file.flush()
      done += len(block)
      if bar.is_due():
        speed = f"{bar.units_per_second(done):,.1f} lines/s"
        eta = f"ETA {bar.eta(done)}"
        bar.print_line(f"{done:,} of {total:,} lines  {speed}  {eta}", done)
  progress.clear()
  atomic.publish(part, settings.index_file)


def open_index(settings: SearchSettings, model: bert.Model) -> np.ndarray:
  """Returns the vectors of the lines, float16 [N, H]; makes them if needed."""
  path, text = f"{settings.index_file}.json", settings.input_file
  record = {
    "model": settings.model,
    "input_file": text,
    "sha256": files.hash_file(text),
    "probe": encode(model, [_PROBE])[0].tolist(),
  }
  part = f"{settings.index_file}.part"
  begun = files.exists(settings.index_file) or files.exists(part)
  if begun and files.exists(path):
    found = files.read_json(path)
    check(settings.index_file, found, record)
    record = found
  elif files.exists(settings.index_file):
    raise ValueError(f"{settings.index_file}: lacks {path}, which says of what")
  else:
    record["lines"] = sum(1 for _ in files.read_lines(text))
    files.remove(part)
    files.write_json(path, record)
  if not record["lines"]:
    raise ValueError(f"--input_file={text}: it is empty")
  if not files.exists(settings.index_file):
    build(settings, model, record)
  vectors = np.load(settings.index_file, mmap_mode="r")
  if vectors.shape != (record["lines"], len(record["probe"])):
    raise ValueError(f"{settings.index_file}: not that of {path}: remove both")
  return np.asarray(vectors)


def find(
  vectors: np.ndarray, queries: np.ndarray, count: int
) -> tuple[np.ndarray, np.ndarray]:
  """Finds the largest products of vectors, float16 [N, H], and queries.

  The queries are float32 [Q, H]. Returns the numbers of the vectors, int [Q,
  count], and the products, the largest first.
  """
  # NumPy converts float16 one by one. Shifted by 13 bits, its exponent and
  # fraction stand where float32 has them, but for a factor of 2^112.
  bits, queries = vectors.view(np.int16), queries * np.float32(2.0**100)
  scores = np.empty([len(queries), len(bits)], np.float32)
  for start in range(0, len(bits), _ROWS):
    block = bits[start : start + _ROWS].astype(np.int32)
    block <<= 13
    block &= ~0x70001FFF  # What the sign was copied to.
    scores[:, start : start + _ROWS] = queries @ block.view(np.float32).T
  scores *= np.float32(2.0**12)
  count = min(count, len(bits))
  best = np.argpartition(scores, -count)[:, -count:]
  chosen = np.take_along_axis(scores, best, 1)
  order = np.lexsort((best, -chosen))
  found = (np.take_along_axis(part, order, 1) for part in (best, chosen))
  return tuple(found)


def open_reranker(settings: SearchSettings) -> bert.Model:
  """Loads --rerank; a ValueError if it does not score pairs."""
  model, label = bert.load(settings.rerank), settings.rerank_label
  if "text_pair" not in model.inputs or model.task == "features":
    raise ValueError(
      f"--rerank={settings.rerank}: a model for {model.task} of "
      f"{', '.join(model.inputs)}; expected one that run_classifier.py trained "
      "on pairs"
    )
  if model.labels and label not in model.labels:
    known = ", ".join(model.labels)
    raise ValueError(f"--rerank_label={label}: expected one of {known}")
  return model


def answer(
  settings: SearchSettings, queries: list[str], found, reranker
) -> Iterator[dict[str, Any]]:
  """Yields the answer to each query from what `find` returns."""
  wanted = set(found[0].ravel().tolist())
  lines = enumerate(files.read_lines(settings.input_file))
  texts = {number: line for number, line in lines if number in wanted}
  for query, *row in zip(queries, *(x.tolist() for x in found), strict=True):
    results = [
      {"line": number + 1, "score": score, "text": texts[number]}
      for number, score in zip(*row, strict=True)
    ]
    pairs = [(query, result["text"]) for result in results]
    scored = reranker(pairs) if reranker else ()
    for result, a in zip(results, scored, strict=False):
      shares = a.get("probabilities", {settings.rerank_label: a.get("value")})
      score = shares[settings.rerank_label]
      result |= {"score": score, "similarity": result["score"]}
    results.sort(key=lambda result: -result["score"])
    yield {"query": query, "results": results[: settings.top_k]}


def main() -> None:
  start, settings = time.monotonic(), SearchSettings.read()
  path, queries = settings.query_file, [*settings.query]
  queries += files.read_lines(path) if path else ()
  model = bert.load(settings.model)
  if model.task != "features":
    raise ValueError(f"--model={settings.model}: for {model.task}, not vectors")
  reranker = open_reranker(settings) if settings.rerank else None
  vectors = open_index(settings, model)
  count = max(settings.top_k, settings.rerank_lines if reranker else 1)
  step, seconds = max(1, _MOST_SCORES // len(vectors)), 0.0
  with files.open_lines(settings.output_file) as write:
    for first in range(0, len(queries), step):
      part = queries[first : first + step]
      of_queries, begin = encode(model, part), time.monotonic()
      found = find(vectors, of_queries, count)
      seconds += time.monotonic() - begin
      for item in answer(settings, part, found, reranker):
        if settings.output_file:
          write(json.dumps(item, ensure_ascii=False))
          continue
        write(item["query"])
        for r in item["results"]:
          write(f"  {r['score']:6.3f}  {r['line']:>8,}  {r['text']}")
  each = f"; {seconds / len(queries):.3f} s a query" if queries else ""
  summary = f"{settings.index_file}: {len(vectors):,} lines{each}"
  program.print_end(start, summary, file=sys.stderr)


if __name__ == "__main__":
  program.run_program(main, SearchSettings)
