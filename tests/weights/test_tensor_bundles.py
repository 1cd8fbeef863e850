"""The V2 format: equal to TensorFlow's reader, and refusing what harms it."""

import numpy as np
import pytest
import tensorflow as tf

from bert.weights import checkpoints
import tiny_index


def save(prefix, names, slices, tensors):
  tf.raw_ops.SaveV2(
    prefix=str(prefix),
    tensor_names=names,
    shape_and_slices=slices,
    tensors=tensors,
  )


def test_reads_every_dtype_as_tensorflow_does(tmp_path):
  numbers = (
    *(tf.bool, tf.bfloat16, tf.float16, tf.float32, tf.float64, tf.int8),
    *(tf.int16, tf.int32, tf.int64, tf.uint8, tf.uint16, tf.uint32, tf.uint64),
    *(tf.complex64, tf.complex128),
  )
  values = {d.name: tf.cast(tf.constant([[0, 1, 2]]), d) for d in numbers}
  values |= {
    "texts": tf.constant([["a", ""], ["b" * 300, "\u4e2d"]]),
    "text": tf.constant("object graph"),
    "scalar": tf.constant(7.5),
    "empty": tf.zeros([0, 3]),
    "no_texts": tf.constant([], tf.string),
  }
  prefix = str(tmp_path / "{x}")
  save(prefix, list(values), [""] * len(values), list(values.values()))
  expected = tf.train.load_checkpoint(prefix)
  for name, found in checkpoints.read(prefix):
    theirs = expected.get_tensor(name)
    assert type(found) is type(theirs) and np.shape(found) == np.shape(theirs)
    assert np.asarray(found).dtype == np.asarray(theirs).dtype
    assert np.all(found == theirs)
    del values[name]
  assert not values


def test_reads_several_shards_and_blocks(tmp_path):
  names = [f"name_{number}" for number in range(3_000)]
  for shard in range(2):
    part = names[shard::2]
    values = [tf.constant(float(name[5:])) for name in part]
    save(tmp_path / f"part{shard}", part, [""] * len(part), values)
  prefix = str(tmp_path / "x")
  parts = [str(tmp_path / "part0"), str(tmp_path / "part1")]
  tf.raw_ops.MergeV2Checkpoints(
    checkpoint_prefixes=parts, destination_prefix=prefix
  )
  assert len(list(tmp_path.glob("x.data-*-of-00002"))) == 2
  assert dict(checkpoints.read(prefix)) == {n: float(n[5:]) for n in names}


# Numbers of one byte in a key are below 64, of two below 8192, and so on.
@pytest.mark.parametrize(
  ("length", "bounds"),
  [(4, []), (4, [1, 3]), (300, [63, 127]), (20_000, [64, 8_255])],
)
def test_joins_the_parts_of_a_variable(tmp_path, length, bounds):
  bounds = [0, *bounds, length]
  parts = list(zip(bounds, bounds[1:], strict=False))
  save(
    tmp_path / "x",
    ["a\u4e2d"] * len(parts),
    [f"2 {length} 0,2:{a},{b - a}" for a, b in parts],
    [tf.constant([range(a, b), range(-b, -a)]) for a, b in parts],
  )
  found = dict(checkpoints.read(str(tmp_path / "x")))["a\u4e2d"]
  assert found.shape == (2, length)
  assert found[0].tolist() == list(range(length))


def read(folder, rows, data=tiny_index.DATA):
  block = tiny_index.make_block([tiny_index.HEADER, *rows])
  (folder / "x.index").write_bytes(tiny_index.make_table(block))
  (folder / "x.data-00000-of-00001").write_bytes(data)
  return dict(checkpoints.read(str(folder / "x")))


WHOLE = tiny_index.make_entry([4], size=0, slices=[[(0, 2)], [(2, 2)]])
FIRST, SECOND = b"\0a\0\1\1\1\x80\x82", b"\0a\0\1\1\1\x82\x82"


SCALAR, EMPTY = {"shape": [], "size": 4}, {"shape": [0], "size": 0}
OTHERS = [{"dtype": 3}, {"dtype": 9, "shape": [1]}, {"shape": [1, 2]}]


