"""What the process that runs inline Python code does (see `worker.py`, which loads this file).

It reads jobs from the descriptor CHANNEL and writes replies there, each as four bytes of length and
JSON; log records go before the reply. Standard output and error belong to the code. One process
serves many jobs, one after the other, each with fresh globals. It ends when the engine closes the
channel, and asks to be replaced when a job left threads or processes behind, or closed the standard
streams.

A request may hold many jobs of the same code, the items of a loop. Each has its reply before the
next begins, so that the engine knows which of them ended the process. Where one left something in
the pipes of its output, the process waits until the engine has read it: it belongs to that item.

Besides `inline` only the standard library is used, and little of it, so that the process is ready
within tens of milliseconds: `typing` alone would take seven.
"""

from __future__ import annotations

import _thread
import faulthandler
import json
import os
import signal
import sys
import time
from contextlib import suppress
from functools import partial

from anabranch.work.kinds.python import inline

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from typing import Any

#: The first byte of a reply: whether this process is fit for another job.
KEEP, RETIRE = b"K", b"R"
RECORD = b"L"  # or, before it, a log record: its level and its text
#: Of one job among many also: it printed, and the next waits for a word; the others were not begun.
PRINTED, ENDED = b"P", b"E"
#: So long a process may be with the jobs of one request: others wait for it as well.
TOGETHER_SECONDS = 0.05
_RECORD_TEXT = 64 * 1024  # characters of one

#: The exit status when there is no way left to reply.
CHANNEL_LOST = 113

_NOTHING = bytes(4)  # a number of bytes, as the system says it
_TICKS = os.sysconf("SC_CLK_TCK")
_decode = json.JSONDecoder().decode
_CLOCK = getattr(time, "CLOCK_BOOTTIME", None)
#: As they are before any code has run.
_monotonic, _clock_gettime = time.monotonic, time.clock_gettime


