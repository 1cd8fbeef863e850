"""The classifier as an estimator of scikit-learn: its contract, and equality.

A training takes about two seconds, so the trained ones are shared.
"""

import collections
import functools
import inspect
import pathlib
import pickle
import re

import numpy as np
import pytest
from scipy import sparse
from sklearn import base, exceptions, model_selection, pipeline, preprocessing
from sklearn.utils import estimator_checks, validation

from bert import loading, run_classifier
import bert.sklearn
from bert.sklearn import BertClassifier
import paths
import program_flags
import tiny

TEXTS, LABELS = map(list, zip(*tiny.make_examples(range(50)), strict=True))
NEW = [text for text, _ in tiny.make_examples(range(50, 63))]
SMALL_FILES = ("bert_config.json", "vocab.txt", "labels.txt", "settings.json")
SMALL_FILES += ("prediction.json", "training.json")


@pytest.fixture(name="make", scope="module")
def write_model(tmp_path_factory):
  """A function that makes an estimator of a tiny BERT."""
  folder = tmp_path_factory.mktemp("model")
  tiny.write_model(folder)
  files = {
    "bert_config_file": str(folder / "config.json"),
    "vocab_file": str(folder / "vocab.txt"),
  }
  given = {"max_seq_length": 16, "train_batch_size": 16, "learning_rate": 5e-3}
  return functools.partial(BertClassifier, **files, **given)


@pytest.fixture(name="fitted", scope="module")
def fit_once(make):
  """An estimator that has learned the texts by heart."""
  return make(num_train_epochs=12).fit(TEXTS, LABELS)


def test_it_predicts_what_the_command_line_predicts(fitted, tmp_path):
  (tmp_path / "train.tsv").write_text(
    "".join(
      f"{label}\t{text}\n"
      for label, text in [("label", "text"), *zip(LABELS, TEXTS, strict=True)]
    )
  )
  tiny.write_tsv(tmp_path / "test.tsv", range(50, 63))
  given = {k: v for k, v in fitted.get_params().items() if v is not None}
  given |= {"task_name": "file", "data_dir": tmp_path, "do_train": True}
  given |= {"do_predict": True, "output_dir": tmp_path / "out"}
  program_flags.succeed(program_flags.command("run_classifier", **given))

  with open(tmp_path / "out" / "predictions.tsv") as file:
    header, *rows = (line.rstrip("\n").split("\t") for line in file)
  assert header[-3:] == ["predicted", "probability_neg", "probability_pos"]
  assert fitted.predict(NEW).tolist() == [row[-3] for row in rows]
  expected = np.array([row[-2:] for row in rows], float)
  np.testing.assert_allclose(fitted.predict_proba(NEW), expected, atol=2e-6)

  # The weights are the same to the bit.
  trained = loading.load(tmp_path / "out")
  assert fitted.model_.weights_sha256 == trained.weights_sha256


@pytest.mark.slow
def test_it_learns_and_scores(fitted):
  assert fitted.classes_.tolist() == ["neg", "pos"]
  assert fitted.score(TEXTS, LABELS) == 1
  probabilities = fitted.predict_proba(np.array(NEW))
  assert probabilities.shape == (13, 2) and probabilities.dtype == np.float32
  np.testing.assert_allclose(probabilities.sum(1), 1, atol=1e-6)
  assert fitted.predict_proba([]).shape == (0, 2)
  assert fitted.predict([]).shape == (0,)


@pytest.mark.parametrize(
  ("y", "classes", "names"),
  [
    ([10, 9, -2], [-2, 9, 10], ["-2", "9", "10"]),
    ([2.0, 10.0, 1.0], [1.0, 2.0, 10.0], ["1", "2", "10"]),
    (np.array([True, False]), [False, True], ["False", "True"]),
    (["10", "9"], ["10", "9"], ["10", "9"]),
    (np.array(["b, c", " a"], object), [" a", "b, c"], ["a", "b, c"]),
    (np.array(["pos", "neg"]), ["neg", "pos"], ["neg", "pos"]),
  ],
)
@pytest.mark.slow
def test_labels_keep_their_type(y, classes, names):
  found, numbers, named = bert.sklearn._read_labels(y)
  assert found.tolist() == classes
  assert {type(label) for label in found.tolist()} == {type(c) for c in classes}
  assert found.dtype == np.asarray(y).dtype
  assert [found[number] for number in numbers] == list(y)
  assert named == names


