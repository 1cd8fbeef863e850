"""Serves an exported model over HTTP: a page for people, JSON for programs.

Each connection has a thread; one more thread answers, in batches of what has
come in by then. Nothing but Python's own library is used.
"""

import collections
from collections.abc import Sequence
from concurrent import futures
import http
import http.server
import json
import os
import queue
import signal
import socket
import sys
import threading
import time
from typing import Any, NamedTuple

from serving import exported_model

_PAGE = os.path.join(os.path.dirname(os.path.abspath(__file__)), "page.html")
_MOST_REQUESTS = 1024  # In one body.
_IDLE_SECONDS = 60  # After which a silent connection is closed.
_ANSWER_SECONDS = 120  # Nobody waits longer.
_DRAIN_SECONDS = 10  # For those under way when the server is to end.
_MOST_WAITING = 4096  # Requests, over all connections.
_BLOCK = 1 << 16
# So much of a body that is too large is read, to be able to answer it.
_MOST_DISCARDED = 1 << 26


class Limits(NamedTuple):
  """What a server takes at once."""

  body_bytes: int  # Of one HTTP request.
  batch_bytes: int  # Of the text of one batch.
  wait_seconds: float  # How long a batch waits for more requests.


class Batcher:
  """Answers the requests of many threads in one, in batches.

  Args:
    model: answers.
    limits: of a batch.
  """

  def __init__(self, model: exported_model.ExportedModel, limits: Limits):
    self._model, self._limits = model, limits
    self._waiting: queue.Queue = queue.Queue(_MOST_WAITING)
    self.sizes: collections.Counter[int] = collections.Counter()
    threading.Thread(target=self._run, daemon=True).start()

  def answer(
    self, requests: Sequence[exported_model.Request]
  ) -> list[exported_model.Answer]:
    """Waits for the answers to requests that `ExportedModel.check` returned.

    Raises:
      queue.Full: too many are waiting already.
    """
    results = []
    try:
      for request in requests:
        result: futures.Future = futures.Future()
        self._waiting.put_nowait((request, result))
        results.append(result)
      deadline = time.monotonic() + _ANSWER_SECONDS
      return [r.result(deadline - time.monotonic()) for r in results]
    finally:
      for result in results:
        result.cancel()  # Of use only if nobody waits for it any more.

  def _run(self):
    while True:
      batch = self._collect()
      batch = [pair for pair in batch if pair[1].set_running_or_notify_cancel()]
      if not batch:
        continue
      self.sizes[len(batch)] += 1
      requests = [request for request, _ in batch]
      try:
        answers = self._model.answer_many(requests, self._limits.batch_bytes)
      except Exception as error:  # It is for those who wait to hear of it.
        for _, result in batch:
          result.set_exception(error)
        continue
      for (_, result), answer in zip(batch, answers, strict=True):
        result.set_result(answer)

  def _collect(self):
    """Waits for a request, and a little longer for others."""
    batch = [self._waiting.get()]
    deadline = time.monotonic() + self._limits.wait_seconds
    size = 0
    while size < self._limits.batch_bytes and len(batch) < _MOST_REQUESTS:
      try:
        left = max(0.0, deadline - time.monotonic())
        batch.append(self._waiting.get(timeout=left))
      except queue.Empty:
        break
      size += sum(map(len, batch[-1][0].values()))
    return batch


class _BadRequestError(Exception):
  """What a client is told, with a status."""

  def __init__(self, status: http.HTTPStatus, message: str):
    super().__init__(message)
    self.status = status


