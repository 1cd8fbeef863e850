"""The folder in which the mistakes of tests/mistakes are made."""

import json

from bert import heads
from bert.weights import checkpoints
import tiny
import tiny_models

EXAMPLES = range(8)


def write(folder):
  """Writes the files that `mistakes.GIVEN` names, and models of each task."""
  _write_data(folder)
  tiny.write_model(folder, program="run_multitask")
  _save_pretrained(folder)
  for name, config in (
    ("other", {"hidden_size": 24, "num_hidden_layers": 2}),
    ("large", {"num_hidden_layers": 2}),
  ):
    tiny.write_model(folder / name, config, "run_multitask")
    (folder / name / "config.json").rename(folder / name / "bert_config.json")
    _save_pretrained(folder / name)
  words = tiny.ALL_WORDS[::-1]
  (folder / "other" / "vocab.txt").write_text("\n".join(words) + "\n")

  for name, case in (
    ("trained", "single_label"),
    ("tagger", "tagging"),
    ("reader", "question_answering"),
  ):
    (folder / name).mkdir()
    tiny_models.write_case(folder / name, case, layers=1)
  (folder / "vectors").mkdir()
  tiny_models.write_masked_lm(folder / "vectors")
  tiny_models.write_modules(folder / "vectors")
  tiny_models.export_onnx(folder / "trained", "../export")


def _save_pretrained(folder):
  [path] = folder.glob("*config.json")
  config = checkpoints.read_config(str(path))
  model = heads.PretrainingModel(config)
  checkpoints.write(str(folder), checkpoints.model_variables(model))


def _write_data(folder):
  for name, write in (
    ("train.tsv", tiny.write_tsv),
    ("dev.tsv", tiny.write_tsv),
    ("train.json", tiny.write_squad),
    ("tags.txt", tiny.write_tags),
    ("swag.csv", tiny.write_swag),
    ("pairs.tsv", tiny.write_partners),
    ("records", tiny.write_records),
  ):
    write(folder / name, EXAMPLES)
  texts = [text for text, _ in tiny.make_examples(EXAMPLES)]
  documents = [[*texts[:4], ""], [*texts[4:], "a [MASK] film"]]
  (folder / "texts.txt").write_text("\n".join(sum(documents, [])) + "\n")
  rows = [json.dumps({"text": text}) for text in texts]
  (folder / "texts.jsonl").write_text("\n".join(rows) + "\n")
  task = {"name": "films", "kind": "classifier", "task_name": "file"}
  tasks = [{**task, "train_file": "train.tsv"}]
  (folder / "tasks.json").write_text(json.dumps(tasks))
  (folder / "data").mkdir()
