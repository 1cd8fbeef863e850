"""What schedulers set in the environments of two workers, on this machine.

`ALL` has them by name: the flags of the programs, and a function that returns
the variables of each worker. Real ones name other hosts; where a name cannot be
an address of this machine, the address of a free port takes its place.
"""

import contextlib
import json
import os
import re
import socket
import subprocess

import yaml

import paths
import workers

_TF_CONFIG = ["--distribution=multi_worker"]


def blocks(language):
  """Returns the code blocks of docs/clusters.md in a language."""
  page = (paths.ROOT / "docs" / "clusters.md").read_text(encoding="utf-8")
  found = re.findall(r"^```(\w*)\n(.*?)^```$", page, re.DOTALL | re.MULTILINE)
  return [text for name, text in found if name == language]


def manifests():
  """Returns the objects of Kubernetes in docs/clusters.md."""
  return [m for block in blocks("yaml") for m in yaml.safe_load_all(block)]


def kubernetes_config(index):
  """Returns the TF_CONFIG that the shell of the Job makes in a pod."""
  jobs = [m for m in manifests() if m["kind"] == "Job"]
  (job,) = [j for j in jobs if j["metadata"]["name"] == "bert"]
  (container,) = job["spec"]["template"]["spec"]["containers"]

  # The last command of the shell is the program, instead of which it prints.
  program, option = container["command"]
  (script,) = container["args"]
  lines, _, _ = script.partition("exec python ")
  given = {entry["name"]: entry["value"] for entry in container["env"]}
  return subprocess.run(
    [program, option, f"{lines}printenv TF_CONFIG"],
    env={"PATH": os.environ["PATH"], "JOB_COMPLETION_INDEX": index, **given},
    check=True,
    capture_output=True,
    text=True,
  ).stdout


def kubernetes():
  configs = [kubernetes_config(str(index)) for index in range(2)]
  for index, address in enumerate(workers.free_addresses(2)):
    configs = [c.replace(f"bert-{index}.bert:2222", address) for c in configs]
  return [
    {"JOB_COMPLETION_INDEX": str(index), "TF_CONFIG": config}
    for index, config in enumerate(configs)
  ]


def sagemaker():
  """Does what sagemaker-tensorflow-training does on the hosts algo-1 and -2."""
  cluster = {"worker": workers.free_addresses(2)}
  return [
    {
      "SM_HOSTS": '["algo-1","algo-2"]',
      "SM_CURRENT_HOST": f"algo-{index + 1}",
      "TF_CONFIG": json.dumps(
        {
          "cluster": cluster,
          "environment": "cloud",
          "task": {"index": index, "type": "worker"},
        }
      ),
    }
    for index in range(2)
  ]


def slurm():
  """Sets what srun does for two tasks on one node; see its manual page."""
  job = str(_find_job())
  return [
    {
      "SLURM_JOB_ID": job,
      "SLURM_STEP_ID": "0",
      "SLURM_STEP_NUM_NODES": "1",
      "SLURM_STEP_NUM_TASKS": "2",
      "SLURM_STEP_NODELIST": "127.0.0.1",
      "SLURM_STEP_TASKS_PER_NODE": "2",
      "SLURM_NTASKS": "2",
      "SLURM_NODEID": "0",
      "SLURMD_NODENAME": "127.0.0.1",
      "SLURM_PROCID": str(index),
      "SLURM_LOCALID": str(index),
    }
    for index in range(2)
  ]


def _find_job():
  """Returns the number of a job whose ports are free: they follow from it."""
  for number in range(os.getpid() % 1000, 2000):
    with contextlib.suppress(OSError), contextlib.ExitStack() as stack:
      for task in range(2):
        address = ("127.0.0.1", 12_000 + 16 * (number % 1000) + task)
        stack.enter_context(socket.create_server(address))
      return number
  raise AssertionError("no free ports")


ALL = {
  "tf_config": (_TF_CONFIG, workers.environments),
  "slurm": ([*_TF_CONFIG, "--cluster=slurm"], slurm),
  "kubernetes": (_TF_CONFIG, kubernetes),
  "sagemaker": ([*_TF_CONFIG, "--cluster=tf_config"], sagemaker),
}
