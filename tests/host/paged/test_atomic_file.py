"""Output goes where a shell's redirection would put it, and a regular file is whole or as it was."""

import os
import stat
import threading

import pytest

from paged.atomic_file import check_writable, write_atomically


def test_a_file_is_replaced_whole_and_nothing_lies_beside_it(tmp_path):
    path = tmp_path / "out.json"
    path.write_bytes(b"old")
    write_atomically(path, lambda out: out.write(b"new"))
    assert path.read_bytes() == b"new"
    assert [path.name for path in tmp_path.iterdir()] == ["out.json"]


def test_a_failure_leaves_the_old_file_and_names_it(tmp_path):
    path = tmp_path / "out.json"
    path.write_bytes(b"old")

    def fail(out):
        out.write(b"half")
        raise OSError(28, "No space left on device")

    with pytest.raises(OSError, match=r"^cannot write .*out\.json: No space left on device$"):
        write_atomically(path, fail)
    assert path.read_bytes() == b"old"
    assert [path.name for path in tmp_path.iterdir()] == ["out.json"]


def test_a_link_is_followed_and_stays(tmp_path):
    real, link = tmp_path / "real", tmp_path / "link"
    real.write_bytes(b"old")
    link.symlink_to(real)
    write_atomically(link, lambda out: out.write(b"new"))
    assert link.is_symlink()
    assert real.read_bytes() == b"new"


def test_a_pipe_is_written_to_and_stays(tmp_path):
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    seen = []
    reader = threading.Thread(target=lambda: seen.append(pipe.read_bytes()))
    reader.start()
    check_writable(pipe)
    write_atomically(pipe, lambda out: out.write(b"through"))
    reader.join(10)
    assert seen == [b"through"]
    assert stat.S_ISFIFO(pipe.stat().st_mode)


def test_a_device_is_written_to_and_stays(tmp_path):
    """A terminal's, through a link: in its folder no file can be made, so that a fault here harms nothing."""
    master, slave = os.openpty()
    link = tmp_path / "terminal"
    link.symlink_to(os.ttyname(slave))
    check_writable(link)
    write_atomically(link, lambda out: out.write(b"through"))
    assert os.read(master, 100) == b"through"
    assert stat.S_ISCHR(link.stat().st_mode)
    os.close(slave)
    os.close(master)
