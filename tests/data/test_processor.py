"""What the processor can compute, from what Linux lists of it."""

import re
import subprocess
import sys

import pytest

from bert.data import processor
import paths

EPYC = """\
processor\t: 0
cpu family\t: 25
model\t\t: 1
model name\t: AMD EPYC 7763
flags\t\t: fpu sse2 avx avx2 bmi2
"""
XEON = """\
model name\t: Intel Xeon
flags\t\t: avx2 avx_vnni avx512f avx512_vnni avx512_bf16 amx_bf16 amx_int8
"""


@pytest.fixture(autouse=True)
def write_list(tmp_path, monkeypatch):
  monkeypatch.delenv(processor.LIMIT, raising=False)
  path = tmp_path / "cpuinfo"
  monkeypatch.setattr(processor, "_LIST", path)
  return path.write_text


def answers():
  return (
    processor.multiplies_bfloat16(),
    processor.merges_gelu(),
    processor.saturates_int8(),
  )


def test_avx2_alone(write_list):
  write_list(EPYC)
  assert processor.describe() == "AMD EPYC 7763 (family 25, model 1), avx2"
  assert answers() == (False, False, True)


def test_matrix_units(write_list):
  write_list(XEON)
  shown = "avx2, avx_vnni, avx512f, avx512_vnni, avx512_bf16, amx_int8"
  assert processor.describe() == f"Intel Xeon, {shown}, amx_bf16"
  assert answers() == (True, True, False)


@pytest.mark.parametrize(
  ("limit", "left", "expected"),
  [
    ("AVX2", "avx2", (False, False, True)),
    ("avx2_vnni", "avx2, avx_vnni", (False, False, False)),
    (
      "AVX512_CORE_VNNI",
      "avx2, avx_vnni, avx512f, avx512_vnni",
      (False, True, False),
    ),
  ],
)
def test_the_limit_of_onednn_counts(
  limit, left, expected, write_list, monkeypatch
):
  write_list(XEON)
  monkeypatch.setenv(processor.LIMIT, limit)
  assert processor.describe() == f"Intel Xeon, {left}"
  assert answers() == expected


def test_a_system_that_lists_nothing(monkeypatch):
  monkeypatch.setattr("platform.machine", lambda: "arm64")
  assert processor.describe() == "arm64"
  assert answers() == (False, False, False)


def test_ci_describes_it_before_any_package_is_installed():
  script = (paths.ROOT / ".ci" / "run").read_text()
  (code,) = re.findall('-c "(.*processor.*)"', script)
  command = [sys.executable, "-S", "-c", code]
  shown = subprocess.run(
    command, cwd=paths.ROOT, capture_output=True, text=True, check=True
  ).stdout
  assert len(shown.splitlines()) == 1
