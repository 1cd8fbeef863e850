"""run_multitask.py as its user meets it."""

import csv
import json
import os
import shlex
import shutil
import types

import numpy as np
import pytest

import bert
from bert import run_multitask
from bert.contrib import multitask_training, task_files, task_sampling
from bert.weights import checkpoints
import paths
import program_flags
import programs
import same_training
import tiny


@pytest.fixture(name="tasks", scope="module")
def write_tasks(tmp_path_factory):
  folder = tmp_path_factory.mktemp("tasks")
  tiny.write_model(folder, program="run_multitask")
  return folder, tiny.write_tasks(folder)


def succeed(result):
  assert result.returncode == 0, result.stderr
  return result.stdout + result.stderr


def export_as_proposed(output):
  """Runs the command that a summary ends with; returns whether there is one."""
  [*lines] = (line for line in output.splitlines() if "next: python" in line)
  for line in lines:
    _, program, *arguments = shlex.split(line.partition("next: ")[2])
    [python, path] = program_flags.command(program.removesuffix(".py"))
    program_flags.succeed([python, path, *arguments])
  return bool(lines)


def weights_in(folder):
  """Returns the best or newest weights, without the state of training."""
  best = checkpoints.latest_checkpoint(str(folder / "best"))
  prefix = best or checkpoints.latest_checkpoint(str(folder))
  return {
    name: value
    for name, value in checkpoints.read(prefix)
    if not name.endswith(("/adam_m", "/adam_v", "global_step"))
  }


def assert_same_bits(ours, theirs):
  assert ours.keys() == theirs.keys()
  for name in ours:
    np.testing.assert_array_equal(ours[name], theirs[name], err_msg=name)


EPOCH, EVAL = {"num_train_epochs": 1}, {"do_eval": True}
STEPS = {"num_train_steps": 6}


@pytest.mark.slow
@pytest.mark.parametrize(
  ("name", "program", "asked", "alone", "together"),
  [
    ("good", "run_classifier", EVAL, EPOCH | {"eval_every_steps": 4}, {}),
    ("colors", "run_squad", {"do_predict": True}, EPOCH, {}),
    ("names", "run_tagging", EVAL, EPOCH, {}),
    ("choice", "run_multiple_choice", EVAL, EPOCH, {}),
    (
      "words",
      "run_pretraining",
      {},
      STEPS | {"num_warmup_steps": 2},
      STEPS | {"warmup_proportion": 0.334},  # 2 of 6 steps.
    ),
  ],
)
def test_one_task_is_what_its_own_program_does(
  tasks, name, program, asked, alone, together
):
  folder, entries = tasks
  own = {k: v for k, v in entries[name].items() if k not in ("name", "kind")}
  own |= asked
  given = tiny.tasks_flags(folder, f"{name}-own", **own, **alone)
  succeed(program_flags.run_here(program_flags.command(program, **given)))
  together = {"do_eval": bool(asked), **(together or alone)}
  output = succeed(tiny.run_tasks(folder, [entries[name]], name, **together))
  assert export_as_proposed(output) == (program != "run_pretraining")
  ours, theirs = folder / name / "tasks" / name, folder / f"{name}-own"
  assert_same_bits(weights_in(ours), weights_in(theirs))
  for flag in asked:
    path = "predictions.json" if flag == "do_predict" else "eval_results.txt"
    assert (ours / path).read_text() == (theirs / path).read_text()


# One of them is drawn, then another takes over.
HANDOVER = {"good": [[0, 1], [6, 0]], "names": [[5, 0], [6, 2]]}


@pytest.fixture(name="saved", scope="module")
def hand_over(tasks):
  """Reads the variables after a step of a run that corrects the bias."""
  folder, entries = tasks
  pair = [{**entries[name], "weight": w} for name, w in HANDOVER.items()]
  others = {"save_checkpoints_steps": 1, "keep_checkpoint_max": 0}
  others |= {"num_train_steps": 12, "bias_correction": True}
  succeed(tiny.run_tasks(folder, pair, "handover", **others))
  return lambda step: dict(
    checkpoints.read(str(folder / f"handover/model.ckpt-{step}"))
  )


