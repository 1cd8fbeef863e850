"""Encoders of sentences: exports that pool and normalise, and Python."""

import json

import numpy as np
import pytest

import bert
import extract_features
import program_flags
import tiny
import tiny_models

TEXTS = [
  "the film was good",
  "bad",
  "",
  "a very very awful plot " * 2 + "a film",
]


@pytest.fixture(scope="module")
def encoder(tmp_path_factory):
  """Returns a folder of sentence-transformers: means of length 1."""
  folder = tmp_path_factory.mktemp("encoder")
  tiny_models.write_masked_lm(folder)
  tiny_models.write_modules(folder, max_seq_length=12)
  return folder


@pytest.fixture(scope="module")
def expected(encoder):
  """Returns what extract_features.py makes of the texts."""
  (encoder / "in.txt").write_text("".join(f"{text}\n" for text in TEXTS))
  program_flags.run_main(
    extract_features,
    extract_features.VectorSettings,
    model=encoder,
    input_file=encoder / "in.txt",
    output_file=encoder / "out.npz",
    output_format="npz",
  )
  with np.load(encoder / "out.npz") as found:
    return found["vectors"][:, 0]


def export(folder, name="export", **flags):
  flags = {"model_dir": "", "vocab_file": "", "model": folder, **flags}
  return tiny_models.run_export(folder, name, **flags)


def vectors_of(folder, texts=TEXTS):
  return np.array([answer["vector"] for answer in bert.load(folder)(texts)])


@pytest.mark.parametrize("format", ["onnx", "saved_model"])
def test_an_export_makes_the_vectors_of_its_folder(
  encoder, expected, format, capsys
):
  # It has a masked-LM head too, but its folder says what it is for.
  path = export(encoder, format, format=format)
  printed = capsys.readouterr()
  line = "--pooling=mean --normalize=True --max_seq_length=12, as "
  assert f"{line}{encoder}/modules.json says\n" in printed.err
  assert "max_seq_length 12  layer -1  pooling mean  normalize\n" in printed.out
  found = vectors_of(path)
  np.testing.assert_allclose(found, expected, atol=1e-5)
  np.testing.assert_allclose(np.linalg.norm(found, axis=1), 1.0, atol=1e-5)
  command = program_flags.command("predict", export_dir=path, text=TEXTS[0])
  answer = json.loads(program_flags.run_here(command).stdout)
  np.testing.assert_allclose(answer["vector"], expected[0], atol=1e-5)


def test_the_folder_itself_makes_them_in_python(encoder, expected):
  model = bert.load(encoder)
  assert model.task == "features"
  assert model(TEXTS[3])["truncated"] and not model(TEXTS[0])["truncated"]
  np.testing.assert_allclose(vectors_of(encoder), expected, atol=1e-5)


def test_flags_replace_what_the_folder_states(encoder, expected):
  path = export(encoder, "longer", max_seq_length=16, normalize=False)
  assert not bert.load(path)(TEXTS[3])["truncated"]
  found = vectors_of(path, TEXTS[:3])
  sizes = np.linalg.norm(found, axis=1, keepdims=True)
  assert np.abs(sizes - 1.0).min() > 0.1
  np.testing.assert_allclose(found / sizes, expected[:3], atol=1e-5)
  path = export(encoder, "cls", pooling="cls")
  assert not np.allclose(vectors_of(path), expected, atol=0.1)


def test_settings_of_a_training_do_not_make_it_a_classifier(encoder, expected):
  path = encoder / "settings.json"
  for problem in ("embedding", None, ["regression"]):
    path.write_text(json.dumps({"problem": problem}))
    np.testing.assert_allclose(vectors_of(encoder), expected, atol=1e-5)
  path.write_text(json.dumps({"problem": "regression"}))
  with pytest.raises(ValueError, match="vocab_file_sha256 is None"):
    bert.load(encoder)
  path.unlink()


def test_an_earlier_export_has_vectors_of_any_length(tmp_path):
  """Its card does not say `normalize`, and nothing is refused."""
  maker = tiny_models.make_maker(
    tmp_path, ["text"], "features", layer=-1, pooling="mean"
  )
  settings = {**maker.card.settings, "max_seq_length": tiny.SEQUENCE}
  tiny_models.answers.check_settings("features", settings, tiny.SEQUENCE)


def test_int8_is_checked_by_spearman_on_a_table_of_pairs(encoder, tmp_path):
  words = "film plot cast was good bad very".split()
  rows = [(words[i % 7], f"{words[i % 5]} {words[i % 4]}") for i in range(60)]
  first, second = (
    vectors_of(encoder, [*part]) for part in zip(*rows, strict=True)
  )
  cosines = (first * second).sum(1)
  lines = [f"{a}\t{b}\t{x}\n" for (a, b), x in zip(rows, cosines, strict=True)]
  pairs = tmp_path / "pairs.tsv"
  pairs.write_text("text\ttext_pair\tlabel\n" + "".join(lines))
  flags = {"quantize": "int8", "eval_file": pairs, "max_score_drop": 2}
  path = export(encoder, "int8", **flags)
  found = bert.load(path)._model.card.quantization
  assert found["before"]["spearman"] == pytest.approx(1.0)
  assert 0.0 < found["after"]["spearman"] < 1.0


def test_a_folder_without_weights_or_vocabulary(encoder, tmp_path):
  tiny_models.write_modules(tmp_path)
  with pytest.raises(ValueError, match="expected the --export_dir of"):
    bert.load(tmp_path)
  (tmp_path / "vocab.txt").write_bytes((encoder / "vocab.txt").read_bytes())
  with pytest.raises(ValueError, match="no checkpoint|holds no|expected"):
    bert.load(tmp_path)