@pytest.mark.slow
def test_columns_of_pandas_are_taken():
  pandas = pytest.importorskip("pandas")
  table = pandas.DataFrame({"text": NEW, "label": LABELS[:13]}, range(5, 18))
  assert bert.sklearn._list_texts(table["text"]) == NEW
  for column in (table["label"], table["label"].astype("category")):
    found, numbers, _ = bert.sklearn._read_labels(column)
    assert [found[number] for number in numbers] == LABELS[:13]

  table.loc[5, ["text", "label"]] = None
  with pytest.raises(TypeError, match=r"X\[0\] is float \(nan\), expected str"):
    bert.sklearn._list_texts(table["text"])
  with pytest.raises(TypeError, match="lacks a label"):
    bert.sklearn._read_labels(table["label"])
  with pytest.raises(TypeError, match="X is DataFrame, expected a list of str"):
    bert.sklearn._list_texts(table[["text"]])


@pytest.mark.slow
def test_predictions_are_labels_as_y_had_them(make):
  """Each label has a word of its own, so that another order would be seen."""
  y = ["10", "9", "100"] * 16
  texts = [f"{word} film" for word in ("good", "bad", "cast")] * 16
  classifier = make(num_train_epochs=16).fit(tuple(texts), y)
  # NumPy sorts otherwise than the program, which sees that they are numbers.
  assert classifier.classes_.tolist() == ["10", "100", "9"]
  assert classifier.model_.labels == ("9", "10", "100")
  assert classifier.predict(texts).tolist() == y
  columns = classifier.predict_proba(texts).argmax(1)
  assert classifier.classes_[columns].tolist() == y


@pytest.mark.slow
def test_weights_of_classes_are_in_the_order_of_classes(make):
  """The texts say nothing, so that the weights alone decide."""
  weights = [1, 20]  # The program would sort "9" first.
  classifier = make(class_weights=weights, num_train_epochs=8)
  classifier.fit(["film"] * 48, ["9", "10"] * 24)
  assert classifier.classes_.tolist() == ["10", "9"]
  assert classifier.predict(["film"]).tolist() == ["9"]


@pytest.mark.slow
def test_a_pickle_needs_no_folder(fitted):
  pickled = pickle.dumps(fitted)
  folder = pathlib.Path(fitted.model_.folder)
  [checkpoint] = folder.glob("model.ckpt-*.data-*")
  others = sum((folder / name).stat().st_size for name in SMALL_FILES)
  # Adam's two numbers for each weight stay behind: two thirds of a checkpoint.
  assert len(pickled) < others + 0.4 * checkpoint.stat().st_size + 3000

  copy = pickle.loads(pickled)
  expected = fitted.predict_proba(NEW)
  np.testing.assert_array_equal(copy.predict_proba(NEW), expected)
  assert copy.get_params() == fitted.get_params()

  # A copy of the copy, when the folder of the first is gone.
  pickled, path = pickle.dumps(copy), pathlib.Path(copy.model_.folder)
  assert path.exists() and path != folder
  del copy
  assert not path.exists()
  second = pickle.loads(pickled)
  np.testing.assert_array_equal(second.predict_proba(NEW), expected)


@pytest.mark.slow
def test_a_pickle_is_of_the_folder_of_the_fit(make, tmp_path, monkeypatch):
  """Not of that with this name in another current folder."""
  (tmp_path / "other").mkdir()
  monkeypatch.chdir(tmp_path / "other")
  make(output_dir="out").fit(TEXTS, LABELS[::-1])
  monkeypatch.chdir(tmp_path)
  classifier = make(output_dir="out").fit(TEXTS, LABELS)
  expected = classifier.predict_proba(NEW)
  monkeypatch.chdir(tmp_path / "other")
  copy = pickle.loads(pickle.dumps(classifier))
  np.testing.assert_array_equal(copy.predict_proba(NEW), expected)