@pytest.mark.slow
def test_an_update_leaves_the_heads_of_other_tasks_alone(saved):
  early, late = saved(6), saved(12)
  for suffix in ("", "/adam_m", "/adam_v"):
    good = f"tasks/good/output_weights{suffix}"
    names = f"tasks/names/output_weights{suffix}"
    shared = f"bert/encoder/layer_0/output/dense/kernel{suffix}"
    np.testing.assert_array_equal(early[good], late[good])
    assert (early[names] != late[names]).any()
    assert (early[shared] != late[shared]).any()
  # A tagger does not use the pooler.
  pooler = "bert/pooler/dense/kernel"
  np.testing.assert_array_equal(early[pooler], late[pooler])


@pytest.mark.slow
def test_the_first_update_of_a_head_is_corrected_as_its_first(saved):
  """It then changes a bias by the rate, whatever the gradient is."""
  early, late = saved(6), saved(7)
  change = np.abs(
    late["tasks/names/output_bias"] - early["tasks/names/output_bias"]
  )
  np.testing.assert_allclose(change, 2e-3 * (1 - 6 / 12), rtol=1e-3)


# A run of all tasks: 12 steps, each second one saved, each sixth evaluated.
ALL = {
  "num_train_steps": 12,
  "save_checkpoints_steps": 2,
  "keep_checkpoint_max": 0,
  "iterations_per_loop": 1,
  "do_eval": True,
  "do_predict": False,
  "eval_every_steps": 6,
  "best_metric": "good/accuracy",
  "seed": 14,  # Which draws each of them.
}


@pytest.fixture(name="whole", scope="module")
def train_all(tasks):
  """A run of all tasks, every second step of which was saved."""
  folder, entries = tasks
  entries = list(entries.values())
  return programs.train(tiny.tasks_command(folder, entries, "whole", **ALL))


def test_losses_scores_and_reports_are_by_task(whole, tasks):
  folder, _ = tasks
  for name in ("good", "names", "choice", "words"):
    assert f"task {name}: 50 examples, rate 0." in whole.output
  assert "  good/loss " in whole.output
  assert "  mean " in whole.output
  assert "; best: eval_good/accuracy " in whole.output
  report = folder / "whole" / "report.html"
  text = report.read_text()
  assert "<title>good/loss: " in text
  for name in ("good", "names", "choice", "words"):
    path = f"tasks/{name}/report.html"
    assert f'<a href="{path}">{name}</a>' in text
    assert "<h2>Settings</h2>" in (report.parent / path).read_text()
  text = (report.parent / "tasks/choice/report.html").read_text()
  assert "<h2>Evaluation</h2>" in text and "<h3>Confusion matrix</h3>" in text


@pytest.mark.slow
@pytest.mark.parametrize("step", [0, 2, 4, 6, 8, 10])
def test_runs_resumed_anywhere_end_with_the_same_bytes(whole, tmp_path, step):
  """Of all tasks, whose folders a killed run has not written yet."""
  programs.assert_resumes(whole, tmp_path / "killed", step, lacking="tasks")


def test_an_evaluation_needs_no_flags_of_the_training(tasks, whole):
  folder, entries = tasks
  out = shutil.copytree(folder / "whole", folder / "evaluated")
  command = tiny.tasks_command(
    folder,
    list(entries.values()),
    out.name,
    do_train=False,
    do_eval=True,
    do_predict=False,
    learning_rate=1e-6,
  )
  before = paths.contents(out / "tasks")
  succeed(program_flags.run_here(command))
  changed = paths.differences(paths.contents(out / "tasks"), before)
  assert not [name for name in changed if "training.json" in name]
  scores = sorted((folder / "whole" / "tasks").glob("*/eval_results.txt"))
  assert scores
  for path in scores:
    again = out / "tasks" / path.parent.name / path.name
    assert again.read_text() == path.read_text()


def test_a_training_anew_does_not_begin_with_trained_tasks(tasks, whole):
  folder, entries = tasks
  out = shutil.copytree(folder / "whole", folder / "lost")
  for path in [*out.glob("model.ckpt-*"), out / "checkpoint"]:
    path.unlink()
  command = tiny.tasks_command(folder, list(entries.values()), out.name, **ALL)
  message = "would begin anew, but with the weights in "
  program_flags.assert_refused(program_flags.run_here(command), message)


