"""Hostile and unlucky clients, over raw sockets."""

from concurrent import futures
import contextlib
import json
import re
import socket
import threading
import time

import pytest

from bert.serving import http_server
import tiny_models

LIMITS = http_server.Limits(
  body_bytes=100_000, batch_tokens=1000, wait_seconds=0.003
)
HUGE = b'{"text": "a", "layer": "huge", "head": 0}'


class Echo:
  """Encodes as a real model, and answers with the number of tokens."""

  def __init__(self, maker):
    self.maker, self.card = maker, maker.card
    self.threads, self.calls = set(), []
    self.attending = self.most = 0
    maker.answer = lambda request, outputs: outputs[0]

  def size(self, row):
    return len(row.input_ids)

  def compute(self, rows):
    self.threads.add(threading.get_ident())
    self.calls.append(len(rows))
    words = [self.maker.tokens(row)[1] for row in rows]
    if "awful" in words:
      raise ValueError("awful is what one of them wrote")
    if "poor" in words:
      time.sleep(0.1)
    return [{"tokens": len(row.input_ids)} for row in rows]

  def check_head(self, request, layer, head):
    if layer == "broken":
      raise ValueError("layer is broken")

  def attend(self, request, layer, head):
    if layer == "awful":
      raise ValueError("awful is what the engine says")
    self.attending += 1
    time.sleep(0.001)
    self.most = max(self.most, self.attending)
    self.attending -= 1
    sizes = {"large": 1_000_000, "huge": 40_000_000}
    return {"attention": "x" * sizes.get(layer, 1)}


@pytest.fixture(scope="module")
def model(tmp_path_factory):
  folder = tmp_path_factory.mktemp("model")
  return Echo(tiny_models.make_maker(folder, ["text"]))


@pytest.fixture
def own_model(tmp_path):
  """A model that no server of another test has used."""
  return Echo(tiny_models.make_maker(tmp_path, ["text"]))


def start_server(model, limits):
  """Returns the server and its port."""
  listener = socket.create_server(("127.0.0.1", 0))
  application = http_server.Application(model, limits, ["localhost", "Here"])
  server = http_server.make_server(application, listener, limits)
  threading.Thread(target=server.run, daemon=True).start()
  return server, listener.getsockname()[1]


def start(model, limits):
  return start_server(model, limits)[1]


@pytest.fixture(scope="module")
def port(model):
  return start(model, LIMITS)


def request(path="/predict", body=b'{"text": "the film"}', *lines, host="here"):
  head = [f"POST {path} HTTP/1.1", f"Host: {host}", *lines]
  if not any("ength" in line or "coding" in line for line in lines):
    head.append(f"Content-Length: {len(body)}")
  return "\r\n".join([*head, "", ""]).encode() + body


def exchange(port, *parts):
  """Sends bytes; returns all that comes until nothing more does."""
  with socket.create_connection(("127.0.0.1", port), 30) as client:
    for part in parts:
      client.sendall(part)
    client.shutdown(socket.SHUT_WR)
    return b"".join(iter(lambda: client.recv(1 << 16), b""))


def assert_refused(port, model, sent, *expected):
  """Checks that bytes get one answer, of such a status, and no model."""
  before = len(model.calls)
  [status] = statuses(exchange(port, sent))
  assert status in expected
  assert len(model.calls) == before


def statuses(answer):
  return list(map(int, re.findall(rb"HTTP/1\.[01] (\d{3}) ", answer)))


def together(function, values):
  """Calls a function with all values at once; returns the results."""
  with futures.ThreadPoolExecutor(len(values)) as pool:
    return list(pool.map(function, values))


def test_one_request_after_the_other(port):
  answer = exchange(port, request(), request(body=b'{"text": "film"}'))
  assert statuses(answer) == [200, 200]
  assert answer.endswith(b'{"tokens": 3}') and b'{"tokens": 4}' in answer


