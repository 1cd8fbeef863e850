"""The training loop of every program: any strategy, exact resume.

It repeats the update of bert/training/step.py, reports, evaluates and saves. A
program provides a model, an optimizer, its input and a loss. Nearly all
programs train one task; `tasks`, `task_of_step` and `runners` hold several for
bert/contrib/multitask_training.py.
"""

from collections.abc import Callable, Iterator, Mapping
import contextlib
import functools
import os
import signal
import threading
import zlib

import numpy as np
import tensorflow as tf

from bert.data import imports, messages
from bert.inputs import training_input
from bert.training import (
  memory,
  model_selection,
  recorded_layer,
  reporting,
  same_run,
  training_plan,
  workers,
)
from bert.training import step as training_step
from bert.weights import checkpoints


class Stopped(SystemExit):
  """A signal has ended a training, which has saved a checkpoint."""

  def __init__(self, number: int):
    # A shell expects 128 + the number of the signal that ended a program.
    super().__init__(128 + number)
    self.signal_number = number


def train(
  strategy: tf.distribute.Strategy,
  tasks: Mapping[str, training_plan.TrainingTask],
  plan: training_plan.TrainingPlan,
  evaluate: Callable[[int], Mapping[str, float]] | None = None,
  history: model_selection.History | None = None,
  task_of_step: np.ndarray | None = None,
) -> tuple[int, int | None]:
  """Trains until `plan.num_train_steps`; resumes from a checkpoint if any.

  SIGINT and SIGTERM end training early, after a checkpoint is saved; in another
  thread than the main one, they do not. The same command then resumes, and ends
  with the same bits as an uninterrupted run. The caller ensures that no other
  process trains in the folder.

  Args:
    strategy: in whose scope models and optimizers were made.
    tasks: by name, "" if it is the only one; variables that are not of
      model.bert are saved under tasks/<name>/. The plan of a task says which
      rows its updates take.
    plan: of the whole run.
    evaluate: takes a step, returns the scores of its weights; is called every
      `plan.eval_every_steps`, and at the last step.
    history: keeps the scores and the best weights, and may end training early.
      Steps are then saved before they are evaluated.
    task_of_step: int [steps], the number of the task that makes each update;
      None: all are the first's.

  Returns:
    The last step, and the signal if one ended the training.

  Raises:
    ValueError: the batch cannot be split, the folder has another model, a loss
      is not finite, the input is damaged, a checkpoint cannot be written, or
      oneDNN takes weights for constants.
  """
  # Most runs have one task: the first one makes all updates.
  if task_of_step is None:
    task_of_step = np.zeros(plan.num_train_steps, np.int8)

  # Our programs see to it. But a user of Python may have set it, and imported
  # TensorFlow before this project.
  if imports.weights_are_packed():
    raise ValueError(
      f"{imports.PACKS_WEIGHTS}=1: every update would compute with the weights "
      "of the first: unset it, and start Python again"
    )

  # Wrong flags must fail before a checkpoint is read, which may take long.
  for task in tasks.values():
    messages.check_split(
      task.plan.train_batch_size,
      strategy.num_replicas_in_sync,
      task.plan.gradient_accumulation_steps,
    )

  # A checkpoint holds the parameters, the moments of Adam, and the step.
  variables, slots = name_variables(tasks)
  global_step = _make_global_step(strategy)
  saved = {**variables, **slots, "global_step": global_step}
  step = _resume(strategy, tasks, plan, saved)

  # A run that was killed may have saved its last step without evaluating it.
  evaluation = _Evaluation(strategy, variables, plan, evaluate, history)
  evaluation.catch_up(step)
  if evaluation.should_stop or step >= plan.num_train_steps:
    return step, None

  runners = [
    make_runner(strategy, name, task, global_step)
    for name, task in tasks.items()
  ]
  return _run_steps(
    strategy, plan, saved, step, runners, task_of_step, evaluation
  )


def name_variables(
  tasks: Mapping[str, training_plan.TrainingTask],
) -> tuple[dict[str, tf.Variable], dict[str, tf.Variable]]:
  """Returns the variables of tasks, and their moments, by their saved names."""
  variables = {}
  slots = {}
  for task_name, task in tasks.items():
    # The heads of several tasks have variables of the same names, such as
    # output_weights. So the names of a task's own variables begin with the
    # task; the encoder, which the tasks share, keeps Google's names.
    prefix = ""
    shared = set()
    if task_name:
      prefix = f"tasks/{task_name}/"
      shared = {v.path for v in task.model.bert.variables}

    for name, variable in checkpoints.model_variables(task.model).items():
      variables[_saved_name(name, prefix, shared)] = variable
    for name, slot in task.optimizer.slots.items():
      slots[_saved_name(name, prefix, shared)] = slot
  return variables, slots


