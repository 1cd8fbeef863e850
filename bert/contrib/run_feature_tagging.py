"""Trains a BiLSTM on the layers of a frozen BERT to label words (section 5.3).

  python -m bert.contrib.run_feature_tagging --data_dir=conll2003 \\
    --model=google-bert/bert-base-uncased --learning_rate=1e-3 \\
    --do_train=true --do_eval=true --output_dir=/tmp/ner

Files, flags, scores and predictions are those of run_tagging.py.
"""

import dataclasses
import os

from bert import calls, run_tagging
from bert.cli import fine_tuning, program, typed_flags
from bert.contrib import feature_tagger
from bert.data import files

# In settings.json, where other taggers have "tagging". By this name an export
# finds bert/contrib/feature_tagging.py, which says the class of the model.
_PROBLEM = "feature_tagging"

_task = typed_flags.group("Task")


@dataclasses.dataclass(frozen=True, kw_only=True)
class FeatureTaggingSettings(run_tagging.TaggingSettings):
  """The settings of this program: of run_tagging.py, and of the BiLSTM.

  Both flags decide the shapes of the model, so later runs in the folder must
  have the same (`decides`).
  """

  feature_layers: tuple[str, ...] = _task(
    ("-4", "-3", "-2", "-1"),  # As in the paper's table 7, like the size.
    "The layers of BERT whose outputs are concatenated: -1 is the last layer, "
    "0 the embeddings. 'mix,-4,-3' sums these layers with learned weights "
    "instead, and 'mix' alone sums all layers.",
    decides=("model",),
  )
  lstm_size: int = _task(
    768,
    "The number of units of each of the two LSTMs, in each direction.",
    least=1,
    decides=("model",),
  )

  def check(self) -> None:
    """Refuses flags about training BERT, too, which is frozen as a whole."""
    super().check()

    # `freeze_layers` is a number, or "gradual".
    if str(self.freeze_layers) != "0" or self.layerwise_lr_decay != 1.0:
      raise ValueError(
        "this program freezes BERT as a whole: leave out --freeze_layers and "
        "--layerwise_lr_decay"
      )


def convert_older(folder: str) -> None:
  """Names the problem in the settings.json of an older version's training.

  Older versions recorded the problem of every tagger, and a field
  feature_based. A folder of another problem would be refused here.
  """
  path = os.path.join(folder, "settings.json")
  recorded = files.read_json_if_any(path)
  if recorded.pop("feature_based", False):
    files.write_json(path, {**recorded, "problem": _PROBLEM})


def main() -> None:
  settings = fine_tuning.read_settings(FeatureTaggingSettings)
  convert_older(settings.output_dir)

  # Only the model differs from run_tagging.py.
  def create_model(config, data, dtype):
    layers, size = settings.feature_layers, settings.lstm_size
    return feature_tagger.FeatureTaggerModel(
      config, len(data.labels), dtype, layers, size
    )

  run_tagging.train_and_predict(settings, create_model, _PROBLEM)


# The same from Python, see docs/python.md.
run = calls.make_run(main, FeatureTaggingSettings)


if __name__ == "__main__":
  program.run_program(main, FeatureTaggingSettings)
