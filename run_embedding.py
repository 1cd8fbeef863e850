"""Trains BERT to make vectors of texts: pairs, scores, sentences or few labels.

  python run_embedding.py --objective=scores --train_file=sts-train.tsv \\
    --eval_file=sts-dev.tsv --model=google-bert/bert-base-uncased \\
    --label_column=0 --text_column=1 --text_pair_column=2 \\
    --do_train=true --do_eval=true --output_dir=/tmp/sts
"""

from bert.cli import embedding_settings, program

EmbeddingSettings = embedding_settings.EmbeddingSettings

if __name__ == "__main__":
  program.start(EmbeddingSettings)

import dataclasses
import functools
import os

import keras
import numpy as np
import tensorflow as tf

from bert import calls, heads, modeling
from bert.cli import devices, fine_tuning, sbert_flags
from bert.tasks import classification, embedding_data
from bert.training import gradient_cache

_NEVER = -1e9  # Far below any logit.


def create_model(
  config: modeling.EncoderConfig, data: fine_tuning.Data, dtype: str
) -> keras.Model:
  """Makes the model; this is the place for another head.

  It takes input_ids, input_mask and segment_ids, int32 [B, S], and a seed for
  its dropout, int32 [2] or None; it returns vectors, float32 [B, H].

  Args:
    config: of the encoder, read from bert_config.json.
    data: the sets and labels of the run.
    dtype: a Keras policy, "float32" or "mixed_bfloat16".
  """
  # Without pairs, a text is its own partner: its two vectors differ by dropout
  # alone (Gao et al., "SimCSE", 2021).
  is_single = data.train and data.train.source["objective"] == "sentences"
  if is_single and not config.hidden_dropout_prob:
    raise ValueError(
      "--objective=sentences: the config's hidden_dropout_prob is 0, and the "
      "copies of a text do not differ: pass --bert_config_file with 0.1"
    )
  count = len(data.labels)
  return heads.ClassifierModel(config, count, dtype, pooling=data.pooling)


def forward(model, features, seed) -> tf.Tensor:
  """Computes the vectors of a batch.

  Args:
    model: from `create_model`.
    features: input_ids, input_mask and segment_ids, int32 [B, T, S].
    seed: of dropout, int32 [2], or None for none.

  Returns:
    The vectors of all texts of each example, float32 [B, T, H].
  """
  _, texts, length = features["input_ids"].shape
  # The length is in the shape only where all batches have one shape (TPUs).
  length = length or tf.shape(features["input_ids"])[2]
  inputs = [
    tf.reshape(features[name], [-1, length]) for name in model.input_names
  ]
  vectors = model.encode(*inputs, seed)
  return tf.reshape(vectors, [-1, texts, vectors.shape[-1]])


def predict(vectors, features) -> dict[str, tf.Tensor]:
  """Returns vectors, float32 [B, T, H], and numbers and text_ids."""
  kept = {name: features[name] for name in ("number", "text_ids")}
  return {"vectors": vectors, **kept}


def contrast(vectors, text_ids, temperature) -> tf.Tensor:
  """Finds a text's partner among the second and third texts of the batch.

  This is InfoNCE (van den Oord et al., 2018): a softmax over the cosines with
  all candidates of the batch, of which the partner is the right one. A text
  never serves as a negative for itself or for a duplicate of itself, nor does
  the partner of a duplicate.

  Args:
    vectors: float32 [B, T, H]; T is 2, or 3 with hard negatives.
    text_ids: int32 [B, T, 2], equal for texts of equal tokens.
    temperature: divides the cosines.

  Returns:
    The loss of each example, float32 [B].
  """
  vectors = tf.unstack(heads.normalize(vectors), axis=1)
  first, second, *third = tf.unstack(text_ids, axis=1)
  # [B, C]: the C candidates are all second texts, then all third ones.
  logits = tf.matmul(vectors[0], tf.concat(vectors[1:], 0), transpose_b=True)

  def are_equal(texts, candidates):  # [B, 2] and [C, 2] to [B, C].
    return tf.reduce_all(texts[:, None] == candidates, -1)

  # A candidate with the words of either text is not a wrong answer.
  candidates = tf.concat([second, *third], 0)
  is_excluded = are_equal(first, candidates) | are_equal(second, candidates)

  # The partner of a text that is equal to this one is a right answer, too. Only
  # second texts are partners; third texts, hard negatives, are excluded by
  # their words alone.
  has_equal_first = are_equal(first, first)
  no_partner = [tf.zeros_like(has_equal_first) for _ in third]
  is_excluded |= tf.concat([has_equal_first, *no_partner], 1)

  # Row b's own partner is candidate b; it was excluded above with the rest.
  own = tf.range(tf.shape(logits)[0])
  is_own = tf.range(tf.shape(logits)[1]) == own[:, None]
  logits = tf.where(is_excluded & ~is_own, _NEVER, logits / temperature)
  return tf.nn.sparse_softmax_cross_entropy_with_logits(own, logits)


