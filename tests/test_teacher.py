"""Programs whose model learns from a teacher as well: --teacher."""

import csv
import json
import shutil

import numpy as np
import pytest
import tensorflow as tf

from bert import heads, modeling, run_classifier
from bert.export import trained_models
from bert.inputs import records
from bert.weights import checkpoints
import paths
import program_flags
import programs
import tiny
import tiny_models

# tests/test_losses.py has what each of them learns from its teacher.
PROGRAMS = [
  "run_classifier",
  pytest.param("run_tagging", marks=pytest.mark.slow),
  pytest.param("run_squad", marks=pytest.mark.slow),
]
STUDENT = {"hidden_size": 8, "intermediate_size": 16}
TEXT_CNN = {"encoder_type": "text_cnn", "hidden_size": 16, "num_filters": 8}
TEXT_CNN |= {"vocab_size": 19, "max_position_embeddings": 16}


@pytest.fixture(name="taught", scope="module", params=PROGRAMS)
def teach(request, tmp_path_factory):
  """The run of a student; its teacher's folder is beside its own."""
  folder = tmp_path_factory.mktemp(request.param)
  command = tiny.prepare(request.param, folder)
  program_flags.succeed([*command, f"--output_dir={folder / 'teacher'}"])
  config = {**tiny.PROGRAMS[request.param].config, **STUDENT}
  (folder / "student.json").write_text(json.dumps(config))
  command += program_flags.arguments(
    {
      "bert_config_file": folder / "student.json",
      "teacher": folder / "teacher",
      "distillation_alpha": 0.25,
    }
  )
  return programs.train(command)


one_program = pytest.mark.parametrize("taught", PROGRAMS[:1], indirect=True)


def read_logits(folder):
  """Returns the kept logits, in the order of the rows, [rows, ...]."""
  path = folder / "train_teacher.tf_record"
  (logits,) = read_rows(path, "teacher_logits")
  with np.load(f"{path}.index.npz") as index:
    rows = index["examples"].tolist()
  assert sorted(set(rows)) == [*range(max(rows) + 1)]
  return logits[[rows.index(row) for row in range(max(rows) + 1)]]


def read_rows(path, *names):
  """Returns features of all rows, as arrays [rows, ...]."""
  found = {name: [] for name in names}
  for record in tf.data.TFRecordDataset(str(path)):
    example = tf.train.Example.FromString(record.numpy())
    for name in names:
      feature = example.features.feature[name]
      kind = "float_list" if feature.float_list.value else "int64_list"
      found[name].append(list(getattr(feature, kind).value))
  return [np.array(found[name]) for name in names]


def logits_of(folder, inputs):
  """Returns what the teacher in a folder makes of the rows of its student."""
  trained = trained_models.load_output_dir(
    str(folder / "teacher"), str(folder / "vocab.txt")
  )
  return trained.model(*(tf.constant(x, tf.int32) for x in inputs))


def test_the_logits_of_all_rows_are_those_of_the_teacher(taught):
  inputs = read_rows(taught.out / "train.tf_record", *records.INPUT_NAMES)
  kept = read_logits(taught.out)
  logits = logits_of(taught.folder, inputs)
  if taught.program == "run_squad":
    logits = np.stack(logits, -1)
  logits = np.asarray(logits)
  kept = kept.reshape(logits.shape)
  if taught.program != "run_classifier":  # What padding gets is not used.
    mask = inputs[1][:, :, None] == 1
    logits, kept = logits * mask, kept * mask
  np.testing.assert_allclose(kept, logits, atol=1e-5)
  assert len(kept) >= 50
  line = f"teacher: {len(kept)} rows of logits; wrote {taught.out}/train_te"
  assert line in taught.output