def test_a_task_has_the_defaults_of_its_own_program(tmp_path):
  entry = {
    "name": "qa",
    "kind": "squad",
    "train_file": f"{tmp_path}/train.json",
  }
  (tmp_path / "tasks.json").write_text(json.dumps([entry]))
  (tmp_path / "train.json").write_text("{}")

  def find_length(**flags):
    flags = {
      "tasks_file": tmp_path / "tasks.json",
      "output_dir": tmp_path,
      "bert_config_file": "configs/bert_tiny.json",
      "vocab_file": "models/mini/vocab.txt",
      "do_train": True,
      **flags,
    }
    settings = run_multitask.MultitaskSettings.parse(
      {name: str(value) for name, value in flags.items()}
    )
    [entry] = task_files.read(str(settings.tasks_file))
    prepared = task_files.prepare(settings, [entry])
    return prepared["qa"].settings.max_seq_length

  assert find_length() == 384
  assert find_length(max_seq_length=128) == 128


def test_a_tasks_folder_is_one_of_its_own_program(tasks, whole):
  folder, entries = tasks
  out = shutil.copytree(folder / "whole" / "tasks" / "good", folder / "alone")
  given = tiny.tasks_flags(folder, out.name, task_name="file")
  given |= {"do_train": False, "do_predict": True}
  given["predict_file"] = entries["good"]["eval_file"]
  command = program_flags.command("run_classifier", **given)
  succeed(program_flags.run_here(command))
  with open(out / "predictions.tsv", encoding="utf-8") as file:
    rows = list(csv.DictReader(file, delimiter="\t"))
  answers = bert.load(str(out))([row["text"] for row in rows])
  predicted = [row["predicted"] for row in rows]
  assert [answer["label"] for answer in answers] == predicted


@pytest.mark.slow
def test_a_training_of_an_earlier_version_with_an_idle_task_goes_on(
  tasks, monkeypatch
):
  folder, entries = tasks
  pair = [entries["names"], {**entries["good"], "rate": 1e-6}]
  flags = {"num_train_steps": 3, "do_eval": True}
  with monkeypatch.context() as patched:
    patched.setattr(task_sampling, "check_draws", lambda *arguments: None)
    succeed(tiny.run_tasks(folder, pair, "idle", **flags))
  output = succeed(tiny.run_tasks(folder, pair, "idle", **flags))
  assert "step 3 of 3: nothing to do" in output


@pytest.mark.slow
def test_a_threshold_that_cannot_be_tuned_ends_all_tasks_at_once(tasks):
  folder, entries = tasks
  auto = {"version_2_with_negative": True, "null_score_diff_threshold": "auto"}
  pair = [entries["names"], {**entries["colors"], **auto}]
  succeed(tiny.run_tasks(folder, pair, "qa", do_eval=True, num_train_steps=8))
  # A further training has changed the weights, and no answers are known.
  path = folder / "qa/tasks/colors/null_score_diff_threshold.json"
  content = json.loads(path.read_text()) | {"weights": "x"}
  path.write_text(json.dumps(content))
  question = {"id": 1, "question": "what color ?", "context": "a red house"}
  (folder / "own.jsonl").write_text(json.dumps(question))
  pair[1]["predict_file"] = str(folder / "own.jsonl")
  names = folder / "qa/tasks/names/eval_results.txt"
  names.unlink()
  evaluation = {"do_train": False, "do_eval": True}
  result = tiny.run_tasks(folder, pair, "qa", **evaluation)
  note, error = program_flags.error_lines(result.stderr)
  assert note == f"note: {path} was tuned for other weights and is not used"
  assert "=auto: no threshold was tuned for these weights, and not all" in error
  assert result.returncode == 1 and not names.exists()


def as_runs(**metrics):
  """Stands for the runs of tasks, which have a metric."""
  return {
    name: types.SimpleNamespace(data=types.SimpleNamespace(metric=metric))
    for name, metric in metrics.items()
  }


def test_percentages_count_as_fractions_in_the_mean():
  tasks = {
    name: types.SimpleNamespace(
      evaluate=lambda run, f1=f1: {"f1": f1}, max_score=most
    )
    for name, f1, most in (("answers", 80.0, 100.0), ("names", 0.5, 1.0))
  }
  runs = as_runs(answers="f1", names="f1")
  scores = {"answers/f1": 80.0, "names/f1": 0.5, "mean": 0.65}
  assert multitask_training.evaluate(tasks, runs) == scores


