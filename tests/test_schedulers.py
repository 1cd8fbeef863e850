"""Several workers under the variables of Slurm, Kubernetes and SageMaker.

And the files of docs/clusters.md that start them there.
"""

import json
import re
import signal
import socket
import subprocess
import sys
import time

import pytest

from bert import modeling
from bert.weights import checkpoints
import paths
import program_flags
import same_training
import schedulers
import tiny
import workers

# A training that is interrupted: long enough to be met in the middle.
LONG = {"num_train_steps": 400, "save_checkpoints_steps": 20}
LONG |= {"keep_checkpoint_max": 0, "iterations_per_loop": 5}


@pytest.fixture(name="alone", scope="module")
def train_alone(tmp_path_factory):
  """Returns a folder whose `out` a single process has trained."""
  folder = tmp_path_factory.mktemp("alone")
  with pytest.MonkeyPatch.context() as patch:
    patch.setattr(modeling, "dropout", lambda x, rate, seed: x)
    program_flags.succeed(tiny.prepare("run_pretraining", folder))
  return folder


@pytest.mark.slow
@pytest.mark.parametrize("name", schedulers.ALL)
def test_two_workers_leave_what_one_process_does(name, alone, tmp_path):
  flags, make = schedulers.ALL[name]
  command = tiny.prepare("run_pretraining", tmp_path)
  command = workers.without_dropout([*command, *flags])
  ended = workers.finish(workers.start(command, variables=make()))
  assert ended.codes == [0, 0], ended.errors
  same_training.assert_same_files(
    "run_pretraining", tmp_path / "out", alone / "out"
  )


@pytest.mark.slow  # A process of its own: the devices are half chosen.
def test_a_port_in_use_is_named(tmp_path):
  (variables, _) = workers.environments()
  address = json.loads(variables["TF_CONFIG"])["cluster"]["worker"][0]
  command = tiny.prepare("run_pretraining", tmp_path)
  with socket.create_server(("0.0.0.0", int(address.rpartition(":")[2]))):
    result = program_flags.run_command(
      [*command, "--distribution=multi_worker"], **variables
    )
  program_flags.assert_refused(
    result, f"this worker cannot listen at {address}"
  )
  assert not (tmp_path / "out").exists()


def wait_for_step(out, step):
  deadline = time.monotonic() + 240
  while not any(n >= step for n in checkpoints.saved_steps(str(out))):
    assert time.monotonic() < deadline, f"no step {step}"
    time.sleep(0.1)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["slurm", "kubernetes"])
def test_a_job_that_was_killed_or_stopped_resumes(name, tmp_path):
  """It ends with the bytes of a job that nobody interrupted."""
  flags, make = schedulers.ALL[name]
  flags = [*flags, *program_flags.arguments(LONG)]
  command = [*tiny.prepare("run_pretraining", tmp_path), *flags]
  whole, out = tmp_path / "whole", tmp_path / "out"

  def start(folder):
    words = [*command, f"--output_dir={folder}"]
    return workers.start(words, variables=make())

  ended = workers.finish(start(whole))
  assert ended.codes == [0, 0], ended.errors

  # Slurm sends SIGTERM to all tasks, Kubernetes to a pod whose node is drained.
  running = start(out)
  wait_for_step(out, 20)
  for worker in running if name == "slurm" else running[1:]:
    worker.send_signal(signal.SIGTERM)
  ended = workers.finish(running)
  assert ended.codes == [143, 143], ended.errors
  stopped = checkpoints.saved_steps(str(out))[-1]
  assert f"stopped at step {stopped} of 400" in ended.outputs[0]

  running = start(out)
  wait_for_step(out, stopped + 20)
  running[1].kill()
  ended = workers.finish(running)
  assert ended.codes == [1, -signal.SIGKILL], ended.errors
  # TensorFlow logs more lines than this one.
  beginning = "run_pretraining.py: error: another worker has ended or cannot"
  assert sum(x.startswith(beginning) for x in ended.errors[0].splitlines()) == 1

  ended = workers.finish(start(out))
  assert ended.codes == [0, 0], ended.errors
  assert "resuming at step " in ended.outputs[0]
  expected = tiny.checkpoint_bytes(whole, 400)
  assert tiny.checkpoint_bytes(out, 400) == expected


def test_the_job_of_kubernetes_makes_tf_config():
  for index in range(2):
    assert json.loads(schedulers.kubernetes_config(str(index))) == {
      "cluster": {"worker": ["bert-0.bert:2222", "bert-1.bert:2222"]},
      "task": {"type": "worker", "index": index},
    }


