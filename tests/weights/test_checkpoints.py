"""Google's checkpoints, read and written; damage and misfits are named."""

import dataclasses
import weakref

import numpy as np
import pytest
import tensorflow as tf
from tensorflow.core.util import saved_tensor_slice_pb2

import any_model
from bert import heads, modeling
from bert.convert import models
from bert.weights import checkpoints, tensor_bundles
import disk_events
import paths
import tiny_index

DATA = paths.SHARED / "data/checkpoints"
needs_data = pytest.mark.skipif(
  not DATA.is_dir(), reason=f"no checkpoints in {DATA}"
)


def make_variables(**values):
  return {name: tf.Variable(value) for name, value in values.items()}


def write(folder, step=1, keep=5, **values):
  return checkpoints.save(str(folder), step, make_variables(**values), keep)


def test_saves_loads_and_widens_float16(tmp_path):
  prefix = write(tmp_path, a=[1.0, 2.0], b=np.float16([0.5, 2.0]))
  assert prefix == f"{tmp_path}/model.ckpt-1"
  found = make_variables(a=[0.0, 0.0], b=[0.0, 0.0])
  assert checkpoints.load(prefix, found) == ([], [])
  assert found["a"].numpy().tolist() == [1.0, 2.0]
  assert found["b"].numpy().tolist() == [0.5, 2.0]
  assert sorted(path.name for path in tmp_path.iterdir()) == [
    "checkpoint",
    "model.ckpt-1.data-00000-of-00001",
    "model.ckpt-1.index",
  ]
  assert tf.train.latest_checkpoint(str(tmp_path)) == prefix


def test_a_checkpoint_is_synced_before_it_gets_its_name(tmp_path, monkeypatch):
  events = disk_events.record(monkeypatch)
  write(tmp_path, a=[1.0, 2.0])
  data, index = "model.ckpt-1.writing.data-00000-of-00001", "model.ckpt-1.index"
  state = events[6].removeprefix("sync file ")
  assert events == [
    f"sync file {data}",
    f"rename {data} model.ckpt-1.data-00000-of-00001",
    f"sync folder {tmp_path.name}",
    "sync file model.ckpt-1.writing.index",
    f"rename model.ckpt-1.writing.index {index}",
    f"sync folder {tmp_path.name}",
    f"sync file {state}",
    f"rename {state} checkpoint",
    f"sync folder {tmp_path.name}",
  ]


def test_keeps_the_newest(tmp_path):
  for step in (1, 2, 3):
    write(tmp_path, step, keep=2, a=1.0)
  assert checkpoints.saved_steps(str(tmp_path)) == [2, 3]
  assert (tmp_path / "checkpoint").read_text() == (
    'model_checkpoint_path: "model.ckpt-3"\n'
    'all_model_checkpoint_paths: "model.ckpt-2"\n'
    'all_model_checkpoint_paths: "model.ckpt-3"\n'
  )


def test_loads_everything_or_lists_what_does_not_fit(tmp_path):
  prefix = write(tmp_path, a=1.0, b=[2.0], c=3.0)
  found = make_variables(b=[0.0, 0.0], c=0.0, d=0.0)
  with pytest.raises(ValueError) as caught:
    checkpoints.load(prefix, found)
  assert str(caught.value) == (
    f"{prefix} does not fit the model: - d; + a; b: shape (1,), the model's is "
    "(2,)"
  )
  assert found["c"].numpy() == 0.0


def test_skips_what_is_optional_and_the_state_of_training(tmp_path):
  saved = {"bert/x": 1.0, "bert/x/adam_m": 1.0, "cls/old": 1.0}
  prefix = write(tmp_path, **saved, global_step=9)
  found = {"bert/x": tf.Variable(0.0), "cls/new": tf.Variable(5.0)}
  loaded = checkpoints.load(prefix, found, lambda name: name[:4] == "cls/")
  assert loaded == (["cls/new"], ["cls/old"])
  assert found["bert/x"].numpy() == 1.0
  assert found["cls/new"].numpy() == 5.0
  assert checkpoints.read_step(prefix) == 9


def test_names_of_keras_states_are_no_states_of_google_s(tmp_path):
  names = ["train_head/kernel", "metrics/kernel", "x/optimizer/kernel"]
  prefix = write(tmp_path, **dict.fromkeys(["bert/x", *names], 1.0))
  with pytest.raises(ValueError, match=r"\+ metrics/kernel; \+ train_head/ker"):
    checkpoints.load(prefix, {"bert/x": tf.Variable(0.0)})


