"""run_classifier.py as its user meets it; the first run is a real process."""

import csv
import functools
import gzip
import json
import re
import shutil

import numpy as np
import pytest

from bert import run_classifier
from bert.data import processor
from bert.weights import checkpoints
import paths
import program_flags
import same_training
import tiny

command_tiny = functools.partial(tiny.command, "run_classifier")
run_tiny = functools.partial(tiny.run, "run_classifier")
run = functools.partial(tiny.succeed, "run_classifier")
GOLDEN = paths.SHARED / "golden" / "e2e"
# Enough to learn the tiny task without a fault.
PERFECT = {"do_train": True, "do_eval": True, "num_train_epochs": 6}


def read_metrics(path):
  return json.loads(path.read_text())["metrics"]


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
  """A folder in which a model was trained, and its standard output."""
  folder = tmp_path_factory.mktemp("trained")
  tiny.write_tsv(folder / "train.tsv", range(400))
  tiny.write_tsv(folder / "dev.tsv", range(400, 460))
  tiny.write_tsv(folder / "test.tsv", range(460, 500))
  result = program_flags.run_command(
    command_tiny(folder, data_dir=folder, do_predict=True, **PERFECT)
  )
  assert result.returncode == 0, result.stderr
  return folder, result.stdout


def test_training_learns_and_says_what_it_wrote(trained):
  folder, output = trained
  results = tiny.read_results(folder / "out")
  assert results["eval_accuracy"] == 1.0
  assert results["global_step"] == 300
  # No score has two names.
  assert " ".join(results) == (
    "eval_accuracy eval_loss eval_macro_f1 global_step loss"
  )
  for name in ("eval", "predict"):
    metrics = read_metrics(folder / "out" / f"{name}_metrics.json")
    assert list(metrics) == ["accuracy", "macro_f1", "loss"]
    assert metrics["accuracy"] == 1.0
  assert "train (train): 400 examples" in output
  for name in ("predictions.tsv", "eval_metrics.json", "test_results.tsv"):
    assert f"wrote {folder / 'out' / name}" in output


def test_report_of_the_run(trained):
  folder, _ = trained
  text = (folder / "out" / "report.html").read_text()
  assert "<title>loss: 300, " in text and "; eval_accuracy 1<" in text
  for title in ("Evaluation of dev", "Prediction of test", "Settings"):
    assert f"<h2>{title}</h2>" in text
  assert text.count("<h3>Confusion matrix</h3>") == 2
  assert '>learning_rate</td><td dir="auto">0.002</td>' in text
  assert ">verbosity<" not in text  # absl's.
  assert '<a href="predictions.tsv">' in text


def test_predictions_have_ids_texts_labels_and_probabilities(trained):
  folder, _ = trained
  assert (folder / "out" / "labels.txt").read_text() == "neg\npos\n"
  text = (folder / "out" / "predictions.tsv").read_text()
  header, *rows = [line.split("\t") for line in text.splitlines()]
  assert (
    header == "id text label predicted probability_neg probability_pos".split()
  )
  assert [tuple(row[1:3]) for row in rows] == tiny.make_examples(
    range(460, 500)
  )
  for row in rows:
    probabilities = list(map(float, row[4:]))
    assert sum(probabilities) == pytest.approx(1, abs=1e-5)
    assert row[3] == ["neg", "pos"][int(np.argmax(probabilities))] == row[2]


def copy_trained(trained, tmp_path):
  """Returns the path of a copy of the folder of the trained model."""
  return shutil.copytree(trained[0] / "out", tmp_path / "copy")


def test_a_file_without_labels_can_be_predicted(trained, tmp_path):
  path = tmp_path / "new.jsonl.gz"
  with gzip.open(path, "wt") as file:
    for text, _ in tiny.make_examples(range(5)):
      file.write(json.dumps({"text": text, "id": f"n{len(text)}"}) + "\n")
  out = copy_trained(trained, tmp_path)
  (out / "predict_metrics.json").unlink()
  (out / "report.html").unlink()
  flags = {"predict_file": path, "do_predict": True, "report": False}
  run(trained[0], output_dir=out, **flags)
  with open(out / "predictions.tsv", newline="") as file:
    rows = list(csv.DictReader(file, delimiter="\t"))
  assert [row["predicted"] for row in rows] == ["neg", "pos"] * 2 + ["neg"]
  assert not (out / "predict_metrics.json").exists()
  assert not (out / "report.html").exists()


