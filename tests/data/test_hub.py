"""Tests of models of the Hub: the real client asks a server of the tests."""

import pathlib
import subprocess
import sys

import pytest

from bert.data import hub as product
from bert.vocabularies import vocabulary_table
import hub_server
import paths

FIND = """
import sys
from bert.data import hub
try:
  print(hub.find(sys.argv[1], "--model="))
except ValueError as error:
  sys.exit(str(error))
"""
WEIGHTS = bytes(range(256)) * 4000
MODEL = {
  "config.json": b'{"model_type": "bert"}',
  "vocab.txt": b"[UNK]\nthe\n",
  "model.safetensors": WEIGHTS,
  "2_Dense/config.json": b"{}",
  "2_Dense/model.safetensors": b"a matrix",
  # Not to be fetched.
  "pytorch_model.bin": b"pickle",
  "modeling_bert.py": b"code",
  "onnx/config.json": b"{}",
  "README.md": b"# BERT",
}
FETCHED = ["2_Dense/config.json", "2_Dense/model.safetensors"]
FETCHED += ["config.json", "model.safetensors", "vocab.txt"]


@pytest.fixture(name="hub")
def start_hub():
  with hub_server.start() as hub:
    yield hub


@pytest.fixture
def find(hub, tmp_path):
  """Gives a function that finds a model in a process of its own.

  It returns the folder, or else the error.
  """

  def run(name, **others):
    variables = hub_server.environment(hub, tmp_path, **others)
    result = hub_server.run_python(FIND, name, variables=variables)
    if result.returncode:
      assert "Traceback" not in result.stderr
      return result.stderr.strip().splitlines()[-1]
    return pathlib.Path(result.stdout.strip())

  return run


def test_a_model_is_fetched_once(hub, find):
  commit = hub.push("owner/tiny", MODEL)
  folder = find("owner/tiny")
  assert folder.name == commit
  assert hub.fetched() == FETCHED
  assert (folder / "model.safetensors").read_bytes() == WEIGHTS
  assert product.name_of(str(folder)) == f"owner/tiny@{commit}"
  # Only the commit of main is asked for.
  assert find("owner/tiny") == folder
  assert hub.requests == ["GET /api/models/owner/tiny/revision/main"]
  hub.requests.clear()
  assert find("owner/tiny", HF_HUB_OFFLINE="1") == folder
  assert find(f"owner/tiny@{commit}") == folder
  assert hub.requests == []
  # The cache also serves without a network.
  hub.url = "http://127.0.0.1:1"
  assert find("owner/tiny") == folder


def test_the_hub_itself_is_asked_over_https(hub, tmp_path):
  variables = hub_server.environment(hub, tmp_path, HF_HUB_OFFLINE="1")
  del variables["HF_ENDPOINT"]
  result = hub_server.run_python(FIND, "owner/tiny", variables=variables)
  assert " https://huggingface.co/owner/tiny " in result.stderr


def test_a_revision_is_another_commit(hub, find):
  old = hub.push("owner/tiny", MODEL, "main", "v1")
  new = hub.push("owner/tiny", {**MODEL, "vocab.txt": b"[UNK]\na\n"})
  assert find("owner/tiny").name == new
  hub.fetched()
  assert find("owner/tiny@v1").name == old
  assert hub.fetched() == ["vocab.txt"]  # The other bytes are in the cache.
  hub.push("owner/tiny", MODEL, "refs/pr/1")
  assert find("owner/tiny@refs/pr/1").name == old


def test_weights_in_parts_and_those_of_tensorflow_1(hub, find):
  small = {"config.json": MODEL["config.json"], "vocab.txt": MODEL["vocab.txt"]}
  index = {"model.safetensors.index.json": b"{}"}
  parts = {f"model-0000{i}-of-00002.safetensors": WEIGHTS for i in (1, 2)}
  wanted = small | index | parts
  others = {"checkpoint": b"", "optimizer.safetensors": WEIGHTS}
  hub.push("owner/parts", wanted | others)
  assert sorted(path.name for path in find("owner/parts").iterdir()) == sorted(
    wanted
  )
  google = {
    f"bert_model.ckpt.{n}": b"x" for n in ("index", "data-00000-of-00001")
  }
  hub.push("owner/google", small | google | {"tf_model.h5": b"x"})
  hub.fetched()
  find("owner/google")
  assert hub.fetched() == sorted(small | google)