def test_a_resume_verifies_all_before_it_assigns(tmp_path, monkeypatch):
  write(tmp_path, a=1.0, b=2.0)
  names, read = [], tensor_bundles.TensorBundle.get_tensor

  def get_tensor(self, name):
    names.append(name)
    return read(self, name)

  monkeypatch.setattr(tensor_bundles.TensorBundle, "get_tensor", get_tensor)
  variables = make_variables(a=0.0, b=0.0)
  checkpoints.restore(str(tmp_path), variables, reads_all=True)
  assert names == ["a", "b", "a", "b"]


@pytest.mark.parametrize(("source", "reads"), [("x", 2), ("gs://x/y", 1)])
def test_a_local_file_is_read_twice_and_never_whole_in_memory(source, reads):
  values, most = [], []

  def read(name):
    value = np.full([1000], float(name), np.float32)
    values.append(weakref.ref(value))
    most.append(sum(1 for ref in values if ref() is not None))
    return value

  shapes = {str(number): (1000,) for number in range(10)}
  variables = {name: tf.Variable(tf.zeros([1000])) for name in shapes}
  checkpoints.assign(checkpoints.Weights(source, shapes, read), variables)
  assert [int(v.numpy()[-1]) for v in variables.values()] == [*range(10)]
  assert len(values) == reads * 10
  assert max(most) <= 2 or reads == 1


def test_skips_the_slots_of_other_optimizers(tmp_path):
  slots = ["LAMB", "LAMB_1", "lamb_m", "lamb_v", "Adam", "Adam_1", "vr", "vc"]
  slots += ["AdamWeightDecayOptimizer", "AdamWeightDecayOptimizer_1"]
  saved = {f"bert/x/{slot}": 0.5 for slot in slots}
  saved |= {"bert/x": [1.0, 2.0], "beta1_power": 0.5, "beta2_power": 0.5}
  found = {"bert/x": tf.Variable([0.0, 0.0])}
  assert checkpoints.load(write(tmp_path, **saved), found) == ([], [])
  assert found["bert/x"].numpy().tolist() == [1.0, 2.0]


def model_of(**changes):
  config = dataclasses.replace(any_model.CONFIG, **changes)
  return checkpoints.model_variables(heads.ClassifierModel(config, 2))


@pytest.mark.parametrize(
  ("changes", "cause"),
  [
    ({"hidden_size": 4}, "(its hidden_size is 8, the model's 4): "),
    ({"vocab_size": 31}, "(its vocab_size is 30, the model's 31): "),
    (
      {"num_hidden_layers": 1, "intermediate_size": 32},
      "(its intermediate_size is 12, the model's 32, its num_hidden_layers is "
      "2, the model's 1): + bert/encoder/layer_1/",
    ),
  ],
)
def test_a_misfit_names_its_cause_first_and_is_short(changes, cause, tmp_path):
  prefix = checkpoints.save(str(tmp_path), 1, model_of(), keep=1)
  with pytest.raises(ValueError) as caught:
    checkpoints.load(prefix, model_of(**changes))
  message = str(caught.value)
  assert message.startswith(f"{prefix} does not fit the model {cause}")
  assert len(message) < len(prefix) + 800
  if "num_hidden_layers" in changes:
    assert "; and 13 more; bert/encoder/layer_0/intermediate/" in message


def test_another_network_is_called_so(tmp_path):
  prefix = write(tmp_path, electra=1.0)
  with pytest.raises(ValueError, match="it is not a BERT with Google's names"):
    checkpoints.load(prefix, model_of())


def save_with_tf1(prefix, version):
  """Writes a whole and a partitioned variable as TF1 did."""
  with tf.Graph().as_default(), tf.compat.v1.Session() as session:
    tf.compat.v1.get_variable("whole", initializer=[1.0, 2.0])
    tf.compat.v1.get_variable(
      "parts",
      initializer=tf.reshape(tf.range(8.0), [4, 2]),
      partitioner=tf.compat.v1.fixed_size_partitioner(2),
    )
    session.run(tf.compat.v1.global_variables_initializer())
    saver = tf.compat.v1.train.Saver(write_version=version)
    saver.save(session, prefix, write_meta_graph=False)


