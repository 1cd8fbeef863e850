"""The settings of programs that apply a model to lines of text.

They are `extract_features.py` and `fill_mask.py`; TensorFlow is not needed.
"""

import dataclasses

from bert.cli import devices, flag_texts, shared_flags, typed_flags
from bert.data import file_search, files, remote, text_files

_model = typed_flags.group("Model")
_data = typed_flags.group("Data")


@dataclasses.dataclass(frozen=True, kw_only=True)
class InferenceSettings(
  devices.DeviceSettings, shared_flags.TextSettings, shared_flags.StartSettings
):
  """The settings of programs that apply a model to text."""

  # --model stands for the two flags after it.
  model: str | None = _model(None, flag_texts.MODEL, path="model")
  bert_config_file: str | None = _model(
    None, flag_texts.CONFIG, unless="model", path="file"
  )
  init_checkpoint: str = _model(
    None,
    "The weights: a checkpoint's prefix, its folder, or a model of another "
    "library.",
    unless="model",
    path="checkpoint",
  )

  # "-" is the standard input, so that the programs can stand in a pipe.
  input_file: str = _data("-", flag_texts.INPUT_FILE, path="input")
  text_column: str | None = _data(None, flag_texts.TEXT_COLUMN)
  batch_size: int = _data(
    32,
    "The batch size for inputs of full length. Batches of shorter inputs "
    "contain more of them.",
    least=1,
  )
  output_file: str | None = typed_flags.group("Output")(
    None, "The file to write. Default: the standard output.", path="new_files"
  )

  @property
  def reads_standard_input(self) -> bool:
    """Whether the lines come from a pipe or from the keyboard."""
    return self.input_file == files.STANDARD_INPUT

  def check(self) -> None:
    """Refuses inputs that exclude each other, too, and to write over one."""
    # Several hosts would all write the one output.
    if self.distribution == "multi_worker":
      raise ValueError(
        "--distribution=multi_worker: this program works on one host; give "
        "each host a part of the input, and pass --distribution=mirrored for "
        "all of its devices"
      )

    # Remote files need TensorFlow: they are looked at when they are opened.
    path = self.input_file
    is_file = not self.reads_standard_input
    if is_file and getattr(self, "text", ()):
      raise ValueError(
        f"--text and --input_file={path} are both given: give one"
      )
    if is_file and not remote.is_remote(path):
      inputs = file_search.expand_patterns(path, "input_file")
      file_search.check_is_no_input(self.output_file, inputs)
    super().check()

    # This reads the first lines: last, for a flag may be wrong more plainly.
    if is_file and not remote.is_remote(path):
      text_files.check(inputs, self.text_column)
