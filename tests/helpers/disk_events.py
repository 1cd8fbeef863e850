"""Records syncs to the disk and renamings, and fills up the disk."""

import contextlib
import os
import resource


@contextlib.contextmanager
def limited_files(size):
  """Makes writing past a size fail, as on a full disk, but with EFBIG.

  Args:
    size: bytes of one file. Callers choose it larger than the small files that
      come first and smaller than the file whose writing shall fail.
  """
  limit, most = resource.getrlimit(resource.RLIMIT_FSIZE)
  resource.setrlimit(resource.RLIMIT_FSIZE, (size, most))
  try:
    yield
  finally:
    resource.setrlimit(resource.RLIMIT_FSIZE, (limit, most))


def record(monkeypatch) -> list[str]:
  """Returns a list that grows: "sync file a", "rename a b", "sync folder f"."""
  events, sync = [], os.fsync

  def record_sync(descriptor):
    path = os.readlink(f"/proc/self/fd/{descriptor}")
    kind = "folder" if os.path.isdir(path) else "file"
    events.append(f"sync {kind} {os.path.basename(path)}")
    sync(descriptor)

  monkeypatch.setattr(os, "fsync", record_sync)
  for rename in (os.rename, os.replace):

    def record_rename(source, target, rename=rename):
      names = map(os.path.basename, (source, target))
      events.append("rename {} {}".format(*names))
      rename(source, target)

    monkeypatch.setattr(os, rename.__name__, record_rename)
  return events
