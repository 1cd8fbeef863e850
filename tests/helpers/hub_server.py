"""A small Hugging Face Hub on the loopback address, for the real client.

It speaks the protocol that the client needs to fetch a snapshot: the commit of
a revision, the files of a commit, a file's metadata and bytes, with ranges.
"""

import contextlib
import hashlib
import http.server
import json
import os
import re
import subprocess
import sys
import threading
import urllib.parse

import paths

_API = re.compile(r"/api/models/([^/]+/[^/]+)/(revision|tree)/([^/?]+)")
_FILE = re.compile(r"/([^/]+/[^/]+)/resolve/([^/]+)/(.+)")


class Hub:
  """Repositories, faults to show, and the requests so far.

  Attributes:
    url: the HF_ENDPOINT.
    gated: names of repositories whose files need the token "secret".
    damaged: names of files that are sent with a wrong byte.
    cut: names of files, to be sent only up to so many bytes, once.
    stalled: names of files of which half is sent, and then no more.
    longer: names of files that are sent longer than HEAD says.
    status: what every request is answered with, if not 0.
    hides_commits: whether the commit of a revision is null.
    requests: "GET /path" of each request.
  """

  def __init__(self, url: str):
    self.url = url
    self.gated: set[str] = set()
    self.damaged: set[str] = set()
    self.cut: dict[str, int] = {}
    self.stalled: set[str] = set()
    self.longer: set[str] = set()
    self.status = 0
    self.hides_commits = False
    self.has_stalled = threading.Event()
    self.requests: list[str] = []
    self._commits: dict[tuple[str, str], dict[str, bytes]] = {}
    self._revisions: dict[tuple[str, str], str] = {}

  def push(self, repository, contents, *revisions):
    """Makes a commit of files, bytes by name, of main; returns its hash."""
    text = f"{repository} {sorted(contents.items())}"
    commit = hashlib.sha1(text.encode()).hexdigest()
    self._commits[repository, commit] = dict(contents)
    for revision in revisions or ["main"]:
      self._revisions[repository, revision] = commit
    self._revisions[repository, commit] = commit
    return commit

  def fetched(self):
    """Returns the names of files whose bytes were asked for; forgets them."""
    matches = map(re.compile(f"GET {_FILE.pattern}").match, self.requests)
    found = sorted(match[3] for match in matches if match)
    self.requests.clear()
    return found

  def has(self, repository):
    return any(repository == name for name, _ in self._commits)

  def find(self, repository, revision):
    """Returns the commit of a revision and its files, or None."""
    commit = self._revisions.get((repository, revision))
    return commit and (commit, self._commits[repository, commit])


def _etag(name, content):
  """Returns how git names a file, or git LFS if it holds weights."""
  if name.endswith((".safetensors", ".bin")) or ".data-" in name:
    return hashlib.sha256(content).hexdigest()
  return hashlib.sha1(b"blob %d\0" % len(content) + content).hexdigest()


class _Handler(http.server.BaseHTTPRequestHandler):
  protocol_version = "HTTP/1.1"
  hub: Hub

  def log_message(self, *args):
    pass

  def do_HEAD(self):  # noqa: N802
    self.do_GET()

  def do_GET(self):  # noqa: N802
    path = urllib.parse.unquote(self.path.partition("?")[0])
    self.hub.requests.append(f"{self.command} {path}")
    if self.hub.status:
      self._reply(self.hub.status, {})
      return
    # The revision of a pull request holds quoted slashes.
    for pattern, answer in ((_API, self._list), (_FILE, self._send_file)):
      if match := pattern.match(self.path.partition("?")[0]):
        answer(*map(urllib.parse.unquote, match.groups()))
        return
    self._fail(404, "EntryNotFound")

  def _reply(self, status, headers, content=b""):
    self.send_response(status)
    for name, value in {"Content-Length": len(content), **headers}.items():
      self.send_header(name, str(value))
    self.end_headers()
    if self.command != "HEAD":
      self.wfile.write(content)

  def _fail(self, status, code):
    self._reply(status, {"X-Error-Code": code, "X-Error-Message": code})

  def _find(self, repository, revision):
    if not self.hub.has(repository):
      self._fail(401, "RepoNotFound")  # As of a private one.
      return None
    found = self.hub.find(repository, revision)
    if not found:
      self._fail(404, "RevisionNotFound")
    return found

  def _list(self, repository, kind, revision):
    if not (found := self._find(repository, revision)):
      return
    commit, contents = found
    answer = {"id": repository, "sha": commit}
    if self.hub.hides_commits:
      answer["sha"] = None
    if kind == "tree":
      answer = [
        {"type": "file", "path": n, "size": len(c), "oid": _etag(n, c)}
        for n, c in contents.items()
      ]
    content = json.dumps(answer).encode()
    self._reply(200, {"Content-Type": "application/json"}, content)

  def _send_file(self, repository, revision, name):
    if not (found := self._find(repository, revision)):
      return
    commit, contents = found
    is_known = self.headers.get("Authorization") == "Bearer secret"
    if repository in self.hub.gated and not is_known:
      self._fail(403, "GatedRepo")
      return
    if name not in contents:
      self._fail(404, "EntryNotFound")
      return
    content, headers = contents[name], {"X-Repo-Commit": commit}
    headers["ETag"] = f'"{_etag(name, content)}"'
    first = re.match(r"bytes=(\d+)-", self.headers.get("Range", ""))
    if first:
      size = len(content)
      headers["Content-Range"] = f"bytes {first[1]}-{size - 1}/{size}"
      content = content[int(first[1]) :]
    if name in self.hub.damaged:
      content = content[:-1] + bytes([content[-1] ^ 1])
    if name in self.hub.longer and self.command == "GET":
      content += b"more"
    most = None
    if self.command == "GET":
      most = self.hub.cut.pop(name, None)
    headers["Content-Length"] = len(content)
    if name in self.hub.stalled and self.command == "GET":
      self._reply(200, headers, content[: len(content) // 2])
      self.hub.has_stalled.set()
      self.rfile.read()  # Until the client is gone.
      return
    self._reply(206 if first else 200, headers, content[:most])
    if most is not None:
      self.close_connection = True


@contextlib.contextmanager
def start():
  """Runs a `Hub` without repositories while the body runs."""
  handler = type("Handler", (_Handler,), {})
  server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler)
  handler.hub = Hub(f"http://127.0.0.1:{server.server_port}")
  thread = threading.Thread(target=server.serve_forever, daemon=True)
  thread.start()
  try:
    yield handler.hub
  finally:
    server.shutdown()
    server.server_close()


def environment(hub, cache, **others):
  """Returns the variables with which a process asks this hub alone."""
  return {
    **{k: v for k, v in os.environ.items() if not k.startswith("HF_")},
    "HF_ENDPOINT": hub.url,
    "HF_HOME": str(cache),
    "HF_HUB_DISABLE_TELEMETRY": "1",
    "NO_PROXY": "127.0.0.1",
    **others,
  }


def run_python(code, *arguments, variables):
  """Runs code in a process of its own, in the folder of HF_HOME."""
  return subprocess.run(
    [sys.executable, "-c", code, *map(str, arguments)],
    capture_output=True,
    text=True,
    cwd=variables["HF_HOME"],
    env={**variables, "PYTHONPATH": str(paths.ROOT)},
    timeout=120,
  )
