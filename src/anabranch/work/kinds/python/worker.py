"""The process that runs inline Python code: `python -P worker.py CHANNEL MEMORY LIMIT`.

It reads jobs from the descriptor CHANNEL and writes replies there, each as four bytes of length and
JSON; standard output and error belong to the code. One process serves many jobs, one after the
other, each with fresh globals. It ends when the engine closes the channel, and asks to be replaced
when a job left threads or processes behind, or closed the standard streams.

The file is started by its path and imports only the standard library, so that it is ready within
tens of milliseconds. Nothing of `anabranch` but five small modules is loaded.
"""

from __future__ import annotations

import _thread
import faulthandler
import json
import os
import signal
import sys
import types
from contextlib import suppress
from typing import Any

#: The first byte of a reply: whether this process is fit for another job.
KEEP, RETIRE = b"K", b"R"

#: The exit status when there is no way left to reply.
CHANNEL_LOST = 113


class InlineServer:
    """Answers the jobs that come over one channel until it is closed."""

    def __init__(self, channel: int, reply_limit: int, inline: Any) -> None:
        self._channel = channel
        self._reply_limit = reply_limit
        self._inline = inline
        self._pid = os.getpid()
        self._threads = _thread._count()
        os.register_at_fork(after_in_child=self._forked)

    def run(self) -> None:
        surroundings = Surroundings()
        while (request := self._receive()) is not None:
            reply = self._perform(request)
            intact = surroundings.restore()
            if os.getpid() != self._pid:
                os._exit(0)  # the code forked, and this is the other half, done with its part
            try:
                fit = intact and not self._left_something()
                self._send((KEEP if fit else RETIRE) + reply)
            except OSError:
                os._exit(CHANNEL_LOST)

    def _perform(self, request: bytes) -> bytes:
        try:
            reply = self._inline.execute(self._inline.InlineJob(**json.loads(request)))
            if reply.error is None:
                body = f'{{"result":{reply.result}}}'.encode()
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
        data = memoryview(len(reply).to_bytes(4, "big") + reply)
        while data:
            data = data[os.write(self._channel, data) :]

    def _forked(self) -> None:
        with suppress(OSError):
            os.close(self._channel)  # replies are for the first process to give


class Surroundings:
    """What jobs share in one process, put back after each."""

    def __init__(self) -> None:
        try:
            self._folder = os.open(".", os.O_RDONLY)  # leads back even if it is moved or removed
        except OSError:  # the engine's folder, and not for the user that this process has
            os.chdir("/")
            self._folder = os.open(".", os.O_RDONLY)
        self._environment = os.environ.copy()
        self._path = list(sys.path)
        self._streams = (sys.stdin, sys.stdout, sys.stderr)

    def restore(self) -> bool:
        """Whether everything could be put back."""
        for stream in (sys.stdout, sys.stderr, *self._streams[1:]):
            with suppress(Exception):  # closed, or replaced by anything
                stream.flush()
        sys.stdin, sys.stdout, sys.stderr = self._streams
        sys.path[:] = self._path
        signal.alarm(0)
        if os.environ.copy() != self._environment:
            os.environ.clear()
            os.environ.update(self._environment)
        with suppress(OSError):
            os.fchdir(self._folder)
        return not any(stream.closed for stream in self._streams)


def _failure(kind: str, message: str) -> bytes:
    return json.dumps({"error": {"kind": kind, "message": message, "retryable": False}}).encode()


def _load_inline() -> Any:
    """Imports `anabranch.work.kinds.python.inline` without running the packages around it.

    Their `__init__` may import the whole engine. Stand-ins lead the import to the files and are
    taken away again, so that code which imports `anabranch` gets the real one.
    """
    folder = os.path.dirname(os.path.abspath(__file__))
    kinds = os.path.dirname(folder)
    work = os.path.dirname(kinds)
    packages = {
        "anabranch": os.path.dirname(work),
        "anabranch.work": work,
        "anabranch.work.values": os.path.join(work, "values"),
        "anabranch.work.kinds": kinds,
        "anabranch.work.kinds.python": folder,
    }
    for name, path in packages.items():
        package = sys.modules[name] = types.ModuleType(name)
        package.__path__ = [path]
    from anabranch.work.kinds.python import inline

    for name in [name for name in sys.modules if name.split(".")[0] == "anabranch"]:
        del sys.modules[name]
    return inline


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
    inline = _load_inline()
    _limit_memory(memory)
    InlineServer(channel, reply_limit, inline).run()


if __name__ == "__main__":
    main()
