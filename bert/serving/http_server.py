"""Serves an exported model over HTTP: a page for people, JSON for programs.

waitress reads and writes: bounded threads, and a strict parser. One thread
computes, in batches of the requests that have come in by then, which take turns
after each of them; attention is computed beside it, for one request at a time.

Python runs one thread at a time, so a long text must neither be in one call of
C for long nor be worked at by many threads: `_Dispatcher` gives large bodies
threads of their own, `_dump` writes long answers in parts.
"""

import collections
from collections.abc import Callable, Iterator, Sequence
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

from waitress import channel, parser, server, task, utilities

from bert.data import packing, progress
from bert.serving import answer_maker, exported_model, request_lines

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
_LARGE_BODY = 1 << 15  # Bytes; what has more may take seconds.
_MOST_ITEMS = 1024  # Items of a list, written in one call.
# Bytes. waitress joins header lines of one name by copying all of them again
# for each line, so that the time grows with the square of their size.
_MOST_HEADER_BYTES = 1 << 15
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


class _Job:
  """The inputs of a body, and the outputs that have been computed of them."""

  def __init__(self, rows: Sequence[packing.PackedIds], sizes: list[int]):
    self.rows, self.sizes = rows, sizes
    # Those to compute, the longest at the end: they are taken from there, so
    # that inputs of similar length follow each other.
    self.left = sorted(range(len(rows)), key=lambda index: sizes[index])
    self.tokens = sum(sizes)  # Tokens of those inputs.
    self.outputs: list[answer_maker.Outputs] = [{}] * len(rows)
    self.missing = len(rows)  # Outputs that are still to come.
    self.result: futures.Future = futures.Future()

  @property
  def length(self) -> int:
    """The length of the next input."""
    return self.sizes[self.left[-1]]

  def take(self) -> tuple["_Job", int]:
    """Takes the next input; returns the job and the input's index in `rows`."""
    self.tokens -= self.length
    return self, self.left.pop()


class Batcher:
  """Computes the inputs of many threads in one thread, in batches.

  Bodies take turns after each call of the engine: a body of a thousand inputs
  makes one of a single input wait for one call, not for a thousand inputs.
  """

  def __init__(self, model: exported_model.ExportedModel, limits: Limits):
    self._model = model
    self._limits = limits
    self._new: queue.Queue[_Job] = queue.Queue()
    self._jobs: collections.deque[_Job] = collections.deque()
    threading.Thread(target=self._run, daemon=True).start()

  def compute(
    self, rows: Sequence[packing.PackedIds]
  ) -> list[answer_maker.Outputs]:
    """Waits for the outputs of a body's inputs; a TimeoutError without them."""
    if not rows:
      return []
    job = _Job(rows, list(map(self._model.size, rows)))
    self._new.put(job)

    # Whoever no longer waits cancels, and `_collect` drops the job.
    try:
      return job.result.result(self._limits.answer_seconds)
    finally:
      job.result.cancel()  # Has an effect only if it was not waited for.

  def _run(self):
    while True:
      self._collect()
      if self._jobs:
        self._compute(self._choose())

  def _collect(self):
    """Takes new jobs; waits for the first, and a little longer for others."""
    if not self._jobs:
      self._jobs.append(self._new.get())

    # Once there is enough for a batch, only jobs are taken that are there.
    deadline = time.monotonic() + self._limits.wait_seconds
    tokens = sum(job.tokens for job in self._jobs)
    with contextlib.suppress(queue.Empty):
      while True:
        is_enough = tokens >= self._limits.batch_tokens
        left = 0.0 if is_enough else max(0.0, deadline - time.monotonic())
        self._jobs.append(self._new.get(timeout=left))
        tokens += self._jobs[-1].tokens

    # Without the jobs that have failed, or that nobody waits for.
    live = (job for job in self._jobs if job.left and not job.result.done())
    self._jobs = collections.deque(live)

  def _choose(self) -> list[tuple[_Job, int]]:
    """Takes the inputs of the next call of the engine.

    The job that is the first in line decides on their length and goes to the
    end. All jobs whose next input is at most as long, and not much shorter, add
    one in turn until there is no more room.
    """
    first = self._jobs.popleft()
    self._jobs.append(first)
    length = first.length
    chosen = [first.take()]

    # All inputs of a call are padded to one length. What is less than half as
    # long waits for its own turn: it would be padding for the most part.
    room = self._limits.batch_tokens // length
    line = self._jobs.copy()
    while line and len(chosen) < room:
      job = line.popleft()
      if job.left and length / 2 <= job.length <= length:
        chosen.append(job.take())
        line.append(job)
    self._jobs = collections.deque(job for job in self._jobs if job.left)
    return chosen

  def _compute(self, chosen):
    """Computes inputs; only the job of one that fails gets its error."""
    try:
      computed = self._model.compute([job.rows[index] for job, index in chosen])
    except Exception as error:
      # Which one it was is not known: each is tried alone.
      if len(chosen) > 1:
        for item in chosen:
          self._compute([item])
        return
      [(job, _)] = chosen
      with contextlib.suppress(futures.InvalidStateError):
        job.result.set_exception(error)
      return

    # The last output of a job wakes the thread that waits for it.
    for (job, index), outputs in zip(chosen, computed, strict=True):
      job.outputs[index] = outputs
      job.missing -= 1
      if not job.missing:
        with contextlib.suppress(futures.InvalidStateError):  # Nobody waits.
          job.result.set_result(job.outputs)


