"""What the processor can compute, by the instruction sets that Linux lists.

ONEDNN_MAX_CPU_ISA, which has TensorFlow and OpenVINO compute as on an older
processor, counts here too: `make test-avx2` tries such a one. On systems that
list nothing, and on other architectures than x86, nothing is known.
"""

import contextlib
import os
import pathlib
import platform
import re

_LIST = pathlib.Path("/proc/cpuinfo")
LIMIT = "ONEDNN_MAX_CPU_ISA"
# The instruction sets that decide something here, by Linux's names, from the
# oldest on.
_NAMES = (
  "avx2",
  "avx_vnni",
  "avx512f",
  "avx512_vnni",
  "avx512_bf16",
  "amx_int8",
  "amx_bf16",
)
# How many of them, from the first, a value of the variable leaves.
_LEFT = {
  "AVX2": 1,
  "AVX2_VNNI": 2,
  "AVX512_CORE": 3,
  "AVX512_CORE_VNNI": 4,
  "AVX512_CORE_BF16": 5,
}


def instruction_sets() -> list[str]:
  """Returns the names of those instruction sets that the processor has."""
  # A value that is not in the table leaves all of them.
  flags = _read("flags").split()
  left = _LEFT.get(os.environ.get(LIMIT, "").upper())
  return [name for name in _NAMES[:left] if name in flags]


def describe() -> str:
  """Returns the processor's name and numbers; several generations share one."""
  title = _read("model name") or platform.machine()
  if family := _read("cpu family"):
    title += f" (family {family}, model {_read('model')})"
  return ", ".join([title, *instruction_sets()])


def multiplies_bfloat16() -> bool:
  """Returns whether products of bfloat16 are faster than those of float32."""
  return not {"avx512_bf16", "amx_bf16"}.isdisjoint(instruction_sets())


def merges_gelu() -> bool:
  """Returns whether TensorFlow, by oneDNN, merges gelu into a product."""
  return "avx512f" in instruction_sets()


def saturates_int8() -> bool:
  """Returns whether sums of two products of 8 bits are cut off at 16 bits."""
  # Without VNNI, AVX2 adds two products of bytes into 16 bits (vpmaddubsw).
  names = instruction_sets()
  return "avx2" in names and not any("vnni" in name for name in names)


def _read(key) -> str:
  """Returns what Linux lists for the first core; "" if it lists nothing."""
  # Linux lists each core; the first one stands for all.
  with contextlib.suppress(OSError):
    text = _LIST.read_text()
    if match := re.search(rf"(?m)^{key}\s*: (.*)", text):
      return match[1]
  return ""
