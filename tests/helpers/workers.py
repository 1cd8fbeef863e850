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


def environments(count):
  """Yields the TF_CONFIG of each of some workers."""
  servers = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
  addresses = [f"127.0.0.1:{s.getsockname()[1]}" for s in servers]
  for server in servers:
    server.close()
  for index in range(count):
    task = {"type": "worker", "index": index}
    yield json.dumps({"cluster": {"worker": addresses}, "task": task})


def start(*commands):
  """Starts two workers, or one for each command; the chief is the first."""
  commands = commands * 2 if len(commands) == 1 else commands
  pipe = subprocess.PIPE
  return [
    subprocess.Popen(
      command,
      env={**os.environ, "TF_CONFIG": cluster},
      stdout=pipe,
      stderr=pipe,
      text=True,
    )
    for command, cluster in zip(
      commands, environments(len(commands)), strict=True
    )
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