class InlineServer:
    """Answers the jobs that come over one channel until it is closed."""

    def __init__(self, channel: int, reply_limit: int) -> None:
        self._channel = channel
        self._reply_limit = reply_limit
        self._pid = os.getpid()
        self._threads = _thread._count()
        self._sending = _thread.allocate_lock()  # threads of the code may log
        os.register_at_fork(after_in_child=self._forked)
        self._output = Output()
        self._surroundings = Surroundings()

    def run(self) -> None:
        while (request := self._receive()) is not None:
            try:
                if b"\n" in request:
                    self._perform_each(*request.split(b"\n"))
                    continue
                fit, reply = self._performed(self._job, request)
                with self._sending:
                    self._send((KEEP if fit else RETIRE) + reply)
            except OSError:
                os._exit(CHANNEL_LOST)

    def _job(self, request: bytes) -> Any:
        return inline.InlineJob(**json.loads(request))

    def _perform_each(self, head: bytes, shared: bytes, *items: bytes) -> None:
        """One job after the other. What they share is read anew for each: it may be changed."""
        given = json.loads(head)
        until, last, stops = _monotonic() + TOGETHER_SECONDS, len(items) - 1, given.pop("stops")
        make = partial(self._item_job, given, shared)
        for number, item in enumerate(_all_read(items)):
            fit, reply = self._performed(make, item)
            printed = fit and self._output.unread
            with self._sending:
                sign = PRINTED if printed else KEEP if fit else RETIRE
                self._send(sign + _ticks().to_bytes(8, "big") + reply)
            if not fit or (printed and not self._read(1)):
                return
            failed = stops and reply.startswith(b'{"error"')
            if number < last and (failed or _monotonic() > until):
                with self._sending:
                    self._send(ENDED)
                return

    def _item_job(self, given: dict[str, Any], shared: bytes, item: Any) -> Any:
        args, layers = _decode(item.decode()) if type(item) is bytes else item
        if shared:
            layers = {**_decode(shared.decode()), **layers}
        return inline.InlineJob(given["code"], given["name"], args, {}, given["libs"], layers)

    def _performed(self, make: Callable[[Any], Any], told: Any) -> tuple[bool, bytes]:
        """Whether this process is fit for another job, and the reply to what it was told."""
        reply = self._perform(make, told)
        intact = self._surroundings.restore()
        if os.getpid() != self._pid:
            os._exit(0)  # the code forked, and this is the other half, done with its part
        return intact and not self._left_something(), reply

    def _perform(self, make: Callable[[Any], Any], told: Any) -> bytes:
        try:
            job = make(told)
            stop = self._hear_records() if "logging" in job.code else None
            try:
                reply = inline.execute(job)
            finally:
                if stop is not None:
                    stop()
            if reply.error is None:
                body = b'{"result":%b}' % reply.result.encode()
            else:
                body = json.dumps({"error": reply.error}).encode()
        except Exception as error:  # ours to mend, but the job must get an answer
            return _failure("python", f"the worker failed: {type(error).__name__}: {error}")
        if len(body) > self._reply_limit:
            return _failure(
                "result",
                f"the result has {len(body):,} bytes; the limit is {self._reply_limit:,} "
                "(setting ANABRANCH_RESULT_BYTES_MAX)",
            )
        return body

    def _hear_records(self) -> Any:
        """From now on log records of level INFO and above are sent as such, and not printed as
        well. Returns how to stop that: the next job may not know of it."""
        import logging

        factory, root, streams = logging.getLogRecordFactory(), logging.getLogger(), self._streams()
        level = root.level

        def heard(*given: Any, **more: Any) -> Any:
            record = factory(*given, **more)
            with suppress(Exception):  # it cannot be worded, or the channel is gone
                self._tell(record)
            return record

        logging.setLogRecordFactory(heard)
        if level == logging.WARNING:  # as Python sets it
            root.setLevel(logging.INFO)
        sys.stdout, sys.stderr = (WithoutRecords(stream) for stream in streams)

        def stop() -> None:
            logging.setLogRecordFactory(factory)
            root.setLevel(level)

        return stop

    @staticmethod
    def _streams() -> tuple[Any, Any]:
        return sys.stdout, sys.stderr

    def _tell(self, record: Any) -> None:
        if not record.name or os.getpid() != self._pid:  # a fork has no channel
            return
        said = record.getMessage()
        if record.name != "root":
            said = f"{record.name}: {said}"
        if record.exc_info and record.exc_info[0] is not None:
            import traceback

            said += "\n" + "".join(traceback.format_exception(*record.exc_info)).rstrip()
        body = json.dumps([record.levelno, said[:_RECORD_TEXT]]).encode()
        with self._sending:
            self._send(RECORD + body)

    def _left_something(self) -> bool:
        """Threads or processes the job started and did not wait for."""
        if _thread._count() > self._threads:
            return True
        try:
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass
        except ChildProcessError:
            return False
        return True

    def _receive(self) -> bytes | None:
        head = self._read(4)
        return None if head is None else self._read(int.from_bytes(head, "big"))

    def _read(self, size: int) -> bytes | None:
        parts = bytearray()
        while len(parts) < size:
            part = os.read(self._channel, min(size - len(parts), 1 << 20))
            if not part:
                return None
            parts += part
        return bytes(parts)

    def _send(self, reply: bytes) -> None:
        data = len(reply).to_bytes(4, "big") + reply
        sent = os.write(self._channel, data)
        while sent < len(data):
            sent += os.write(self._channel, memoryview(data)[sent:])

    def _forked(self) -> None:
        with suppress(OSError):
            os.close(self._channel)  # replies are for the first process to give


class WithoutRecords:
    """A standard stream, without what log handlers write to it: that is sent as records."""

    def __init__(self, behind: Any) -> None:
        self._behind = behind

    def write(self, text: str) -> Any:
        if sys._getframe(1).f_globals.get("__name__") == "logging":
            return len(text)
        return self._behind.write(text)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._behind, name)


