"""The kind `shell`: a command in a shell, in a session of its own.

Inputs: `command` (text), or `cmds` (a list, run as one script that stops at the first failure);
`shell` (a program, or a list with its options; default /bin/sh), `cwd`, `env`, `timeout`. Of the
engine's environment the command gets what `isolation.py` lets through; it sees ANABRANCH_RUN,
ANABRANCH_STEP and ANABRANCH_KEY, and nothing on standard input.

The task is done when the shell is; what it left running in the background is ended with it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from anabranch.errors import InputError
from anabranch.kernel.values import Answer
from anabranch.work.faults import fault, misconfigured
from anabranch.work.kind_options import ShellOptions
from anabranch.work.kinds import inputs
from anabranch.work.kinds.commands.command import RunningCommand, environment_of, folder_of
from anabranch.work.port import Task

_DEFAULT_SHELL = "/bin/sh"


class Shell:
    """Performs commands, each in a new process group."""

    def __init__(self, options: ShellOptions | None = None) -> None:
        self._options = options or ShellOptions()

    async def perform(self, task: Task) -> Answer:
        try:
            argv = _argv(task.inputs)
            environment = environment_of(task, task.inputs.get("env"), self._options.isolation)
            folder = folder_of(task.inputs.get("cwd"))
            limit = inputs.timeout(task.inputs)
        except InputError as error:
            return misconfigured(error)
        try:
            command = RunningCommand(argv, environment, folder, self._options)
        except (OSError, ValueError) as error:
            return fault("config", f"the shell {argv[0]} could not be started: {error}")
        return await command.run(limit)


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