class _RefusedError(Exception):
  """An error that is answered with its arguments, a status and a message."""


@contextlib.contextmanager
def _refusing() -> Iterator[None]:
  """Answers a ValueError with 400: what is read within is the sender's.

  Elsewhere an error is the model's or this program's, and answered with 500.
  """
  try:
    yield
  except ValueError as error:
    raise _RefusedError(400, str(error)) from None


class Application:
  """The page and the actions behind it as WSGI, for a host of these names."""

  def __init__(
    self,
    model: exported_model.ExportedModel,
    limits: Limits,
    names: Sequence[str],
  ):
    self._model = model
    # Names are compared in lower case, without the dot of the DNS's root.
    self._names = {name.lower().rstrip(".") for name in names}
    self._batcher = Batcher(model, limits)
    self._limits = limits

    # By method and path. An action returns what becomes JSON, or bytes and
    # their type.
    gets: dict[str, Callable] = {
      **dict.fromkeys(_PAGE, lambda environ: _read_page(environ["PATH_INFO"])),
      "/model": lambda environ: self._describe(),
      "/health": lambda environ: {"status": "ok"},
    }
    posts = {"/predict": self._predict, "/attention": self._attend}
    self._actions = {"GET": gets, "HEAD": gets, "POST": posts}

  def __call__(self, environ, start_response) -> list[bytes]:
    status, content = self._respond(environ)
    content_type = "application/json"
    if isinstance(content, tuple):
      content, content_type = content
    else:
      content = "".join(_dump(content)).encode()

    # A browser must not take an answer, which repeats texts, for a script.
    headers = [
      ("Content-Type", content_type),
      ("Content-Length", str(len(content))),
      ("X-Content-Type-Options", "nosniff"),
      ("Content-Security-Policy", _POLICY),
    ]
    if status == 405:  # HTTP asks for the methods that would do.
      path = environ["PATH_INFO"]
      methods = (name for name, acts in self._actions.items() if path in acts)
      headers.append(("Allow", ", ".join(methods)))

    start_response(f"{status} {http.HTTPStatus(status).phrase}", headers)
    return [] if environ["REQUEST_METHOD"] == "HEAD" else [content]

  def _respond(self, environ):
    try:
      self._check_sender(environ)
      return 200, self._find_action(environ)(environ)
    except _RefusedError as error:
      status, message = error.args
    except TimeoutError:
      status = 503
      message = "too many requests are waiting, or one takes too long"
    except Exception as error:
      # A fault of ours: its text is for our log, and not for a stranger.
      progress.note(f"error: {environ['PATH_INFO']}: {error!r}")
      status, message = 500, "internal error"
    return status, {"error": message}

  def _check_sender(self, environ):
    """Refuses requests that come from the pages of other sites.

    After DNS rebinding their Origin is the Host, but not one of our names.
    """
    # The name by which the sender called this server.
    host = environ.get("HTTP_HOST", "")
    if not self._is_ours(host):
      message = f"Host {host!r:.80} is not this server; see --allowed_hosts"
      raise _RefusedError(403, message)

    # The site of the page that sends; programs do not say any.
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
    method, path = environ["REQUEST_METHOD"], environ["PATH_INFO"]
    actions = self._actions.get(method, {})
    if path in actions:
      return actions[path]

    # The message shows how to ask, as people try addresses by hand.
    if path in self._actions["POST"]:
      inputs = self._model.maker.is_required
      texts = {n: ["..."] * 2 if n == "choices" else "..." for n in inputs}
      message = f"{path} takes POST with JSON, such as {json.dumps(texts)}"
      raise _RefusedError(405, message)
    if path in self._actions["GET"]:
      raise _RefusedError(405, f"{path} takes GET")
    listing = f"; {method} knows {', '.join(actions)}" if actions else ""
    raise _RefusedError(404, f"nothing here{listing}")

  def _describe(self) -> dict[str, Any]:
    card, inputs = self._model.card, self._model.maker.is_required.items()
    # The page draws itself by these.
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
    maker = self._model.maker
    with _refusing():
      content = _read_json(environ)
      is_list = isinstance(content, dict) and "inputs" in content
      inputs = content["inputs"] if is_list else [content]
      if not isinstance(inputs, list) or len(inputs) > _MOST_REQUESTS:
        raise ValueError(f"inputs: expected a list of {_MOST_REQUESTS} at most")

      # Beside a list it holds for all inputs that name no prompt themselves.
      if is_list and content.get("prompt_name") is not None:
        maker = maker.with_prompt(content["prompt_name"])
      if is_list:
        requests = maker.encode_all(inputs)  # An error says which one is wrong.
      else:
        requests = [maker.encode(content)]

    # The thread waits here for its rows, which are computed with those of
    # other requests.
    rows = [row for request in requests for row in request.rows]
    answers = maker.answer_all(requests, self._batcher.compute(rows))
    return {"outputs": answers} if is_list else answers[0]

  def _attend(self, environ):
    with _refusing():
      content = _read_json(environ)
      request = self._model.maker.encode(content)
      layer, head = content.get("layer"), content.get("head")
      self._model.check_head(request, layer, head)
    return self._model.attend(request, layer, head)


