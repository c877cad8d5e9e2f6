"""One engine per file.

Ownership is a lock of the operating system on a small file that also says who holds it. The
kernel drops the lock when the process ends, however it ends, so there is nothing to clean up and
no age to guess. What the file says counts only while the lock is held.
"""

from __future__ import annotations

import errno
import fcntl
import os
import socket
import time
from pathlib import Path
from weakref import WeakSet

from anabranch.errors import StoreError, StoreInUse
from anabranch.store.private_file import mode_beside
from anabranch.store_files import inode_of, protect, unprotect

_TRIES = 20  # an owner that ends lets go within these
_TRIES_BESIDE_READERS = 6_000  # a process that asks for the owner may be preempted while it does
_PAUSE_SECONDS = 0.005


class FileLock:
    def __init__(self, path: Path) -> None:
        self._path = path
        self._descriptor: int | None = None

    @property
    def held(self) -> bool:
        return self._descriptor is not None

    def acquire(self, owner: str) -> None:
        if self._descriptor is not None:
            raise self._in_use()
        owned = 0
        for _ in range(_TRIES_BESIDE_READERS):
            if self._try():
                self._sign(f"{owner} (pid {os.getpid()} on {socket.gethostname()})")
                return
            # Who asks for the owner shares the lock, an owner does not: only owners count.
            owned += self.owner() is not None
            if owned == _TRIES:
                break
            time.sleep(_PAUSE_SECONDS)
        raise self._in_use()

    def release(self) -> None:
        if self._descriptor is None:
            return
        # Removed before it is unlocked: whoever locks the removed file notices (see `_try`).
        if _is(self._descriptor, self._path):  # somebody may have removed ours, others made theirs
            self._path.unlink(missing_ok=True)
        self.forget()

    def forget(self) -> None:
        """Let go of the descriptor only: after a fork the lock belongs to the parent."""
        if self._descriptor is not None:
            _held.discard(self)
            unprotect(inode_of(os.fstat(self._descriptor)))
            os.close(self._descriptor)
            self._descriptor = None

    def owner(self) -> str | None:
        """Who holds the lock now; asking neither waits nor creates the file."""
        try:
            descriptor = os.open(self._path, os.O_RDONLY | os.O_CLOEXEC)
        except FileNotFoundError:
            return None
        except OSError as error:
            raise StoreError(f"cannot see who owns the store: {error}") from error
        try:
            if _lock(descriptor, fcntl.LOCK_SH):
                return None
            return os.read(descriptor, 4096).decode("utf-8", "replace").strip() or "another process"
        finally:
            os.close(descriptor)

    def _try(self) -> bool:
        try:
            descriptor = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, self._mode())
        except OSError as error:
            raise StoreError(
                f"cannot create {self._path}, which says who owns the store: {error.strerror}",
                code="store_cannot_open",
            ) from error
        if _lock(descriptor, fcntl.LOCK_EX) and _is(descriptor, self._path):
            self._descriptor = descriptor
            _held.add(self)
            protect(inode_of(os.fstat(descriptor)), str(self._path.with_suffix("")))
            return True
        os.close(descriptor)
        return False

    def _mode(self) -> int:
        """Whoever may open the store may see who owns it; nobody else."""
        return mode_beside(self._path.with_suffix(""))

    def _sign(self, text: str) -> None:
        assert self._descriptor is not None
        os.ftruncate(self._descriptor, 0)
        os.pwrite(self._descriptor, text.encode() + b"\n", 0)

    def _in_use(self) -> StoreInUse:
        store = self._path.with_suffix("")
        return StoreInUse(
            f"{store} is in use by {self.owner() or 'another process'}: stop that engine first, or "
            "send it your request instead of starting a second one (--server URL, if it serves)"
        )


def _lock(descriptor: int, kind: int) -> bool:
    try:
        fcntl.flock(descriptor, kind | fcntl.LOCK_NB)
    except OSError as error:
        if error.errno in (errno.EWOULDBLOCK, errno.EACCES):
            return False
        raise StoreError(f"this file system cannot lock files: {error.strerror}") from error
    return True


def _is(descriptor: int, path: Path) -> bool:
    """Is this still the file of that name? The last owner may have removed it meanwhile."""
    try:
        return os.path.samestat(os.fstat(descriptor), path.stat())
    except FileNotFoundError:
        return False


_held: WeakSet[FileLock] = WeakSet()


def _forget_all() -> None:
    for lock in list(_held):
        lock.forget()


# O_CLOEXEC keeps the lock from programs we start; a mere fork would still hold it after us.
os.register_at_fork(after_in_child=_forget_all)
