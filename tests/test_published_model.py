"""models/mini: real weights, for whoever takes this repository unread."""

import json

import numpy as np
import pytest

import bert
from bert import fill_mask
from bert.weights import checkpoints
import paths
import program_flags

SCORE = "pseudo_log_likelihood"
FOLDER = paths.ROOT / "models" / "mini"


def run(tmp_path, texts, **flags):
  """Returns what fill_mask.py writes for some texts."""
  (tmp_path / "in.txt").write_text("\n".join(texts) + "\n")
  flags |= {"input_file": tmp_path / "in.txt", "output_format": "jsonl"}
  flags |= {"output_file": tmp_path / "out.jsonl", "model": FOLDER}
  program_flags.run_main(fill_mask, fill_mask.FillMaskSettings, **flags)
  lines = (tmp_path / "out.jsonl").read_text().splitlines()
  return [json.loads(line) for line in lines]


def test_it_is_small_and_says_what_it_is():
  names = {path.name: path.stat().st_size for path in FOLDER.iterdir()}
  assert sorted(names) == [
    "README.md",
    "bert_config.json",
    "bert_model.ckpt.data-00000-of-00001",
    "bert_model.ckpt.index",
    "vocab.txt",
  ]
  assert sum(names.values()) < 16_000_000
  card = (FOLDER / "README.md").read_text(encoding="utf-8")
  for source in ("IMDB", "Gutenberg", "WikiText-2", "SQuAD", "GLUE"):
    assert source in card
  encoder = bert.load_encoder(str(FOLDER))
  assert encoder.count_params() == 7_230_720
  values = checkpoints.read(str(FOLDER / "bert_model.ckpt"))
  assert all(v.dtype == np.float16 and np.isfinite(v).all() for _, v in values)


@pytest.mark.parametrize("precision", ["float32", "bfloat16"])
def test_words_that_it_has_learned(tmp_path, precision):
  words = {
    "it was a complete waste of [MASK] .": "time",
    "she was born in 1972 in new [MASK] .": "york",
    "this is the [MASK] movie i have ever seen .": "best",
  }
  items = run(tmp_path, words, precision=precision)
  best = [item["masks"][0][0]["token"] for item in items]
  assert best == list(words.values())


def test_english_is_likelier_than_its_words_in_another_order(tmp_path):
  texts = [
    "this is the best movie i have ever seen .",
    "this is the movie best i have seen ever .",
  ]
  english, shuffled = run(tmp_path, texts, score="true")
  assert english[SCORE] > shuffled[SCORE] + 10