def _saved_name(name, prefix, shared):
  """Returns the name of a variable, or of its moment, in a checkpoint."""
  path = name.removesuffix("/adam_m").removesuffix("/adam_v")
  return name if path in shared else prefix + name


def _run_steps(strategy, plan, saved, step, runners, task_of_step, evaluation):
  """Makes all updates after a step, reports them, evaluates and saves.

  Args:
    strategy: of the training.
    plan: of the whole run.
    saved: the variables that checkpoints hold, by name.
    step: the step restored, 0 without a checkpoint.
    runners: from `make_runner`, one per task.
    task_of_step: the number of the task that makes each update.
    evaluation: an `_Evaluation` that has caught up with the step.

  Returns:
    The last step, and the signal that ended the training, if one did.
  """
  reporter = reporting.Reporter(plan, step, strategy)

  # The step that was restored needs no checkpoint again. If the folder has
  # newer ones, they are damaged.
  saved_step = step or None

  with _caught_signals() as caught:
    while step < plan.num_train_steps:
      # The next call of a compiled loop makes `count` updates, at most up to
      # the next step at which to save or evaluate. The reporter lets a call
      # last about two seconds, so that slow updates make fewer.
      most = _steps_of_same_task(task_of_step[step : plan.next_stop(step)])
      count = reporter.choose_count(most)

      # All workers make the same number of updates, and stop together.
      wants_stop = bool(caught) or evaluation.should_stop
      count, is_stopped = workers.agree(strategy, count, wants_stop)
      if is_stopped:
        break

      # `run_steps` of `make_runner`.
      means, batch_size = runners[task_of_step[step]](count)
      step += count
      reporter.add(step, count, means, batch_size)

      # The checkpoint comes first: after a kill during the evaluation, a
      # resumed run evaluates the saved step (`_Evaluation.catch_up`).
      if evaluation.needs_checkpoint(step):
        saved_step = _save(strategy, plan, step, saved)
        reporter.save()
      if evaluation.is_due(step):
        reporter.add_evaluation(step, evaluation.run(step))

  # A signal may end the run between two checkpoints.
  if step != saved_step:
    _save(strategy, plan, step, saved)

  # Also after the last step: the signal handler has already announced the exit.
  _, is_interrupted = workers.agree(strategy, 0, bool(caught))
  reporter.close(step, not is_interrupted)
  if not is_interrupted:
    return step, None

  # If this worker caught no signal, another one did.
  return step, (caught[0] if caught else signal.SIGTERM)


def _steps_of_same_task(task_of_step):
  """Counts the steps at the beginning that are of the same task."""
  is_other = task_of_step != task_of_step[0]
  return int(is_other.argmax()) if is_other.any() else len(is_other)


def make_runner(
  strategy: tf.distribute.Strategy,
  name: str,
  task: training_plan.TrainingTask,
  global_step: tf.Variable,
) -> Callable[[int], tuple[dict[str, float], int]]:
  """Builds the function that makes n updates: means by name, batch size."""
  # The first batch is the one after the step that was restored.
  step = int(global_step.read_value())
  iterator, signature = _distribute(strategy, task.source, task.plan, step)

  # The chief says whether the memory suffices, before the first update fails.
  if task.plan.max_seq_length and strategy.extended.should_checkpoint:
    size = memory.size_of_update(task, signature)
    if size.trained_layers:  # The estimate is of a BERT's training.
      config = task.model.bert.config
      print(memory.report(config, size, strategy, task.more_memory))

  train_and_fetch = _make_train_steps(strategy, task, global_step, signature)

  def run_steps(count):
    # The errors of a compiled loop name neither the record that is damaged nor
    # the flags that save memory.
    with (
      training_input.naming_bad_record(task.source.find_fault),
      training_input.naming_memory_flags("training", memory.TRAINING_CURES),
    ):
      means = train_and_fetch(iterator, count)

    # The counter is one past a step that failed.
    last = int(global_step.read_value()) - 1
    _check_finite(means, last, task.source, task.plan)

    # With several tasks, the reports say which one a mean is of.
    if name:
      means = {f"{name}/{key}": value for key, value in means.items()}
    return means, task.plan.train_batch_size

  return run_steps


