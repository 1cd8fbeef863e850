"""Models of the Hugging Face Hub, which are fetched into its client's cache.

Numbers, vocabularies and JSON are fetched, never code. A pytorch_model.bin can
run code in PyTorch, but not in `bert/convert/torch_files.py`.
"""

from collections.abc import Sequence
import contextlib
import functools
import hashlib
import logging
import os
import re
from typing import Any

from bert.data import file_search, files, imports, label_files

RECORD = "hub_model.json"  # In an output folder: the model its run began with.
# Config, tokens, and how vectors or the answers of a trained model are made.
_SMALL_FILES = [
  "config.json",
  "bert_config.json",
  "vocab.txt",
  "vocab.model",
  "vocab.words",
  "vocab.accents",
  "vocab.unidic_lite",
  "vocab.ipadic",
  "encoder_bpe_40000.json",
  "vocab_40000.bpe",
  "tokenizer.json",
  "tokenizer_config.json",
  "special_tokens_map.json",
  "added_tokens.json",
  "labels.txt",
  "settings.json",
  # How sentence-transformers makes vectors, see bert/data/sbert_files.py.
  "modules.json",
  "config_sentence_transformers.json",
  "sentence_*_config.json",
  "*_Pooling/config.json",
  "*_Normalize/config.json",
  "*_Dense/config.json",
  "*_Dense/model.safetensors",  # A matrix and a bias, some megabytes.
  "*_Dense/pytorch_model.bin",
  "prediction.json",
  "google_only.json",  # As these two, in a folder that was converted.
  label_files.LABEL_THRESHOLDS,
  label_files.ANSWER_THRESHOLD,
  label_files.TEMPERATURE,
]
# A repository may hold its weights in several formats. Only the first of these
# that it has is fetched.
_WEIGHTS = (
  ("model.safetensors", "model.safetensors.index.json", "model-*.safetensors"),
  # Google's. A star also stands for a slash, as in best/model.ckpt-9.index.
  ("checkpoint", "*.index", "*.data-*-of-*", "best/checkpoint"),
  # Files of PyTorch and HDF5, of which only numbers are read.
  ("pytorch_model.bin", "pytorch_model.bin.index.json", "pytorch_model-*.bin"),
  ("tf_model.h5", "tf_model.h5.index.json", "tf_model-*.h5"),
  ("params_shapes.json", "params_*.npy"),  # OpenAI's.
)
_NAME = re.compile(r"(\w[\w.-]*/\w[\w.-]*)(?:@(\S+))?")
_CACHED = r".*/models--([^/]+?)--([^/]+)/snapshots/([0-9a-f]{40})(?:/$)?"


def name_of(path: str) -> str:
  """Returns a path; owner/name@commit replaces the Hub's cache in it."""
  return re.sub(_CACHED, r"\1/\2@\3", path)


def is_name(path: str) -> bool:
  """Returns whether a path that is not there may be a model of the Hub."""
  return _NAME.fullmatch(path) is not None


def find(path: str, flag: str = "") -> str:
  """Returns a path, or the folder in the cache of owner/name@revision.

  A file, a folder or a checkpoint of that name comes first. A ValueError says
  that the model cannot be fetched or is not a BERT; it begins with `flag`, such
  as "--model=".
  """
  match = _NAME.fullmatch(path)
  if not match or files.exists(path) or files.exists(f"{path}.index"):
    return path

  imports.load("huggingface_hub", f"{path}, which is no folder here")
  # huggingface_hub asks servers by this package. Importing it takes long.
  import httpx2

  # It logs each request, which absl would show.
  logging.getLogger("httpx2").setLevel(logging.WARNING)
  try:
    return _fetch(*match.groups())
  # A server that is no Hub fails an assertion of the client: its answer does
  # not name the commit of the revision.
  except (OSError, httpx2.HTTPError, ValueError, AssertionError) as error:
    fault = _describe(error, path, match[1])
    raise ValueError(f"{flag}{path}: {fault}") from None


