"""What a training records of itself in its folder, read by lower places, too.

bert/training/same_run.py writes the records, compares them, and says what each
of them is for.
"""

import os
from typing import Any

from bert.data import files

SETTINGS = "settings.json"
CONFIG = "bert_config.json"
VOCABULARY = "vocab_file_sha256"  # A setting that every settings.json has.


def read_settings(folder: str) -> dict[str, Any]:
  """Returns the settings.json of the training that wrote a folder, if any."""
  try:
    return files.read_json_if_any(os.path.join(folder, SETTINGS))
  except ValueError:
    # Another program, such as an editor, may own a settings.json that is not
    # plain JSON, but not in the folder of a model.
    if files.exists(os.path.join(folder, CONFIG)):
      raise
    return {}
