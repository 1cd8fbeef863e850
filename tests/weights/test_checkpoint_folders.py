"""Which checkpoint of a folder is meant, and what is deleted when."""

import re
import types

import numpy as np
import pytest
import tensorflow as tf

from bert.weights import checkpoints
import tiny

DATA = "data-00000-of-00001"


def write(folder, *steps, **values):
  """Saves 1.0 at step 1, 2.0 at step 2 and so on, as a."""
  folder.mkdir(exist_ok=True)
  for step in steps:
    every = {"a": np.float32([step] * 50), **values}
    checkpoints.write(str(folder), every, step)


def rename(folder, name):
  """Gives the checkpoint of step 1 another name; returns its prefix."""
  for path in list(folder.glob("model.ckpt-1.*")):
    path.rename(path.with_name(path.name.replace("model.ckpt-1", name)))
  (folder / "checkpoint").write_text(f'model_checkpoint_path: "{name}"\n')
  return f"{folder}/{name}"


def names_in(folder):
  return {path.name for path in folder.iterdir()}


def files_of(*steps):
  endings = ("index", DATA)
  return {f"model.ckpt-{step}.{ending}" for step in steps for ending in endings}


def test_a_config_is_read_or_refused_with_its_path(tmp_path):
  path = tmp_path / "bert_config.json"
  path.write_text('{"vocab_size": 9, "hidden_size": 24}')
  config = checkpoints.read_config(str(path))
  assert (config.vocab_size, config.hidden_size) == (9, 24)
  path.write_text('{"vocab_size": 9, "hidden_size": 25}')
  with pytest.raises(ValueError) as error:
    checkpoints.read_config(str(path))
  assert str(error.value) == (
    f"{path}: num_attention_heads (12) does not divide hidden_size (25)"
  )


def test_a_slash_behind_a_name_does_no_harm(tmp_path):
  write(tmp_path, 1)
  prefix = rename(tmp_path, "X")
  assert checkpoints.find_checkpoint(f"{prefix}/") == prefix


def test_a_single_checkpoint_is_found_without_being_read(tmp_path):
  """There is nothing to fall back to; whoever reads it names the damage."""
  write(tmp_path, 1)
  tiny.damage(tmp_path / f"model.ckpt-1.{DATA}", 100)
  found = checkpoints.find_checkpoint(str(tmp_path))
  assert found == f"{tmp_path}/model.ckpt-1"


def test_of_three_the_one_before_the_damaged_one_counts(tmp_path, capsys):
  write(tmp_path, 1, 2, 3)
  tiny.damage(tmp_path / f"model.ckpt-3.{DATA}", 100)
  found = checkpoints.find_checkpoint(str(tmp_path))
  assert found == f"{tmp_path}/model.ckpt-2"
  (line,) = capsys.readouterr().err.splitlines()
  assert line.startswith(f"{tmp_path}/model.ckpt-3: a is damaged: ")
  assert line.endswith(f"; trying {tmp_path}/model.ckpt-2")


@pytest.mark.parametrize("lost", ["data", "index"])
def test_every_damaged_step_is_reported(tmp_path, capsys, lost):
  write(tmp_path, 1, 2, 3)
  for step in (2, 3):
    if lost == "data":
      tiny.damage(tmp_path / f"model.ckpt-{step}.{DATA}", 100)
    else:
      (tmp_path / f"model.ckpt-{step}.index").unlink()
  found = checkpoints.find_checkpoint(str(tmp_path))
  assert found == f"{tmp_path}/model.ckpt-1"
  lines = capsys.readouterr().err.splitlines()
  named = [re.search(r"ckpt-(\d)", line)[1] for line in lines]
  assert sorted(named) == ["2", "3"]


def test_a_name_without_a_step_is_in_the_file_checkpoint(tmp_path):
  for folder in (tmp_path / "nowhere", tmp_path):
    assert checkpoints.latest_checkpoint(str(folder)) is None
  write(tmp_path, 1)
  prefix = rename(tmp_path, "model.ckpt")
  assert checkpoints.latest_checkpoint(str(tmp_path)) == prefix
  assert checkpoints.find_checkpoint(str(tmp_path)) == prefix
  (tmp_path / "model.ckpt.index").unlink()
  assert checkpoints.latest_checkpoint(str(tmp_path)) is None


def test_a_step_has_its_own_prefix_or_the_newest(tmp_path):
  write(tmp_path, 1, 2)
  folder = str(tmp_path)
  assert checkpoints.saved_prefix(folder, 1) == f"{folder}/model.ckpt-1"
  assert checkpoints.saved_prefix(folder, 9) == f"{folder}/model.ckpt-2"


