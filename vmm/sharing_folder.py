"""PrivateFolder: a folder for one socket that only this user can enter, and that goes even if its owner is killed."""

from __future__ import annotations

import contextlib
import fcntl
import os
import stat
import tempfile
from pathlib import Path

from .errors import SharingError

_SOCKET = "socket"


class PrivateFolder:
    """A new folder of mode 0700 in ``parent`` (default: the system's folder for temporary files).

    It is locked for as long as its owner lives. A process that is killed leaves the folder, an empty one but for its
    dead socket, and the next PrivateFolder of the same user in the same parent removes it: a folder that can be locked
    has no owner. Raises SharingError where no folder can be made.
    """

    def __init__(self, parent: str | os.PathLike[str] | None = None) -> None:
        self._process = os.getpid()
        where = Path(parent if parent is not None else tempfile.gettempdir())
        try:
            where = where.absolute()  # other processes are given it, and it is removed from any folder
            _remove_ownerless(where)
            self.path, self._lock = _make(where)
        except OSError as error:
            raise SharingError(f"cannot make a private folder in {where}: {error.strerror}; give folder=") from None
        self._closed = False

    @property
    def socket(self) -> Path:
        """Where the socket goes."""
        return self.path / _SOCKET

    def close(self) -> None:
        """Remove the folder and its socket; in a forked child they are the parent's. Closing twice does nothing."""
        closed, self._closed = self._closed, True
        if not closed:
            if os.getpid() == self._process:
                _remove(self.path, self._lock)
            os.close(self._lock)


def _prefix() -> str:
    return f"pagewalk-{os.geteuid()}-"


def _make(parent: Path) -> tuple[Path, int]:
    """(path, lock) of a new folder. One that was taken for ownerless before it was locked is made once more."""
    while True:
        path = Path(tempfile.mkdtemp(prefix=_prefix(), dir=parent))  # mode 0700
        with contextlib.suppress(FileNotFoundError):
            lock = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
            try:
                fcntl.flock(lock, fcntl.LOCK_EX)
                if os.path.samestat(path.stat(), os.fstat(lock)):
                    return path, lock
            except OSError:
                os.close(lock)
                raise
            os.close(lock)


def _remove_ownerless(parent: Path) -> None:
    """Remove the folders that owners of this user left when they were killed."""
    for path in parent.glob(f"{_prefix()}*"):
        with contextlib.suppress(OSError):  # another process was faster, or it is no folder of ours
            lock = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
            try:
                if os.fstat(lock).st_uid == os.geteuid():
                    fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    _remove(path, lock)
            finally:
                os.close(lock)


def _remove(path: Path, folder: int) -> None:
    """Remove the socket in the open ``folder``, and the folder if it is still what lies at ``path``; nothing else."""
    with contextlib.suppress(OSError):
        if stat.S_ISSOCK(os.stat(_SOCKET, dir_fd=folder, follow_symlinks=False).st_mode):
            os.unlink(_SOCKET, dir_fd=folder)
    with contextlib.suppress(OSError):  # gone, not empty, or not ours any more
        if os.path.samestat(path.lstat(), os.fstat(folder)):
            path.rmdir()
