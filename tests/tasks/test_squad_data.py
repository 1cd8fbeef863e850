"""Files of questions as feature files, and logits as answers and scores."""

import dataclasses
import json
import os
import resource

import numpy as np
import pytest

from bert import modeling
from bert.data import files
from bert.tasks import (
  squad,
  squad_answers,
  squad_data,
  squad_features,
  squad_metrics,
)
import tiny

ANSWER_SETTINGS = squad_answers.AnswerSettings(20, 3)


@pytest.fixture
def settings(tmp_path):
  (tmp_path / "vocab.txt").write_text("\n".join(tiny.SQUAD_VOCABULARY) + "\n")
  return squad_features.SquadFeatureSettings(
    vocab_file=str(tmp_path / "vocab.txt"),
    do_lower_case=True,
    max_seq_length=tiny.SEQUENCE,
    doc_stride=4,
    max_query_length=4,
    version_2_with_negative=True,
  )


def write(path, numbers=range(10)):
  return str(tiny.write_squad(path, numbers, impossible=4))


def open_set(kind, path, settings, **others):
  """Returns a set whose features are made beside the questions."""
  examples = squad_data.find_set(kind, str(path), settings, **others)
  squad_data.make_features(examples, os.path.dirname(path))
  return examples


def make_rows(kind, path, settings, num_processes=1):
  """Returns the rows of features that are made anew, and their facts."""
  files.remove(os.path.join(os.path.dirname(path), f"{kind}.tf_record"))
  features = open_set(
    kind, path, settings, num_processes=num_processes
  ).features
  rows = features.read(range(len(features)))
  return list(zip(rows, features.example_of_row, strict=True)), features.facts


def write_questions(path, *questions):
  """Writes questions of `tiny.make_question` to a file; returns its path."""
  content = {"data": [{"title": "T", "paragraphs": questions}]}
  path.write_text(json.dumps(content))
  return path


@pytest.mark.parametrize("kind", ["train", "eval"])
def test_records_do_not_depend_on_processes_and_their_tasks(
  tmp_path, settings, monkeypatch, kind
):
  # Some texts have several windows; a long text has many questions.
  row = {"question": "what color ?", "answers": []}
  row["context"] = "the old house " * 50 + "was red"
  lines = [json.dumps({"id": f"{n}", **row}) for n in range(20)]
  for number in range(40):
    paragraph = tiny.make_question(number, number % 4 > 0)
    [question] = paragraph["qas"]
    lines.append(json.dumps({"context": paragraph["context"], **question}))
  path = tmp_path / "a.jsonl"
  files.write_lines(str(path), lines)
  whole = make_rows(kind, path, settings)
  assert len(whole[0]) > 60 and whole[1]["questions"] == 60
  # Rows are in the order of the questions; training shuffles them.
  order = [example for _, example in whole[0]]
  assert order == sorted(order)
  monkeypatch.setattr(squad_data, "SMALL_FILE", 0)
  monkeypatch.setattr(squad_data, "CHARACTERS_PER_TASK", 100)
  monkeypatch.setattr(squad_data, "MOST_CHARACTERS", 40)
  assert make_rows(kind, path, settings) == whole
  assert make_rows(kind, path, settings, 2) == whole


def test_counts_of_questions_and_windows(tmp_path, settings):
  paragraphs = [tiny.make_question(n, n > 0) for n in range(6)]
  paragraphs[1]["qas"][0]["answers"][0]["answer_start"] = 10_000
  paragraphs[2]["qas"][0]["question"] = "what color was the house ?"
  path = write_questions(tmp_path / "a.json", *paragraphs)
  rows, facts = make_rows("train", path, settings)
  shown = facts.pop("misplaced_shown")
  windows_with = len({example for _, example in rows} - {0})
  assert facts == {
    "questions": 6,
    "labelled": 6,
    "unlabelled": [],
    "cut_questions": 1,
    "misplaced": 1,
    "outside": facts["outside"],
    "unanswerable": 1,
  }
  answerable = [example for _, example in rows if example != 0]
  assert len(answerable) - facts["outside"] >= windows_with
  assert shown[0].startswith(f"{path}: question 'q1': at answer")
  assert 1 not in {example for _, example in rows}
  # The original counted an epoch in questions that it could train on.
  examples = open_set("train", path, settings)
  assert examples.rows_per_epoch == 5 < len(examples.features)


def test_a_question_without_an_answer_does_not_lack_it(tmp_path, settings):
  path = write_questions(tmp_path / "a.json", tiny.make_question(0, False))
  rows, facts = make_rows("train", path, settings)
  assert rows and (facts["outside"], facts["unanswerable"]) == (0, 1)


def test_nothing_to_train_on_is_an_error(tmp_path, settings):
  paragraph = tiny.make_question(1)
  paragraph["qas"][0]["answers"][0]["answer_start"] = 10_000
  path = write_questions(tmp_path / "a.json", paragraph)
  with pytest.raises(ValueError, match="all 1 answers are not where"):
    make_rows("train", path, settings)


class Oracle:
  """Predicts, knowing the answers: high logits for colours."""

  COLORS = [tiny.SQUAD_VOCABULARY.index(color.lower()) for color in tiny.COLORS]

  def iterate(self, batches, total):
    assert total
    for features in batches:
      ids = features["input_ids"].numpy()
      logits = np.where(np.isin(ids, self.COLORS), 5.0, -5.0)
      logits[:, 0] = 0.0
      missing = tiny.SEQUENCE - ids.shape[1]
      padding = [[0, 0], [0, missing]]
      logits = np.pad(logits, padding, constant_values=-9.0)
      yield {"start_logits": logits, "end_logits": logits}