@one_program
def test_they_are_what_the_teacher_predicts(taught, tmp_path):
  shutil.copytree(taught.folder / "teacher", tmp_path / "teacher")
  command = [part for part in taught.command if "--teacher" not in part]
  command.remove("--distillation_alpha=0.25")
  flags = {
    "bert_config_file": taught.folder / "config.json",
    "output_dir": tmp_path / "teacher",
    "predict_file": taught.folder / "train.tsv",
    "do_train": False,
    "do_eval": False,
  }
  program_flags.succeed([*command, *program_flags.arguments(flags)])
  with open(tmp_path / "teacher" / "test_results.tsv", newline="") as file:
    found = np.array([*csv.reader(file, delimiter="\t")], np.float64)
  logits = read_logits(taught.out)
  odds = np.exp(logits)
  expected = odds / odds.sum(1, keepdims=True)
  np.testing.assert_allclose(found, expected, atol=1e-6)


def test_they_are_kept_and_a_killed_run_resumes_to_the_same_bytes(
  taught, tmp_path
):
  killed = tmp_path / "killed"
  result = programs.assert_resumes(taught, killed)
  assert f"logits; unchanged: {killed}/train_teacher.tf_record" in result.stdout


def saved(folder):
  return dict(checkpoints.read(str(folder / "model.ckpt-6")))


@pytest.mark.slow
def test_devices_and_parts_make_the_same_updates(taught, monkeypatch, tmp_path):
  monkeypatch.setattr(modeling, "dropout", lambda x, rate, seed: x)
  kinds = {"one": {}, "parts": {"gradient_accumulation_steps": 2}}
  kinds["devices"] = {"distribution": "mirrored"}
  for name, flags in kinds.items():
    taught.again(output_dir=tmp_path / name, eval_every_steps=0, **flags)
  wanted = saved(tmp_path / "one")
  logits = read_logits(tmp_path / "one")
  for name in ("parts", "devices"):
    found = saved(tmp_path / name)
    for variable, value in wanted.items():
      np.testing.assert_allclose(
        found[variable], value, atol=2e-5, err_msg=f"{name} {variable}"
      )
    found = read_logits(tmp_path / name)
    np.testing.assert_allclose(found, logits, atol=1e-5)


@one_program
def test_a_resumed_run_needs_the_same_teacher(taught, tmp_path):
  before = paths.contents(taught.out)
  recorded = json.loads(before["training.json"])
  assert len(recorded["teacher"]) == 12
  options = recorded["distillation_alpha"], recorded["distillation_temperature"]
  assert options == (0.25, 2.0)
  plain = json.loads((taught.folder / "teacher/training.json").read_text())
  assert plain["teacher"] is None
  # It has the same task, but trained for longer.
  other = taught.folder / "longer"
  if not other.exists():
    flags = {"output_dir": other, "num_train_epochs": 3}
    taught.again(**flags)
  for flags, message in (
    ({"teacher": other}, f"(was {recorded['teacher']})"),
    ({"distillation_alpha": 0.5}, "--distillation_alpha=0.5 (was 0.25)"),
    (
      {"distillation_temperature": 3},
      "--distillation_temperature=3.0 (was 2.0)",
    ),
  ):
    result = taught.again(program_flags.run_here, **flags)
    program_flags.assert_refused(result, message)
  command = [part for part in taught.command if "--teacher" not in part]
  command.remove("--distillation_alpha=0.25")
  result = program_flags.run_here(command)
  program_flags.assert_refused(
    result, f"--teacher=none (was {recorded['teacher']})"
  )
  assert paths.contents(taught.out) == before


OTHER_LABELS = "label\ttext\n" + "yes\tgood film\nno\tbad film\n" * 20