def cosent(vectors, numbers, temperature) -> tf.Tensor:
  """Punishes cosines whose order is not that of the numbers: CoSENT.

  The loss of a batch is log(1 + sum(exp((cosine j - cosine i) / temperature)))
  over all i and j of which i has the higher number.

  Args:
    vectors: of the two texts of each example, float32 [B, 2, H].
    numbers: how similar the two are, float32 [B, 1]. Only their order counts.
    temperature: divides the cosines.

  Returns:
    Float32 [B]: every row has the loss of the batch, because the step takes the
    mean over rows.
  """
  scaled = heads.normalize(vectors)
  cosines = tf.reduce_sum(scaled[:, 0] * scaled[:, 1], -1) / temperature

  # At [i, j], positive where the order of the two cosines is wrong.
  excess = cosines - cosines[:, None]
  excess = tf.where(numbers > numbers[:, 0], excess, _NEVER)

  # The 0 is the 1 within the logarithm.
  loss = tf.reduce_logsumexp(tf.concat([[0.0], tf.reshape(excess, [-1])], 0))
  return tf.repeat(loss, tf.shape(cosines)[0])


def loss(vectors, features, settings: EmbeddingSettings):
  """Sums the losses of a batch's vectors; see `training_plan.Loss`.

  Args:
    vectors: from `forward`, float32 [B, T, H].
    features: with number, float32 [B, 1], and text_ids, int32 [B, T, 2].
    settings: the flags; --objective decides which loss it is.
  """
  # Drawn pairs of labels have the numbers 1 and 0, which order as scores do.
  if settings.objective in ("scores", "labels"):
    losses = cosent(vectors, features["number"], settings.temperature)
  else:
    losses = contrast(vectors, features["text_ids"], settings.temperature)
  weight = tf.cast(tf.shape(features["text_ids"])[0], tf.float32)
  return {"embedding_loss": (tf.reduce_sum(losses), weight)}


def find_set(
  settings: EmbeddingSettings, kind: str, path: str
) -> embedding_data.EmbeddingSet:
  """Returns the examples of a file.

  Args:
    settings: the flags.
    kind: "train", "eval" or "predict".
    path: the file.
  """
  # Only --objective=scores learns from numbers, so only its training needs
  # numbers within bounds. Evaluations always compare with numbers: scores, or
  # how relevant a text is.
  learns_numbers = settings.objective == "scores"
  bounds = (settings.min_score, settings.max_score)
  if kind == "train" and not learns_numbers:
    bounds = ()

  # `source` is part of the key of the feature file: another objective or other
  # columns make a new one.
  table = embedding_settings.find_table(settings, kind, path)
  return embedding_data.EmbeddingSet(
    kind=kind,
    settings=embedding_data.EmbeddingFeatureSettings(
      **settings.deciding("features"), bounds=bounds
    ),
    paths=(path,),
    source={"table": table._asdict(), "objective": settings.objective},
    read=functools.partial(classification.read_examples, table),
    limit=settings.max_train_examples,
  )