def compute_logits(predictor, examples, order, folder):
  config = modeling.EncoderConfig(len(tiny.SQUAD_VOCABULARY), type_vocab_size=2)
  parse = examples.make_parser(config, is_static=False)
  return squad_data.compute_logits(
    predictor, examples, parse, order, str(folder)
  )


def test_a_full_disk_is_one_line(tmp_path, settings):
  examples = open_set("eval", write(tmp_path / "a.json"), settings)
  old = resource.getrlimit(resource.RLIMIT_FSIZE)

  class FullDisk(Oracle):
    def iterate(self, batches, total):
      for results in super().iterate(batches, total):
        # Python ignores the signal, so a file that grows further is an error.
        resource.setrlimit(resource.RLIMIT_FSIZE, (500, old[1]))
        yield results

  order = [np.arange(len(examples.features))]
  try:
    with pytest.raises(OSError, match=f"^{tmp_path}: File too large$"):
      compute_logits(FullDisk(), examples, order, tmp_path)
  finally:
    resource.setrlimit(resource.RLIMIT_FSIZE, old)


def test_logits_become_answers_and_scores(tmp_path, settings):
  path = write(tmp_path / "a.json")
  examples = open_set("eval", path, settings)
  order = np.array_split(
    np.random.default_rng(1).permutation(len(examples.features)), 4
  )
  logits = compute_logits(Oracle(), examples, order, tmp_path)
  answered = list(squad_data.answer(examples, logits, ANSWER_SETTINGS))
  assert examples.is_labelled
  assert examples.describe(3) == f"{path}: question 'q3'"
  contexts = [q.context for q in squad.read_questions(path)]
  for number, (question, prediction, _) in enumerate(answered):
    assert question.question_id == f"q{number}"
    span = prediction.decide(0.0)
    if number % 4:
      assert span.text == question.answers[0].text
      assert contexts[number][span.start : span.end] == span.text
    else:
      assert span is None
  scored = [result.scored for result in answered]
  scores = squad_metrics.score(scored, 0.0)
  assert scores["exact_match"] == scores["no_answer_f1"] == 100.0
  # With a threshold above all odds every question is answered. The rules remove
  # the article "the", which leaves no answer: one of three is right.
  scores = squad_metrics.score(scored, 1e9)
  assert scores["no_answer_f1"] == pytest.approx(100 / 3)
  assert scores["best_f1"] == 100.0


@pytest.mark.parametrize("kind", ["train", "dev"])
def test_questions_that_lack_needed_answers_are_named(tmp_path, settings, kind):
  paragraphs = [tiny.make_question(number) for number in range(6)]
  for paragraph in paragraphs[1:5]:
    del paragraph["qas"][0]["answers"]
  path = write_questions(tmp_path / "a.json", *paragraphs)
  places = ", ".join(f"{path}: question 'q{number}'" for number in (1, 2, 3))
  with pytest.raises(ValueError) as error:
    open_set(kind, path, settings, needs_answers=kind == "dev")
  assert str(error.value).startswith(
    f"{places}, ...: no answers; 4 of 6 questions have none: "
  )
  assert not (tmp_path / f"{kind}.tf_record").exists()
  if kind == "dev":
    assert not open_set("dev", path, settings).is_labelled


def test_a_file_that_changes_during_the_run_is_refused(tmp_path, settings):
  path = write(tmp_path / "a.json")
  examples = open_set("eval", path, settings)
  logits = np.zeros([len(examples.features), 2, tiny.SEQUENCE], np.float32)
  for numbers in (range(9), range(20)):
    write(tmp_path / "a.json", numbers)
    with pytest.raises(ValueError, match="a.json: changed while the program"):
      list(squad_data.answer(examples, logits, ANSWER_SETTINGS))


def test_training_can_be_limited_to_the_first_questions(tmp_path, settings):
  path = write(tmp_path / "a.json", range(20))
  limits = {"train": 3, "eval": 20}
  for kind, count in limits.items():
    examples = open_set(kind, path, settings, limit=3)
    assert examples.features.facts["questions"] == count
  assert open_set("train", path, settings).features.facts["questions"] == 20


def test_chinese_answers_are_parts_of_sentences(tmp_path, settings):
  characters = "北京是中国的首都。"
  vocabulary = tiny.SQUAD_VOCABULARY + sorted(set(characters))
  (tmp_path / "vocab.txt").write_text("\n".join(vocabulary) + "\n")
  row = {"id": "1", "question": "what ?", "context": characters}
  row["answers"] = [{"text": "中国的", "answer_start": 3}]
  (tmp_path / "a.jsonl").write_text(json.dumps(row) + "\n")
  path = str(tmp_path / "a.jsonl")
  settings = dataclasses.replace(settings, version_2_with_negative=False)
  examples = open_set("eval", path, settings)
  logits = np.full([1, 2, tiny.SEQUENCE], -9, np.float32)
  logits[0, 0, 4 + 3] = logits[0, 1, 4 + 4] = 5  # "中国".
  (answered,) = squad_data.answer(examples, logits, ANSWER_SETTINGS)
  assert answered.prediction.answer[:3] == ("中国", 3, 5)
  # Two of three characters: P 1, R 2/3.
  scores = squad_metrics.score([answered.scored], 0.0)
  assert scores == {"exact_match": 0.0, "f1": pytest.approx(80.0)}
  # Between its spaces the text has one word, and no answer is that word.
  by_words = dataclasses.replace(ANSWER_SETTINGS, answer_units="words")
  (answered,) = squad_data.answer(examples, logits, by_words)
  assert squad_metrics.score([answered.scored], 0.0)["f1"] == 0.0
