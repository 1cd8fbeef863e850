"""Clusters that are not described, or not as workers could meet."""

import json
import re

import pytest
import tensorflow as tf

from bert.cli import clusters
import program_flags
import schedulers
import tiny

HOSTS = ["host0:2222", "host1:2222"]
TASK = {"type": "worker", "index": 0}
SLURM = {
  "SLURM_JOB_ID": "1007",
  "SLURM_STEP_NUM_TASKS": "4",
  "SLURM_STEP_NODELIST": "n[9-10]",
  "SLURM_STEP_TASKS_PER_NODE": "2(x2)",
  "SLURM_PROCID": "1",
  "SLURMD_NODENAME": "n9",
  "SLURM_LOCALID": "1",
}


def config(task=TASK, **jobs):
  return json.dumps({"cluster": jobs, "task": task})


def set_slurm(monkeypatch, **others):
  for name, value in (SLURM | others).items():
    monkeypatch.setenv(name, value)


def refuse(cluster):
  with pytest.raises(ValueError) as caught:
    clusters.check(cluster)
    clusters.make_strategy(cluster)
  return str(caught.value)


@pytest.mark.parametrize(
  ("value", "fault"),
  [
    ("", "TF_CONFIG is not set"),
    ("{worker", "TF_CONFIG={worker: Expecting property name"),
    ("5", "TF_CONFIG=5: argument of type 'int' is not iterable"),
    ("[]", "TF_CONFIG=[]: not a cluster of workers: found none"),
    ('{"cluster": ["host0:2222"]}', "must be a dictionary"),
    ('{"cluster": {}}', "not a cluster of workers: found none"),
    (config(worker=HOSTS, ps=["c:1"]), "not a cluster of workers: found ps"),
    (config(worker=HOSTS, evaluator=["c:1"]), "found evaluator"),
    (
      config({"type": "chief", "index": 0}, chief=HOSTS),
      "must be at most one 'chief' job",
    ),
    (config(worker="host0:2222"), "must be a list"),
    (config(worker={"1": "b:1"}), "1: not an address with a port"),
    (config(worker=[]), "no such worker: type worker, index 0"),
    (config(worker=["host0", "host1"]), "host0: not an address with a port"),
    (config(worker=["host0:0", HOSTS[1]]), "host0:0: not an address"),
    (config(worker=[HOSTS[0], "host1:65536"]), "host1:65536: not an address"),
    (config(worker=["grpc://host0:1"]), "grpc://host0:1: not an address"),
    (config(worker=["host0:1:2"]), "host0:1:2: not an address"),
    (config(worker=["fe80::1:2222"]), "fe80::1:2222: not an address"),
    (config(worker=[HOSTS[0]] * 2), "host0:2222 is named twice"),
    (config(worker=[HOSTS[0], "HOST0:2222"]), "host0:2222 is named twice"),
    (config(worker=HOSTS, chief=HOSTS[1:]), "host1:2222 is named twice"),
    (config({}, worker=HOSTS), "no such worker: type None, index None"),
    (config({**TASK, "index": 2}, worker=HOSTS), "type worker, index 2"),
    (config({**TASK, "index": -1}, worker=HOSTS), "type worker, index -1"),
    (config({**TASK, "index": "x"}, worker=HOSTS), "invalid literal for int"),
    (config({**TASK, "index": None}, worker=HOSTS), "not 'NoneType'"),
    (config({**TASK, "type": "ps"}, worker=HOSTS), "type ps, index 0"),
    (config(TASK, worker=[None, "host1:2222"]), "None"),
    (
      json.dumps({**json.loads(config(worker=HOSTS)), "rpc_layer": "http"}),
      "rpc_layer is 'http'",
    ),
    (
      json.dumps({**json.loads(config(worker=HOSTS)), "rpc_layer": 5}),
      "rpc_layer is 5",
    ),
  ],
)
def test_a_wrong_tf_config_is_refused(value, fault, monkeypatch):
  monkeypatch.setenv("TF_CONFIG", value)
  for cluster in (None, "tf_config"):
    line = refuse(cluster)
    assert fault in line
    assert ': expected {"cluster": {"worker": ["host0:2222", "host' in line