@pytest.mark.parametrize(
  ("path", "status"), [("/unknown", 404), ("/health", 405), ("/", 405)]
)
def test_a_body_for_another_address_is_not_the_next_request(
  port, model, path, status
):
  hidden = request(body=b'{"text": "smuggled"}')
  assert_refused(port, model, request(path, hidden), status)


@pytest.mark.parametrize("method", [b"GET", b"HEAD", b"PUT"])
def test_another_method_is_told_what_to_send(port, method):
  asked = b" /predict HTTP/1.1\r\nHost: here\r\nContent-Length: 0\r\n\r\n"
  answer = exchange(port, method + asked)
  assert answer.startswith(b"HTTP/1.1 405 Method Not Allowed\r\n")
  assert b"\r\nAllow: POST\r\n" in answer
  if method != b"HEAD":
    message = json.loads(answer.partition(b"\r\n\r\n")[2])["error"]
    assert message == '/predict takes POST with JSON, such as {"text": "..."}'


@pytest.mark.parametrize(
  "lines",
  [
    ("Content-Length: 20", "Content-Length: 0"),
    ("Content-Length: 20", "Content-Length: 20"),
    ("Transfer-Encoding: chunked", "Content-Length: 20"),
    ("Content-Length: 0", "Transfer-Encoding: chunked"),
    ("Content-Length : 20",),
    *([f"Content-Length: {x}"] for x in ("0, 20", "+20", "-1", "9" * 5000)),
  ],
)
def test_two_or_strange_lengths_are_refused(port, model, lines):
  sent = request("/predict", b'{"text": "the film"}', *lines)
  assert_refused(port, model, sent, 400)


@pytest.mark.parametrize("version", ["1.0", "1.1"])
@pytest.mark.parametrize("encoding", ["chunked", "identity"])
def test_a_request_of_two_lengths_hides_no_other(
  port, model, version, encoding
):
  hidden = b"0\r\n\r\n" + request(body=b'{"text": "smuggled"}')
  lines = ("Content-Length: 5", f"Transfer-Encoding: {encoding}")
  sent = request("/predict", hidden, *lines, "Connection: keep-alive")
  sent = sent.replace(b"HTTP/1.1", b"HTTP/" + version.encode(), 1)
  # 501: HTTP/1.1 with an encoding that waitress does not know. Else 400.
  assert_refused(port, model, sent, 400, 501)


@pytest.mark.parametrize(
  ("body", "encoding", "end"),
  [
    (b'14\r\n{"text": "the film"}\r\n0\r\n\r\n', "chunked", b's": 4}'),
    (b"zz\r\n", "chunked", b"400 Bad Request"),
    (b"zz\r\n", "gzip", b"501 Not Implemented"),
  ],
)
def test_other_encodings_are_refused_and_chunks_taken(
  port, body, encoding, end
):
  line = f"Transfer-Encoding: {encoding}"
  assert end in exchange(port, request("/predict", body, line))


@pytest.mark.parametrize(
  ("host", "status"),
  [
    *((x, 200) for x in ("here", "LOCALHOST:99", "192.0.2.7:80", "[::1]:80")),
    *((x, 403) for x in ("evil.example", "here.evil.example")),
    *((x, 403) for x in ("evil.example:here", "[", "")),
  ],
)
def test_names_of_other_hosts_are_refused(port, host, status):
  assert statuses(exchange(port, request(host=host))) == [status]


@pytest.mark.parametrize("path", ["/predict", "/attention"])
def test_pages_of_other_sites_are_refused(port, model, path):
  body = b'{"text": "a", "layer": 0, "head": 0}'
  for origin in ("http://here", "https://here"):
    answer = exchange(port, request(path, body, f"Origin: {origin}"))
    assert statuses(answer) == [200]
  for origin in ("http://here:81", "http://evil.example", "null"):
    sent = request(path, body, f"Origin: {origin}")
    assert_refused(port, model, sent, 403)


