"""examples/cut_student.py: a small BERT that is cut out of a larger one."""

import dataclasses
import runpy

import numpy as np
import tensorflow as tf

import bert
from bert import modeling
import paths
import unmasked_records

PATH = str(paths.ROOT / "examples" / "cut_student.py")


def test_columns_that_follow_from_others_are_not_chosen():
  script = runpy.run_path(PATH)
  draws = np.random.default_rng(1).normal(size=[1000, 3]) * [1, 2, 3]
  columns = np.stack([draws[:, 0], 0.1 * draws[:, 2], *draws.T[1:]], 1)
  assert script["select"](np.cov(columns.T), 3).tolist() == [0, 2, 3]


def test_a_model_cut_to_its_own_size_answers_alike():
  """All layers and columns are kept; only the tables are narrower."""
  script = runpy.run_path(PATH)
  sizes = {"hidden_size": 16, "num_attention_heads": 4}
  sizes |= {"num_hidden_layers": 2, "intermediate_size": 32}
  config = modeling.BertConfig(vocab_size=30, initializer_range=0.2, **sizes)
  teacher = modeling.BertModel(config)
  student = modeling.BertModel(dataclasses.replace(config, embedding_size=15))
  ids = np.random.default_rng(1).integers(5, 30, [200, 8])
  inputs = tf.constant(ids), tf.ones_like(ids), tf.zeros_like(ids)
  script["cut"](teacher, student, inputs, [0, 1])
  outputs = [m(*inputs).sequence_output.numpy() for m in (student, teacher)]
  assert script["explained"](*(x.reshape(-1, 16) for x in outputs)) > 0.8


def test_a_student_is_written_that_training_starts_from(
  tmp_path, monkeypatch, capsys
):
  teacher = unmasked_records.write_teacher(tmp_path / "teacher")
  data = unmasked_records.write(tmp_path / "records", range(60))
  arguments = [PATH, f"--teacher={teacher}", "--records", str(data)]
  arguments += [f"--output_dir={tmp_path}/start", "--layers", "0"]
  arguments += ["--hidden_size=12", "--embedding_size=8"]
  monkeypatch.setattr("sys.argv", [*arguments, "--max_seq_length=16"])
  runpy.run_path(PATH, run_name="__main__")
  printed = capsys.readouterr().out.splitlines()
  assert [line.partition(":")[0] for line in printed] == [
    "embeddings",
    "layer 0",
    f"wrote {tmp_path}/start",
  ]
  student = bert.load_encoder(str(tmp_path / "start"))
  config = student.config
  assert (config.hidden_size, config.num_attention_heads) == (12, 1)
  assert (config.embedding_size, config.num_hidden_layers) == (8, 1)
  assert (tmp_path / "start" / "vocab.txt").is_file()