def test_a_release_has_one_checkpoint_under_any_name(tmp_path):
  for name in ("one", "two"):
    write(tmp_path, 1)
    prefix = rename(tmp_path, name)
    (tmp_path / "checkpoint").unlink()
    if name == "one":
      assert checkpoints.find_checkpoint(str(tmp_path)) == prefix
  with pytest.raises(ValueError) as error:
    checkpoints.find_checkpoint(str(tmp_path))
  indices = [f"{tmp_path}/one.index", f"{tmp_path}/two.index"]
  assert str(error.value) == (
    f"{tmp_path}: several checkpoints, name one: {indices}"
  )


def test_a_release_of_the_first_format_has_no_index(tmp_path):
  (tmp_path / "bert_model.ckpt").touch()
  found = checkpoints.find_checkpoint(str(tmp_path))
  assert found == f"{tmp_path}/bert_model.ckpt"


@pytest.mark.parametrize(
  ("name", "other"), [("g[1]", "g1"), ("g*", "gx"), ("a\\b", "ab")]
)
def test_the_name_of_a_folder_is_no_pattern(tmp_path, name, other):
  """Of the release, of one unpacked in it, and of TensorFlow's first format."""
  for number, folder in enumerate([name, other]):
    for parent in (f"new/{folder}", f"{folder}/in"):
      path = tmp_path / parent
      path.mkdir(parents=True)
      write(path, 1, a=np.float32([number]))
      rename(path, "bert_model.ckpt")
      (path / "checkpoint").unlink()
    (tmp_path / "old" / folder).mkdir(parents=True)
    tf.raw_ops.Save(
      filename=f"{tmp_path}/old/{folder}/bert_model.ckpt",
      tensor_names=["a"],
      data=[[float(number)]],
    )
  for path in (f"new/{name}", name, f"old/{name}"):
    prefix = checkpoints.find_checkpoint(f"{tmp_path}/{path}")
    assert checkpoints.open_weights(prefix).read("a") == [0]


def test_a_folder_without_a_checkpoint_is_listed_in_part(tmp_path):
  names = [f"{number:02}.txt" for number in range(11)]
  for name in names:
    (tmp_path / name).touch()
  with pytest.raises(ValueError) as error:
    checkpoints.find_checkpoint(str(tmp_path))
  assert str(error.value) == (
    f"{tmp_path}: no checkpoint there; the folder holds {names[:10]}; expected "
    "model.ckpt-<step> or bert_model.ckpt, each with .index and .data-..."
  )


@pytest.mark.parametrize("step", [0, 1])
def test_the_only_index_may_be_lost_at_any_step(tmp_path, step):
  write(tmp_path, step)
  (tmp_path / f"model.ckpt-{step}.index").unlink()
  with pytest.raises(ValueError, match=f"ckpt-{step}.index is missing, and"):
    checkpoints.restore(str(tmp_path), {})


def test_a_lost_index_is_reported_after_one_that_never_was(tmp_path, capsys):
  write(tmp_path, 1, 2, 3)
  index = tmp_path / "model.ckpt-2.index"
  index.rename(tmp_path / "model.ckpt-2.writing.index")  # A kill left it.
  (tmp_path / "model.ckpt-3.index").unlink()
  found = checkpoints.find_checkpoint(str(tmp_path))
  assert found == f"{tmp_path}/model.ckpt-1"
  assert capsys.readouterr().err == (
    f"{tmp_path}/model.ckpt-3.index is missing; trying {found}\n"
  )


def test_a_checkpoint_of_one_task_has_no_slots(tmp_path):
  write(tmp_path, 1, 3)
  write(tmp_path, 2, **{"a/adam_m": np.float32(0)})
  steps = [checkpoints.has_slots(str(tmp_path), step) for step in (1, 2, 3)]
  assert steps == [False, True, False]


def test_a_checkpoint_without_a_step_is_of_step_0(tmp_path):
  write(tmp_path, 7)
  assert checkpoints.read_step(f"{tmp_path}/model.ckpt-7") == 0


def test_damage_of_adams_slots_counts_where_they_are_read(tmp_path):
  write(tmp_path, 1, 2, **{"a/adam_m": np.float32([0] * 50)})
  # In the order of the names: 200 bytes of a, then those of its slot.
  tiny.damage(tmp_path / f"model.ckpt-2.{DATA}", 300)
  variables = {"a": tf.Variable([0.0] * 50)}
  assert checkpoints.restore(str(tmp_path), variables) == 2
  assert checkpoints.restore(str(tmp_path), variables, reads_all=True) == 1


def test_a_checkpoint_of_another_model_is_no_damaged_one(tmp_path):
  write(tmp_path, 1, 2)
  with pytest.raises(ValueError) as error:
    checkpoints.restore(str(tmp_path), {"c": tf.Variable(0.0)})
  assert str(error.value) == (
    f"{tmp_path} belongs to another model; choose another --output_dir: "
    f"{tmp_path}/model.ckpt-2 does not fit the model: - c; + a"
  )


