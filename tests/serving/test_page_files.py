"""The files of the server's page, read without a browser, and its driver."""

import browser
import paths


def test_policy_allows_nothing_from_elsewhere():
  folder = paths.ROOT / "bert" / "serving"
  for path in sorted(folder.glob("page.*")):
    text = path.read_text()
    text = text.replace("http://www.w3.org/2000/svg", "")
    assert "http" not in text.replace("http://127", "")
  page = (folder / "page.html").read_text()
  assert "<style" not in page and " style=" not in page


def test_a_driver_that_found_no_port_is_started_again(tmp_path, monkeypatch):
  driver = tmp_path / "chromedriver"
  driver.write_text(
    "#!/bin/sh\n"
    "mkdir tried 2> /dev/null && exit 1\n"
    "echo ChromeDriver was started successfully on port 1234.\n"
  )
  driver.chmod(0o755)
  monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
  monkeypatch.chdir(tmp_path)
  process, port = browser.start_driver()
  assert (process.wait(), port) == (0, 1234)
