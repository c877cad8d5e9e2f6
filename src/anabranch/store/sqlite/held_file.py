"""A database that this process has connections to: its descriptors, its locks, its place on disk.

POSIX drops every lock of a process on a file when the process closes any descriptor of it. So there
is one entry for each inode and process; its descriptors are opened before the first connection and
closed after the last one, and what has to be read of the file as bytes is read through them.

They carry locks of their own, which belong to the descriptor and not to the process (OFD locks, on
Linux; decision 18):

* one on a byte of the database that SQLite never uses says that an engine owns this inode, whatever
  its name is and whatever became of the lock file beside it;
* two repeat the locks by which SQLite knows that somebody has the database open. Should something
  in this process, a library perhaps, take SQLite's own away, no other process thinks it is alone.
"""

from __future__ import annotations

import errno
import fcntl
import os
import stat
import struct
import sys
import threading
from contextlib import suppress
from pathlib import Path

from anabranch.errors import NotFound, StoreError, UnusableStore
from anabranch.store.private_file import create_private
from anabranch.store_files import (
    Inode,
    inode_of,
    protect,
    protect_names,
    unprotect_store,
)

_OFD_SETLK: int | None = getattr(fcntl, "F_OFD_SETLK", None) if sys.platform == "linux" else None
_OFD_GETLK: int | None = getattr(fcntl, "F_OFD_GETLK", None)
_FLOCK = "hhqqi4x"  # struct flock of Linux: type, whence, start, length, process

_PENDING_BYTE = 0x40000000  # SQLite keeps no data in the page that holds this byte
_OWNER = (_PENDING_BYTE + 1024, 1)  # start, length
_SHARED = (_PENDING_BYTE + 2, 510)  # SQLite's: somebody has the database open
_SHM_USED = (128, 1)  # SQLite's, in the -shm file: somebody uses this shared memory
_WAL_FORMAT = b"\x02\x02"
_WAL_FORMAT_AT = 18


class HeldFile:
    """Made by `hold`; every `hold` needs its `let_go`, every `guard` its `unguard`."""

    def __init__(self, path: Path, descriptor: int) -> None:
        self.path = path
        self.descriptor = descriptor
        self.inode = inode_of(os.fstat(descriptor))
        self.wal: int | None = None  # descriptors, once they are known
        self.shm: int | None = None
        self.damage: StoreError | None = None  # that SQLite has met in it
        self.users = 0
        self._guards = 0
        self._old: list[int] = []  # descriptors that may not be closed yet
        self._owned = False
        protect(self.inode, str(path))
        protect_names(str(path))

    @property
    def in_use(self) -> bool:
        """Whether this process has a store on it that is open and sound."""
        return self._guards > 0

    # -- locks -------------------------------------------------------------------------------

    def guard(self) -> None:
        """Connections are open now: from here on the files stay what they are."""
        with _lock:
            self._guards += 1
            if self.wal is None or self._guards == 1:
                self._find_side_files()
                self._hold_shared(fcntl.F_RDLCK)

    def unguard(self) -> None:
        """Connections are about to be closed; the last of all may tidy up."""
        with _lock:
            self._guards -= 1
            if not self._guards:
                self._hold_shared(fcntl.F_UNLCK)

    def _find_side_files(self) -> None:
        self._old += [one for one in (self.wal, self.shm) if one is not None]
        self.wal = self.shm = None
        if os.pread(self.descriptor, 2, _WAL_FORMAT_AT) != _WAL_FORMAT:
            return  # not yet, or not ours to change
        self.wal = self._open_beside("-wal")
        self.shm = self._open_beside("-shm")

    def _open_beside(self, suffix: str) -> int | None:
        try:
            descriptor = os.open(f"{self.path}{suffix}", os.O_RDONLY | os.O_CLOEXEC)
        except OSError:
            return None  # a database that may only be read needs none
        protect(inode_of(os.fstat(descriptor)), str(self.path))
        return descriptor

    def _hold_shared(self, kind: int) -> None:
        if self.wal is not None:  # otherwise SQLite itself holds no lock all the time
            _set_lock(self.descriptor, kind, _SHARED)
        if self.shm is not None:
            _set_lock(self.shm, kind, _SHM_USED)

    def own(self) -> bool:
        """Make this process's engine the owner of the inode; false when there is one."""
        with _lock:
            if self._owned or not _set_lock(self.descriptor, fcntl.F_WRLCK, _OWNER):
                return False
            self._owned = True
            return True

    def disown(self) -> None:
        with _lock:
            if self._owned:
                self._owned = False
                _set_lock(self.descriptor, fcntl.F_UNLCK, _OWNER)

    def owned(self) -> bool:
        """Whether some engine owns the inode, here or elsewhere."""
        return self._owned or _is_locked(self.descriptor, _OWNER)

    # -- life --------------------------------------------------------------------------------

    def let_go(self) -> None:
        """All connections that came with this `hold` are closed."""
        with _lock:
            self.users -= 1
            if not self.users and _held.get(self.inode) is self:
                del _held[self.inode]
                unprotect_store(str(self.path))
                self.close()

    def close(self) -> None:
        for one in (self.descriptor, self.wal, self.shm, *self._old):
            if one is not None:
                os.close(one)
        self.descriptor, self.wal, self.shm, self._old = -1, None, None, []

    def keep_open(self, descriptor: int) -> None:
        """It is one more of this file: to close it now would drop SQLite's locks."""
        self._old.append(descriptor)