def open_data(settings: EmbeddingSettings) -> fine_tuning.Data:
  """Finds the examples; nothing is written."""
  paths = embedding_settings.find_files(settings)
  sets = {kind: find_set(settings, kind, path) for kind, path in paths.items()}

  # Before pairs of labelled texts are drawn, so that no text is in both parts.
  if settings.eval_share and "train" in sets:
    sets["train"], sets["eval"] = embedding_data.split(
      sets["train"],
      settings.eval_share,
      settings.seed,
      by_label=settings.objective == "labels",
    )

  # What most objectives train is exported as a model that makes vectors.
  labels = ()
  problem_name = "features"
  answer_settings = {}
  # Later runs read pairs, which are in other columns than sentences.
  if settings.do_train and settings.objective != "sentences":
    answer_settings = embedding_settings.describe_columns(settings)
  if settings.objective == "labels":
    problem_name = "single_label"  # It is exported as a classifier.
    labels = classification.find_labels(sets["train"].examples(), problem_name)

    # A row of a feature file holds the number of its label.
    encode_label = classification.make_label_encoder(labels, problem_name)
    sets = {
      kind: embedding_data.number_labels(data, labels, encode_label)
      for kind, data in sets.items()
    }

    # The classifier is fitted to the texts, of which training gets pairs.
    sets["fit"] = dataclasses.replace(sets["train"], suffix="_fit")
    sets["train"] = embedding_data.draw_pairs(sets["fit"], settings.seed)

    # Exports of a classifier ask for these; run_classifier.py has flags.
    answer_settings |= {
      "doc_stride": None,
      "window_pooling": "mean",
      "has_text_pair": False,
    }

  return fine_tuning.Data(
    feature_settings=None,
    metric=embedding_settings.choose_metric(settings),
    model_settings={"problem": problem_name, **settings.deciding("model")},
    train=sets["train"] if settings.do_train else None,
    dev=[sets[kind] for kind in ("eval", "fit") if kind in sets],
    test=[sets["predict"]] if "predict" in sets else (),
    labels=labels,
    answer_settings=answer_settings,
  )


def fit_head(run: fine_tuning.Run) -> None:
  """Fits the classifier of labels to the vectors as they are now."""
  # The last set is "fit": the labelled texts themselves, see `open_data`.
  results = run.predict(run.data.dev[-1], run.settings.eval_batch_size)
  weights, bias = embedding_data.fit_classifier(results, len(run.data.labels))
  run.model.output_weights.assign(weights)
  run.model.output_bias.assign(bias)


def evaluate(run: fine_tuning.Run) -> dict[str, float]:
  """Scores the vectors of the evaluation data; of labels, the classifier."""
  results = run.predict(run.data.dev[0], run.settings.eval_batch_size)
  if not run.data.labels:
    return embedding_data.score(results, run.settings.objective == "pairs")

  # The model returns vectors here, so the classifier is applied to them.
  weights = run.model.output_weights.numpy()
  bias = run.model.output_bias.numpy()
  logits = results["vectors"][:, 0] @ weights.T + bias
  right = results["number"][:, 0] == logits.argmax(-1)
  return {"accuracy": float(np.mean(right))}


def write_predictions(run: fine_tuning.Run) -> None:
  """Writes the cosine of every pair."""
  [dataset] = run.data.test
  results = run.predict(dataset, run.settings.predict_batch_size)
  if run.is_chief:
    path = os.path.join(run.folder, "predictions.tsv")
    pairs = dataset.examples()
    embedding_data.write_predictions(path, pairs, results["vectors"])


def main() -> None:
  """Trains, evaluates and predicts, as the flags ask."""
  # Nothing is written yet: wrong flags and wrong files must cost nothing.
  settings = fine_tuning.read_settings(EmbeddingSettings)

  # A model of sentence-transformers says how it pools; training keeps that.
  settings = sbert_flags.follow_start(settings)

  # TensorFlow wants its devices chosen before the first tensor is made.
  strategy = devices.make_strategy(settings)
  data = open_data(settings)

  # From here on the output folder is ours; earlier runs in it must agree.
  with fine_tuning.open_run(settings, data, strategy) as run:
    # Texts become ids, once: later runs read the same feature files. A row that
    # cannot be read ends the run here, before there is a model.
    for dataset in data.sets:
      embedding_data.make_features(dataset, run.local_folder)
    # This also loads weights: those of --output_dir, or else of --model.
    run.make_model(create_model, predict, forward)

    # Other programs and sentence-transformers read from these how to pool. An
    # evaluation may have another --max_seq_length; the model stays as it is.
    if run.is_chief and settings.do_train:
      sbert_flags.write_files(settings, run.config)

    # bert/training/loop.py repeats the update of bert/training/step.py. On the
    # way, the scores of the evaluation set choose the best weights.
    if settings.do_train:
      run.train(
        functools.partial(loss, settings=settings),
        lambda: evaluate(run),
        # So that every checkpoint has a classifier of its own vectors.
        before_save=functools.partial(fit_head, run) if data.labels else None,
        # The losses compare all rows of the batch, on whichever replica.
        make_passes=functools.partial(
          gradient_cache.make_passes, compares=("number", "text_ids")
        ),
      )

    if settings.do_eval:
      scores = evaluate(run)
      if run.is_chief:
        run.write_eval_results(scores)
    if settings.do_predict:
      write_predictions(run)


# The same from Python, see docs/python.md.
run = calls.make_run(main, EmbeddingSettings)


if __name__ == "__main__":
  program.run_program(main)