def test_padded_and_trimmed_batches_give_the_same_predictions(
  trained, tmp_path
):
  folder, _ = trained
  out = copy_trained(trained, tmp_path)
  flags = {"predict_file": folder / "test.tsv", "do_predict": True}
  flags |= {"pad_to_max_length": True, "predict_batch_size": 7}
  run(folder, output_dir=out, **flags)
  np.testing.assert_allclose(
    np.loadtxt(out / "test_results.tsv"),
    np.loadtxt(folder / "out" / "test_results.tsv"),
    rtol=1e-4,
    atol=1e-6,
  )


def test_a_note_says_that_a_folder_lacks_its_settings(trained, tmp_path):
  folder, _ = trained
  out = copy_trained(trained, tmp_path)
  recorded = [out / f"{name}.json" for name in ("settings", "training")]
  contents = [path.read_bytes() for path in recorded]
  for path in recorded:
    path.unlink()
  result = run_tiny(folder, data_dir=folder, output_dir=out, **PERFECT)
  for path, name in zip(recorded, ("problem, ", "seed, "), strict=True):
    assert f"note: no {path}: how the checkpoint beside" in result.stderr
    assert name in result.stderr
  assert [path.read_bytes() for path in recorded] == contents


@pytest.mark.slow  # tests/test_run_pretraining.py has the same for one seed.
def test_auto_is_recorded_as_what_it_chose_and_kept(tmp_path, monkeypatch):
  tiny.write_tsv(tmp_path / "train.tsv", range(20))
  flags = {"data_dir": tmp_path, "do_train": True, "precision": "auto"}
  flags |= {"seeds": "1,2", "num_train_epochs": 1}
  monkeypatch.setattr(processor, "multiplies_bfloat16", lambda: False)
  assert "on one CPU: float32\n" in run(tmp_path, **flags).stdout
  paths = [tmp_path / "out" / f"seed-{n}" / "training.json" for n in (1, 2)]
  recorded = [json.loads(path.read_text())["precision"] for path in paths]
  assert recorded == ["float32", "float32"]
  # On another machine.
  monkeypatch.setattr(processor, "multiplies_bfloat16", lambda: True)
  result = run(tmp_path, **flags)
  assert "on one CPU: float32\n" in result.stdout
  assert f"--precision=float32, as {paths[0]} says\n" in result.stderr


def test_early_stopping_and_the_best_checkpoint(tmp_path):
  tiny.write_tsv(tmp_path / "train.tsv", range(40))
  tiny.write_tsv(tmp_path / "dev.tsv", range(400, 440))
  flags = {"data_dir": tmp_path, "do_train": True, "do_eval": True}
  flags |= {"num_train_epochs": 40, "eval_every_epochs": 1}
  # Nothing is learned, so the first evaluation stays the best.
  flags |= {"early_stopping_patience": 2, "learning_rate": 1e-9}
  assert "stopping early" in run(tmp_path, **flags).stdout
  out = tmp_path / "out"
  lines = (out / "evaluations.jsonl").read_text().splitlines()
  step = json.loads(lines[-3])["step"]  # Two evaluations before the end.
  results = tiny.read_results(out)
  assert results["global_step"] == step
  assert (out / "best" / f"model.ckpt-{step}.index").exists()
  # The same command again trains no further and comes to the same end.
  assert "stopping early" in run(tmp_path, **flags).stdout
  assert tiny.read_results(out) == results