@pytest.mark.parametrize(
  ("variables", "fault"),
  [
    ({"SLURM_PROCID": ""}, "multi_worker: SLURM_PROCID is not set"),
    ({"SLURM_PROCID": "x"}, "invalid literal for int"),
    ({"SLURM_STEP_NUM_TASKS": "3"}, "3 tasks but only 4 were assigned"),
    ({"SLURM_STEP_NODELIST": "n[9-"}, 'Invalid hostlist format "n[9-"'),
    ({"SLURM_STEP_NODELIST": "n9,n9"}, "4 tasks but only 2 were assigned"),
    ({"SLURM_STEP_TASKS_PER_NODE": "2(x"}, "Invalid tasks-per-node list"),
    ({"SLURMD_NODENAME": "n8"}, "n8:12113 is not among n10:12112, n10:12113,"),
    ({"SLURM_LOCALID": "2"}, "n9:12114 is not among n10:12112"),
    ({"SLURM_JOB_ID": "job"}, "invalid literal for int"),
  ],
)
def test_wrong_variables_of_slurm_are_refused(variables, fault, monkeypatch):
  set_slurm(monkeypatch, **variables)
  line = refuse("slurm")
  assert fault in line
  assert line.endswith(": start the program with srun")


def test_nothing_is_done_before_a_cluster_is_refused(monkeypatch, tmp_path):
  monkeypatch.setenv("TF_CONFIG", config(worker=[HOSTS[0]] * 2))
  command = tiny.prepare("run_classifier", tmp_path)
  before = sorted(tmp_path.rglob("*"))
  result = program_flags.run_here([*command, "--distribution=multi_worker"])
  program_flags.assert_refused(result, "host0:2222 is named twice")
  assert sorted(tmp_path.rglob("*")) == before


@pytest.fixture(name="found")
def record_clusters(monkeypatch):
  """Lists the clusters and workers of strategies, which are not made."""
  found = []

  def record(resolver):
    cluster = resolver.cluster_spec().as_dict()
    found.append((cluster, resolver.task_type, resolver.task_id))
    return resolver

  strategy = "MultiWorkerMirroredStrategy"
  monkeypatch.setattr(tf.distribute, strategy, record)
  return found


def test_a_task_of_slurm_finds_itself_in_any_order(monkeypatch, found):
  """TensorFlow's resolver sorts n10 before n9, Slurm does not."""
  for node in ("n9", "n10"):
    for number in "01":
      place = {"SLURMD_NODENAME": node, "SLURM_LOCALID": number}
      set_slurm(monkeypatch, **place)
      resolver = clusters.make_strategy("slurm")
      assert resolver.num_accelerators() == {"GPU": 0}
      assert resolver.rpc_layer == "grpc"
  addresses = [f"n{node}:{port}" for node in (10, 9) for port in (12112, 12113)]
  cluster = {"worker": addresses}
  assert found == [(cluster, "worker", index) for index in (2, 3, 0, 1)]


def test_addresses_of_ipv6_stand_in_brackets(monkeypatch, found):
  hosts = ["[fe80::1]:2222", "[fe80::2]:2222"]
  monkeypatch.setenv("TF_CONFIG", config(worker=hosts))
  clusters.make_strategy("tf_config")
  assert found == [({"worker": hosts}, "worker", 0)]


@pytest.mark.parametrize("name", schedulers.ALL)
def test_a_scheduler_names_two_workers(name, monkeypatch, found, capsys):
  flags, make = schedulers.ALL[name]
  (cluster,) = re.findall(r"--cluster=(\w+)", " ".join(flags)) or [None]
  for variables in make():
    for variable, value in variables.items():
      monkeypatch.setenv(variable, value)
    clusters.make_strategy(cluster)
  cluster = found[0][0]
  assert found == [(cluster, "worker", index) for index in range(2)]
  first, second = cluster["worker"]
  assert first != second
  # A worker says for whom it waits: a name may be wrong.
  assert capsys.readouterr().out.splitlines() == [
    f"{first}: waiting for {second}",
    f"{second}: waiting for {first}",
  ]
