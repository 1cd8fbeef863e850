"""Devices, precision and the distribution strategy that the flags choose."""

import dataclasses
import functools
import glob
import os
import shutil
from typing import Any, TypeVar

from bert.cli import clusters, typed_flags
from bert.data import processor, progress

# Flags that may differ between workers, besides files and folders.
_HOST_FLAGS = {"num_processes", "model", "init_checkpoint", "teacher"}
# For `needs`: flags that only say something about a TPU.
_TPU = ("use_tpu=true", "distribution=tpu")
_devices = typed_flags.group("Devices")
_Settings = TypeVar("_Settings", bound="DeviceSettings")


@dataclasses.dataclass(frozen=True, kw_only=True)
class DeviceSettings(typed_flags.Settings):
  """The settings of devices and precision."""

  # The devices, and how numbers are computed on them.
  distribution: str = _devices(
    "default",
    "default: one device. mirrored: all devices of this machine. multi_worker: "
    "all machines that --cluster names. tpu: the TPU of this machine.",
    choices=("default", "mirrored", "multi_worker", "tpu"),
  )
  cluster: str | None = _devices(
    None,
    "Who names the machines of --distribution=multi_worker. tf_config: the "
    "variable TF_CONFIG, which is the default. slurm: srun.",
    choices=tuple(clusters.VARIABLES),
    needs="distribution=multi_worker",
  )
  precision: str = _devices(
    "float32",
    "The type in which matrices are multiplied; everything else is float32. "
    "auto: bfloat16 if the device is made for it (AVX512_BF16, AMX, GPUs since "
    "2020, TPUs), else float32. A training that resumes keeps its own.",
    choices=("float32", "bfloat16", "auto"),
    decides=("training",),
  )
  deterministic: bool = _devices(
    True,
    "On GPUs: whether every run gives the same bits, as it does on CPUs. "
    "Slower.",
  )
  tf32: bool = _devices(
    False,
    "On GPUs: whether float32 products may round their inputs to "
    "TensorFloat-32. Faster, with errors of 1e-3 instead of 1e-6.",
  )

  # The original's flags of TPUs. Its command lines work on a TPU's own machine;
  # those that meant another machine's TPU end with the reason.
  use_tpu: bool = _devices(False, "The same as --distribution=tpu.")
  tpu_name: str | None = _devices(
    None,
    "local, or not given: the TPU of this machine. Other values are refused, "
    "for TPUs of another machine ended in April 2025.",
    needs=_TPU,
  )
  tpu_zone: str | None = _devices(
    None, "Refused: it said where a TPU of another machine is.", needs=_TPU
  )
  gcp_project: str | None = _devices(
    None, "Refused: it said whose a TPU of another machine is.", needs=_TPU
  )
  master: str | None = _devices(
    None,
    "Refused, but for local: the address of a TPU of another machine.",
    needs=_TPU,
  )
  num_tpu_cores: int = _devices(
    8, "Ignored: the program asks the TPU how many cores it has."
  )

  def check(self) -> None:
    """Refuses TPUs of another machine, too, and workers without a cluster."""
    if self.distribution == "multi_worker":
      clusters.check(self.cluster)
    for name in ("tpu_name", "tpu_zone", "gcp_project", "master"):
      value = getattr(self, name)
      if uses_tpu(self) and value not in (None, "", "local"):
        raise ValueError(
          f"--{name}={value}: TPUs of another machine ended in April 2025: run "
          "on the TPU's own machine (a TPU VM), with --tpu_name=local alone"
        )
    super().check()

  @property
  def compute_dtype(self) -> str:
    """The Keras dtype policy of --precision, which `choose_precision` chose."""
    assert self.precision != "auto"
    return "mixed_bfloat16" if self.precision == "bfloat16" else "float32"

  @property
  def packs_weights(self) -> bool:
    """Whether the process only predicts, with products that gain from it."""
    # oneDNN keeps packed copies of the weights, which a training would make
    # wrong; with float32 products they gain nothing. See imports.py.
    is_plain = self.distribution == "default" and not uses_tpu(self)
    trains = getattr(self, "do_train", False)
    gains = self.precision != "float32" and processor.multiplies_bfloat16()
    return is_plain and gains and not trains

  def flags_of_workers(self) -> dict[str, Any]:
    """Returns the flags that must be equal on all workers: all but paths."""
    return {
      f"--{name}": value
      for name, value in self.flag_values().items()
      if name not in _HOST_FLAGS and not name.endswith(("_dir", "_file"))
    }


def choose_precision(settings: _Settings) -> _Settings:
  """Replaces --precision=auto; call it before the strategy is made.

  A training that resumes on another machine keeps the precision that its
  folder records, for its updates would change in the middle.
  """
  if settings.precision != "auto":
    return settings

  precision = "bfloat16" if _multiplies_bfloat16(settings) else "float32"
  if getattr(settings, "do_train", False):
    from bert.training import same_run

    # Any seed's folder will do: all of them were trained by one command.
    for folder in getattr(settings, "run_dirs", ()):
      if recorded := same_run.read_precision(folder):
        precision, path = recorded
        progress.note(f"--precision={precision}, as {path} says")
        break
  return dataclasses.replace(settings, precision=precision)


