"""Texts of --help that several programs share."""

MODEL = (
  "The model's folder, which stands for its config, vocabulary, casing and "
  "weights: an unpacked release, the --output_dir of a training, or a folder "
  "of Hugging Face's, KerasHub's or TF-Hub's. Or a model's name on the Hugging "
  "Face Hub, owner/name or owner/name@revision, which is fetched."
)
INPUT_FILE = (
  "UTF-8 text, one input a line: files or globs, separated by commas, .gz and "
  ".xz too; or - for the standard input."
)
TEXT_COLUMN = (
  "Of JSON Lines, CSV or TSV: the column of the texts, name or number from 0; "
  "default: the input is plain text."
)
