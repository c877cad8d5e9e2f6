"""Reading files that a definition, a task or a setting names, without waiting for them for ever.

A path may lead anywhere: a pipe that nobody writes to, a device without end, a mount whose server
is gone. So only regular files are opened (`stat` before, `fstat` after), what is read is limited by
the bytes that came and not by the size that the file says it has, and what runs in the event loop
reads in one of a few threads of this module, with a limit of time. A thread that hangs in the
kernel cannot be ended: it is left behind and counted, and keeps neither the others nor the end of
the process waiting.
"""

from __future__ import annotations

import asyncio
import os
import stat
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from functools import partial
from queue import SimpleQueue
from typing import Any, TypeVar

from anabranch.errors import InputError
from anabranch.store_files import refuse_store_file

T = TypeVar("T")
Path = str | os.PathLike[str]
Opening = Callable[[Path], int]  # gives a descriptor
_Read = tuple[str, Opening]

FILE_SECONDS = 30.0  # a file that has not been read by then is given up
THREADS_MAX = 16
_CHUNK = 256 * 1024
_FLAGS = (
    os.O_RDONLY
    | getattr(os, "O_CLOEXEC", 0)
    | getattr(os, "O_NONBLOCK", 0)
    | getattr(os, "O_NOCTTY", 0)
)

_KINDS = {
    stat.S_IFDIR: "a directory",
    stat.S_IFIFO: "a pipe",
    stat.S_IFSOCK: "a socket",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
}


class FileRefused(InputError):
    """A file that is not read. The message names the file, what is wrong, and the limit."""

    code = "no_file"


class FileTimeout(FileRefused):
    """A file system that does not answer; it may do so later."""

    retryable = True


# -- in whatever thread calls ----------------------------------------------------------------


def open_regular(path: Path) -> int:
    """A descriptor of a regular file; `OSError` where there is none, `FileRefused` for all else."""
    refuse_store_file(path)
    try:
        require_regular(path, os.stat(path))  # opening a device may already do something
        descriptor = os.open(path, _FLAGS)
    except ValueError:  # a NUL in it
        raise FileRefused(f"{os.fspath(path)!r:.200} is not a path") from None
    try:
        require_regular(path, os.fstat(descriptor))
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor


def require_regular(path: Path, about: os.stat_result) -> None:
    if not stat.S_ISREG(about.st_mode):
        kind = _KINDS.get(stat.S_IFMT(about.st_mode), "something else")
        raise FileRefused(
            f"{os.fspath(path)} is not a file but {kind}: only regular files are read"
        )


def read_limited(
    path: Path, limit: int, setting: str = "", *, opening: Opening = open_regular
) -> bytes:
    """The whole content of a regular file, or `FileRefused`. Blocks as long as the disk does.

    `setting` is the name of the setting that the limit can be changed with, `opening` what opens
    it: where a definition names the file, that of a `FilePolicy`."""
    descriptor = _open(path, opening)
    try:
        return b"".join(_chunks(descriptor, path, limit, setting))
    except OSError as error:
        raise _unreadable(path, error) from None
    finally:
        os.close(descriptor)


def _open(path: Path, opening: Opening) -> int:
    try:
        return opening(path)
    except OSError as error:
        raise _unreadable(path, error) from None


def _chunks(descriptor: int, path: Path, limit: int, setting: str) -> Iterator[bytes]:
    left = limit + 1
    while left and (chunk := os.read(descriptor, min(left, _CHUNK))):
        left -= len(chunk)
        yield chunk
    if not left:
        changed = f" (setting {setting})" if setting else ""
        raise FileRefused(f"{os.fspath(path)} is larger than {limit:,} bytes{changed}")


def read_text(path: Path, limit: int, *, opening: Opening = open_regular) -> str:
    """The same as text."""
    try:
        return read_limited(path, limit, opening=opening).decode("utf-8")
    except UnicodeDecodeError as error:
        reason = f"it is not UTF-8 at byte {error.start:,}"
        raise FileRefused(f"{os.fspath(path)} cannot be read: {reason}") from None


