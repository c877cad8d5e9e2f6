"""Commands of inline work: a process in a group of its own, what it wrote, and how it ended."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

from anabranch.errors import InputError
from anabranch.kernel.values import Answer, succeeded
from anabranch.work.faults import fault
from anabranch.work.kind_options import CommandOptions
from anabranch.work.kinds import inputs
from anabranch.work.kinds.commands.capture import Capture
from anabranch.work.kinds.commands.child_process import ChildProcess, ending, undisturbed
from anabranch.work.kinds.commands.isolation import Isolation
from anabranch.work.logs.attempt_log import print_target
from anabranch.work.port import Task
from anabranch.work.secrets.redaction import head_of, tail_of
from anabranch.work.time_limit import time_limit

_TAIL = 4_000  # characters of each stream shown in a failure
_HINTS = {126: " (found, but it cannot be executed)", 127: " (command not found)"}
#: Kinds of error by exit status, and whether trying again may help. The numbers are those of shells
#: (126, 127, 128 and the signal), of `timeout(1)` (124) and of `sysexits.h` (64 to 78). Every other
#: one says only that the command failed.
EXIT_KINDS: Mapping[int, tuple[str, bool]] = {
    64: ("config", False),  # used in a wrong way
    65: ("schema", False),  # the data is wrong
    66: ("not_found", False),  # no such input
    68: ("connection", True),  # no such host
    69: ("connection", True),  # a service is away
    71: ("resource", True),  # the system has no more of something
    73: ("storage_access", True),
    74: ("storage_access", True),
    75: ("resource", True),  # try again later
    77: ("auth", False),
    78: ("config", False),
    124: ("timeout", True),
    126: ("config", False),  # found, but it cannot be executed
    127: ("not_found", False),  # no such command
    137: ("resource", True),  # killed, by whoever was short of memory in most cases
}
_OTHER = ("shell", True)
_KILLED = 9


class RunningCommand:
    """One running command and what it wrote. A failure calls it `what`, and is of the kind `other`
    where its exit status has none of its own."""

    def __init__(
        self,
        argv: list[str],
        env: Mapping[str, str],
        cwd: str | None,
        options: CommandOptions,
        *,
        what: str = "the command",
        other: str = _OTHER[0],
    ) -> None:
        self._options = options
        self._what = what
        self._other = other
        self._stdout = Capture(options.capture_bytes)
        try:
            self._stderr = Capture(options.capture_bytes, stream="stderr")
        except BaseException:
            self._stdout.close()
            raise
        try:
            self._child = ChildProcess.start(
                argv,
                output=self._stdout.writer,
                errors=self._stderr.writer,
                env=env,
                cwd=cwd,
                user=options.isolation.user,
            )
        except BaseException:
            self.close()
            raise
        self._stdout.started()
        self._stderr.started()
        self._stdout.target = self._stderr.target = print_target.get()

    async def ended(self) -> int:
        try:
            return await self._child.exited()
        except BaseException:
            grace = self._options.grace_seconds
            await undisturbed(self._child.stop(grace, with_descendants=True))
            raise

    async def run(self, limit: float | None) -> Answer:
        """Its answer, when it has ended or its time is up; nothing of it stays open."""
        try:
            async with time_limit(limit):
                code = await self.ended()
        except TimeoutError:
            return self.out_of_time(limit)
        finally:
            self.close()
        return self.answer(code)

    def close(self) -> None:
        self._stdout.close()
        self._stderr.close()

    def answer(self, code: int) -> Answer:
        if code == 0:
            return succeeded(self.streams(code))
        kind, may_heal = kind_of_exit(code, self._other)
        return fault(
            kind,
            f"{self._what} ended with {ending(code)}{_HINTS.get(code, '')}{self.last_words()}",
            code=f"EXIT_{code}" if code > 0 else f"SIGNAL_{-code}",
            details=self.streams(code, tail=_TAIL),
            retryable=may_heal,
        )

    def out_of_time(self, limit: float | None) -> Answer:
        message = f"{self._what} ran longer than {limit:g} s and was stopped"
        return fault("timeout", message, code="TIMEOUT", details=self.streams(None, tail=_TAIL))

    def streams(self, code: int | None, tail: int = 0) -> dict[str, Any]:
        report: dict[str, Any] = {} if code is None else {"exit_code": code}
        for name, stream in (("stdout", self._stdout), ("stderr", self._stderr)):
            text = stream.text
            report[name] = tail_of(text, tail) if tail else text
            if stream.truncated or (tail and len(text) > tail):
                report[f"{name}_truncated"] = True
                report[f"{name}_bytes"] = stream.total
        return report

    def last_words(self) -> str:
        lines = self._stderr.text.strip().splitlines()
        if not lines:
            return ""
        return f": {head_of(lines[-1], 300)}{self._options.isolation.hint(lines[-1])}"


def environment_of(task: Task, given: Any, isolation: Isolation) -> dict[str, str]:
    """What inline work inherits, with the variables of the task laid over it."""
    return {
        **isolation.variables(),
        **variables_of(given, "env"),
        "ANABRANCH_RUN": task.run,
        "ANABRANCH_STEP": task.step,
        "ANABRANCH_KEY": task.key,
    }


def variables_of(given: Any, what: str) -> dict[str, str]:
    """Variables as text; null leaves one out."""
    return {
        name: inputs.scalar(value, f"{what}.{name}")
        for name, value in inputs.mapping(given, what).items()
        if value is not None
    }


def folder_of(value: Any) -> str | None:
    if value is None:
        return None
    folder = inputs.text(value, "cwd")
    if not os.path.isdir(folder):
        raise InputError(f"cwd: there is no folder {folder}")
    return folder


def kind_of_exit(status: int, other: str = _OTHER[0]) -> tuple[str, bool]:
    """Of an exit status; a signal that ended the shell itself is a number below zero."""
    return EXIT_KINDS.get(128 + _KILLED if status == -_KILLED else status, (other, _OTHER[1]))
