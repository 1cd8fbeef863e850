"""Makes two logical CPUs, on which every strategy can be tried.

But not in the process that only hands tests to others. And says how many
examples the tests with random input try: few, always the same, unless pytest is
given `--hypothesis-profile=deep`.
"""

import gc
import importlib.util
import os
import sys

import absl.app
import hypothesis
import pytest

import paths

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
# They have no examples to run.
collect_ignore = ["helpers", "fixtures", "new_task"]
# It would send the stack of a crash to where a test's output goes, unseen.
absl.app.faulthandler = None


def pytest_configure(config):
  # TensorFlow allows this only before it is used. Programs have one device all
  # the same, but with --distribution=mirrored.
  hands_on = getattr(config.option, "numprocesses", None)
  if not hands_on or hasattr(config, "workerinput"):
    import tensorflow as tf

    tf.config.set_logical_device_configuration(
      tf.config.list_physical_devices("CPU")[0],
      [tf.config.LogicalDeviceConfiguration()] * 2,
    )


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node, error):
  """Says how a process of tests died: pytest-xdist tells only that it did."""
  if error:
    status = node.gateway._io.popen.wait()
    print(f"{node.gateway.id}: exit status {status} (-N: by signal N)")


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item, call):
  """Fails what is skipped for want of the original's files, REQUIRE_SHARED=1.

  Where these are (results, names of variables, flags), a comparison with them
  must not disappear because a path or a condition is wrong.
  """
  report = yield
  # The reason of a skip is the last of (file, line, reason).
  if report.skipped and os.environ.get("REQUIRE_SHARED"):
    *_, reason = report.longrepr
    of_original = ("golden", "data/checkpoints", "FLAGS.md")
    if any(str(paths.SHARED / name) in reason for name in of_original):
      report.outcome = "failed"
      report.longrepr = f"{reason}; REQUIRE_SHARED forbids to skip it"
  return report


def pytest_collection_finish():
  """Modules stay: every search for garbage would go through them again."""
  gc.freeze()


@pytest.fixture(autouse=True, scope="module")
def same_random_numbers():
  """Tests of a file draw the same whichever ran before in their process.

  The seed is set once a module: a test that runs alone (-k) may draw other
  weights than in a run of the whole file.
  """
  import keras

  keras.utils.set_random_seed(1)


@pytest.fixture
def write(tmp_path, monkeypatch):
  """Gives a function that writes a file into the current folder.

  The current folder becomes `tmp_path`, so that tests and messages have short
  names such as "t.csv".
  """
  monkeypatch.chdir(tmp_path)

  def write_file(name, content):
    path = tmp_path / name
    path.parent.mkdir(parents=True, exist_ok=True)
    data = content.encode("utf-8") if isinstance(content, str) else content
    path.write_bytes(data)
    return name

  return write_file


# What hangs is stopped in fuzzing.py: a deadline would measure the machine.
_COMMON = {
  "database": None,
  "deadline": None,
  "suppress_health_check": [hypothesis.HealthCheck.too_slow],
}
hypothesis.settings.register_profile(
  "fast", max_examples=20, derandomize=True, **_COMMON
)
hypothesis.settings.register_profile(
  "deep", max_examples=400, print_blob=True, **_COMMON
)
hypothesis.settings.load_profile("fast")


@pytest.fixture
def load_benchmark(monkeypatch):
  """Imports a benchmark under a name that no package has."""
  folder = paths.ROOT / "benchmarks"
  monkeypatch.syspath_prepend(str(folder))

  def load(name):
    spec = importlib.util.spec_from_file_location(
      f"benchmark_{name}", folder / f"{name}.py"
    )
    module = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, spec.name, module)
    spec.loader.exec_module(module)
    return module

  return load
