"""Are the files on disk still the ones that this process writes to?

SQLite writes on into a file that was removed or replaced under it, and nothing tells: what is
committed there is gone with the process. So before a write is acknowledged, and now and then
without one, the names are looked up again. That costs a few microseconds for each transaction: as
long as their folder has not changed, no name in it leads to another file, and as long as the
database has not changed, its header is the one that was checked.

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
from anabranch.store.sqlite.held_file import HeldFile
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
#: A time of change this old is not given again to a later change. Times of change come from a clock
#: that ticks every few milliseconds; a file system that keeps whole seconds may keep every other.
_TICK_NS = 100_000_000
_WHOLE_SECONDS_NS = 3_000_000_000


class FileWatch:
    """What one store handle expects to find; begins when its connections are open."""

    def __init__(self, held: HeldFile) -> None:
        self._held = held
        self.lost: StoreError | None = None  # why nothing may be written any more
        self._names: tuple[tuple[str, Inode], ...] = ()
        self._folder = str(held.path.parent)
        self._folder_seen: tuple[int, ...] | None = None  # when every name in it was right
        self._database_seen: tuple[int, ...] | None = None  # when it was whole
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
        wal = self._held.wal
        if wal is not None:
            self._size_before = os.lseek(wal, 0, os.SEEK_END)

    def after_write(self) -> None:
        """Raises unless what was just written will be found again."""
        self.look()
        wal = self._held.wal
        if not self._names or wal is None:
            return
        # Not by `fstat`: Linux gives the next write to a file whose time was asked for a finer time
        # of its own, and to record that costs SQLite's sync of the log more than all of this watch.
        size = os.lseek(wal, 0, os.SEEK_END)
        header = os.pread(wal, _WAL_HEADER_BYTES, 0)
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

    def look(self) -> None:
        """Raises unless the files are there, are the same ones and whole as far as can be seen."""
        if self.lost is not None:
            raise self.lost
        if not self._names:
            return
        now = time.time_ns()
        try:
            found = os.stat(self._folder)
        except OSError as error:
            self._lose(f"{self._folder} is gone ({error.strerror})")
        changed = found.st_mtime_ns
        folder = (changed, found.st_ino, found.st_dev)
        if folder != self._folder_seen:
            self._check_names()
            self._folder_seen = folder if _is_settled(changed, now) else None
        found = os.fstat(self._held.descriptor)
        changed = found.st_mtime_ns
        database = (changed, found.st_size)
        if database != self._database_seen:
            self._check_header(found.st_size)
            self._database_seen = database if _is_settled(changed, now) else None

    def _check_names(self) -> None:
        for name, inode in self._names:
            try:
                found = inode_of(os.stat(name))
            except OSError as error:
                self._lose(f"{name} is gone ({error.strerror})")
            if found != inode:
                self._lose(f"{name} was replaced by another file")

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


def _is_settled(changed: int, now: int) -> bool:
    """Whether a change after `now` will have another time than one at `changed`."""
    return now - changed > (_TICK_NS if changed % 1_000_000_000 else _WHOLE_SECONDS_NS)


def _pages(header: bytes) -> tuple[int, int]:
    """How many a database has by its header, and how long each is."""
    page = int.from_bytes(header[16:18], "big")
    return int.from_bytes(header[28:32], "big"), 65_536 if page == 1 else page
