"""Attacks predict.py --serve with slow clients, and times a well-behaved one.

python benchmarks/slow_clients.py --minutes=10

Exports models/mini, serves it, and keeps 200 connections busy that never read
the answers to pipelined requests, that ask for large answers and read a byte a
second, that send a byte a second, or that leave in the middle. Another client
asks /health and a question every second; its longest waits are printed, with
what it got, each minute. Exits with 1 if /health ever took longer than 5 s.
"""

import argparse
import collections
import contextlib
import http.client
import itertools
import json
import multiprocessing
import pathlib
import socket
import subprocess
import sys
import tempfile
import threading
import time

ROOT = pathlib.Path(__file__).parent.parent
MOST_SECONDS = 5.0  # For /health.
TEXT = "the film was " + "very " * 100 + "[MASK] ."


def make_request(path: str, content: object = None) -> bytes:
  """Makes a request of HTTP/1.1, a POST if it has content."""
  body = b"" if content is None else json.dumps(content).encode()
  method = "POST" if body else "GET"
  head = f"{method} {path} HTTP/1.1\r\nHost: localhost\r\n"
  return f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body


PAGE = make_request("/page.js")
QUESTION = make_request("/predict", {"text": "the film was [MASK] ."})
ATTENTION = make_request("/attention", {"text": TEXT})  # With every head.


def pipeline(client: socket.socket) -> None:
  """Sends many requests at once and reads no answer."""
  client.sendall((PAGE + QUESTION) * 20)
  client.settimeout(120)
  while True:  # Until the server closes the connection.
    client.sendall(b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n")
    time.sleep(1)


def read_slowly(client: socket.socket) -> None:
  """Asks for large answers and reads a byte a second."""
  client.sendall((ATTENTION + PAGE + QUESTION) * 3)
  client.settimeout(120)
  while client.recv(1):
    time.sleep(1)


def send_slowly(client: socket.socket) -> None:
  """Sends a byte a second."""
  for byte in QUESTION:
    client.sendall(bytes([byte]))
    time.sleep(1)


def leave(client: socket.socket) -> None:
  """Leaves in the middle of a request, or before its answer."""
  client.sendall(QUESTION[:-5] if time.time() % 2 < 1 else QUESTION)
  time.sleep(5)


def attack(port: int, clients: int) -> None:
  """Runs as a process, so that the client that is timed has its own."""
  kinds = itertools.cycle([pipeline, read_slowly, send_slowly, leave])
  for kind in itertools.islice(kinds, clients):
    threading.Thread(target=misbehave, args=(port, kind)).start()


def misbehave(port: int, behave) -> None:
  """Behaves badly, over one connection after the other."""
  while True:
    with contextlib.suppress(OSError), socket.socket() as client:
      client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 2048)
      client.connect(("127.0.0.1", port))
      behave(client)
    time.sleep(0.1)


def ask(port: int, path: str, content: object = None) -> tuple[float, str]:
  """Asks once; returns the seconds that it took, and the status."""
  start = time.monotonic()
  try:
    client = http.client.HTTPConnection("localhost", port, timeout=130)
    body = None if content is None else json.dumps(content)
    client.request("GET" if body is None else "POST", path, body)
    answer = client.getresponse()
    answer.read()
    status = str(answer.status)
    client.close()
  except (OSError, http.client.HTTPException) as error:
    status = type(error).__name__
  return time.monotonic() - start, status


def memory(process: subprocess.Popen) -> str:
  """Returns the memory and the threads of a process, as Linux says it."""
  lines = pathlib.Path(f"/proc/{process.pid}/status").read_text().splitlines()
  fields = dict(line.split(":", 1) for line in lines)
  return f"{fields['VmRSS'].split()[0]} kB, {fields['Threads'].strip()} threads"


def watch(port: int, process: subprocess.Popen, minutes: float) -> float:
  """Asks every second; returns the longest wait for /health."""
  longest, statuses = collections.Counter(), collections.Counter()
  lock = threading.Lock()
  end = time.monotonic() + 60 * minutes

  def ask_often(path, content=None):
    while time.monotonic() < end:
      seconds, status = ask(port, path, content)
      with lock:
        longest[path] = max(longest[path], seconds)
        statuses[f"{path} {status}"] += 1
      time.sleep(max(0.0, 1 - seconds))

  threads = [
    threading.Thread(target=ask_often, args=("/health",)),
    threading.Thread(
      target=ask_often, args=("/predict", {"text": "a [MASK] film ."})
    ),
  ]
  for thread in threads:
    thread.start()
  for minute in itertools.count(1):
    for thread in threads:
      thread.join(max(0.0, min(60.0, end - time.monotonic()) / len(threads)))
    with lock:
      waits = ", ".join(f"{p} {s:.2f} s" for p, s in longest.items())
      print(f"minute {minute}: longest waits {waits}; {dict(statuses)}")
    print(f"  {memory(process)}", flush=True)
    if time.monotonic() >= end:
      break
  for thread in threads:
    thread.join()
  return longest["/health"]


def main() -> None:
  arguments = argparse.ArgumentParser(description=__doc__.split("\n")[0])
  arguments.add_argument("--minutes", type=float, default=10.0)
  arguments.add_argument("--clients", type=int, default=200)
  arguments = arguments.parse_args()
  with tempfile.TemporaryDirectory() as folder:
    export = [sys.executable, "export_saved_model.py", "--model=models/mini"]
    export += ["--format=onnx", f"--export_dir={folder}/mini"]
    subprocess.run(export, cwd=ROOT, check=True)
    serve = [sys.executable, "predict.py", f"--export_dir={folder}/mini"]
    serve += ["--serve", "--port=0"]
    process = subprocess.Popen(
      serve, cwd=ROOT, stdout=subprocess.PIPE, text=True
    )
    try:
      port = int(process.stdout.readline().rstrip("/\n").rpartition(":")[2])
      attackers = multiprocessing.Process(
        target=attack, args=(port, arguments.clients), daemon=True
      )
      attackers.start()
      longest = watch(port, process, arguments.minutes)
      attackers.kill()
    finally:
      process.terminate()
      process.wait()
  sys.exit(longest > MOST_SECONDS)


if __name__ == "__main__":
  main()
