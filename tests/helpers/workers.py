"""Runs a program as several workers: processes that a cluster joins."""

import json
import os
import socket
import subprocess
from typing import NamedTuple

import paths


class Ended(NamedTuple):
  """How workers ended, each in its place."""

  codes: list[int]
  outputs: tuple[str, ...]
  errors: tuple[str, ...]


def free_addresses(count):
  """Returns addresses of this machine that nobody uses."""
  servers = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
  addresses = [f"127.0.0.1:{s.getsockname()[1]}" for s in servers]
  for server in servers:
    server.close()
  return addresses


def environments(count=2):
  """Returns the variables of each of some workers, here TF_CONFIG."""
  cluster = {"worker": free_addresses(count)}
  tasks = [{"type": "worker", "index": index} for index in range(count)]
  return [
    {"TF_CONFIG": json.dumps({"cluster": cluster, "task": task})}
    for task in tasks
  ]


def start(*commands, variables=None):
  """Starts two workers, or one for each command; the chief is the first.

  Args:
    *commands: their command lines.
    variables: of each; None for those of `environments`.
  """
  commands = commands * 2 if len(commands) == 1 else commands
  variables = variables or environments(len(commands))
  pipe = subprocess.PIPE
  return [
    subprocess.Popen(
      command,
      env={**os.environ, **values},
      stdout=pipe,
      stderr=pipe,
      text=True,
    )
    for command, values in zip(commands, variables, strict=True)
  ]


def finish(workers):
  """Waits for the workers, and ends them if that takes too long."""
  try:
    texts = [worker.communicate(timeout=300) for worker in workers]
  finally:
    for worker in workers:
      worker.kill()
  outputs, errors = zip(*texts, strict=True)
  return Ended([worker.returncode for worker in workers], outputs, errors)


def without_dropout(command):
  """Returns the command line that runs a program without dropout."""
  python, *rest = command
  return [python, str(paths.ROOT / "tests/helpers/without_dropout.py"), *rest]