def test_a_large_body_is_refused_in_words(port):
  body = b"x" * 10_000_000
  answer = exchange(port, request(body=body))
  assert statuses(answer) == [413]
  # 100,000 bytes are allowed; waitress names the first size that is not.
  assert b"exceeds max_body of 100001" in answer
  answer = exchange(port, request("/predict", b"", f"Content-Length: {10**15}"))
  assert answer == b""  # It left before that many came.


def test_all_answers_come_from_one_thread(own_model):
  port = start(own_model, LIMITS)
  together(lambda _: exchange(port, request()), range(8))
  assert len(own_model.threads) == 1


def test_attention_is_computed_for_one_at_a_time(own_model):
  port = start(own_model, LIMITS)
  body = request("/attention", b'{"text": "", "layer": 0, "head": 0}')
  together(lambda _: exchange(port, body), range(8))
  assert own_model.most == 1


def test_a_body_has_1024_inputs_at_most(port, model):
  inputs = [{"text": "a"}] * 1024
  answer = exchange(port, request(body=json.dumps({"inputs": inputs}).encode()))
  assert statuses(answer) == [200]
  body = json.dumps({"inputs": [*inputs, {"text": "a"}]}).encode()
  assert_refused(port, model, request(body=body), 400)


def test_a_prompt_beside_inputs_is_of_all(port, model):
  body = b'{"inputs": [{"text": "a"}], "prompt_name": "query"}'
  # This model has none; tests/test_sentence_vectors.py asks one of vectors.
  assert_refused(port, model, request(body=body), 400)
  body = b'{"inputs": [{"text": "a"}], "prompt_name": null, "id": 7}'
  assert statuses(exchange(port, request(body=body))) == [200]


def test_a_request_that_fails_fails_no_other(port):
  body = b'{"inputs": [{"text": "%s"}, {"text": "the"}]}'
  failed, *others = together(
    lambda word: exchange(port, request(body=body % word)),
    [b"awful"] + [b"good"] * 20,
  )
  # What the engine says is no fault of the sender's.
  assert statuses(failed) == [500] and b"internal error" in failed
  assert list(map(statuses, others)) == [[200]] * 20
  for layer, status in (("awful", 500), ("broken", 400)):
    body = b'{"text": "a", "layer": "%s"}' % layer.encode()
    assert statuses(exchange(port, request("/attention", body))) == [status]


def test_who_waits_too_long_gets_an_error(model):
  port = start(model, LIMITS._replace(answer_seconds=0.01))
  answer = exchange(port, request(body=b'{"text": "poor"}'))
  assert statuses(answer) == [503]
  assert b"too many requests are waiting, or one takes too" in answer


@pytest.mark.parametrize("path", ["/health", "/nothing"])
def test_an_answer_to_head_has_no_body(port, path):
  line = f" {path} HTTP/1.1\r\nHost: here\r\n\r\n".encode()
  got, head = exchange(port, b"GET" + line), exchange(port, b"HEAD" + line)
  assert head.endswith(b"\r\n\r\n")
  assert statuses(head) == statuses(got)
  twice = exchange(port, (b"HEAD" + line) * 2)
  assert re.search(rb"\r\n\r\nHTTP/1.1 \d+ ", twice)


def test_200_clients_share_64_threads_and_none_is_mixed_up(port):
  def ask(number):
    count = number % 9
    body = b'{"text": "%s"}' % b" ".join([b"a"] * count)
    answer = exchange(port, *[request(body=body)] * 3)
    return answer.count(b'{"tokens": %d}' % (count + 2))

  assert together(ask, range(200)) == [3] * 200
  # Other tests' servers have threads, too, but all servers number theirs alike,
  # so that a set of names counts one server's.
  names = {t.name for t in threading.enumerate()}
  assert 0 < sum("waitress" in name for name in names) <= 64


