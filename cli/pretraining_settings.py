"""The settings of run_pretraining.py."""

import dataclasses

from cli import devices, program, shared_flags

_data = program.group("Data")
_model = program.group("Model")
_training = program.group("Training")
_evaluation = program.group("Evaluation")


@dataclasses.dataclass(frozen=True, kw_only=True)
class PretrainingSettings(
  devices.DeviceSettings,
  shared_flags.TrainingSettings,
  shared_flags.ModelSettings,
):
  """The settings of run_pretraining.py."""

  input_file: str = _data(
    None,
    "TFRecord files of create_pretraining_data.py: comma-separated globs.",
    required=True,
  )
  eval_input_file: str | None = _data(
    None, "Those to evaluate on; default --input_file."
  )
  max_seq_length: int = _data(
    128, "Tokens per record, as it was made.", least=1
  )
  max_predictions_per_seq: int = _data(
    20, "Masked tokens per record, at most.", least=1
  )
  vocab_file: str | None = _model(
    None,
    "The vocab.txt of the records: decides the vocab_size of the config, and "
    "is copied to --output_dir.",
  )
  num_train_steps: int = _training(100000, "Updates in all.", least=1)
  num_warmup_steps: int = _training(
    10000, "Updates with a rising learning rate.", least=0
  )
  group_by_length: bool = _training(
    False,
    "Whether batches hold records of similar length: faster where many are "
    "short.",
  )
  new_phase: bool = _training(
    False,
    "Whether training may continue from --output_dir with other settings; "
    "records begin anew if --input_file or --seed is another.",
  )
  do_eval: bool = _evaluation(False, "Whether to evaluate, after training.")
  eval_batch_size: int = _evaluation(
    8, "Examples per evaluation batch.", least=1
  )
  max_eval_steps: int = _evaluation(
    100,
    "Batches to evaluate, starting over where the records end; 0: every record "
    "once.",
    least=0,
  )
