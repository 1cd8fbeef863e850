"""One update of the parameters: forward, backward, clipping, AdamW.

A task says three things, and only the first touches the model:

  forward(model, features, seed) -> outputs          the only call of the model
  loss(outputs, features) -> {name: (sum, weight)}   of the rows of a batch
  predict(outputs, features) -> {name: tensor}       see prediction.py

A loss is a sum over its rows, never a mean. Only the step divides, by the
weight of the whole batch: over all replicas and all accumulated micro-batches.
One device with 32 rows, two with 16 and four accumulated micro-batches of 8
therefore make the same update, but for the masks of dropout, which each draws
by itself. The weights of losses depend on the features alone, so that they can
be added up before the first pass. The sum of the entries named `..._loss` is
minimised; all other entries are only reported.

The way from a program to an update; a replica is a device with a copy of the
model's parameters:

  main, run.train     of a program: the object `run` hands model, loss and plan
                      to
  loop.train          which resumes a checkpoint, builds the loop and calls
  loop._run_steps     which has the `while` over all updates; it reports, saves
                      and evaluates, and calls for some updates at a time
  run_steps           of `make_runner`, and by it `train_and_fetch`: names
                      errors, makes Python's numbers of tensors, and calls
  train_steps         the compiled loop: each round takes a batch, and calls
  replica_step        on each replica. `sum_weights` gives the weights of its
                      losses; added up over the replicas they are the divisors.
                      It calls the next function, adds up the results of all
                      replicas, and calls the last one
  forward_backward    for its share of the batch, or for one micro-batch after
                      the other (`make_passes`): `forward` and `loss` under a
                      gradient tape
  clip_and_apply      in optimization.py: clipping by the global norm, AdamW

`train_steps`, `replica_step` and `forward_backward` are inner functions of
`_make_train_steps`, `make_replica_step` and `make_forward_backward`. Python
runs them once, to record their operations as a graph (`tf.function`, as
torch.compile does), and the loop runs the graph. The encoder's layer is mostly
recorded once for all layers (bert/training/recorded_layer.py). AutoGraph would
also record the `if` and `for` of Python; in this file none depends on a tensor,
so it is off.
"""

from collections.abc import Callable
from typing import NamedTuple

import tensorflow as tf

from bert import modeling, optimization
from bert.inputs import training_input
from bert.training import prediction, training_plan

Features = training_input.Features


class StepResults(NamedTuple):
  """What the passes over a replica's share of the batch return.

  Everything in it adds up: the results of replicas and of micro-batches, added
  element by element, are the results of the whole batch.
  """

  # Sums over the rows, by the name of the loss; float32 [].
  loss_sums: dict[str, tf.Tensor]
  # The rows' part of the gradient of the batch's mean loss, one per variable
  # of the optimizer. Float32, but bfloat16 for the matrices by which BERT
  # multiplies in bfloat16.
  gradients: list[tf.Tensor]
  # Only fine-tuning on CPU and GPU needs this, else it is 0: how repeated words
  # count in clipping, float32 [variables]; see `optimization.row_norms`.
  row_norms: tf.Tensor


# (features, seed, divisors by the name of the loss) -> results.
Passes = Callable[
  [Features, tf.Tensor | None, dict[str, tf.Tensor]], StepResults
]