def test_the_files_of_every_vocabulary_and_those_of_gpt_1_are_fetched(
  hub, find
):
  for kind in (*vocabulary_table.KINDS.values(), *vocabulary_table.NAMES):
    names = [kind] if isinstance(kind, str) else [kind.name, *kind.beside]
    assert set(names) <= set(product._SMALL_FILES)
  gpt = dict.fromkeys(
    "params_shapes.json params_0.npy params_1.npy encoder_bpe_40000.json "
    "vocab_40000.bpe".split(),
    b"x",
  )
  hub.push("owner/gpt", gpt | {"train.py": b"code"})
  assert sorted(p.name for p in find("owner/gpt").iterdir()) == sorted(gpt)


def test_an_interrupted_file_is_continued(hub, find):
  hub.push("owner/tiny", MODEL)
  hub.cut["model.safetensors"] = 1000
  folder = find("owner/tiny")
  assert (folder / "model.safetensors").read_bytes() == WEIGHTS
  assert hub.fetched().count("model.safetensors") == 2


def test_a_killed_download_begins_again_where_it_was(hub, find, tmp_path):
  hub.push("owner/tiny", MODEL)
  hub.stalled.add("model.safetensors")
  variables = hub_server.environment(hub, tmp_path)
  command = [sys.executable, "-c", FIND, "owner/tiny"]
  variables["PYTHONPATH"] = str(paths.ROOT)
  with subprocess.Popen(command, env=variables, cwd=tmp_path) as process:
    assert hub.has_stalled.wait(60)
    process.kill()
  assert "be reached" in find("owner/tiny", HF_HUB_OFFLINE="1")
  hub.stalled.clear()
  hub.fetched()
  assert (find("owner/tiny") / "model.safetensors").read_bytes() == WEIGHTS
  assert hub.fetched() == ["model.safetensors"]


def test_a_cache_that_lacks_files_is_filled(hub, find):
  hub.push("owner/tiny", MODEL)
  path = find("owner/tiny") / "model.safetensors"
  path.resolve().unlink()
  path.unlink()
  error = find("owner/tiny", HF_HUB_OFFLINE="1")
  assert "no such folder; nor is it whole in the cache /" in error
  assert "fetch it elsewhere with `hf download owner/tiny --local-dir=" in error
  hub.fetched()
  find("owner/tiny")
  assert hub.fetched() == ["model.safetensors"]


def test_damaged_weights_are_not_kept(hub, find, tmp_path):
  hub.push("owner/tiny", MODEL)
  hub.damaged.add("model.safetensors")
  error = find("owner/tiny")
  assert "model.safetensors came without its hash" in error
  assert "is removed: it was damaged on the way; try again" in error
  hub.damaged.clear()
  assert (find("owner/tiny") / "model.safetensors").read_bytes() == WEIGHTS


@pytest.mark.parametrize(
  "name",
  [
    "vocab.txt",  # Whose hash is git's, as that of all small files.
    "best/checkpoint",
    "best/model.ckpt-9.index",
    "best/model.ckpt-9.data-00000-of-00001",
  ],
)
def test_every_file_is_compared_with_its_hash(hub, find, name):
  best = {
    f"best/{file}": file.encode()
    for file in (
      "checkpoint",
      "model.ckpt-9.index",
      "model.ckpt-9.data-00000-of-00001",
    )
  }
  small = {"config.json": MODEL["config.json"], "vocab.txt": MODEL["vocab.txt"]}
  hub.push("owner/run", small | best)
  hub.damaged.add(name)
  assert f"{name} came without its hash" in find("owner/run")
  hub.damaged.clear()
  folder = find("owner/run")
  assert (folder / name).read_bytes() == (small | best)[name]


def test_what_a_killed_process_fetched_is_compared(hub, find, tmp_path):
  hub.push("owner/tiny", MODEL)
  hub.damaged.add("model.safetensors")
  # As a process leaves it that is killed before it computes the hash.
  code = "import huggingface_hub as h; h.snapshot_download('owner/tiny')"
  variables = hub_server.environment(hub, tmp_path)
  assert hub_server.run_python(code, variables=variables).returncode == 0
  hub.damaged.clear()
  error = find("owner/tiny", HF_HUB_OFFLINE="1")
  assert "model.safetensors came without its hash" in error
  assert (find("owner/tiny") / "model.safetensors").read_bytes() == WEIGHTS


