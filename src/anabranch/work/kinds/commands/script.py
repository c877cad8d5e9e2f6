"""The kind `script`: a program in a file, at an address or inline, run in a process of its own.

Inputs: `script` (see `script_sources.py`), `args`, `interpreter` (a program, or a list with its
options), `env` and `job.env`, `cwd`, `timeout` or `job.timeout`. The arguments come as JSON in the
first argument of the command, as in NoETL. Who interprets the script is said by `interpreter`, else
by its first line (`#!`), else by the end of its name; without any of these it is Python.
"""

from __future__ import annotations

import json
import os
import shlex
import shutil
import tempfile
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from functools import partial
from typing import Any

import msgspec

from anabranch import files
from anabranch.errors import InputError
from anabranch.kernel.values import Answer
from anabranch.work.faults import fault, misconfigured
from anabranch.work.kind_options import CommandOptions
from anabranch.work.kinds import inputs
from anabranch.work.kinds.commands.command import RunningCommand, environment_of, folder_of
from anabranch.work.kinds.commands.os_user import OsUser
from anabranch.work.kinds.python.performer import as_builtin
from anabranch.work.kinds.script_sources import ScriptSources, script_name, script_path
from anabranch.work.port import Task
from anabranch.work.secrets.redaction import given_to_work
from anabranch.work.time_limit import time_limit

_PYTHON = "python3"
_BY_NAME = {
    ".py": [_PYTHON],
    ".sh": ["/bin/sh"],
    ".bash": ["bash"],
    ".js": ["node"],
    ".pl": ["perl"],
    ".rb": ["ruby"],
}
_ARGUMENT_BYTES = 100_000  # Linux takes 128 KiB for one


class ScriptPerformer:
    """Performs scripts, each in a new process group."""

    def __init__(
        self, options: CommandOptions | None = None, scripts: ScriptSources | None = None
    ) -> None:
        self._options = options or CommandOptions()
        self._scripts = scripts or ScriptSources()

    async def perform(self, task: Task) -> Answer:
        given = task.inputs
        try:
            job = inputs.mapping(given.get("job"), "job")
            limit = inputs.timeout(given) or inputs.timeout(job)
            env = {
                **inputs.mapping(job.get("env"), "job.env"),
                **inputs.mapping(given.get("env"), "env"),
            }
            environment = environment_of(task, env, self._options.isolation)
            folder = folder_of(given.get("cwd"))
            arguments = _arguments(given.get("args"))
            if given.get("script") is None:
                raise InputError("a script task needs script")
            async with time_limit(limit):
                text = await self._scripts.text(given["script"], task)
            argv = interpreter_of(given.get("interpreter"), text, script_name(given["script"]))
        except InputError as error:
            return misconfigured(error)
        except TimeoutError:
            return fault("timeout", f"the script took longer than {limit:g} s", code="TIMEOUT")
        path = script_path(given["script"])
        if path is not None:
            return await self._run(
                [*argv, os.path.abspath(path), arguments], environment, folder, limit
            )
        async with kept_in_a_file(text, self._options.isolation.user) as copy:
            return await self._run([*argv, copy, arguments], environment, folder, limit)

    async def _run(
        self, argv: list[str], env: Mapping[str, str], folder: str | None, limit: float | None
    ) -> Answer:
        try:
            command = RunningCommand(
                argv, env, folder, self._options, what="the script", other="script"
            )
        except (OSError, ValueError) as error:
            return fault("config", f"the interpreter {argv[0]} could not be started: {error}")
        answer = await command.run(limit)
        if answer.status != "ok":
            return answer
        result = {"status": "completed", **answer.result, "output": answer.result["stdout"]}
        return msgspec.structs.replace(answer, result=result)


def interpreter_of(given: Any, text: str, name: str) -> list[str]:
    """The command that the path of the script is appended to."""
    if given is not None:
        words = given if isinstance(given, list) else [given]
        return [inputs.text(word, "interpreter") for word in words]
    first = text.partition("\n")[0]
    if first.startswith("#!"):
        try:
            words = shlex.split(first[2:])
        except ValueError:
            words = []
        if not words:
            raise InputError(f"the first line of the script names no interpreter: {first[:60]!r}")
        return words
    return list(_BY_NAME.get(os.path.splitext(name)[1].lower(), [_PYTHON]))


def _arguments(given: Any) -> str:
    """As JSON, for a command line that everybody on the machine can read."""
    try:
        text = json.dumps(dict(inputs.mapping(given, "args")), default=as_builtin)
    except (TypeError, ValueError, RecursionError) as error:
        raise InputError(f"args are not JSON: {error}") from None
    scope = given_to_work()
    if scope is not None and scope.holds_secret(text):
        raise InputError(
            "args hold a secret, and others on this machine can read the arguments of a script: "
            "give it in env"
        )
    if len(text.encode("utf-8", "replace")) > _ARGUMENT_BYTES:
        raise InputError(
            f"args have more than {_ARGUMENT_BYTES:,} bytes as JSON, more than a command line "
            "takes: put them into a file (kind artifact) and give its path"
        )
    return text


@asynccontextmanager
async def kept_in_a_file(text: str, user: OsUser | None) -> AsyncIterator[str]:
    """The text in a file of its own for the time of the block, which `user` can read."""
    folder = await files.in_thread(partial(_written, text, user), "script")
    try:
        yield os.path.join(folder, "script")
    finally:
        await files.in_thread(partial(shutil.rmtree, folder, ignore_errors=True), "script")


def _written(text: str, user: OsUser | None) -> str:
    folder = tempfile.mkdtemp(prefix="anabranch-script-")
    path = os.path.join(folder, "script")
    with open(path, "w", encoding="utf-8", newline="") as file:
        file.write(text)
    os.chmod(path, 0o755)
    if user is not None:
        for each in (path, folder):
            os.chown(each, user.uid, user.gid)
    return folder
