"""Serves an exported model over HTTP: a page for people, JSON for programs.

waitress reads and writes: bounded threads, and a strict parser. One thread
answers, in batches of the requests that have come in by then; attention is
computed beside it, for one request at a time.
"""

from collections.abc import Callable, Sequence
from concurrent import futures
import contextlib
import functools
import http
import ipaddress
import json
import logging
import pathlib
import queue
import re
import signal
import socket
import sys
import threading
import time
from typing import Any, NamedTuple
import urllib.parse

import waitress
from waitress import channel, parser, task, utilities

from serving import answer_maker, exported_model, request_lines

# The page, by address: the file and its type.
_PAGE = {
  "/": ("page.html", "text/html; charset=utf-8"),
  "/page.css": ("page.css", "text/css; charset=utf-8"),
  "/page.js": ("page.js", "text/javascript; charset=utf-8"),
  "/favicon.svg": ("favicon.svg", "image/svg+xml"),
}
# Nothing from elsewhere, and no script or style in the page itself.
_POLICY = "default-src 'self'; base-uri 'none'; frame-ancestors 'none'"
_MOST_CONNECTIONS = 1000  # More wait to be accepted.
_MOST_REQUESTS = 1024  # In one body.
_MOST_WAITING = 4096  # Requests, over all connections.
# Bytes read of a body that is too large, to be able to answer it.
_MOST_DISCARDED = 1 << 26


class Limits(NamedTuple):
  """The most that a server takes at once."""

  body_bytes: int  # One HTTP request may have so many.
  batch_tokens: int
  wait_seconds: float  # How long a batch waits for more requests.
  answer_seconds: float = 120  # How long a client waits, at most.
  idle_seconds: int = 60  # After which a silent connection is closed.
  threads: int = 64  # Predictions made at once; more wait for a thread.


class Batcher:
  """Answers the requests of many threads in one thread, in batches."""

  def __init__(self, model: exported_model.ExportedModel, limits: Limits):
    self._model, self._limits = model, limits
    self._waiting: queue.Queue = queue.Queue(_MOST_WAITING)
    threading.Thread(target=self._run, daemon=True).start()

  def answer(
    self, requests: Sequence[answer_maker.Encoded]
  ) -> list[answer_maker.Answer]:
    """Waits for answers; raises queue.Full or a TimeoutError without any."""
    results, has_left = [], threading.Event()
    try:
      for request in requests:
        result: futures.Future = futures.Future()
        self._waiting.put_nowait((request, result, has_left))
        results.append(result)
      deadline = time.monotonic() + self._limits.answer_seconds
      return [r.result(deadline - time.monotonic()) for r in results]
    finally:
      has_left.set()
      for result in results:
        result.cancel()  # Has an effect only if it was not waited for.

  def _run(self):
    while True:
      batch = self._collect()
      self._answer([x for x in batch if x[1].set_running_or_notify_cancel()])

  def _answer(self, batch):
    """Answers a batch; only the sender of a bad request gets its error."""
    try:
      answers = self._model.answer(
        [request for request, *_ in batch],
        self._limits.batch_tokens,
        lambda: not all(has_left.is_set() for *_, has_left in batch),
      )
    except Exception as error:
      if len(batch) == 1:
        batch[0][1].set_exception(error)
        return
      for item in batch:
        self._answer([item])
    else:
      for (_, result, _), answer in zip(batch, answers, strict=True):
        result.set_result(answer)

  def _collect(self):
    """Waits for a request, and a little longer for others."""
    batch = [self._waiting.get()]
    deadline = time.monotonic() + self._limits.wait_seconds
    tokens = _count_tokens(batch[0][0])
    with contextlib.suppress(queue.Empty):
      while tokens < self._limits.batch_tokens and len(batch) < _MOST_REQUESTS:
        left = max(0.0, deadline - time.monotonic())
        batch.append(self._waiting.get(timeout=left))
        tokens += _count_tokens(batch[-1][0])
    return batch


def _count_tokens(request) -> int:
  return sum(len(row.input_ids) for row in request.rows)


class _RefusedError(Exception):
  """An error that is answered with its arguments, a status and a message."""


