"""Finds the lines of a file that are most similar to a text, by their vectors.

  python search.py --model=minilm_export --input_file=texts.txt \\
    --index_file=texts.npy --query="Where can I learn to play the guitar?"

The first run makes the index, and resumes that after a kill. Scores are inner
products of vectors: cosines if the model makes them of length 1.
"""

import dataclasses
import functools
import json
import time
from typing import Any

import bert
from bert import searching
from bert.cli import flag_texts, program, typed_flags
from bert.data import file_search, files, progress, text_files, text_prompts

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


def open_model(settings: SearchSettings) -> bert.Model:
  """Loads --model; a ValueError if it makes no vectors, or lacks a prompt."""
  model = bert.load(settings.model)
  searching.check(model, settings.model, settings.index_file)

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
  query: str,
  hits: list[searching.Hit],
  reranker: bert.Model | None,
) -> dict[str, Any]:
  """Returns the answer to a query: the best lines, maybe sorted again.

  Args:
    settings: say how many lines an answer has, and by which label they are
      sorted again.
    query: a text.
    hits: the lines that were found, the best line first.
    reranker: from `open_reranker`; None leaves lines and scores as they are.

  Returns:
    {"query": ..., "results": [...]}, the best line first; lines count from 1.
  """
  results: list[dict[str, Any]] = [hit._asdict() for hit in hits]

  # The reranker gives each line another score. A model of a number has no
  # labels: the number is the score. Of equal scores, the more similar line
  # stays first, because Python's sort is stable.
  if reranker:
    pairs = [(query, hit.text) for hit in hits]
    for result, judgement in zip(results, reranker(pairs), strict=True):
      shares = judgement.get("probabilities")
      score = shares[settings.rerank_label] if shares else judgement["value"]
      result |= {"score": score, "similarity": result["score"]}
    results.sort(key=lambda result: -result["score"])
  return {"query": query, "results": results[: settings.top_k]}


def main() -> None:
  """Makes or opens the index, and answers the queries."""
  start = time.monotonic()
  settings = SearchSettings.read()

  # An index may take hours: what can be wrong with files, models and prompts is
  # found before.
  inputs = [settings.input_file, settings.query_file, settings.vectors_file]
  index_files = searching.files_of(settings.index_file)
  file_search.check_is_no_input(
    settings.output_file, [*filter(None, inputs), *index_files]
  )
  text_files.check([settings.input_file], settings.text_column)
  queries = list(settings.query)
  if settings.query_file:
    queries += files.read_lines(settings.query_file)
  model = open_model(settings)
  reranker = open_reranker(settings) if settings.rerank else None

  # The first run writes here, all later ones only read.
  # Some of the flags say what the index is made of.
  source = {name: getattr(settings, name) for name in searching.Source._fields}
  index = searching.Index(searching.Source(**source), model)

  # The model of --rerank sees only the lines that are found by their vectors.
  count = max(settings.top_k, settings.rerank_lines if reranker else 1)
  found = index.search_each(queries, count, settings.prompt_name)
  with files.open_lines(settings.output_file) as write:
    for query, hits in zip(queries, found, strict=True):
      item = answer(settings, query, hits, reranker)
      if settings.output_file:
        write(json.dumps(item, ensure_ascii=False))
        continue
      write(item["query"])
      for r in item["results"]:
        write(f"  {r['score']:6.3f}  {r['line']:>8,}  {r['text']}")

  # Answers may go to the standard output, so the summary does not. The seconds
  # are those of the search alone, without the models.
  each = f"; {index.seconds / len(queries):.3f} s a query" if queries else ""
  summary = f"{settings.index_file}: {len(index.vectors):,} lines{each}"
  program.print_end(start, summary, write=progress.note)


if __name__ == "__main__":
  program.run_program(main, SearchSettings)
