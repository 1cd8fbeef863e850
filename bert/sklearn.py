"""The classifier of run_classifier.py as an estimator of scikit-learn.

  import bert.sklearn

  classifier = bert.sklearn.BertClassifier(model="models/mini", seed=1)
  classifier.fit(texts, labels).predict(["win a prize"])

`fit` calls `run_classifier.run` with the parameters as its flags and the rows
as `train_data`, so it trains what the command line trains. scikit-learn is
optional (requirements/sklearn.txt): no other file imports this one.
"""

from collections.abc import Sequence
import inspect
import os
import pathlib
import tempfile

import numpy as np

from bert import loading, run_classifier
from bert.data import imports
from bert.training import model_selection
from bert.vocabularies import vocabulary_table
from bert.weights import checkpoints

base, multiclass, validation = (
  imports.load(f"sklearn.{name}", "bert.sklearn", "-r requirements/sklearn.txt")
  for name in ("base", "utils.multiclass", "utils.validation")
)

# Flags that X and y replace, which say where rows are and what they mean, and
# those that the methods replace, which say what to do.
_REPLACED = (
  "task_name data_dir train_file eval_file predict_file train_data eval_data "
  "predict_data text_column text_pair_column label_column id_column header "
  "label_columns query_column skip_unlabelled labels label_separator problem "
  "xnli_language seeds do_train do_eval do_predict"
)
# All other flags are parameters, in the order of the program.
_ALL = inspect.signature(run_classifier.run).parameters
_SELF = inspect.Parameter("self", inspect.Parameter.POSITIONAL_ONLY)
_SIGNATURE = inspect.Signature(
  [_SELF]
  + [_ALL[n].replace(default=None) for n in _ALL if n not in _REPLACED.split()]
)

# Endings of the small files that `bert.load` reads: the settings, the labels,
# and a vocabulary of any kind.
_CARRIED = {".json", ".txt"} | {
  os.path.splitext(name)[1]
  for kind in vocabulary_table.KINDS.values()
  for name in (kind.name, *kind.beside)
}


class BertClassifier(base.ClassifierMixin, base.BaseEstimator):
  """Classifies texts: X is a list, array or column of str, y a label for each.

  The parameters are the flags of run_classifier.py, by their names, but for
  those that say where rows are. None, the default of all, stands for a flag
  that is not given; `help(bert.run_classifier.run)` has the defaults of the
  program, and `on_log`. `fit` checks them.

  Without `output_dir` the training is in a temporary folder, which is removed
  with this object. With it the folder stays, and another `fit` of the same rows
  continues there, as the program does.

  A fitted estimator is pickled with its weights, without the state of the
  optimizer, and works where the folder of its training is not.

  Attributes:
    classes_: the labels, sorted, of the type that y had.
    model_: the trained `bert.Model`. Its labels are texts, in the order of the
      program, and its `folder` has report.html.
  """

  def __init__(self, **flags):
    bound = _SIGNATURE.bind(self, **flags)  # A TypeError: there is no such.
    bound.apply_defaults()
    vars(self).update(bound.kwargs)

  # scikit-learn finds the parameters by the signature, and editors do, too.
  __init__.__signature__ = _SIGNATURE

  def __sklearn_tags__(self):
    tags = super().__sklearn_tags__()
    tags.input_tags.two_d_array = False
    tags.input_tags.one_d_array = tags.input_tags.string = True
    return tags

  def fit(self, X, y):
    """Trains a model; returns this estimator.

    Args:
      X: N texts.
      y: N labels of one type: str, int, bool, or float without a fraction.

    Raises:
      TypeError: X or y holds something else.
      ValueError: X and y do not fit, there are no two classes, or a parameter
        is wrong, or is not the one of the earlier training in `output_dir`.
    """
    texts = _list_texts(X)
    classes, numbers, names = _read_labels(y)
    validation.check_consistent_length(texts, numbers)

    flags = self.get_params(deep=False)
    folder = None
    if self.output_dir is None:
      folder = tempfile.TemporaryDirectory(prefix="bert-")
      flags["output_dir"] = folder.name
    # The program sorts names of whole numbers as numbers, also where y has them
    # as texts. Weights of classes are in the order of `classes_` all the same.
    if self.class_weights not in (None, "balanced"):
      flags["labels"] = names
    cells = zip(texts, (names[number] for number in numbers), strict=True)
    rows = [{"text": text, "label": label} for text, label in cells]
    result = run_classifier.run(**flags, train_data=rows)

    # Only now: a fit that fails leaves what an earlier one has made.
    self.classes_, self._names = classes, names
    self.model_, self._folder = result.load(), folder
    return self

  def predict(self, X):
    """Returns the label of each text, as y had it."""
    best = self.predict_proba(X).argmax(1)
    return self.classes_[best]

  def predict_proba(self, X):
    """Returns probabilities, float32 [N, classes], in the order of classes_."""
    validation.check_is_fitted(self)
    probabilities = self.model_.predict_proba(_list_texts(X))
    labels = self.model_.labels
    return probabilities[:, [labels.index(name) for name in self._names]]

  def __getstate__(self):
    state = dict(super().__getstate__())
    if model := state.pop("model_", None):
      # A later fit may have trained the folder further: a ValueError.
      load_again, arguments = model.__reduce__()
      load_again(*arguments)

      del state["_folder"]
      # Not `model.folder`, which another current folder may have, too.
      state["_packed"] = _pack(arguments[0])
    return state

  def __setstate__(self, state):
    packed = state.pop("_packed", None)
    super().__setstate__(state)
    if packed:
      contents, weights = packed
      self._folder = tempfile.TemporaryDirectory(prefix="bert-")
      for name, content in contents.items():
        pathlib.Path(self._folder.name, name).write_bytes(content)
      checkpoints.write(self._folder.name, weights, step=0)
      self.model_ = loading.load(self._folder.name)