@pytest.mark.parametrize("version", [1, 2])
def test_reads_both_formats_and_partitioned_variables(version, tmp_path):
  prefix = str(tmp_path / "old.ckpt")
  save_with_tf1(prefix, version)
  values = dict(checkpoints.read(checkpoints.find_checkpoint(prefix)))
  assert values["whole"].tolist() == [1.0, 2.0]
  assert values["parts"].tolist() == [[0, 1], [2, 3], [4, 5], [6, 7]]


def test_finds_what_the_user_means(tmp_path):
  run, release = tmp_path / "run", tmp_path / "unzipped"
  run.mkdir()
  write(run, 9, a=1.0)
  newest = write(run, 10, a=1.0)
  (release / "uncased").mkdir(parents=True)
  for path in run.glob("model.ckpt-9.*"):
    name = path.name.replace("model.ckpt-9", "bert_model.ckpt")
    (release / "uncased" / name).write_bytes(path.read_bytes())
  inside = str(release / "uncased" / "bert_model.ckpt")
  for path in (newest, f"{newest}.index", f"{run}/"):
    assert checkpoints.find_checkpoint(path) == newest
  assert checkpoints.find_checkpoint(str(release)) == inside


def test_the_newest_counts_whichever_the_file_checkpoint_names(tmp_path):
  """A run that was killed may not have rewritten that file after it saved."""
  write(tmp_path, 9, a=1.0)
  state = tmp_path / "checkpoint"
  older = state.read_text()
  newest = write(tmp_path, 10, a=2.0)
  assert "model.ckpt-9" in older != state.read_text()
  state.write_text(older)
  assert checkpoints.latest_checkpoint(str(tmp_path)) == newest
  assert checkpoints.find_checkpoint(str(tmp_path)) == newest
  variables = {"a": tf.Variable(0.0)}
  assert checkpoints.restore(str(tmp_path), variables) == 10
  assert variables["a"].numpy() == 2.0


@pytest.mark.parametrize(
  ("name", "message"),
  [
    ("nowhere", "nowhere: no checkpoint there"),
    ("uncased.zip", "uncased.zip: unzip it and give the folder"),
    ("full", "full: no checkpoint there; the folder holds ['notes.txt']"),
  ],
)
def test_says_what_is_not_a_checkpoint(name, message, tmp_path):
  (tmp_path / "full").mkdir()
  (tmp_path / "full" / "notes.txt").write_text("no weights")
  with pytest.raises(ValueError) as caught:
    checkpoints.find_checkpoint(str(tmp_path / name))
  assert message in str(caught.value)


def test_what_a_killed_first_save_left_is_no_checkpoint(tmp_path):
  prefix = write(tmp_path, a=1.0)
  # Killed after the data got its name, before the index did.
  (tmp_path / "model.ckpt-1.index").rename(
    tmp_path / "model.ckpt-1.writing.index"
  )
  (tmp_path / "checkpoint").unlink()
  with pytest.raises(ValueError, match="no checkpoint there; the folder holds"):
    checkpoints.find_checkpoint(str(tmp_path))
  assert checkpoints.latest_checkpoint(str(tmp_path)) is None
  # Nor is it one of several.
  (tmp_path / "bert_model.ckpt.index").write_bytes(b"")
  found = checkpoints.find_checkpoint(str(tmp_path))
  assert found == prefix.replace("model.ckpt-1", "bert_model.ckpt")


@pytest.mark.parametrize("value", [[1, 2], 1.5, "text"])
def test_steps_are_integers_and_weights_are_not(tmp_path, value):
  values = {"global_step": np.array(value), "a": np.array(3, np.int8)}
  values["b"] = np.array("text")
  prefix = checkpoints.write(str(tmp_path), values)
  with pytest.raises(ValueError, match="global_step has shape .*an integer$"):
    checkpoints.read_step(prefix)
  for name in "ab":
    with pytest.raises(ValueError, match="ckpt: . holds .*; expected floating"):
      checkpoints.load(prefix, make_variables(**{name: 0.0}), lambda _: True)


