"""Search in lines: exact products, an index made, resumed, refused; ranking."""

import json
import shutil

import numpy as np
import pytest

import bert
from bert import extract_features, search
from bert.data import vector_index
from bert.weights import checkpoints
import program_flags
import tiny_models

LINES = [
  "the film was good",
  "bad",
  "a very awful plot",
  "the cast was poor and the film was bad",
  "great film",
]


@pytest.fixture(scope="module")
def encoder(tmp_path_factory):
  folder = tmp_path_factory.mktemp("encoder")
  tiny_models.write_masked_lm(folder)
  tiny_models.write_modules(folder)
  flags = {"model_dir": "", "vocab_file": "", "model": folder}
  tiny_models.export_onnx(folder, **flags)
  return folder


@pytest.fixture
def here(encoder, tmp_path):
  (tmp_path / "lines.txt").write_text("".join(f"{x}\n" for x in LINES))
  return tmp_path


def run(here, model, **flags):
  """Runs the program; returns the answers."""
  flags = {"model": model, "input_file": here / "lines.txt", **flags}
  flags |= {"index_file": here / "i.npy", "output_file": here / "out.jsonl"}
  program_flags.run_main(search, search.SearchSettings, **flags)
  text = (here / "out.jsonl").read_text()
  return [json.loads(line) for line in text.splitlines()]


def vectors_of(folder, texts=LINES):
  return bert.load(folder).encode(texts)


def test_lines_are_found_and_shown(encoder, here, capsys):
  (here / "queries.txt").write_text("bad\nfilm film\n")
  flags = {"query": "great film", "query_file": here / "queries.txt"}
  first, second, third = run(here, encoder / "export", top_k=2, **flags)
  assert [x["query"] for x in (first, second, third)] == [
    "great film",
    "bad",
    "film film",
  ]
  best = first["results"][0]
  assert (best["line"], best["text"]) == (5, "great film")
  assert best["score"] == pytest.approx(1.0, abs=1e-3)
  assert len(second["results"]) == 2 and second["results"][0]["line"] == 2
  assert "i.npy: 5 lines; " in capsys.readouterr().err
  stored = np.load(here / "i.npy")
  assert stored.dtype == np.float16
  np.testing.assert_allclose(stored, vectors_of(encoder), atol=1e-3)
  # The folder makes the vectors of its export, and the table is to read.
  command = program_flags.command(
    "search",
    model=encoder,
    input_file=here / "lines.txt",
    index_file=here / "i.npy",
    query="bad",
    top_k=1,
  )
  shown = program_flags.succeed(command).stdout
  assert shown == "bad\n   1.000         2  bad\n"


def test_a_column_is_searched(encoder, here):
  path = here / "lines.jsonl"
  rows = [{"text": text, "other": LINES[0]} for text in LINES]
  path.write_text("".join(f"{json.dumps(row)}\n" for row in rows))
  flags = {"query": "great film", "input_file": path, "top_k": 1}
  with pytest.raises(ValueError, match="JSON Lines, not plain text, with the"):
    run(here, encoder / "export", **flags)
  flags["text_column"] = "text"
  [answer] = run(here, encoder / "export", **flags)
  [best] = answer["results"]
  assert (best["line"], best["text"]) == (5, "great film")
  with pytest.raises(ValueError, match="made of other text than is in --input"):
    run(here, encoder / "export", **{**flags, "text_column": "other"})


def test_a_killed_run_resumes(encoder, here, monkeypatch):
  monkeypatch.setattr(vector_index, "BLOCK", 2)
  model = encoder / "export"
  run(here, model)
  whole, calls = (here / "i.npy").read_bytes(), []
  (here / "i.npy").unlink()
  # It was killed within the second block of two vectors: a header of 128 bytes,
  # three vectors of 16 numbers of float16, and five bytes of the fourth.
  (here / "i.npy.part").write_bytes(whole[: 128 + 3 * 2 * 16 + 5])

  def encode(model, texts, **prompt):
    calls.append(texts)
    return model_encode(model, texts, **prompt)

  model_encode = bert.Model.encode
  monkeypatch.setattr(bert.Model, "encode", encode)
  run(here, model)
  assert (here / "i.npy").read_bytes() == whole
  assert [*map(len, calls)][1:] == [2, 1] and calls[1] == LINES[2:4]
  # Or before it wrote anything.
  (here / "i.npy").unlink()
  (here / "i.npy.part").write_bytes(whole[:50])
  run(here, model)
  assert (here / "i.npy").read_bytes() == whole


def extract(encoder, here, **flags):
  program_flags.run_main(
    extract_features,
    extract_features.VectorSettings,
    model=encoder,
    input_file=here / "lines.txt",
    output_file=here / "v.npz",
    output_format="npz",
    max_seq_length=16,
    **flags,
  )
  return here / "v.npz"