@pytest.mark.slow
def test_a_pickle_has_the_best_weights(make):
  classifier = make(eval_share=0.3, eval_every_steps=2, num_train_epochs=3)
  classifier.fit(TEXTS, LABELS)
  assert (pathlib.Path(classifier.model_.folder) / "best").is_dir()
  copy = pickle.loads(pickle.dumps(classifier))
  assert copy.model_.weights_sha256 == classifier.model_.weights_sha256


@pytest.mark.slow
def test_a_pickle_has_a_vocabulary_of_any_kind(make):
  classifier = make(num_train_epochs=1, strip_accents=False).fit(TEXTS, LABELS)
  folder = pathlib.Path(classifier.model_.folder)
  assert (folder / "vocab.accents").exists()
  copy = pickle.loads(pickle.dumps(classifier))
  np.testing.assert_array_equal(
    copy.predict_proba(NEW), classifier.predict_proba(NEW)
  )


@pytest.mark.slow
def test_a_fit_that_fails_leaves_what_was_fitted(make):
  classifier = make(num_train_epochs=1).fit(TEXTS, LABELS)
  expected = classifier.predict_proba(NEW)
  with pytest.raises(ValueError, match="num_train_epochs"):
    classifier.set_params(num_train_epochs=-1).fit(TEXTS, LABELS)
  with pytest.raises(TypeError, match="expected str"):
    classifier.predict([1])
  np.testing.assert_array_equal(classifier.predict_proba(NEW), expected)

  # The folder of a training goes with its estimator.
  folder = pathlib.Path(classifier.model_.folder)
  assert (folder / "report.html").exists()
  del classifier
  assert not folder.exists()


@pytest.mark.slow
def test_a_folder_with_a_name_stays_and_goes_on(make, tmp_path):
  out = tmp_path / "out"
  first = make(num_train_epochs=1, output_dir=out).fit(TEXTS, LABELS)
  expected = first.predict_proba(NEW)
  np.testing.assert_array_equal(loading.load(out).predict_proba(NEW), expected)

  # 50 texts in batches of 16 are 3 updates an epoch, and 6 in two.
  again = make(num_train_epochs=2, output_dir=out).fit(TEXTS, LABELS)
  assert [path.name for path in out.glob("*.index")] == ["model.ckpt-6.index"]

  # The first one's folder now has the weights of the second.
  with pytest.raises(ValueError, match="were trained further, or replaced"):
    pickle.dumps(first)

  before = paths.contents(out)
  with pytest.raises(ValueError, match="learning_rate"):
    again.set_params(learning_rate=0.1).fit(TEXTS, LABELS)
  with pytest.raises(ValueError, match="train_data"):
    again.set_params(learning_rate=5e-3).fit(TEXTS[1:], LABELS[1:])
  assert paths.differences(paths.contents(out), before) == []


def strip_html(texts):
  return [re.sub("<.*?>", "", text) for text in texts]


@pytest.mark.slow
def test_it_works_in_a_pipeline_and_a_search(make):
  """Words stand between tags; the search finds that a rate of 0 learns none."""
  texts, y = map(list, zip(*tiny.make_examples(range(120)), strict=True))
  html = [f"<p>{text.replace(' ', '<br/> ')}</p>" for text in texts]
  steps = [
    ("strip", preprocessing.FunctionTransformer(strip_html)),
    ("bert", make(num_train_epochs=12)),
  ]
  search = model_selection.GridSearchCV(
    pipeline.Pipeline(steps),
    {"bert__learning_rate": [0.0, 5e-3]},
    cv=2,
    error_score="raise",
  )
  search.fit(html, y)
  assert search.best_params_ == {"bert__learning_rate": 5e-3}
  before, after = search.cv_results_["mean_test_score"]
  assert before < 0.6 and after > 0.9
  assert search.predict(html).tolist() == y
  assert search.best_estimator_.named_steps["bert"].predict(texts).tolist() == y


@pytest.mark.slow
def test_cross_validation_gives_the_scores_of_its_folds(make):
  classifier = make(num_train_epochs=4)
  folds = model_selection.StratifiedKFold(2)
  scores = model_selection.cross_val_score(classifier, TEXTS, LABELS, cv=folds)
  X, y = np.array(TEXTS), np.array(LABELS)  # noqa: N806
  train, test = next(folds.split(X, y))
  assert scores[0] == classifier.fit(X[train], y[train]).score(X[test], y[test])


