"""Child processes that can really be stopped.

Every child leads a session of its own, so that one signal to its group reaches all it started.
When the leader ends, for whatever reason, what is left of the group is killed. When the engine
itself dies (`kill -9`), the kernel does the same: each child inherits the reading end of a pipe,
its lifeline, set to send SIGKILL to the whole group once the writing end is gone.

A process that moves to a session of its own (`setsid`) leaves the group. It is left alone when the
child ends by itself, and ended with a child that is told to stop `with_descendants`.
"""

from __future__ import annotations

import asyncio
import fcntl
import os
import secrets
import signal
import subprocess
import threading
import time
from collections.abc import Coroutine, Mapping, Sequence
from contextlib import suppress
from typing import Any, TypeVar

from anabranch.work.kinds.commands import descendants
from anabranch.work.kinds.commands.os_user import OsUser

T = TypeVar("T")

_LIFELINE_ABOVE = 64  # leaves the low numbers to scripts that open descriptors themselves
_SETTLE_SECONDS = 0.05
_ROUNDS = 50  # of looking for descendants: one that forks faster than it is killed is given up
_ROUND_SECONDS = 0.01


class ChildProcess:
    """One process and everything it started."""

    def __init__(
        self, process: subprocess.Popen[bytes], lifeline: int, mark: str, since: int
    ) -> None:
        self.pid = process.pid
        self._mark = mark
        self._since = since
        self._process = process
        self._lifeline = lifeline
        self._loop = asyncio.get_running_loop()
        self._exit: asyncio.Future[int] = self._loop.create_future()
        self._watch()

    @classmethod
    def start(
        cls,
        argv: Sequence[str],
        *,
        output: int,
        errors: int,
        env: Mapping[str, str],
        cwd: str | None = None,
        keep: Sequence[int] = (),
        user: OsUser | None = None,
    ) -> ChildProcess:
        """Starts `argv` writing to the descriptors `output` and `errors`; it also gets `keep`."""
        mark, since = secrets.token_hex(8), descendants.now()
        reading, writing = _lifeline()
        other: dict[str, Any] = {}
        if user is not None:
            other = {"user": user.uid, "group": user.gid, "extra_groups": user.groups}
            user.lend(output, errors)
        try:
            process = subprocess.Popen(
                argv,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=errors,
                env={**env, descendants.MARK: mark},
                cwd=cwd,
                pass_fds=(*keep, reading),
                start_new_session=True,
                **other,
            )
            _arm(reading, process.pid)
        except BaseException:
            os.close(writing)
            raise
        finally:
            os.close(reading)
        return cls(process, writing, mark, since)

    @property
    def ended(self) -> bool:
        return self._exit.done()

    async def exited(self) -> int:
        """The return code; negative when a signal ended the process."""
        return await asyncio.shield(self._exit)

    def next_job(self) -> None:
        """From now on it works on something else: what it started before is not part of that."""
        self._since = descendants.now()

    def began(self, ticks: int) -> None:
        """It said itself when it began what it works on now, in ticks; 0 where it did not."""
        if ticks:
            self._since = ticks - 1  # processes are dated in coarse ticks

    async def stop(self, grace_seconds: float, *, with_descendants: bool = False) -> int:
        """Asks the group to end, then makes it; returns when it is gone."""
        outside = await self._descendants() if with_descendants else []
        if not self._exit.done():
            self._signal(signal.SIGTERM)
            descendants.send(signal.SIGTERM, outside)
            await asyncio.wait((self._exit,), timeout=grace_seconds)
        if not self._exit.done():
            self._signal(signal.SIGKILL)
        code = await self.exited()
        if with_descendants:
            await self._end_descendants(outside)
        await self._settled()
        return code

    async def _end_descendants(self, known: list[descendants.SystemProcess]) -> None:
        """Those that were seen below it while it lived, and whatever still has its mark."""
        descendants.send(signal.SIGKILL, known)
        for _ in range(_ROUNDS):
            left = await self._descendants()
            if not left:
                return
            descendants.send(signal.SIGKILL, left)
            await asyncio.sleep(_ROUND_SECONDS)

    async def _descendants(self) -> list[descendants.SystemProcess]:
        return await asyncio.to_thread(descendants.descendants, self.pid, self._mark, self._since)

    def _watch(self) -> None:
        try:
            self._pidfd = os.pidfd_open(self.pid)
        except (AttributeError, OSError):  # not on this platform, or not allowed
            threading.Thread(target=self._wait_in_thread, daemon=True).start()
        else:
            self._loop.add_reader(self._pidfd, self._ended)

    def _ended(self) -> None:
        self._loop.remove_reader(self._pidfd)
        os.close(self._pidfd)
        self._signal(signal.SIGKILL)  # the unreaped leader still guards the number of the group
        self._finish(self._process.wait())

    def _wait_in_thread(self) -> None:
        code = self._process.wait()
        self._signal(signal.SIGKILL)
        with suppress(RuntimeError):  # the loop is closed
            self._loop.call_soon_threadsafe(self._finish, code)

    def _finish(self, code: int) -> None:
        os.close(self._lifeline)
        if not self._exit.done():
            self._exit.set_result(code)

    def _signal(self, number: int) -> None:
        with suppress(ProcessLookupError, PermissionError):  # macOS: EPERM for a dead group
            os.killpg(self.pid, number)

    async def _settled(self) -> None:
        """Killed grandchildren need a moment; whoever reaps them may take longer, at leisure."""
        until = time.monotonic() + _SETTLE_SECONDS
        while _group_exists(self.pid) and time.monotonic() < until:
            await asyncio.sleep(0.002)


async def undisturbed(work: Coroutine[Any, Any, T]) -> T:
    """Awaits `work` to its end however often the caller is cancelled; then the cancel goes on."""
    task = asyncio.ensure_future(work)
    cancelled: asyncio.CancelledError | None = None
    while not task.done():
        try:
            await asyncio.shield(task)
        except asyncio.CancelledError as error:
            cancelled = error
    if cancelled is not None:
        raise cancelled
    return task.result()


def ending(code: int) -> str:
    """How a process ended, in words."""
    if code >= 0:
        return f"exit status {code}"
    try:
        name = signal.Signals(-code).name
    except ValueError:
        name = f"signal {-code}"
    hint = " (out of memory, perhaps)" if -code == signal.SIGKILL else ""
    return f"{name}{hint}"


def _lifeline() -> tuple[int, int]:
    low, writing = os.pipe()
    try:
        high = fcntl.fcntl(low, fcntl.F_DUPFD_CLOEXEC, _LIFELINE_ABOVE)
    except OSError:  # there are no such numbers (`ulimit -n 64`), or none is free
        return low, writing
    os.close(low)
    return high, writing


def _arm(reading: int, group: int) -> None:
    """Linux only; elsewhere a Python worker watches its channel, and commands outlive a crash."""
    if not hasattr(fcntl, "F_SETSIG"):
        return
    with suppress(OSError):  # it ended already
        fcntl.fcntl(reading, fcntl.F_SETOWN, -group)
        fcntl.fcntl(reading, fcntl.F_SETSIG, signal.SIGKILL)
        fcntl.fcntl(reading, fcntl.F_SETFL, fcntl.fcntl(reading, fcntl.F_GETFL) | os.O_ASYNC)


def _group_exists(group: int) -> bool:
    try:
        os.killpg(group, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return False
    return True