@pytest.fixture(name="vectors", scope="module")
def extract_once(encoder, tmp_path_factory):
  """What the program makes of LINES."""
  folder = tmp_path_factory.mktemp("vectors")
  (folder / "lines.txt").write_text("".join(f"{x}\n" for x in LINES))
  return np.load(extract(encoder, folder))["vectors"]


def test_vectors_of_extract_features(encoder, here):
  path = extract(encoder, here)
  [found] = run(here, encoder, vectors_file=path, query="bad", top_k=1)
  assert found["results"][0]["text"] == "bad"
  np.testing.assert_allclose(
    np.load(here / "i.npy"), vectors_of(encoder), atol=1e-3
  )


@pytest.mark.parametrize(
  ("flags", "lines", "message"),
  [
    ({"layers": "0,1"}, LINES, r"shape \(5, 2, 16\), expected .*\(5, 1, 16\)"),
    ({}, LINES[1:], r"shape \(4, 1, 16\), expected .*\(5, 1, 16\)"),
    ({}, LINES[::-1], "the vector of line 1 is not that of --model="),
  ],
)
def test_vectors_of_something_else(encoder, here, flags, lines, message):
  text = (here / "lines.txt").read_text()
  (here / "lines.txt").write_text("".join(f"{x}\n" for x in lines))
  path = extract(encoder, here, **flags)
  (here / "lines.txt").write_text(text)
  with pytest.raises(ValueError, match=message):
    run(here, encoder, vectors_file=path)
  assert not (here / "i.npy").exists()


@pytest.mark.parametrize(
  ("number", "place", "message"),
  [
    # The first vector is compared with the model's, the second is not.
    (np.nan, 0, "v.npz: the vector of line 1 holds NaN or a number beyond"),
    (np.inf, 0, "v.npz: the vector of line 1 holds NaN or a number beyond"),
    (np.nan, 1, "v.npz: the vector of line 2 holds NaN or a number beyond"),
    (1e5, 1, "v.npz: the vector of line 2 holds NaN or a number beyond"),
  ],
)
def test_numbers_that_are_not_finite(
  encoder, vectors, here, number, place, message
):
  vectors = vectors.copy()
  vectors[place, 0, 3] = number
  np.savez(here / "v.npz", vectors=vectors)
  with pytest.raises(ValueError, match=message):
    run(here, encoder, vectors_file=here / "v.npz")
  assert not (here / "i.npy").exists()


def test_files_that_hold_no_vectors(encoder, vectors, here):
  path, fault = here / "v.npz", "v.npz: not a .npz of extract_features.py: "
  for write, message in (
    (lambda file: np.save(file, vectors), fault + "one array, as in a .npy"),
    (lambda file: np.savez(file, x=vectors), fault + ".vectors is not a file"),
    (lambda file: np.savez(file, vectors=vectors > 0), "v.npz: bool of the"),
    (lambda file: file.write(b"text"), fault),
    (lambda file: None, fault + "No data left in file"),
  ):
    with path.open("wb") as file:
      write(file)
    with pytest.raises(ValueError, match=message):
      run(here, encoder, vectors_file=path)


@pytest.mark.parametrize(
  ("lines", "place", "cure"),
  [
    # extract_features.py makes two segments of it.
    (["a", "bad ||| film", "good plot was a film", "a"], 2, ": to extract_"),
    # The longest, of which more tokens are in the file.
    (["a", "bad film", "the film was good " * 4, "a"], 3, "$"),
  ],
)
def test_the_lines_that_may_differ_are_compared(
  encoder, here, lines, place, cure
):
  (here / "lines.txt").write_text("".join(f"{x}\n" for x in lines))
  shutil.copytree(encoder, here / "short")
  (here / "short" / "sentence_bert_config.json").write_text(
    json.dumps({"max_seq_length": 12})
  )
  path = extract(encoder, here)
  message = f"vector of line {place} is not that of .* and --input_file{cure}"
  with pytest.raises(ValueError, match=message):
    run(here, here / "short", vectors_file=path)


def test_other_weights_are_refused_however_near(encoder, here):
  run(here, encoder)
  further = shutil.copytree(encoder, here / "further")
  shutil.rmtree(further / "export", ignore_errors=True)
  [index] = further.glob("model.ckpt-*.index")
  values = dict(checkpoints.read(str(index).removesuffix(".index")))
  name = "bert/encoder/layer_1/output/dense/kernel"
  values[name] = values[name] + np.float32(1e-5)
  checkpoints.write(str(further), values, 0)
  message = f"i.npy: made of {encoder} with other weights than --model={here}"
  with pytest.raises(ValueError, match=message):
    run(here, further)
  values[name] = values[name] * np.nan
  checkpoints.write(str(further), values, 0)
  with pytest.raises(ValueError, match="NaN"):
    run(here, further)
  # Those of an export are of the model that it was made of.
  model, export = bert.load(encoder), bert.load(encoder / "export")
  assert len(model.weights_sha256) == 64
  assert export.weights_sha256 == model.weights_sha256
  assert export.identify_tokens() == model.identify_tokens()


