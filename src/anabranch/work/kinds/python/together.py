"""Many jobs that a Python process was given in one request, on their way.

The process replies to each before it begins the next. So whatever goes wrong belongs to the first
job without a reply, and the jobs behind that one have not begun. What the process prints comes by
other pipes and has no marks in it. It is told apart like this: a process with output that was not
read waits after the reply, until the engine has read it. Bytes that are seen in a pipe while it
does not wait belong to the first job without a reply, as long as the replies are taken after the
bytes were seen and before they are read.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import msgspec

from anabranch.work.kinds.commands.capture import Capture
from anabranch.work.kinds.python.channel import Channel
from anabranch.work.kinds.python.inline_server import ENDED, KEEP, PRINTED, RECORD, RETIRE
from anabranch.work.logs.attempt_log import AttemptLog, PrintTarget
from anabranch.work.logs.listening import level_of
from anabranch.work.time_limit import HEARING_SECONDS, HELD_SECONDS

_SIGNS = (KEEP, PRINTED, RETIRE)
_HEAD = 9  # bytes in front of a reply: the sign, and when the next job begins


class ProcessFailure(msgspec.Struct, frozen=True):
    kind: str
    message: str
    retryable: bool = True
    details: Any = None


class ProcessOutcome(msgspec.Struct, frozen=True):
    """What came of one job, and the last of what it printed."""

    result: Any = None
    error: ProcessFailure | None = None
    output: str = ""
    output_bytes: int = 0


decoded = msgspec.json.Decoder(ProcessOutcome).decode


class Together:
    """Hears what the process says of one request. `hear` may be called in any context."""

    def __init__(
        self,
        channel: Channel,
        pipes: tuple[Capture, Capture],
        numbers: Sequence[int],
        log: AttemptLog | None,
        frame_bytes: int,
    ) -> None:
        self._channel = channel
        self._output, self._errors = pipes
        self._numbers = numbers
        self._frame_bytes = frame_bytes
        self._loop = asyncio.get_running_loop()
        self._target = PrintTarget(log, numbers[0]) if log is not None else None
        self._arrived: list[ProcessOutcome] = []
        self._waker: asyncio.Future[None] | None = None
        self._late = False  # the end of the time was noticed too late to be sure of it
        self.began = self._loop.time()  # the first job without a reply, at the latest
        self.ticks = 0  # the same, as the system dates processes; 0 for the first job
        self.replies = 0
        self.over = False  # nothing more will be said of this request
        self.fit = True  # the process can have another one
        self.lost = False  # it ended, or what it says makes no sense
        self.cut_off = False  # the channel was shut, and the process has to be stopped
        self.timed_out = False  # the first job without a reply did not end in its time

    def listen(self) -> None:
        for pipe in (self._output, self._errors):
            pipe.target, pipe.before_reading = self._target, self.hear
        self._loop.add_reader(self._channel.socket, self.hear)

    def stop_listening(self) -> None:
        self._loop.remove_reader(self._channel.socket)
        self._output.before_reading = self._errors.before_reading = None

    async def outcomes(self, seconds: float | None) -> list[ProcessOutcome]:
        """The next ones, in order. `seconds` is how long a job may take."""
        if not self._arrived and not self.over:
            self._waker = self._loop.create_future()
            timer = self._timer(seconds) if seconds is not None else None
            try:
                await self._waker
            finally:
                if timer is not None:
                    timer.cancel()
                self._waker = None
        found, self._arrived = self._arrived, []
        return found

    def hear(self) -> None:
        """Take what the process has said by now."""
        if self.over:
            return
        replies, channel, most = self.replies, self._channel, self._frame_bytes
        try:
            channel.receive()
            while not self.over and (frame := channel.next(most)) is not None:
                self._take(frame[:1], frame)
            self.lost = channel.ended and not self.over
        except (OSError, ValueError):
            self.lost = True
        if self.replies > replies:
            self.began = self._loop.time()
        self.over = self.over or self.lost
        self._wake()

    def _take(self, sign: bytes, frame: bytes) -> None:
        if sign in _SIGNS:
            self._replied(sign, frame)
        elif sign == RECORD:
            heard_record(frame, self._output, self._target)
        elif sign == ENDED:
            self.over = True
        else:
            raise ValueError("not written by the worker")

    def _replied(self, sign: bytes, frame: bytes) -> None:
        outcome = decoded(frame[_HEAD:])
        if sign != KEEP:  # it waits, or begins nothing more: all there is belongs to this job
            self._output.catch_up()
            self._errors.catch_up()
        if self._output.total:
            outcome = self.with_output(outcome)
        self._arrived.append(outcome)
        self.ticks = int.from_bytes(frame[1:_HEAD], "big")
        self.replies += 1
        self.fit = sign != RETIRE
        self.over = not self.fit or self.replies == len(self._numbers)
        if self._target is not None and not self.over:
            self._target.item = self._numbers[self.replies]
        if sign == PRINTED:
            self._channel.say_go_on()

    def with_output(self, outcome: ProcessOutcome) -> ProcessOutcome:
        """The outcome with what its job printed, which is forgotten here."""
        if not self._output.total:
            return outcome
        text, total = self._output.text, self._output.total
        self._output.forget()
        return msgspec.structs.replace(outcome, output=text, output_bytes=total)

    # -- the time of a job -------------------------------------------------------------------

    def _timer(self, seconds: float) -> asyncio.TimerHandle:
        return self._loop.call_at(self.began + seconds, self._ring, seconds)

    def _ring(self, seconds: float) -> None:
        """Its time may be over; what has arrived is heard first."""
        self.hear()
        if self.over or self._waker is None or self._waker.done():
            return
        late_by = self._loop.time() - self.began - seconds
        if late_by >= HELD_SECONDS and not self._late:
            self._late = True
            self._loop.call_later(HEARING_SECONDS, self._ring, seconds)
            return
        replies = self.replies
        self.cut()
        self.timed_out = self.replies == replies

    def cut(self) -> None:
        """Let the process begin nothing more: it has to be stopped then."""
        self._channel.shut()
        self.hear()
        self.over, self.cut_off = True, True
        self.fit = self.lost = False
        self._wake()

    def _wake(self) -> None:
        if self._waker is not None and not self._waker.done() and (self._arrived or self.over):
            self._waker.set_result(None)


def heard_record(frame: bytes, output: Capture, target: AttemptLog | PrintTarget | None) -> None:
    """A log record of the code: part of what it printed, and a line of its log."""
    level, text = msgspec.json.decode(frame[1:], type=tuple[int, str])
    output.add(f"{text}\n".encode("utf-8", "replace"))
    if target is not None:
        target.write("log", f"{text}\n", level_of(level))
