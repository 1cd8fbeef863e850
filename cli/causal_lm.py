"""The task of a causal language model, which run_multitask.py trains."""

from cli import fine_tuning_flags


def define_flags() -> None:
  """Declares the flags of the task."""
  fine_tuning_flags.define_flags(max_seq_length=128)
  fine_tuning_flags.define_data_flags()


def make_recipe(settings):
  """Makes the recipe of the flags; see `fine_tuning.follow`.

  Raises:
    ValueError: a file is missing, or the encoder is not causal.
  """
  from cli import fine_tuning
  from cli import flag_values
  from cli import model_folder
  from encoders import encoder_table
  import heads
  from inputs import feature_files
  from tasks import causal_inputs

  metric = fine_tuning.best_metric(
    settings, causal_inputs.METRICS[0], causal_inputs.METRICS
  )
  paths = fine_tuning.find_data_files(settings, (".txt",), predicts=False)
  config = model_folder.read_config(settings)
  if not encoder_table.is_causal(config):
    raise ValueError("causal_lm needs a config with causal_attention: true")

  def open_inputs(settings, folder):
    shape = flag_values.fill(feature_files.Settings, settings)
    limit = settings.max_train_examples
    splits = {
      kind: causal_inputs.Split(kind, path, shape, folder, limit)
      for kind, path in paths.items()
    }
    evaluated = [splits["eval"]] if "eval" in splits else ()
    problem = {"problem": "causal_lm"}
    train = splits.get("train")
    return fine_tuning.Inputs(shape, metric, problem, train, evaluated)

  def make_model(config, inputs, dtype):
    model = heads.PretrainingModel(config, dtype)
    for unused in (model.bert.pooler, model.heads.seq_relationship):
      unused.trainable = False  # They must not decay.
    return model

  def evaluate(run):
    batch_size = settings.eval_batch_size
    return causal_inputs.score(run.predict(run.inputs.eval[0], batch_size))

  return fine_tuning.Recipe(
    settings,
    open_inputs,
    make_model,
    causal_inputs.compare,
    lambda run: causal_inputs.loss_fn,
    evaluate,
    fine_tuning.finish_with_scores,
  )