@pytest.mark.slow
def test_processes_of_joblib_send_fitted_estimators(make):
  """Two processes of their own, which import TensorFlow."""
  classifier = make(num_train_epochs=4)
  alone, parallel = (
    model_selection.cross_validate(
      classifier, TEXTS, LABELS, cv=2, n_jobs=jobs, return_estimator=True
    )
    for jobs in (1, 2)
  )
  assert alone["test_score"].tolist() == parallel["test_score"].tolist()
  for first, second in zip(
    alone["estimator"], parallel["estimator"], strict=True
  ):
    np.testing.assert_allclose(
      first.predict_proba(NEW), second.predict_proba(NEW), atol=1e-6
    )


@pytest.mark.slow
def test_parameters_are_the_flags(make):
  classifier = BertClassifier(model="models/mini", learning_rate=3e-5)
  given = classifier.get_params()
  assert given["model"] == "models/mini" and given["seed"] is None
  assert repr(classifier) == (
    "BertClassifier(learning_rate=3e-05, model='models/mini')"
  )
  assert base.clone(classifier).get_params() == given

  # Every flag is a parameter, or X, y and the methods say it.
  flags = {*run_classifier.ClassifierSettings.flags_by_name(), "on_log"}
  replaced = flags - given.keys()
  assert given.keys() <= flags
  assert replaced <= set(bert.sklearn._REPLACED.split())
  assert {"train_file", "problem", "labels", "seeds", "do_eval"} <= replaced


@pytest.mark.parametrize(
  ("X", "y", "message"),
  [
    ("a text", ["a"], "X is str, expected a list of str"),
    (None, ["a"], "X is NoneType, expected a list of str"),
    ({"a": 1, "b": 2}, [1, 2], "X is dict, expected a list of str"),
    (sparse.eye_array(2).tocsr(), [1, 2], "X is csr_array, expected a list"),
    (iter(TEXTS), LABELS, "X is list_iterator, expected"),
    ([["a"], ["b"]], [1, 2], "X[0] is list (['a']), expected str"),
    (np.array([["a"], ["b"]]), [1, 2], "X[0] is list (['a']), expected str"),
    (np.eye(2), [1, 2], "X[0] is list ([1.0, 0.0]), expected str"),
    (["a", float("nan")], [1, 2], "X[1] is float (nan), expected str"),
    (["a", None], [1, 2], "X[1] is NoneType (None), expected str"),
    ([b"a", b"b"], [1, 2], "X[0] is bytes (b'a'), expected str"),
    ([], [], "or more, found 0 class(es): []"),
    (TEXTS, LABELS[:-1], "inconsistent numbers of samples: [50, 49]"),
    (TEXTS, None, "y should be a 1d array, got an array of shape ()"),
    (TEXTS, ["a"] * 50, "or more, found 1 class(es): ['a']"),
    (TEXTS, [*LABELS[:-1], None], "y has both str and other values"),
    (TEXTS, [*LABELS[:-1], float("nan")], "y has both str and other values"),
    (TEXTS, [1] + [float("nan")] * 49, "y contains NaN"),
    (TEXTS, np.linspace(0, 1, 50), "Unknown label type: continuous"),
    (TEXTS, [[0, 1]] * 50, "y should be a 1d array"),
    (TEXTS, ["a", "a "] * 25, "equals another but for spaces"),
    (TEXTS, ["", "a"] * 25, "a label is empty"),
  ],
)
def test_wrong_data_are_one_error_and_write_nothing(
  make, tmp_path, X, y, message
):
  classifier = make(output_dir=tmp_path / "out")
  with pytest.raises((ValueError, TypeError)) as error:
    classifier.fit(X, y)
  assert message in str(error.value)
  assert "\n" not in str(error.value)
  assert not (tmp_path / "out").exists()
  with pytest.raises(exceptions.NotFittedError):
    classifier.predict(TEXTS)