def _list_texts(X):
  """Returns the texts of X; a TypeError if it holds something else."""
  texts = X.tolist() if hasattr(X, "tolist") else X
  if isinstance(texts, (str, bytes)) or not isinstance(texts, Sequence):
    raise TypeError(f"X is {type(X).__name__}, expected a list of str")
  for number, text in enumerate(texts):
    if not isinstance(text, str):
      kind = type(text).__name__
      raise TypeError(f"X[{number}] is {kind} ({text!r:.80}), expected str")
  return list(texts)  # `bert.Model` takes a tuple for one input.


def _read_labels(y):
  """Returns the classes, the number of each row's, and their names in files."""
  # NumPy would turn a NaN between texts into the text "nan".
  if len({isinstance(cell, str) for cell in np.asarray(y, object).flat}) > 1:
    raise TypeError("y has both str and other values, or lacks a label")
  labels = validation.column_or_1d(y, warn=True)
  multiclass.check_classification_targets(labels)
  classes, numbers = np.unique(labels, return_inverse=True)
  if len(classes) < 2:
    found = f"{len(classes)} class(es): {classes.tolist()}"
    raise ValueError(f"y: expected two classes or more, found {found}")

  # A float becomes an int, so that the program sorts the names as numbers.
  names = [
    str(int(label)) if isinstance(label, float) else str(label).strip()
    for label in classes.tolist()
  ]
  if len({*names, ""}) <= len(names):
    raise ValueError("y: a label is empty, or equals another but for spaces")
  return classes, numbers, names


def _pack(folder):
  """Returns the files, and the weights by name, that make the model again."""
  folder = pathlib.Path(folder)
  contents = {
    path.name: path.read_bytes()
    for path in folder.iterdir()
    if path.suffix in _CARRIED
  }

  # Those that `bert.load` takes: the best ones, or else the newest.
  if model_selection.best_step(str(folder)) is not None:
    folder /= "best"
  weights = checkpoints.open_weights(checkpoints.latest_checkpoint(str(folder)))
  names = [name for name in weights.shapes if "/adam_" not in name]
  return contents, {name: weights.read(name) for name in names}