@one_program
@pytest.mark.parametrize(
  ("flags", "message"),
  [
    ({"max_seq_length": 8}, "its max_seq_length is 16, that of this run 8: ex"),
    ({"doc_stride": 4}, "none, that of this run 4: expected the same"),
    ({"do_lower_case": False}, "its do_lower_case is true, that of this run f"),
    (
      {"train_file": "other.tsv", "eval_file": "other.tsv"},
      "its labels is neg,pos, that of this run no,yes: expected the same",
    ),
    (
      {"problem": "multi_label", "class_weights": ""},
      "its problem is single_label, that of this run multi_label: expected the",
    ),
    (
      {"vocab_file": "other.txt"},
      "its vocab_file_sha256 is ",
    ),
    ({"teacher": "empty"}, "--teacher=empty: not the --output_dir of a train"),
    ({"teacher": ""}, "--distillation_alpha=0.25 needs --teacher"),
  ],
)
def test_another_teacher_is_refused_in_a_line(
  taught, flags, message, tmp_path, monkeypatch
):
  monkeypatch.chdir(tmp_path)
  (tmp_path / "empty").mkdir()
  (tmp_path / "other.tsv").write_text(OTHER_LABELS)
  words = (taught.folder / "vocab.txt").read_text().split()
  (tmp_path / "other.txt").write_text("\n".join(words[::-1]) + "\n")
  flags = {"output_dir": "new", "do_predict": False, **flags}
  result = taught.again(program_flags.run_here, **flags)
  message = message.format(teacher=taught.folder / "teacher")
  program_flags.assert_refused(result, message)
  assert not (tmp_path / "new").exists()


@one_program
def test_a_teacher_of_another_program_is_refused(taught, tmp_path):
  command = tiny.prepare("run_tagging", tmp_path)
  result = program_flags.run_here(
    [*command, f"--teacher={taught.folder / 'teacher'}"]
  )
  message = "its problem is single_label, that of this run tagging: expected"
  program_flags.assert_refused(result, message)


@pytest.mark.parametrize(
  "program", ["run_multiple_choice", "run_embedding", "run_feature_tagging"]
)
def test_choices_vectors_and_features_have_no_teacher(program, tmp_path):
  if program == "run_feature_tagging":  # It takes the flags of the other.
    command = tiny.prepare("run_tagging", tmp_path)
    command[1] = str(paths.ROOT / "bert" / "contrib" / f"{program}.py")
  else:
    command = tiny.prepare(program, tmp_path)
  teacher = tmp_path / "teacher"
  teacher.mkdir()
  result = program_flags.run_here([*command, f"--teacher={teacher}"])
  message = (
    f"--teacher={teacher}: only run_classifier.py, run_tagging.py and ru"
  )
  program_flags.assert_refused(result, message)


@one_program
def test_a_damaged_file_of_logits_is_named(taught, tmp_path):
  shutil.copytree(taught.out, tmp_path / "out")
  for path in (tmp_path / "out").glob("model.ckpt-*"):
    path.unlink()
  shutil.rmtree(tmp_path / "out/best")
  tiny.damage(tmp_path / "out/train_teacher.tf_record", 60)
  result = taught.again(
    program_flags.run_here, output_dir=tmp_path / "out", eval_every_steps=0
  )
  assert result.returncode == 1
  assert "train_teacher.tf_record: record " in result.stderr
  assert "delete the file and it will be made again" in result.stderr