class Application:
  """The page and the actions behind it as WSGI, for a host of these names."""

  def __init__(
    self,
    model: exported_model.ExportedModel,
    limits: Limits,
    names: Sequence[str],
  ):
    self._model = model
    self._names = {name.lower().rstrip(".") for name in names}
    self._batcher, self._limits = Batcher(model, limits), limits
    gets: dict[str, Callable] = {
      **dict.fromkeys(_PAGE, lambda environ: _read_page(environ["PATH_INFO"])),
      "/model": lambda environ: self._describe(),
      "/health": lambda environ: {"status": "ok"},
    }
    posts = {"/predict": self._predict, "/attention": self._attend}
    self._actions = {"GET": gets, "HEAD": gets, "POST": posts}

  def __call__(self, environ, start_response) -> list[bytes]:
    status, content = self._respond(environ)
    kind = "application/json"
    if isinstance(content, tuple):
      content, kind = content
    else:
      content = json.dumps(content, ensure_ascii=False).encode()
    headers = [
      ("Content-Type", kind),
      ("Content-Length", str(len(content))),
      ("X-Content-Type-Options", "nosniff"),
      ("Content-Security-Policy", _POLICY),
    ]
    start_response(f"{status} {http.HTTPStatus(status).phrase}", headers)
    return [] if environ["REQUEST_METHOD"] == "HEAD" else [content]

  def _respond(self, environ):
    try:
      self._check_sender(environ)
      return 200, self._find_action(environ)(environ)
    except _RefusedError as error:
      status, message = error.args
    except ValueError as error:
      status, message = 400, str(error)
    except (queue.Full, TimeoutError):
      status = 503
      message = "too many requests are waiting, or one takes too long"
    except Exception as error:
      print(f"error: {environ['PATH_INFO']}: {error!r}", file=sys.stderr)
      status, message = 500, "internal error"
    return status, {"error": message}

  def _check_sender(self, environ):
    """Refuses requests that come from the pages of other sites.

    After DNS rebinding their Origin is the Host, but not one of our names.
    """
    host = environ.get("HTTP_HOST", "")
    if not self._is_ours(host):
      message = f"Host {host!r:.80} is not this server; see --allowed_hosts"
      raise _RefusedError(403, message)
    origin = environ.get("HTTP_ORIGIN", host)
    if origin not in (host, f"http://{host}", f"https://{host}"):
      raise _RefusedError(403, f"Origin {origin!r:.80} is another site")

  def _is_ours(self, host):
    try:
      name = urllib.parse.urlsplit(f"//{host}").hostname or ""
      if name.rstrip(".") not in self._names:
        ipaddress.ip_address(name)  # An address cannot be rebound.
    except ValueError:
      return False
    return True

  def _find_action(self, environ):
    method = environ["REQUEST_METHOD"]
    actions = self._actions.get(method, {})
    if environ["PATH_INFO"] in actions:
      return actions[environ["PATH_INFO"]]
    known = f"; {method} knows {', '.join(actions)}" if actions else ""
    raise _RefusedError(404, f"nothing here{known}")

  def _describe(self) -> dict[str, Any]:
    card, inputs = self._model.card, self._model.maker.inputs.items()
    names = ("kind", "labels", "num_layers", "num_heads", "max_seq_length")
    quantized = card.quantization.get("dtype", "")
    return {
      **{name: getattr(card, name) for name in names},
      "name": self._model.name,
      "inputs": [{"name": name, "required": must} for name, must in inputs],
      "format": f"{card.format} {quantized}".strip(),
      "max_request_bytes": self._limits.body_bytes,
      "max_requests": _MOST_REQUESTS,
    }

  def _predict(self, environ):
    content, maker = _read_json(environ), self._model.maker
    if not (isinstance(content, dict) and "inputs" in content):
      [answer] = self._batcher.answer([maker.encode(content)])
      return answer
    rows = content["inputs"]
    if not isinstance(rows, list) or len(rows) > _MOST_REQUESTS:
      raise ValueError(f"inputs: expected a list of {_MOST_REQUESTS} at most")
    return {"outputs": self._batcher.answer(maker.encode_all(rows))}

  def _attend(self, environ):
    content = _read_json(environ)
    request = self._model.maker.encode(content)
    layer, head = content.get("layer"), content.get("head")
    return self._model.attend(request, layer, head)


@functools.cache
def _read_page(address: str) -> tuple[bytes, str]:
  name, kind = _PAGE[address]
  return pathlib.Path(__file__).with_name(name).read_bytes(), kind


def _read_json(environ) -> Any:
  body = environ["wsgi.input"].read()
  return request_lines.parse_json(request_lines.decode(body))


