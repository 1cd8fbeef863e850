"""The commands of the original's README run as they stand there.

The names of files, the flags and their values are the README's; the model and
the data are tiny. Only folders differ: {bert} is its $BERT_BASE_DIR, and so on.
"""

import json
import re
import shlex

import pytest

from bert import heads, modeling
from bert.weights import checkpoints
import paths
import program_flags
import tiny

FLAGS_TABLE = paths.SHARED / "FLAGS.md"
MODEL = """--vocab_file={bert}/vocab.txt
  --bert_config_file={bert}/bert_config.json"""
PRETRAINED = f"{MODEL} --init_checkpoint={{bert}}/bert_model.ckpt"
SQUAD = f"""run_squad.py {PRETRAINED}
  --train_file={{data}}/train-v{{version}}.json
  --predict_file={{data}}/dev-v{{version}}.json --learning_rate=3e-5
  --num_train_epochs=2.0 --max_seq_length=384 --doc_stride=128"""
# Flags whose type is another one here: a threshold may also be "auto", and a
# list is a string that absl has read.
_TYPES = {
  "null_score_diff_threshold": "string",
  "layers": "comma separated list of strings",
}
NO_ANSWERS = "--version_2_with_negative=True"
CLOUD = "--use_tpu=True --tpu_name=my-tpu"


@pytest.fixture(name="places", scope="module")
def write_model_and_data(tmp_path_factory):
  """Writes what the commands read; returns the folders by their names."""
  folder = tmp_path_factory.mktemp("original")
  places = {name: folder / name for name in ("bert", "data", "out")}
  places["data"].mkdir()
  tiny.write_model(places["bert"], program="run_multitask")
  fields = json.loads((places["bert"] / "config.json").read_text())
  fields |= {"vocab_size": len(tiny.ALL_WORDS), "max_position_embeddings": 384}
  fields["num_hidden_layers"] = 4  # `--layers=-1,-2,-3,-4` needs so many.
  config = modeling.BertConfig(**fields)
  (places["bert"] / "bert_config.json").write_text(config.to_json_string())
  variables = checkpoints.model_variables(heads.PretrainingModel(config))
  checkpoints.write(str(places["bert"] / "bert_model.ckpt"), variables)

  for version, impossible in (("1.1", 0), ("2.0", 4)):
    for split in ("train", "dev"):
      path = places["data"] / f"{split}-v{version}.json"
      tiny.write_squad(path, tiny.SPLITS[split], impossible)
  _write_mrpc(places["data"] / "MRPC")
  _write_xnli(places["data"])
  text = "the film was good ||| the plot was bad\na very good cast\n"
  (places["data"] / "input.txt").write_text(text)
  return places


def _write_mrpc(folder):
  """Writes GLUE's columns, the byte order mark of train.tsv with them."""
  folder.mkdir()
  for split, numbers in tiny.SPLITS.items():
    # The test set has an index where the others have labels.
    first = "index" if split == "test" else "Quality"
    rows = [f"{first}\t#1 ID\t#2 ID\t#1 String\t#2 String"]
    for n in numbers:
      text = tiny.make_text(n, tiny.GOOD if n % 2 else tiny.BAD)
      other = tiny.make_text(n + 100, tiny.GOOD)
      label = n if split == "test" else n % 2
      rows.append(f"{label}\t{n}\t{n + 100}\t{text}\t{other}")
    mark = "\ufeff" if split == "train" else ""
    text = mark + "\n".join(rows) + "\n"
    (folder / f"{split}.tsv").write_text(text, encoding="utf-8")


def _write_xnli(folder):
  """Writes the columns of MultiNLI in Chinese, and of XNLI in two languages."""
  labels = ("contradictory", "entailment", "neutral")
  rows = ["premise\thypo\tlabel"]
  rows += [f"good film\tbad plot\t{labels[n % 3]}" for n in range(32)]
  (folder / "multinli").mkdir()
  path = folder / "multinli" / "multinli.train.zh.tsv"
  path.write_text("\n".join(rows) + "\n")
  rows = ["language\tgold_label\t2\t3\t4\t5\tsentence1\tsentence2"]
  for n in range(12):
    language, label = ("en", "zh")[n % 2], labels[n % 3]
    label = "contradiction" if label == "contradictory" else label
    rows.append(f"{language}\t{label}\t\t\t\t\tgood film\tbad plot")
  (folder / "xnli.dev.tsv").write_text("\n".join(rows) + "\n")


def run(command, places, **others):
  """Runs one command line from the root, as the README says."""
  program, *flags = shlex.split(command.format(**places, **others))
  return program_flags.run_here(["python", program, *flags])


def succeed(command, places, **others):
  result = run(command, places, **others)
  assert result.returncode == 0, result.stderr
  return result


@pytest.fixture(autouse=True)
def in_the_root(monkeypatch):
  monkeypatch.chdir(paths.ROOT)


def test_pretraining_on_the_sample_text(places):
  """Twenty updates, which learn little, of a tiny model from a checkpoint."""
  succeed(
    """create_pretraining_data.py --input_file=./sample_text.txt
      --output_file={out}.tfrecord --vocab_file={bert}/vocab.txt
      --do_lower_case=True --max_seq_length=128 --max_predictions_per_seq=20
      --masked_lm_prob=0.15 --random_seed=12345 --dupe_factor=5""",
    places,
  )
  succeed(
    """run_pretraining.py --input_file={out}.tfrecord
      --output_dir={out}/pretraining_output --do_train=True --do_eval=True
      --bert_config_file={bert}/bert_config.json
      --init_checkpoint={bert}/bert_model.ckpt --train_batch_size=32
      --max_seq_length=128 --max_predictions_per_seq=20 --num_train_steps=20
      --num_warmup_steps=10 --learning_rate=2e-5""",
    places,
  )
  out = places["out"] / "pretraining_output"
  assert "global_step = 20\n" in (out / "eval_results.txt").read_text()


