"""What computes: said at the start, the same bits on a GPU, a GPU unused."""

import os
import shutil

from absl import flags
import pytest
import tensorflow as tf

from cli import devices
import program_flags


class Main:
  """A program that makes a strategy."""

  @staticmethod
  def main():
    devices.make_strategy(devices.DeviceSettings.read())


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


def test_a_damaged_description_of_workers_is_named(monkeypatch):
  monkeypatch.setenv("TF_CONFIG", "{worker")
  with pytest.raises(ValueError, match="TF_CONFIG={worker: Expecting prop"):
    run(distribution="multi_worker")


def pretend_gpus(monkeypatch, count):
  list_devices = tf.config.list_logical_devices

  def list_with_gpus(kind):
    gpus = [
      tf.config.LogicalDevice(f"/device:GPU:{i}", "GPU") for i in range(count)
    ]
    return gpus if kind == "GPU" else list_devices(kind)

  monkeypatch.setattr(tf.config, "list_logical_devices", list_with_gpus)


def test_a_cpu_is_named(asked, capsys):
  run(precision="bfloat16")
  assert capsys.readouterr().out == "computing on one CPU: bfloat16\n"
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