def test_a_remote_index_is_refused(encoder, here):
  with pytest.raises(ValueError, match="--index_file=ram://i.npy: expected a"):
    program_flags.run_main(
      search,
      search.SearchSettings,
      model=encoder,
      input_file=here / "lines.txt",
      index_file="ram://i.npy",
    )


def test_an_index_of_another_model_or_text_is_refused(encoder, here):
  model = encoder / "export"
  run(here, model)
  other = shutil.copytree(encoder, here / "other")
  path = other / "sentence_bert_config.json"
  path.write_text('{"max_seq_length": 10}')
  message = f"i.npy: made of {model}, whose vectors --model={other} does not"
  with pytest.raises(ValueError, match=message):
    run(here, other)
  record = json.loads((here / "i.npy.json").read_text())
  wide = {**record, "probe": [0.5] * 24}
  (here / "i.npy.json").write_text(json.dumps(wide))
  message = "24 numbers a vector, not the 16 of --model="
  with pytest.raises(ValueError, match=message):
    run(here, model)
  (here / "i.npy.json").write_text(json.dumps(record))
  (here / "lines.txt").write_text("another\n" * 5)
  with pytest.raises(ValueError, match="i.npy: made of other text than is in"):
    run(here, model)
  (here / "i.npy.json").unlink()
  with pytest.raises(ValueError, match="i.npy: lacks .*i.npy.json"):
    run(here, model)
  # Removed, the index is made anew, though what described it is there.
  (here / "i.npy").unlink()
  (here / "i.npy.json").write_text(json.dumps(wide))
  run(here, model)
  assert json.loads((here / "i.npy.json").read_text())["lines"] == 5


def test_damaged_files_and_models_of_another_task(encoder, here, tmp_path):
  model = encoder / "export"
  run(here, model)
  (here / "i.npy.json").write_text('{"model": 1}')
  with pytest.raises(ValueError, match="model is 1, expected str"):
    run(here, model)
  for name in ("i.npy", "i.npy.json", "lines.txt"):
    (here / name).write_text("")
  for name in ("i.npy", "i.npy.json"):
    (here / name).unlink()
  with pytest.raises(ValueError, match="lines.txt: it is empty"):
    run(here, model)
  trained = tmp_path / "trained"
  trained.mkdir()
  tiny_models.write_case(trained, "tagging")
  with pytest.raises(ValueError, match="for tagging, not vectors"):
    run(here, trained)
  with pytest.raises(ValueError, match="a model for tagging of text; expected"):
    run(here, model, query="film", rerank=trained)


@pytest.mark.parametrize("case", ["regression", "single_label"])
def test_a_model_of_pairs_orders_the_first_lines_anew(
  encoder, here, tmp_path, case
):
  trained = tmp_path / "trained"
  trained.mkdir()
  tiny_models.write_case(trained, case)
  flags = {"rerank": trained, "rerank_lines": 4, "query": "good film"}
  if case == "single_label":
    with pytest.raises(ValueError, match="=1: expected one of neg, pos"):
      run(here, encoder, **flags)
    flags["rerank_label"] = "pos"
  [plain] = run(here, encoder, query="good film", top_k=4)
  [found] = run(here, encoder, top_k=3, **flags)
  pairs = [("good film", result["text"]) for result in plain["results"]]
  answers = bert.load(trained)(pairs)
  scores = [
    a["value"] if case == "regression" else a["probabilities"]["pos"]
    for a in answers
  ]
  best = sorted(range(4), key=lambda i: -scores[i])[:3]
  assert [r["line"] for r in found["results"]] == [
    plain["results"][i]["line"] for i in best
  ]
  assert found["results"][0]["score"] == pytest.approx(max(scores))
  assert [r["similarity"] for r in found["results"]] == [
    plain["results"][i]["score"] for i in best
  ]


@pytest.mark.parametrize("name", ["lines.txt", "i.npy", "i.npy.json", "q.txt"])
def test_answers_never_replace_what_they_are_made_of(encoder, here, name):
  run(here, encoder, query="film")
  (here / "q.txt").write_text("film\n")
  before = {path.name: path.read_bytes() for path in here.iterdir()}
  command = program_flags.command(
    "search",
    model=encoder,
    input_file=here / "lines.txt",
    index_file=here / "i.npy",
    query_file=here / "q.txt",
    output_file=here / name,
  )
  message = f"--output_file={here / name} is an input; name another file"
  program_flags.assert_refused(program_flags.run_here(command), message)
  assert {path.name: path.read_bytes() for path in here.iterdir()} == before