class _Handler(http.server.BaseHTTPRequestHandler):
  """Answers one connection."""

  protocol_version = "HTTP/1.1"
  server_version, sys_version = "bert", ""
  timeout = _IDLE_SECONDS
  # An answer's head and body go out in one packet.
  wbufsize = -1
  disable_nagle_algorithm = True
  server: "Server"

  def do_GET(self):  # noqa: N802  Named by http.server.
    pages = {
      "/": lambda: self._send(self.server.page, "text/html; charset=utf-8"),
      "/model": lambda: self._send_json(self.server.describe()),
      "/health": lambda: self._send_json({"status": "ok"}),
    }
    self._answer(pages)

  def do_POST(self):  # noqa: N802
    self._answer({"/predict": self._predict, "/attention": self._attend})

  def _answer(self, actions):
    with self.server.busy():
      try:
        action = actions.get(self.path.partition("?")[0])
        if action is None:
          raise _BadRequestError(
            http.HTTPStatus.NOT_FOUND,
            f"nothing here; {self.command} knows {', '.join(actions)}",
          )
        action()
      except _BadRequestError as error:
        self._fail(error.status, str(error))
      except ValueError as error:
        self._fail(http.HTTPStatus.BAD_REQUEST, str(error))
      except queue.Full:
        self._fail(
          http.HTTPStatus.SERVICE_UNAVAILABLE, "too many requests are waiting"
        )
      except (ConnectionError, TimeoutError):
        self.close_connection = True
      except Exception as error:
        print(f"error: {self.path}: {error!r}", file=sys.stderr)
        self._fail(http.HTTPStatus.INTERNAL_SERVER_ERROR, "internal error")

  def _predict(self):
    content = self._read_json()
    model = self.server.model
    many = isinstance(content, dict) and "inputs" in content
    if not many:
      (answer,) = self.server.batcher.answer([model.check(content)])
      self._send_json(answer)
      return
    rows = content["inputs"]
    if not isinstance(rows, list) or len(rows) > _MOST_REQUESTS:
      raise ValueError(f"inputs: expected a list of {_MOST_REQUESTS} at most")
    requests = []
    for number, row in enumerate(rows):
      try:
        requests.append(model.check(row))
      except ValueError as error:
        raise ValueError(f"inputs[{number}]: {error}") from None
    self._send_json({"outputs": self.server.batcher.answer(requests)})

  def _attend(self):
    content, model = self._read_json(), self.server.model
    request = model.check(content)
    answer = model.attend(request, content.get("layer"), content.get("head"))
    self._send_json(answer)

  def _read_json(self) -> Any:
    body = self._read_body()
    try:
      return json.loads(body.decode("utf-8"))
    except UnicodeDecodeError as error:
      raise ValueError(
        f"the body is not UTF-8 at byte offset {error.start}"
      ) from None
    except (ValueError, RecursionError) as error:
      raise ValueError(f"the body is not JSON: {error}") from None

  def _read_body(self) -> bytes:
    text = self.headers.get("Content-Length", "")
    if not text.isdecimal() or self.headers.get("Transfer-Encoding"):
      self.close_connection = True
      raise _BadRequestError(
        http.HTTPStatus.LENGTH_REQUIRED, "Content-Length is needed"
      )
    length, most = int(text), self.server.limits.body_bytes
    if length > most:
      self.close_connection = True
      self._discard(length)
      raise _BadRequestError(
        http.HTTPStatus.REQUEST_ENTITY_TOO_LARGE,
        f"the body has {length} bytes, at most {most} are taken",
      )
    body = self.rfile.read(length)
    if len(body) < length:
      raise ConnectionError("the client is gone")
    return body

  def _discard(self, length):
    # One who is still sending would not see the answer.
    left = min(length, _MOST_DISCARDED)
    while left > 0:
      block = self.rfile.read(min(left, _BLOCK))
      if not block:
        break
      left -= len(block)

  def _send_json(self, content, status=http.HTTPStatus.OK):
    text = json.dumps(content, ensure_ascii=False)
    self._send(text.encode(), "application/json", status)

  def _send(self, body: bytes, kind: str, status=http.HTTPStatus.OK):
    self.send_response(status)
    self.send_header("Content-Type", kind)
    self.send_header("Content-Length", str(len(body)))
    self.send_header("X-Content-Type-Options", "nosniff")
    if self.close_connection:
      self.send_header("Connection", "close")
    self.end_headers()
    self.wfile.write(body)
    self.wfile.flush()

  def _fail(self, status, message):
    try:
      self._send_json({"error": message}, status)
    except (ConnectionError, TimeoutError):
      self.close_connection = True

  def log_message(self, format, *args):
    """Prints nothing: a line for each request would be most of the work."""


class Server(http.server.ThreadingHTTPServer):
  """The page, and what is behind it; docs/serving.md lists the addresses.

  Args:
    model: answers.
    address: host and port, 0 for any that is free.
    limits: of requests.

  Attributes:
    batcher: asks the model.
  """

  daemon_threads = True
  request_queue_size = 1024  # Connections that wait to be accepted.

  def __init__(
    self,
    model: exported_model.ExportedModel,
    address: tuple[str, int],
    limits: Limits,
  ):
    super().__init__(address, _Handler)
    self.model, self.limits = model, limits
    self.batcher = Batcher(model, limits)
    with open(_PAGE, "rb") as file:
      self.page = file.read()
    self._busy, self._changed = 0, threading.Condition()

  def server_bind(self) -> None:
    """Binds the socket; the base class would ask for the host's name first."""
    self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    self.socket.bind(self.server_address)
    self.server_address = self.socket.getsockname()
    self.server_name, self.server_port = self.server_address[:2]

  def describe(self) -> dict[str, Any]:
    """Returns what the page has to know of the model."""
    names = ("kind", "labels", "num_layers", "num_heads", "max_seq_length")
    facts = {name: self.model.facts[name] for name in names}
    inputs = [input._asdict() for input in self.model.inputs]
    return {**facts, "inputs": inputs}

  def busy(self) -> "_Busy":
    """Counts, in a with statement, a request that is under way."""
    return _Busy(self)

  def change_busy(self, by: int) -> None:
    """Counts a request that begins or ends."""
    with self._changed:
      self._busy += by
      self._changed.notify_all()

  def drain(self) -> None:
    """Waits for requests that are under way."""
    with self._changed:
      self._changed.wait_for(lambda: not self._busy, _DRAIN_SECONDS)

  def handle_error(self, request, client_address) -> None:
    """Passes over clients that are gone; anything else is printed."""
    if not isinstance(sys.exception(), (ConnectionError, TimeoutError)):
      super().handle_error(request, client_address)


class _Busy:
  """See `Server.busy`."""

  def __init__(self, server: Server):
    self._server = server

  def __enter__(self):
    self._server.change_busy(1)

  def __exit__(self, *_):
    self._server.change_busy(-1)


def serve(
  model: exported_model.ExportedModel, host: str, port: int, limits: Limits
) -> int:
  """Serves a model until SIGTERM or SIGINT; returns the exit status.

  Raises:
    ValueError: the address cannot be used.
  """
  try:
    server = Server(model, (host, port), limits)
  except (OSError, OverflowError) as error:
    raise ValueError(f"--host={host} --port={port}: {error}") from None

  def stop(*_):
    # From another thread: shutdown waits for the loop that this interrupts.
    threading.Thread(target=server.shutdown).start()

  for number in (signal.SIGTERM, signal.SIGINT):
    signal.signal(number, stop)
  model.answer([dict.fromkeys([i.name for i in model.inputs], "a")])
  print(f"http://{host}:{server.server_port}/", flush=True)
  with server:
    server.serve_forever(poll_interval=0.1)
    server.drain()
  print("stopped", file=sys.stderr)
  return 0