def test_a_training_left_some_weights_as_they_were(tmp_path):
  values = {name: np.float32(1) for name in ("a", "a/adam_m", "a/adam_v", "b")}
  checkpoints.write(str(tmp_path), values, 2)
  variables = {name: tf.Variable(0.0) for name in [*values, "b/adam_m"]}
  with pytest.raises(ValueError) as error:
    checkpoints.restore(str(tmp_path), variables)
  assert str(error.value) == (
    f"{tmp_path}/model.ckpt-2 has no b/adam_m (1 such variables): the training "
    "there left some weights as they were, so one that changes them cannot "
    f"resume it: begin it with --model={tmp_path} and another --output_dir"
  )

  # Without its weights, or with others, it is another model.
  for name, value in (("c", 0.0), ("b", [0.0])):
    others = {**variables, name: tf.Variable(value)}
    with pytest.raises(ValueError, match="belongs to another model"):
      checkpoints.restore(str(tmp_path), others)


def test_one_without_a_step_may_hold_the_heads_of_other_tasks(tmp_path):
  values = {"bert/x": np.float32(3), "other/head": np.float32(4)}
  checkpoints.write(str(tmp_path), {**values, "global_step": np.int64(5)}, 1)
  rename(tmp_path, "model.ckpt")
  variables = {"bert/x": tf.Variable(0.0), "global_step": tf.Variable(0)}
  assert checkpoints.restore(str(tmp_path), variables) == 5
  assert [v.numpy() for v in variables.values()] == [3.0, 5]
  # It must have the head of this task, and no more of BERT than the model.
  for name in ("my/head", "bert/y"):
    with pytest.raises(ValueError, match=f"does not fit the model: - {name}$"):
      checkpoints.restore(str(tmp_path), {**variables, name: tf.Variable(0.0)})
  with pytest.raises(ValueError, match=r"model: - my/head; \+ bert/x$"):
    checkpoints.restore(str(tmp_path), {"my/head": tf.Variable(0.0)})


@pytest.mark.parametrize(
  ("dtype", "is_read"),
  [
    (np.float32, True),
    (np.float16, True),
    (tf.bfloat16.as_numpy_dtype, True),
    (np.int8, False),
    (np.bool_, False),
  ],
)
def test_weights_are_numbers(tmp_path, dtype, is_read):
  prefix = checkpoints.write(str(tmp_path), {"a": np.ones([2], dtype)}, 1)
  count = tf.Variable([0, 0])
  checkpoints.load(prefix, {"a": count})  # A count takes all of them.
  assert count.numpy().tolist() == [1, 1]
  weight = {"a": tf.Variable([0.0, 0.0])}
  if is_read:
    checkpoints.load(prefix, weight)
    assert weight["a"].numpy().tolist() == [1.0, 1.0]
    return
  with pytest.raises(ValueError, match="; expected floating-point numbers$"):
    checkpoints.load(prefix, weight)


@pytest.mark.parametrize("dtype", [np.float32, tf.bfloat16.as_numpy_dtype])
def test_a_weight_that_is_nan_is_damage(tmp_path, dtype):
  values = {"a": np.array([1.0, np.nan], dtype)}
  prefix = checkpoints.write(str(tmp_path), values, 1)
  with pytest.raises(checkpoints.DamagedCheckpointError) as error:
    checkpoints.load(prefix, {"a": tf.Variable([0.0, 0.0])})
  assert str(error.value) == (
    f"{prefix}: a holds NaN: its training diverged, or the file is damaged: "
    "take an earlier checkpoint"
  )


def test_what_another_library_has_beside_the_weights_is_reported():
  weights = checkpoints.Weights(
    "x", {"a": ()}, lambda name: np.float32(1), ["extra.weight", "a/adam_m"]
  )
  found = checkpoints.assign(weights, {"a": tf.Variable(0.0)})
  assert found == ([], ["extra.weight"])


def test_a_fine_tuned_checkpoint_lacks_the_masked_lm_head():
  weights = checkpoints.Weights("x", {"bert/a": (), "cls/c": ()}, lambda n: n)
  checkpoints.check_masked_lm(weights, ["bert/a", "bert/other", "cls/other"])
  names = ["cls/predictions/z", "bert/a", "cls/predictions/b"]
  with pytest.raises(ValueError) as error:
    checkpoints.check_masked_lm(weights, names)
  assert str(error.value) == (
    "--init_checkpoint=x has no masked-LM head, it lacks cls/predictions/b, "
    "cls/predictions/z: give one that was pre-trained and not fine-tuned since"
  )


