"""Runs a program as several workers: processes that TF_CONFIG joins."""

import json
import os
import socket
import subprocess
from typing import NamedTuple


class Ended(NamedTuple):
  """How workers ended, each in its place."""

  codes: list[int]
  outputs: tuple[str, ...]
  errors: tuple[str, ...]


def start(command, *others, count=2):
  """Starts workers; returns the processes, the chief first.

  Args:
    command: of the chief, and of the others unless they are given theirs.
    *others: commands.
    count: of workers with the same command.
  """
  commands = [command, *others] if others else [command] * count
  count = len(commands)
  addresses = [f"127.0.0.1:{_free_port()}" for _ in range(count)]
  workers = []
  for index, command in enumerate(commands):
    task = {"type": "worker", "index": index}
    cluster = json.dumps({"cluster": {"worker": addresses}, "task": task})
    workers.append(
      subprocess.Popen(
        command,
        env={**os.environ, "TF_CONFIG": cluster},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
      )
    )
  return workers


def finish(workers):
  """Waits for the workers, and ends them if that takes too long."""
  try:
    texts = [worker.communicate(timeout=300) for worker in workers]
  finally:
    for worker in workers:
      worker.kill()
  outputs, errors = zip(*texts, strict=True)
  return Ended([worker.returncode for worker in workers], outputs, errors)


def _free_port():
  with socket.socket() as server:
    server.bind(("127.0.0.1", 0))
    return server.getsockname()[1]
