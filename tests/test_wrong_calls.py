"""Wrong calls from Python: each raises one line, and writes nothing.

Those of a loaded model are in test_model_calls.py, and those of an index in
test_searching.py.
"""

import importlib
import json
import os

import keras
import pytest
import tensorflow as tf

import bert
from bert import run_classifier
import paths
import tiny
import tiny_models

ROWS = [{"text": "a good film", "label": "pos"}, {"text": "x", "label": "neg"}]
SENTENCE = {"tokens": ["good", "film"], "tags": ["B-PER", "O"]}
CHOICES = {"context": "a", "choices": ["good", "bad"], "label": 0}
QUESTION = {
  "id": "1",
  "question": "what color ?",
  "context": "the house was red",
  "answers": {"text": ["red"], "answer_start": [14]},
}
MODEL = {"bert_config_file": "config.json", "vocab_file": "vocab.txt"}
MODEL |= {"max_seq_length": 16, "output_dir": "out"}
CLASSIFIER = {**MODEL, "train_file": "train.tsv", "num_train_epochs": 1}
TAGGER = {**MODEL, "train_data": [SENTENCE]}
READER = {**MODEL, "train_data": [QUESTION], "max_query_length": 4}
VECTORS = {**MODEL, "train_file": "pairs.tsv"}
CHOOSER = {**MODEL, "train_data": [CHOICES]}
RECORDS = {"bert_config_file": "config.json", "output_dir": "out"}
RECORDS |= {"input_file": "records", "max_seq_length": 16}

