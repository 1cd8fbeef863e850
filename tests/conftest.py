"""Makes two logical CPUs, on which every strategy can be tried.

And says how many examples the tests with random input try: few, always the
same, unless pytest is given `--hypothesis-profile=deep`.
"""

import os

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

import hypothesis  # noqa: E402
import tensorflow as tf  # noqa: E402

tf.config.set_logical_device_configuration(
  tf.config.list_physical_devices("CPU")[0],
  [tf.config.LogicalDeviceConfiguration()] * 2,
)

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
