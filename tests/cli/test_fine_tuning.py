"""The settings and the summary of fine-tuning programs, without a run."""

from collections.abc import Callable
import dataclasses
import json
import time
import types
from typing import Any, NamedTuple

import numpy as np
import pytest
import tensorflow as tf

from bert import (
  modeling,
  run_classifier,
  run_embedding,
  run_squad,
  run_tagging,
)
from bert.cli import (
  classifier_tasks,
  fine_tuning,
  model_folder,
  output_folder,
  pretraining_run,
  run_report,
  shared_flags,
)
from bert.data import atomic, sbert_files
from bert.encoders import encoder_table
from bert.training import loss_watch, training_plan
from bert.weights import checkpoints
import program_flags
import tiny


def test_a_task_that_predicts_nothing_needs_no_file_for_it():
  settings = shared_flags.DataSettings(output_dir="out", do_predict=True)
  with pytest.raises(ValueError, match="--do_predict needs --predict_file"):
    shared_flags.find_data_files(settings, (".txt",))
  assert not shared_flags.find_data_files(settings, (".txt",), predicts=False)


def test_no_answer_cannot_be_asked_of_a_causal_model():
  settings = run_squad.SquadSettings(
    output_dir="out", version_2_with_negative=True
  )
  sizes = {"vocab_size": 4, "hidden_size": 4, "num_attention_heads": 2}
  sizes |= {"encoder_type": "variant", "causal_attention": True}
  config = encoder_table.make_config(sizes)
  with pytest.raises(ValueError, match="--version_2_with_negative: .CLS."):
    run_squad.check(settings, config)
  config = dataclasses.replace(config, causal_attention=False)
  run_squad.check(settings, config)


def test_predicting_follows_the_training_of_the_first_seed(tmp_path, capsys):
  (tmp_path / "seed-7").mkdir()
  path = tmp_path / "seed-7" / "prediction.json"
  path.write_text('{"max_seq_length": 64, "doc_stride": 9}')
  flags = {"output_dir": tmp_path, "seeds": "7,8", "task_name": "file"}
  settings = program_flags.read(
    run_classifier.ClassifierSettings,
    fine_tuning.read_settings,
    **flags,
    vocab_file="v",
    bert_config_file="c",
    doc_stride=3,
  )
  assert (settings.max_seq_length, settings.doc_stride) == (64, 3)
  said = f"--max_seq_length=64, as {path} says\n"
  assert capsys.readouterr().err == said
  path.write_text('{"problem": "tagging"}')
  message = "prediction.json: --problem=tagging: expected one of"
  with pytest.raises(ValueError, match=message):
    program_flags.read(
      run_classifier.ClassifierSettings,
      fine_tuning.read_settings,
      **flags,
      vocab_file="v",
      bert_config_file="c",
    )


class Trained(NamedTuple):
  """What a program trains on, and other files that later runs read."""

  settings_class: type
  open_data: Callable
  lines: list[str]
  columns: dict[str, Any]
  recorded: dict[str, Any]
  fault: str  # What a run without the flags says of the file of the training.
  others: list[list[str]]  # Files without the columns of the training.


TRAINED = {
  "tagging": Trained(
    run_tagging.TaggingSettings,
    lambda x: run_tagging.open_data(x, run_tagging.inspect_files(x)),
    ["1\tgood\tpos\tX", "2\tbad\tneg\tY"],
    {"token_column": 1, "tag_column": 2},
    {"token": 1, "tag": 2},
    r"training read by --token_column=1 \(.*\); pass that, or --token_column=0",
    [["good", "bad"]],
  ),
  "embedding": Trained(
    run_embedding.EmbeddingSettings,
    run_embedding.open_data,
    ["1\tgood\tfilm", "2\tbad\tplot"],
    {"text_column": "1", "text_pair_column": "2"},
    {"text": 1, "text_pair": 2},
    r"training read by --text_column=1 \(.*\); pass that, or --text_column=0",
    [],
  ),
  # A column has the default's name, and another one was trained on.
  "classifier": Trained(
    run_classifier.ClassifierSettings,
    lambda x: run_classifier.open_data(x, classifier_tasks.read(x)),
    ["text\tsummary\tlabel", "1\tgood\tpos", "2\tbad\tneg"],
    {"text_column": "summary"},
    {"text": "summary", "text_pair": None, "header": True, "count": 3},
    r"--text_column=summary \(.*\); pass that, or --text_column=text",
    [["good", "bad"], ["text", "good"], ["id\ttext", "1\tgood"]],
  ),
  "numbers": Trained(
    run_classifier.ClassifierSettings,
    lambda x: run_classifier.open_data(x, classifier_tasks.read(x)),
    ["good\tpos", "bad\tneg"],
    {"text_column": 0, "label_column": 1},
    {"text": 0, "text_pair": None, "header": False, "count": 2},
    "no column 'text'; pass --text_column",
    [["good"], ["text\tid", "good\t1"], ['{"a": 1, "text": "good"}']],
  ),
}