def test_a_mean_of_scores_that_are_better_if_lower_is_refused():
  with pytest.raises(ValueError, match="task 'lm': best_metric is perplexity"):
    multitask_training.choose_metric(None, as_runs(lm="perplexity"))


@pytest.mark.slow  # Half a minute.
def test_two_replicas_train_what_one_does(tasks):
  folder, entries = tasks
  # Their heads have no dropout, whose masks are others on two devices.
  pair = [entries["colors"], entries["words"]]
  others = {"num_train_steps": 6, "train_batch_size": 8}
  succeed(tiny.run_tasks(folder, pair, "one", **others))
  succeed(
    tiny.run_tasks(folder, pair, "two", distribution="mirrored", **others)
  )
  one, two = weights_in(folder / "one"), weights_in(folder / "two")
  same_training.assert_weights_close(two, one)


@pytest.fixture(name="words")
def write_causal_task(tmp_path):
  """Writes a causal model and texts; returns the entry of a task with them."""
  config = {"num_hidden_layers": 2, "causal_attention": True}
  tiny.write_model(tmp_path, config, "run_multitask")
  text = tmp_path / "text.txt"
  text.write_text("the film was good and fine\n" * 40)
  files = {"train_file": str(text), "eval_file": str(text)}
  return {"name": "gpt", "kind": "causal_lm", "weight": 0.5, **files}


@pytest.mark.slow
def test_a_causal_model_learns_a_task_and_its_texts(tasks, words, tmp_path):
  _, entries = tasks
  others = {"num_train_steps": 40, "do_eval": True}
  output = succeed(tiny.run_tasks(tmp_path, [entries["good"], words], **others))
  # 40 of the 90 examples of both tasks; the task's weight has no part in it.
  assert "task gpt: 40 examples, rate 0.4444" in output
  assert output.count("next: python export_saved_model.py") == 1  # For "good".
  scores = tiny.read_results(tmp_path / "out/tasks/gpt")
  assert scores["eval_perplexity"] < 10  # 27 words, at first.


@pytest.mark.slow
def test_a_causal_task_leaves_alone_what_it_does_not_use(words, tmp_path):
  steps = {"num_train_steps": 6, "save_checkpoints_steps": 3}
  steps["keep_checkpoint_max"] = 0
  output = succeed(tiny.run_tasks(tmp_path, [words], **steps))
  assert "export_saved_model.py" not in output  # Which takes no such model.
  early, late = (
    dict(checkpoints.read(str(tmp_path / f"out/model.ckpt-{step}")))
    for step in (3, 6)
  )
  weights = [name for name in late if "adam" not in name and "kernel" in name]
  pooler = "bert/pooler/dense/kernel"
  changed = {name for name in weights if (early[name] != late[name]).any()}
  assert pooler in weights and changed == set(weights) - {pooler}
  [next_sentence] = (
    n for n in late if n.endswith("relationship/output_weights")
  )
  np.testing.assert_array_equal(early[next_sentence], late[next_sentence])


@pytest.mark.slow
def test_devices_share_the_batches_of_tasks_not_of_the_run(tasks):
  folder, entries = tasks
  flags = {"distribution": "mirrored", "train_batch_size": 3}
  entry = {**entries["good"], "train_batch_size": 4}
  succeed(tiny.run_tasks(folder, [entry], "even", num_train_steps=1, **flags))
  result = tiny.run_tasks(folder, [entries["good"]], "odd", **flags)
  program_flags.assert_refused(result, "--train_batch_size=3 cannot be split")
  assert not (folder / "odd").exists()


def test_a_later_task_is_checked_before_anything_is_written(tasks):
  folder, entries = tasks
  wrong = {**entries["colors"], "best_metric": "bleu"}
  result = tiny.run_tasks(folder, [entries["good"], wrong], "early")
  message = "task 'colors': --best_metric=bleu: expected one of exact_match, f1"
  program_flags.assert_refused(result, message)
  assert not (folder / "early").exists()


