"""What a child process writes, read as it comes so that it never waits, kept within bounds."""

from __future__ import annotations

import asyncio
import fcntl
import os
import select
import sys
import termios
from collections.abc import Callable
from contextlib import suppress

from anabranch.store.work_log_ports import Stream
from anabranch.work.logs.attempt_log import AttemptLog, PrintTarget
from anabranch.work.secrets.redaction import ROOM_MAX, tail_of

_CHUNK = 256 * 1024
_LAST_READS = 64  # of a writer that goes on for ever, at most so much more is taken at the end


class Capture:
    """The last `keep` bytes written to a pipe, and how many there were in all.

    A little more is kept than is given: where the cut would go through a secret, all of it is
    there to be recognised.

    Give `writer` to the child and call `started` once it has it. What comes is also handed to
    `target`, as this stream; what comes to one that `joins` another is kept there.
    """

    def __init__(
        self,
        keep: int,
        *,
        roomy: bool = False,
        stream: Stream = "stdout",
        joins: Capture | None = None,
    ) -> None:
        self._keep = keep
        self._stream: Stream = stream
        self._joins = joins
        self.target: AttemptLog | PrintTarget | None = None
        #: Called between the look at how much there is and the reading of so much.
        self.before_reading: Callable[[], None] | None = None
        self._kept = bytearray()
        self._open = True
        self._reads = 0
        self._loop = asyncio.get_running_loop()
        self._reader, self.writer = os.pipe()
        self.total = 0
        os.set_blocking(self._reader, False)
        if roomy and hasattr(fcntl, "F_SETPIPE_SZ"):
            with suppress(OSError):  # a user has a quota of pipe memory; the default size will do
                fcntl.fcntl(self._reader, fcntl.F_SETPIPE_SZ, _CHUNK)
        self._loop.add_reader(self._reader, self._readable)

    def started(self) -> None:
        """The child has its own copy of the writing end; ours would hide the end of the stream."""
        os.close(self.writer)
        self.writer = -1

    def restart(self) -> None:
        """Forgets what was written so far."""
        self.target = None
        self.catch_up()
        self.forget()

    def forget(self) -> None:
        """Forgets what was read so far."""
        self._kept.clear()
        self.total = 0

    def catch_up(self) -> None:
        """Takes what has been written and not been read yet."""
        for _ in range(_LAST_READS):
            if not self._open or not self._read():
                return

    def close(self) -> None:
        self.catch_up()
        self._stop()
        os.close(self._reader)
        if self.writer >= 0:
            self.started()

    @property
    def truncated(self) -> bool:
        return self.total > self._keep

    @property
    def text(self) -> str:
        text = self._kept.decode("utf-8", "replace")
        before = len(self._kept) - self._keep
        if before <= 0:
            return text
        return tail_of(text, len(text) - len(self._kept[:before].decode("utf-8", "replace")))

    def _readable(self) -> None:
        if self.before_reading is None:
            self._read()
            return
        there, reads = self._there(), self._reads
        self.before_reading()
        if self._reads != reads or not self._open:
            return  # that was read meanwhile
        if there:
            self._read(min(there, _CHUNK))
        elif self._at_end():
            self._stop()

    def _there(self) -> int:
        return int.from_bytes(fcntl.ioctl(self._reader, termios.FIONREAD, bytes(4)), sys.byteorder)

    def _at_end(self) -> bool:
        poll = select.poll()
        poll.register(self._reader, select.POLLIN)
        events = [event for _, event in poll.poll(0)]
        return any(event & select.POLLHUP and not event & select.POLLIN for event in events)

    def _read(self, most: int = _CHUNK) -> bool:
        """Whether there may be more."""
        try:
            data = os.read(self._reader, most)
        except (BlockingIOError, InterruptedError):
            return False
        if not data:
            self._stop()
            return False
        self._reads += 1
        if self.target is not None:
            self.target.log.write_bytes(self._stream, data, item=self.target.item)
        (self._joins or self).add(data)
        return True

    def add(self, data: bytes) -> None:
        """Keep this as if it had been written to the pipe."""
        self.total += len(data)
        most = self._keep + ROOM_MAX
        self._kept += data[-most:]
        if len(self._kept) > most + _CHUNK:  # rarely: taking from the front moves all the rest
            del self._kept[: len(self._kept) - most]

    def _stop(self) -> None:
        if self._open:
            self._open = False
            self._loop.remove_reader(self._reader)