def read_columns(case, folder, **flags):
  """Reads settings as a program does, which checks the files first."""

  def check_and_read(settings_class):
    settings_class.read().check()
    return fine_tuning.read_settings(settings_class)

  if case.settings_class is run_classifier.ClassifierSettings:
    flags = {"task_name": "file", **flags}
  flags = tiny.flags_for(folder, **flags)
  return program_flags.read(case.settings_class, check_and_read, **flags)


@pytest.mark.parametrize("name", TRAINED)
def test_later_runs_ask_for_the_columns_of_the_training(name, tmp_path):
  case = TRAINED[name]
  file = tmp_path / "data.tsv"
  file.write_text("\n".join(case.lines) + "\n")
  tiny.write_model(tmp_path)
  out = tmp_path / "out"
  out.mkdir()
  (out / "labels.txt").write_text("neg\npos\n")

  flags = {"do_train": True, "train_file": file, **case.columns}
  recorded = case.open_data(read_columns(case, tmp_path, **flags))
  assert recorded.answer_settings["columns"] == case.recorded
  record = json.dumps(dict(recorded.answer_settings))
  (out / "prediction.json").write_text(record)

  flags = {"do_predict": True, "predict_file": file}
  new = {"output_dir": tmp_path / "new"}
  (out / "best").mkdir()
  for elsewhere in (
    {},
    {**new, "model": out},
    {**new, "init_checkpoint": out / "best"},
  ):
    with pytest.raises(ValueError, match=case.fault):
      read_columns(case, tmp_path, **flags, **elsewhere)
  # With one of the flags nothing is asked.
  texts = dict(list(case.columns.items())[:1])
  for column in (texts, dict.fromkeys(texts, 0)):
    data = case.open_data(read_columns(case, tmp_path, **flags, **column))
    assert "columns" not in data.answer_settings  # A training says them.

  for lines in case.others:
    other = tmp_path / ("o.jsonl" if lines[0][0] == "{" else "o.tsv")
    other.write_text("\n".join(lines) + "\n")
    flags["predict_file"] = other
    data = case.open_data(read_columns(case, tmp_path, **flags))
    first = next(iter(data.test[0].examples()))
    assert "good" in str(first)


@pytest.mark.parametrize(
  ("name", "value"),
  [
    ("max_seq_length", -1),
    ("max_seq_length", "long"),
    ("max_seq_length", None),
    ("doc_stride", 1.5),
    ("window_pooling", "median"),
    ("window_pooling", [1]),
  ],
)
def test_what_a_training_recorded_is_checked_as_flags(tmp_path, name, value):
  path = tmp_path / "prediction.json"
  path.write_text(json.dumps({name: value}))
  flags = {"output_dir": tmp_path, "task_name": "file", "vocab_file": "v"}
  with pytest.raises(ValueError, match=f"{path}: --{name}=.*"):
    program_flags.read(
      run_classifier.ClassifierSettings,
      fine_tuning.read_settings,
      **flags,
      bert_config_file="c",
    )


def test_settings_of_others_are_no_training(tmp_path):
  checkpoints.write(str(tmp_path), {"a": np.zeros(1, np.float32)})
  (tmp_path / "settings.json").write_text('{"a": 1} // An editor\'s.')
  settings = shared_flags.FineTuningSettings(
    output_dir="new",
    init_checkpoint="x",
    open_model=lambda: model_folder.open_model(str(tmp_path)),
  )
  assert output_folder.trained_folder(settings) == "new"
  (tmp_path / "settings.json").write_text('{"max_seq_length": 1}')
  assert output_folder.trained_folder(settings) == "new"


