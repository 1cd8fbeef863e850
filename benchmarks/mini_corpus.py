"""Writes the text that models/mini was pre-trained on, from ../shared/data.

  python benchmarks/mini_corpus.py --output_dir=corpus

corpus.txt has IMDB's unlabelled reviews, novels, encyclopedia articles and the
paragraphs of SQuAD's training articles, as documents in a drawn order; of
every 500 documents one is in held_out.txt instead. pairs.txt has the sentences
of GLUE's training sets, without their labels, a row a document.
"""

import argparse
from collections.abc import Iterator
import json
import lzma
import pathlib
import random
import re

import contest

HELD_OUT = 500  # One document of so many.
SENTENCE_END = re.compile(r"""(?<=[.!?]) (?=[A-Z"'(])""")
# Columns of the text in GLUE's training files.
GLUE = {
  "MNLI/train.tsv": (8, 9),
  "QQP/train.tsv": (3, 4),
  "QNLI/train_subset.tsv": (1, 2),
  "STS-B/train.tsv": (7, 8),
  "MRPC/train.tsv": (3, 4),
  "RTE/train.tsv": (1, 2),
  "SST-2/train.tsv": (0,),
  "CoLA/train.tsv": (3,),
}


def split_sentences(paragraph: str) -> str:
  """Puts each sentence on a line; good enough for an encyclopedia's prose."""
  return SENTENCE_END.sub("\n", " ".join(paragraph.split()))


def read_texts(data: pathlib.Path) -> Iterator[str]:
  """Yields texts in the format of create_pretraining_data.py."""
  reviews = data / "imdb/unsup_corpus.txt.xz"
  with lzma.open(reviews, "rt", encoding="utf-8") as file:
    yield file.read()
  for name in ("gutenberg", "wikitext2_validtest"):
    yield (data / f"corpus/corpus_en_{name}.txt").read_text("utf-8")
  squad = (data / "squad/train-v1.1-60articles.json").read_text("utf-8")
  articles = json.loads(squad)["data"]
  paragraphs = (p["context"] for a in articles for p in a["paragraphs"])
  yield "\n\n".join(map(split_sentences, paragraphs))


def read_pairs(data: pathlib.Path) -> Iterator[str]:
  """Yields the rows of GLUE's training sets, each with its texts on lines."""
  for name, columns in GLUE.items():
    lines = (data / "glue" / name).read_text("utf-8-sig").split("\n")
    if name != "CoLA/train.tsv":  # It has no header.
      del lines[0]
    for line in filter(None, lines):
      yield "\n".join(line.split("\t")[column] for column in columns)


def main() -> None:
  parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
  parser.add_argument("--output_dir", type=pathlib.Path, required=True)
  folder = parser.parse_args().output_dir
  if not contest.DATA.is_dir():
    print(f"skipped: no {contest.DATA}")
    return
  documents = [
    document.strip("\n")
    for text in read_texts(contest.DATA)
    for document in text.split("\n\n")
    if document.strip()
  ]
  random.Random(1).shuffle(documents)
  parts = {
    "held_out": documents[::HELD_OUT],
    "corpus": [d for i, d in enumerate(documents) if i % HELD_OUT],
    "pairs": list(dict.fromkeys(read_pairs(contest.DATA))),
  }
  folder.mkdir(parents=True, exist_ok=True)
  for name, part in parts.items():
    path = folder / f"{name}.txt"
    path.write_text("\n\n".join(part) + "\n", "utf-8")
    print(f"wrote {path}: {len(part):,} documents")


if __name__ == "__main__":
  main()