def _make_train_steps(strategy, task, global_step, signature):
  """Builds `train_steps`, a graph of n updates, and the function around it.

  Returns the latter, which takes an iterator of batches and n, and returns
  means by name.
  """
  # Both replace a method of the encoder before anything is recorded. XLA, which
  # compiles whole updates for TPUs, cannot compile a recorded layer within the
  # loop over micro-batches: there, and on TPUs, all layers are recorded.
  is_on_tpu = isinstance(strategy, tf.distribute.TPUStrategy)
  if task.plan.recompute:
    memory.recompute_layers(task.model.bert)
  elif task.plan.gradient_accumulation_steps == 1 and not is_on_tpu:
    recorded_layer.record_once(task.model.bert)

  # `replica_step` returns the losses as rows, in the order of their names. The
  # names are known before anything runs: `structured_outputs` are the results
  # of the traced function, without values.
  sum_weights = training_step.make_sum_weights(task, signature)
  names = sorted(sum_weights.structured_outputs)
  replica_step = training_step.make_replica_step(
    task, _make_passes(strategy, task), global_step, sum_weights
  )
  # AutoGraph would translate the step, too, and what that calls for each of the
  # variables: a fifth of the time that it takes to record BERT-Base.
  replica_step = tf.autograph.experimental.do_not_convert(replica_step)

  # Only this function needs AutoGraph, which makes graph operations of `for`,
  # `if` and `break`: one call makes `count` updates without Python.
  @tf.function
  def train_steps(iterator, count):
    # AutoGraph needs a first value of everything that the loop changes.
    totals = tf.zeros([len(names), 2])
    norm = tf.constant(0.0)
    rate = tf.constant(0.0)
    for _ in tf.range(count):
      # `next` takes one batch for each replica of this worker, and `run` calls
      # `replica_step` on all replicas at once; with the default strategy it
      # just calls it. Every replica returns sums over the whole batch: any of
      # them will do.
      results = strategy.run(replica_step, args=(next(iterator),))
      losses, norm, rate = [
        strategy.experimental_local_results(x)[0] for x in results
      ]
      global_step.assign_add(1)
      totals += losses

      # The values are now NaN; more updates would hide which step failed.
      if not tf.math.is_finite(norm):
        break
    return totals, norm, rate

  def train_and_fetch(iterator, count):
    # The count is a tensor, because TensorFlow would compile the loop again for
    # every new number of Python.
    totals, norm, rate = train_steps(iterator, tf.constant(count))

    # `totals` are pairs of a sum and its weight, which is 0 if no row counted.
    means = {
      name: float(total / weight) if weight else 0.0
      for name, (total, weight) in zip(names, totals.numpy(), strict=True)
    }
    losses = [means[name] for name in names if name.endswith("_loss")]
    return {
      "loss": sum(losses),
      **means,
      "learning_rate": float(rate),
      "gradient_norm": float(norm),
    }

  return train_and_fetch


def _make_passes(strategy, task):
  """Builds the forward and backward passes over a replica's share."""
  # On TPUs, the original multiplies by one-hot rows: all gradients are dense.
  counts_rows = not isinstance(strategy, tf.distribute.TPUStrategy)

  # A batch in one piece needs no gradient caching: its loss sees all rows.
  parts = task.plan.gradient_accumulation_steps * strategy.num_replicas_in_sync
  if task.make_passes and parts > 1:
    return task.make_passes(task, counts_rows)
  return training_step.make_passes(task, counts_rows)


def _distribute(strategy, source, plan, step):
  """Returns an iterator over the batches after a step, and a batch's type."""
  replicas = strategy.num_replicas_in_sync
  make_batches = functools.partial(
    _replica_batches, source, plan, replicas, step=step
  )

  # TensorFlow cannot save the place of a distributed iterator, so a resumed run
  # makes the pipeline anew, and skips the rows that earlier updates have used.
  # Every worker calls `make_batches` with a context that says its number. On a
  # single device the result is what it returned. Otherwise the default context,
  # of a single worker, gives batches of the type that each replica gets.
  batches = strategy.distribute_datasets_from_function(make_batches)
  if isinstance(batches, tf.data.Dataset):
    return iter(batches), batches.element_spec
  return iter(batches), make_batches(tf.distribute.InputContext()).element_spec


