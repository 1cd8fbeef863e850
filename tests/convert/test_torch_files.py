"""pytorch_model.bin as PyTorch writes it, and as nobody should."""

import os
import pickle
import random
import zipfile

import numpy as np
import pytest

import any_model
from bert.convert import torch_files
import fuzzing

torch = pytest.importorskip("torch", reason="needs requirements/bench.txt")
transformers = pytest.importorskip("transformers")

SIZES = any_model.SIZES | {"type_vocab_size": 2}
# The variables of embeddings, two layers, pooler and the two heads.
COUNT = 5 + 16 * 2 + 2 + 5 + 2
# PyTorch's own two layouts.
LAYOUTS = {"zip": True, "older": False}
DTYPES = ("float32", "float16", "bfloat16", "float64", "int64", "uint8", "bool")
layouts = pytest.mark.parametrize("layout", LAYOUTS)


def save(path, values, layout="zip"):
  torch.save(values, path, _use_new_zipfile_serialization=LAYOUTS[layout])


def read_all(path):
  tensors = torch_files.open_file(str(path))
  return {
    name: np.asarray(tensor.load()).reshape(tensor.shape)
    for name, tensor in tensors.items()
  }


def refuses(path, message):
  with pytest.raises(ValueError) as caught:
    read_all(path)
  assert f"{path}: not readable: " in str(caught.value)
  assert message in str(caught.value)
  assert len(str(caught.value).splitlines()) == 1


@layouts
def test_numbers_of_every_type_are_those_of_torch(layout, tmp_path):
  torch.manual_seed(1)
  drawn = 10 * torch.randn(4, 6)
  values = {name: drawn.to(getattr(torch, name)) for name in DTYPES}
  values["part"] = drawn[1:3, ::2]
  values["transposed"] = drawn.T
  values["scalar"] = torch.tensor(7)
  values["empty"] = torch.zeros(0, 3)
  values["weight"] = torch.nn.Parameter(drawn)
  save(tmp_path / "w.bin", values, layout)
  found = read_all(tmp_path / "w.bin")
  assert list(found) == list(values)
  for name, value in values.items():
    value = value.detach()
    if name == "bfloat16":
      value = value.float()
    assert found[name].dtype == value.numpy().dtype
    np.testing.assert_array_equal(found[name], value.numpy(), name)


def write_model(folder, layout):
  """Writes a BertForPreTraining; returns its weights by PyTorch's names."""
  torch.manual_seed(2)
  config = transformers.BertConfig(**SIZES)
  model = transformers.BertForPreTraining(config)
  config.save_pretrained(folder)
  weights = model.state_dict()
  save(folder / "pytorch_model.bin", weights, layout)
  return weights


@layouts
def test_a_model_is_that_of_its_safetensors(layout, tmp_path):
  folder = tmp_path / "bin"
  weights = write_model(folder, layout)
  assert "cls.predictions.decoder.weight" in weights  # A tied one.
  safe = tmp_path / "safe"
  model = transformers.BertForPreTraining.from_pretrained(folder)
  model.save_pretrained(safe)
  found, expected = any_model.values(folder), any_model.values(safe)
  assert found.keys() == expected.keys()
  assert len(found) == COUNT
  for name, value in expected.items():
    assert np.array_equal(found[name], value), name
  # The same folder by its file.
  again = any_model.values(folder / "pytorch_model.bin")
  assert again.keys() == expected.keys()


def test_a_release_that_was_converted_in_its_folder_is_a_choice(tmp_path):
  write_model(tmp_path, "older")
  (tmp_path / "bert_model.ckpt.index").touch()
  with pytest.raises(ValueError, match="name one: .*ckpt.index or .*model.bin"):
    any_model.model_folder.open_model(str(tmp_path))


def test_shards_are_read_as_one(tmp_path):
  weights = write_model(tmp_path, "zip")
  (tmp_path / "pytorch_model.bin").unlink()
  names = sorted(weights)
  halves = {"1-of-2.bin": names[::2], "2-of-2.bin": names[1::2]}
  places = {}
  for name, half in halves.items():
    save(tmp_path / name, {x: weights[x].clone() for x in half})
    places |= dict.fromkeys(half, name)
  index = tmp_path / "pytorch_model.bin.index.json"
  index.write_text("{}")
  any_model.edit_json(index, weight_map=places)
  assert len(any_model.values(tmp_path)) == COUNT


