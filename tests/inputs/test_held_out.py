"""--eval_share: one file is enough to train and to evaluate on."""

import functools
import json
import os

import pytest

from bert import run_classifier, run_multiple_choice, run_squad, run_tagging
from bert.cli import classifier_tasks, model_folder
from bert.inputs import held_out
import program_flags
import tiny


def test_each_label_gives_its_share():
  labels = ["ham", "spam", "ham", "ham"] * 25
  drawn = held_out.draw(labels, 0.2, seed=1)
  assert drawn == sorted(set(drawn)) and len(drawn) == 20
  assert sum(labels[i] == "spam" for i in drawn) == 5
  assert drawn == held_out.draw(labels, 0.2, seed=1)
  assert drawn != held_out.draw(labels, 0.2, seed=2)


def find_parts(program, folder, **flags):
  """Returns what a program holds out of a file, and what it trains on."""
  kinds = {
    run_classifier: run_classifier.ClassifierSettings,
    run_squad: run_squad.SquadSettings,
    run_tagging: run_tagging.TaggingSettings,
    run_multiple_choice: run_multiple_choice.ChoiceSettings,
  }
  name = program.__name__.removeprefix("bert.")
  tiny.write_model(folder, program=name)
  path = tiny.write_split(name, folder, "train")
  flags = {"train_file": path, "do_train": True, "eval_share": 0.2, **flags}
  if program is run_classifier:
    flags["task_name"] = "file"
  if program is run_squad:
    flags["max_query_length"] = 4
  flags = tiny.flags_for(folder, **flags)
  settings = kinds[program].parse(
    {key: str(value) for key, value in flags.items()}
  )
  if program is run_squad:
    program.check(settings, model_folder.read_config(settings))
    return program.open_data(settings, program.plan_threshold(settings))
  read = {
    run_classifier: classifier_tasks.read,
    run_tagging: run_tagging.inspect_files,
    run_multiple_choice: run_multiple_choice.find_files,
  }[program]
  return program.open_data(settings, read(settings))


@pytest.mark.parametrize(
  ("program", "count"),
  [
    (run_classifier, 10),
    (run_squad, 10),
    (run_tagging, 10),
    (run_multiple_choice, 9),
  ],
)
def test_every_task_evaluates_on_a_part_of_its_one_file(
  tmp_path, program, count
):
  data = find_parts(program, tmp_path)
  trained, [dev] = [e.location for e in data.train.examples()], data.dev
  held = [e.location for e in dev.examples()]
  # A fifth of 50 are 10, but examples with the same text are in one part: of
  # the choices, which have the fewest words, that makes 9.
  assert len(held) == count and len(held) + len(trained) == 50
  assert not set(held) & set(trained)
  assert data.train.key != dev.key
  again = find_parts(program, tmp_path)
  assert again.train.key == data.train.key and again.dev[0].key == dev.key
  other = find_parts(program, tmp_path, seed=7)
  assert [e.location for e in other.dev[0].examples()] != held
  assert other.train.key != data.train.key


def test_labels_have_their_share_and_texts_are_in_one_part(tmp_path):
  tiny.write_model(tmp_path)
  rows = ["text\tlabel"]
  rows += [f"good film {n}\tpos" for n in range(40)]
  rows += [f"bad film {n}\tneg" for n in range(10)] * 2
  (tmp_path / "train.tsv").write_text("\n".join(rows) + "\n")
  settings = run_classifier.ClassifierSettings.parse(
    {
      **{k: str(v) for k, v in tiny.flags_for(tmp_path).items()},
      "task_name": "file",
      "data_dir": str(tmp_path),
      "do_eval": "true",
      "eval_share": "0.2",
    }
  )
  data = run_classifier.open_data(settings, classifier_tasks.read(settings))
  assert data.train is None  # It only evaluates.
  held = list(data.dev[0].examples())
  assert [e.label for e in held].count("pos") == 8
  texts = [e.text_a for e in held if e.label == "neg"]
  assert len(texts) == 4 and len(set(texts)) == 2


def test_documents_stay_together(tmp_path):
  data = find_parts(run_tagging, tmp_path)
  documents = {s.document for s in data.dev[0].examples()}
  assert len(documents) == 1
  assert not documents & {s.document for s in data.train.examples()}


