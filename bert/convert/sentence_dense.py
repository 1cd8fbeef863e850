"""The weights of a Dense module of sentence-transformers."""

from collections.abc import Mapping
import os
from typing import Any

import numpy as np

from bert import heads
from bert.convert import models, weight_files
from bert.weights import fitting


def read(stated: Mapping[str, Any]) -> heads.VectorDense:
  """Reads the layer that `sbert_files.read` states under "dense".

  A ValueError names the file if its weights are not those of such a layer.
  """
  # The name of the file says its format, as that of any weights.
  path = stated["weights"]
  open_file = weight_files.BY_FILE[os.path.basename(path)].open_file
  weights = models.make_weights(path, open_file(path))

  # Nothing else may stand there. torch's matrix is [out, in].
  expected = {"linear.weight": stated["shape"]}
  if stated["has_bias"]:
    expected["linear.bias"] = stated["shape"][:1]
  fitting.compare(
    path, weights.shapes, expected, lambda name: False, "its config.json"
  )

  # Without a bias the layer adds zeros, so that it has one form everywhere. It
  # stays float32, as all that follows the pooling.
  values = {"linear.bias": np.zeros(stated["shape"][0], np.float32)}
  for name in expected:
    value = weights.read(name)
    if value.dtype.kind != "f":
      raise ValueError(
        f"{path}: {name} holds {value.dtype}; expected floating-point numbers"
      )
    # A NaN would make every vector NaN, and no later check names this file.
    if np.isnan(value).any():
      raise ValueError(f"{path}: {name} holds NaN: the file is damaged")
    values[name] = value.astype(np.float32)
  return heads.VectorDense(
    np.ascontiguousarray(values["linear.weight"].T),
    values["linear.bias"],
    stated["activation"],
    path,
  )
