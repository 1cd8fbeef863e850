"""Chromium without a window, driven as the W3C's WebDriver describes."""

import contextlib
import http.client
import json
import re
import shutil
import socket
import subprocess
import threading
import time

from bert.serving import http_server

# The page's server takes bodies of so many bytes, and so many requests at once.
LIMITS = http_server.Limits(100_000, 1000, 0.0)
ELEMENT = "element-6066-11e4-a52e-4f735466cecf"  # The standard's name.
CONTROL, ENTER = "\ue009", "\ue007"


def is_installed():
  return all(map(shutil.which, ("chromium", "chromedriver")))


def serve(model):
  """Serves an `ExportedModel` until the tests end; returns the address."""
  listener = socket.create_server(("127.0.0.1", 0))
  application = http_server.Application(model, LIMITS, ["localhost"])
  server = http_server.make_server(application, listener, LIMITS)
  threading.Thread(target=server.run, daemon=True).start()
  return f"http://127.0.0.1:{listener.getsockname()[1]}/"


def start_driver():
  """Starts chromedriver; returns its process and its port.

  It takes a free port of IPv4 and then the same one of IPv6. If another process
  has that one, it ends, and is started again.
  """
  for _ in range(5):
    driver = subprocess.Popen(
      ["chromedriver", "--port=0"], stdout=subprocess.PIPE, text=True
    )
    for line in driver.stdout:
      if found := re.search(r"successfully on port (\d+)", line):
        return driver, int(found[1])
    driver.wait()
  raise AssertionError("chromedriver found no port, five times")


class Browser:
  """A page in a window of its own; use it in a `with` statement."""

  def __init__(self, url, width=1000, dark=False):
    self._driver, self._port = start_driver()
    self._session = ""
    options = (
      "headless=new no-sandbox disable-gpu disable-dev-shm-usage".split()
    )
    options += ["force-dark-mode"] * dark
    always = {
      "goog:chromeOptions": {
        "args": options,
        "binary": shutil.which("chromium"),
      },
      "goog:loggingPrefs": {"browser": "ALL"},
    }
    with contextlib.ExitStack() as stack:
      stack.callback(self._driver.kill)  # Unless all of this succeeds.
      made = self.call("POST", "", {"capabilities": {"alwaysMatch": always}})
      self._session = f"/{made['sessionId']}"
      color = "dark" if dark else "light"
      scheme = {"name": "prefers-color-scheme", "value": color}
      size = {"width": width, "height": 900, "deviceScaleFactor": 1}
      self._command("setEmulatedMedia", features=[scheme])
      self._command("setDeviceMetricsOverride", mobile=False, **size)
      self.call("POST", "/url", {"url": url})
      stack.pop_all()

  def __enter__(self):
    return self

  def __exit__(self, *_):
    try:
      self.call("DELETE", "")
    finally:
      self._driver.kill()
      self._driver.wait()

  def call(self, method, path, body=None):
    """Sends a command; returns its value."""
    connection = http.client.HTTPConnection("127.0.0.1", self._port, timeout=60)
    text = json.dumps(body) if body is not None else None
    connection.request(method, f"/session{self._session}{path}", text)
    value = json.loads(connection.getresponse().read())["value"]
    connection.close()
    if isinstance(value, dict) and "error" in value:
      raise AssertionError(value["message"])
    return value

  def _command(self, name, **parameters):
    """Sends a command of Chromium's own."""
    body = {"cmd": f"Emulation.{name}", "params": parameters}
    return self.call("POST", "/goog/cdp/execute", body)

  def script(self, code, *values):
    """Returns what JavaScript returns."""
    body = {"script": code, "args": values}
    return self.call("POST", "/execute/sync", body)

  def wait(self, code):
    """Waits until an expression is true; returns its value."""
    end = time.monotonic() + 30
    while time.monotonic() < end:
      value = self.script(f"return {code}")
      if value:
        return value
      time.sleep(0.05)
    text = self.script("return document.body.innerText")
    raise AssertionError(f"not true: {code}\n{text}")

  def _element(self, selector):
    self.wait(f"document.querySelector({json.dumps(selector)})")
    body = {"using": "css selector", "value": selector}
    return self.call("POST", "/element", body)[ELEMENT]

  def click(self, selector):
    self.call("POST", f"/element/{self._element(selector)}/click", {})

  def type(self, selector, text):
    """Types into a box, or gives a file to a field."""
    body = {"text": text}
    self.call("POST", f"/element/{self._element(selector)}/value", body)

  def text(self, selector):
    return self.call("GET", f"/element/{self._element(selector)}/text")

  def faults(self):
    """Returns what the console says is wrong."""
    entries = self.call("POST", "/se/log", {"type": "browser"})
    return [entry["message"] for entry in entries if entry["level"] == "SEVERE"]