def test_a_task_may_repeat_the_vocabulary_and_the_casing(tasks):
  folder, entries = tasks
  copy = folder / "copy.txt"
  shutil.copyfile(folder / "vocab.txt", copy)
  same = {"vocab_file": str(copy), "do_lower_case": True}
  entry = {**entries["good"], **same}
  succeed(tiny.run_tasks(folder, [entry], "same", num_train_steps=1))
  copy.write_text("[UNK]\n")
  result = tiny.run_tasks(folder, [entry], "other")
  message = "task 'good': vocab_file is the same for all tasks: give the flag"
  program_flags.assert_refused(result, message)


@pytest.mark.parametrize(
  ("fields", "flags", "message"),
  [
    # Its head would stay random, and be scored and offered as a trained one.
    (
      {"rate": 1e-6},
      {"num_train_steps": 3},
      "task 'good' would make none of the 3 updates, it is drawn with a rate",
    ),
    (
      {"weight": [[9, 0], [10, 1]]},
      {"num_train_steps": 3},
      "task 'good' would make none of the 3 updates, its weight is 0",
    ),
    (
      {"best_metric": "loss"},
      {"best_metric": "good/accuracy", "eval_every_steps": 2},
      "task 'good': best_metric is loss, but --best_metric=good/accuracy",
    ),
    ({"kind": "causal_lm"}, {}, "task 'good': causal_lm needs a config with c"),
    (
      {"train_batch_size": 5},
      {"gradient_accumulation_steps": 3},
      "task 'good': --train_batch_size=5 cannot be split evenly over 1 ",
    ),
  ],
)
def test_flags_that_contradict_each_other(tasks, fields, flags, message):
  folder, entries = tasks
  entry = {**entries["good"], **fields}
  if fields.get("kind"):
    del entry["task_name"]
  result = tiny.run_tasks(folder, [entry, entries["names"]], "wrong", **flags)
  program_flags.assert_refused(result, message)


def test_a_masked_language_model_takes_all_its_records(tasks):
  folder, entries = tasks
  few = {"max_train_examples": 9}
  result = tiny.run_tasks(folder, [entries["words"]], "wrong", **few)
  message = "task 'words': max_train_examples: a masked_lm uses all its records"
  program_flags.assert_refused(result, message)


@pytest.mark.parametrize(
  ("trains", "message"),
  [(True, "--calibrate=true needs --do_eval"), (False, "pass --do_train=true")],
)
def test_the_file_of_a_training_serves_predictions(tasks, trains, message):
  folder, entries = tasks
  entry = {**entries["good"], "calibrate": True}
  entry["predict_file"] = entry["eval_file"]
  flags = {"do_train": trains, "do_eval": False, "do_predict": not trains}
  result = tiny.run_tasks(folder, [entry], "calibrated", **flags)
  program_flags.assert_refused(result, message)


def test_an_evaluation_takes_no_lengths_from_its_folder(tasks, whole):
  """As docs/differences.md says; the default of 128 is too long for it."""
  folder, entries = tasks
  entries = list(entries.values())
  command = tiny.tasks_command(folder, entries, "whole", **ALL, do_train=False)
  command = [part for part in command if "--max_seq_length" not in part]
  result = program_flags.run_here(command)
  program_flags.assert_refused(result, "--max_seq_length=128")


def test_a_run_goes_on_with_the_same_tasks_only(tasks, whole):
  folder, entries = tasks
  others = [dict(entry) for entry in entries.values()]
  others[0]["rate"] = 0.5
  kinds = ("train_file", "eval_file")
  names = [os.path.basename(others[1][kind]) for kind in kinds]
  others[1]["eval_file"] = others[1]["train_file"]
  # A killed run has written no folder of a task.
  ignored = shutil.ignore_patterns("tasks")
  killed = folder / "killed"
  shutil.copytree(folder / "whole", killed, ignore=ignored, dirs_exist_ok=True)
  flags = {**ALL, "num_train_steps": 14, "train_batch_size": 4}
  result = tiny.run_tasks(folder, others, "killed", **flags)
  for message in (
    "num_train_steps=14 (was 12)",  # Other programs may train longer.
    "good.rate=0.5 (was none)",
    "good.train_batch_size=4 (was 8)",
    f"names: the data of {names[0]} (was {names[1]})",
  ):
    program_flags.assert_refused(result, message)
  flags = {**ALL, "eval_every_steps": 0}
  result = tiny.run_tasks(folder, list(entries.values()), "whole", **flags)
  program_flags.assert_refused(result, "whole: its best weights, of step")
