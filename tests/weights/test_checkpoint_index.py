"""Indices that TensorFlow's reader would end the process at."""

import pytest
import tensorflow as tf

import tiny_index
from weights import checkpoints

HEADER = tiny_index.make_header()
ENTRIES = [(b"", HEADER), (b"a", tiny_index.make_entry([2]))]
BLOCK = tiny_index.make_block(ENTRIES)
TABLE = tiny_index.make_table(BLOCK)


def read(folder, index, data=tiny_index.DATA):
  (folder / "x.index").write_bytes(index)
  if data is not None:
    (folder / "x.data-00000-of-00001").write_bytes(data)
  return dict(checkpoints.read(str(folder / "x")))


def test_a_table_written_out_by_hand(tmp_path):
  entries = [
    (b"", HEADER),
    (b"a", tiny_index.make_entry([2])),
    (b"b", tiny_index.make_entry([1, 2])),
  ]
  found = read(
    tmp_path,
    tiny_index.make_table(tiny_index.make_block(entries)),
  )
  assert {name: value.tolist() for name, value in found.items()} == {
    "a": [1, 2],
    "b": [[1, 2]],
  }


@pytest.mark.parametrize(
  ("entry", "message"),
  [
    (tiny_index.make_entry([-1]), "'a' has the shape [-1]"),
    (
      tiny_index.make_entry([1 << 40, 1 << 40]),
      "'a' has the shape [1099511627776, 10995",
    ),
    (tiny_index.make_entry([0] * 33), "'a' has the shape [0, 0, "),
    (
      tiny_index.make_entry([2], dtype=0),
      "'a' has shape [2] and dtype 0",
    ),
    (
      tiny_index.make_entry([2], dtype=20),
      "'a' has shape [2] and dtype 20",
    ),
    (
      tiny_index.make_entry([2], dtype=101),
      "'a' has shape [2] and dtype 101",
    ),
    (
      tiny_index.make_entry([1 << 28], dtype=7),
      "'a' has shape [268435456] and dtype 7",
    ),
    (
      tiny_index.make_entry([9], dtype=7),
      "'a' needs 9 bytes, there are 8 of data",
    ),
    (
      tiny_index.make_entry([1 << 31]),
      "'a' needs 8,589,934,592 bytes, there are 8 of data",
    ),
    (
      tiny_index.make_entry([4], slices=[[(0, -4)]]),
      "'a' of shape [4] has a wrong part [(0, -4)]",
    ),
    (
      tiny_index.make_entry([4], slices=[[(3, 2)]]),
      "'a' of shape [4] has a wrong part [(3, 2)]",
    ),
    (
      tiny_index.make_entry([4, 4], slices=[[(0, 4)]]),
      "'a' of shape [4, 4] has a wrong part [(0, 4)]",
    ),
    (
      tiny_index.make_entry([4], slices=[[(1, 2)], [(1, 2)]]),
      "'a' of shape [4] has a wrong part [(1, 2)]",
    ),
    (b"\xff\xff", "the index has a damaged entry: 'a'"),
  ],
)
def test_refuses_an_entry(tmp_path, entry, message):
  index = tiny_index.make_table(
    tiny_index.make_block([(b"", HEADER), (b"a", entry)])
  )
  with pytest.raises(checkpoints.DamagedCheckpointError) as caught:
    read(tmp_path, index)
  assert f"/x: not a readable checkpoint: {message}" in str(caught.value)


