"""PrivateFolder: a folder for a socket that removes itself and nothing else."""

import contextlib
import resource
import socket

import pytest

import vmm
from vmm.sharing import attach
from vmm.sharing_folder import PrivateFolder


@contextlib.contextmanager
def listening(folder):
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as listener:
        listener.bind(str(folder.socket))
        yield


def test_a_relative_parent_is_meant_where_it_was_given(tmp_path, monkeypatch):
    (tmp_path / "here").mkdir()
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path)
    folder = PrivateFolder("here")
    monkeypatch.chdir(tmp_path / "elsewhere")
    assert folder.socket.parent.parent == tmp_path / "here"
    with listening(folder):
        folder.close()
    assert list((tmp_path / "here").iterdir()) == []


def test_a_folder_that_was_replaced_by_a_link_is_not_followed(tmp_path):
    other = tmp_path / "other"
    other.mkdir()
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as theirs:
        theirs.bind(str(other / "socket"))
        folder = PrivateFolder(tmp_path)
        folder.path.rename(tmp_path / "moved")
        folder.path.symlink_to(other)
        folder.close()
    assert (other / "socket").is_socket() and folder.path.is_symlink()


def test_a_folder_that_was_replaced_by_another_stays(tmp_path):
    folder = PrivateFolder(tmp_path)
    with listening(folder):
        folder.path.rename(tmp_path / "moved")
        folder.path.mkdir()
        folder.close()
    assert folder.path.is_dir()
    assert not (tmp_path / "moved" / "socket").exists()  # this was its own, wherever it lies now


def test_a_folder_with_something_else_in_it_stays(tmp_path):
    folder = PrivateFolder(tmp_path)
    (folder.path / "socket").write_text("a file of somebody's")
    folder.close()
    assert (folder.path / "socket").read_text() == "a file of somebody's"


def test_no_descriptor_for_a_socket_is_one_line(device, tmp_path):
    with contextlib.ExitStack() as undo, pytest.raises(vmm.SharingError, match=r"cannot make a socket.*open files"):
        limits = resource.getrlimit(resource.RLIMIT_NOFILE)
        undo.callback(resource.setrlimit, resource.RLIMIT_NOFILE, limits)
        resource.setrlimit(resource.RLIMIT_NOFILE, (3, limits[1]))
        attach(device, tmp_path / "nowhere")