class Output:
    """The pipes of standard output and error, as far as the engine has read them."""

    def __init__(self) -> None:
        self._pipes = os.dup(1), os.dup(2)  # not those that the code may close
        self._question = 0
        try:
            import fcntl
            import termios
        except ImportError:
            self._ask: Any = None
        else:  # elsewhere the end that is written to is not sure to know
            self._ask = fcntl.ioctl if sys.platform == "linux" else None
            self._question = termios.FIONREAD

    @property
    def unread(self) -> bool:
        """Whether there may be something in them that the engine has not read."""
        ask, question, (output, errors) = self._ask, self._question, self._pipes
        try:
            return (
                ask is None
                or ask(output, question, _NOTHING) != _NOTHING
                or ask(errors, question, _NOTHING) != _NOTHING
            )
        except OSError:
            return True


class Surroundings:
    """What jobs share in one process, put back after each."""

    def __init__(self) -> None:
        try:
            self._folder = os.open(".", os.O_RDONLY)  # leads back even if it is moved or removed
        except OSError:  # the engine's folder, and not for the user that this process has
            os.chdir("/")
            self._folder = os.open(".", os.O_RDONLY)
        self._environment = os.environ.copy()
        self._variables = dict(os.environ._data)  # type: ignore[attr-defined]
        self._path = list(sys.path)
        self._streams = (sys.stdin, sys.stdout, sys.stderr)

    def restore(self) -> bool:
        """Whether everything could be put back."""
        _, output, errors = self._streams
        if sys.stdout is not output or sys.stderr is not errors:
            _flush(sys.stdout)
            _flush(sys.stderr)
        _flush(output)
        _flush(errors)
        sys.stdin, sys.stdout, sys.stderr = self._streams
        sys.path[:] = self._path
        signal.alarm(0)
        known = getattr(os.environ, "_data", None)  # compared as it is kept, without decoding
        if known != self._variables and os.environ.copy() != self._environment:
            os.environ.clear()
            os.environ.update(self._environment)
        with suppress(OSError):
            os.fchdir(self._folder)
        return not (output.closed or errors.closed or self._streams[0].closed)


def _flush(stream: Any) -> None:
    try:  # noqa: SIM105 - called for every item of a loop, and `suppress` takes longer
        stream.flush()
    except Exception:  # closed, or replaced by anything
        pass


def _all_read(items: Sequence[bytes]) -> Sequence[Any]:
    """The jobs, read in one go; as they came where something is wrong with one of them."""
    try:
        return _decode(f"[{b','.join(items).decode()}]")  # type: ignore[no-any-return]
    except Exception:
        return items


def _ticks() -> int:
    """This instant as the system dates processes: the next job begins now."""
    return 0 if _CLOCK is None else int(_clock_gettime(_CLOCK) * _TICKS)


def _failure(kind: str, message: str) -> bytes:
    return json.dumps({"error": {"kind": kind, "message": message, "retryable": False}}).encode()


def _be_the_first_to_go() -> None:
    """When memory runs out the kernel should take this process, not the engine."""
    with suppress(OSError), open("/proc/self/oom_score_adj", "w") as score:
        score.write("500")


def _limit_memory(size: int) -> None:
    if size:
        import resource

        resource.setrlimit(resource.RLIMIT_AS, (size, size))


def _watch_for_the_engine(channel: int) -> None:
    """Where the kernel cannot do it (see `child_process.py`): when the engine is gone, go too."""
    import select

    poll = select.poll()
    poll.register(channel, 0)  # nothing but the hang-up
    poll.poll()
    os.killpg(0, signal.SIGKILL)


def main() -> None:
    channel, memory, reply_limit = (int(word) for word in sys.argv[1:])
    del sys.argv[1:]
    os.set_inheritable(channel, False)
    faulthandler.enable()
    _be_the_first_to_go()
    if sys.platform != "linux":
        _thread.start_new_thread(_watch_for_the_engine, (channel,))
    sys.stdout.reconfigure(line_buffering=True)  # type: ignore[union-attr] # seen while it runs
    _limit_memory(memory)
    InlineServer(channel, reply_limit).run()
