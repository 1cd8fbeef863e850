"""What computes: said at the start, the same bits on a GPU, a GPU unused."""

import glob
import os
import shutil

from absl import flags
import pytest
import tensorflow as tf

from bert.cli import devices
from bert.data import processor
import paths
import program_flags
import replicas


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
  ("found", "visible", "warning"),
  [
    (None, None, ""),
    (None, "", ""),
    (None, "0", "CUDA_VISIBLE_DEVICES=0, but this machine has no NVIDIA GPU"),
    ("/bin/x", None, "finds no CUDA libraries for it, and computes on the CPU"),
    (
      "/bin/x",
      "9",
      "for it, or there is no GPU of CUDA_VISIBLE_DEVICES=9, and",
    ),
    ("/bin/x", "-1", ""),
  ],
)
def test_a_gpu_that_is_not_there_or_of_no_use_is_a_warning(
  found, visible, warning, asked, monkeypatch, capsys
):
  monkeypatch.setattr(shutil, "which", lambda name: found)
  monkeypatch.setattr(glob, "glob", lambda pattern: [])
  monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
  if visible is not None:
    monkeypatch.setitem(os.environ, "CUDA_VISIBLE_DEVICES", visible)
  run()
  errors = capsys.readouterr().err
  assert warning in errors
  assert len(errors.splitlines()) == bool(warning)
  assert "deterministic" not in flags.FLAGS


def test_the_page_names_the_cuda_of_this_tensorflow():
  build = tf.sysconfig.get_build_info()
  if not build.get("is_cuda_build"):
    pytest.skip("this TensorFlow is not for NVIDIA GPUs")
  page = (paths.ROOT / "docs" / "clusters.md").read_text(encoding="utf-8")
  text = " ".join(page.split())
  major, minor, *_ = build["cuda_version"].split(".")
  assert f"CUDA {major}.{minor} and cuDNN {build['cudnn_version']}" in text

  # Machine code is for one kind of GPU; PTX is for later ones, too.
  *codes, ptx = build["cuda_compute_capabilities"]
  codes = [f"{code[3:-1]}.{code[-1]}" for code in codes]
  assert f"{', '.join(codes[:-1])} and {codes[-1]}" in text
  assert ptx == "compute_90" and "PTX of 9.0" in text


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


def test_the_runs_of_a_process_share_one_strategy():
  strategies = [
    program_flags.read(
      devices.DeviceSettings,
      lambda settings_class: devices.make_strategy(settings_class.read()),
      distribution="mirrored",
    )
    for _ in range(2)
  ]
  assert strategies[0].num_replicas_in_sync == 2
  assert strategies[0] is strategies[1] is replicas.two_replicas()
