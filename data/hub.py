"""Models of the Hugging Face Hub, which are fetched into its client's cache.

What is fetched cannot run code: numbers, vocabularies and JSON.
"""

import functools
import glob
import logging
import os
import re
import time

from data import files, imports, label_files, text_vectors

RECORD = "hub_model.json"  # In an output folder: the model its run began with.
# Config, tokens, and how vectors or the answers of a trained model are made.
_SMALL_FILES = [
  *"config.json bert_config.json vocab.txt vocab.model tokenizer.json".split(),
  *"tokenizer_config.json added_tokens.json labels.txt settings.json".split(),
  *text_vectors.FILES,
  "prediction.json",
  label_files.LABEL_THRESHOLDS,
  label_files.ANSWER_THRESHOLD,
]
# A repository is fetched with the first of these kinds that it has.
_WEIGHTS = (
  ("model.safetensors", "model.safetensors.index.json", "model-*.safetensors"),
  ("checkpoint", "*.index", "*.data-*-of-*", "best/checkpoint"),  # Google's.
)
_NAME = re.compile(r"(\w[\w.-]*/\w[\w.-]*)(?:@(\S+))?")
_CACHED = r".*/models--([^/]+?)--([^/]+)/snapshots/([0-9a-f]{40})(?:/$)?"


def name_of(path: str) -> str:
  """Returns a path, if it is in the cache with owner/name@commit for that."""
  return re.sub(_CACHED, r"\1/\2@\3", path)


def find(path: str, flag: str = "") -> str:
  """Returns a path, or the folder in the cache of owner/name@revision.

  A file, a folder or a checkpoint of that name comes first. A ValueError, which
  begins with the flag, if the model cannot be fetched or is not a BERT.
  """
  match = _NAME.fullmatch(path)
  if not match or files.exists(path) or files.exists(f"{path}.index"):
    return path
  imports.load("huggingface_hub", f"{path}, which is no folder here")
  from huggingface_hub import errors  # Slow.

  logging.getLogger("httpx2").setLevel(logging.WARNING)  # Else absl shows it.
  try:
    return _fetch(*match.groups())
  except (OSError, errors.HTTPError, ValueError) as error:
    fault = _describe(error, path, match[1])
    raise ValueError(f"{flag}{path}: {fault}") from None


def _fetch(repository: str, revision: str | None) -> str:
  """Returns the folder in the cache; fetches what it lacks."""
  import huggingface_hub
  from huggingface_hub import utils

  # Nothing is shown of what is in the cache, and nothing in log files.
  bar = functools.partial(utils.tqdm, delay=1, disable=None)
  fetch = functools.partial(
    huggingface_hub.snapshot_download, repository, tqdm_class=bar
  )
  start, small = time.time(), _SMALL_FILES
  folder = fetch(revision=revision, allow_patterns=small)
  config = files.read_json_if_any(os.path.join(folder, "config.json"))
  model_type = config.get("model_type", "bert")
  if model_type not in ("bert", "distilbert", "electra"):
    raise ValueError(
      f"model_type is {model_type!r:.80}: not a BERT, but a model for "
      "transformers.AutoModel.from_pretrained"
    )
  for names in _WEIGHTS:
    fetch(revision=os.path.basename(folder), allow_patterns=[*small, *names])
    found = [p for name in names for p in glob.glob(name, root_dir=folder)]
    for name in found:
      _check_hash(os.path.join(folder, name), start)
    if found:
      return folder
  raise ValueError(
    "no model.safetensors there, and pickles are not fetched, for they can run "
    "code: a revision may have one, such as @refs/pr/1"
  )


def _check_hash(path: str, start: float) -> None:
  """Removes weights fetched since a time that do not have their SHA-256."""
  blob = os.path.realpath(path)
  expected = os.path.basename(blob)
  is_named = re.fullmatch("[0-9a-f]{64}", expected)  # As git LFS does.
  is_new = os.path.getmtime(blob) >= start
  if is_named and is_new and files.hash_file(blob) != expected:
    os.remove(path)
    os.remove(blob)
    raise ValueError(
      f"{os.path.basename(path)} came without its SHA-256, {expected}, and is "
      "removed: it was damaged on the way; try again"
    )


def _describe(error: Exception, path: str, repository: str) -> str:
  """Says in a line why a model cannot be fetched, and the cure."""
  from huggingface_hub import constants, errors

  page = f"{constants.ENDPOINT}/{repository}"
  if isinstance(error, errors.GatedRepoError):
    return f"gated: accept its terms at {page}, then `hf auth login`"
  if isinstance(error, errors.RepositoryNotFoundError):
    local = files.describe_missing(path)
    return f"{local}; nor is {page} there, or only after `hf auth login`"
  if isinstance(error, errors.LocalEntryNotFoundError):
    return (
      f"no such folder; nor is it whole in the cache {constants.HF_HUB_CACHE}, "
      f"and {page} cannot be reached: pass a local folder; or fetch it "
      f"elsewhere with `hf download {repository} --local-dir=FOLDER`"
    )
  return " ".join(str(error).split())
