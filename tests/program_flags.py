"""Runs the `main` of a program in the process of the tests."""

from absl import flags


def run_main(program, define_flags, **values):
  """Calls `program.main()` with flags of these values; returns its status."""
  before = set(flags.FLAGS)
  define_flags()
  arguments = [f"--{name}={value}" for name, value in values.items()]
  try:
    flags.FLAGS(["program", *arguments])
    return program.main()
  finally:
    for name in set(flags.FLAGS) - before:
      delattr(flags.FLAGS, name)
    flags.FLAGS.unparse_flags()
