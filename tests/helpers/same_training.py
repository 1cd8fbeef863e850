"""Compares what trainings leave on one device, and on several."""

import re

import numpy as np

from bert.weights import checkpoints
import paths
import program_flags

# Variables whose gradients are 0 but for rounding: such a bias is added to all
# the scores that one softmax compares, so it changes no probability.
_ROUNDING = {
  "run_pretraining": "key/bias",
  "run_classifier": "key/bias",
  "run_tagging": "key/bias",
  "run_squad": "key/bias|output_bias",
  "run_multiple_choice": "key/bias|output_bias",
  "run_embedding": "key/bias",
}


def assert_same_weights(program, ours, theirs):
  """Compares two checkpoints within 1e-5."""
  ours, theirs = (dict(checkpoints.read(str(path))) for path in (ours, theirs))
  assert sorted(ours) == sorted(theirs)
  for name, value in theirs.items():
    if not re.search(_ROUNDING[program], name):
      np.testing.assert_allclose(ours[name], value, atol=1e-5, err_msg=name)


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
