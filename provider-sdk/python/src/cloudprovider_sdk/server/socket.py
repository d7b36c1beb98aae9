"""The Unix socket: in a directory that nobody else can enter, at a path that nobody else uses, removed at the end.

gRPC for Python cannot identify the caller on a socket: the directory is the guard, apart from the host's own check of its peer.
"""

import fcntl
import logging
import os
import socket
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final
from urllib.parse import quote

import grpc

_log = logging.getLogger("cloudprovider_sdk")

_FORBIDDEN: Final = 0o027
"""Forbidden: write access for the group, any access for others."""
_DIRECTORY_MODE: Final = 0o700
_SHARED_MODE: Final = stat.S_ISGID | 0o750
"""Of a directory made in one that hands its group on, as a volume with Kubernetes' fsGroup does: the group may call."""
_SOCKET_MODE: Final = 0o660
_ANSWER_WITHIN: Final = 2.0
"""A process that takes longer to accept a connection hangs but exists, so its socket is in use."""


class SocketFile:
    """The file of an open socket."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._inode = _inode(path)

    def remove(self) -> None:
        """Remove the file, unless it is gone or another one has replaced it."""
        with suppress(FileNotFoundError):
            if _inode(self._path) == self._inode:
                self._path.unlink()


def listen(server: grpc.aio.Server, path: Path) -> SocketFile:
    """Listen on a socket; replace a stale one, but not one that answers.

    Raises `OSError` or `RuntimeError` with the value and the remedy.
    """
    # Locked until the socket exists: if two processes start at once, the second sees the first one's socket.
    with _locked(path.parent):
        _remove_stale(path)
        server.add_insecure_port(f"unix:{quote(str(path))}")
        path.chmod(_SOCKET_MODE)
        return SocketFile(path)


def _inode(path: Path) -> tuple[int, int]:
    found = path.lstat()
    return found.st_dev, found.st_ino


@contextmanager
def _locked(directory: Path) -> Iterator[None]:
    """Create the directory if it is missing, check it, and lock it."""
    _create(directory)
    handle = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        _check(directory, os.fstat(handle))
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield
    finally:
        os.close(handle)


def _create(directory: Path) -> None:
    if directory.exists():
        return
    directory.mkdir(mode=_DIRECTORY_MODE, parents=True, exist_ok=True)
    if directory.stat().st_mode & stat.S_ISGID:
        directory.chmod(_SHARED_MODE)


def _check(directory: Path, found: os.stat_result) -> None:
    mode = stat.S_IMODE(found.st_mode)
    if mode & _FORBIDDEN:
        raise PermissionError(
            f"the directory {directory} of the socket has mode {mode:04o}; others could reach or replace the socket: "
            "use 0700, or 0750 to share it with a group"
        )
    if found.st_uid not in (own := os.geteuid(), 0):
        raise PermissionError(
            f"the directory {directory} of the socket belongs to uid {found.st_uid}; "
            f"it must belong to uid {own}, which serves, or to root"
        )


def _remove_stale(path: Path) -> None:
    """Remove the file of a socket on which nothing listens."""
    try:
        found = path.lstat()
    except FileNotFoundError:
        return
    if not stat.S_ISSOCK(found.st_mode):
        raise FileExistsError(f"{path} exists but is not a socket; remove it or choose another --endpoint")
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        probe.settimeout(_ANSWER_WITHIN)
        try:
            probe.connect(str(path))
        except ConnectionRefusedError:
            _log.info("removing a stale socket", extra={"path": str(path)})
            path.unlink()
            return
        except PermissionError as error:
            raise PermissionError(f"cannot listen on unix://{path}: no permission to test the socket; remove it") from error
        except OSError:
            # Too busy to answer, but somebody is there.
            pass
    raise OSError(f"{path} is already in use: a process listens on it; stop it or choose another --endpoint")