# Programs, what is changed in a call of them that works, and the message.
CALLS = [
  # Types.
  (
    "run_classifier",
    {"train_batch_size": "many"},
    "--train_batch_size=many: expected a whole",
  ),
  (
    "run_classifier",
    {"train_batch_size": True},
    "--train_batch_size=True: expected a whole",
  ),
  (
    "run_classifier",
    {"learning_rate": [0.001, 0.0001]},
    "--learning_rate=0.001,0.0001: expected a num",
  ),
  (
    "run_classifier",
    {"learning_rate": b"1e-3"},
    "learning_rate is bytes, expected text, a num",
  ),
  (
    "run_classifier",
    {"do_train": "maybe"},
    "--do_train=maybe: expected true or",
  ),
  (
    "run_classifier",
    {"do_train": 2},
    "--do_train=2: expected true or",
  ),
  (
    "run_classifier",
    {"model": ["a", "b"]},
    "--model=['a', 'b']: would be read as 'a",
  ),
  (
    "run_classifier",
    {"text_column": []},
    "--text_column=[]: would be read as ''",
  ),
  (
    "run_classifier",
    {"labels": ["pos", None]},
    "labels is NoneType, expected text, a number,",
  ),
  (
    "run_classifier",
    {"labels": [["pos"]]},
    "labels is list, expected text, a number, a b",
  ),
  (
    "run_classifier",
    {"labels": [" pos", "neg"]},
    "--labels=[' pos', 'neg']: would be read",
  ),
  (
    "run_classifier",
    {"labels": ['"pos"', "neg"]},
    "--labels=['\"pos\"', 'neg']: would be rea",
  ),
  (
    "run_classifier",
    {"labels": {"pos", "neg"}},
    "labels is set, expected text, a number, a bo",
  ),
  ("run_classifier", {"on_log": "print"}, "on_log is str, expected a function"),
  (
    "run_classifier",
    {"train_file": open},
    "train_file is builtin_function_or_method, ex",
  ),
  # Names.
  ("run_classifier", {"epochs": 3}, "no flag is called --epochs"),
  ("run_classifier", {"lr": 3}, "no flag is called --lr"),
  (
    "run_classifier",
    {"dont_train": 3},
    "no flag is called --dont_train: did you mean",
  ),
  (
    "run_classifier",
    {"nodo_train": True},
    "--nodo_train=True does not take an argument",
  ),
  (
    "run_classifier",
    {"problem": "multilabel"},
    "--problem=multilabel: expected one of",
  ),
  (
    "run_classifier",
    {"task_name": "mprc"},
    "--task_name=mprc: expected one of ax, cola,",
  ),
  (
    "run_classifier",
    {"best_metric": "f2"},
    "--best_metric=f2: expected one of accuracy,",
  ),
  (
    "run_classifier",
    {"seeds": [1, 1]},
    "--seeds=1,1: expected different numbers, suc",
  ),
  (
    "run_pretraining",
    {"train_data": ROWS},
    "no flag is called --train_data: did you mean",
  ),
  (
    "run_tagging",
    {"label_column": "tag"},
    "no flag is called --label_column: use it wit",
  ),
  (
    "run_squad",
    {"eval_share": 2},
    "--eval_share=2: expected a number from",
  ),
  # What is missing.
  (
    "run_classifier",
    {"train_file": None},
    "nothing to do: pass --do_train=true, --do_ev",
  ),
  ("run_classifier", {"vocab_file": None}, "missing --model (or --vocab_file)"),
  ("run_classifier", {"output_dir": ""}, "missing --output_dir"),
  ("run_distillation", {}, "--teacher=nowhere: no such folder"),
  ("run_multitask", {}, "tasks.json: holds no task"),
  (
    "run_multitask",
    {"tasks_file": [{"kind": "tagging"}]},
    "tasks_file is dict, expected text, a number,",
  ),
  ("run_pretraining", {"input_file": None}, "missing --input_file"),
  # Shapes and columns.
  (
    "run_classifier",
    {"text_column": "body"},
    "train.tsv: no column 'body'; pass --text_col",
  ),
  (
    "run_classifier",
    {"text_column": 7},
    "train.tsv:2: expected at least 8 columns, fo",
  ),
  (
    "run_classifier",
    {"train_data": {"text": ["a"]}},
    "train_data is dict, expected a list of dicts",
  ),
  (
    "run_classifier",
    {"train_data": ""},
    "train_data takes rows; pass a path as train_",
  ),
  (
    "run_classifier",
    {"train_data": [1]},
    "train_data[0] is int, expected a dict",
  ),
  (
    "run_classifier",
    {"train_data": [{"text": 1, "label": "a"}]},
    "train_data[0]: 'text' must be a string, foun",
  ),
  (
    "run_classifier",
    {"train_data": [*ROWS, {"text": "x"}]},
    "train_data[2]: no key 'label'; the keys are",
  ),
  (
    "run_classifier",
    {"train_data": [{"text": "\ud800"}]},
    "train_data[0] holds \\ud800, half of a surrog",
  ),
  (
    "run_classifier",
    {"train_data": ROWS[:1]},
    "train_data: expected two labels or more, fou",
  ),
  ("run_classifier", {"train_data": []}, "train_data has no rows"),
  ("run_classifier", {"train_data": iter(ROWS)}, "can be read only once"),
  (
    "run_classifier",
    {"train_data": [{"text": object()}]},
    "object cannot be written as JSON",
  ),
  (
    "run_classifier",
    {"labels": ["a,b"]},
    "--labels=['a,b']: would be read as ['a', 'b']",
  ),
  (
    "run_classifier",
    {"eval_data": ROWS, "eval_file": "train.tsv"},
    "eval_data and eval_file: pass only one",
  ),
  (
    "run_classifier",
    {"predict_data": [{"label": "a"}]},
    "predict_data: no column 'text'; pass --text_",
  ),
  (
    "run_tagging",
    {"train_data": [{"tokens": ["a"]}]},
    "train_data[0]: no key 'tags'",
  ),
  (
    "run_tagging",
    {"train_data": [{**SENTENCE, "tags": ["O"]}]},
    "train_data[0]: 2 and 1 'tokens' and 'tags'",
  ),
  (
    "run_tagging",
    {"train_data": [{**SENTENCE, "tokens": "a b"}]},
    "train_data[0]: expected a list of texts unde",
  ),
  (
    "run_tagging",
    {"train_data": [{"tokens": [], "tags": []}]},
    "train_data[0]: expected a list of texts unde",
  ),
  (
    "run_tagging",
    {"train_data": [{**SENTENCE, "tokens": ["", "b"]}]},
    "train_data[0]: expected texts without tabs a",
  ),
  (
    "run_tagging",
    {"train_data": [{**SENTENCE, "tags": ["B-X", None]}]},
    "train_data[0]: expected texts without tabs a",
  ),
  (
    "run_tagging",
    {"token_column": 1, "tag_column": 0},
    "train_data: JSON Lines have keys and no colu",
  ),
  (
    "run_tagging",
    {"train_data": ROWS},
    "train_data[0]: no key 'entities'",
  ),
  (
    "run_tagging",
    {"train_data": [{"tokens": ["a"], "ner_tags": [2]}], "labels": ["O", "X"]},
    "train_data[0]: the tag 2 is a number: expect",
  ),
  (
    "run_feature_tagging",
    {"train_data": [{"tokens": ["a"]}]},
    "train_data[0]: no key 'tags'",
  ),
  (
    "run_squad",
    {"train_data": [{**QUESTION, "answers": None}]},
    "train_data[0]: no answers; 1 of 1 questions",
  ),
  ("run_squad", {"train_data": [{"data": []}]}, "train_data[0]: no 'id'"),
  (
    "run_squad",
    {"train_data": {"data": []}},
    "train_data is dict, expected a list of dicts",
  ),
  (
    "run_squad",
    {"train_data": [{**QUESTION, "answers": [{"text": "tan"}]}]},
    "train_data: no question to train on, all 1 a",
  ),
  (
    "run_multiple_choice",
    {"train_data": [{**CHOICES, "label": 2}]},
    "train_data[0]: the label 2 is not one of the",
  ),
  (
    "run_multiple_choice",
    {"train_data": [{**CHOICES, "choices": "ab"}]},
    "train_data[0]: 'choices' must be a list of s",
  ),
  (
    "run_multiple_choice",
    {"train_data": ROWS},
    "train_data[0]: no key 'choices'; the keys ar",
  ),
  (
    "run_embedding",
    {"train_data": ROWS},
    "train_data: column 0 is given by number, but",
  ),
  (
    "run_embedding",
    {"train_data": ROWS, "text_column": "text", "text_pair_column": "other"},
    "train_data: no column 'other'; pass --text_p",
  ),
  # Files and folders; tests/mistakes has more, which are read by the same code.
  (
    "run_classifier",
    {"output_dir": "train.tsv", "train_data": ROWS},
    "--output_dir=train.tsv: a file; expected a f",
  ),
  (
    "run_classifier",
    {"model": "."},
    ".: several checkpoints, name one: ['./classi",
  ),
  (
    "run_classifier",
    {"init_checkpoint": "train.tsv"},
    "train.tsv: not a readable checkpoint: no chec",
  ),
  (
    "run_classifier",
    {"output_dir": "tagger"},
    "--output_dir=tagger belongs to another model",
  ),
  # Sizes.
  (
    "run_classifier",
    {"max_seq_length": -1},
    "--max_seq_length=-1: expected a whole",
  ),
  (
    "run_classifier",
    {"train_batch_size": 0},
    "--train_batch_size=0: expected a whole",
  ),
  (
    "run_classifier",
    {"eval_share": 1},
    "--eval_share=1: expected a number from",
  ),
  (
    "run_classifier",
    {"seed": 1 << 70},
    "--seed=1180591620717411303424: expected",
  ),
  (
    "run_classifier",
    {"do_predict": True},
    "--do_predict: the task has no such data; pas",
  ),
]
GIVEN = {
  "run_classifier": CLASSIFIER,
  "run_tagging": TAGGER,
  "run_feature_tagging": TAGGER,
  "run_squad": READER,
  "run_multiple_choice": CHOOSER,
  "run_embedding": VECTORS,
  "run_pretraining": RECORDS,
  "run_distillation": {**RECORDS, "teacher": "nowhere"},
  "run_multitask": {**MODEL, "tasks_file": "tasks.json"},
}