def make_replica_step(
  task: training_plan.TrainingTask,
  passes: Passes,
  global_step: tf.Variable,
  sum_weights: Callable[[Features], dict[str, tf.Tensor]],
) -> Callable[[Features], tuple[tf.Tensor, tf.Tensor, tf.Tensor]]:
  """Builds the update that one replica makes from its share of a batch.

  Args:
    task: says the plan and the optimizer, which updates the variables.
    passes: from `make_passes` here or in bert/training/gradient_cache.py.
    global_step: int64 [], the number of updates made so far. It decides the
      learning rate and the dropout; the caller counts it up.
    sum_weights: from `make_sum_weights`.

  Returns:
    A function of the features of the share, each [rows, ...]. It updates the
    variables and returns the losses, float32 [names, 2], each a sum over the
    batch and its weight, in the order of their names; the norm of the gradients
    before clipping; and the learning rate.
  """

  def replica_step(features):
    # Says which of the replicas this is. On a single device it is number 0 of
    # 1, and `all_reduce` returns what it gets.
    context = tf.distribute.get_replica_context()

    # Dropout is a function of (seed, step, replica): a resumed run draws what
    # the uninterrupted one would have drawn. TensorFlow's stateless seeds are
    # two integers; the second is free.
    seed = modeling.fold_in(tf.constant([task.plan.seed, 0]), global_step)
    seed = modeling.fold_in(seed, context.replica_id_in_sync_group)

    # The divisors must be known before the first backward pass, so that the
    # gradients of all shares are in the same unit. No model runs for them, see
    # `make_sum_weights`.
    weights = context.all_reduce("SUM", sum_weights(features))
    divisors = weights
    if task.loss_factors is not None:
      # Only training on several tasks at once needs this: the losses of a task
      # count more or less, by the step.
      factor = tf.gather(tf.constant(task.loss_factors), global_step)
      divisors = {name: weight / factor for name, weight in weights.items()}

    results = passes(features, seed, divisors)
    # In bfloat16, a sum over many replicas would lose what each of them adds.
    if context.num_replicas_in_sync > 1:
      results = to_float32(results)
    results = context.all_reduce("SUM", results)
    norm, rate = task.optimizer.clip_and_apply(
      results.gradients, global_step, results.row_norms
    )

    losses = [
      [results.loss_sums[name], weights[name]] for name in sorted(weights)
    ]
    return tf.stack(losses), norm, rate

  return replica_step


def make_forward_backward(
  task: training_plan.TrainingTask, counts_rows: bool
) -> Passes:
  """Builds the two passes over the rows of a share, or of a micro-batch.

  Args:
    task: says model, forward and loss, and by its optimizer which variables
      are trained, in which order.
    counts_rows: False on TPUs, where all gradients of the original are dense:
      `row_norms` are then 0, and clipping takes the dense norm, as there.

  Returns:
    A function of features, seed (int32 [2]) and divisors (float32 [], by the
    name of the loss), which returns `StepResults`.
  """
  model = task.model
  optimizer = task.optimizer

  # In bfloat16 every layer would cast its kernel from float32, and return a
  # float32 gradient. Cast once, here, the gradient stays bfloat16: half the
  # memory to write and to read. In float32 nothing is cast: the list is empty.
  # The heads have few kernels, which their layers cast as usual.
  trained = set(optimizer.paths)
  kernels = [
    v for v in prediction.matrices_to_cast(model.bert) if v.path in trained
  ]

  # The loop is already a graph, in which this is a function of its own. That
  # makes it neither faster nor slower, but TensorFlow optimizes the graph of
  # each function by itself: inlined, the sums of micro-batches would be rounded
  # in another way. A run that was begun with this line must resume with it.
  @tf.function(autograph=False)
  def forward_backward(features, seed, divisors):
    # While the scope `substituted` lasts, a layer that reads a kernel gets the
    # cast one. A tape follows variables by itself, but other tensors, such as
    # these casts, only after `watch`.
    cast = [tf.cast(v.value, model.bert.compute_dtype) for v in kernels]
    with tf.GradientTape() as tape, prediction.substituted(kernels, cast):
      tape.watch(cast)
      outputs = task.forward(model, features, seed)
      losses = task.loss(outputs, features)

      # The rows' part of the means over the whole batch: the parts of all
      # rows add up to the means. A divisor is 0 if no row of the batch counts.
      parts = [
        tf.math.divide_no_nan(loss_sum, divisors[name])
        for name, (loss_sum, _) in losses.items()
        if name.endswith("_loss")
      ]
      objective = tf.add_n(parts)

    # The casts take the places of their variables; the order stays the
    # optimizer's, in which it takes the gradients. A variable on which no loss
    # depends gets zeros.
    sources = dict(zip(optimizer.paths, optimizer.variables, strict=True))
    sources |= dict(zip([v.path for v in kernels], cast, strict=True))
    gradients = tape.gradient(
      objective,
      list(sources.values()),
      unconnected_gradients=tf.UnconnectedGradients.ZERO,
    )

    # Only fine-tuning on CPU and GPU needs this: there the gradient of the word
    # table is sparse, with a row per token. Adam squares the sum of a repeated
    # word's rows, so they are added up here; the original's clipping squares
    # each of them, so their norms are taken first.
    row_norms = optimization.row_norms(gradients)
    return StepResults(
      {name: loss_sum for name, (loss_sum, _) in losses.items()},
      [tf.convert_to_tensor(gradient) for gradient in gradients],
      row_norms if counts_rows else tf.zeros_like(row_norms),
    )

  return forward_backward


