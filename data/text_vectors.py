"""The vectors of texts that the files of sentence-transformers ask for."""

import os
import re
from typing import Any

from data import files

# How a vector is made of those of tokens, and how long texts may be.
FILES = (
  "modules.json 1_Pooling/config.json sentence_bert_config.json "
  "config_sentence_transformers.json"
).split()


def read(folder: str) -> dict[str, Any]:
  """Returns flags of extract_features.py that the files state; {} without."""
  path, pooling_path = (os.path.join(folder, name) for name in FILES[:2])
  if not files.exists(path):
    return {}
  modules = files.read_json(path, list)
  types = [m.get("type") if isinstance(m, dict) else m for m in modules]
  names = [str(name).rpartition(".")[2] for name in types]
  settings = files.read_json_if_any(pooling_path)
  modes = [n for n in settings if n.startswith("pooling_mode_") and settings[n]]
  modes = modes or [str(settings.get("pooling_mode"))]
  modes = [re.sub("^pooling_mode_|_tokens?$", "", mode) for mode in modes]
  made, pooling = ", ".join(names), ", ".join(modes)
  known = "Transformer, Pooling", "Transformer, Pooling, Normalize"
  if made not in known or pooling not in ("cls", "mean", "max"):
    raise ValueError(
      f"{path}: makes vectors with {made}, and the pooling {pooling}; expected "
      f"{' or '.join(known)}, and cls, mean or max: pass --pooling instead"
    )
  normalize = "Normalize" in names
  flags = {"layers": ("-1",), "pooling": pooling, "normalize": normalize}
  path = os.path.join(folder, FILES[2])
  length = files.read_json_if_any(path).get("max_seq_length")
  if length is not None:
    name = f"{path}: max_seq_length"
    files.check_values({name: length}, {name: (range(3, 10**6),)})
    flags["max_seq_length"] = length
  return flags


def write(
  folder: str, size: int, pooling: str, normalize: bool, max_seq_length: int
) -> None:
  """Writes the files by which sentence-transformers makes vectors of `size`."""
  names = ["Transformer", "Pooling", *(["Normalize"] if normalize else [])]
  modules = [
    {
      "idx": number,
      "name": str(number),
      "path": f"{number}_{name}" if number else "",
      "type": f"sentence_transformers.models.{name}",
    }
    for number, name in enumerate(names)
  ]
  modes = {"cls": "cls_token", "mean": "mean_tokens", "max": "max_tokens"}
  flags = {f"pooling_mode_{m}": n == pooling for n, m in modes.items()}
  contents = (
    modules,
    {"word_embedding_dimension": size, **flags},
    {"max_seq_length": max_seq_length, "do_lower_case": False},
  )
  for name, content in zip(FILES, contents, strict=False):
    files.write_json(os.path.join(folder, name), content)