@pytest.fixture(scope="module")
def work(tmp_path_factory):
  """A folder with data, and with trained models of two tasks."""
  folder = tmp_path_factory.mktemp("work")
  tiny.write_model(folder)
  tiny.write_tsv(folder / "train.tsv", range(20))
  tiny.write_partners(folder / "pairs.tsv", range(20))
  tiny.write_records(folder / "records", range(20))
  (folder / "empty.tsv").write_text("")
  (folder / "tasks.json").write_text(json.dumps([]))
  for name in ("classifier", "tagging"):
    (folder / name).mkdir()
  tiny_models.write_trained(folder / "classifier")
  tiny_models.write_case(folder / "tagging", "tagging")
  (folder / "tagging").rename(folder / "tagger")
  return folder


def check(call, work, message):
  """Makes a call, which must raise one line with this in it."""
  before = everything(work)
  with pytest.raises((ValueError, TypeError)) as error:
    call()
  assert message in str(error.value)
  assert "\n" not in str(error.value)
  assert everything(work) == before


def everything(folder):
  """Returns the contents of files; folders, too, which may be empty."""
  folders = {p: b"" for p in folder.rglob("*") if p.is_dir()}
  return paths.contents(folder) | folders


@pytest.mark.parametrize(("program", "changed", "message"), CALLS)
def test_a_wrong_run_is_one_line_and_writes_nothing(
  program, changed, message, work, monkeypatch
):
  monkeypatch.chdir(work)
  place = "contrib." if program == "run_feature_tagging" else ""
  module = importlib.import_module(f"bert.{place}{program}")
  given = dict(GIVEN[program])
  if "train_data" in changed:
    given.pop("train_file", None)
  given |= changed
  check(lambda: module.run(**given), work, message)


