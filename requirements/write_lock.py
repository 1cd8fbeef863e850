"""Writes lock.txt: the version and the SHA-256 of all that pip would install.

  make lock

It takes pip's report of a dry run, which names one file of each package: that
for the Python and the platform on which it ran.
"""

import json
import pathlib
import re
import sys

_HEAD = """\
# Every package that the demo and the tests need, with the SHA-256 of its file:
#   make demo test LOCK=1
# For CPython {python} on {system} {machine}; elsewhere install requirements.txt
# and dev.txt. Written by `make lock`, which takes the newest versions that they
# allow.
"""


def main() -> None:
  """Reads the report that the first argument names."""
  report = json.loads(pathlib.Path(sys.argv[1]).read_text(encoding="utf-8"))
  environment = report["environment"]
  lines = []
  for item in report["install"]:
    # The one spelling of a package's name (PEP 503), by which lines are sorted
    # and tests/test_installation.py finds them.
    name = re.sub(r"[-_.]+", "-", item["metadata"]["name"]).lower()
    digest = item["download_info"]["archive_info"]["hashes"]["sha256"]
    version = item["metadata"]["version"]
    lines.append(f"{name}=={version} --hash=sha256:{digest}\n")

  head = _HEAD.format(
    python=environment["python_version"],
    system=environment["platform_system"],
    machine=environment["platform_machine"],
  )
  # In the order of names, so that a new lock differs in what changed.
  path = pathlib.Path(__file__).with_name("lock.txt")
  path.write_text(head + "".join(sorted(lines)), encoding="utf-8")


if __name__ == "__main__":
  main()
