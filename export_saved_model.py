"""Exports a trained BERT for predict.py, TensorFlow Serving and others.

  python export_saved_model.py --model=/tmp/mrpc \\
    --export_dir=/tmp/mrpc_export

Lengths, strides and thresholds are those of the training; flags override them.
"""

import dataclasses
import functools

from bert.cli import (
  flag_texts,
  model_folder,
  program,
  shared_flags,
  squad_settings,
  typed_flags,
)
from bert.serving import formats

_flags = typed_flags.group("Flags")
_predictions = typed_flags.group("Predictions; by default as in the training")
_count = functools.partial(_predictions, None, least=1)
# How an export of --quantize is compared with the model.
_comparison = functools.partial(
  typed_flags.group("With --quantize"), needs="quantize=int8"
)


@dataclasses.dataclass(frozen=True, kw_only=True)
class ExportSettings(shared_flags.StartSettings):
  """The settings of this program; None leaves those of the training."""

  model: str | None = _flags(None, flag_texts.MODEL, path="model")
  model_dir: str | None = _flags(
    None, "The --output_dir of a fine-tuning.", path="folder"
  )
  init_checkpoint: str | None = _flags(
    None,
    "The weights of a pre-trained model, instead of --model_dir: the export "
    "makes vectors or guesses masked words. Needs --bert_config_file.",
    path="checkpoint",
  )
  bert_config_file: str | None = _flags(
    None,
    "With --init_checkpoint: the bert_config.json of the model.",
    path="file",
  )
  vocab_file: str | None = _flags(
    None,
    "The vocabulary of the model. Default: the one in its folder.",
    path="file",
  )
  export_dir: str = _flags(
    typed_flags.REQUIRED,
    "The folder to write. It must be new or empty.",
    path="empty_folder",
  )
  do_lower_case: bool = _flags(
    True, "With --init_checkpoint: whether the model lower-cases text."
  )
  format: str = _flags(
    "saved_model",
    " ".join(f"{name}: {row.help}." for name, row in formats.FORMATS.items()),
    choices=tuple(formats.FORMATS),
  )
  task: str | None = _flags(
    None,
    "With --init_checkpoint: what the export does. Default: fill_mask if the "
    "checkpoint has the head for it, otherwise features.",
    choices=("features", "fill_mask"),
  )
  max_seq_length: int | None = _predictions(
    None,
    "The maximum number of tokens of an input; 128 with --init_checkpoint.",
    least=8,
  )
  doc_stride: int | None = _count(
    "The number of tokens from the start of one window of a text to the start "
    "of the next."
  )
  max_query_length: int | None = _count(
    "The maximum number of tokens of a question."
  )
  n_best_size: int | None = _count(
    "How many of the best start and end positions to combine in a window."
  )
  max_answer_length: int | None = _count(
    "The maximum number of tokens of an answer."
  )
  top_k: int | None = _count(
    "For fill_mask: how many guesses to give for each mask; 5 by default."
  )
  version_2_with_negative: bool | None = _predictions(
    None, "Whether some questions have no answer."
  )
  whole_word_answers: bool | None = _predictions(
    None, "Whether to widen an answer to whole words."
  )
  by_character: bool | None = _predictions(
    None, "For taggers: whether every character is a word."
  )
  null_score_diff_threshold: float | None = _predictions(
    None,
    "A question gets no answer if the score of 'no answer' exceeds the score "
    "of the best answer by more than this number. Default: the best threshold "
    "that run_squad.py found, otherwise the one of its flag.",
  )
  window_pooling: str | None = _predictions(
    None,
    "For classifiers: how the logits of a text's windows become the logits of "
    "the text.",
    choices=("mean", "max"),
  )
  layer: int | None = _predictions(
    None, "For features: the layer; 0 is the lowest, -1 the highest."
  )
  pooling: str | None = _predictions(
    None,
    "For features: how the vectors of the tokens become one vector of the "
    "text. Default: as a sentence-transformers model states, otherwise mean.",
    choices=("cls", "mean", "max"),
  )
  normalize: bool | None = _predictions(
    None, "For features: whether to scale vectors to length 1."
  )
  quantize: str = _predictions(
    "none",
    "For onnx: the type of the numbers in which the encoder multiplies. int8 "
    "needs --eval_file: the program compares the answers of the export and the "
    "model on its texts.",
    choices=("none", "int8"),
  )
  eval_file: str | None = _comparison(
    None,
    "A file with texts for at least 50 answers, as predict.py takes it: text, "
    "TSV, CSV or JSON Lines. Labels are not read. For fill_mask the texts "
    "contain [MASK].",
    path="file",
  )
  text_column: str | None = _comparison(
    None,
    "The column of the text in --eval_file, as --text_column of predict.py.",
  )
  text_pair_column: str | None = _comparison(
    None,
    "The column of the second text in --eval_file, as --text_pair_column of "
    "predict.py.",
  )
  max_eval_examples: int = _comparison(
    500,
    "How many texts of --eval_file to answer; they are evenly spread over it.",
    least=50,
  )
  max_changed: float = _comparison(
    0.03,
    "The largest share of the answers that may change. Labels of words and "
    "guesses for masks count as changed if they differ, numbers if they differ "
    "by a tenth of their standard deviation, vectors if the cosine is below "
    "0.95.",
    least=0.0,
    most=1.0,
  )

  def check(self) -> None:
    """Refuses what does not fit together, too."""
    # One model is exported. Only a folder has its config beside the weights.
    pre_trained = self.model or self.init_checkpoint
    if bool(self.model_dir) == bool(pre_trained):
      raise ValueError("pass one of --model, --model_dir and --init_checkpoint")
    if not (self.model_dir or self.model or self.bert_config_file):
      raise ValueError("--init_checkpoint needs --bert_config_file")

    # Products of int8 are rounded, so texts must show how many answers change.
    if self.quantize != "none":
      if not formats.FORMATS[self.format].takes_int8:
        raise ValueError("--quantize=int8 needs --format=onnx")
      if not self.eval_file:
        raise ValueError(
          "--quantize=int8 needs --eval_file, to compare the export with the "
          "model"
        )

    # Here, and not when the model has been loaded: that takes much longer.
    if self.whole_word_answers and self.vocab_file:
      squad_settings.check_whole_words(self.vocab_file)
    formats.FORMATS[self.format].check_packages(f"--format={self.format}")
    super().check()