@pytest.mark.slow
def test_mrpc_and_its_predictions(places):
  """Trained, evaluated, and predicted from what was trained."""
  succeed(
    f"""run_classifier.py --task_name=MRPC --do_train=true --do_eval=true
      --data_dir={{data}}/MRPC {PRETRAINED} --max_seq_length=128
      --train_batch_size=32 --learning_rate=2e-5 --num_train_epochs=3.0
      --output_dir={{out}}/mrpc_output/""",
    places,
  )
  out = places["out"] / "mrpc_output"
  scores = tiny.read_results(out)
  # 50 examples in batches of 32, three times: 4 updates.
  assert scores["global_step"] == 4
  assert {"eval_accuracy", "eval_loss", "loss"} <= scores.keys()

  # Into the folder of the training, and with its checkpoint from elsewhere.
  for folder in ("mrpc_output", "elsewhere"):
    succeed(
      f"""run_classifier.py --task_name=MRPC --do_predict=true
        --data_dir={{data}}/MRPC {MODEL} --init_checkpoint={{out}}/mrpc_output
        --max_seq_length=128 --output_dir={{out}}/{folder}/""",
      places,
    )
  rows = (out / "test_results.tsv").read_text().splitlines()
  assert [len(row.split("\t")) for row in rows] == [2] * 7
  other = (places["out"] / "elsewhere" / "test_results.tsv").read_text()
  assert other.splitlines() == rows


@pytest.mark.slow
def test_xnli(places):
  succeed(
    f"""run_classifier.py --task_name=XNLI --do_train=true --do_eval=true
      --data_dir={{data}} {PRETRAINED} --max_seq_length=128
      --train_batch_size=32 --learning_rate=5e-5 --num_train_epochs=2.0
      --output_dir={{out}}/xnli_output/""",
    places,
  )
  scores = tiny.read_results(places["out"] / "xnli_output")
  assert scores["global_step"] == 2


@pytest.mark.slow
def test_squad_with_an_answer_to_each_question(places):
  succeed(
    f"""{SQUAD} --do_train=True --do_predict=True --train_batch_size=12
      --output_dir={{out}}/squad_base/""",
    places,
    version="1.1",
  )
  out = places["out"] / "squad_base"
  answers = json.loads((out / "predictions.json").read_text())
  assert list(answers) == [f"q{n}" for n in tiny.SPLITS["dev"]]


@pytest.mark.slow
def test_squad_with_questions_that_have_no_answer(places):
  """The last command predicts again, with a threshold that a script found."""
  out = places["out"] / "squad"
  command = f"""{SQUAD} --do_predict=True --train_batch_size=24 {NO_ANSWERS}
    --output_dir={{out}}/squad/"""
  succeed(f"{command} --do_train=True", places, version="2.0")
  odds = json.loads((out / "null_odds.json").read_text())
  answers = json.loads((out / "predictions.json").read_text())
  assert list(odds) == list(answers) == [f"q{n}" for n in tiny.SPLITS["dev"]]
  again = f"{command} --do_train=False --null_score_diff_threshold=-1e9"
  succeed(again, places, version="2.0")
  answers = json.loads((out / "predictions.json").read_text())
  assert set(answers.values()) == {""}


def test_feature_extraction(places):
  succeed(
    f"""extract_features.py --input_file={{data}}/input.txt
      --output_file={{out}}.jsonl {PRETRAINED} --layers=-1,-2,-3,-4
      --max_seq_length=128 --batch_size=8""",
    places,
  )
  lines = places["out"].with_suffix(".jsonl").read_text().splitlines()
  first, second = map(json.loads, lines)
  tokens = [feature["token"] for feature in first["features"]]
  words = "[CLS] the film was good [SEP] the plot was bad [SEP]"
  assert tokens == words.split()
  layers = [layer["index"] for layer in second["features"][0]["layers"]]
  assert layers == [-1, -2, -3, -4]


@pytest.mark.parametrize(
  "command",
  [
    f"{SQUAD} --do_train=True {NO_ANSWERS} --output_dir={{out}}/tpu {CLOUD}",
    f"""run_classifier.py --task_name=MRPC --do_train=true {CLOUD}
      --data_dir={{data}}/MRPC {PRETRAINED} --output_dir={{out}}/tpu""",
  ],
)
def test_a_tpu_of_another_machine(command, places):
  """Google ended these TPUs: one line, and nothing is written."""
  result = run(command, places, version="2.0")
  program_flags.assert_refused(result, "--tpu_name=my-tpu")
  assert "TPU VM" in result.stderr
  assert not (places["out"] / "tpu").exists()


@pytest.mark.skipif(not FLAGS_TABLE.exists(), reason=f"no {FLAGS_TABLE}")
def test_all_flags_keep_type_and_default():
  text = FLAGS_TABLE.read_text()
  sections = re.findall(r"(?ms)^## (\w+\.py)\n(.*?)(?=^## |\Z)", text)
  counts = {}
  for program, section in sections:
    declared = program_flags.declared_flags(program)
    rows = re.findall(r"\| `--(\w+)` \| (\w+) \| `(.*)` \|", section)
    counts[program] = len(rows)
    for name, kind, default in rows:
      flag = declared[name]
      value = flag.default
      value = ",".join(value) if isinstance(value, list) else str(value)
      found = flag.flag_type(), value
      assert found == (_TYPES.get(name, kind), default), f"{program} --{name}"
  assert counts == {
    "create_pretraining_data.py": 11,
    "run_pretraining.py": 22,
    "run_classifier.py": 25,
    "run_squad.py": 30,
    "extract_features.py": 13,
  }