@pytest.mark.parametrize(
  ("index", "message"),
  [
    # So large a block that there is no memory for it.
    (
      TABLE[:-45] + b"\xff" * 6 + b"\1" + TABLE[-38:],
      "the index has 69 bytes of blocks, one is at 50 to 8,796,093,022,262",
    ),
    (
      tiny_index.make_table(BLOCK, b"\0" + b"\xff" * 7 + b"\1"),
      "the index has 76 bytes of blocks, one is at 0",
    ),
    (
      tiny_index.make_table(BLOCK, b"\xff"),
      "the index is damaged: a number that does no",
    ),
    (TABLE[:-1], "the index is cut short, or no index"),
    (b"", "the index is cut short, or no index"),
    (
      tiny_index.make_table(b"\0" * 8),
      "the index is damaged: a block without its rest",
    ),
    (tiny_index.make_table(b"\0\1\1" + BLOCK), "the index is damaged: "),
    (
      tiny_index.make_table(tiny_index.make_block(ENTRIES, [7])),
      "the index is damaged: restarts be",
    ),
    (
      tiny_index.make_table(b"\0\1\77a" + BLOCK[-8:]),
      "the index is damaged: an entry be",
    ),
    (
      tiny_index.make_table(tiny_index.make_block(ENTRIES[1:])),
      "the index is damaged: entries out",
    ),
    (
      tiny_index.make_table(tiny_index.make_block(ENTRIES * 2)),
      "the index is damaged: entries out",
    ),
    (
      tiny_index.make_table(tiny_index.make_block([])),
      "the index is damaged: entries out of order",
    ),
  ],
)
def test_refuses_a_table(tmp_path, index, message):
  with pytest.raises(checkpoints.DamagedCheckpointError) as caught:
    read(tmp_path, index)
  assert f"/x: not a readable checkpoint: {message}" in str(caught.value)


def test_a_compressed_block_is_refused(tmp_path):
  index = bytearray(TABLE)
  index[len(BLOCK)] = 1
  with pytest.raises(ValueError, match="the index is compressed"):
    read(tmp_path, bytes(index))


def test_names_and_shapes_need_no_data(tmp_path):
  (tmp_path / "x.index").write_bytes(TABLE)
  prefix = str(tmp_path / "x")
  assert checkpoints.read_shapes(prefix) == {"a": (2,)}
  with pytest.raises(ValueError, match="a is damaged: .* No such file"):
    dict(checkpoints.read(prefix))


def test_a_missing_shard_is_named(tmp_path):
  entries = [*ENTRIES, (b"b", tiny_index.make_entry([2], shard=1))]
  with pytest.raises(ValueError, match=r"x.data-00001-of-00001 is missing"):
    read(
      tmp_path,
      tiny_index.make_table(tiny_index.make_block(entries)),
    )


def write_parts(prefix, length, bounds):
  """Writes int8 zeros and ones, in parts, as TensorFlow does."""
  bounds = [0, *bounds, length]
  parts = list(zip(bounds, bounds[1:], strict=False))
  tf.raw_ops.SaveV2(
    prefix=prefix,
    tensor_names=["a"] * len(parts),
    shape_and_slices=[f"{length} {a},{b - a}" for a, b in parts],
    tensors=[tf.cast(tf.range(a, b) % 2, tf.int8) for a, b in parts],
  )


# Numbers of one byte in a key are below 64, of two below 8192, and so on.
@pytest.mark.parametrize(
  ("length", "bounds"),
  [(4, [1, 3]), (300, [63, 127]), (20_000, [64, 8_255]), (2_000_000, [9_000])],
)
def test_parts_are_found_by_their_keys(tmp_path, length, bounds):
  prefix = str(tmp_path / "x")
  write_parts(prefix, length, bounds)
  found = dict(checkpoints.read(prefix))["a"]
  assert found.tolist() == [index % 2 for index in range(length)]


@pytest.mark.parametrize("wrong", [{"dtype": 3}, {"shape": [1]}, {"shape": []}])
def test_a_part_has_the_dtype_and_the_shape_of_its_place(tmp_path, wrong):
  whole = tiny_index.make_entry([4], size=0, slices=[[(0, 2)], [(2, 2)]])
  first = tiny_index.make_entry()
  rows = [
    (b"", HEADER),
    (b"\0a\0\1\1\1\x80\x82", first),
    (b"\0a\0\1\1\1\x82\x82", tiny_index.make_entry(offset=8)),
    (b"a", whole),
  ]
  data = tiny_index.DATA * 2
  index = tiny_index.make_table(tiny_index.make_block(rows))
  assert read(tmp_path, index, data)["a"].tolist() == [1, 2, 1, 2]
  rows[2] = (rows[2][0], tiny_index.make_entry(**wrong))
  index = tiny_index.make_table(tiny_index.make_block(rows))
  with pytest.raises(ValueError, match=r"'a' of shape \[4\] has a wrong part"):
    read(tmp_path, index, data)
