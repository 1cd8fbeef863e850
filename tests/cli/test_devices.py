"""What computes: said at the start, the same bits on a GPU, a GPU unused."""

import os
import shutil

from absl import flags
import pytest
import tensorflow as tf

from bert.cli import devices
from bert.data import processor
import program_flags


class Main:
  """A program that makes a strategy."""

  @staticmethod
  def main():
    settings = devices.choose_precision(devices.DeviceSettings.read())
    devices.make_strategy(settings)


def run(**values):
  program_flags.run_main(Main, devices.DeviceSettings, **values)


@pytest.fixture(name="asked")
def record_settings(monkeypatch):
  """Records what is asked of TensorFlow, in place of setting it."""
  asked = []
  for name in ("enable_op_determinism", "enable_tensor_float_32_execution"):
    monkeypatch.setattr(
      tf.config.experimental,
      name,
      lambda *values, name=name: asked.append((name, *values)),
    )
  return asked


def pretend_gpus(monkeypatch, count):
  list_devices = tf.config.list_logical_devices

  def list_with_gpus(kind):
    gpus = [
      tf.config.LogicalDevice(f"/device:GPU:{i}", "GPU") for i in range(count)
    ]
    return gpus if kind == "GPU" else list_devices(kind)

  monkeypatch.setattr(tf.config, "list_logical_devices", list_with_gpus)


def test_a_cpu_is_named(asked, capsys):
  run(precision="float32")
  assert capsys.readouterr().out == "computing on one CPU: float32\n"
  assert asked == [("enable_tensor_float_32_execution", False)]


@pytest.mark.parametrize(
  ("values", "line", "settings"),
  [
    ({}, "float32, no TF32, deterministic", [(False,), ()]),
    ({"tf32": True}, "float32, TF32, deterministic", [(True,), ()]),
    ({"deterministic": False}, "float32, no TF32, fast", [(False,)]),
    ({"precision": "bfloat16"}, "bfloat16, deterministic", [(False,), ()]),
  ],
)
def test_gpus_repeat_and_are_exact_by_default(
  values, line, settings, asked, monkeypatch, capsys
):
  pretend_gpus(monkeypatch, 2)
  run(**values)
  assert capsys.readouterr().out == f"computing on one GPU: {line}\n"
  assert [setting[1:] for setting in asked] == settings


@pytest.mark.parametrize(
  ("found", "hidden", "warns"),
  [(None, "", False), ("/bin/nvidia-smi", None, True), ("/bin/x", "-1", False)],
)
def test_a_gpu_without_its_libraries_is_a_warning(
  found, hidden, warns, asked, monkeypatch, capsys
):
  monkeypatch.setattr(shutil, "which", lambda name: found)
  monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
  if hidden is not None:
    monkeypatch.setitem(os.environ, "CUDA_VISIBLE_DEVICES", hidden)
  run()
  errors = capsys.readouterr().err
  assert ("finds no CUDA libraries" in errors) == warns
  assert "deterministic" not in flags.FLAGS


@pytest.mark.parametrize("has_products", [True, False])
def test_auto_takes_bfloat16_where_it_is_faster(
  has_products, asked, monkeypatch, capsys
):
  monkeypatch.setattr(processor, "multiplies_bfloat16", lambda: has_products)
  run(precision="auto")
  chosen = "bfloat16" if has_products else "float32"
  assert capsys.readouterr() == (f"computing on one CPU: {chosen}\n", "")
  run(precision="bfloat16")
  shown = capsys.readouterr()
  assert shown.out == "computing on one CPU: bfloat16\n"
  assert (
    shown.err == ""
    if has_products
    else (
      "note: --precision=bfloat16 is slower than float32 here, for the device "
      "has no products of bfloat16; --precision=auto chooses\n"
    )
  )


@pytest.mark.parametrize(
  ("capability", "chosen"), [((9, 0), "bfloat16"), ((7, 5), "float32")]
)
def test_auto_asks_the_gpu(capability, chosen, monkeypatch):
  gpus = [tf.config.PhysicalDevice("/physical_device:GPU:0", "GPU")]
  monkeypatch.setattr(tf.config, "list_physical_devices", lambda kind: gpus)
  details = {"compute_capability": capability}
  ask = "get_device_details"
  monkeypatch.setattr(tf.config.experimental, ask, lambda device: details)
  settings = devices.DeviceSettings(precision="auto")
  assert devices.choose_precision(settings).precision == chosen
  assert devices.choose_precision(settings).compute_dtype.endswith(chosen)


def test_auto_on_a_tpu():
  settings = devices.DeviceSettings(precision="auto", use_tpu=True)
  assert devices.choose_precision(settings).precision == "bfloat16"