def test_the_oldest_configs_are_read(tmp_path):
  """Of pytorch-pretrained-bert, with Google's name and without a model_type."""
  write_model(tmp_path, "older")
  any_model.edit_json(tmp_path / "config.json", model_type="drop")
  (tmp_path / "config.json").rename(tmp_path / "bert_config.json")
  model = any_model.model_folder.open_model(str(tmp_path))
  assert model.config.hidden_act == "gelu_erf"
  assert model.config.hidden_size == SIZES["hidden_size"]


# Pickles that do something else.


class Calls:
  """Is pickled as a call."""

  def __init__(self, function, *arguments):
    self.call = function, arguments

  def __reduce__(self):
    return self.call


def write_zip(path, pickled, entries=(), compression=zipfile.ZIP_STORED):
  with zipfile.ZipFile(path, "w", compression) as archive:
    archive.writestr("w/data.pkl", pickled)
    for name, content in dict(entries).items():
      archive.writestr(f"w/{name}", content)


def touch(path):
  return Calls(os.system, f"touch {path}")


@pytest.mark.parametrize(
  ("make", "message"),
  [
    (touch, "names 'posix.system', which weights do not need: it could run"),
    (lambda path: {"x": touch(path)}, "names 'posix.system'"),
    (
      lambda path: Calls(eval, f"open({str(path)!r}, 'w')"),
      "names '__builtin__.eval'",
    ),
    (lambda path: Calls(getattr, "", "strip"), "names '__builtin__.getattr'"),
    (lambda path: np.ones(3), "which weights do not need"),
    (lambda path: [1, 2], "holds no table of tensors"),
    (lambda path: {"x": 1}, "'x' is no tensor; expected a table of them"),
    (lambda path: {1: "x"}, "fills something else than a dict of names"),
    (lambda path: {"x": 1.5}, "its pickle does BINFLOAT"),
    (lambda path: {"x": 1 << 20000}, "its pickle does LONG4"),
  ],
)
@layouts
def test_nothing_is_called(make, message, layout, tmp_path):
  marker, path = tmp_path / "touched", tmp_path / "w.bin"
  pickled = pickle.dumps(make(marker), 2)
  if layout == "zip":
    write_zip(path, pickled)
  else:
    head = torch_files._MAGIC, 1001, {"little_endian": True}
    path.write_bytes(b"".join(pickle.dumps(x, 2) for x in head) + pickled)
  refuses(path, message)
  assert not marker.exists()


def tensor(shape, strides, offset=0, count=4, name="FloatStorage", key="0"):
  """Returns a pickle of a table with one tensor, by hand."""

  def put(x):
    return pickle.dumps(x, 2)[2:-1]  # Without PROTO and STOP.

  storage = b"(" + put("storage") + b"ctorch\n" + name.encode() + b"\n"
  storage += put(key) + put("cpu") + put(count) + b"tQ"
  arguments = b"(" + storage + put(offset) + put(shape) + put(strides)
  arguments += b"\x89ccollections\nOrderedDict\n)Rt"
  call = b"ctorch._utils\n_rebuild_tensor_v2\n" + arguments + b"R"
  return b"\x80\x02}" + put("x") + call + b"s."


