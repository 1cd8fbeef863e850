"""Which flags --help shows, and texts of flags that several programs share."""

# --helpfull shows all flags of a program; --help the required ones and these,
# with which nine of ten commands are written.
MOST_USED = frozenset(
  {
    # The data, and files that are written.
    "data_dir",
    "train_file",
    "eval_file",
    "eval_input_file",
    "predict_file",
    "input_file",
    "output_file",
    "text_column",
    "label_column",
    "eval_share",
    "vocab_file",
    # What a training does, how long and in which steps.
    "do_train",
    "do_eval",
    "do_predict",
    "num_train_epochs",
    "num_train_steps",
    "num_warmup_steps",
    "learning_rate",
    "train_batch_size",
    "max_seq_length",
    # Pre-training and its records.
    "max_predictions_per_seq",
    "masks",
    "dupe_factor",
    "documents_per_block",
    "num_processes",
    # SQuAD, sentence vectors, features, exports, masked words, search.
    "version_2_with_negative",
    "objective",
    "layers",
    "pooling",
    "output_format",
    "format",
    "quantize",
    "head",
    "text",
    "serve",
    "query",
    "top_k",
    "score",
  }
)
# A program with at most this many flags shows all of them.
FEW_FLAGS = 13

# Texts of flags that several classes of settings declare, so that all programs
# say the same of them.
MODEL = (
  "The folder of the model, from which the program takes config, vocabulary, "
  "casing and weights: an unzipped model that Google released, the "
  "--output_dir of a training, or a folder that Hugging Face, KerasHub or "
  "TF-Hub wrote. Or a model's name on the Hugging Face Hub, owner/name or "
  "owner/name@revision: the program fetches it."
)
INPUT_FILE = (
  "UTF-8 text, one input per line: files or globs, separated by commas; .gz "
  "and .xz are read, too. - is the standard input."
)
TEXT_COLUMN = (
  "For JSON Lines, CSV or TSV: the column of the texts, as a name or a number "
  "from 0. Default: the input is plain text."
)
CONFIG = "The bert_config.json of the model: its architecture."
STRIP_ACCENTS = (
  "Whether lower-casing strips accents, as it does by default. Pass false for "
  "a model that was trained on lower-cased text with accents."
)
