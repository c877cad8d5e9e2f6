"""Are the files on disk still the ones that this process writes to?

SQLite writes on into a file that was removed or replaced under it, and nothing tells: what is
committed there is gone with the process. So before a write is acknowledged, and now and then
without one, the names are looked up again. That costs a few microseconds for each transaction.

Noticed are: a database, log or shared memory that was removed, moved or replaced; a header that is
no header; a database that lacks pages which are not in the log either; a log that was cut. Damage
inside a page is noticed by SQLite when it reads that page.
"""

from __future__ import annotations

import math
import os
import struct
import time
from typing import NoReturn

from anabranch.errors import StoreError
from anabranch.store.held_file import HeldFile
from anabranch.store_files import Inode, inode_of

_MAGIC = b"SQLite format 3\x00"
_WAL_MAGIC = (b"\x37\x7f\x06\x82", b"\x37\x7f\x06\x83")
_WAL_HEADER_BYTES = 32
_FRAME_HEADER_BYTES = 24
#: Of the index of the log: its last frame, the pages of the database with it, and the last frame
#: that a checkpoint has written.
_INDEX = struct.Struct("=16xII72xI")
_SALTS = slice(16, 24)  # of the header of a log; SQLite changes them whenever it begins it anew
_PATIENCE_SECONDS = 10.0  # another process may be at a checkpoint, which writes the header first
_PAUSE_SECONDS = 0.02


class FileWatch:
    """What one store handle expects to find; begins when its connections are open."""

    def __init__(self, held: HeldFile) -> None:
        self._held = held
        self.lost: StoreError | None = None  # why nothing may be written any more
        self._names: tuple[tuple[str, Inode], ...] = ()
        self._wal = f"{held.path}-wal"
        self._wal_size = 0  # of the log when it was last looked at
        self._salts = b""
        self._size_before = 0
        if held.wal is not None and held.shm is not None:
            suffixes = {"": held.descriptor, "-wal": held.wal, "-shm": held.shm}
            self._names = tuple(
                (f"{held.path}{suffix}", inode_of(os.fstat(descriptor)))
                for suffix, descriptor in suffixes.items()
            )

    def before_write(self) -> None:
        """Remember how long the log is: a write would fill up what was cut off."""
        if self.lost is not None:
            raise self.lost
        if self._held.wal is not None:
            self._size_before = os.fstat(self._held.wal).st_size

    def after_write(self) -> None:
        """Raises unless what was just written will be found again."""
        size = self.look()
        if not self._names or self._held.wal is None:
            return
        header = os.pread(self._held.wal, _WAL_HEADER_BYTES, 0)
        salts = header[_SALTS]
        wrote = size > self._size_before
        if size and wrote and header[:4] not in _WAL_MAGIC:
            self._lose(f"{self._wal} has lost its beginning")
        if self._size_before < self._wal_size:  # somebody has shortened it; SQLite begins it anew
            if not wrote:
                return
            if salts == self._salts:
                self._lose(f"{self._wal} was cut short by another program")
        self._wal_size, self._salts = size, salts

    def look(self) -> int:
        """Raises unless the files are there, are the same ones and whole as far as can be seen.

        Returns how long the log is.
        """
        if self.lost is not None:
            raise self.lost
        sizes = []
        for name, inode in self._names:
            try:
                found = os.stat(name)
            except OSError as error:
                self._lose(f"{name} is gone ({error.strerror})")
            if (found.st_dev, found.st_ino) != inode:
                self._lose(f"{name} was replaced by another file")
            sizes.append(found.st_size)
        if not sizes:
            return 0
        self._check_header(sizes[0])
        return sizes[1]

    def _check_header(self, size: int) -> None:
        header = os.pread(self._held.descriptor, 32, 0)
        if not header.startswith(_MAGIC):
            self._lose(f"the header of {self._held.path} is damaged")
        if size >= math.prod(_pages(header)) or self._is_whole():
            return
        end = time.monotonic() + _PATIENCE_SECONDS
        while time.monotonic() < end:
            time.sleep(_PAUSE_SECONDS)
            if self._is_whole():
                return
        size = os.fstat(self._held.descriptor).st_size
        self._lose(f"{self._held.path} was cut short: it has {size:,} bytes")

    def _is_whole(self) -> bool:
        """Whether every page is in the database, or waits in the log for its checkpoint.

        A checkpoint that a reader holds up writes the header and leaves out pages that were
        written again since, the last ones perhaps.
        """
        size = os.fstat(self._held.descriptor).st_size
        count, page = _pages(os.pread(self._held.descriptor, 32, 0))
        if size >= count * page:
            return True
        if self._held.shm is None or self._held.wal is None:
            return False
        index = os.pread(self._held.shm, _INDEX.size, 0)
        if len(index) < _INDEX.size:
            return False
        last, now, written = _INDEX.unpack(index)
        missing = set(range(size // page + 1, min(count, now) + 1))
        for frame in range(written, last):
            place = _WAL_HEADER_BYTES + frame * (_FRAME_HEADER_BYTES + page)
            missing.discard(int.from_bytes(os.pread(self._held.wal, 4, place), "big"))
        return last > 0 and not missing

    def _lose(self, what: str) -> NoReturn:
        self.lost = StoreError(
            f"the store {self._held.path} is not the file any more that this process has open: "
            f"{what}. Nothing was acknowledged since. Find out which program did it, put the files "
            "back or restore a backup, and start again.",
            code="store_lost",
        )
        raise self.lost


def _pages(header: bytes) -> tuple[int, int]:
    """How many a database has by its header, and how long each is."""
    page = int.from_bytes(header[16:18], "big")
    return int.from_bytes(header[28:32], "big"), 65_536 if page == 1 else page