def test_a_complete_training_keeps_its_last_and_its_best_weights(tmp_path):
  tiny.write_tsv(tmp_path / "train.tsv", range(40))
  tiny.write_tsv(tmp_path / "dev.tsv", range(400, 410))
  flags = {"data_dir": tmp_path, "do_train": True, "do_eval": True}
  flags |= {"num_train_epochs": 2, "eval_every_steps": 2}
  result = run(tmp_path, save_checkpoints_steps=2, **flags)
  out, slot = tmp_path / "out", "output_bias/adam_m"
  assert checkpoints.saved_steps(str(out)) == [10]
  state = (out / "checkpoint").read_text()
  assert re.findall(r"model\.ckpt-\d+", state) == ["model.ckpt-10"] * 2
  assert slot in read_checkpoint(out, 10)
  [best] = checkpoints.saved_steps(str(out / "best"))
  assert slot not in read_checkpoint(out / "best", best)
  assert re.search(
    r"checkpoints: 1, \d.* can go on; a complete training deletes the older",
    result.stdout,
  )
  assert re.search(r"best/: the best weights alone, 0\.\d MB", result.stdout)
  # It resumes from there, and a flag that is given is followed to the end.
  flags |= {"num_train_epochs": 3, "keep_checkpoint_max": 2}
  again = run(tmp_path, save_checkpoints_steps=2, **flags)
  assert "resuming at step 10 of 15" in again.stdout
  assert checkpoints.saved_steps(str(out)) == [14, 15]


def test_a_collapsed_model_is_named_while_it_trains(tmp_path):
  tiny.write_tsv(tmp_path / "train.tsv", range(16))
  (tmp_path / "dev.tsv").write_text("label\ttext\n" + "pos\tgood\n" * 3)
  flags = {"data_dir": tmp_path, "num_train_epochs": 1, "do_train": True}
  result = run(tmp_path, eval_every_steps=1, **flags)
  assert "same prediction; it can help to pass --bias_correction" in (
    result.stderr
  )


def test_a_head_keeps_the_order_of_its_labels(trained, tmp_path):
  out = copy_trained(trained, tmp_path)
  # As if the head had been trained with its outputs in the other order.
  (out / "labels.txt").write_text("pos\nneg\n")
  flags = {"data_dir": trained[0], "init_checkpoint": out, "do_eval": True}
  result = run(trained[0], output_dir=tmp_path / "second", **flags)
  assert "labels in the order of --init_checkpoint: pos, neg" in result.stdout
  metrics = read_metrics(tmp_path / "second" / "eval_metrics.json")
  assert metrics["accuracy"] == 0.0  # Every label is the other one.


def test_seeds_are_run_and_summarised(tmp_path):
  tiny.write_tsv(tmp_path / "train.tsv", range(16))
  tiny.write_tsv(tmp_path / "dev.tsv", range(400, 410))
  flags = {**PERFECT, "num_train_epochs": 1, "learning_rate": 1e-9}
  output = run(tmp_path, data_dir=tmp_path, seeds="1,2", **flags).stdout
  table = output[output.rindex("seed  accuracy") :]
  values = dict(line.split()[:2] for line in table.splitlines()[1:])
  assert list(values) == ["1", "2", "mean", "std", "best"]
  assert (tmp_path / "out" / "seed-2" / "eval_results.txt").exists()


def test_several_labels_begin_at_their_frequencies(tmp_path):
  rows = ["happy\tgood", "sad\tbad", "both\tbad,good", "nice\tgood"] * 2
  (tmp_path / "train.tsv").write_text("\n".join(["text\tlabel", *rows]) + "\n")
  flags = {"data_dir": tmp_path, "problem": "multi_label", "do_train": True}
  flags |= {"train_batch_size": 4, "num_train_epochs": 1}
  run(tmp_path, learning_rate=1e-12, **flags)
  bias = read_checkpoint(tmp_path / "out", 2)["output_bias"]
  # Among eight texts, four are bad and six good.
  np.testing.assert_allclose(bias, np.log([5 / 5, 7 / 3]), atol=1e-6)


