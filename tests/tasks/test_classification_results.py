"""Tests of scores and files made of logits: literal in, literal out."""

import json
import tracemalloc

import numpy as np
import pytest

from bert.tasks import classification
from bert.tasks import classification_results as results
import report_tables


def example(number, text, label=None, text_b=None):
  return classification.Example(
    str(number), text, text_b, label, f"data.tsv:{number}", None
  )


def test_windows_are_pooled_by_example():
  logits = np.array([[1, 2], [2, 3], [4, 1], [5, 6]], np.float32)
  examples = np.array([0, 1, 1, 2])
  mean = results.pool_windows(logits, examples, "mean")
  assert mean.tolist() == [[1.0, 2.0], [3.0, 2.0], [5.0, 6.0]]
  most = results.pool_windows(logits, examples, "max")
  assert most.tolist() == [[1.0, 2.0], [4.0, 3.0], [5.0, 6.0]]
  assert mean.dtype == most.dtype == np.float32


def score(logits, targets, problem="single_label", labels="01", **options):
  """Scores logits; thresholds are tuned unless given."""
  logits, targets = np.float32(logits), np.asarray(targets)
  names, groups = options.pop("names", ()), options.pop("groups", ())
  options = options or {"tuning": targets}
  answers = results.answer(logits, problem, list(labels), **options)
  return results.score(answers, targets, names, groups)


def test_scores_and_the_loss_of_the_original():
  scores = score([[1, 0], [1, 0], [1, 0]], [0, 1, 0])
  right, wrong = np.log1p(np.exp(-1)), np.log1p(np.exp(1))
  assert scores.metrics["accuracy"] == pytest.approx(2 / 3)
  assert scores.metrics["loss"] == pytest.approx((2 * right + wrong) / 3)
  # The mean of two batches' means: of two examples, and of one.
  loss = scores.original_loss(batch_size=2)
  assert loss == pytest.approx(((right + wrong) / 2 + right) / 2)
  assert scores.is_collapsed


@pytest.mark.parametrize(
  ("labels", "f1"), [("ab", 2 / 3), ("01", 2 / 3), ("10", 0.8)]
)
def test_f1_is_of_the_label_called_1(labels, f1):
  logits = np.eye(2)[[1, 1, 0, 0]]
  scores = score(logits, [1, 0, 0, 0], labels=labels, names=("f1",))
  assert scores.metrics["f1"] == pytest.approx(f1)


@pytest.mark.parametrize(
  ("problem", "logits", "targets", "names"),
  [
    ("single_label", np.eye(2), [0, 1], ("f1", "matthews_correlation")),
    ("multi_label", np.eye(2), [[1, 0], [0, 1]], ()),
    ("regression", [[1], [0]], [1.0, 0.0], ()),
  ],
)
def test_metric_names_are_those_of_a_score(problem, logits, targets, names):
  scores = score(logits, targets, problem, names=names)
  assert set(scores.metrics) == set(results.metric_names(problem, names))


def test_thresholds_are_tuned_where_none_are_given():
  logits, targets = [[-2.0], [-1.0], [-3.0]], [[1], [1], [0]]
  tuned = score(logits, targets, "multi_label", "a")
  assert tuned.metrics["micro_f1"] == 1.0
  assert tuned.metrics["untuned_micro_f1"] == 0.0
  fixed = score(logits, targets, "multi_label", "a", thresholds=[0.2])
  assert fixed.metrics["micro_f1"] == pytest.approx(2 / 3)


def test_accuracies_of_groups():
  logits, targets = np.eye(2)[[0, 1, 0]], [0, 1, 1]
  found = score(logits, targets, groups=["en", "zh", "en"]).metrics
  assert (found["accuracy_en"], found["accuracy_zh"]) == (0.5, 1.0)


def test_scores_of_rankings_by_query():
  # The relevant text of query a ranks second, that of query b first.
  queries, names = ["a", "b", "a", "b"], ("accuracy", "mrr_at_10", "ndcg_at_10")
  logits = [[0.0, 1.0], [0.0, 9.0], [0.0, 0.5], [0.0, 0.0]]
  found = score(logits, [0, 1, 1, 0], names=names, groups=queries).metrics
  assert found["mrr_at_10"] == pytest.approx((1 / 2 + 1) / 2)
  assert found["ndcg_at_10"] == pytest.approx((1 / np.log2(3) + 1) / 2)
  assert found["recall_at_1"] == 0.5 and "accuracy_a" not in found
  numbers = [[0.3], [0.9], [0.2], [-1.0]]
  options = {"problem": "regression", "labels": (), "tuning": None}
  found = score(
    numbers, [0.0, 2.0, 1.0, 0.0], names=names, groups=queries, **options
  ).metrics
  assert found["mrr_at_10"] == pytest.approx((1 / 2 + 1) / 2)
  assert set(names[1:]) <= {*results.metric_names("regression", names)}


