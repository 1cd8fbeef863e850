"""A Chinese model with a SentencePiece vocabulary, from text to answers."""

import json

import pytest

pytest.importorskip("sentencepiece")

import bert
import paths
import program_flags
import tiny

DATA = paths.SHARED / "data"
CONFIG = {
  **tiny.PRETRAINING_CONFIG,
  "vocab_size": 4000,
  "hidden_size": 32,
  "num_hidden_layers": 2,
  "intermediate_size": 64,
  "max_position_embeddings": 64,
}
REVIEWS = [
  ("pos", "\u5f88\u597d\uff0c\u670d\u52a1\u4e0d\u9519"),
  ("neg", "\u592a\u5dee\uff0c\u670d\u52a1\u4e0d\u597d"),
]


def run(program, **flags):
  program_flags.succeed(program_flags.command(program, **flags))


@pytest.mark.slow
def test_pretrained_fine_tuned_exported_and_asked(tmp_path, monkeypatch):
  corpus = DATA / "corpus" / "corpus_zh_wiki_drcd_cmrc.txt"
  if not corpus.exists():
    pytest.skip(f"needs {corpus}")
  monkeypatch.chdir(tmp_path)
  lines = corpus.read_text().splitlines()[:2000]
  (tmp_path / "text.txt").write_text("\n".join(lines) + "\n")
  vocabulary = {"model": "unigram", "vocab_size": 4000}
  run(
    "create_vocab", input_file="text.txt", output_file="x.model", **vocabulary
  )
  lengths = {"max_seq_length": 64, "max_predictions_per_seq": 10}
  lengths["vocab_file"] = "x.model"
  run(
    "create_pretraining_data",
    input_file="text.txt",
    output_file="x.tfrecord",
    dupe_factor=1,
    do_whole_word_mask=True,
    **lengths,
  )
  (tmp_path / "config.json").write_text(json.dumps(CONFIG))
  training = {"do_train": True, "learning_rate": 1e-3}
  run(
    "run_pretraining",
    input_file="x.tfrecord",
    bert_config_file="config.json",
    output_dir="pretrained",
    num_train_steps=30,
    num_warmup_steps=3,
    **lengths,
    **training,
  )
  rows = [f"{label}\t{words}" for label, words in REVIEWS * 100]
  (tmp_path / "train.tsv").write_text("\n".join(["label\ttext", *rows]) + "\n")
  run(
    "run_classifier",
    task_name="file",
    train_file="train.tsv",
    eval_file="train.tsv",
    model="pretrained",
    output_dir="tuned",
    do_eval=True,
    num_train_epochs=30,
    max_seq_length=32,
    **training,
  )
  assert tiny.read_results(tmp_path / "tuned")["eval_accuracy"] == 1.0
  run("export_saved_model", model_dir="tuned", export_dir="export")
  assert (tmp_path / "export" / "vocab.model").exists()
  texts = [words for _, words in REVIEWS]
  for folder in ("tuned", "export"):
    answers = bert.load(tmp_path / folder)(texts)
    assert [answer["label"] for answer in answers] == ["pos", "neg"]