def test_no_flipped_bit_of_an_index_ends_the_process(tmp_path):
  """TensorFlow reads in this process: if it aborts, so does this test.

  Every seventh bit. All bits of the footers of three files (V2, 0.5 and 14 kB;
  V1, 1.5 kB) and samples of the rest of V2 were tried, too, and ended none.
  """
  prefix = write(tmp_path, a=[1.0, 2.0], b=3.0)
  path = tmp_path / "model.ckpt-1.index"
  good, refused = path.read_bytes(), 0
  for bit in range(0, 8 * len(good), 7):
    content = bytearray(good)
    content[bit // 8] ^= 1 << bit % 8
    path.write_bytes(content)
    try:
      found = dict(checkpoints.read(prefix))
      assert found["a"].tolist() == [1, 2] and found["b"] == 3
    except checkpoints.DamagedCheckpointError:
      refused += 1
  # TensorFlow 2.21 writes 138 bytes, so 158 bits are tried. The others are in
  # a block that is not used, and in the footer.
  assert refused == 100


def test_names_and_shapes_need_no_data(tmp_path):
  prefix = write(tmp_path, a=[1.0, 2.0])
  (tmp_path / "model.ckpt-1.data-00000-of-00001").unlink()
  assert checkpoints.open_weights(prefix).shapes == {"a": (2,)}
  with pytest.raises(ValueError, match="a is damaged: lacks .*data-00000"):
    dict(checkpoints.read(prefix))


def test_a_damaged_dtype_of_the_first_format_is_named(tmp_path):
  meta = saved_tensor_slice_pb2.SavedTensorSlices()
  meta.meta.versions.producer = 1
  tensor = meta.meta.tensor.add(name="a", type=0)
  tensor.shape.dim.add(size=2)
  for start in (0, 1):
    tensor.slice.add().extent.add(start=start, length=1)
  block = tiny_index.make_block([(b"", meta.SerializeToString())])
  path = tmp_path / "old.ckpt"
  path.write_bytes(tiny_index.make_table(block))
  with pytest.raises(ValueError, match="old.ckpt: a is damaged: 0 does not"):
    dict(checkpoints.read(str(path)))


def test_a_failed_write_leaves_the_older_checkpoint(tmp_path):
  prefix = write(tmp_path, 1, a=1.0)
  # A folder where the new data file should go makes the rename fail.
  (tmp_path / "model.ckpt-2.data-00000-of-00001").mkdir()
  with pytest.raises(ValueError, match="model.ckpt-2: cannot be written"):
    write(tmp_path, 2, a=2.0)
  assert checkpoints.latest_checkpoint(str(tmp_path)) == prefix
  assert not list(tmp_path.glob("*writing*"))


@needs_data
def test_reads_a_run_of_the_original():
  folder = DATA / "toy_tf1_run"
  values = dict(checkpoints.read(checkpoints.find_checkpoint(str(folder))))
  assert len(values) == 139
  for line in (folder / "VARIABLES.txt").read_text().splitlines():
    name, shape, dtype = line.split("\t")
    assert str(list(values[name].shape)) == shape
    assert values[name].dtype == dtype


@needs_data
@pytest.mark.parametrize(
  "name",
  [
    "toy_tf1_run",
    "chinese_L-12_H-768_A-12.index_only",
    "chinese_wwm.index_only",
    "uncased_L-4_H-256_A-4.index_only",
    "uncased_L-8_H-512_A-8.index_only",
  ],
)
def test_the_names_and_shapes_of_released_checkpoints_are_ours(name):
  folder = DATA / name
  config = modeling.BertConfig.from_json_file(str(folder / "bert_config.json"))
  prefix = checkpoints.find_checkpoint(str(folder))
  shapes = checkpoints.open_weights(prefix).shapes
  ours = models.variables(config, "pretraining")
  extra = {k for k in shapes if k.endswith(("adam_m", "adam_v", "global_step"))}
  theirs = {k: v for k, v in shapes.items() if k not in extra}
  if not any(name.startswith("cls/") for name in theirs):
    ours = {k: v for k, v in ours.items() if k.startswith("bert/")}
  assert ours == theirs


def test_what_a_reader_keeps_is_released_when_it_was_assigned():
  kept = {}
  weights = checkpoints.Weights(
    "folder",
    {"x": (2,)},
    lambda name: kept.setdefault(name, np.float32([1, 2])),
    release=kept.clear,
  )
  variable = tf.Variable([0.0, 0.0])
  checkpoints.assign(weights, {"x": variable})
  assert variable.numpy().tolist() == [1.0, 2.0]
  assert kept == {}