def test_slow_readers_and_writers_hold_up_nobody(port):
  body = b'{"text": "a", "layer": "large", "head": 0}'
  slow = []
  for number in range(160):  # Twice more than there are threads.
    client = socket.socket()
    client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 2048)
    client.connect(("127.0.0.1", port))
    # From half of them the last byte is to come.
    is_reader = number < 80
    client.sendall(request("/attention", body) if is_reader else request()[:-1])
    slow.append(client)
  time.sleep(0.2)
  # Within its 30 seconds, not after the 60 that close who is silent.
  assert statuses(exchange(port, request())) == [200]
  slow[-1].sendall(b"}")
  assert slow[-1].recv(100).startswith(b"HTTP/1.1 200")
  head, _, rest = slow[0].recv(1 << 16).partition(b"\r\n\r\n")
  length = int(head.split(b"Content-Length: ")[1].split(b"\r\n")[0])
  while len(rest) < length:
    rest += slow[0].recv(1 << 16)
  assert len(json.loads(rest)["attention"]) == 1_000_000
  for client in slow:
    client.close()


def ask_without_reading(port):
  """Returns four clients, once the first of three answers comes to each."""
  clients = [socket.create_connection(("127.0.0.1", port)) for _ in range(4)]
  for client in clients:
    client.sendall(request("/attention", HUGE) * 3)
  for client in clients:
    assert client.recv(1, socket.MSG_PEEK) == b"H"
  return clients


def test_pipelined_requests_whose_answers_are_not_read_hold_no_thread(model):
  server, port = start_server(model, LIMITS._replace(threads=2))
  clients = ask_without_reading(port)
  for _ in range(5):
    assert statuses(exchange(port, request())) == [200]
  assert len(server.active_channels) >= 4  # They still wait.
  for client in clients:
    client.close()


def test_pipelined_requests_whose_answers_are_not_read_are_closed(model):
  server, port = start_server(model, LIMITS._replace(idle_seconds=1))
  clients = ask_without_reading(port)
  deadline = time.monotonic() + 120  # Only if they never are.
  while server.active_channels and time.monotonic() < deadline:
    time.sleep(0.01)
  for client in clients:
    read = sum(map(len, iter(lambda c=client: c.recv(1 << 20), b"")))
    assert read < 40_000_000
    client.close()


def test_pipelined_requests_are_answered_to_a_slow_reader(model):
  port = start(model, LIMITS._replace(threads=1, idle_seconds=2))
  with socket.create_connection(("127.0.0.1", port)) as client:
    client.sendall(request("/attention", HUGE) * 3)
    client.shutdown(socket.SHUT_WR)
    time.sleep(1)
    read = 0
    while part := client.recv(1 << 20):
      read += len(part)
      time.sleep(0.01)
  assert read > 120_000_000


def test_what_needs_no_model_waits_for_none(tmp_path):
  model = WaitingModel(tmp_path)
  port = start(model, LIMITS._replace(threads=2))
  with futures.ThreadPoolExecutor() as pool:
    waiting = [pool.submit(exchange, port, request()) for _ in range(4)]
    time.sleep(0.2)
    health = b"GET /health HTTP/1.1\r\nHost: here\r\n\r\n"
    assert statuses(exchange(port, health)) == [200]
    model.go.set()  # The others have waited until now.
    assert [statuses(w.result()) for w in waiting] == [[200]] * 4


def test_connections_above_the_limit_wait_their_turn(model, monkeypatch):
  monkeypatch.setattr(http_server, "_MOST_CONNECTIONS", 5)
  server, port = start_server(model, LIMITS)
  address = ("127.0.0.1", port)
  clients = [socket.create_connection(address, 30) for _ in range(9)]
  for client in clients:
    client.sendall(request())
  time.sleep(0.1)  # A server without a limit would accept all of them.
  for client in clients:
    assert len(server.active_channels) <= 5
    assert client.recv(1 << 16).startswith(b"HTTP/1.1 200 OK\r\n")
    client.close()


def test_clients_that_leave_harm_nobody(port):
  for part in (request()[:30], request()[:-5], request()):
    with socket.create_connection(("127.0.0.1", port)) as client:
      client.sendall(part)
  assert statuses(exchange(port, request())) == [200]