@pytest.mark.parametrize(
  ("trains", "has_weights", "pooling"),
  [(False, False, "mean"), (True, True, "mean"), (True, False, None)],
)
def test_a_new_training_is_not_of_what_was_evaluated_there(
  tmp_path, trains, has_weights, pooling
):
  (tmp_path / "settings.json").write_text('{"pooling": "mean"}')
  if has_weights:
    checkpoints.write(str(tmp_path), {"a": np.zeros(1, np.float32)}, 3)
  settings = shared_flags.FineTuningSettings(
    output_dir=str(tmp_path), do_train=trains
  )
  assert fine_tuning.read_pooling(settings).get("pooling") == pooling


def test_best_weights_without_a_checkpoint_are_not_deleted(tmp_path):
  values = {"a": np.zeros(1, np.float32)}
  checkpoints.write(str(tmp_path / "best"), values, 7)
  settings = shared_flags.FineTuningSettings(
    output_dir=str(tmp_path), do_train=True, eval_every_steps=2
  )
  message = "checkpoints are gone, and delete the best weights, of step 7: move"
  with pytest.raises(ValueError, match=message):
    output_folder.check_evaluations(settings)
  checkpoints.write(str(tmp_path), values, 8)
  output_folder.check_evaluations(settings)


def test_a_run_that_made_nothing_leaves_nothing(tmp_path):
  settings = shared_flags.FineTuningSettings(output_dir=str(tmp_path / "out"))
  strategy, config = tf.distribute.get_strategy(), modeling.BertConfig(9)
  with pytest.raises(ValueError, match="one of the labels"):
    with output_folder.claim(settings, config, strategy):
      for name in ("held_out.jsonl", "settings.json", "labels.txt"):
        (tmp_path / "out" / name).write_text("{}")
      sbert_files.write(str(tmp_path / "out"), 8, "mean", True, 16)
      raise ValueError("one of the labels is wrong")
  assert not (tmp_path / "out").exists()


def test_a_refused_evaluation_leaves_the_files_of_a_training(tmp_path):
  """Which has begun after it, in the same folder, and still runs."""
  out = tmp_path / "out"
  settings = shared_flags.FineTuningSettings(output_dir=str(out))
  strategy, config = tf.distribute.get_strategy(), modeling.BertConfig(9)
  with atomic.claim_folder(str(out)):
    with pytest.raises(ValueError, match="no trained model"):
      with output_folder.claim(settings, config, strategy):
        (out / "labels.txt").write_text("a\nb\n")
        raise ValueError("out holds no trained model")
  assert (out / "labels.txt").exists()


def test_scores_of_another_prediction_go_before_new_answers(tmp_path):
  metrics = [tmp_path / f"{name}_metrics.json" for name in ("predict", "eval")]
  for path in metrics:
    path.write_text("{}")
  dev, test = types.SimpleNamespace(suffix=""), types.SimpleNamespace(suffix="")
  run = types.SimpleNamespace(
    is_chief=True, folder=str(tmp_path), data=types.SimpleNamespace(test=[test])
  )
  fine_tuning.Run.forget_scores(run, dev)
  assert metrics[0].exists()
  fine_tuning.Run.forget_scores(run, test)
  assert [path.exists() for path in metrics] == [False, True]


def test_a_folder_that_another_worker_removed_hides_no_fault(tmp_path):
  settings = shared_flags.FineTuningSettings(output_dir=str(tmp_path / "out"))
  strategy, config = tf.distribute.get_strategy(), modeling.BertConfig(9)
  with pytest.raises(ValueError, match="the workers do not have the same"):
    with output_folder.claim(settings, config, strategy):
      (tmp_path / "out").rmdir()
      raise ValueError("the workers do not have the same seed")


def test_the_summary_of_a_folder_without_weights(tmp_path, capsys):
  folder = str(tmp_path / "new")
  start, before = time.monotonic(), run_report.list_files(folder)
  assert before == {}
  (tmp_path / "new").mkdir()
  (tmp_path / "new" / "predictions.tsv").write_text("x")
  run_report.summarize(folder, start, before, "eval_f1 1")
  assert capsys.readouterr().out == (
    "finished in 0.0 s\n  eval_f1 1\n"
    f"  wrote to {tmp_path}/new: predictions.tsv\n"
  )


