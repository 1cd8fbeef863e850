"""Asks a model in TensorFlow Serving: texts in, words out, for every task.

  python examples/serving_client.py --export_dir=squad_export \\
    --url=http://localhost:8501/v1/models/squad \\
    '{"question": "Where?", "context": "It was in Rome."}'

prints predict.py's answers, with export.json and the vocabulary of the export.
Without --url the model is loaded here.
"""

import argparse
from collections.abc import Mapping, Sequence
import json
import pathlib
import sys
import urllib.request

import numpy as np

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))

from bert.serving import exported_model

# The only output of some models, whose name TensorFlow Serving leaves out.
ONLY_OUTPUTS = ("logits", "value", "vectors")


class RestEngine:
  """Computes with TensorFlow Serving's REST API, at the URL of a model."""

  def __init__(self, url: str):
    self._url = f"{url}:predict"

  def run(self, inputs: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Computes the outputs of a batch; see `exported_model.Engine`."""
    # The signature "ids" takes tokens, not texts: words are split here, and the
    # server needs no tokenizer.
    lists = {name: values.tolist() for name, values in inputs.items()}
    body = json.dumps({"signature_name": "ids", "inputs": lists}).encode()
    with urllib.request.urlopen(self._url, body) as response:
      outputs = json.load(response)["outputs"]

    # A single output comes without its name.
    if not isinstance(outputs, dict):
      outputs = dict.fromkeys(ONLY_OUTPUTS, outputs)

    # JSON has no types: numbers with a point are float32 in the model.
    arrays = {name: np.array(values) for name, values in outputs.items()}
    for name, array in arrays.items():
      if array.dtype == np.float64:
        arrays[name] = array.astype(np.float32)
    return arrays


def main(arguments: Sequence[str] | None = None) -> None:
  parser = argparse.ArgumentParser(description="Asks an exported model.")
  parser.add_argument("--export_dir", required=True)
  parser.add_argument("--url", help="of the model in TensorFlow Serving")
  parser.add_argument("request", nargs="+", help="JSON: the texts by name")
  flags = parser.parse_args(arguments)

  # "" lets `ExportedModel` choose an engine that computes here.
  engine = RestEngine(flags.url) if flags.url else ""
  model = exported_model.ExportedModel(flags.export_dir, engine=engine)
  requests = model.maker.encode_all([json.loads(r) for r in flags.request])
  for answer in model.answer(requests):
    print(json.dumps(answer, ensure_ascii=False))


if __name__ == "__main__":
  main()