def test_the_objects_of_kubernetes_belong_together():
  service, job, _ = schedulers.manifests()
  spec, name = job["spec"], job["metadata"]["name"]
  pod = spec["template"]["spec"]
  (container,) = pod["containers"]
  # Each pod has a name of its own, which leads to it.
  assert spec["completionMode"] == "Indexed"
  assert service["spec"]["clusterIP"] == "None"
  assert service["spec"]["selector"] == {"batch.kubernetes.io/job-name": name}
  assert pod["subdomain"] == service["metadata"]["name"]
  # All run at once, and the shell knows how many.
  assert spec["parallelism"] == spec["completions"]
  assert container["env"] == [
    {"name": "WORKERS", "value": str(spec["completions"])}
  ]
  assert container["ports"] == [{"containerPort": 2222}]
  mounted = {mount["name"] for mount in container["volumeMounts"]}
  assert mounted == {volume["name"] for volume in pod["volumes"]}


def test_the_objects_of_kubernetes_fit_its_schema():
  validate = pytest.importorskip("kubernetes_validate")
  for manifest in schedulers.manifests():
    validate.validate(manifest, validate.latest_version(), strict=True)


def test_the_file_for_slurm_is_a_script():
  (script,) = [b for b in schedulers.blocks("sh") if "--cluster=slurm" in b]
  subprocess.run(["bash", "-n"], input=script, text=True, check=True)
  # Slurm reads no options behind the first command.
  head, _, _ = script.partition("\nsrun ")
  options = re.findall(r"^#SBATCH --([\w-]+)", head, re.MULTILINE)
  assert len(options) == script.count("SBATCH")
  assert {"nodes", "ntasks-per-node", "signal", "requeue"} <= {*options}


def test_the_file_for_slurm_sends_a_stopped_job_again(tmp_path):
  (script,) = [b for b in schedulers.blocks("sh") if "--cluster=slurm" in b]
  for program, line in (("srun", "exit $STATUS"), ("scontrol", "echo $*")):
    (tmp_path / program).write_text(f"#!/bin/sh\n{line}\n")
    (tmp_path / program).chmod(0o755)
  for status, output in ("0", ""), ("1", ""), ("143", "requeue 7\n"):
    result = program_flags.run_command(
      ["bash", "-c", script],
      PATH=f"{tmp_path}:/usr/bin:/bin",
      SLURM_JOB_ID="7",
      STATUS=status,
    )
    assert (result.stdout, result.stderr) == (output, "")


def test_the_files_for_sagemaker_start_a_program(tmp_path):
  (text,) = schedulers.blocks("json")
  job = json.loads(text)
  parameters = job["HyperParameters"]
  (flags,) = [
    block for block in schedulers.blocks("") if "/opt/ml/input/data" in block
  ]
  (channel,) = job["InputDataConfig"]
  folder = f"/opt/ml/input/data/{channel['ChannelName']}/"
  named = re.findall(r"^--\w+=(/\S*)", flags, re.MULTILINE)
  assert len(named) == 3
  assert all(path.startswith(folder) for path in named)

  # SageMaker's words: the name and the value of each parameter apart.
  (tmp_path / parameters["flagfile"]).write_text(flags)
  command = program_flags.command(
    parameters["sagemaker_program"].removesuffix(".py")
  )
  words = [*command, "--flagfile", str(tmp_path / parameters["flagfile"])]
  program_flags.assert_refused(
    program_flags.run_here(words),
    "--distribution=multi_worker: TF_CONFIG is not set",
  )


@pytest.mark.slow  # It trains models/mini: seconds.
def test_the_cell_for_colab_trains_on_a_table(tmp_path, monkeypatch):
  (cell,) = [b for b in schedulers.blocks("") if "google.colab" in b]
  (command,) = re.findall(
    r"python (run_classifier\.py .*)", cell.replace("\\\n", " ")
  )
  drive = "/content/drive/MyDrive"
  assert command.count(f"={drive}/") == 2
  words = command.replace(drive, str(tmp_path)).split()

  # The default names of the columns.
  labels = [("good", "bad")[number % 2] for number in range(20)]
  rows = [f"a {label} film {n}\t{label}\n" for n, label in enumerate(labels)]
  (tmp_path / "train.tsv").write_text("text\tlabel\n" + "".join(rows))
  monkeypatch.chdir(paths.ROOT)
  program_flags.succeed([sys.executable, *words])
  assert checkpoints.saved_steps(str(tmp_path / "classifier"))