def test_questions_are_predicted_and_scored_on_the_part(tmp_path):
  data = find_parts(run_squad, tmp_path, do_predict=True, eval_every_steps=2)
  assert data.dev == data.test and data.test[0].needs_answers
  assert not data.test[0].is_training
  path = tiny.write_split("run_squad", tmp_path, "dev")
  flags = {"do_predict": True, "predict_file": path}
  data = find_parts(run_squad, tmp_path, **flags)
  assert data.test[0].numbers is None and data.dev[0].kind == "dev"


def test_a_run_writes_what_it_held_out_and_scores_it(tmp_path):
  path = tiny.write_split("run_classifier", tmp_path, "train")
  flags = {"train_file": path, "eval_share": 0.2, "do_eval": True}
  flags |= {"num_train_epochs": 1, "do_train": True}
  result = tiny.run("run_classifier", tmp_path, **flags)
  assert result.returncode == 0, result.stderr
  written = tmp_path / "out" / "held_out.jsonl"
  assert f"wrote {written}: 10 examples to evaluate on" in result.stdout
  rows = [json.loads(line) for line in written.read_text().splitlines()]
  assert len(rows) == 10 and rows[0]["location"].startswith(f"{path}:")
  assert {row["label"] for row in rows} == {"pos", "neg"}
  assert "eval (held-out examples): 10 examples" in result.stdout
  assert "train (train): 40 examples" in result.stdout
  scores = tiny.read_results(tmp_path / "out")
  # A later evaluation is on the same examples, or is refused.
  flags["do_train"] = False
  result = tiny.run("run_classifier", tmp_path, **flags)
  assert result.returncode == 0 and "note:" not in result.stderr
  assert tiny.read_results(tmp_path / "out") == scores
  # A prediction in between does not make it forget which these are.
  predicted = {"predict_file": path, "do_predict": True}
  result = tiny.run("run_classifier", tmp_path, **predicted)
  assert result.returncode == 0, result.stderr
  result = tiny.run("run_classifier", tmp_path, **flags, seed=7)
  message = "--seed=7 (was 12345)"
  program_flags.assert_refused(result, message)
  # With another line, others would be drawn, that were trained on.
  with open(path, "a") as file:
    file.write("a film\tpos\n")
  result = tiny.run("run_classifier", tmp_path, **flags)
  message = f"the data of {os.path.basename(path)} (was other lines): "
  program_flags.assert_refused(result, message)
  assert tiny.read_results(tmp_path / "out") == scores


def test_other_columns_would_hold_out_others(tmp_path):
  # Equal texts stay together, so that another column is drawn from otherwise.
  rows = ["a,b,label"]
  rows += [f"film {n},{n % 7},{['pos', 'neg'][n % 2]}" for n in range(40)]
  (tmp_path / "rows.csv").write_text("\n".join(rows) + "\n")
  flags = {"train_file": tmp_path / "rows.csv", "label_column": "label"}
  flags |= {"eval_share": 0.2, "num_train_epochs": 1}
  run = functools.partial(tiny.run, "run_classifier", tmp_path, **flags)
  result = run(text_column="a", do_train=True)
  assert result.returncode == 0, result.stderr
  result = run(text_column="b", do_eval=True)
  program_flags.assert_refused(result, "--text_column=b (was a): the runs of ")


@pytest.mark.parametrize(
  ("flags", "message"),
  [
    ({"eval_file": "dev.tsv"}, "--eval_share and --eval_file: pass only one"),
    ({"eval_share": 0.001}, "--eval_share=0.001: "),
    (
      {"eval_share": 0.95},
      "--eval_share=0.95: expected a number from 0 to 0.9",
    ),
  ],
)
def test_what_cannot_be_held_out_is_refused(tmp_path, flags, message):
  path = tiny.write_split("run_classifier", tmp_path, "train")
  flags = {"train_file": path, "eval_share": 0.2, "do_train": True, **flags}
  result = tiny.run("run_classifier", tmp_path, **flags)
  program_flags.assert_refused(result, message)


def test_a_share_of_what_was_trained_on_is_told(tmp_path):
  path = tiny.write_split("run_classifier", tmp_path, "train")
  flags = {"train_file": path, "num_train_epochs": 1}
  tiny.run("run_classifier", tmp_path, **flags, do_train=True)
  flags |= {"do_eval": True, "eval_share": 0.2}
  result = tiny.run("run_classifier", tmp_path, **flags)
  note = "note: --eval_share: the weights may have been trained on these"
  assert note in result.stderr and result.returncode == 0
  # Nor does the evaluation make it true that they were held out.
  result = tiny.run("run_classifier", tmp_path, **flags)
  assert note in result.stderr and result.returncode == 0
