"""Vectors of folders that sentence-transformers saved are that library's.

The tests of its files alone are in tests/data/test_sbert_files.py.
"""

import json
import os
import shutil

os.environ.setdefault("USE_TF", "0")

import numpy as np
import pytest

import bert
from bert import convert_checkpoint, export_saved_model
import paths
import program_flags
import sentence_folder

pytestmark = [pytest.mark.slow, paths.needs_minilm]
PROMPTS = {"query": "Represent this question: ", "passage": "TEXT: "}
TEXTS = [
  "Caf\xe9 \xdcber DIE Stra\xdfe, \u03a3\u0391!",
  "",
  "\u4e2d\u6587 and \uff26\uff35\uff2c\uff2c",
]


def read_texts():
  """Returns 200 texts: lines of the documentation, and some of many lines.

  But none in which that library's tokenizer finds [MASK] and the like.
  """
  lines = [
    line.strip()
    for path in sorted((paths.ROOT / "docs").glob("*.md"))
    for line in path.read_text(encoding="utf-8").splitlines()
    if line.strip() and "|||" not in line and "[" not in line
  ]
  few = lines[:: len(lines) // 160][:160]
  many = [" ".join(lines[n : n + 20]) for n in range(0, 740, 20)]
  texts = [*TEXTS, *few, *many]
  assert len(texts) == 200
  return texts


def edit(path, **changes):
  path.write_text(json.dumps({**json.loads(path.read_text()), **changes}))


def open_there(folder, **options):
  """Opens a folder with the library, which takes seconds to import."""
  library = pytest.importorskip(
    "sentence_transformers", reason="needs requirements/bench.txt"
  )
  return library.SentenceTransformer(str(folder), device="cpu", **options)


def save_plain(folder):
  open_there(paths.MINILM).save(str(folder))


def save_prompts(folder):
  model = open_there(paths.MINILM, prompts=PROMPTS, default_prompt_name="query")
  model.save(str(folder))


def save_length(folder):
  model = open_there(paths.MINILM)
  model.max_seq_length = 23
  model.save(str(folder))


def save_lower(folder):
  """A tokenizer that keeps case and accents, behind what lower-cases texts."""
  save_plain(folder)
  edit(folder / "tokenizer_config.json", do_lower_case=False)
  whole = json.loads((folder / "tokenizer.json").read_text())
  whole["normalizer"]["lowercase"] = False
  (folder / "tokenizer.json").write_text(json.dumps(whole))
  # Versions to 5 wrote it; this one reads it still.
  edit(folder / "sentence_bert_config.json", do_lower_case=True)


def save_max_beside_another(folder):
  """A second folder of a Pooling, of which modules.json names one."""
  model = open_there(paths.MINILM)
  model[1].pooling_mode = "max"
  model.save(str(folder))
  (folder / "1_Pooling").rename(folder / "3_Pooling")
  modules = json.loads((folder / "modules.json").read_text())
  modules[1]["path"] = "3_Pooling"
  (folder / "modules.json").write_text(json.dumps(modules[:2]))
  save_other = folder / "1_Pooling"
  save_other.mkdir()
  shutil.copy(folder / "3_Pooling" / "config.json", save_other)
  edit(save_other / "config.json", pooling_mode="mean")


def make_dense(activation, **options):
  """Makes a layer from the 384 numbers of the model to 96."""
  import torch

  library = pytest.importorskip("sentence_transformers")
  torch.manual_seed(1)
  return library.models.Dense(
    384, 96, activation_function=activation, **options
  )


def save_as_labse(folder):
  """[CLS], a layer with tanh, length 1."""
  import torch

  model = open_there(paths.MINILM)
  model[1].pooling_mode = "cls"
  model.insert(2, make_dense(torch.nn.Tanh()))
  model.save(str(folder))


def save_as_distiluse(folder):
  """A mean and a layer, whose weights PyTorch wrote."""
  import torch

  model = open_there(paths.MINILM)
  del model[2]
  model.append(make_dense(torch.nn.GELU(), bias=False))
  model.save(str(folder), safe_serialization=False)


SAVE = {
  "plain": save_plain,
  "as_labse": save_as_labse,
  "as_distiluse": save_as_distiluse,
  "prompts": save_prompts,
  "length": save_length,
  "lower": save_lower,
  "max": save_max_beside_another,
}


@pytest.fixture(scope="module", params=SAVE)
def folder(request, tmp_path_factory):
  path = tmp_path_factory.mktemp(request.param)
  SAVE[request.param](path)
  return path


@pytest.fixture(scope="module")
def expected(folder):
  return encode(folder)


def encode(folder, **options):
  model = open_there(folder)
  return model.encode(read_texts(), **options)


def vectors_of(folder, *options):
  answers = bert.load(folder)(read_texts(), *options)
  return np.array([answer["vector"] for answer in answers])


def extract(folder, **flags):
  return sentence_folder.extract(folder, read_texts(), **flags)


def check(found, expected):
  """Compares vectors; numbers of those that are not normalised are larger."""
  difference = np.abs(found - expected).max() / np.abs(expected).max()
  print(f"largest difference {difference:.1e}")
  assert difference < 1e-5


def test_its_files_have_the_keys_that_are_known(tmp_path):
  save_plain(tmp_path)
  for name, expected in sentence_folder.WRITTEN.items():
    content = json.loads((tmp_path / name).read_text())
    if isinstance(content, list):
      content, expected = dict(enumerate(content)), dict(enumerate(expected))
      assert content == expected
    assert content.keys() == expected.keys(), name


def test_vectors_are_the_same(folder, expected):
  check(vectors_of(folder), expected)
  check(extract(folder), expected)


def test_prompts_by_name(folder):
  if folder.name.startswith("prompts"):
    expected = encode(folder, prompt_name="passage")
    assert np.abs(expected - encode(folder)).max() > 0.01
    check(vectors_of(folder, "passage"), expected)
    check(extract(folder, prompt_name="passage"), expected)


@pytest.mark.parametrize("format", ["google", "hugging_face"])
def test_a_conversion_keeps_them(folder, expected, format, tmp_path):
  program_flags.run_main(
    convert_checkpoint,
    convert_checkpoint.ConversionSettings,
    input=folder,
    output=tmp_path / "out",
    output_format=format,
  )
  check(vectors_of(tmp_path / "out"), expected)
  if format == "hugging_face":
    check(encode(tmp_path / "out"), expected)


@pytest.mark.parametrize("format", ["onnx", "saved_model"])
def test_an_export_keeps_them(folder, expected, format, tmp_path):
  program_flags.run_main(
    export_saved_model,
    export_saved_model.ExportSettings,
    model=folder,
    export_dir=tmp_path / "out",
    format=format,
  )
  check(vectors_of(tmp_path / "out"), expected)
