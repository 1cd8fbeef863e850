"""The settings of run_tagging.py, and what they mean together."""

from collections.abc import Sequence
import dataclasses

from cli import program, shared_flags
from tasks import tagging_schemes

# The layers and the LSTMs of the paper's table 7.
LAST_LAYERS, LSTM_SIZE = ("-4", "-3", "-2", "-1"), 768

_data, _task = program.group("Data"), program.group("Task")


@dataclasses.dataclass(frozen=True, kw_only=True)
class TaggingSettings(shared_flags.DataSettings):
  """The settings of run_tagging.py."""

  token_column: int = _data(0, "The column of the word, from 0.", least=0)
  tag_column: int = _data(
    -1,
    "The column of the tag; -1 is the last. A file to predict may lack it.",
    least=-1,
  )
  tag_scheme: str = _data(
    "auto",
    "How tags mark entities. auto: detected in each file. none: they mark "
    "none, as parts of speech; scores are then those of words.",
    choices=("auto", *tagging_schemes.SCHEMES, tagging_schemes.NO_SCHEME),
  )
  document_context: bool = _task(
    False,
    "Whether to fill inputs up with the neighbouring sentences of the "
    "document.",
  )
  feature_based: bool = _task(
    False, "Whether to freeze BERT and to train a BiLSTM on its layers."
  )
  feature_layers: tuple[str, ...] = _task(
    LAST_LAYERS,
    "With --feature_based: the layers whose outputs are concatenated; -1 is "
    "the last one, 0 the embeddings. mix before them sums them, with learned "
    "weights, and mix alone is that of all.",
  )
  lstm_size: int = _task(
    LSTM_SIZE,
    "With --feature_based: units of the two LSTMs in each direction.",
    least=1,
  )


def check_features(settings: TaggingSettings) -> None:
  """Refuses flags that a model with a frozen BERT, or another, ignores."""
  given = tuple(settings.feature_layers), settings.lstm_size
  if not settings.feature_based and given != (LAST_LAYERS, LSTM_SIZE):
    raise ValueError("--feature_layers and --lstm_size need --feature_based")
  freezes = str(settings.freeze_layers), settings.layerwise_lr_decay
  if settings.feature_based and freezes != ("0", 1.0):
    raise ValueError(
      "--feature_based freezes BERT as a whole: leave out --freeze_layers and "
      "--layerwise_lr_decay"
    )


def choose_metric(settings: TaggingSettings, known: Sequence[str]) -> str:
  """Returns the name of the score that decides which weights are best."""
  return shared_flags.choose_metric(settings.best_metric, known[0], known)
