"""Output files and folders that are complete or not there; locks on folders.

They are written under a temporary name, synced to the disk, and renamed. A
rename is one step for the file system: a reader, or a power cut, finds the old
file or the new one. Remote stores have neither hidden names nor locks: there,
each writer of a file takes a name of its own, but two writers of one folder
would take the same name and must not meet.
"""

from collections.abc import Callable, Iterator
import contextlib
import errno
import fcntl
import itertools
import os
import re
import shutil

from bert.data import remote

_NO_ROOM = {errno.ENOSPC, errno.EFBIG, errno.EDQUOT}
# What file systems answer that can sync files, but no folders: vboxsf, FUSE.
_SYNCS_NO_FOLDERS = {errno.EINVAL, errno.EBADF, errno.ENOTSUP}


@contextlib.contextmanager
def replace_on_success(path: str) -> Iterator[str]:
  """Gives a temporary name that becomes `path` if the body succeeds.

  Yields a path beside `path`; the body writes the file and closes it. Locally
  it is an empty hidden file, which no glob takes for an output; remote, it is a
  free name. Whatever stops the body, a power cut included, `path` is complete
  or as it was before. Of two processes that write one path at once, the last
  one wins; the next process that writes `path` removes the remains of a killed
  one. An OSError says that `path` is a folder or a device, or that the disk is
  full.
  """
  # A remote file gets its name by a rename, too, but without locks and sync.
  if remote.is_remote(path):
    temporary = f"{path}.{os.urandom(4).hex()}.tmp"
    with _removing_remote(temporary, path):
      remote.gfile().makedirs(os.path.dirname(path))
      yield temporary
      publish(temporary, path)
    return

  # A symbolic link stays a link: the file that it leads to is replaced. Devices
  # such as /dev/null must not become files.
  target = os.path.realpath(path)
  if path.endswith("/") or (
    os.path.exists(target) and not os.path.isfile(target)
  ):
    raise OSError(f"{path}: cannot write, it is not a regular file")

  os.makedirs(os.path.dirname(target), exist_ok=True)
  with (
    naming_full_disk(path),
    _temporary(target, lambda path: open(path, "x").close()) as temporary,
  ):
    yield temporary
    publish(temporary, target)


@contextlib.contextmanager
def naming_full_disk(path: str) -> Iterator[None]:
  """Names a file or folder in the error of a disk without room for it."""
  try:
    yield
  except OSError as error:
    if error.errno in _NO_ROOM and error.filename is None:
      raise OSError(f"{path}: {error.strerror}") from None
    raise


def publish(temporary: str, path: str) -> None:
  """Renames a complete file; a power cut leaves the old or the new one."""
  if remote.is_remote(path):
    with remote.os_errors(path):
      remote.gfile().rename(temporary, path, overwrite=True)
    return
  # The content must be on the disk before the name is, and then the folder,
  # which holds the name.
  _sync(temporary)
  os.replace(temporary, path)
  _sync(os.path.dirname(path))


def _sync(path: str) -> None:
  """Waits until a local file, or the names in a folder, are on the disk."""
  descriptor = os.open(path or ".", os.O_RDONLY)
  try:
    os.fsync(descriptor)
  except OSError as error:
    is_folder = os.path.isdir(path or ".")
    if not (is_folder and error.errno in _SYNCS_NO_FOLDERS):
      # `naming_full_disk` knows the path that the user gave.
      if error.errno not in _NO_ROOM:
        error.filename = path
      raise
  finally:
    os.close(descriptor)


@contextlib.contextmanager
def _removing_remote(temporary: str, path: str) -> Iterator[None]:
  """Removes what the body leaves of a temporary file or folder for a path."""
  with remote.os_errors(path):
    try:
      yield
    finally:
      remote.remove_tree(temporary)


@contextlib.contextmanager
def replace_all_on_success(paths: list[str]) -> Iterator[list[str]]:
  """Gives temporary names for several files that appear almost together.

  They are renamed one by one when all are on the disk, the last of `paths`
  first: a kill in between, which takes milliseconds, leaves some of them as
  they were. An OSError says that another process is writing one of them.
  """
  with contextlib.ExitStack() as stack:
    # The stack ends the last one first: this is the order of the renames.
    temporaries = [stack.enter_context(replace_on_success(p)) for p in paths]

    # A temporary file that somebody else has locked is of a process at work. Of
    # one file the last writer may win; the files of two runs would be mixed.
    for path in itertools.filterfalse(remote.is_remote, paths):
      remains = set(_find_temporaries(os.path.realpath(path)))
      for temporary in remains.difference(temporaries):
        with (
          contextlib.suppress(FileNotFoundError),
          locked(temporary) as is_ours,
        ):
          if is_ours is False:
            raise OSError(
              f"{path}: another process is writing it; wait or choose another"
            )

    yield temporaries

    # Waiting for the disk takes the time: all files wait before any rename.
    for path in itertools.filterfalse(remote.is_remote, temporaries):
      _sync(path)