def hold(path: Path, *, create: bool) -> HeldFile:
    """The entry of this file; before the first connection to it."""
    with _lock:
        size = size_of(path)
        if not size and not create:
            raise NotFound(f"there is no store at {path}: check the path")
        held = _held.get(inode_of(path.stat())) if size else None
        if held is None:
            descriptor = _open(path, create=create)
            held = _held.get(inode_of(os.fstat(descriptor)))
            if held is not None:
                held.keep_open(descriptor)
            else:
                held = HeldFile(path, descriptor)
                _held[held.inode] = held
        held.users += 1
    try:
        _require_one_name(held, path)
    except BaseException:
        held.let_go()
        raise
    return held


def _open(path: Path, *, create: bool) -> int:
    try:
        if create:
            create_private(path)  # before this process has a descriptor of it
        return _opened(path, os.O_RDWR)
    except OSError as error:
        if error.errno in (errno.EACCES, errno.EPERM, errno.EROFS):
            with suppress(OSError):
                return _opened(path, os.O_RDONLY)  # to look at what may only be read
        raise StoreError(
            f"cannot open {path}: {error.strerror}. Check the path and the permissions of the file "
            "and its directory.",
            code="store_cannot_open",
        ) from error


def _opened(path: Path, way: int) -> int:
    return os.open(path, way | os.O_CLOEXEC | os.O_NONBLOCK)


def _require_one_name(held: HeldFile, path: Path) -> None:
    """SQLite's log goes by the name of the database: under two names there would be two logs."""
    links = os.fstat(held.descriptor).st_nlink
    if links > 1:
        raise UnusableStore(
            f"{path} has {links} names (hard links), and SQLite would keep a log for each of them, "
            f"which damages the store. Remove the others: `find / -xdev -samefile {path}` lists "
            "them. It was left untouched.",
            code="store_linked",
        )


def size_of(path: Path) -> int:
    """The size of the file, 0 when there is none."""
    try:
        found = path.stat()
    except FileNotFoundError:
        if not path.parent.is_dir():
            raise StoreError(
                f"cannot open {path}: there is no directory {path.parent}. Create it first.",
                code="store_cannot_open",
            ) from None
        return 0
    except OSError as error:
        raise StoreError(
            f"cannot open {path}: {error.strerror}", code="store_cannot_open"
        ) from error
    if not stat.S_ISREG(found.st_mode):
        what = "a directory" if stat.S_ISDIR(found.st_mode) else "not an ordinary file"
        raise StoreError(
            f"cannot open {path}: it is {what}. Name a file.", code="store_cannot_open"
        )
    return found.st_size


def _set_lock(descriptor: int, kind: int, where: tuple[int, int]) -> bool:
    """Without waiting; false when somebody else's lock is in the way."""
    if _OFD_SETLK is None:
        return True
    start, length = where
    wanted = struct.pack(_FLOCK, kind, os.SEEK_SET, start, length, 0)
    try:
        fcntl.fcntl(descriptor, _OFD_SETLK, wanted)
    except OSError as error:
        # A file system without such locks, or a file that may only be read: nothing is in the way.
        return error.errno not in (errno.EAGAIN, errno.EACCES)
    return True


def _is_locked(descriptor: int, where: tuple[int, int]) -> bool:
    if _OFD_SETLK is None or _OFD_GETLK is None:
        return False
    asked = struct.pack(_FLOCK, fcntl.F_WRLCK, os.SEEK_SET, *where, 0)
    try:
        found = fcntl.fcntl(descriptor, _OFD_GETLK, asked)
    except OSError:
        return False
    return bool(struct.unpack(_FLOCK, found)[0] != fcntl.F_UNLCK)


_held: dict[Inode, HeldFile] = {}
_lock = threading.RLock()


def _forget_all() -> None:
    """After a fork: the locks belong to the parent, and must not outlive it here."""
    global _lock
    _lock = threading.RLock()
    for held in _held.values():
        held.close()
        unprotect_store(str(held.path))
    _held.clear()


os.register_at_fork(after_in_child=_forget_all)
