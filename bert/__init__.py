"""BERT for TensorFlow 2: trains, answers and searches, from Python too.

  import bert
  from bert import run_classifier

  run_classifier.run(
    train_file="tickets.csv", eval_share=0.1, model="models/mini",
    output_dir="tickets",
  )
  model = bert.load("tickets")
  model("I was charged twice in March.")

`load` loads a trained model or an export, a `Model`, whose `Answer` is a dict.
`Index` searches texts with a model of vectors. `load_encoder` returns the
encoder alone, a Keras layer. The programs that train have a function `run`,
which takes their flags as arguments and returns a `Result`. docs/python.md
describes all of it.

Programs and modules are imported by name, as in the original's own package:
`from bert import modeling, run_classifier`.
"""

import importlib
import pathlib
import sys
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:  # Shows editors and type checkers what is found below.
  from bert.loading import load as load
  from bert.loading import load_encoder as load_encoder
  from bert.model import Answer as Answer
  from bert.model import Model as Model
  from bert.results import Result as Result
  from bert.searching import Index as Index
  import heads as heads
  import modeling as modeling
  import optimization as optimization
  import tokenization as tokenization

  # isort: split
  # A type checker takes the last import of a name that leads to a file: in a
  # wheel these.
  from bert import heads as heads  # noqa: F811 # pyright: ignore
  from bert import modeling as modeling  # noqa: F811 # pyright: ignore
  from bert import optimization as optimization  # noqa: F811 # pyright: ignore
  from bert import tokenization as tokenization  # noqa: F811 # pyright: ignore

# In a clone the programs and the nouns (modeling.py, ...) stand beside this
# folder, as in the original's repository; in a wheel they stand in it. So that
# `from bert import modeling` means this project's file in both, and never one
# of the user's own that Python finds first, the root of the clone is a second
# place where the parts of this package are looked for.
_HERE = pathlib.Path(__file__).resolve().parent
if not (_HERE / "modeling.py").is_file():
  __path__.append(str(_HERE.parent))

__version__ = "0.1"

# Public names, and the modules that define them.
_MODULES = {
  "Answer": "bert.model",
  "Index": "bert.searching",
  "Model": "bert.model",
  "Result": "bert.results",
  "load": "bert.loading",
  "load_encoder": "bert.loading",
}
# Public modules. `bert.keras` and `bert.sklearn` are imported by name alone:
# `from bert import *` must work without scikit-learn, and must not give the
# names of these libraries to other modules.
_SUBMODULES = (
  "heads",
  "modeling",
  "optimization",
  "run_classifier",
  "run_distillation",
  "run_embedding",
  "run_multiple_choice",
  "run_multitask",
  "run_pretraining",
  "run_squad",
  "run_tagging",
  "tokenization",
)
# docs/python.md has the same list.
__all__ = [*_MODULES, *_SUBMODULES]  # pyright: ignore


def __getattr__(name: str) -> Any:
  """Imports a public name at its first use (PEP 562).

  Every program and every worker process imports this package, and few of them
  answer texts.
  """
  if name in _MODULES:
    return getattr(importlib.import_module(_MODULES[name]), name)
  if name in _SUBMODULES:
    # All but the tokenizer import TensorFlow, here without the lines about
    # processors and GPUs that it writes into a terminal.
    if name != "tokenization" and "tensorflow" not in sys.modules:
      importlib.import_module("bert.data.imports").import_tensorflow()
    return importlib.import_module(f"bert.{name}")
  raise AttributeError(f"module 'bert' has no attribute {name!r}")


def __dir__() -> list[str]:
  """Lists the names for `help` and for editors.

  `help` asks for the value of each name. So the modules are not among them
  before somebody has imported them: some load TensorFlow, which takes seconds.
  """
  return sorted({*globals(), *_MODULES})
