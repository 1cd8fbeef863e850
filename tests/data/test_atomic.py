"""Tests of bert/data/atomic.py."""

import errno
import os
import pathlib
import subprocess
import sys

import pytest

from bert.data import atomic, files
import disk_events
import paths


def test_success_replaces_the_file_and_makes_its_folder(tmp_path):
  path = tmp_path / "new" / "out"
  for content in ["first", "second"]:
    with atomic.replace_on_success(str(path)) as temporary:
      assert os.path.dirname(temporary) == str(path.parent)
      pathlib.Path(temporary).write_text(content)
    assert path.read_text() == content
  assert os.listdir(path.parent) == ["out"]


@pytest.mark.parametrize("error", [ValueError, KeyboardInterrupt])
@pytest.mark.parametrize("name", ["replace_on_success", "new_folder"])
def test_failure_leaves_the_old_file(tmp_path, name, error):
  path = tmp_path / "out"
  path.write_text("old")
  with pytest.raises(error), getattr(atomic, name)(str(path)) as temporary:
    half = f"{temporary}/a" if name == "new_folder" else temporary
    pathlib.Path(half).write_text("half")
    raise error()
  assert path.read_text() == "old"
  assert os.listdir(tmp_path) == ["out"]


def kill_within(statement):
  """Lets a process be killed in the body of a with statement."""
  code = f"import os; from bert.data import atomic\nwith atomic.{statement}"
  code += "\n  os.kill(os.getpid(), 9)\n"
  done = subprocess.run([sys.executable, "-c", code], cwd=paths.ROOT)
  assert done.returncode == -9


def test_what_a_killed_run_left_behind_is_removed(tmp_path):
  path = str(tmp_path / "out")
  kill_within(
    f"replace_on_success({path!r}) as temporary:\n"
    "  open(temporary, 'w').write('half')"
  )
  assert len(os.listdir(tmp_path)) == 1
  assert not os.path.exists(path)
  with atomic.replace_on_success(path) as temporary:
    assert os.listdir(tmp_path) == [os.path.basename(temporary)]
    assert os.path.getsize(temporary) == 0
  assert os.listdir(tmp_path) == ["out"]


@pytest.mark.parametrize(
  "number", [errno.EINVAL, errno.EBADF, errno.ENOTSUP, errno.EIO]
)
@pytest.mark.parametrize("kind", ["folder", "file"])
def test_a_folder_need_not_be_synced(tmp_path, monkeypatch, number, kind):
  """Some file systems, such as vboxsf, sync files alone."""

  def fail(descriptor):
    path = os.readlink(f"/proc/self/fd/{descriptor}")
    if os.path.isdir(path) == (kind == "folder"):
      raise OSError(number, "no")

  monkeypatch.setattr(os, "fsync", fail)
  path, folder = f"{tmp_path}/a", f"{tmp_path}/b"

  def write():
    files.write_text(path, "x")
    with atomic.new_folder(folder) as temporary:
      pathlib.Path(temporary, "c").write_text("y")

  if kind == "folder" and number != errno.EIO:
    write()
    assert sorted(os.listdir(tmp_path)) == ["a", "b"]
    return
  expected = str(tmp_path) if kind == "folder" else rf"{tmp_path}/\.a\.\w+\.tmp"
  with pytest.raises(OSError, match=rf"\[Errno {number}\] no: '{expected}'"):
    write()


def test_two_writers_of_one_file_do_not_mix(tmp_path):
  path = tmp_path / "out"
  with atomic.replace_on_success(str(path)) as slow, open(slow, "w") as file:
    file.write("slow, first half, ")
    files.write_text(str(path), "fast")
    assert path.read_text() == "fast"
    file.write("second half")
  assert path.read_text() == "slow, first half, second half"
  assert os.listdir(tmp_path) == ["out"]


def test_a_file_that_another_process_cleans_up_is_not_written(
  tmp_path, monkeypatch
):
  lock, refused = atomic.lock, []

  def lose_the_first(descriptor):
    if refused:
      return lock(descriptor)
    refused.append(os.readlink(f"/proc/self/fd/{descriptor}"))
    return False

  monkeypatch.setattr(atomic, "lock", lose_the_first)
  path = tmp_path / "out"
  with atomic.replace_on_success(str(path)) as temporary:
    assert refused and temporary not in refused
    pathlib.Path(temporary).write_text("new")
  assert path.read_text() == "new"
  assert os.listdir(tmp_path) == ["out"]