@pytest.mark.slow
def test_labels_in_columns_of_their_own(tmp_path):
  for name, words in (("train", "good fine"), ("dev", "bad good")):
    rows = [f"{w},{w in 'good fine':d},{w == 'bad':d}" for w in words.split()]
    text = "\n".join(["text,nice,mean", *rows * 2, "the film,0,0"])
    (tmp_path / f"{name}.csv").write_text(text)
  (tmp_path / "new.csv").write_text("text\ngood\n")
  flags = {"data_dir": tmp_path, "problem": "multi_label", "do_eval": True}
  flags |= {"label_columns": "nice,mean", "predict_file": tmp_path / "dev.csv"}
  training = {"train_batch_size": 4, "num_train_epochs": 1, "do_train": True}
  run(tmp_path, **flags, **training, do_predict=True)
  out = tmp_path / "out"

  # The names of the columns are the labels, in the order of the flag. No row
  # of the training file is mean.
  assert (out / "labels.txt").read_text() == "nice\nmean\n"
  labels = json.loads((out / "eval_metrics.json").read_text())["report"]
  support = {name: x["support"] for name, x in labels["labels"].items()}
  assert support == {"nice": 2, "mean": 2}
  with (out / "predictions.tsv").open() as file:
    rows = list(csv.DictReader(file, delimiter="\t"))
  assert [row["label"] for row in rows] == ["mean", "nice"] * 2 + [""]
  assert "probability_mean" in rows[0]

  # Texts alone, with the weights of the folder and without the flag.
  other = {"model": out, "output_dir": tmp_path / "new", "do_predict": True}
  run(tmp_path, predict_file=tmp_path / "new.csv", **other)
  text = (tmp_path / "new" / "predictions.tsv").read_text()
  assert text.startswith("id\ttext\tpredicted\tprobability_nice\t")


# The first of these trainings on several labels is fast, and
# tests/tasks/test_classification_results.py tunes thresholds.
@pytest.mark.slow
def test_several_labels_and_their_thresholds(tmp_path):
  def write(path, numbers):
    lines = ["text\tlabel"]
    for n in numbers:
      labels = ["good"] * (n % 2) + ["bad"] * (n % 3 == 0)
      words = [{"good": tiny.GOOD, "bad": tiny.BAD}[name][0] for name in labels]
      text = " ".join([tiny.make_text(n, tiny.OTHER), *words])
      lines.append(f"{text}\t{'|'.join(labels)}")
    path.write_text("\n".join(lines) + "\n")

  write(tmp_path / "train.tsv", range(400))
  write(tmp_path / "dev.tsv", range(400, 460))
  write(tmp_path / "test.tsv", range(460, 500))
  flags = {"config": {"num_hidden_layers": 2}, "data_dir": tmp_path}
  flags |= {"problem": "multi_label", "label_separator": "|"}
  flags["do_predict"] = True
  # A model so small learns both words from some seeds only.
  training = {"num_train_epochs": 16, "learning_rate": 5e-4, "seed": 4}
  run(tmp_path, **flags, **{**PERFECT, **training})
  out = tmp_path / "out"
  tuned = json.loads((out / "thresholds.json").read_text())
  assert list(tuned["thresholds"]) == ["bad", "good"]
  assert read_metrics(out / "eval_metrics.json")["micro_f1"] == 1.0
  assert read_metrics(out / "predict_metrics.json")["micro_f1"] > 0.95
  # They belong to the weights, wherever these predict.
  tuned["thresholds"] = {"bad": 1.5, "good": 0.5}
  (out / "thresholds.json").write_text(json.dumps(tuned))
  del flags["label_separator"]  # That of the training is followed.
  run(tmp_path, model=out, output_dir=tmp_path / "other", **flags)
  report = json.loads((tmp_path / "other" / "predict_metrics.json").read_text())
  labels = report["report"]["labels"]
  assert labels["bad"]["recall"] == 0.0 and labels["good"]["recall"] > 0.9


@pytest.mark.slow  # The next test trains one, too.
def test_regression(tmp_path):
  def write(path, numbers):
    lines = ["text,label"]
    for text, label in tiny.make_examples(numbers):
      # Far from 0: training begins at their mean.
      lines.append(f'"{text}",{204.5 if label == "pos" else 200.5}')
    path.write_text("\n".join(lines) + "\n")

  write(tmp_path / "train.csv", range(400))
  write(tmp_path / "dev.csv", range(400, 460))
  flags = {"config": {"num_hidden_layers": 2}, "problem": "regression"}
  result = run(tmp_path, data_dir=tmp_path, **flags, **PERFECT)
  metrics = read_metrics(tmp_path / "out" / "eval_metrics.json")
  assert metrics["pearson"] > 0.95
  assert metrics["mean_squared_error"] < 0.5
  assert "spearman" in result.stdout