class _Parser(parser.HTTPRequestParser):
  """Refuses two lengths at once and bodies that are too large."""

  _left = 0  # Bytes of a body that is refused.

  def parse_header(self, header_plus):
    try:
      super().parse_header(header_plus)
    except ValueError as error:  # A length of too many digits for Python.
      raise parser.ParsingError("Content-Length is too large") from error
    # A proxy and this server may each follow a different one. The header is
    # left only where waitress ignored it, in HTTP/1.0.
    if "TRANSFER_ENCODING" in self.headers:
      raise parser.ParsingError("Transfer-Encoding needs HTTP/1.1")
    if self.chunked and "CONTENT_LENGTH" in self.headers:
      raise parser.ParsingError("both Transfer-Encoding and Content-Length")

  def received(self, data):
    if self._left:
      used = min(len(data), self._left)
      self._left -= used
      self.completed = not self._left
      return used
    used = super().received(data)
    too_large = isinstance(self.error, utilities.RequestEntityTooLarge)
    if too_large and not self.chunked:
      # A client that is still sending would not see the answer.
      self._left = min(self.content_length, _MOST_DISCARDED)
      self.completed = False
    return used


class _Channel(channel.HTTPChannel):
  """A connection that holds no thread while its client is slow to read.

  The next request waits until the answer before it has been sent.
  """

  parser_class = _Parser
  _is_waiting = False

  def service(self):
    if self.total_outbufs_len and self.connected:
      self._is_waiting = True
    else:
      super().service()

  def write_soon(self, data):
    self.last_activity = time.time()  # A slow answer is no silence.
    return super().write_soon(data)

  def writable(self):
    # Asked in every round of the server's loop.
    silent_seconds = time.time() - self.last_activity
    if self.total_outbufs_len and silent_seconds > self.adj.channel_timeout:
      self.handle_close()
    if self._is_waiting and not self.total_outbufs_len:
      self._is_waiting = False
      self.server.add_task(self)
    return super().writable()


class _Dispatcher:
  """Keeps threads apart, so that no kind of request waits for another.

  One answers what needs no model. One computes attention, which takes much
  memory, and the others wait for predictions.
  """

  def __init__(self, threads: int):
    counts = {"/predict": threads, "/attention": 1, "": 1}
    self._lanes = {path: task.ThreadedTaskDispatcher() for path in counts}
    for path, lane in self._lanes.items():
      lane.set_thread_count(counts[path])

  def add_task(self, task):
    path = getattr(task.requests[0], "path", "")  # Not of a broken request.
    self._lanes[path if path in self._lanes else ""].add_task(task)

  def shutdown(self):
    for lane in self._lanes.values():
      lane.shutdown()


def check_name(name: str) -> None:
  """Raises a ValueError unless a name can be that of a host, or an address."""
  if not name or re.search(r"[/*\s\[\]]|^[^:]*:[^:]*$", name):
    raise ValueError(
      f"--allowed_hosts={name}: expected a name without http:// and port"
    )


def serve(model: exported_model.ExportedModel, settings: Any) -> int:
  """Serves as predict.py's settings say until a signal; returns the status."""
  for name in settings.allowed_hosts:
    check_name(name)
  host, port = settings.host, settings.port
  family = socket.AF_INET6 if ":" in host else socket.AF_INET
  listener = socket.socket(family, socket.SOCK_STREAM)
  try:
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    listener.bind((host, port))
  except (OSError, OverflowError) as error:
    raise ValueError(f"--host={host} --port={port}: {error}") from None
  limits = Limits(
    body_bytes=settings.max_request_bytes,
    batch_tokens=settings.batch_size * model.card.max_seq_length,
    wait_seconds=settings.batch_wait_ms / 1000,
  )
  names = [host, "localhost", socket.gethostname(), *settings.allowed_hosts]
  server = make_server(Application(model, limits, names), listener, limits)
  for number in (signal.SIGTERM, signal.SIGINT):
    signal.signal(number, lambda *_: sys.exit())
  shown = f"[{host}]" if ":" in host else host
  print(f"http://{shown}:{listener.getsockname()[1]}/", flush=True)
  server.run()  # After SystemExit, answers under way have 5 s more.
  print("stopped", file=sys.stderr)
  return 0


def make_server(application: Application, listener, limits: Limits):
  """Makes the waitress server of a socket; its `run` serves."""
  # Warnings of many requests at once.
  logging.getLogger("waitress").setLevel(logging.ERROR)
  server = waitress.create_server(
    application,
    sockets=[listener],
    threads=0,  # The dispatcher has its own.
    outbuf_high_watermark=sys.maxsize,  # Above it, threads wait for readers.
    connection_limit=_MOST_CONNECTIONS,
    backlog=_MOST_CONNECTIONS,
    channel_timeout=limits.idle_seconds,
    max_request_body_size=limits.body_bytes + 1,  # It refuses this size.
    ident="bert",
    asyncore_use_poll=True,  # select() ends at 1024 files.
  )
  server.channel_class = _Channel
  server.task_dispatcher = _Dispatcher(limits.threads)
  return server
