"""The workers of --distribution=multi_worker, as --cluster names them.

TensorFlow's own resolvers read what a scheduler has set. This file checks what
they find, because workers that cannot meet wait for each other without end. And
it asks the resolver of Slurm for addresses alone; `_read_slurm` says why.
"""

from collections.abc import Iterator, Mapping, Sequence
import contextlib
import os
import re

from bert.data import messages

# The choices of --cluster, and the variables that each of them reads.
VARIABLES = {
  "tf_config": ("TF_CONFIG",),
  "slurm": (
    "SLURM_JOB_ID",
    "SLURM_STEP_NUM_TASKS",
    "SLURM_STEP_NODELIST",
    "SLURM_STEP_TASKS_PER_NODE",
    "SLURM_PROCID",
    "SLURMD_NODENAME",
    "SLURM_LOCALID",
  ),
}
# What to do if the variables are not right.
_CURES = {
  "tf_config": 'expected {"cluster": {"worker": ["host0:2222", "host1:2222"]}, '
  '"task": {"type": "worker", "index": 0}}',
  "slurm": "start the program with srun",
}
_DEFAULT = "tf_config"
# What the resolvers raise: they take for granted that the values are right.
_MALFORMED = (
  AssertionError,
  AttributeError,
  LookupError,
  RuntimeError,
  TypeError,
  ValueError,
)


def check(cluster: str | None) -> None:
  """Raises a ValueError if a variable of the scheduler is not set.

  Each worker would otherwise train alone, and write the files of all.

  Args:
    cluster: one of VARIABLES; None stands for tf_config.
  """
  cluster = cluster or _DEFAULT
  for name in VARIABLES[cluster]:
    if not os.environ.get(name):
      raise ValueError(
        f"--distribution=multi_worker: {name} is not set: {_CURES[cluster]}"
      )


def make_strategy(cluster: str | None):
  """Makes the strategy of several workers, before any tensor is made.

  Args:
    cluster: one of VARIABLES; None stands for tf_config.

  Returns:
    A `tf.distribute.MultiWorkerMirroredStrategy`. Its worker listens, and has
    met the others.

  Raises:
    ValueError: the variables are malformed, or name no cluster of which this
      process is a worker.
  """
  import tensorflow as tf

  cluster = cluster or _DEFAULT
  with _naming(cluster, _MALFORMED):
    if cluster == "slurm":
      resolver = _read_slurm(tf)
    else:
      resolver = tf.distribute.cluster_resolver.TFConfigClusterResolver()
    job, index = resolver.task_type, resolver.task_id
    jobs = resolver.cluster_spec().as_dict()
    _check_jobs(jobs, job, index)
    # TensorFlow's packages have no other, and end in a traceback.
    if (layer := resolver.rpc_layer or "grpc") != "grpc":
      raise ValueError(f'rpc_layer is {layer!r}: expected "grpc", or none')

  # One that never starts, or a wrong name, leaves this worker waiting: the line
  # says for whom.
  own = jobs[job][index]
  if others := [a for tasks in jobs.values() for a in tasks if a != own]:
    print(f"{own}: waiting for {messages.list_names(others)}", flush=True)

  try:
    with _naming(cluster, (ValueError,)):  # Such as two chiefs.
      return tf.distribute.MultiWorkerMirroredStrategy(resolver)
  except tf.errors.UnknownError as error:
    raise ValueError(
      f"this worker cannot listen at {own}: {error.message}: is "
      "the port in use?"
    ) from None


@contextlib.contextmanager
def _naming(
  cluster: str, errors: tuple[type[Exception], ...]
) -> Iterator[None]:
  """Names the variables in an error that they cause."""
  try:
    yield
  except errors as error:
    values = ", ".join(
      f"{name}={os.environ.get(name)}" for name in VARIABLES[cluster]
    )
    raise ValueError(f"{values}: {error}: {_CURES[cluster]}") from None


def _check_jobs(
  jobs: Mapping[str, Sequence[str]], job: str | None, index: int | None
) -> None:
  """Raises a ValueError if not all workers of a cluster could meet."""
  others = sorted(jobs.keys() - {"chief", "worker"})
  if others or not jobs:
    found = ", ".join(others) or "none"
    raise ValueError(f"not a cluster of workers: found {found}")

  # Names of hosts have no capitals of their own.
  addresses = [str(a).lower() for tasks in jobs.values() for a in tasks]
  for address in addresses:
    if not _is_address(address):
      raise ValueError(f"{address}: not an address with a port")
    if addresses.count(address) > 1:
      raise ValueError(f"{address} is named twice")

  if index is None or not 0 <= index < len(jobs.get(job or "", ())):
    raise ValueError(f"no such worker: type {job}, index {index}")


def _is_address(text: str) -> bool:
  """Returns whether a text is a host, or an IPv6 address in [], and a port."""
  found = re.fullmatch(r"(?:[^\s/:\[\]]+|\[[0-9a-f:.%]+\]):([0-9]{1,5})", text)
  return bool(found) and 0 < int(found[1]) < 2**16


def _read_slurm(tf):
  """Returns a resolver for the tasks of a Slurm step."""
  # Jobs that share a node must not share ports. From 32,768 on, Linux gives
  # ports to any program that asks for one.
  port = 12_000 + 16 * (int(os.environ["SLURM_JOB_ID"]) % 1000)

  # TensorFlow's resolver shares out the GPUs of a node, and fails where there
  # are none. But Slurm has done so: a task uses the GPUs that it sees. With so
  # many imaginary ones, a node may have any number of tasks.
  slurm = tf.distribute.cluster_resolver.SlurmClusterResolver(
    port_base=port, gpus_per_node=2**16, gpus_per_task=1, auto_set_gpu=False
  )
  spec = slurm.cluster_spec()

  # It sorts nodes by name, node10 before node9, but counts tasks in the order
  # of Slurm. So a task does not trust its number; it looks for its own address.
  node, number = os.environ["SLURMD_NODENAME"], os.environ["SLURM_LOCALID"]
  own = f"{node}:{port + int(number)}"
  addresses = spec.job_tasks("worker")
  if own not in addresses:
    raise ValueError(f"{own} is not among {', '.join(addresses)}")

  gpus = tf.config.list_physical_devices("GPU")
  return tf.distribute.cluster_resolver.SimpleClusterResolver(
    spec,
    task_type="worker",
    task_id=addresses.index(own),
    num_accelerators={"GPU": len(gpus)},
    rpc_layer="grpc",
  )