@pytest.mark.parametrize(
  "pooling", [pytest.param("", marks=pytest.mark.slow), "mean"]
)
def test_a_text_cnn_learns_from_a_bert_without_labels(pooling, tmp_path):
  tiny_models.write_trained(
    tmp_path / "teacher",
    make=lambda config: heads.ClassifierModel(config, 2, pooling=pooling),
    **{"pooling": pooling} if pooling else {},
  )
  texts = [text for text, _ in tiny.make_examples(range(50))]
  lines = ["text\tlabel", f"{texts[0]}\tneg", *(f"{t}\t" for t in texts[1:])]
  (tmp_path / "train.tsv").write_text("\n".join(lines) + "\n")
  (tmp_path / "texts.tsv").write_text("\n".join(["text", *texts]) + "\n")
  flags = {
    "train_file": tmp_path / "train.tsv",
    "predict_file": tmp_path / "texts.tsv",
    "do_train": True,
    "do_predict": True,
    "labels": "neg,pos",
    "num_train_epochs": 40,
    "train_batch_size": 10,
    "learning_rate": 3e-3,
  }
  command = tiny.command("run_classifier", tmp_path, **flags)
  (tmp_path / "config.json").write_text(json.dumps(TEXT_CNN))
  result = program_flags.run_here(command)
  program_flags.assert_refused(result, "train.tsv:5, ...: no label; 49 of 50 ")
  flags = {"teacher": tmp_path / "teacher", "distillation_alpha": 0}
  result = program_flags.succeed([*command, *program_flags.arguments(flags)])
  assert "\n  49 of them have no label\n" in result.stdout
  (known,) = read_rows(tmp_path / "out/train.tf_record", "is_real_example")
  assert known[:, 0].tolist() == [1.0] + [0.0] * 49
  logits = read_logits(tmp_path / "out")
  rows = read_rows(tmp_path / "out/train.tf_record", *records.INPUT_NAMES)
  expected = logits_of(tmp_path, rows)
  np.testing.assert_allclose(logits, expected, atol=1e-5)
  with open(tmp_path / "out/test_results.tsv", newline="") as file:
    answers = np.array([*csv.reader(file, delimiter="\t")], np.float64)
  assert 10 < logits.argmax(1).sum() < 40  # The teacher's answers differ.
  assert (answers.argmax(1) == logits.argmax(1)).sum() >= 47


def test_rows_without_a_label_have_no_share_in_the_loss_of_the_task():
  logits = tf.constant([[0.0, np.log(3.0)], [0.0, 7.0]], tf.float32)
  features = {"label_ids": tf.constant([[1], [0]])}
  features["is_real_example"] = tf.constant([1, 0])
  losses = run_classifier.loss(
    logits, features, "single_label", tf.constant([5.0, 2.0])
  )
  found = [float(x) for x in losses["classification_loss"]]
  assert found == pytest.approx([2 * -np.log(0.75), 2.0])


@pytest.mark.slow
@pytest.mark.parametrize("problem", ["multi_label", "regression"])
def test_several_labels_and_numbers_are_learned_too(problem, tmp_path):
  tables = {"multi_label": "a,b a  b b a,b", "regression": "1 2.5 -3 4 0.5 6"}
  labels = tables[problem].split(" ")
  lines = [f"{labels[n]}\t{tiny.make_text(n, tiny.GOOD)}" for n in range(6)]
  if problem == "regression":  # The last has no number.
    lines[-1] = lines[-1].partition("\t")[2].join(["\t", ""])
  whole = [*lines[:5], lines[4]]
  flags = {"do_train": True, "problem": problem, "num_train_epochs": 4}
  for name, content in (("teacher", whole), ("out", lines)):
    path = tmp_path / f"{name}.tsv"
    path.write_text("label\ttext\n" + "\n".join(content) + "\n")
    flags |= {"train_file": path, "output_dir": tmp_path / name}
    result = tiny.succeed("run_classifier", tmp_path, **flags)
    flags["teacher"] = tmp_path / "teacher"
  assert "teacher: 6 rows of logits; wrote" in result.stdout
  is_one = problem == "regression"
  assert ("1 of them have no label" in result.stdout) == is_one
  assert "distillation" in (tmp_path / "out/curves.jsonl").read_text()


@pytest.mark.slow
def test_one_of_many_tasks_has_a_teacher(tmp_path):
  tiny.write_model(
    tmp_path, {"vocab_size": len(tiny.ALL_WORDS)}, "run_multitask"
  )
  tasks = tiny.write_tasks(tmp_path)
  flags = {"do_train": True, "train_file": tasks["names"]["train_file"]}
  tiny_flags = tiny.tasks_flags(tmp_path, "teacher", **flags)
  program_flags.succeed(program_flags.command("run_tagging", **tiny_flags))
  entry = {**tasks["names"], "teacher": str(tmp_path / "teacher")}
  result = tiny.run_tasks(tmp_path, [tasks["good"], entry], num_train_epochs=1)
  assert result.returncode == 0, result.stderr
  assert "teacher: 50 rows of logits; wrote" in result.stdout