class WaitingModel(Echo):
  """Computes nothing before it may go."""

  def __init__(self, folder):
    super().__init__(tiny_models.make_maker(folder, ["text"]))
    self.begun, self.go = threading.Event(), threading.Event()

  def compute(self, rows):
    self.begun.set()
    self.go.wait(10)
    return super().compute(rows)

  def rows(self, *texts):
    return [self.maker.encode({"text": text}).rows[0] for text in texts]


def compute_together(model, tokens, *bodies):
  """Computes bodies that come, one by one, while another is computed.

  Returns how many inputs of each text are in the calls after that.
  """
  batcher = http_server.Batcher(model, http_server.Limits(9, tokens, 0.0))
  with futures.ThreadPoolExecutor(len(bodies) + 1) as pool:
    pool.submit(batcher.compute, model.rows("a"))
    assert model.begun.wait(10)
    for number, body in enumerate(bodies):
      pool.submit(batcher.compute, model.rows(*body))
      while batcher._new.qsize() <= number:
        time.sleep(0.01)
    model.go.set()
  return model.calls[1:]


@pytest.mark.parametrize(("tokens", "calls"), [(1000, [4]), (8, [2, 2])])
def test_requests_that_wait_are_answered_in_batches(tmp_path, tokens, calls):
  bodies = [["a the"]] * 4  # Four tokens each.
  found = compute_together(WaitingModel(tmp_path), tokens, *bodies)
  assert found == calls


def test_bodies_take_turns_after_each_call(tmp_path):
  model, order = WaitingModel(tmp_path), []

  def compute(rows):
    order.append(sorted(len(row.input_ids) for row in rows))
    return WaitingModel.compute(model, rows)

  model.compute = compute
  large, small = ["a the film"] * 6, ["a", "a"]
  compute_together(model, 10, large, small, small)
  # The small bodies wait for one call, and go together: 3 tokens are not less
  # than half of 5, but 10 tokens are two inputs of 5.
  assert order == [[3], [3, 5], [3, 3, 3], [5, 5], [5, 5], [5]]


def test_an_answer_that_nobody_waits_for_is_not_computed(tmp_path):
  model = WaitingModel(tmp_path)
  batcher = http_server.Batcher(model, http_server.Limits(9, 3, 0.0, 1.0))
  with pytest.raises(TimeoutError):
    batcher.compute(model.rows("a", "a", "a"))
  model.go.set()
  assert batcher.compute(model.rows("the film")) == [{"tokens": 4}]
  assert model.calls == [1, 1]


@pytest.mark.parametrize(
  "value",
  [
    {"a": [], "b": "\u4e2d", "c": None, "d": [0.5], "e": {"f": 1}},
    {"outputs": [{"words": [{"n": n} for n in range(3000)]}, {}]},
    [1, {"a": 2}],
    {},
  ],
)
def test_long_answers_are_the_same_json(value):
  found = "".join(http_server._dump(value))
  assert found == json.dumps(value, ensure_ascii=False)


def test_many_lines_of_a_header_are_refused(port, model):
  before, answer = len(model.calls), b""
  with contextlib.suppress(OSError):  # It reads no more, and has closed.
    answer = exchange(port, request("/predict", b"{}", *["a: b"] * 8000))
  assert statuses(answer) in ([], [431])
  assert len(model.calls) == before


def test_other_names_of_the_host_are_names():
  for good in ("a.b", "a.b.", "::1", "192.0.2.7"):
    http_server.check_name(good)
  for bad in ("http://a.b", "a.b:80", "a.b/c", "", "*", " x"):
    message = re.escape(f"--allowed_hosts={bad}: expected")
    with pytest.raises(ValueError, match=message):
      http_server.check_name(bad)


def test_headers_of_the_page(port):
  page = exchange(port, b"GET / HTTP/1.1\r\nHost: here\r\n\r\n")
  assert b"\r\nContent-Security-Policy: default-src 'self';" in page
  assert b"\r\nX-Content-Type-Options: nosniff\r\n" in page
