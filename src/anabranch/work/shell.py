"""The kind `shell`: a command in a shell, in a session of its own.

Inputs: `command` (text), or `cmds` (a list, run as one script that stops at the first failure);
`shell` (a program, or a list with its options; default /bin/sh), `cwd`, `env`, `timeout`. Of the
engine's environment the command gets what `isolation.py` lets through; it sees ANABRANCH_RUN,
ANABRANCH_STEP and ANABRANCH_KEY, and nothing on standard input.

The task is done when the shell is; what it left running in the background is ended with it.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

import msgspec

from anabranch.errors import InputError
from anabranch.kernel.values import Answer, succeeded
from anabranch.work import inputs
from anabranch.work.capture import Capture
from anabranch.work.children import Child, ending, undisturbed
from anabranch.work.exit_kinds import kind_of_exit
from anabranch.work.faults import fault, misconfigured
from anabranch.work.isolation import Isolation
from anabranch.work.port import Task
from anabranch.work.redaction import head_of, tail_of
from anabranch.work.time_limit import time_limit

_DEFAULT_SHELL = "/bin/sh"
_TAIL = 4_000  # characters of each stream shown in a failure
_HINTS = {126: " (found, but it cannot be executed)", 127: " (command not found)"}


class ShellOptions(msgspec.Struct, frozen=True, kw_only=True):
    capture_bytes: int = 1024 * 1024  # kept of each stream: the last so many
    grace_seconds: float = 1.0  # between SIGTERM and SIGKILL
    isolation: Isolation = Isolation()


class Shell:
    """Performs commands, each in a new process group."""

    def __init__(self, options: ShellOptions | None = None) -> None:
        self._options = options or ShellOptions()

    async def perform(self, task: Task) -> Answer:
        try:
            argv = _argv(task.inputs)
            environment = _environment(task, self._options.isolation)
            folder = _folder(task.inputs.get("cwd"))
            limit = inputs.timeout(task.inputs)
        except InputError as error:
            return misconfigured(error)
        try:
            command = _Command(argv, environment, folder, self._options)
        except (OSError, ValueError) as error:
            return fault("config", f"the shell {argv[0]} could not be started: {error}")
        try:
            async with time_limit(limit):
                code = await command.ended()
        except TimeoutError:
            return command.out_of_time(limit)
        finally:
            command.close()
        return command.answer(code)


class _Command:
    """One running command and what it wrote."""

    def __init__(
        self, argv: list[str], env: Mapping[str, str], cwd: str | None, options: ShellOptions
    ) -> None:
        self._options = options
        self._stdout = Capture(options.capture_bytes)
        try:
            self._stderr = Capture(options.capture_bytes)
        except BaseException:
            self._stdout.close()
            raise
        try:
            self._child = Child.start(
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

    async def ended(self) -> int:
        try:
            return await self._child.exited()
        except BaseException:
            grace = self._options.grace_seconds
            await undisturbed(self._child.stop(grace, with_descendants=True))
            raise

    def close(self) -> None:
        self._stdout.close()
        self._stderr.close()

    def answer(self, code: int) -> Answer:
        if code == 0:
            return succeeded(self._streams(code))
        kind, may_heal = kind_of_exit(code)
        return fault(
            kind,
            f"the command ended with {ending(code)}{_HINTS.get(code, '')}{self._last_words()}",
            code=f"EXIT_{code}" if code > 0 else f"SIGNAL_{-code}",
            details=self._streams(code, tail=_TAIL),
            retryable=may_heal,
        )

    def out_of_time(self, limit: float | None) -> Answer:
        message = f"the command ran longer than {limit:g} s and was stopped"
        return fault("timeout", message, code="TIMEOUT", details=self._streams(None, tail=_TAIL))

    def _streams(self, code: int | None, tail: int = 0) -> dict[str, Any]:
        report: dict[str, Any] = {} if code is None else {"exit_code": code}
        for name, stream in (("stdout", self._stdout), ("stderr", self._stderr)):
            text = stream.text
            report[name] = tail_of(text, tail) if tail else text
            if stream.truncated or (tail and len(text) > tail):
                report[f"{name}_truncated"] = True
                report[f"{name}_bytes"] = stream.total
        return report

    def _last_words(self) -> str:
        lines = self._stderr.text.strip().splitlines()
        if not lines:
            return ""
        return f": {head_of(lines[-1], 300)}{self._options.isolation.hint(lines[-1])}"


def _argv(given: Mapping[str, Any]) -> list[str]:
    command, commands = given.get("command"), given.get("cmds")
    if (command is None) == (commands is None):
        raise InputError("a shell task takes either command (text) or cmds (a list of texts)")
    shell = given.get("shell") or _DEFAULT_SHELL
    program = shell if isinstance(shell, list) else [shell]
    argv = [inputs.text(word, "shell") for word in program]
    if commands is None:
        return [*argv, "-c", inputs.text(command, "command")]
    if not isinstance(commands, list) or not commands:
        raise InputError("cmds must be a list of commands")
    lines = [inputs.text(line, f"cmds[{index}]") for index, line in enumerate(commands)]
    return [*argv, "-e", "-c", "\n".join(lines)]


def _environment(task: Task, isolation: Isolation) -> dict[str, str]:
    given = inputs.mapping(task.inputs.get("env"), "env")
    return {
        **isolation.variables(),
        **{
            name: inputs.scalar(value, f"env.{name}")
            for name, value in given.items()
            if value is not None
        },
        "ANABRANCH_RUN": task.run,
        "ANABRANCH_STEP": task.step,
        "ANABRANCH_KEY": task.key,
    }


def _folder(value: Any) -> str | None:
    if value is None:
        return None
    folder = inputs.text(value, "cwd")
    if not os.path.isdir(folder):
        raise InputError(f"cwd: there is no folder {folder}")
    return folder
