"""Texts for tests of published models, and the score of their vectors."""

import itertools
import json
import random

import numpy as np
import pytest

import hard_strings
import paths

DATA = paths.SHARED / "data"
needs_data = pytest.mark.skipif(not DATA.exists(), reason=f"{DATA} is absent")


def read_column(path, number):
  lines = (DATA / path).read_text(encoding="utf-8").split("\n")
  return [line.split("\t")[number] for line in lines[1:] if line]


def read_questions():
  """Yields questions with the paragraphs that answer them."""
  content = json.loads((DATA / "squad/xquad.en.json").read_text("utf-8"))
  for article in content["data"]:
    for paragraph in article["paragraphs"]:
      question = paragraph["qas"][0]["question"]
      yield f"{question} ||| {paragraph['context']}"


def odd_strings():
  """Yields texts of characters that are hard to tokenize.

  But none on which Hugging Face differs from the original: it knows no final
  sigma, and deletes what is of private use or newer than its tables.
  """
  rng = random.Random(1)
  odd = [character for character in hard_strings.ODD if character != "\u03a3"]
  for _ in range(99):
    yield " ".join("".join(rng.choices(odd, k=40)).split())


def read_texts(count):
  """Returns texts of eight kinds; those with ||| are pairs."""
  numbers = np.random.default_rng(1).integers(1e6, size=(99, 2))
  kinds = [
    read_column("sts_benchmark/sts-dev.csv", 5),
    list(read_questions()),
    read_column("multilabel/test.tsv", 0),
    read_column("glue/QNLI/dev.tsv", 2),
    read_column("chnsenticorp/dev.tsv", 1),
    read_column("xnli/xnli.dev.tsv", 6)[:2000],  # Arabic.
    [f"{a:.3f}% of ${b:,}!? #{a}" for a, b in numbers],
    list(odd_strings()),
  ]
  each = -(-count // len(kinds))
  chosen = [kind[:: len(kind) // each][:each] for kind in kinds]
  return list(itertools.chain(*chosen))[:count]


def read_pairs():
  """Returns the STS benchmark's test set: scores, first and second texts."""
  path = DATA / "sts_benchmark/sts-test.csv"
  lines = path.read_text(encoding="utf-8").rstrip("\n").split("\n")
  rows = [line.split("\t")[4:7] for line in lines]
  assert len(rows) == 1379
  scores, first, second = zip(*rows, strict=True)
  return np.array(scores, float), [*first], [*second]


def cosines(a, b):
  norms = np.linalg.norm(a, axis=1) * np.linalg.norm(b, axis=1)
  return np.sum(a * b, axis=1, dtype=np.float64) / norms


def correlate_ranks(a, b):
  """Returns Spearman's correlation; equal values share their mean rank."""

  def rank(values):
    _, which, counts = np.unique(
      values, return_inverse=True, return_counts=True
    )
    return (np.cumsum(counts) - (counts + 1) / 2)[which]

  return np.corrcoef(rank(a), rank(b))[0, 1]
