"""Tries which engine runs an export of --format=onnx fastest."""

from collections.abc import Callable, Sequence
import contextlib
import importlib.metadata
import importlib.util
import json
import os
import time
from typing import Any

import numpy as np

from bert.data import files, processor, progress, tables
from bert.serving import answer_maker

FILE = "engines.json"  # Beside the export: the fastest one, by processor.
PACKAGES = ("onnxruntime", "openvino")
AUTO = "auto"
NAMES = (*PACKAGES, AUTO)
Probes = Sequence[dict[str, np.ndarray]]  # Inputs by name, int32 [1, S].
_TEXTS = (
  "The film starts slowly, but after half an hour nobody looks at the clock.",
  "In 1998 the company moved its office from Paris to [MASK].",
)


def make_probes(maker: answer_maker.AnswerMaker) -> Probes:
  """Makes inputs to compare engines with."""
  rows = []
  for text in _TEXTS:
    texts = {name: text for name in maker.inputs}
    texts |= {n: [text, "No."] for n in texts if n == answer_maker.CHOICES}
    rows += maker.encode(texts).rows[:1]
  return [
    {name: np.array([part], np.int32) for name, part in row._asdict().items()}
    for row in rows
  ]


def find_fastest(
  folder: str, probes: Probes, open_engine: Callable[[str], Any]
) -> str:
  """Returns the name of the fastest engine; FILE keeps it."""
  names = [name for name in PACKAGES if importlib.util.find_spec(name)]
  versions = [f"{name} {importlib.metadata.version(name)}" for name in names]
  key = ", ".join([processor.describe(), *versions])
  path = os.path.join(folder, FILE)
  known = _read_known(path)
  if known.get(key) not in names:
    seconds = {name: _time(open_engine(name), probes[0]) for name in names}
    known[key] = min(seconds, key=seconds.__getitem__, default=PACKAGES[0])
    with contextlib.suppress(OSError):  # The folder may be read-only.
      files.write_json(path, known)
  return known[key]


def _read_known(path):
  """Reads FILE; a damaged one is made again, with a note."""
  try:
    known = files.read_json_if_any(path)
    # It will be written again, which half of a surrogate pair cannot be.
    tables.check_unicode(json.dumps(known, ensure_ascii=False), path)
  except (OSError, ValueError) as error:
    progress.note(f"note: {error}; the engines are tried again")
    return {}
  return known


def _time(engine, ids):
  """Returns the shortest time of four inputs at once, in half a second."""
  ids = {name: np.repeat(part, 4, 0) for name, part in ids.items()}
  times = []
  while len(times) < 3 or sum(times) < 0.5:  # The first ones compile.
    start = time.perf_counter()
    engine.run(ids)
    times.append(time.perf_counter() - start)
  return min(times)