def _multiplies_bfloat16(settings) -> bool:
  """Returns whether the device has products of bfloat16."""
  import tensorflow as tf

  # All TPUs have them. Without a GPU the processor counts.
  gpus = tf.config.list_physical_devices("GPU")
  if uses_tpu(settings) or not gpus:
    return uses_tpu(settings) or processor.multiplies_bfloat16()

  # NVIDIA's cards have them since compute capability 8.0 (Ampere, 2020).
  details = tf.config.experimental.get_device_details(gpus[0])
  return details.get("compute_capability", (0, 0)) >= (8, 0)


def uses_tpu(settings: DeviceSettings) -> bool:
  """Returns whether the flags ask for a TPU."""
  return settings.use_tpu or settings.distribution == "tpu"


def uses_fixed_shapes(settings: Any) -> bool:
  """Returns whether all batches of a program with texts must have one shape."""
  return settings.pads_fully or uses_tpu(settings)


def make_strategy(settings: DeviceSettings, says_so: bool = True):
  """Makes the distribution strategy of a program, before any tensor is made.

  `says_so` prints a line about the devices, which a program does not want whose
  standard output is its result.
  """
  import tensorflow as tf

  tf.get_logger().setLevel("ERROR")  # Strategies log every step.

  if settings.precision == "bfloat16" and not _multiplies_bfloat16(settings):
    progress.note(
      "note: --precision=bfloat16 is slower than float32 here, for the device "
      "has no products of bfloat16; --precision=auto chooses"
    )

  # The strategy first: several workers must connect before TensorFlow's devices
  # are used, or it fails with "Collective ops must be configured at startup".
  strategy = _make_strategy(tf, settings)
  # Programs that train have it. They have not read their data yet.
  if check_split := getattr(settings, "check_split", None):
    check_split(strategy.num_replicas_in_sync)

  tf.config.experimental.enable_tensor_float_32_execution(settings.tf32)
  if tf.config.list_logical_devices("GPU"):
    if settings.deterministic:
      tf.config.experimental.enable_op_determinism()
  elif not uses_tpu(settings):
    _warn_of_unused_gpu()
  if says_so:
    print(describe(settings))
  return strategy


def _make_strategy(tf, settings):
  """Makes the strategy of --distribution."""
  distribution = "tpu" if uses_tpu(settings) else settings.distribution
  if distribution == "mirrored":
    # All GPUs; without one, all CPUs, which tests make several of.
    gpus = tf.config.list_logical_devices("GPU")
    devices = gpus or tf.config.list_logical_devices("CPU")
    return mirror(*(device.name for device in devices))

  if distribution == "multi_worker":
    return clusters.make_strategy(settings.cluster)

  if distribution == "tpu":
    try:
      resolver = tf.distribute.cluster_resolver.TPUClusterResolver("local")
      tf.tpu.experimental.initialize_tpu_system(resolver)
    except (tf.errors.OpError, ValueError, OSError) as error:
      raise ValueError(f"--distribution=tpu: no TPU found: {error}") from error
    return tf.distribute.TPUStrategy(resolver)

  # One device: TensorFlow's default strategy.
  return tf.distribute.get_strategy()


@functools.cache
def mirror(*names: str):
  """Makes the strategy of some devices of this machine, once in a process.

  Every strategy numbers its all-reduces from the start again, and TensorFlow,
  which keeps their shapes as long as the process lives, now and then holds
  those of an earlier run against a later one: "Shape mismatch in the collective
  instance". So the runs that Python calls one after the other share one.
  """
  import tensorflow as tf

  return tf.distribute.MirroredStrategy(list(names))


def _warn_of_unused_gpu() -> None:
  """Warns of a GPU that is not there, or that TensorFlow cannot use."""
  visible = os.environ.get("CUDA_VISIBLE_DEVICES")
  if visible in ("", "-1"):  # It hides all GPUs.
    return

  asked = f"CUDA_VISIBLE_DEVICES={visible}"
  if glob.glob("/dev/nvidia[0-9]*") or shutil.which("nvidia-smi"):
    cause = f", or there is no GPU of {asked}" if visible else ""
    progress.note(
      "warning: this machine has an NVIDIA GPU, but TensorFlow finds no CUDA "
      f"libraries for it{cause}, and computes on the CPU: pip install "
      "'tensorflow[and-cuda]', or set CUDA_VISIBLE_DEVICES=-1 to hide the GPU"
    )
  elif visible:
    progress.note(
      f"warning: {asked}, but this machine has no NVIDIA GPU: TensorFlow "
      "computes on the CPU"
    )


def describe(settings: DeviceSettings) -> str:
  """Returns one line that names the devices and the precision."""
  import tensorflow as tf

  kinds = ("TPU", "GPU", "CPU") if uses_tpu(settings) else ("GPU", "CPU")
  devices = next(filter(None, map(tf.config.list_logical_devices, kinds)))
  kind = devices[0].device_type

  details = [settings.precision]
  if kind == "GPU":
    if settings.precision == "float32":
      details.append("TF32" if settings.tf32 else "no TF32")
    details.append("deterministic" if settings.deterministic else "fast")

  uses_one = settings.distribution == "default" and not uses_tpu(settings)
  used = 1 if uses_one else len(devices)
  name = f"{used} {kind}s" if used > 1 else f"one {kind}"
  return f"computing on {name}: {', '.join(details)}"
