"""Tests of models of the Hub: the real client asks a server of the tests."""

import pathlib
import subprocess
import sys

import pytest

from data import hub as product
import hub_server
import paths

FIND = """
import sys
from data import hub
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
  # Not to be fetched.
  "pytorch_model.bin": b"pickle",
  "modeling_bert.py": b"code",
  "onnx/config.json": b"{}",
  "README.md": b"# BERT",
}
FETCHED = ["config.json", "model.safetensors", "vocab.txt"]


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
  assert "model.safetensors came without its SHA-256" in error
  assert "is removed: it was damaged on the way; try again" in error
  hub.damaged.clear()
  assert (find("owner/tiny") / "model.safetensors").read_bytes() == WEIGHTS


def test_a_token_opens_a_gated_model(hub, find):
  hub.push("owner/gated", MODEL)
  hub.gated.add("owner/gated")
  error = find("owner/gated")
  assert error.startswith(
    "--model=owner/gated: gated: accept its terms at http"
  )
  assert find("owner/gated", HF_TOKEN="secret").is_dir()


def test_faults_in_a_line(hub, find):
  only = {name: MODEL[name] for name in ("config.json", "pytorch_model.bin")}
  hub.push("owner/pickle", only)
  gpt = {**MODEL, "config.json": b'{"model_type": "gpt2"}'}
  hub.push("owner/gpt", gpt)
  for name, message in (
    ("owner/typo", "no such folder; nor is http"),
    ("owner/gpt@v9", "Revision Not Found"),
    ("owner/gpt", "model_type is 'gpt2': not a BERT, but a model for transf"),
    (
      "owner/pickle",
      "no model.safetensors there, and pickles are not fetched",
    ),
    ("owner/a--b", "Cannot have -- or .. in repo_id"),
  ):
    assert find(name).startswith(f"--model={name}: "), name
    assert message in find(name)
  assert not {"pytorch_model.bin", "model.safetensors"} & {*hub.fetched()}
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