def _replica_batches(source, plan, replicas, context, step):
  """Makes one worker's batches; each holds the rows of one replica."""
  pipelines = context.num_input_pipelines
  # In pre-training, `rows` are `records.training_dataset`, and `parse` below is
  # `records.parse_batch`: see bert/cli/pretraining_records.py.
  rows = source.rows(plan.row_at(step))

  # Every worker reads all rows and takes its share of every batch.
  if pipelines > 1:
    rows = rows.batch(plan.train_batch_size // pipelines, drop_remainder=True)
    rows = rows.shard(pipelines, context.input_pipeline_id).unbatch()

  # The model needs no row ids: `_check_finite` reads them if a batch fails.
  batch_size = plan.train_batch_size // replicas
  serialized = rows.map(lambda row_id, row: row)
  batches = serialized.batch(batch_size, drop_remainder=True)
  batches = batches.map(source.parse, num_parallel_calls=tf.data.AUTOTUNE)

  # The order of rows is part of what a run is. Workers have taken their shares
  # above, so TensorFlow must not divide the rows again.
  options = tf.data.Options()
  options.deterministic = True
  options.experimental_distribute.auto_shard_policy = (
    tf.data.experimental.AutoShardPolicy.OFF
  )
  return training_input.prefetch(batches.with_options(options), 2)


def _make_global_step(strategy):
  """Makes the number of updates made so far, int64 []."""
  # Each replica has a copy, and all of them are equal.
  first = tf.VariableAggregation.ONLY_FIRST_REPLICA
  with strategy.scope():
    zero = tf.constant(0, tf.int64)
    return tf.Variable(zero, trainable=False, aggregation=first)


def _resume(strategy, tasks, plan, saved):
  """Restores and reports the newest whole checkpoint; returns its step."""
  # The program has loaded the weights already, to have something to predict
  # with if nothing trains. This reads also the moments of Adam and the step.
  step = checkpoints.restore(plan.output_dir, saved)
  last = plan.num_train_steps
  _check_workers(strategy, tasks, plan, saved, step or 0)

  # TensorFlow's `should_checkpoint` is true in one worker, the chief, which
  # alone changes files in the folder.
  if strategy.extended.should_checkpoint:
    checkpoints.remove_temporary_files(plan.output_dir)

  if step is None:
    print(f"training from step 0 to {last}")
  elif step < last:
    print(f"resuming at step {step} of {last}")
  else:
    print(
      f"step {step} of {last}: nothing to do; train for longer or choose "
      "another --output_dir"
    )
  return step or 0


def _check_workers(strategy, tasks, plan, saved, step):
  """Refuses workers that would not train the same; programs compare flags."""
  if not workers.are_several(strategy):
    return

  # The names appear in the message about the workers that differ.
  facts: dict[str, object] = {"step in --output_dir": step}
  for name, task in tasks.items():
    own = task.plan
    weights = b"" if task.loss_factors is None else task.loss_factors
    # The next batch stands for the data: workers must read the same rows.
    rows = task.source.rows(own.row_at(step)).take(own.train_batch_size)
    batch = b"".join(row.numpy() for _, row in rows)
    facts |= {
      f"training data {name}": task.source.identity or "of another digest",
      f"first batch {name}": f"of checksum {zlib.crc32(batch):08x}",
      f"number of rows {name}": own.row_at(plan.num_train_steps),
      f"weights of updates {name}": f"of checksum {zlib.crc32(weights):08x}",
    }

  # Workers exchange gradients, never weights: these must be equal at the start.
  facts["weights"] = f"of checksum {same_run.digest_of_values(saved)}"
  facts["number of steps"] = plan.num_train_steps
  workers.compare_workers(strategy, facts)


def _save(strategy, plan, step, saved):
  """Saves a step whose values are all finite; only one worker writes."""
  if plan.before_save:
    plan.before_save()

  # Losses and gradients are finite, or the loop would have stopped; the values
  # may still have overflowed. Such a checkpoint would become the newest, and
  # push out an older one that is good.
  for name, variable in saved.items():
    if not _is_finite(variable):
      raise ValueError(
        f"step {step}: {name} is no longer finite, so nothing was saved: lower "
        f"--learning_rate; {_name_last_good(plan.output_dir)}"
      )

  if strategy.extended.should_checkpoint:
    checkpoints.save(plan.output_dir, step, saved, plan.keep_checkpoint_max)
  return step


@contextlib.contextmanager
def _caught_signals() -> Iterator[list[int]]:
  """Collects the first SIGINT or SIGTERM; a second one acts at once."""
  # `_run_steps` looks at the list between two calls of the compiled loop.
  caught: list[int] = []

  # Python lets only the main thread set handlers. A training in another thread
  # leaves signals to the program that started the thread.
  if threading.current_thread() is not threading.main_thread():
    yield caught
    return

  signals = (signal.SIGINT, signal.SIGTERM)
  previous = [signal.getsignal(number) for number in signals]

  # After the first signal, the handlers of before are back: a second one ends
  # the program without a checkpoint.
  def restore():
    for number, handler in zip(signals, previous, strict=True):
      signal.signal(number, handler)

  def catch(signum, frame):
    caught.append(signum)
    restore()
    name = signal.Signals(signum).name
    # Not print: the signal may have interrupted a print.
    with contextlib.suppress(OSError):  # Ctrl-C ends a `| tee` as well.
      os.write(2, f"{name}: saving a checkpoint, then leaving\n".encode())

  for number in signals:
    signal.signal(number, catch)
  try:
    yield caught
  finally:
    restore()


def _check_finite(means, failed, source, plan):
  """Raises a ValueError that names the rows of a failed step, if it failed."""
  if np.isfinite(means["loss"]) and np.isfinite(means["gradient_norm"]):
    return

  # The rows of the batch are read once more, because the loop drops their ids.
  batch = source.rows(plan.row_at(failed)).take(plan.train_batch_size)
  rows = [
    source.describe_row(tf.nest.map_structure(lambda x: x.numpy(), row_id))
    for row_id, _ in batch
  ]
  raise ValueError(
    f"step {failed}: loss is {means['loss']}, gradient norm "
    f"{means['gradient_norm']}; the batch was {', '.join(rows)}; "
    f"{_name_last_good(plan.output_dir)}"
  )


def _name_last_good(folder):
  """Names the newest checkpoint whose values are all finite."""
  for step in reversed(checkpoints.saved_steps(folder)):
    prefix = checkpoints.checkpoint_prefix(folder, step)
    with contextlib.suppress(checkpoints.DamagedCheckpointError):
      if all(_is_finite(v) for _, v in checkpoints.read(prefix)):
        return f"the last good checkpoint is {prefix}"
  return "no checkpoint is good: begin again"


def _is_finite(value):
  # `tf.math.is_finite` refuses integers, such as the step.
  value = tf.convert_to_tensor(value)
  is_float = value.dtype.is_floating
  return not is_float or bool(tf.reduce_all(tf.math.is_finite(value)))


class _Evaluation:
  """Evaluates while training; keeps the best weights if there is a history."""

  def __init__(self, strategy, variables, plan, evaluate, history):
    self._strategy = strategy
    self._variables = variables
    self._plan = plan
    self._evaluate = evaluate
    self._history = history
    self.should_stop = False  # Whether the scores say so.

  def catch_up(self, step):
    """Makes the scores those up to a step that a training resumes at.

    A kill may have prevented the evaluation of the step itself. Only the chief
    has the curves, so several workers all evaluate again.
    """
    if self._history:
      self._history.forget_after(step)

    # Most steps are not evaluated.
    if not (step and self.is_due(step)):
      self._decide()
      return

    was_evaluated = reporting.was_evaluated(self._plan.output_dir, step)
    needs_scores = self._history or workers.are_several(self._strategy)
    if was_evaluated and not needs_scores:
      return

    results = self.run(step)
    if not was_evaluated:
      reporter = reporting.Reporter(self._plan, step, self._strategy)
      reporter.add_evaluation(step, results)

  def is_due(self, step):
    # A plan takes the last step for due, even if the period is 0.
    period = self._plan.eval_every_steps
    return period > 0 and self._plan.is_due(step, period)

  def needs_checkpoint(self, step):
    """Returns whether to save a step: it is scheduled, or evaluated."""
    # Without a history, the scores of a step choose no weights.
    period = self._plan.save_checkpoints_steps
    is_selected = self._history is not None and self.is_due(step)
    return is_selected or self._plan.is_due(step, period)

  def run(self, step):
    """Evaluates a saved step; returns the scores."""
    if not self._history:
      return self._evaluate(step)

    # The history copies the weights of the step if they are the best so far.
    results = self._history.record(step, self._evaluate, self._variables)
    self._decide()
    return results

  def _decide(self):
    if self._history:
      self.should_stop = self._history.should_stop()
      if self.should_stop and self._strategy.extended.should_checkpoint:
        print(f"stopping early; {self._history.summary()}")