# Functions, their arguments, and the message.
LOADS = [
  (bert.load, (3,), "expected str, bytes or os.PathLike object, not int"),
  (bert.load, (None,), "expected str, bytes or os.PathLike object, not None"),
  (bert.load, ("nowhere",), "nowhere: no such folder"),
  (bert.load, ("train.tsv",), "train.tsv: a file, not a folder; expected"),
  (bert.load, (".",), "a model without a task; train it with run_classifie"),
  (bert.load, ("classifier", -1), "threads is -1, expected 0, for all cores"),
  (bert.load, ("classifier", 10**6), "threads is 1000000, expected 0, for al"),
  (bert.load, ("classifier", "two"), "cannot be interpreted as an integer"),
  (bert.load, ("classifier", 0, "onnx"), "classifier"),
  (bert.load, ("classifier", 0, 1), "engine is int, expected str"),
  (bert.load_encoder, (3,), "expected str, bytes or os.PathLike object, not i"),
  (bert.load_encoder, ("nowhere",), "nowhere: no checkpoint there"),
  (bert.load_encoder, ("train.tsv",), "train.tsv: "),
  (bert.load_encoder, ("classifier", "float31"), "float31"),
]


@pytest.mark.parametrize(("function", "arguments", "message"), LOADS)
def test_a_wrong_load_is_one_line(
  function, arguments, message, work, monkeypatch
):
  monkeypatch.chdir(work)
  check(lambda: function(*arguments), work, message)


def test_a_flag_file_that_is_not_there(work, monkeypatch):
  monkeypatch.chdir(work)
  given = {**CLASSIFIER, "flagfile": "flags.txt"}
  check(lambda: run_classifier.run(**given), work, "--flagfile=flags.txt: No")


@pytest.mark.parametrize(
  "scope",
  [
    lambda: tf.distribute.OneDeviceStrategy("/cpu:0").scope(),
    lambda: tf.Graph().as_default(),
    lambda: tf.name_scope("mine"),
    lambda: keras.name_scope("mine"),
  ],
)
def test_a_run_within_something_of_tensorflow(scope, work, monkeypatch):
  """It would give other weights, or variables of other names."""
  monkeypatch.chdir(work)
  with scope():
    check(
      lambda: run_classifier.run(**CLASSIFIER),
      work,
      "called within a tf.function, a graph, a scope of tf.distribute or a nam",
    )


def test_a_path_may_be_an_entry_of_a_folder(work, monkeypatch):
  """`str` of one is not its path."""
  monkeypatch.chdir(work)
  [entry] = [e for e in os.scandir(".") if e.name == "empty.tsv"]
  given = {**CLASSIFIER, "train_file": entry}
  check(
    lambda: run_classifier.run(**given), work, "empty.tsv: holds no example"
  )
