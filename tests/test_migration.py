"""docs/migration.md: our lines of each library run, on tiny models.

Those with a published model's name are folders here, which come before names of
the Hub. The tests of the readers compare what is read; here it only runs.
"""

import dataclasses
import gzip
import importlib.util
import pathlib
import re
import shlex

import h5py
import numpy as np
import pytest

import any_model
from bert import heads
from bert.convert import writing
from bert.weights import checkpoints
import paths
import program_flags

PAGE = paths.ROOT / "docs" / "migration.md"
_HEADING = re.compile(r"^## (.*)$", re.MULTILINE)
_FENCED = re.compile(r"^```(\w*)\n(.*?)^```$", re.DOTALL | re.MULTILINE)
FIXTURES = paths.ROOT / "tests" / "fixtures"
POSITIONS = 128  # The max_seq_length of the page.
CONFIG = dataclasses.replace(
  any_model.CONFIG, num_hidden_layers=1, max_position_embeddings=POSITIONS
)


def read_sections():
  """Returns the text below each heading, by heading."""
  parts = _HEADING.split(PAGE.read_text(encoding="utf-8"))
  return dict(zip(parts[1::2], parts[2::2], strict=True))


SECTIONS = read_sections()
TABLE = next(
  content
  for language, content in _FENCED.findall(PAGE.read_text(encoding="utf-8"))
  if content.startswith("text,label\n")
)
# As many as the models of tests/fixtures have: the words of the table.
WORDS = list(dict.fromkeys(re.findall(r"[a-z]+", TABLE.lower())))
TOKENS = [*any_model.TOKENS[:5], *WORDS][: any_model.SIZES["vocab_size"]]


def write_release(folder, model=None):
  """Writes a release of Google's: bert_model.ckpt, config and vocabulary."""
  folder = pathlib.Path(folder)
  folder.parent.mkdir(exist_ok=True)
  values = any_model.write_google(folder, model, CONFIG, TOKENS)
  for path in (*folder.glob("model.ckpt-7.*"), folder / "checkpoint"):
    path.unlink()
  checkpoints.write(str(folder), values)
  return folder


def write_as(library, folder, model=None):
  """Writes a model as another library does."""
  source = write_release(f"{folder}_source", model)
  pathlib.Path(folder).parent.mkdir(exist_ok=True)
  writing.write(library, folder, any_model.read(source))


def write_garden(name, folder, weights):
  """Copies a model that Model Garden wrote, with as many positions as asked."""
  table = any_model.values(FIXTURES / name)[
    "bert/embeddings/position_embeddings"
  ]
  values = dict(
    checkpoints.read(checkpoints.find_checkpoint(str(FIXTURES / name)))
  )
  for key, value in values.items():
    if np.array_equal(value, table):
      values[key] = np.resize(table, (POSITIONS, table.shape[1]))
  pathlib.Path(folder, weights).parent.mkdir(parents=True)
  prefix = checkpoints.write(folder, values)
  for path in pathlib.Path(folder).glob("bert_model.ckpt.*"):
    path.rename(f"{folder}/{weights}{path.suffix}")
  return prefix


def prepare_hub():
  folder = pathlib.Path("bert_en_uncased_L-12_H-768_A-12")
  write_garden("hub", str(folder), "variables/variables")
  (folder / "saved_model.pb").touch()
  (folder / "assets").mkdir()
  (folder / "assets" / "vocab.txt").write_text("\n".join(TOKENS) + "\n")


def prepare_garden():
  write_garden("functional", "garden", "bert_model.ckpt")
  pathlib.Path("garden/vocab.txt").write_text("\n".join(TOKENS) + "\n")


def prepare_transformers():
  write_as("hugging_face", "google-bert/bert-base-uncased")
  write_as("hugging_face", "tickets_tf", heads.ClassifierModel(CONFIG, 2))


def prepare_keras_bert():
  write_release("uncased_L-12_H-768_A-12")
  folder = pathlib.Path("keras_folder")
  folder.mkdir()
  packed = (FIXTURES / "keras2" / "keras_bert.h5.gz").read_bytes()
  (folder / "model.h5").write_bytes(gzip.decompress(packed))
  (folder / "vocab.txt").write_text("\n".join(TOKENS) + "\n")
  with h5py.File(folder / "model.h5", "a") as file:
    group = file["model_weights/Embedding-Position/Embedding-Position"]
    table = group["embeddings:0"][()]
    del group["embeddings:0"]
    group["embeddings:0"] = np.resize(table, (POSITIONS, table.shape[1]))


def prepare_original():
  write_release("uncased_L-12_H-768_A-12")
  folder = pathlib.Path("glue_data/MRPC")
  folder.mkdir(parents=True)
  lines = ["Quality\t#1 ID\t#2 ID\t#1 String\t#2 String"]
  lines += [f"{i % 2}\t1\t2\tI forgot {i}.\tI forgot it." for i in range(40)]
  for name in ("train", "dev"):
    (folder / f"{name}.tsv").write_text("\n".join(lines) + "\n")


PREPARE = {
  "transformers: TFBertForSequenceClassification": prepare_transformers,
  "TF-Hub and Kaggle": prepare_hub,
  "Model Garden": prepare_garden,
  "KerasHub": lambda: write_as("keras_hub", "tickets_preset"),
  "keras-bert": prepare_keras_bert,
  "ktrain": prepare_transformers,
  "simpletransformers": prepare_transformers,
  "google-research/bert": prepare_original,
}


def run_block(language, content, names):
  """Runs Python, or commands, of the page."""
  if language == "python":
    exec(compile(content, str(PAGE), "exec"), names)
  elif language == "sh":
    for line in content.replace("\\\n", " ").splitlines():
      python, program, *flags = shlex.split(line)
      program_flags.succeed([python, str(paths.ROOT / program), *flags])


def test_every_library_is_prepared():
  with_code = [name for name, text in SECTIONS.items() if "```py" in text]
  assert with_code == list(PREPARE)


@pytest.mark.slow  # A training each: ten seconds.
@pytest.mark.parametrize("library", PREPARE)
def test_our_lines_run(library, tmp_path, monkeypatch):
  if library == "KerasHub" and not importlib.util.find_spec("keras_hub"):
    pytest.skip("needs requirements/keras_hub.txt")
  monkeypatch.chdir(tmp_path)
  pathlib.Path("tickets.csv").write_text(TABLE)
  PREPARE[library]()
  printed = []
  names = {"print": lambda *values: printed.extend(values)}
  for language, content in _FENCED.findall(SECTIONS[library]):
    run_block(language, content, names)

  # Each ends with an answer, or with the scores of a command.
  if library == "google-research/bert":
    scores = pathlib.Path("mrpc_output/eval_results.txt").read_text()
    assert "eval_accuracy" in scores
  else:
    assert printed[-1] in ("billing", "login")
  labels = pathlib.Path("tickets_model/labels.txt").read_text()
  assert labels == "billing\nlogin\n"
  for folder in pathlib.Path().glob("*_answers"):
    assert len((folder / "predictions.tsv").read_text().splitlines()) == 11