@pytest.mark.parametrize(
  ("name", "is_above"),
  [
    ("output_weights", True),
    ("cls/bert/kernel", True),
    ("bert/pooler/dense/kernel", True),
    ("bert/encoder/layer_0/output/dense/kernel", False),
    ("bert/embeddings/word_embeddings", False),
  ],
)
def test_heads_and_pooler_are_above_the_layers(name, is_above):
  assert checkpoints.is_above_layers(name) == is_above


def test_all_are_kept_unless_a_number_is_given(tmp_path):
  write(tmp_path, 1, 2, 3)
  assert checkpoints.saved_steps(str(tmp_path)) == [1, 2, 3]
  prefix = checkpoints.write(str(tmp_path), {"a": np.float32(4)})
  assert prefix == f"{tmp_path}/bert_model.ckpt"
  assert names_in(tmp_path) == {
    "checkpoint",
    "bert_model.ckpt.index",
    f"bert_model.ckpt.{DATA}",
    *files_of(1, 2, 3),
  }


def test_the_first_error_of_a_write_is_reported(tmp_path, monkeypatch):
  def refuse(folder):
    raise tf.errors.PermissionDeniedError(None, None, "no removal either")

  monkeypatch.setattr(checkpoints, "remove_temporary_files", refuse)
  target = tmp_path / f"model.ckpt-2.{DATA}"
  target.mkdir()
  with pytest.raises(ValueError) as error:
    write(tmp_path, 2)
  assert str(error.value).startswith(
    f"{tmp_path}/model.ckpt-2: cannot be written: "
  )
  assert str(target) in str(error.value)


@pytest.fixture
def removed(monkeypatch):
  """The names of files that are removed, in this order.

  A folder may list its files in any order: here the data come first.
  """
  listing = checkpoints.list_folder
  monkeypatch.setattr(
    checkpoints, "list_folder", lambda folder: sorted(listing(folder))
  )
  names, remove = [], tf.io.gfile.remove

  def note(path):
    names.append(path.rpartition("/")[2])
    remove(path)

  monkeypatch.setattr(tf.io.gfile, "remove", note)
  return names


def test_a_temporary_index_is_removed_last(tmp_path, removed):
  """It marks data beside it as never complete, also if a kill comes between."""
  write(tmp_path, 1)
  left = [
    "checkpoint.ab.tmp",
    f"model.ckpt-2.{DATA}",  # Its index was not renamed any more.
    f"model.ckpt-2.writing.{DATA}",
    f"model.ckpt-4.writing.{DATA}",
    "model.ckpt-2.writing.index",
  ]
  for name in left:
    (tmp_path / name).touch()
  (tmp_path / "model.ckpt-3.writing.d").mkdir()
  checkpoints.remove_temporary_files(str(tmp_path))
  assert removed == left
  assert names_in(tmp_path) == {
    *("checkpoint", "model.ckpt-3.writing.d", *files_of(1))
  }


def test_the_index_is_deleted_first(tmp_path, removed):
  """What a kill leaves without it does not count as a checkpoint."""
  write(tmp_path, 1, 10)
  checkpoints.delete(str(tmp_path), 1)
  assert removed == ["model.ckpt-1.index", f"model.ckpt-1.{DATA}"]
  assert names_in(tmp_path) == {"checkpoint", *files_of(10)}


def test_checkpoints_before_a_step_are_deleted(tmp_path):
  write(tmp_path, 1, 2, 3, 4)
  checkpoints.delete_before(str(tmp_path), 3)
  assert names_in(tmp_path) == {"checkpoint", *files_of(3, 4)}
  state = (tmp_path / "checkpoint").read_text()
  assert state == (
    'model_checkpoint_path: "model.ckpt-4"\n'
    'all_model_checkpoint_paths: "model.ckpt-3"\n'
    'all_model_checkpoint_paths: "model.ckpt-4"\n'
  )
  # Where there are none, that file is not written again.
  (tmp_path / "checkpoint").unlink()
  checkpoints.delete_before(str(tmp_path), 3)
  assert names_in(tmp_path) == files_of(3, 4)


@pytest.mark.parametrize(
  ("error", "message"),
  [
    (
      FileNotFoundError(2, "No such file", "x.data"),
      "lacks x.data: copy it there, too",
    ),
    (
      ValueError("not an sstable (bad magic number): use a restore operator"),
      "no checkpoint of TensorFlow; expected a folder with one, or the name of "
      "an .index file without its ending",
    ),
    (
      types.SimpleNamespace(message="{{node Save}} No space [Op:SaveV2] name:"),
      "No space",
    ),
    (ValueError("wrong"), "wrong"),
  ],
)
def test_messages_are_without_the_names_of_operations(error, message):
  assert checkpoints.plain_message(error) == message