def _fetch(repository: str, revision: str | None) -> str:
  """Returns the folder in the cache; fetches what it lacks."""
  import huggingface_hub
  from huggingface_hub import utils

  # The bar waits a second, so that files in the cache show none; and log files
  # get none (`disable=None`).
  bar: Any = functools.partial(utils.tqdm, delay=1, disable=None)
  fetch = functools.partial(
    huggingface_hub.snapshot_download, repository, tqdm_class=bar
  )

  # The small files come first: the config may say that it is no BERT.
  folder = fetch(revision=revision, allow_patterns=_SMALL_FILES)
  _check_hashes(folder, _SMALL_FILES)
  config = files.read_json_if_any(os.path.join(folder, "config.json"))
  model_type = config.get("model_type", "bert")
  if model_type not in ("bert", "distilbert", "electra"):
    raise ValueError(
      f"model_type is {model_type!r:.80}: not a BERT, but a model for "
      "transformers.AutoModel.from_pretrained"
    )

  # By the commit that was found, not by the revision, which may move meanwhile.
  # The small files are in the cache by now and cost nothing. They are asked for
  # again because the client logs a warning if nothing matches, as in a
  # repository without the first of these formats.
  commit = os.path.basename(folder)
  for names in _WEIGHTS:
    fetch(revision=commit, allow_patterns=_SMALL_FILES + list(names))
    if _check_hashes(folder, names):
      return folder
  raise ValueError(
    "no model.safetensors there, nor weights of a BERT in another format: a "
    "revision may have them, such as @refs/pr/1"
  )


def _check_hashes(folder: str, patterns: Sequence[str]) -> bool:
  """Compares what patterns fetched with its hashes; returns whether any was."""
  from huggingface_hub import utils

  paths = [
    os.path.relpath(os.path.join(parent, name), folder)
    for parent, _, names in os.walk(folder)
    for name in names
  ]
  # The client matches with this function, too: a star differs from a glob's.
  names = list(utils.filter_repo_objects(paths, allow_patterns=list(patterns)))
  for name in names:
    _check_hash(folder, name)
  return bool(names)


def _check_hash(folder: str, name: str) -> None:
  """Removes a file if it has another hash than its name in the cache says.

  In the cache, a name such as model.safetensors is a link to a file whose name
  is its hash: of git LFS the SHA-256, of git the SHA-1 of a header and the
  file. In a cache without links there is nothing to compare.

  Each file is compared once: `checked/<hash>` records the size and the time
  that it had then. If the cache cannot be written, it is compared each time.
  """
  path = os.path.join(folder, name)
  if not os.path.islink(path):
    return
  blob = os.path.normpath(
    os.path.join(os.path.dirname(path), os.readlink(path))
  )
  blobs, expected = os.path.split(blob)
  size = os.stat(blob).st_size
  if re.fullmatch("[0-9a-f]{64}", expected):
    digest = hashlib.sha256()
  elif re.fullmatch("[0-9a-f]{40}", expected):
    digest = hashlib.sha1(b"blob %d\0" % size, usedforsecurity=False)
  else:
    return

  # A record of another size or time is of an older file.
  record = os.path.join(os.path.dirname(blobs), "checked", expected)
  state = f"{size} {os.stat(blob).st_mtime_ns}"
  if files.exists(record) and list(files.read_lines(record)) == [state]:
    return
  if files.hash_file(blob, digest) == expected:
    with contextlib.suppress(OSError):
      files.write_text(record, state)
    return

  # Else the client would take the damaged file from the cache again.
  remains = "removed"
  try:
    for damaged in {path, blob, os.path.realpath(blob)}:
      os.remove(damaged)
  except OSError:
    remains = f"to be removed: {blob}"
  raise ValueError(
    f"{name} came without its hash, {expected}, and is {remains}: it was "
    "damaged on the way; try again"
  )


def _describe(error: Exception, path: str, repository: str) -> str:
  """Says in a line why a model cannot be fetched, and the cure."""
  from huggingface_hub import constants, errors

  # A gated model is a special case of one that is not found.
  page = f"{constants.ENDPOINT}/{repository}"
  if isinstance(error, errors.GatedRepoError):
    return f"gated: accept its terms at {page}, then `hf auth login`"
  if isinstance(error, errors.RepositoryNotFoundError):
    local = file_search.describe_missing(path)
    return f"{local}; nor is {page} there, or only after `hf auth login`"

  # The server cannot be reached, or answers with an error, and the cache does
  # not hold all of the model.
  if isinstance(error, errors.LocalEntryNotFoundError):
    response = getattr(error.__cause__, "response", None)
    state = "cannot be reached"
    if response is not None:
      state = f"answers with HTTP {response.status_code}"
    return (
      f"no such folder; nor is it whole in the cache {constants.HF_HUB_CACHE}, "
      f"and {page} {state}: pass a local folder; or fetch it "
      f"elsewhere with `hf download {repository} --local-dir=FOLDER`"
    )
  if isinstance(error, AssertionError):
    return f"{page} does not say which commit the revision is: {error}"
  # The client's cure is an argument of its own.
  message, *_ = str(error).split(" Please retry with `force_download")
  return " ".join(message.split())
