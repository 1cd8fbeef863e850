"""run_tagging.py: from files of tags to scores and predictions."""

import json
import shutil
import types

import pytest

from bert import run_tagging
import program_flags
import tiny

TRAINING = {
  "do_train": True,
  "do_eval": True,
  "num_train_epochs": 5,
  "learning_rate": 5e-3,
  "train_batch_size": 8,
  "save_checkpoints_steps": 50,
  "max_seq_length": tiny.SEQUENCE,
}


def run(folder, **flags):
  return program_flags.run_main(
    run_tagging, run_tagging.TaggingSettings, **tiny.flags_for(folder, **flags)
  )


def write_data(folder):
  tiny.write_model(folder)
  tiny.write_tags(folder / "train.txt", range(160))
  tiny.write_tags(folder / "dev.txt", range(160, 200))
  tiny.write_tags(folder / "test.txt", range(200, 220))


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
  """A folder in which a model was trained, and what the program printed."""
  folder = tmp_path_factory.mktemp("trained")
  write_data(folder)
  flags = {"data_dir": folder, "do_predict": True, "eval_every_epochs": 2.5}
  flags = tiny.flags_for(folder, **flags, **TRAINING)
  result = program_flags.succeed(program_flags.command("run_tagging", **flags))
  return folder, result.stdout


@pytest.fixture
def folder(trained):
  return trained[0]


class Untouched:
  """A set of examples of which nothing may be read."""

  def __getattr__(self, name):
    raise AssertionError(f"it reads {name}")


def test_only_the_chief_reads_the_words_of_predictions():
  """The others compute their share of the predictions, and write nothing."""
  dev, test, predicted = Untouched(), Untouched(), []
  run = types.SimpleNamespace(
    is_chief=False,
    data=types.SimpleNamespace(dev=[dev], test=[test]),
    settings=types.SimpleNamespace(eval_batch_size=4, predict_batch_size=5),
    predict=lambda *arguments: predicted.append(arguments),
  )
  run_tagging.write_evaluation(run)
  run_tagging.write_predictions(run)
  assert predicted == [(dev, 4), (test, 5)]


def read_metrics(path):
  return json.loads(path.read_text())["metrics"]


def test_training_learns_and_says_what_it_read_and_wrote(trained):
  folder, output = trained
  out = folder / "out"
  assert (
    "train: 160 sentences (960 words) of 16 documents in 160 windows, "
    "8.0 tokens on average; wrote "
  ) in output
  assert "LOC" in output
  metrics = read_metrics(out / "eval_metrics.json")
  assert metrics["f1"] == metrics["accuracy"] == 1.0
  results = (out / "eval_results.txt").read_text().splitlines()
  assert " ".join(line.split(" = ")[0] for line in results) == (
    "eval_accuracy eval_f1 eval_loss eval_precision eval_recall global_step"
  )
  labels = (out / "labels.txt").read_text().split()
  assert labels == ["O", "B-LOC", "I-LOC", "B-PER", "I-PER"]
  steps = (out / "evaluations.jsonl").read_text().splitlines()
  assert [json.loads(line)["step"] for line in steps] == [50, 100]
  text = (out / "report.html").read_text()
  assert "<h2>Evaluation</h2>" in text and "<h2>Prediction</h2>" in text
  assert "<title>eval/f1: " in text and "true ↓ predicted →" in text


def test_predictions_are_columns_in_the_scheme_of_the_file(folder):
  read = (folder / "test.txt").read_text().splitlines()
  written = (folder / "out" / "predictions.txt").read_text().splitlines()
  # It makes no fault.
  assert written == [line and f"{line} {line.split()[-1]}" for line in read]
  metrics = read_metrics(folder / "out" / "predict_metrics.json")
  assert metrics["f1"] == 1.0


def test_predictions_are_spans_of_characters(folder):
  rows = (folder / "out" / "predictions.jsonl").read_text().splitlines()
  assert len(rows) == 20
  for number, row in enumerate(map(json.loads, rows)):
    words, tags = tiny.make_sentence(200 + number)
    assert row["id"] == number
    assert row["text"] == " ".join(words)
    covered = " ".join(entity["text"] for entity in row["entities"])
    assert covered.split() == [w for w in words if w in tiny.TYPES]
    for entity in row["entities"]:
      assert row["text"][entity["start"] : entity["end"]] == entity["text"]
      assert {tiny.TYPES[w] for w in entity["text"].split()} == {entity["type"]}


