"""Atomic writes never follow links, and a lock keeps a second process away until the first one ends."""

import os
import signal
import stat
import subprocess
import sys

import pytest

from boolcp.io import FileError
from boolcp.io.atomic import locked, replacing, write_text

posix = pytest.mark.skipif(os.name != "posix", reason="links and signals are POSIX")


@posix
def test_links_in_the_place_of_the_result_or_the_temporary_file_are_never_followed(tmp_path):
    victim, result, unfinished = (tmp_path / name for name in ("victim.txt", "result.txt", "result.txt.writing"))
    victim.write_text("precious")
    result.symlink_to(victim)
    unfinished.symlink_to(victim)
    with pytest.raises(FileError, match="exists already"):
        write_text(result, "new")
    with replacing(result, temporary=unfinished, overwrite=True) as temporary:
        assert not temporary.is_symlink() and temporary.read_bytes() == b""
        temporary.write_text("new")
    assert victim.read_text() == "precious" and result.read_text() == "new" and not result.is_symlink()
    assert sorted(item.name for item in tmp_path.iterdir()) == ["result.txt", "victim.txt"]


@posix
def test_permissions_are_those_of_the_old_file_or_of_a_new_one(tmp_path):
    path, before = tmp_path / "a.txt", os.umask(0o027)
    try:
        write_text(path, "new")
        assert stat.S_IMODE(path.stat().st_mode) == 0o640
        path.chmod(0o600)
        write_text(path, "newer", overwrite=True)
        assert stat.S_IMODE(path.stat().st_mode) == 0o600, "a private file stays private"
    finally:
        os.umask(before)


HOLDER = """
import sys
from boolcp.io.atomic import locked
with locked(sys.argv[1]):
    print("locked", flush=True)
    sys.stdin.read()
"""


def holder(path):
    """Return a process that holds the lock of `path` until its input is closed."""
    command = [sys.executable, "-c", HOLDER, str(path)]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert process.stdout.readline() == "locked\n"
    return process


def test_a_second_process_gets_an_error_that_names_the_first(tmp_path):
    path = tmp_path / "fit.npz"
    with holder(path) as process:
        with pytest.raises(FileError, match=rf"fit\.npz: is in use by another run \(process {process.pid} on .*Wait"):
            with locked(path):
                pytest.fail("both hold the lock")
        process.stdin.close()
        process.wait()
    with locked(path):
        pass
    assert list(tmp_path.iterdir()) == [], "no lock file is left"


@posix
def test_a_killed_process_leaves_no_lock(tmp_path):
    path = tmp_path / "fit.npz"
    with holder(path) as process:
        process.send_signal(signal.SIGKILL)
        process.wait()
    assert (tmp_path / ".fit.npz.lock").exists()
    with locked(path):
        with pytest.raises(FileError, match=f"process {os.getpid()} "), locked(path):
            pytest.fail("one process holds the lock twice")
    assert list(tmp_path.iterdir()) == []


@posix
def test_the_lock_does_not_write_through_a_link(tmp_path):
    victim = tmp_path / "victim.txt"
    victim.write_text("precious")
    (tmp_path / ".fit.npz.lock").symlink_to(victim)
    with pytest.raises(FileError, match=r"fit\.npz: cannot be opened"), locked(tmp_path / "fit.npz"):
        pytest.fail("the link was followed")
    assert victim.read_text() == "precious"


def test_the_slower_of_two_writers_is_told(tmp_path):
    path = tmp_path / "result.nc"
    with pytest.raises(FileError, match="exists already"), replacing(path) as slower:
        slower.write_text("slower")
        write_text(path, "faster")
    assert path.read_text() == "faster" and [item.name for item in tmp_path.iterdir()] == ["result.nc"]
