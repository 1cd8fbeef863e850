"""A new task in three new files: it trains, is exported and answers.

The files of tests/new_task are as a user would write them: two that belong into
bert/contrib/, and a program. No other file knows of them.
"""

import json
import random
import shlex

import numpy as np
import pytest
import tensorflow as tf

import bert
from bert import contrib
from bert.export import exporting
from bert.serving import answers
import browser
import paths
import program_flags
import tiny

FOLDER = paths.ROOT / "tests" / "new_task"
PROGRAM = "tests/new_task/run_relatedness"
WORDS = tiny.OTHER[:6]  # The score of a pair is the distance in this list.


@pytest.fixture(autouse=True)
def installed(monkeypatch):
  """Makes the two modules part of contrib."""
  monkeypatch.setattr(contrib, "__path__", [*contrib.__path__, str(FOLDER)])


def make_line(number):
  source = random.Random(number)
  words = source.choices(WORDS, k=source.randint(4, 8))
  first, second = source.sample(range(len(words)), 2)
  score = WORDS.index(words[first]) - WORDS.index(words[second])
  return {"words": words, "first": first, "second": second, "score": score / 3}


def write_lines(path, numbers):
  path.write_text("".join(json.dumps(make_line(n)) + "\n" for n in numbers))
  return path


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
  return tmp_path_factory.mktemp("relatedness")


@pytest.fixture(scope="module")
def trained(folder):
  """Trains the task in 60 steps; returns what the program printed."""
  with pytest.MonkeyPatch.context() as patch:
    patch.setattr(contrib, "__path__", [*contrib.__path__, str(FOLDER)])
    tiny.write_model(folder)
    flags = tiny.flags_for(
      folder,
      train_file=write_lines(folder / "train.jsonl", range(320)),
      eval_file=write_lines(folder / "dev.jsonl", range(1000, 1040)),
      predict_file=write_lines(folder / "test.jsonl", range(2000, 2010)),
      do_train=True,
      do_eval=True,
      do_predict=True,
      train_batch_size=16,
      num_train_epochs=3,
      learning_rate=5e-3,
    )
    return program_flags.succeed(program_flags.command(PROGRAM, **flags)).stdout


def run_export(folder, name, **flags):
  command = program_flags.command(
    "export_saved_model",
    model=folder / "out",
    export_dir=folder / name,
    **flags,
  )
  return program_flags.run_here(command)


def read_predictions(folder):
  lines = (folder / "out" / "predictions.tsv").read_text().splitlines()[1:]
  return [float(line.split("\t")[1]) for line in lines]


def test_it_learns(folder, trained):
  scores = tiny.read_results(folder / "out")
  assert scores["eval_pearson"] > 0.7
  assert "eval_pearson" in trained
  assert len(read_predictions(folder)) == 10


def test_the_command_of_the_summary_makes_an_export_that_answers(
  folder, trained
):
  [line] = (line for line in trained.splitlines() if "next: python" in line)
  _, program, *arguments = shlex.split(line.partition("next: ")[2])
  [python, path] = program_flags.command(program.removesuffix(".py"))
  result = program_flags.succeed([python, path, *arguments])
  assert "loaded again, it gives the same within" in result.stdout
  export = folder / "out_export"
  # The graph takes the two positions.
  signature = tf.saved_model.load(str(export)).signatures["ids"]
  assert sorted(signature.structured_input_signature[1]) == [
    "input_ids",
    "input_mask",
    "positions",
    "segment_ids",
  ]
  command = program_flags.command(
    "predict", export_dir=export, input_file=folder / "test.jsonl"
  )
  output = program_flags.succeed(command).stdout
  found = [json.loads(line)["value"] for line in output.splitlines()]
  np.testing.assert_allclose(found, read_predictions(folder), atol=1e-5)
  # From Python, from texts as a page has them, and of the training's folder.
  words = {"words": "movie was", "first": "0", "second": "1"}
  [a, b] = (bert.load(path)(words) for path in (export, folder / "out"))
  assert a == {"value": pytest.approx(b["value"], abs=1e-5), "truncated": False}


@pytest.mark.skipif(
  not browser.is_installed(), reason="needs chromium and chromedriver"
)
def test_the_page_of_the_server_asks_it(folder, trained):
  out = str(folder / "out")
  model = exporting.in_memory(out, str(folder / "vocab.txt"), None)
  with browser.Browser(browser.serve(model)) as page:
    # No example fits its inputs, so nothing is asked when the page opens.
    assert page.wait("document.querySelector('#ask')")
    assert page.text("#facts").startswith("relatedness; ")
    assert page.script("return $('examples').hidden && !$('error').textContent")
    for name, value in {"words": "movie was", "first": 0, "second": 1}.items():
      page.type(f"#in-{name}", str(value))
    page.click("#ask")
    page.wait("document.querySelector('#note').textContent")
    answer = json.loads(page.text("#answer pre"))
    # The buttons of attention work, and none asks for words to leave out.
    assert page.script("return $('words').hidden")
    page.click("#attend")
    page.wait("document.querySelector('#chosen').textContent")
    assert page.faults() == []
  words = {"words": ["movie", "was"], "first": 0, "second": 1}
  assert answer["value"] == pytest.approx(bert.load(out)(words)["value"])


def test_litert_takes_the_positions_too_and_onnx_says_what_it_takes(
  folder, trained
):
  result = run_export(folder, "litert", format="litert")
  assert "it gives the same within" in result.stdout, result.stderr
  result = run_export(folder, "onnx", format="onnx")
  program_flags.assert_refused(result, "onnx takes Transformers with a dense")
  assert not (folder / "onnx").exists()


@pytest.mark.parametrize(
  ("changes", "message"),
  [
    ({"second": 9}, "the pair is [0, 9], expected numbers from 0 to 2"),
    ({"first": "two"}, "expected numbers of words"),
    ({"words": None}, "words is nothing"),
  ],
)
def test_wrong_requests_are_named(folder, trained, changes, message):
  model = bert.load(folder / "out")
  request = {"words": ["a", "b", "c"], "first": 0, "second": 1, **changes}
  with pytest.raises(ValueError, match=message.replace("[", r"\[")):
    model(request)


def test_kinds_are_found_by_their_names_in_contrib_alone():
  assert answers.is_trained("relatedness")
  for name in ("os", "gpt", "relatedness.os", "../relatedness", ""):
    assert not answers.is_trained(name)
    with pytest.raises(ValueError, match="kind is "):
      answers.find_maker(name)