def test_thresholds_are_read_as_written(tmp_path, capsys):
  folder = str(tmp_path)

  def read(labels, weights="this"):
    found = results.read_thresholds([folder], labels, lambda: weights)
    return None if found is None else found.tolist()

  assert read(["a"]) is None
  answers = results.answer(
    np.zeros([1, 2]), "multi_label", ["a", "b"], np.array([0.25, 0.5])
  )
  results.write_thresholds(folder, answers, lambda: "this")
  assert read(["b", "a"]) == [0.5, 0.25]
  assert not capsys.readouterr().err
  assert read(["b", "a"], "other") is None
  assert "tuned for other weights and is not used" in capsys.readouterr().err
  message = "thresholds.json: expected thresholds with a number for each of c"
  for value in ("[1]", '{"c": true}', '{"c": "1"}', '{"c": NaN}', "{}"):
    text = f'{{"weights": "this", "thresholds": {value}}}'
    (tmp_path / "thresholds.json").write_text(text)
    with pytest.raises(ValueError, match=message):
      read(["c"])


def test_a_temperature_changes_probabilities_but_no_loss():
  logits = np.log([[0.9, 0.1], [0.9, 0.1], [0.1, 0.9]]).astype(np.float32)
  plain = score(logits, [0, 1, 1])
  assert "temperature" not in plain.metrics
  calibrated = score(logits, [0, 1, 1], temperature=2.0)
  # The root of 0.9 over the sum of the roots of 0.9 and 0.1.
  assert calibrated.answers.probabilities.max(-1) == pytest.approx(0.75)
  again = results.calibrate(plain, 2.0, ())
  assert again.metrics == calibrated.metrics
  np.testing.assert_equal(
    again.answers.probabilities, calibrated.answers.probabilities
  )
  assert results.calibrate(plain, None, ()) is plain
  assert calibrated.metrics == {
    **plain.metrics,
    "temperature": 2.0,
    "calibration_error": pytest.approx(0.75 - 2 / 3),
    "untuned_calibration_error": pytest.approx(0.9 - 2 / 3),
  }


def test_a_temperature_is_read_as_fitted(tmp_path, capsys):
  def read(weights="this"):
    return results.read_temperature([str(tmp_path)], lambda: weights)

  def write(logits, targets):
    scores = score(logits, targets)
    results.write_temperature(str(tmp_path), scores, lambda: "this")
    return capsys.readouterr().err

  assert read() is None
  # The data do not decide it.
  sides = np.eye(2)[[0, 1, 0, 1]]
  assert "least at the bound 0.05, since its labels are predicted almost" in (
    write(sides, [0, 1, 0, 1])
  )
  assert "bound 20, since its labels are predicted no better than by cha" in (
    write(sides, [0, 0, 1, 1])
  )
  assert read() == 1.0

  # The margin is 2 log 3, and three of four are right.
  assert not write(2 * np.log(3) * sides, [0, 1, 0, 0])
  path = tmp_path / "temperature.json"
  assert json.loads(path.read_text()) == {
    "weights": "this",
    "softmax": {"temperature": 2.0},
  }
  assert read() == 2.0
  assert read("other") is None
  assert "tuned for other weights and is not used" in capsys.readouterr().err
  for number, message in (
    ("0", "temperature.json: temperature is 0, expected 0.05 to 20; delete it"),
    ("Infinity", "temperature is inf, expected 0.05 to 20"),
    ("null", "expected softmax with a number for each of temperature; delete"),
  ):
    path.write_text(
      f'{{"weights": "this", "softmax": {{"temperature": {number}}}}}'
    )
    with pytest.raises(ValueError, match=message):
      read()


def test_seeds_are_summarised():
  scores = {
    1: score([[1, 0]] * 2, [0, 1]),
    2: score(np.eye(2)[[0, 1] * 5], [0, 1] * 4 + [0, 0]),
    3: score(np.eye(2)[[0, 1] * 5], [0, 1] * 3 + [0, 0, 1, 0]),
  }
  assert results.format_seeds(scores, "accuracy") == (
    "    seed  accuracy\n"
    "       1  0.5000  collapsed: one class only\n"
    "       2  0.9000\n"
    "       3  0.7000\n"
    "    mean  0.7000\n"
    "     std  0.2000\n"
    "    best  0.9000  seed 2"
  )
  # The loss of the second one's two mistakes is the lowest.
  losses = {seed: of_seed.metrics["loss"] for seed, of_seed in scores.items()}
  lowest = results.format_seeds(scores, "loss")
  assert lowest.endswith(f"    best  {losses[2]:.4f}  seed 2")
  assert losses[2] == min(losses.values())


