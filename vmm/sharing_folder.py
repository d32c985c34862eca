"""PrivateFolder: a folder for one socket that only this user can enter, and that goes even if its owner is killed."""

from __future__ import annotations

import contextlib
import fcntl
import os
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
                _remove(self.path)
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
                    _remove(path)
            finally:
                os.close(lock)


def _remove(path: Path) -> None:
    """Remove a folder and the socket in it, and nothing else."""
    with contextlib.suppress(OSError):
        if not path.is_symlink() and (path / _SOCKET).is_socket():
            (path / _SOCKET).unlink(missing_ok=True)
        path.rmdir()