@pytest.mark.parametrize("second", [*OTHERS, SCALAR, EMPTY, None])
def test_a_part_fits_its_place(tmp_path, second):
  rows = [(FIRST, tiny_index.make_entry())]
  good = [*rows, (SECOND, tiny_index.make_entry()), (b"a", WHOLE)]
  assert read(tmp_path, good)["a"].tolist() == [1, 2, 1, 2]
  if second is not None:
    rows.append((SECOND, tiny_index.make_entry(**second)))
  with pytest.raises(checkpoints.DamagedCheckpointError, match="x: a is dam"):
    read(tmp_path, [*rows, (b"a", WHOLE)])


def test_a_variable_without_its_parts_is_damaged(tmp_path):
  with pytest.raises(
    checkpoints.DamagedCheckpointError, match="x: a is damaged: its parts are"
  ):
    read(tmp_path, [(b"a", WHOLE)])


@pytest.mark.parametrize("second", [None, [(0, 2)], [(1, 2)], [(-2, 2)], []])
def test_parts_tile_a_variable_exactly(tmp_path, second):
  slices = [[(0, 2)]] + ([] if second is None else [second])
  whole = tiny_index.make_entry([4], size=0, slices=slices)
  part = tiny_index.make_entry()
  with pytest.raises(checkpoints.DamagedCheckpointError, match="x: a is dam"):
    read(tmp_path, [(FIRST, part), (SECOND, part), (b"a", whole)])


@pytest.mark.parametrize(
  ("name", "entry", "message"),
  [
    (b"a", {"shape": [-1]}, "'a' has 8 bytes, dtype 1 and shape (-1,)"),
    (b"a", {"shape": [-1, -2]}, "'a' has 8 bytes, dtype 1 and shape (-1, -2)"),
    (b"a", {"shape": [1 << 40, 1 << 40]}, "'a' has 8 bytes, dtype 1 and shape"),
    (b"a", {"shape": [3]}, "'a' has 8 bytes, dtype 1 and shape (3,)"),
    (b"a", {"dtype": 0}, "the index is damaged: "),
    (b"a", {"dtype": 99}, "the index is damaged: "),
    (b"a", {"dtype": -1}, "the index is damaged: "),
    (b"a", {"dtype": 13}, "'a' has 8 bytes, dtype 13 and shape (2,)"),
    (b"a", {"dtype": 101}, "'a' has 8 bytes, dtype 101 and shape (2,)"),
    (b"a", {"offset": -1}, "'a' has 8 bytes, dtype 1 and shape (2,)"),
    (b"a\n", {}, r"'a\n' has 8 bytes, dtype 1 and shape (2,)"),
    (b"\xff", {}, "'utf-8' codec can't decode"),
    (b"a" * 4097, {}, "an entry of the index is damaged"),
  ],
)
def test_refuses_an_entry(tmp_path, name, entry, message):
  with pytest.raises(checkpoints.DamagedCheckpointError) as caught:
    read(tmp_path, [(name, tiny_index.make_entry(**entry))])
  assert f"/x: not a readable checkpoint: {message}" in str(caught.value)


@pytest.mark.parametrize(
  ("entry", "message"),
  [
    ({"offset": 1}, "the data is cut short"),
    ({"shape": [1 << 60], "size": 1 << 62}, "the data is cut short"),
    ({"shape": [2] + [1] * 300}, "maximum supported dimension"),
    ({"dtype": 7, "shape": [1 << 40]}, "a number is cut short"),
    ({"dtype": 7, "shape": [1]}, "its strings are damaged"),
    ({"dtype": 3, "shape": [1], "size": 4}, "a checksum is wrong"),
    ({"dtype": 20, "shape": [2], "size": 0}, "a checksum is wrong"),
    ({"shard": -1}, "x.data--0001-of-00001: copy it there, too"),
  ],
)
def test_refuses_data(tmp_path, entry, message):
  with pytest.raises(checkpoints.DamagedCheckpointError) as caught:
    read(tmp_path, [(b"a", tiny_index.make_entry(**entry))])
  assert "/x: a is damaged: " in str(caught.value)
  assert message in str(caught.value)
