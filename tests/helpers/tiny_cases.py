"""A tiny trained model for each task, and what to ask its export."""

import export_saved_model
import heads
import program_flags
import tiny_export

CLASSES = {"doc_stride": None, "window_pooling": "mean"}
TEXTS = [
  {"text": "the film was very good"},
  {"text": "bad plot", "text_pair": "the cast was poor and a film"},
  {"text": "a"},
]
CHOICES = {"context": "the film", "question": "was", "choices": ["good", "bad"]}
QUESTION = {"question": "good", "context": "the film was a very good film and"}
TAGS = ["O", "B-PER", "I-PER", "B-LOC", "I-LOC"]


def one_label(config):
  return heads.ClassifierModel(config, 1)


def tagger(config):
  return heads.TaggerModel(config, len(TAGS))


# By name: the kind, what makes the model, its labels and settings, requests.
CASES = {
  "single_label": ("single_label", None, ["neg", "pos"], CLASSES, TEXTS),
  "multi_label": ("multi_label", None, ["neg", "pos"], CLASSES, TEXTS),
  "regression": ("regression", one_label, ["x"], CLASSES, TEXTS),
  "windows": (
    "single_label",
    None,
    ["neg", "pos"],
    {"doc_stride": 4, "window_pooling": "max"},
    [{"text": "the film was very good and a plot " * 4}],
  ),
  "multiple_choice": ("multiple_choice", one_label, ["x"], {}, [CHOICES]),
  "tagging": (
    "tagging",
    tagger,
    TAGS,
    {"label_scheme": "iob2", "by_character": False},
    [{"text": "good film, the (very) " * 5}, {"text": "bad"}],
  ),
  "question_answering": (
    "question_answering",
    heads.SpanModel,
    ["x"],
    {},
    [QUESTION, {"question": "bad", "context": "the bad plot"}],
  ),
}


def run_export(folder, name="export", **flags):
  flags = {"model_dir": folder, "format": "onnx", **flags}
  program_flags.run_main(
    export_saved_model,
    export_saved_model.define_flags,
    vocab_file=folder / "vocab.txt",
    export_dir=folder / name,
    **flags,
  )
  return str(folder / name)


def write_case(folder, case, layers=2):
  kind, make, labels, settings, requests = CASES[case]
  tiny_export.write_trained(folder, kind, make, labels, layers, **settings)
  return requests
