"""run_multiple_choice.py: from files of questions to scores and predictions."""

import csv
import json
import shutil

import pytest

from bert import run_multiple_choice
import program_flags
import tiny

TRAINING = {
  "do_train": True,
  "do_eval": True,
  "num_train_epochs": 3,
  "learning_rate": 5e-3,
  "train_batch_size": 8,
  "save_checkpoints_steps": 30,
}


def write_jsonl(path, numbers):
  """Writes questions of two to four choices, without the answers."""
  with path.open("w") as file:
    for number in numbers:
      context, choices, label = tiny.make_choices(number)
      count = max(2, label + 1)
      row = {"context": context, "question": "the cast"}
      row |= {"id": f"q{number}", "choices": choices[:count]}
      file.write(json.dumps(row) + "\n")


def run(folder, **flags):
  return program_flags.run_main(
    run_multiple_choice,
    run_multiple_choice.ChoiceSettings,
    **tiny.flags_for(folder, **flags),
  )


def write_data(folder):
  tiny.write_model(folder, {"num_hidden_layers": 2})
  tiny.write_swag(folder / "train.csv", range(160))
  tiny.write_swag(folder / "val.csv", range(160, 200))
  tiny.write_swag(folder / "test.csv", range(200, 220))


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
  """A folder in which a model was trained, and what the program printed."""
  folder = tmp_path_factory.mktemp("trained")
  write_data(folder)
  flags = {"data_dir": folder, "do_predict": True, "eval_every_steps": 30}
  flags = tiny.flags_for(folder, **flags, **TRAINING)
  command = program_flags.command("run_multiple_choice", **flags)
  return folder, program_flags.succeed(command).stdout


def test_training_learns_and_says_what_it_read(trained):
  folder, output = trained
  assert (
    "train: 160 examples of up to 4 choices, 10.0 tokens in the longest on "
    "average, 0 truncated to --max_seq_length=16; wrote "
  ) in output
  results = tiny.read_results(folder / "out")
  assert list(results) == ["eval_accuracy", "eval_loss", "global_step"]
  assert results["eval_accuracy"] == 1.0


def test_predictions_are_those_that_are_scored(trained):
  folder, _ = trained
  with open(folder / "out" / "predictions.tsv", newline="") as file:
    rows = list(csv.DictReader(file, delimiter="\t"))
  labels = [str(tiny.make_choices(number)[2]) for number in range(200, 220)]
  assert [row["label"] for row in rows] == labels
  assert [row["predicted"] for row in rows] == labels
  path = folder / "out" / "predict_metrics.json"
  assert json.loads(path.read_text())["metrics"]["accuracy"] == 1.0


def test_report_of_the_run(trained):
  folder, _ = trained
  text = (folder / "out" / "report.html").read_text()
  assert text.count("<h3>Most confident mistakes</h3><p>None.</p>") == 2
  assert "<title>eval/accuracy: " in text


def test_questions_of_any_number_of_choices(trained, tmp_path, capsys):
  folder, _ = trained
  out = shutil.copytree(folder / "out", tmp_path / "out")
  (out / "predict_metrics.json").unlink()
  path = tmp_path / "new.jsonl"
  write_jsonl(path, range(300, 320))
  flags = {"output_dir": out, "do_predict": True, "predict_file": path}
  flags = tiny.flags_for(folder, **flags)
  length = flags.pop("max_seq_length")  # The training's, which it takes.
  program_flags.run_main(
    run_multiple_choice, run_multiple_choice.ChoiceSettings, **flags
  )
  said = f"--max_seq_length={length}, as {out / 'prediction.json'} says\n"
  assert said in capsys.readouterr().err
  with open(out / "predictions.tsv", newline="") as file:
    rows = list(csv.DictReader(file, delimiter="\t"))
  predicted = [int(row["predicted"]) for row in rows]
  assert predicted == [tiny.make_choices(n)[2] for n in range(300, 320)]
  counts = [
    sum(bool(row[f"probability_{i}"]) for i in range(4)) for row in rows
  ]
  assert counts == [max(2, number + 1) for number in predicted]
  assert set(counts) == {2, 3, 4}
  assert not (out / "predict_metrics.json").exists()


ROW = "a,b,c,d,e,f,"
# Contents of files, flags and the message.
FAULTS = [
  (
    {"train.csv": f"{tiny.SWAG_HEADER}\n{ROW}3\n{ROW}\n{ROW}\n"},
    {},
    "{}/train.csv:3, {}/train.csv:4: no label; 2 of 3 rows have none",
  ),
  (
    {"test.csv": f"{tiny.SWAG_HEADER}\n{ROW}\n{ROW}0\n"},
    {"do_train": False, "do_eval": False, "do_predict": True},
    "{}/test.csv:2: no label; 1 of 2 rows have none",
  ),
  ({}, {"max_seq_length": 4}, "--max_seq_length=4: expected at least 5: [CLS]"),
]


@pytest.mark.parametrize(("contents", "flags", "message"), FAULTS)
def test_bad_input_is_named(tmp_path, contents, flags, message):
  write_data(tmp_path)
  for path, content in contents.items():
    (tmp_path / path).write_text(content)
  with pytest.raises(ValueError) as error:
    run(tmp_path, **{"data_dir": tmp_path, **TRAINING, **flags})
  assert str(error.value).startswith(message.replace("{}", str(tmp_path)))
