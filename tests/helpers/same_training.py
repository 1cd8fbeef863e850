"""Compares what two trainings of the same updates leave."""

import re

import numpy as np

from bert.weights import checkpoints
import paths
import program_flags

# A bias whose gradient is 0 but for rounding: it is added to all the scores
# that one softmax compares, so it changes no probability. Of a rounding error
# Adam makes a step as large as any.
KEY_BIAS = "key/bias"
# All variables of this kind, by program.
_ROUNDING = {
  "run_pretraining": KEY_BIAS,
  "run_classifier": KEY_BIAS,
  "run_tagging": KEY_BIAS,
  "run_squad": f"{KEY_BIAS}|output_bias",
  "run_multiple_choice": f"{KEY_BIAS}|output_bias",
  "run_embedding": KEY_BIAS,
}


def assert_weights_close(ours, theirs, tolerance=1e-5, rounding=KEY_BIAS):
  """Compares the values of variables, given by their names.

  Those whose names match `rounding` may differ.
  """
  assert sorted(ours) == sorted(theirs)
  for name, value in theirs.items():
    if not re.search(rounding, name):
      np.testing.assert_allclose(
        ours[name], value, atol=tolerance, err_msg=name
      )


def assert_same_weights(program, ours, theirs):
  """Compares two checkpoints within 1e-5."""
  ours, theirs = (dict(checkpoints.read(str(path))) for path in (ours, theirs))
  assert_weights_close(ours, theirs, rounding=_ROUNDING[program])


def assert_same_files(program, ours, theirs):
  """Compares two output folders: names, text, features and weights.

  A report has times, and pictures of what is compared as text.
  """
  found, wanted = paths.contents(ours), paths.contents(theirs)
  assert found.keys() == wanted.keys()
  for name in paths.differences(found, wanted):
    if name.endswith(".index"):
      prefix = name.removesuffix(".index")
      assert_same_weights(program, ours / prefix, theirs / prefix)
    elif ".data-" not in name:
      assert not name.endswith((".tf_record", ".npz")), name
      # Weights that differ by rounding have different checksums.
      texts = (
        re.sub('"weights": "[0-9a-f]{8}"', "", contents[name].decode())
        for contents in (found, wanted)
      )
      program_flags.assert_same_text(*texts, tolerance=1e-4)