def test_a_file_without_tags_is_predicted(folder, tmp_path, capsys):
  out = shutil.copytree(folder / "out", tmp_path / "out")
  (out / "predict_metrics.json").unlink()
  path = tmp_path / "new.txt"
  path.write_text("the\nfilm\n\nwas\nawful\n.\n")
  run(folder, output_dir=out, do_predict=True, predict_file=path)
  lines = (out / "predictions.jsonl").read_text().splitlines()
  first, second = map(json.loads, lines)
  assert first == {"id": 0, "text": "the film", "entities": []}
  assert {"type": "LOC", "start": 4, "end": 9, "text": "awful"} in second[
    "entities"
  ]
  columns = (out / "predictions.txt").read_text().splitlines()
  words = [line.split(" ")[0] for line in columns]
  assert words == ["the", "film", "", "was", "awful", "."]
  assert not (out / "predict_metrics.json").exists()
  assert "weights from the best evaluation, at step" in capsys.readouterr().out


def test_types_unseen_in_training_are_counted(folder, tmp_path, capsys):
  out = shutil.copytree(folder / "out", tmp_path / "out")
  path = tmp_path / "dev.txt"
  path.write_text("good B-PER\nthe O\nfilm B-NEW\ncast I-NEW\n\nbad I-LOC\n")
  run(folder, output_dir=out, do_eval=True, eval_file=path)
  output = capsys.readouterr().out
  assert "not in the training data, so never predicted: NEW (1)" in output
  # One I-LOC does not make it IOB1, where B-PER has to follow another PER.
  assert (
    "1 sentences have tags in an order that iob2 does not have; read as "
    "conlleval does"
  ) in output
  content = json.loads((out / "eval_metrics.json").read_text())
  scores = {"precision": 0.0, "recall": 0.0, "f1": 0.0, "support": 1}
  assert content["labels"]["NEW"] == scores
  assert content["metrics"]["recall"] == pytest.approx(2 / 3)


@pytest.mark.slow  # tests/tasks/test_tagging.py reads and scores them.
def test_labels_that_are_no_entities(tmp_path):
  tiny.write_model(tmp_path)
  for name, numbers in (("train", range(80)), ("valid", range(80, 100))):
    lines = []
    for number in numbers:
      rows = zip(*tiny.make_sentence(number), strict=True)
      lines += [f"{tag[2:] or 'X'}\t{word}" for word, tag in rows] + [""]
    (tmp_path / f"{name}.conll").write_text("\n".join(lines))
  flags = {"do_predict": True, "predict_file": tmp_path / "valid.conll"}
  flags |= {"data_dir": tmp_path, "token_column": 1, "tag_column": 0}
  run(tmp_path, **flags, **TRAINING)
  out = tmp_path / "out"
  assert (out / "labels.txt").read_text().split() == ["LOC", "PER", "X"]
  content = json.loads((out / "eval_metrics.json").read_text())
  assert content["metrics"]["accuracy"] > 0.95
  assert set(content["labels"]) == {"LOC", "PER", "X"}
  row = json.loads((out / "predictions.jsonl").read_text().splitlines()[0])
  words = tiny.make_sentence(80)[0]
  assert [word["text"] for word in row["words"]] == words
  line = (out / "predictions.txt").read_text().splitlines()[0]
  assert line.split("\t")[1] == words[0] and len(line.split("\t")) == 3


# Files and flags that are changed, and what the line begins with.
FAULTS = (
  ({"token_column": 0, "tag_column": 0}, "--token_column and --tag_column are"),
  (
    {"dev.txt": "good X JJ\nbad X NN\n"},
    "{}/dev.txt: its tags mark no entities, but the model's labels do (--tag_",
  ),
  (
    {"dev.txt": "good X O\nbad X O\n", "eval_every_steps": 2},
    "{}/dev.txt: no entity that the model has a label for, so --best_metric=f1 "
    "is the same for all weights: ",
  ),
  (
    {"dev.txt": "good X I-DAY\n", "eval_every_steps": 2},
    "{}/dev.txt: no entity that the model has a label for",
  ),
  (
    {"out/labels.txt": "O\nB-X\nI-X\n"},
    "{}/out/labels.txt has the labels O, B-X, I-X; those of {}/train.txt are "
    "O, B-LOC, I-LOC, B-PER, I-PER: use another --output_dir",
  ),
  (
    {"do_train": False},
    "no {}/out/labels.txt and no training file: the labels are unknown; pass ",
  ),
)


@pytest.mark.parametrize(("changes", "message"), FAULTS)
def test_bad_input_is_named(tmp_path, changes, message):
  write_data(tmp_path)
  (tmp_path / "out").mkdir()
  flags = {"data_dir": tmp_path, **TRAINING, **changes}
  for name in [name for name in changes if name.endswith(".txt")]:
    (tmp_path / name).write_text(flags.pop(name))
  with pytest.raises(ValueError) as error:
    run(tmp_path, **flags)
  expected = message.replace("{}", str(tmp_path))
  assert str(error.value).startswith(expected)
