"""Questions with choices as feature files; the scores of what is chosen."""

from collections.abc import Iterable, Iterator
import functools

import numpy as np
import tensorflow as tf

from bert.data import messages, record_writer, tables
from bert.inputs import feature_files, feature_sets, held_out
from bert.report import metrics, plots
from bert.tasks import multiple_choice

# Takes kind, path, settings and the most examples to train on.
find_set = functools.partial(
  feature_sets.find_set, multiple_choice.read_examples
)


# Holds out questions, by their label; a context is in one part only.
split = functools.partial(
  held_out.split,
  describe=lambda example: (
    [str(example.label)],
    (example.context, example.question),
  ),
)


def make_features(data: feature_sets.FeatureSet, folder: str) -> None:
  """Makes the features of a set, or finds them in the folder.

  A row has as many choices, C, as any question: input_ids, input_mask and
  segment_ids, int64 [C * max_seq_length], padded with 0; choice_mask, int64
  [C], 1 for a real choice; label_ids, int64 [1], 0 if it is not known. A
  ValueError says that only some questions have a label, or none in a set to
  train or evaluate on.
  """
  # Filled while rows are made; if the file is there, its index has them.
  facts = {"choices": 0, "labelled": 0, "cut": 0, "unlabelled": []}
  features = data.open_or_make(folder, _make_rows(data, facts), facts)
  facts = features.facts
  length = data.settings.max_seq_length
  num_choices = facts["choices"]  # The most of any question.
  data.layout = feature_sets.Layout(
    (num_choices, length),
    other_features={
      "choice_mask": tf.io.FixedLenFeature([num_choices], tf.int64),
      "label_ids": tf.io.FixedLenFeature([1], tf.int64),
    },
  )
  features.print_summary(
    f"{data.kind}: {len(features):,} examples of up to {num_choices} choices, "
    f"{np.mean(features.lengths):.1f} tokens in the longest on average, "
    f"{facts['cut']:,} truncated to --max_seq_length={length}"
  )

  # To predict, all labels may be missing, but not some: scores would be of an
  # unknown part of the file.
  needs_labels = data.kind != "predict"
  if facts["unlabelled"] and (needs_labels or facts["labelled"]):
    total = len(features)
    missing = total - facts["labelled"]
    raise ValueError(
      messages.describe_unlabelled(facts["unlabelled"], missing, total)
    )


def _make_rows(data, facts) -> Iterator[feature_files.Row]:
  """Yields the rows of a set; `facts` are whole when all are made."""
  # The file is read twice, because all rows have as many choices as the
  # question with the most.
  length = data.settings.max_seq_length
  examples = data.select(data.read())
  most = max(len(example.choices) for example in examples)
  facts["choices"] = most

  features = multiple_choice.make_features(
    data.select(data.read()), data.make_tokenizer(), length
  )
  for index, feature in enumerate(features):
    facts["cut"] += feature.was_cut
    facts["labelled"] += feature.label is not None
    places = facts["unlabelled"]
    if feature.label is None and len(places) < messages.PLACES_SHOWN:
      places.append(feature.location)

    # The choices that a question lacks have no tokens, and the mask 0.
    count = len(feature.input_ids)
    missing = [[]] * (most - count)
    serialized = record_writer.encode_inputs(
      feature.input_ids + missing,
      feature.segment_ids + missing,
      length,
      choice_mask=record_writer.padded_feature([1] * count, most),
      label_ids=record_writer.int64_feature([feature.label or 0]),
    )
    longest = max(map(len, feature.input_ids))
    yield feature_files.Row(serialized, longest, index)


def probabilities(logits: np.ndarray, is_choice: np.ndarray) -> np.ndarray:
  """Returns the softmax of scores [N, C] over real choices, 0 or 1 [N, C]."""
  return metrics.softmax(np.where(is_choice > 0, logits, -np.inf))


def score(probabilities: np.ndarray, labels: np.ndarray) -> dict[str, float]:
  """Computes accuracy and loss, in nats, of probabilities, float [N, C].

  `labels` are the right choices, from 0, [N].
  """
  right = probabilities[np.arange(len(labels)), labels].astype(np.float64)
  smallest = np.finfo(np.float32).tiny  # A share of 0 would cost infinity.
  return {
    "accuracy": float(np.mean(probabilities.argmax(-1) == labels)),
    "loss": float(-np.log(np.maximum(right, smallest)).mean()),
  }


def describe(
  examples: Iterable[multiple_choice.Example],
  probabilities: np.ndarray,
  labels: np.ndarray,
) -> str:
  """Describes choices in HTML, for report.html; reads examples one by one.

  Args:
    examples: the questions.
    probabilities: the probabilities of their choices, float [N, C].
    labels: the right choices, int [N].
  """
  chosen = probabilities.argmax(-1)
  sure = probabilities.max(-1)
  count = probabilities.shape[-1]
  report = metrics.classification_report(labels, chosen, count)
  names = [f"choice {number}" for number in range(count)]

  # The mistakes that the model was surest of, with their texts.
  worst = metrics.find_worst(sure * (chosen != labels))
  rows: dict[int, list[str | float]] = dict.fromkeys(worst.tolist(), [])
  for i, example in enumerate(examples):
    if i in rows:
      text = f"{example.context} {example.question}"
      right = example.choices[labels[i]]
      wrong = example.choices[chosen[i]]
      rows[i] = [text, right, wrong, sure[i].item()]

  parts = [
    plots.number_table(score(probabilities, labels)),
    plots.confusions(report.confusion, names),
    plots.calibration_chart(sure, chosen == labels),
    plots.mistake_table(("right", "chosen", "probability"), rows.values()),
  ]
  return "\n".join(parts)


def write_predictions(
  path: str,
  examples: Iterable[multiple_choice.Example],
  probabilities: np.ndarray,
) -> None:
  """Writes the choice for each example, and the probabilities, as TSV.

  Args:
    path: the file.
    examples: the questions.
    probabilities: the probabilities of their choices, float [N, C].
  """
  names = [f"probability_{number}" for number in range(probabilities.shape[-1])]

  def describe_rows():
    for example, of_choices in zip(examples, probabilities, strict=True):
      predicted = int(of_choices.argmax())
      # An example of fewer choices has empty cells.
      rounded = [float(f"{p:.6g}") for p in of_choices[: len(example.choices)]]
      yield {
        **example._asdict(),
        "id": example.example_id,
        "label": "" if example.label is None else example.label,
        "predicted": predicted,
        "choice": example.choices[predicted],
        **dict(zip(names, rounded, strict=False)),
      }

  columns = ["id", "context", "question", "label", "predicted", "choice"]
  tables.write_rows(path, describe_rows(), columns + names)