def test_files_of_two_runs_are_not_mixed(tmp_path):
  mine, theirs = [f"{tmp_path}/a", f"{tmp_path}/b"], [f"{tmp_path}/b"]
  with atomic.replace_all_on_success(mine):
    with (
      pytest.raises(OSError, match="b: another process is writing it; wait"),
      atomic.replace_all_on_success(theirs),
    ):
      pass
  with atomic.replace_all_on_success(theirs):
    pass
  assert sorted(os.listdir(tmp_path)) == ["a", "b"]


def test_a_folder_is_claimed_by_one_at_a_time(tmp_path):
  path = str(tmp_path)
  kill_within(f"claim_folder({path!r}):")  # Which ends the claim.
  for _ in range(2):
    with atomic.claim_folder(path):
      with (
        pytest.raises(OSError, match="another process is writing to this"),
        atomic.claim_folder(path),
      ):
        pass
  assert os.listdir(tmp_path) == []


@pytest.fixture
def events(monkeypatch):
  return disk_events.record(monkeypatch)


def test_a_file_is_synced_before_it_gets_its_name(tmp_path, events):
  files.write_text(str(tmp_path / "out"), "text")
  temporary = events[0].removeprefix("sync file ")
  assert events == [
    f"sync file {temporary}",
    f"rename {temporary} out",
    f"sync folder {tmp_path.name}",
  ]


def test_several_files_are_synced_before_one_gets_its_name(tmp_path, events):
  with atomic.replace_all_on_success([f"{tmp_path}/a", f"{tmp_path}/b"]):
    assert not set(os.listdir(tmp_path)) & {"a", "b"}
  assert sorted(os.listdir(tmp_path)) == ["a", "b"]
  assert [event.split()[0] for event in events[:3]] == ["sync", "sync", "sync"]
  assert sum(event.startswith("rename") for event in events) == 2


def test_a_folder_is_synced_before_it_gets_its_name(tmp_path, events):
  with atomic.new_folder(str(tmp_path / "out")) as folder:
    os.mkdir(f"{folder}/inner")
    for name in ("a", "inner/b"):
      open(f"{folder}/{name}", "w").close()
  name = os.path.basename(folder)
  assert events == [
    "sync file a",
    f"sync folder {name}",
    "sync file b",
    "sync folder inner",
    f"rename {name} out",
    f"sync folder {tmp_path.name}",
  ]
  assert sorted(os.listdir(tmp_path / "out")) == ["a", "inner"]


def test_a_link_to_an_empty_folder_stays_one(tmp_path):
  (tmp_path / "there").mkdir()
  (tmp_path / "link").symlink_to("there")
  with atomic.new_folder(str(tmp_path / "link")) as folder:
    open(f"{folder}/a", "w").close()
  assert os.listdir(tmp_path / "there") == ["a"]
  assert (tmp_path / "link").is_symlink()


def test_a_remote_folder_replaces_another_if_it_is_complete(tmp_path):
  path = f"file://{tmp_path}/out"
  for name in ("first", "second"):
    with atomic.new_folder(path) as folder:
      files.write_text(f"{folder}/{name}", "text")
    assert os.listdir(tmp_path / "out") == [name]
  with pytest.raises(ValueError), atomic.new_folder(path) as folder:
    files.write_text(f"{folder}/third", "text")
    raise ValueError()
  assert os.listdir(tmp_path / "out") == ["second"]
  assert os.listdir(tmp_path) == ["out"]


@pytest.mark.parametrize(
  "open_", [atomic.replace_on_success, atomic.new_folder]
)
def test_a_full_disk_names_the_output(open_, tmp_path):
  path = str(tmp_path / "out")
  with (
    pytest.raises(OSError, match=f"^{path}: No space left on device$"),
    open_(path),
  ):
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
  assert os.listdir(tmp_path) == []


@pytest.mark.parametrize("path", ["/dev/null", "/tmp", "/tmp/none/"])
def test_devices_and_folders_are_not_replaced(path):
  with (
    pytest.raises(OSError, match="not a regular file"),
    atomic.replace_on_success(path),
  ):
    pass