def test_the_summary_of_a_task_that_no_export_has(tmp_path, capsys):
  checkpoints.write(str(tmp_path), {"a": np.zeros(1, np.float32)}, 3)
  run_report.summarize(str(tmp_path), 0.0, {}, "", can_export=False)
  assert "export_saved_model.py" not in capsys.readouterr().out
  run_report.summarize(str(tmp_path), 0.0, {}, "")
  printed = capsys.readouterr().out
  assert "export_saved_model.py" in printed
  # No training can continue without slots, as those of several tasks.
  assert "checkpoints: 1, 0.0 MB\n" in printed


def test_a_resumed_pre_training_tells_the_best_of_all_evaluations(
  tmp_path, capsys
):
  losses = {2: 3.0, 4: 1.0, 6: 2.0}
  lines = [{"step": n, "eval/loss": loss} for n, loss in losses.items()]
  lines.insert(1, {"step": 3, "loss": 0.5})
  (tmp_path / "curves.jsonl").write_text("\n".join(map(json.dumps, lines)))
  settings = types.SimpleNamespace(do_train=True, do_eval=False)
  for scores, first, expected in (
    ({6: {"loss": 2.0}}, 0, "best of 3 evaluations: step 4, loss 1\n"),
    ({}, 4, "best of 1 evaluations: step 6, loss 2\n"),  # Another phase.
  ):
    run = types.SimpleNamespace(
      folder=str(tmp_path),
      settings=settings,
      data=types.SimpleNamespace(is_masked=True),
      step=6,
      scores=scores,
      phase=training_plan.Phase(first, 0, {}),
      guesses={},
    )
    pretraining_run.print_summary(run, 0.0)
    assert expected in capsys.readouterr().out


@pytest.mark.parametrize(
  ("step", "loss", "init_checkpoint", "ends"),
  [
    (6, 5.5, None, "  next: python run_classifier.py --model=out --task_name"),
    (6, 6.0, None, "  no better than word frequencies alone, whose masked-LM"),
    (0, 5.5, None, "  the weights are random: train for more steps before"),
    (0, 5.5, "bert", "  next: python run_classifier.py --model=bert --task_n"),
  ],
)
def test_only_a_model_that_has_learned_is_worth_a_fine_tuning(
  step, loss, init_checkpoint, ends, capsys, tmp_path, monkeypatch
):
  monkeypatch.chdir(tmp_path)
  settings = types.SimpleNamespace(
    do_train=step > 0,
    do_eval=True,
    vocab_file="vocab.txt",
    output_dir="out",
    model=init_checkpoint,
    init_checkpoint=init_checkpoint,
  )
  run = types.SimpleNamespace(
    folder="out",
    settings=settings,
    step=step,
    scores={step: {"loss": loss, "masked_lm_loss": loss}},
    phase=None,
    guesses={"eval/masked_lm_loss": loss_watch.Guess("word frequencies", 6.0)},
  )
  pretraining_run.print_summary(run, 0.0)
  assert capsys.readouterr().out.splitlines()[-1].startswith(ends)


@pytest.mark.parametrize(
  "data",
  [{"problem": "multiple_choice"}, {"problem": "regression", "pairs": True}],
)
def test_a_model_with_one_segment_takes_no_pairs(data):
  config = types.SimpleNamespace(type_vocab_size=1)
  settings = {"has_text_pair": data.pop("pairs", False)}
  made = fine_tuning.Data(None, "loss", data, answer_settings=settings)
  with pytest.raises(ValueError, match="the model has one segment, and takes "):
    fine_tuning._check_segments(config, made)
  config.type_vocab_size = 2
  fine_tuning._check_segments(config, made)


@pytest.mark.parametrize(
  ("text", "metric", "expected"),
  [
    ("", None, "eval_f1 50"),
    ("best: eval_f1 70 at step 2", None, "best: eval_f1 70 at step 2"),
    # The answers that were written may be to other questions, or by another
    # threshold than the best.
    ("best: f1 70", "f1", "eval_f1 50; best: f1 70"),
    ("", "exact", "eval_exact 40"),
  ],
)
def test_the_score_of_written_answers_stands_before_the_best(
  text, metric, expected
):
  data = types.SimpleNamespace(metric="f1")
  run = types.SimpleNamespace(data=data, score_text=text, first_scores={})
  scores = {"f1": 50.0, "exact": 40.0}
  fine_tuning.Run.set_summary_score(run, scores, metric)
  assert run.score_text == expected
  assert next(iter(run.first_scores)) == (metric or "f1")