def _dump(value: Any) -> Iterator[str]:
  """Yields the parts of JSON, between which other threads run."""
  if isinstance(value, dict):
    for number, (key, item) in enumerate(value.items()):
      yield f"{', ' if number else '{'}{json.dumps(key)}: "
      yield from _dump(item)
    yield "}" if value else "{}"
  # A vector, a number, a text, or lists of lists (masks, a head's attention):
  # one call writes it.
  elif not isinstance(value, list) or not isinstance(
    next(iter(value), 0), dict
  ):
    yield json.dumps(value, ensure_ascii=False)
  # Such as the answers to a body: each may be long.
  elif len(value) <= _MOST_ITEMS:
    for number, item in enumerate(value):
      yield ", " if number else "["
      yield from _dump(item)
    yield "]"
  # Such as the words of a long text: each is short.
  else:
    for start in range(0, len(value), _MOST_ITEMS):
      items = value[start : start + _MOST_ITEMS]
      yield ", " if start else "["
      yield json.dumps(items, ensure_ascii=False)[1:-1]
    yield "]"


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
    # What is left of a refused body is read and dropped.
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

    # The answer has been sent: the next request gets a thread.
    if self._is_waiting and not self.total_outbufs_len:
      self._is_waiting = False
      self.server.add_task(self)  # pyright: ignore
    return super().writable()


class _Dispatcher:
  """Keeps threads apart, so that no kind of request waits for another.

  One answers what needs no model. One computes attention, which takes much
  memory, two answer large bodies, and the others wait for predictions.
  """

  def __init__(self, threads: int):
    counts = {"/predict": threads, "large": 2, "/attention": 1, "": 1}
    self._lanes = {path: task.ThreadedTaskDispatcher() for path in counts}
    for path, lane in self._lanes.items():
      lane.set_thread_count(counts[path])

  def add_task(self, connection):
    request = connection.requests[0]
    path = getattr(request, "path", "")  # Not of a broken request.
    if path == "/predict" and len(request.body_rcv or "") > _LARGE_BODY:
      path = "large"
    self._lanes[path if path in self._lanes else ""].add_task(connection)

  def shutdown(self):
    for lane in self._lanes.values():
      lane.shutdown()


def check_name(name: str) -> None:
  """Raises a ValueError unless a name can be that of a host, or an address."""
  # One colon alone is before a port; an address of IPv6 has several.
  if not name or re.search(r"[/*\s\[\]]|^[^:]*:[^:]*$", name):
    raise ValueError(
      f"--allowed_hosts={name}: expected a name without http:// and port"
    )


def serve(model: exported_model.ExportedModel, settings: Any) -> int:
  """Serves as predict.py's settings say until a signal; returns the status."""
  for name in settings.allowed_hosts:
    check_name(name)

  # Bound here, not by waitress: a port in use is an error of these flags.
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

  # It listens from here on, so that the address below can be asked at once.
  listening = make_server(Application(model, limits, names), listener, limits)
  for number in (signal.SIGTERM, signal.SIGINT):
    signal.signal(number, lambda *_: sys.exit())
  url_host = f"[{host}]" if ":" in host else host
  print(f"http://{url_host}:{listener.getsockname()[1]}/", flush=True)

  # After SystemExit, answers under way have up to 5 s more in each lane.
  listening.run()
  progress.note("stopped")
  return 0


def make_server(application: Application, listener, limits: Limits):
  """Makes the waitress server of a socket; its `run` serves.

  Args:
    application: answers the requests.
    listener: a socket that is bound to its address.
    limits: of bodies, connections and threads.
  """
  # Warnings of many requests at once.
  logging.getLogger("waitress").setLevel(logging.ERROR)
  made: Any = server.create_server(
    application,
    sockets=[listener],
    threads=0,  # The dispatcher has its own.
    outbuf_high_watermark=sys.maxsize,  # Above it, threads wait for readers.
    connection_limit=_MOST_CONNECTIONS,
    backlog=_MOST_CONNECTIONS,
    channel_timeout=limits.idle_seconds,
    max_request_body_size=limits.body_bytes + 1,  # Refused from here on.
    max_request_header_size=_MOST_HEADER_BYTES,
    ident="bert",
    asyncore_use_poll=True,  # select() ends at 1024 files.
  )

  # waitress has no arguments for these two.
  made.channel_class = _Channel
  made.task_dispatcher = _Dispatcher(limits.threads)
  return made
