"""BERT for TensorFlow 2.

  import bert

  model = bert.load("sms_model")
  model("win a prize")

`load` answers texts with a trained model, `Index` searches texts with a model
of vectors, and `load_encoder` returns the encoder alone, a Keras layer: see
loading.py, model.py and searching.py. The rest is imported by name, as in the
original's own package: `from bert import modeling, run_classifier`.
"""

import importlib
import pathlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:  # Shows editors and type checkers what is found below.
  from bert.loading import load as load
  from bert.loading import load_encoder as load_encoder
  from bert.model import Answer as Answer
  from bert.model import Model as Model
  from bert.searching import Index as Index
  import heads as heads
  import modeling as modeling
  import optimization as optimization
  import tokenization as tokenization

# In a clone the programs and the nouns (modeling.py, ...) stand beside this
# folder, as in the original's repository; in a wheel they stand in it. So that
# `from bert import modeling` means this project's file in both, and never one
# of the user's own that Python finds first, the root of the clone is a second
# place where the parts of this package are looked for.
_HERE = pathlib.Path(__file__).resolve().parent
if not (_HERE / "modeling.py").is_file():
  __path__.append(str(_HERE.parent))

__version__ = "0.1"

# The public names, and the modules that define them.
_MODULES = {
  "Answer": "bert.model",
  "Index": "bert.searching",
  "Model": "bert.model",
  "load": "bert.loading",
  "load_encoder": "bert.loading",
}


def __getattr__(name: str) -> Any:
  """Imports what answers texts at its first use (PEP 562).

  Every program and every worker process imports this package, and few of them
  answer texts.
  """
  if name not in _MODULES:
    raise AttributeError(f"module 'bert' has no attribute {name!r}")
  return getattr(importlib.import_module(_MODULES[name]), name)