def make_passes(task: training_plan.TrainingTask, counts_rows: bool) -> Passes:
  """Builds the passes over a replica's share, in the micro-batches of its plan.

  They are computed one after the other, for a share that is too large for the
  memory, and their results are added up.

  Args:
    task: see `make_forward_backward`; its plan says how many micro-batches.
    counts_rows: see `make_forward_backward`.

  Returns:
    A function with the arguments and results of `forward_backward`.
  """
  forward_backward = make_forward_backward(task, counts_rows)
  micro_batches = task.plan.gradient_accumulation_steps
  if micro_batches == 1:
    return forward_backward

  def run_micro_batches(features, seed, divisors):
    split = split_rows(features, micro_batches)

    def add_micro_batch(i, so_far):
      part = {name: value[i] for name, value in split.items()}
      more = forward_backward(part, modeling.fold_in(seed, i), divisors)
      return i + 1, tf.nest.map_structure(tf.add, so_far, to_float32(more))

    # The sums begin at 0. They are float32 also in bfloat16.
    variables = task.optimizer.variables
    nothing = StepResults(
      {name: tf.constant(0.0) for name in divisors},
      [tf.zeros(variable.shape) for variable in variables],
      tf.zeros([len(variables)]),
    )
    _, results = tf.while_loop(
      lambda i, _: i < micro_batches,
      add_micro_batch,
      (tf.constant(0), nothing),
      # Otherwise all parts are computed at once, and no memory is saved.
      parallel_iterations=1,
    )
    return results

  return run_micro_batches


def make_sum_weights(
  task: training_plan.TrainingTask, signature: dict[str, tf.TensorSpec]
) -> Callable[[Features], dict[str, tf.Tensor]]:
  """Builds the function of features that returns the weights of the losses.

  No weight depends on the outputs, so TensorFlow prunes the forward pass from
  this function.

  Args:
    task: says model, forward and loss.
    signature: the features' names, shapes and types.

  Returns:
    A function of features that returns {name: float32 []}.
  """

  @tf.function(autograph=False)
  def sum_weights(features):
    # Any seed will do. With one, the encoder's layer can be recorded for this
    # call and the passes together: see bert/training/recorded_layer.py.
    outputs = task.forward(task.model, features, tf.zeros([2], tf.int32))
    losses = task.loss(outputs, features)
    return {
      name: tf.cast(weight, tf.float32) for name, (_, weight) in losses.items()
    }

  return sum_weights.get_concrete_function(signature)


def split_rows(features: Features, parts: int) -> Features:
  """Splits features in equal parts: [parts * B, ...] to [parts, B, ...]."""

  def split(value):
    return tf.reshape(value, tf.concat([[parts, -1], tf.shape(value)[1:]], 0))

  return {name: split(value) for name, value in features.items()}


def to_float32(results: StepResults) -> StepResults:
  """Casts all results to float32, in which they are added up."""
  return tf.nest.map_structure(lambda x: tf.cast(x, tf.float32), results)