@contextlib.contextmanager
def new_folder(path: str) -> Iterator[str]:
  """Gives a temporary folder that becomes `path`, if the body succeeds.

  See `replace_on_success`. A local `path` may be an empty folder; an OSError
  says that it is something else. A remote one is removed, with all in it,
  before the new folder gets its name.
  """
  if remote.is_remote(path):
    path = path.rstrip("/")
    temporary = f"{path}.work"
    with _removing_remote(temporary, path):
      remote.remove_tree(temporary)  # A killed process may have left one.
      remote.gfile().makedirs(temporary)
      yield temporary
      remote.remove_tree(path)
      remote.gfile().rename(temporary, path, overwrite=True)
    return

  # A link to an empty folder stays a link.
  path = os.path.realpath(path)
  os.makedirs(os.path.dirname(path), exist_ok=True)
  with naming_full_disk(path), _temporary(path, os.mkdir) as temporary:
    yield temporary

    # As in `publish`: first all content, then the name. The rename fails unless
    # `path` is free or an empty folder.
    for folder, _, names in os.walk(temporary):
      for name in names:
        _sync(os.path.join(folder, name))
      _sync(folder)
    os.rename(temporary, path)
    _sync(os.path.dirname(path))


@contextlib.contextmanager
def claim_folder(path: str) -> Iterator[None]:
  """Makes a folder; an OSError if another process has claimed it.

  Remote folders are neither made nor claimed.
  """
  if remote.is_remote(path):
    yield
    return
  os.makedirs(path, exist_ok=True)
  with locked(path) as is_ours:
    if is_ours is False:
      raise OSError(
        f"{path}: another process is writing to this folder; wait for its end "
        "or choose another folder"
      )
    yield


@contextlib.contextmanager
def _temporary(target: str, make: Callable[[str], None]) -> Iterator[str]:
  """Makes a hidden file or folder beside a path; removes it if it is left.

  It is locked while the body runs. A temporary file without a lock is thus a
  killed process's, and may be removed.

  Args:
    target: the path that the caller will rename it to.
    make: makes an empty file or folder of the name that it is given.
  """
  for path in _find_temporaries(target):
    # Another process may remove it first.
    with contextlib.suppress(FileNotFoundError), locked(path) as is_ours:
      if is_ours:
        _remove(path)

  # Until it is locked, another process may take our file for remains and remove
  # it. Then it is made again, under another name.
  folder, name = os.path.split(target)
  with contextlib.ExitStack() as stack:
    path = ""
    while not os.path.exists(path):
      path = os.path.join(folder, f".{name}.{os.urandom(4).hex()}.tmp")
      make(path)
      stack.callback(_remove, path)
      with contextlib.suppress(FileNotFoundError):
        is_ours = stack.enter_context(locked(path))
        if is_ours is False:  # The other process is about to remove it.
          path = ""
    yield path


@contextlib.contextmanager
def locked(path: str) -> Iterator[bool | None]:
  """Locks a local file or folder while the body runs; see `lock`."""
  descriptor = os.open(path, os.O_RDONLY)
  try:
    yield lock(descriptor)
  finally:
    os.close(descriptor)


def lock(descriptor: int) -> bool | None:
  """Locks an open file until it is closed; a kill closes it, too.

  Between opening and locking, another process may have renamed or removed the
  file: callers must look again.

  Returns:
    True if the lock is ours, False if another process has it; None where the
    file system knows no locks.
  """
  try:
    fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    return True
  except BlockingIOError:
    return False
  except OSError:
    return None


def _find_temporaries(target: str) -> list[str]:
  """Returns the temporary files and folders of a path, of all processes."""
  folder, name = os.path.split(target)
  is_temporary = re.compile(rf"\.{re.escape(name)}\.[0-9a-f]{{8}}\.tmp")
  names = filter(is_temporary.fullmatch, os.listdir(folder or "."))
  return [os.path.join(folder, name) for name in names]


def _remove(path: str) -> None:
  if os.path.isdir(path):
    shutil.rmtree(path, ignore_errors=True)
  else:
    with contextlib.suppress(FileNotFoundError):
      os.remove(path)