@pytest.mark.slow
def test_wrong_parameters_are_one_error(make, tmp_path):
  with pytest.raises(TypeError, match="unexpected keyword .*'lerning_rate'"):
    BertClassifier(lerning_rate=1)
  with pytest.raises(TypeError, match="unexpected keyword .*'train_file'"):
    BertClassifier(train_file="train.tsv")
  with pytest.raises(ValueError, match="Invalid parameter 'lerning_rate'"):
    make().set_params(lerning_rate=1)
  with pytest.raises(ValueError, match="--learning_rate=x: expected a number"):
    make(learning_rate="x").fit(TEXTS, LABELS)
  (tmp_path / "file").write_text("")
  with pytest.raises(ValueError, match="a file; expected a folder"):
    make(output_dir=tmp_path / "file").fit(TEXTS, LABELS)
  with pytest.raises(TypeError, match="sample_weight"):
    make().fit(TEXTS, LABELS, sample_weight=np.ones(50))


# The checks of scikit-learn.


class OfNumbers(BertClassifier):
  """Takes rows of numbers, which the checks make, and writes them as texts.

  A number becomes a word by its size, so that there is something to learn. Rows
  of another length than in `fit` are an error here: they come first in a check
  that says much of `predict_proba` as well.
  """

  def __init__(self, **flags):
    super().__init__(**flags)

  __init__.__signature__ = inspect.signature(BertClassifier.__init__)

  def __sklearn_tags__(self):
    tags = super().__sklearn_tags__()
    tags.input_tags.one_d_array = tags.input_tags.string = False
    tags.input_tags.two_d_array = True
    return tags

  def fit(self, X, y):
    self._width = np.asarray(X).shape[1]
    return super().fit(self._write(X), y)

  def predict_proba(self, X):
    validation.check_is_fitted(self)
    if np.asarray(X).shape[1] != self._width:
      raise ValueError("another number of columns")
    return super().predict_proba(self._write(X))

  def _write(self, X):
    numbers = np.clip(np.asarray(X, float) * 2 + 7, 0, 13).astype(int)
    words = np.array(tiny.VOCABULARY[-14:])
    return [" ".join(words[row]) for row in numbers]


@pytest.mark.slow
def test_the_tags_say_that_x_is_texts(make):
  tags = make().__sklearn_tags__()
  assert tags.estimator_type == "classifier"
  assert tags.input_tags.string and tags.input_tags.one_d_array
  assert not tags.input_tags.two_d_array and not tags.input_tags.sparse
  # So scikit-learn itself has no check for it.
  with pytest.warns(exceptions.SkipTestWarning, match="Can't test estimator"):
    checks = estimator_checks.estimator_checks_generator(make())
    names = {check.func.__name__ for _, check in checks}
  assert names == {"check_estimator_cloneable"}


# Constructor, parameters and tags: these train nothing.
@pytest.mark.parametrize(
  "name",
  [
    "check_estimator_cloneable",
    "check_estimator_tags_renamed",
    "check_valid_tag_types",
    "check_estimator_repr",
    "check_no_attributes_set_in_init",
    "check_do_not_raise_errors_in_init_or_set_params",
    "check_mixin_order",
    "check_parameters_default_constructible",
    "check_get_params_invariance",
    "check_set_params",
    "check_estimators_unfitted",
  ],
)
@pytest.mark.slow
def test_checks_of_scikit_learn_for_the_class(make, name):
  getattr(estimator_checks, name)("BertClassifier", make())


# The checks that the table of the page names, with the reason of their row.
ROWS = re.findall(
  r"^\| (`check_.*`) \| (.*) \|$",
  (paths.ROOT / "docs" / "python.md").read_text(encoding="utf-8"),
  re.MULTILINE,
)
NOT_APPLICABLE = {
  name: reason for names, reason in ROWS for name in re.findall(r"\w+", names)
}


@pytest.mark.slow  # Sixty trainings: three minutes.
def test_all_other_checks_of_scikit_learn_pass(make):
  """Every check of the table fails, so that it names none that applies."""
  given = {"train_batch_size": 4, "learning_rate": 1e-3}
  classifier = make(num_train_epochs=16, **given)
  results = estimator_checks.check_estimator(
    OfNumbers(**classifier.get_params()),
    expected_failed_checks=NOT_APPLICABLE,
    on_skip=None,
    on_fail=None,
  )
  found = collections.defaultdict(dict)
  for result in results:
    found[result["status"]][result["check_name"]] = str(result["exception"])
  assert found["failed"] == {}
  assert found["xfail"].keys() == NOT_APPLICABLE.keys()
  assert len(found["passed"]) > 35
