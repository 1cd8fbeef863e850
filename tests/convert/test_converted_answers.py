"""How a trained model answers is kept by conversions, whatever its head."""

import json
import pathlib

import pytest

import any_model
import bert
from bert import heads, run_classifier, run_squad, run_tagging
from bert.cli import fine_tuning
import program_flags
import tiny_models

CLASSES = {
  "multiple_choice": "BertForMultipleChoice",
  "question_answering": "BertForQuestionAnswering",
  "tagging": "BertForTokenClassification",
  "windows": "BertForSequenceClassification",
}
# What a run records, apart from its defaults: of the model, of its answers.
MODEL = {"question_answering": {"padding_competes": False}}
ANSWERS = {
  "question_answering": {"doc_stride": 2, "max_answer_length": 1},
  "tagging": {"document_context": True},
}
HELD_OUT = {"held_out": {"eval_share": 0.2}, "held_out_lines": "x"}


@pytest.fixture(autouse=True)
def own_folder(tmp_path, monkeypatch):
  monkeypatch.chdir(tmp_path)


def read_json(path):
  return json.loads(pathlib.Path(path).read_text())


def write_run(case="question_answering"):
  """Writes the folder of a training, "run"; returns texts to answer."""
  requests = tiny_models.write_case(pathlib.Path("run"), case)
  model = MODEL.get(case, {})
  answers = {**dict.fromkeys(model, "drop"), **ANSWERS.get(case, {})}
  for name, values in (
    ("settings", {**model, **HELD_OUT}),
    ("prediction", {**answers, "max_seq_length": 13}),
  ):
    any_model.edit_json(pathlib.Path(f"run/{name}.json"), **values)
  return requests


@pytest.mark.parametrize("case", CLASSES)
def test_every_head_answers_as_in_its_training(case, capsys):
  requests = write_run(case)
  flags = {"strip": True, "output_format": "google"}
  any_model.convert(input="run", output="strip", **flags)
  any_model.convert(input="strip", output="there")
  any_model.convert(input="there", output="back")
  assert "is not known" not in capsys.readouterr().out
  assert read_json("there/config.json")["architectures"] == [CLASSES[case]]
  expected = bert.load("run")(requests)
  for folder in ("strip", "back"):
    for name in ("prediction.json", "settings.json"):
      recorded = read_json(f"run/{name}")
      kept = {n: x for n, x in recorded.items() if n not in HELD_OUT}
      assert read_json(f"{folder}/{name}") == kept
    assert bert.load(folder)(requests) == expected


@pytest.mark.parametrize("model", ["strip", "there"])
@pytest.mark.parametrize(
  ("case", "settings_class", "flags"),
  [
    ("question_answering", run_squad.SquadSettings, {"predict_file": "x"}),
    ("tagging", run_tagging.TaggingSettings, {}),
    ("windows", run_classifier.ClassifierSettings, {"task_name": "file"}),
  ],
)
def test_programs_follow_a_converted_folder(model, case, settings_class, flags):
  write_run(case)
  pathlib.Path("x").touch()
  arguments = {"output_format": "google"} if model == "strip" else {}
  any_model.convert(input="run", output=model, strip=True, **arguments)
  settings = program_flags.read(
    settings_class,
    fine_tuning.read_settings,
    **{**flags, "model": model, "output_dir": "out", "do_predict": True},
  )
  expected = {**MODEL.get(case, {}), **read_json("run/prediction.json")}
  assert expected["max_seq_length"] == 13
  for name, value in expected.items():
    if name in type(settings).flags_by_name():
      known = type(settings).from_json(name, value)
      assert (name, getattr(settings, name)) == (name, known)


def test_a_record_of_other_weights_is_not_followed():
  write_run()
  any_model.convert(input="run", output="there")
  path = pathlib.Path("there/google_only.json")
  for fields, message in (
    ({"settings.json": []}, "settings.json is .., expected"),
    ({"sha256 of model.safetensors": "0"}, "does not belong to the model.saf"),
  ):
    any_model.edit_json(path, **fields)
    with pytest.raises(ValueError, match=f"there/google_only.json: {message}"):
      any_model.read("there")


def test_what_is_not_known_or_not_converted_is_said(capsys):
  write_run()
  pathlib.Path("run/null_score_diff_threshold.json").write_text("{}")
  any_model.convert(input="run", output="there")
  line = "problem: question_answering, without its tuned threshold for 'no"
  assert line in capsys.readouterr().out
  # As the original leaves a model, and as others do on the Hub.
  line = "how it answers is not known: pass --max_seq_length and the like"
  model = heads.SpanModel(any_model.CONFIG)
  any_model.write_google("here", model)
  pathlib.Path("there/google_only.json").unlink()
  any_model.convert(input="here", output="here_2")
  assert f"problem: question_answering; {line}\n" in capsys.readouterr().out
  # In Google's format it is weights alone.
  any_model.convert(input="there", output="there_2")
  end = f"; {line}, and --head=question_answering to convert it again\n"
  assert end in capsys.readouterr().out
  assert pathlib.Path("there_2/bert_model.ckpt.index").exists()
  assert not pathlib.Path("there_2/settings.json").exists()
  # Without its head, a model answers nothing.
  any_model.convert(input="run", output="bare", head="encoder")
  assert "problem: " not in capsys.readouterr().out
  assert not pathlib.Path("bare/google_only.json").exists()