if __name__ == "__main__":
  program.start(ExportSettings)

import os
import time

from absl import logging

from bert import loading
from bert.data import files
from bert.export import comparison, exporting, trained_models
from bert.serving import exported_model, request_lines
from bert.vocabularies import vocabulary_table


def read_settings() -> ExportSettings:
  """Reads the flags and finds files; --model becomes what it stands for."""
  settings = model_folder.find_files(ExportSettings.read())

  # The --output_dir of a fine-tuning may be passed as --model, too: it is known
  # by its settings.json. With other weights than its own, or if it makes
  # vectors of sentences, it is exported as a pre-trained model, without a task.
  folder = settings.folder
  if (
    folder
    and files.exists(os.path.join(folder, "settings.json"))
    and os.path.realpath(settings.init_checkpoint or "")
    == os.path.realpath(model_folder.find_weights(folder))
    and not exported_model.makes_vectors(folder)
  ):
    settings = dataclasses.replace(
      settings, model_dir=folder, init_checkpoint=None
    )

  # `find_files` has found the vocabulary of --model. Otherwise it is the one
  # beside the weights.
  if settings.vocab_file:
    return settings
  weights = settings.model_dir or settings.init_checkpoint or ""
  folders = model_folder.folders_of(weights)
  path = vocabulary_table.find(folders)
  if not path:
    raise ValueError(f"{folders[0]}: holds no vocabulary; pass --vocab_file")
  settings = dataclasses.replace(settings, vocab_file=path)
  return model_folder.with_kind(settings)


def load_model(settings: ExportSettings) -> trained_models.TrainedModel:
  """Loads the model to export."""
  # A folder of a training has its config and its task.
  if settings.model_dir:
    if unread := settings.given & {"bert_config_file", "task"}:
      raise ValueError(
        f"--{min(unread)} is for weights without a task; {settings.model_dir} "
        "has one; leave it out"
      )
    # With it come the labels, the thresholds and the settings of the training.
    return trained_models.load_output_dir(
      settings.model_dir, settings.vocab_file
    )

  # Without --task, the files of the folder decide. If they say nothing, it is
  # the head that the weights have.
  makes_vectors = exported_model.makes_vectors(settings.folder or "")
  task = settings.task or ("features" if makes_vectors else None)
  return loading.load_pretrained(settings, task)


def make_gate(settings: ExportSettings) -> comparison.Gate | None:
  """Returns what an export of --quantize must pass."""
  if settings.quantize == "none":
    return None

  # The texts are read as predict.py reads them.
  source = request_lines.Source(
    str(settings.eval_file),
    text_column=settings.text_column,
    text_pair_column=settings.text_pair_column,
  )
  return comparison.Gate(
    source, settings.max_eval_examples, settings.max_changed
  )


def main() -> None:
  """Loads the model, writes the export, and compares the two."""
  logging.set_verbosity(logging.ERROR)  # Saving logs every step.
  start = time.monotonic()
  settings = read_settings()

  # The vocabulary of --model is known only now.
  if settings.whole_word_answers:
    squad_settings.check_whole_words(settings.vocab_file)

  # The model, with the settings of its training unless a flag overrides them.
  trained = load_model(settings)
  model_folder.check_vocabulary(settings.vocab_file, trained.config)
  model_folder.check_length(settings.max_seq_length or 0, trained.config)

  # A flag that was not given overrides nothing: the model answers as it was
  # trained to answer.
  given = sorted(settings.given & trained_models.SETTINGS)
  values = {name: getattr(settings, name) for name in given}
  trained = trained_models.override(trained, values)

  # What answers depend on, for the user to see before the export is used.
  answer_settings = trained.answer_settings
  print(f"weights from {trained.weights}")

  # An export gets single texts, so the sentences around them are not known.
  if answer_settings.get("document_context"):
    print("note: trained with --document_context, but texts are tagged alone")

  # The names are the ones under which export.json has them.
  names = trained_models.setting_names(trained.kind)
  named = {name: answer_settings[name] for name in names}
  print(trained_models.describe_settings(named))

  # The folder appears when the export has been loaded again and has passed the
  # comparison with the model.
  result = exporting.write(
    settings.export_dir,
    trained,
    settings.vocab_file,
    settings.format,
    make_gate(settings),
  )

  # predict.py answers only with the formats that one of its engines computes.
  format_row = formats.FORMATS[settings.format]
  command = program.command("predict.py", export_dir=settings.export_dir)
  program.print_end(
    start,
    f"wrote {settings.export_dir}; {result}",
    command=f"{command} --serve" if format_row.engines else "",
  )


if __name__ == "__main__":
  program.run_program(main)