@pytest.mark.parametrize(
  ("pickled", "message"),
  [
    (tensor((2, 3), (3, 1)), "larger than its storage"),
    (tensor((2, 2), (2, 1), offset=1), "larger than its storage"),
    (tensor((10**9,), (0,)), "larger than its storage"),
    (tensor((3, 2), (1, 1)), "larger than its storage"),
    (tensor((10**12,), (1,), count=10**12), "are larger than the file"),
    (tensor((2,), (1,), count=10**12), "the numbers of 'x' are cut off"),
    (tensor((1,), (1,), count=1 << 60), "'0' has an impossible size"),
    (tensor((-1,), (1,)), "a tensor of an impossible shape"),
    (tensor((2,), (-1,), offset=1), "a tensor of an impossible shape"),
    (tensor((True, 2), (2, 1)), "a tensor of an impossible shape"),
    (tensor(tuple([1] * 9), tuple([1] * 9)), "without storage and shape"),
    (tensor((2,), ()), "without storage and shape"),
    (tensor((2,), (1,), key="7"), "lacks 'w/data/7'"),
    (tensor((2,), (1,), name="FlatStorage"), "names 'torch.FlatStorage'"),
    (tensor((2,), (1,))[:-40], ""),
    (b"\x80\x02}" + b"X\xff\xff\xff\x7fa", ""),
    (b"\x80\x02" + b"}" * (1 << 20) + b".", "bytes, expected 1,048,576"),
    # Each tuple holds the one before it twice: compared or printed, forever.
    (b"\x80\x02)" + b"q\0h\0\x86" * 999 + b"}q\1h\0Nsh\1.", "a dict of names"),
    (b"\x80\x02)" + b"q\0h\0\x86" * 999 + b"Q.", "not readable"),
    (
      b"\x80\x02)" + b"q\0h\0\x86" * 999 + b")R.",
      "something else than tensors",
    ),
    (b"\x80\x02(" * 1000 + b".", ""),
    (b"\x80\x020.", "its pickle does POP"),
    (b"\x80\x02\x81.", "its pickle does NEWOBJ"),
    (b"", ""),
  ],
)
def test_impossible_tensors_are_refused(pickled, message, tmp_path):
  write_zip(tmp_path / "w.bin", pickled, {"data/0": bytes(16)})
  refuses(tmp_path / "w.bin", message)


def test_a_valid_pickle_by_hand_is_read(tmp_path):
  numbers = np.arange(4, dtype="f4")
  pickled = tensor((2, 2), (1, 2))
  write_zip(tmp_path / "w.bin", pickled, {"data/0": numbers.tobytes()})
  assert read_all(tmp_path / "w.bin")["x"].tolist() == [[0, 2], [1, 3]]
  # Python's own reader would make a list as long as the place says.
  write_zip(tmp_path / "w.bin", b"\x80\x02}r\xff\xff\xff\x7f.")
  assert read_all(tmp_path / "w.bin") == {}


def test_bad_archives_are_refused(tmp_path):
  path = tmp_path / "w.bin"
  pickled, numbers = tensor((2,), (1,)), {"data/0": bytes(16)}
  write_zip(path, pickled, {"data/0": bytes(10**7)}, zipfile.ZIP_DEFLATED)
  assert path.stat().st_size < 20_000
  refuses(path, "'w/data.pkl' is compressed; PyTorch compresses none")
  write_zip(path, pickled, numbers | {"byteorder": b"big"})
  refuses(path, "written by a processor with another order of bytes")
  write_zip(path, pickled, {f"data/{i:0100}": b"" for i in range(9000)})
  refuses(path, "Truncated central directory")
  with zipfile.ZipFile(path, "w") as archive:
    archive.writestr("else", b"")
  refuses(path, "lacks '/data.pkl'")


def test_tensors_that_share_numbers_too_often_are_refused(tmp_path):
  shared = torch.zeros(1000)
  save(tmp_path / "w.bin", {str(i): shared for i in range(99)})
  refuses(tmp_path / "w.bin", "its tensors are larger than the file")


def test_other_files_of_torch_are_named(tmp_path):
  write_model(tmp_path, "zip")
  (tmp_path / "pytorch_model.bin").rename(tmp_path / "model.pt")
  message = "model.pt may hold anything that PyTorch saves: if it holds the"
  for path in (tmp_path, tmp_path / "model.pt"):
    with pytest.raises(ValueError, match=message):
      any_model.model_folder.open_model(str(path))


@pytest.mark.fuzz
@layouts
def test_damaged_files_end_in_a_line(layout, tmp_path):
  """200 files a layout: numbers or one line, no process, bounded memory."""
  save(tmp_path / "valid", {"a": torch.ones(3, 2), "b": torch.zeros(5)}, layout)
  valid = (tmp_path / "valid").read_bytes()
  # Nearly all of an archive is padding: faults there say nothing.
  pickled = None
  if layout == "zip":
    with zipfile.ZipFile(tmp_path / "valid") as archive:
      pickled = archive.read("valid/data.pkl")
  source, refused = random.Random(layout), 0
  for number in range(200):
    path = tmp_path / f"{number}.bin"
    if pickled and number % 2:
      content = fuzzing.damaged(pickled, source)
      write_zip(path, content, {f"data/{i}": bytes(24) for i in range(2)})
    else:
      path.write_bytes(fuzzing.damaged(valid, source))
    refused += fuzzing.value_or_error_in_memory(read_all, path) is None
  assert 50 < refused < 200
