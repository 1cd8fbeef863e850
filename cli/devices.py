"""Where and in what precision to compute: the strategy of the flags."""

from absl import flags

from data import files

FLAGS = flags.FLAGS


def define_device_flags() -> None:
  """Declares where and in what precision to compute."""
  flags.DEFINE_enum(
    "distribution",
    "default",
    ["default", "mirrored", "multi_worker", "tpu"],
    "default: one device. mirrored: all devices of this host. multi_worker: "
    "all hosts of TF_CONFIG. tpu: the TPU that --tpu_name names.",
  )
  flags.DEFINE_enum(
    "precision",
    "float32",
    ["float32", "bfloat16"],
    "What matrix products compute in; weights, softmax, normalisation and "
    "losses are float32 in both.",
  )
  flags.DEFINE_bool("use_tpu", False, "Same as --distribution=tpu.")
  flags.DEFINE_string(
    "tpu_name",
    None,
    "The name or grpc:// address of the TPU; local for that of this machine.",
  )
  flags.DEFINE_string("tpu_zone", None, "The zone of the TPU.")
  flags.DEFINE_string("gcp_project", None, "The project of the TPU.")
  flags.DEFINE_string(
    "master",
    None,
    "The grpc:// address of the TPU, if --tpu_name is not given.",
  )
  flags.DEFINE_integer(
    "num_tpu_cores", 8, "Accepted and not used: a TPU tells its cores."
  )
  flags.DEFINE_integer(
    "iterations_per_loop",
    1000,
    "The most steps per call of the compiled loop; calls also end every few "
    "seconds, and where a checkpoint is due.",
    lower_bound=1,
  )


def uses_tpu() -> bool:
  """Tells whether a TPU is asked for."""
  return FLAGS.use_tpu or FLAGS.distribution == "tpu"


def uses_tpu_elsewhere() -> bool:
  """Tells whether the TPU asked for is that of another machine."""
  return uses_tpu() and (FLAGS.tpu_name or FLAGS.master) != "local"


def check_tpu_paths(*names: str) -> None:
  """Refuses paths of this machine if a TPU elsewhere is to open them.

  Args:
    *names: of flags with files that a training reads in TensorFlow; those of
      checkpoints are checked, too.

  Raises:
    ValueError: naming the first such flag.
  """
  if not uses_tpu_elsewhere():
    return
  for name in ("output_dir", "init_checkpoint", *names):
    value = (FLAGS[name].value if name in FLAGS else None) or ""
    for path in filter(None, value.split(",") if name in names else [value]):
      if not files.is_remote(path):
        raise ValueError(
          f"--{name}={path}: the TPU cannot open a local path: use gs://..., "
          "or run on the TPU's own machine with --tpu_name=local"
        )


def make_strategy():
  """Makes the distribution strategy of the flags; call it before any tensor.

  Raises:
    ValueError: if the TPU cannot be found.
  """
  import tensorflow as tf

  tf.get_logger().setLevel("ERROR")  # Strategies tell their every move.
  distribution = "tpu" if uses_tpu() else FLAGS.distribution
  if distribution == "mirrored":
    kinds = [tf.config.list_logical_devices(kind) for kind in ("GPU", "CPU")]
    devices = kinds[0] or kinds[1]
    return tf.distribute.MirroredStrategy([device.name for device in devices])
  if distribution == "multi_worker":
    return tf.distribute.MultiWorkerMirroredStrategy()
  if distribution == "tpu":
    try:
      resolver = tf.distribute.cluster_resolver.TPUClusterResolver(
        FLAGS.tpu_name or FLAGS.master, FLAGS.tpu_zone, FLAGS.gcp_project
      )
      tf.config.experimental_connect_to_cluster(resolver)
      tf.tpu.experimental.initialize_tpu_system(resolver)
    except (tf.errors.OpError, ValueError, OSError) as error:
      raise ValueError(f"--distribution=tpu: no TPU found: {error}") from error
    return tf.distribute.TPUStrategy(resolver)
  return tf.distribute.get_strategy()


def compute_dtype() -> str:
  """Returns the Keras dtype policy of --precision."""
  return "mixed_bfloat16" if FLAGS.precision == "bfloat16" else "float32"