# The section of report.html.


def describe(texts, shares, targets, problem, labels):
  logits = np.asarray(shares, np.float32)
  if problem == "single_label":
    logits = np.log(logits)
  elif problem == "multi_label":
    logits = np.log(logits) - np.log(1 - logits)
  scores = score(logits, targets, problem, labels, thresholds=None)
  return results.describe(map(example, range(len(texts)), texts), scores)


def test_report_of_single_labels():
  text = describe(
    ["a", "bb", "<b>", "dddd", "eeeee"],
    [[0.9, 0.1], [0.2, 0.8], [0.3, 0.7], [0.1, 0.9], [0.6, 0.4]],
    [0, 1, 0, 0, 1],
    "single_label",
    ["ham", "spam"],
  )
  assert report_tables.rows_of(text, "Confusion matrix") == [
    ["ham", "1", "2"],
    ["spam", "1", "1"],
  ]
  assert report_tables.rows_of(text, "By label") == [
    ["ham", "0.5000", "0.3333", "0.4000", "3"],
    ["spam", "0.3333", "0.5000", "0.4000", "2"],
  ]
  assert report_tables.rows_of(text, "By length of the text") == [
    [f"{n} to {n}", "1", accuracy]
    for n, accuracy in enumerate(["1.0000"] * 2 + ["0.0000"] * 3, 1)
  ]
  assert report_tables.rows_of(text, "Most confident mistakes") == [
    ["dddd", "ham", "spam", "0.9000"],
    ["&lt;b&gt;", "ham", "spam", "0.7000"],
    ["eeeee", "spam", "ham", "0.6000"],
  ]
  assert "<title>ham: 0.3333, 1</title>" in text  # Recall and precision.
  # |0.6-0| + |0.7-0| + |0.8-1| + 2 |0.9-0.5|, a fifth of it.
  assert "observed (expected error 0.460): 0.6, 0</title>" in text


def test_report_of_label_sets():
  shares = [[0.9, 0.2], [0.3, 0.4], [0.6, 0.7]]
  targets = [[1, 0], [1, 0], [0, 1]]
  text = describe("abc", shares, targets, "multi_label", "xy")
  assert "Confusion matrix" not in text
  row = report_tables.rows_of(text, "By label")[0]
  assert row == ["x", "0.5000", "0.5000", "0.5000", "2"]
  assert report_tables.rows_of(text, "Most confident mistakes") == [
    ["b", "x", "none", "0.7000"],
    ["c", "y", "x, y", "0.6000"],
  ]
  rows = report_tables.rows_of(text, "By length of the text")
  assert rows == [["1 to 1", "3", "0.3333"]]


def test_report_of_a_regression():
  text = describe(["a", "bb"], [[1.0], [2.5]], [1.0, 4.5], "regression", [])
  assert "<title>example: 4.5, 2.5</title>" in text
  rows = report_tables.rows_of(text, "Most confident mistakes")
  assert rows == [["bb", "4.5", "2.5", "2.0000"]]
  rows = report_tables.rows_of(text, "By length of the text")
  assert rows == [["1 to 1", "1", "0.0000"], ["2 to 2", "1", "2.0000"]]


@pytest.mark.parametrize("count", [20, 21])
def test_matrix_of_few_labels_only(count):
  names = [f"n{i}" for i in range(count)]
  shares = np.full((3, count), 0.1)
  shares[:, 7] = 0.5
  text = describe("abc", shares, [7, 2, 2], "single_label", names)
  assert ("<h3>Confusion matrix</h3>" in text) == (count == 20)
  if count > 20:
    rows = report_tables.rows_of(text, "Most frequent confusions")
    assert rows == [["n2", "n7", "2"]]


def test_the_memory_of_a_section_does_not_grow_by_examples_times_labels():
  count = 2000
  shares = np.eye(count, dtype=np.float32)
  names = [str(number) for number in range(count)]
  targets, texts = np.arange(count), ["a"] * count
  answers = results.answer(shares, "single_label", names)
  scores = results.score(answers, targets, ())
  tracemalloc.start()
  results.describe(map(example, range(count), texts), scores)
  _, peak = tracemalloc.get_traced_memory()
  tracemalloc.stop()
  assert peak < count * count  # Bytes, of a byte for each label of each.


def test_nothing_is_wrong():
  text = describe(["a"], [[0.9, 0.1]], [0], "single_label", ["ham", "spam"])
  assert text.endswith("<h3>Most confident mistakes</h3><p>None.</p>")