def test_a_file_is_compared_once_and_again_if_it_was_changed(hub, find):
  hub.push("owner/tiny", MODEL)
  folder = find("owner/tiny")
  checked = folder.parents[1] / "checked"
  blobs = [path.resolve() for path in folder.rglob("*") if path.is_file()]
  assert sorted(path.name for path in checked.iterdir()) == sorted(
    path.name for path in blobs
  )
  record = checked / (folder / "model.safetensors").resolve().name
  before = record.stat().st_mtime_ns
  assert find("owner/tiny") == folder
  assert record.stat().st_mtime_ns == before
  (folder / "model.safetensors").resolve().write_bytes(WEIGHTS[::-1])
  assert "model.safetensors came without its hash" in find("owner/tiny")


def test_a_cache_that_cannot_be_written_is_compared_each_time(hub, find):
  hub.push("owner/tiny", MODEL)
  folder = find("owner/tiny")
  checked = folder.parents[1] / "checked"
  for path in checked.iterdir():
    path.unlink()
  checked.rmdir()
  checked.write_text("A file, below which no file can be made.")
  assert find("owner/tiny") == folder


def test_older_formats_are_fetched_if_there_is_no_other(hub, find):
  older = {**MODEL, "tf_model.h5": b"numbers"}
  del older["model.safetensors"]
  hub.push("owner/older", older)
  found = find("owner/older").iterdir()
  names = sorted(path.name for path in found if path.is_file())
  assert names == ["config.json", "pytorch_model.bin", "vocab.txt"]
  del older["pytorch_model.bin"]
  hub.push("owner/keras", older)
  found = find("owner/keras").iterdir()
  names = sorted(path.name for path in found if path.is_file())
  assert names == ["config.json", "tf_model.h5", "vocab.txt"]


def test_a_token_opens_a_gated_model(hub, find):
  hub.push("owner/gated", MODEL)
  hub.gated.add("owner/gated")
  error = find("owner/gated")
  assert error.startswith(
    "--model=owner/gated: gated: accept its terms at http"
  )
  assert find("owner/gated", HF_TOKEN="secret").is_dir()


def test_faults_in_a_line(hub, find):
  hub.push("owner/flax", {"config.json": b"{}", "flax_model.msgpack": b"x"})
  gpt = {**MODEL, "config.json": b'{"model_type": "gpt2"}'}
  hub.push("owner/gpt", gpt)
  for name, message in (
    ("owner/typo", "no such folder; nor is http"),
    ("owner/gpt@v9", "Revision Not Found"),
    ("owner/gpt", "model_type is 'gpt2': not a BERT, but a model for transf"),
    (
      "owner/flax",
      "no model.safetensors there, nor weights of a BERT in another format: a",
    ),
    ("owner/a--b", "Cannot have -- or .. in repo_id"),
  ):
    assert find(name).startswith(f"--model={name}: "), name
    assert message in find(name)
  assert not {"flax_model.msgpack", "model.safetensors"} & {*hub.fetched()}
  hub.push("owner/tiny", MODEL)
  hub.hides_commits = True
  page = f"--model=owner/tiny: {hub.url}/owner/tiny"
  assert f"{page} does not say which commit the rev" in find("owner/tiny")
  hub.hides_commits = False
  hub.status = 500
  assert "/owner/tiny answers with HTTP 500: pass a local" in find("owner/tiny")
  hub.status = 0
  hub.longer.add("vocab.txt")
  error = find("owner/tiny")
  assert "file should be of size 10 but has size 14 ((\u2026)" in error
  assert "force_download" not in error
  hub.url = "http://127.0.0.1:1"
  error = find("owner/typo")
  assert "--model=owner/typo: no such folder; nor is it whole in" in error
  assert (
    f"{hub.url}/owner/typo cannot be reached: pass a local folder; or" in error
  )


def test_a_local_file_of_that_name_wins(tmp_path, monkeypatch):
  monkeypatch.chdir(tmp_path)
  (tmp_path / "owner" / "tiny").mkdir(parents=True)
  (tmp_path / "owner" / "model.ckpt-1.index").write_text("")
  for path in (
    "owner/tiny",
    "owner/model.ckpt-1",
    "/a/b",
    "a/b/c",
    "tiny",
    "gs://a/b",
  ):
    assert product.find(path) == path