@pytest.mark.slow
def test_pairs_are_ranked_by_query(tmp_path):
  def write(path, numbers):
    lines = ["text\ttext_pair\tlabel\tqid"]
    for n, (text, label) in zip(
      numbers, tiny.make_examples(numbers), strict=True
    ):
      lines.append(f"the film\t{text}\t{int(label == 'pos')}\t{n // 4}")
    path.write_text("\n".join(lines) + "\n")

  write(tmp_path / "train.tsv", range(400))
  write(tmp_path / "dev.tsv", range(400, 460))
  flags = {"data_dir": tmp_path, "problem": "regression"}
  flags |= {"text_pair_column": "text_pair", "query_column": "qid"}
  flags["config"] = {"num_hidden_layers": 2}
  result = run(tmp_path, best_metric="mrr_at_10", **flags, **PERFECT)
  metrics = read_metrics(tmp_path / "out" / "eval_metrics.json")
  assert metrics["mrr_at_10"] == metrics["ndcg_at_10"] == 1.0
  assert "ndcg_at_10" in result.stdout


def test_a_temperature_is_fitted_and_used(trained, tmp_path):
  # A fifth of the labels is wrong, and the model is sure of all of them.
  tiny.write_tsv(tmp_path / "dev.tsv", range(400, 450))
  lines = (tmp_path / "dev.tsv").read_text().splitlines()
  other = {"neg": "pos", "pos": "neg"}
  for number in range(5, 51, 5):
    label, text = lines[number].split("\t")
    lines[number] = f"{other[label]}\t{text}"
  (tmp_path / "dev.tsv").write_text("\n".join(lines) + "\n")
  out = copy_trained(trained, tmp_path)
  before = tiny.checkpoint_bytes(out, 300)
  flags = {"eval_file": tmp_path / "dev.tsv", "do_eval": True}
  run(trained[0], output_dir=out, calibrate=True, **flags)
  fitted = tiny.read_results(out)
  assert tiny.checkpoint_bytes(out, 300) == before
  assert fitted["eval_accuracy"] == 0.8
  assert fitted["eval_temperature"] > 1.5
  assert 0.15 < fitted["eval_untuned_calibration_error"] < 0.21
  assert fitted["eval_calibration_error"] < 0.02

  # It is of answers as exports give them: others leave it.
  kept = (out / "temperature.json").read_bytes()
  run(trained[0], output_dir=out, calibrate=True, max_seq_length=5, **flags)
  assert (out / "temperature.json").read_bytes() == kept

  # It belongs to the weights: evaluations without the flag have it, too, and
  # predictions anywhere.
  other = {"model": out, "output_dir": tmp_path / "other", "do_predict": True}
  flags["predict_file"] = trained[0] / "test.tsv"
  said = run(trained[0], **flags, **other).stdout
  again = tiny.read_results(tmp_path / "other")
  assert again == fitted | {"global_step": again["global_step"]}
  temperature = fitted["eval_temperature"]
  assert f"probabilities with the temperature {temperature:g}" in said
  found = np.loadtxt(tmp_path / "other" / "test_results.tsv")
  plain = np.loadtxt(trained[0] / "out" / "test_results.tsv")
  odds = np.log(plain[:, 0] / plain[:, 1]) / temperature
  np.testing.assert_allclose(found[:, 0], 1 / (1 + np.exp(-odds)), rtol=1e-3)


def test_long_texts_are_split_into_windows(trained, tmp_path):
  # The word that tells is beyond the first window of every text.
  lines = ["text\tlabel"]
  for n in range(200):
    word, label = ("good", "pos") if n % 2 else ("bad", "neg")
    lines.append(f"{' '.join(tiny.OTHER * 3)} {word}\t{label}")
  for name in ("train.tsv", "dev.tsv"):
    (tmp_path / name).write_text("\n".join(lines) + "\n")
  flags = {"data_dir": tmp_path, "do_train": True, "do_eval": True}
  flags |= {"doc_stride": 8, "window_pooling": "max", "num_train_epochs": 2}
  # Two windows of three tell nothing of the label.
  flags |= {"init_checkpoint": trained[0] / "out", "learning_rate": 2e-4}
  output = run(tmp_path, **flags).stdout
  assert "200 examples in 600 windows" in output
  assert "0 truncated" in output
  results = tiny.read_results(tmp_path / "out")
  assert results["eval_accuracy"] == 1.0


