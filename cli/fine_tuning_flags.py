"""Settings of all programs that fine-tune; they do not need TensorFlow."""

from collections.abc import Iterable
import dataclasses

from cli import devices, flag_values, model_flags

_data = flag_values.group("Data")
_training = flag_values.group("Training")
_evaluation = flag_values.group("Evaluation and prediction")


@dataclasses.dataclass(frozen=True, kw_only=True)
class FineTuningSettings(
  devices.DeviceSettings,
  model_flags.TrainingSettings,
  model_flags.TextSettings,
  model_flags.ModelSettings,
):
  """The settings of every fine-tuning program."""

  num_train_epochs: float = _training(
    3.0, "Times to go through the training data.", least=0.0
  )
  layerwise_lr_decay: float = _training(
    1.0,
    "Factor between the learning rates of a layer and the one above it; the "
    "head has the full rate.",
    least=0.0,
  )
  warmup_proportion: float = _training(
    0.1, "Share of the steps in which the rate rises.", least=0.0, most=1.0
  )
  max_train_examples: int | None = _training(
    None,
    "Trains on the first examples only, this many, to try something out; by "
    "default on all.",
    least=1,
  )
  freeze_layers: str = _training(
    "0",
    "How many of the lowest layers to freeze, with the embeddings; or "
    "'gradual': trains only the head at first, and one more layer from the top "
    "after every epoch.",
  )
  eval_every_epochs: float = _evaluation(
    0.0,
    "Epochs from one evaluation during training to the next, instead of "
    "--eval_every_steps; 0 for none. With either, the weights of the best "
    "evaluation are kept in output_dir/best and used from then on.",
    least=0.0,
  )
  best_metric: str | None = _evaluation(
    None, "The score that decides which weights are best."
  )
  early_stopping_patience: int = _evaluation(
    0,
    "Evaluations in a row without a better score after which training ends; 0 "
    "to train to the end.",
    least=0,
  )
  do_predict: bool = _evaluation(False, "Whether to predict, after training.")
  predict_batch_size: int = _evaluation(
    8, "Inputs of --max_seq_length per batch of a prediction.", least=1
  )

  @property
  def evaluates_in_training(self) -> bool:
    """Whether training is interrupted by evaluations."""
    return self.do_train and bool(
      self.eval_every_steps or self.eval_every_epochs
    )


@dataclasses.dataclass(frozen=True, kw_only=True)
class EvaluationSettings(FineTuningSettings):
  """The settings of programs that evaluate apart from predicting."""

  do_eval: bool = _evaluation(False, "Whether to evaluate, after training.")
  eval_batch_size: int = _evaluation(
    8, "Inputs of --max_seq_length per batch of an evaluation.", least=1
  )


@dataclasses.dataclass(frozen=True, kw_only=True)
class DataSettings(EvaluationSettings):
  """The settings of programs with three data files."""

  data_dir: str | None = _data(
    None, "A folder with files called train, dev and test."
  )
  train_file: str | None = _data(
    None, "What to train on, instead of the file in --data_dir."
  )
  eval_file: str | None = _data(
    None, "What to evaluate on, instead of that in --data_dir."
  )
  predict_file: str | None = _data(
    None, "What to predict, instead of that in --data_dir."
  )


def check_work(settings: EvaluationSettings) -> None:
  """Raises a ValueError if there is nothing to do."""
  if not (settings.do_train or settings.do_eval or settings.do_predict):
    raise ValueError(
      "nothing to do: pass --do_train=true, --do_eval=true or --do_predict=true"
    )


def choose_metric(
  best_metric: str | None, default: str, known: Iterable[str]
) -> str:
  """Returns the name of the score that decides which weights are best."""
  name = (best_metric or default).removeprefix("eval_")
  known = list(known)
  if name not in known:
    raise ValueError(
      f"--best_metric={name}: expected one of {', '.join(known)}"
    )
  return name
