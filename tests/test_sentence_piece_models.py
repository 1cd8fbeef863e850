"""A Chinese model with a SentencePiece vocabulary, from text to answers."""

import json

import pytest

pytest.importorskip("sentencepiece")

import bert
import paths
import program_flags

DATA = paths.SHARED / "data"
CONFIG = {
  "vocab_size": 4000,
  "hidden_size": 32,
  "num_hidden_layers": 2,
  "num_attention_heads": 2,
  "intermediate_size": 64,
  "max_position_embeddings": 64,
  "type_vocab_size": 2,
}
REVIEWS = [
  ("pos", "\u5f88\u597d\uff0c\u670d\u52a1\u4e0d\u9519"),
  ("neg", "\u592a\u5dee\uff0c\u670d\u52a1\u4e0d\u597d"),
]


def run(program, **flags):
  result = program_flags.run_here(program_flags.command(program, **flags))
  assert result.returncode == 0, result.stderr
  return result.stdout


@pytest.mark.slow
def test_pretrained_fine_tuned_exported_and_asked(tmp_path):
  corpus = DATA / "corpus" / "corpus_zh_wiki_drcd_cmrc.txt"
  if not corpus.exists():
    pytest.skip(f"needs {corpus}")
  text, model = tmp_path / "text.txt", tmp_path / "x.model"
  text.write_text("\n".join(corpus.read_text().splitlines()[:2000]) + "\n")
  run(
    "create_vocab",
    input_file=text,
    output_file=model,
    model="unigram",
    vocab_size=4000,
  )
  lengths = {"max_seq_length": 64, "max_predictions_per_seq": 10}
  run(
    "create_pretraining_data",
    input_file=text,
    output_file=tmp_path / "x.tfrecord",
    vocab_file=model,
    dupe_factor=1,
    do_whole_word_mask=True,
    **lengths,
  )
  (tmp_path / "config.json").write_text(json.dumps(CONFIG))
  run(
    "run_pretraining",
    input_file=tmp_path / "x.tfrecord",
    vocab_file=model,
    bert_config_file=tmp_path / "config.json",
    output_dir=tmp_path / "pretrained",
    do_train=True,
    num_train_steps=30,
    num_warmup_steps=3,
    learning_rate=1e-3,
    **lengths,
  )
  rows = [f"{label}\t{words}" for label, words in REVIEWS * 100]
  (tmp_path / "train.tsv").write_text("\n".join(["label\ttext", *rows]) + "\n")
  run(
    "run_classifier",
    task_name="file",
    train_file=tmp_path / "train.tsv",
    eval_file=tmp_path / "train.tsv",
    model=tmp_path / "pretrained",
    output_dir=tmp_path / "tuned",
    do_train=True,
    do_eval=True,
    learning_rate=1e-3,
    num_train_epochs=30,
    max_seq_length=32,
  )
  results = (tmp_path / "tuned" / "eval_results.txt").read_text()
  assert "eval_accuracy = 1.0" in results
  run(
    "export_saved_model",
    model_dir=tmp_path / "tuned",
    export_dir=tmp_path / "export",
  )
  assert (tmp_path / "export" / "vocab.model").exists()
  texts = [words for _, words in REVIEWS]
  for folder in ("tuned", "export"):
    answers = bert.load(tmp_path / folder)(texts)
    assert [answer["label"] for answer in answers] == ["pos", "neg"]