# tests/tasks/ reads its files, and scores groups of examples.
@pytest.mark.slow
def test_xnli_is_scored_by_language(tmp_path):
  labels = ("contradiction", "entailment", "neutral")
  (tmp_path / "multinli").mkdir()
  for language in ("en", "zh"):
    rows = ["premise\thypo\tlabel"]
    rows += [f"good film\tbad {n}\t{labels[n % 3]}" for n in range(9)]
    rows.append("the film\tthe plot\tcontradictory")
    path = tmp_path / "multinli" / f"multinli.train.{language}.tsv"
    path.write_text("\n".join(rows) + "\n")
  for name in ("dev", "test"):
    rows = ["language\tgold_label\t2\t3\t4\t5\tsentence1\tsentence2"]
    for n in range(9):
      language = ("en", "zh", "sw")[n // 3]
      rows.append(f"{language}\t{labels[n % 3]}\t\t\t\t\tgood film\tbad")
    (tmp_path / f"xnli.{name}.tsv").write_text("\n".join(rows) + "\n")
  flags = {**PERFECT, "do_predict": True, "data_dir": tmp_path}
  run(tmp_path, task_name="xnli", xnli_language="zh,en", **flags)
  out = tmp_path / "out"
  assert (out / "labels.txt").read_text().split() == list(labels)
  for name in ("eval", "predict"):
    metrics = read_metrics(out / f"{name}_metrics.json")
    assert metrics["accuracy_en"] == pytest.approx(1 / 3)
    assert metrics["accuracy_zh"] == pytest.approx(1 / 3)
    assert "accuracy_sw" not in metrics
  # The original's scores and no others are in the original's file.
  results = tiny.read_results(out)
  assert " ".join(results) == "eval_accuracy eval_loss global_step loss"
  assert len((out / "predictions.tsv").read_text().splitlines()) == 7


@pytest.mark.slow  # The windows, above, count them, too.
def test_texts_that_are_cut_are_counted(tmp_path):
  tiny.write_tsv(tmp_path / "train.tsv", range(20))
  flags = {"data_dir": tmp_path, "max_seq_length": 6, "do_train": True}
  output = run(tmp_path, **flags).stdout
  cut = sum(len(text.split()) > 4 for text, _ in tiny.make_examples(range(20)))
  assert f"{cut} truncated to --max_seq_length=6" in output


def read_checkpoint(folder, step):
  prefix = str(folder / f"model.ckpt-{step}")
  return dict(checkpoints.read(prefix))


@pytest.mark.slow  # They predict the same: see the test above.
def test_padded_and_trimmed_batches_train_alike(tmp_path):
  tiny.write_tsv(tmp_path / "train.tsv", range(80))
  flags = {"data_dir": tmp_path, "do_train": True, "num_train_epochs": 1}
  for padded in (True, False):
    out = tmp_path / f"padded-{padded}"
    run(tmp_path, output_dir=out, pad_to_max_length=padded, **flags)
  padded, trimmed = (
    read_checkpoint(tmp_path / f"padded-{padded}", 10)
    for padded in (True, False)
  )
  same_training.assert_weights_close(padded, trimmed)


# tests/test_optimization.py has both, in a compiled loop, too.
@pytest.mark.slow
@pytest.mark.parametrize("freeze", [1, "gradual"])
def test_frozen_layers_stay_as_they_are(tmp_path, freeze):
  tiny.write_tsv(tmp_path / "train.tsv", range(80))
  flags = {"data_dir": tmp_path, "do_train": True, "num_train_epochs": 1}
  flags |= {"save_checkpoints_steps": 1, "keep_checkpoint_max": 0}
  flags |= {"freeze_layers": freeze, "layerwise_lr_decay": 0.5}
  run(tmp_path, {"num_hidden_layers": 2}, **flags)
  first = read_checkpoint(tmp_path / "out", 2)
  last = read_checkpoint(tmp_path / "out", 10)
  changed = {
    name.split("/")[2] if name.startswith("bert/encoder") else name
    for name, value in first.items()
    if not re.search("adam_|global_step", name)
    and not np.array_equal(value, last[name])
  }
  layers = {name for name in changed if name.startswith("layer_")}
  assert layers == ({"layer_1"} if freeze == 1 else set())
  assert "output_weights" in changed
  assert not any(name.startswith("bert/embeddings") for name in changed)


# tests/test_run_multitask.py trains with it, tests/test_optimization.py has the
# formula.
@pytest.mark.slow
def test_correcting_the_bias_trains_otherwise(tmp_path):
  tiny.write_tsv(tmp_path / "train.tsv", range(80))
  flags = {"data_dir": tmp_path, "do_train": True, "num_train_epochs": 1}
  run(tmp_path, output_dir=tmp_path / "plain", **flags)
  flags["output_dir"] = tmp_path / "corrected"
  run(tmp_path, bias_correction=True, **flags)
  moved = {}
  for name in ("plain", "corrected"):
    trained = read_checkpoint(tmp_path / name, 10)["bert/pooler/dense/bias"]
    moved[name] = np.abs(trained).max()  # It starts at 0.
  assert moved["corrected"] < 0.7 * moved["plain"]


@pytest.mark.skipif(not GOLDEN.is_dir(), reason=f"no golden cases in {GOLDEN}")
@pytest.mark.parametrize(
  ("task", "model"), [("MRPC", "mrpc"), ("CoLA", "mrpc"), ("MNLI", "mnli")]
)
def test_the_original_command_line_gives_the_original_files(
  tmp_path, task, model
):
  out = shutil.copytree(GOLDEN / model, tmp_path / "out")
  flags = {"task_name": task, "data_dir": GOLDEN / "inputs" / task}
  flags |= {"vocab_file": paths.SHARED / "data/vocab/uncased_vocab.txt"}
  flags |= {"bert_config_file": out / "bert_config.json"}
  flags |= {"do_lower_case": "True", "max_seq_length": 128}
  run(tmp_path, do_eval="true", do_predict="true", **flags)
  expected = GOLDEN / "expected" / task
  results = tiny.read_results(out)
  wanted = tiny.read_results(expected)
  assert list(results) == list(wanted)
  np.testing.assert_allclose(
    list(results.values()), list(wanted.values()), rtol=1e-4
  )
  np.testing.assert_allclose(
    np.loadtxt(out / "test_results.tsv"),
    np.loadtxt(expected / "test_results.tsv"),
    rtol=1e-4,
  )


@pytest.mark.parametrize("problem", ["single_label", "multi_label"])
def test_only_the_ratios_of_class_weights_count(problem):
  """Two examples, whose labels have the weights 1 and 3, or 2 and 6."""
  logits = np.float32([[2.0, 0.0], [1.0, -1.0]])
  labels = [[1, 0], [1, 1]] if problem == "multi_label" else [[0], [1]]
  features = {"label_ids": np.array(labels), "is_real_example": np.ones(2)}

  def loss(*weights):
    losses = run_classifier.loss(logits, features, problem, np.float32(weights))
    total, weight = losses["classification_loss"]
    return float(total / weight)

  def softplus(x):
    return np.log1p(np.exp(x))

  # -log(sigmoid(x)) is softplus(-x); of two logits, x is their difference.
  if problem == "multi_label":
    rows = [softplus(-2) + 3 * softplus(0), softplus(-1) + 3 * softplus(1)]
    expected = sum(rows) / (4 * 2)
  else:
    expected = (softplus(-2) + 3 * softplus(2)) / 4
  assert loss(1, 3) == pytest.approx(expected)
  assert loss(2, 6) == pytest.approx(expected)


@pytest.mark.parametrize(
  ("flags", "lines", "message"),
  [
    ({"problem": "regression"}, ["good\t1", "bad\t1"], "the same label, so"),
    (
      {"query_column": "text", "best_metric": "mrr_at_10"},
      ["good\t0", "bad\t0"],
      "no example has the label 1, so --best_metric=mrr_at_10 is the same",
    ),
  ],
)
def test_an_evaluation_that_cannot_choose_is_refused(
  flags, lines, message, tmp_path
):
  rows = ["good\t1", "bad\t0", "fine\t1", "poor\t0"]
  (tmp_path / "train.tsv").write_text("\n".join(["text\tlabel", *rows, ""]))
  (tmp_path / "val.tsv").write_text("\n".join(["text\tlabel", *lines, ""]))
  flags = {"data_dir": tmp_path, "do_train": True, **flags}
  flags |= {"eval_every_steps": 1, "train_batch_size": 2}
  result = tiny.run("run_classifier", tmp_path, **flags)
  program_flags.assert_refused(result, message)