def has_other_owner(*abouts: os.stat_result) -> bool:
    """Whether one of them belongs to somebody else than the user of this process and root."""
    return os.name == "posix" and not {0, os.geteuid()}.issuperset(each.st_uid for each in abouts)


def _unreadable(path: Path, error: OSError) -> FileRefused:
    return FileRefused(f"{os.fspath(path)} cannot be read: {error.strerror or error}")


# -- beside the event loop -------------------------------------------------------------------


async def in_thread(call: Callable[[], T], what: object, seconds: float | None = None) -> T:
    """What `call` gives or raises, in a thread for files; `FileTimeout` where it takes too long.

    `what` is what it reads, for the message. Who is cancelled returns at once."""
    limit = FILE_SECONDS if seconds is None else seconds
    future = _threads.begin(call, what)
    timer = asyncio.timeout(limit)
    try:
        async with timer:
            return await asyncio.wrap_future(future)
    except TimeoutError:
        if not timer.expired():
            raise  # the call's own
        raise FileTimeout(
            f"{what}: no answer of the file system within {limit:g} s; look at the disk or mount"
        ) from None
    finally:
        _threads.give_up(future)


class SharedReads:
    """Whole files for many who name the same one at a time. One read serves all who asked before it
    began, so nobody gets older content than from a read of its own."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._queued: dict[_Read, asyncio.Task[bytes]] = {}  # reads that have not begun

    async def read(self, path: Path, opening: Opening = open_regular) -> bytes:
        read = os.fspath(path), opening
        task = self._queued.get(read)
        if task is None:
            task = asyncio.ensure_future(in_thread(partial(self._begin, read), read[0]))
            self._queued[read] = task
            task.add_done_callback(partial(self._ended, read))
        return await asyncio.shield(task)

    def _begin(self, read: _Read) -> bytes:
        """In a thread: whoever asks from here on needs a read that is newer."""
        self._queued.pop(read, None)
        name, opening = read
        return read_limited(name, self._limit, opening=opening)

    def _ended(self, read: _Read, task: asyncio.Task[bytes]) -> None:
        if self._queued.get(read) is task:  # it never began
            del self._queued[read]
        if not task.cancelled():
            task.exception()  # those who were cancelled meanwhile do not look


def hanging() -> int:
    """How many threads are in a read that its caller has given up."""
    return _threads.hanging


class _Threads:
    """A few daemon threads, started when they are needed. Idle ones take the next call."""

    def __init__(self) -> None:
        self._calls: SimpleQueue[tuple[Callable[[], Any], Future[Any]]] = SimpleQueue()
        self._lock = threading.Lock()
        self._count = 0
        self._free = 0  # threads that have nothing to do, less calls that wait for one
        self.hanging = 0

    def begin(self, call: Callable[[], T], what: object) -> Future[T]:
        future: Future[T] = Future()
        with self._lock:
            if self.hanging >= THREADS_MAX:
                raise FileTimeout(
                    f"{what} is not read: {self.hanging} earlier reads of files still have no "
                    "answer; look at the disks and mounts of this machine"
                )
            self._free -= 1
            grows = self._free < 0 and self._count < THREADS_MAX
            if grows:
                self._count += 1
                self._free += 1
        self._calls.put((call, future))
        if grows:
            name = f"anabranch-files-{self._count}"
            threading.Thread(target=self._serve, name=name, daemon=True).start()
        return future

    def _serve(self) -> None:
        while True:
            call, future = self._calls.get()
            if future.set_running_or_notify_cancel():
                _finish(call, future)
            del call, future  # an idle thread keeps nothing alive
            with self._lock:
                self._free += 1

    def give_up(self, future: Future[Any]) -> None:
        """Nobody waits for it any more; its thread hangs until the call has ended."""
        if future.running():
            with self._lock:
                self.hanging += 1
            future.add_done_callback(self._came_back)

    def _came_back(self, _future: Future[Any]) -> None:
        with self._lock:
            self.hanging -= 1


def _finish(call: Callable[[], Any], future: Future[Any]) -> None:
    try:
        result = call()
    except BaseException as error:  # all of it belongs to the caller
        future.set_exception(error)
    else:
        future.set_result(result)


_threads = _Threads()
