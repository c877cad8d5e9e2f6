"""The kind `container`: a script, or a command, in a container that podman or docker runs.

Inputs: `runtime` {image, command, args, env, timeoutSeconds}, `script` (see `script_sources.py`),
`env`, `timeout`. The script stands in the container as /workspace/script.sh and is run by
/bin/bash, as in NoETL, unless `command` says otherwise; without both the image does what it does by
itself.

The command is `container_command` of the settings, or the first of podman and docker that is there.
Variables travel to the container in a file (`--env-file`): neither on the command line, which
others can read, nor in the environment of the command, where `LD_PRELOAD`, `DOCKER_HOST` and their
like would decide what runs on this machine. A container whose task is cancelled or
out of time is removed by its name; when the engine is killed it goes on, under the label
`anabranch.run`.
"""

from __future__ import annotations

import os
import re
import secrets
import shlex
import shutil
from collections.abc import Mapping
from contextlib import AsyncExitStack, suppress
from typing import Any

import msgspec

from anabranch.errors import InputError
from anabranch.kernel.values import Answer
from anabranch.work.faults import fault, misconfigured
from anabranch.work.kind_options import ContainerOptions
from anabranch.work.kinds import inputs
from anabranch.work.kinds.commands.child_process import undisturbed
from anabranch.work.kinds.commands.command import RunningCommand, variables_of
from anabranch.work.kinds.commands.script import kept_in_a_file
from anabranch.work.kinds.script_sources import ScriptSources
from anabranch.work.port import Task
from anabranch.work.time_limit import time_limit

PROGRAMS = ("podman", "docker")
SCRIPT = "/workspace/script.sh"
_MISSING = (
    "containers are run by podman or docker, and this process finds neither: install one of them, "
    "or name the command in the setting container_command"
)
#: What the command itself needs of the engine's environment, beside what inline work inherits.
_OF_THE_COMMAND = re.compile(r"(DOCKER|CONTAINER|CONTAINERS)_\w+|XDG_RUNTIME_DIR")
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_LINE_BYTES = 65_000  # docker reads no longer line of a file of variables
_REMOVE_SECONDS = 30.0
_NOT_STARTED = 125  # of podman and docker: it is they who failed


class _Plan(msgspec.Struct, frozen=True, kw_only=True):
    """What a task asks for."""

    image: str
    command: list[str] | None
    arguments: list[str]
    variables: Mapping[str, str]
    timeout_seconds: float | None


class Container:
    """Performs containers, each with a name of its own."""

    def __init__(
        self, options: ContainerOptions | None = None, scripts: ScriptSources | None = None
    ) -> None:
        self._options = options or ContainerOptions()
        self._scripts = scripts or ScriptSources()

    async def perform(self, task: Task) -> Answer:
        client = self._client()
        if client is None:
            return fault("config", _MISSING, code="NO_CONTAINER_COMMAND")
        script = task.inputs.get("script")
        try:
            plan = _read(task, with_script=script is not None)
            if script is None:
                return await self._run(client, plan, task, None)
            async with time_limit(plan.timeout_seconds):
                text = await self._scripts.text(script, task)
        except InputError as error:
            return misconfigured(error)
        except TimeoutError:
            limit = f"{plan.timeout_seconds:g}"
            return fault("timeout", f"the script took longer than {limit} s", code="TIMEOUT")
        return await self._run(client, plan, task, text)

    def _client(self) -> list[str] | None:
        words = shlex.split(self._options.command)
        for program in words[:1] or PROGRAMS:
            found = shutil.which(program)
            if found is not None:
                return [found, *words[1:]]
        return None

    async def _run(self, client: list[str], plan: _Plan, task: Task, script: str | None) -> Answer:
        user = self._options.isolation.user
        lines = "".join(f"{name}={text}\n" for name, text in plan.variables.items())
        async with AsyncExitStack() as kept:
            variables = await kept.enter_async_context(kept_in_a_file(lines, user))
            path = None
            if script is not None:
                path = await kept.enter_async_context(kept_in_a_file(script, user))
            return await self._run_client(client, plan, task, variables, path)

    async def _run_client(
        self, client: list[str], plan: _Plan, task: Task, variables: str, script: str | None
    ) -> Answer:
        name = f"anabranch-{secrets.token_hex(8)}"
        argv = [*client, *_arguments(name, plan, task, variables, script)]
        try:
            command = RunningCommand(
                argv,
                self._inherited(),
                None,
                self._options,
                what="the container",
                other="container",
            )
        except (OSError, ValueError) as error:
            return fault("config", f"{client[0]} could not be started: {error}")
        try:
            async with time_limit(plan.timeout_seconds):
                code = await command.ended()
        except TimeoutError:
            await undisturbed(self._removed(client, name))
            return command.out_of_time(plan.timeout_seconds)
        except BaseException:
            await undisturbed(self._removed(client, name))
            raise
        finally:
            command.close()
        return _answer(command, code, client, plan)

    def _inherited(self) -> dict[str, str]:
        """The environment of the command: nothing of a task."""
        isolation = self._options.isolation
        own = {} if isolation.user else os.environ
        needed = {name: text for name, text in own.items() if _OF_THE_COMMAND.fullmatch(name)}
        return {**isolation.variables(), **needed}

    async def _removed(self, client: list[str], name: str) -> None:
        """The command is gone by now, but the container may have outlived it."""
        with suppress(OSError, TimeoutError):
            removing = RunningCommand(
                [*client, "rm", "--force", name], self._inherited(), None, self._options
            )
            try:
                async with time_limit(_REMOVE_SECONDS):
                    await removing.ended()
            finally:
                removing.close()


def _answer(command: RunningCommand, code: int, client: list[str], plan: _Plan) -> Answer:
    if code == _NOT_STARTED:
        program = os.path.basename(client[0])
        return fault(
            "container",
            f"{program} could not run the image {plan.image}{command.last_words()}",
            code=f"EXIT_{code}",
            details=command.streams(code),
        )
    answer = command.answer(code)
    if answer.status != "ok":
        return answer
    more = {"status": "success", "image": plan.image, "logs": answer.result["stdout"]}
    return msgspec.structs.replace(answer, result={**answer.result, **more})


def _read(task: Task, *, with_script: bool) -> _Plan:
    given = task.inputs
    runtime = inputs.mapping(given.get("runtime"), "runtime")
    image = inputs.text(runtime.get("image"), "runtime.image").strip()
    if not image or image.startswith("-") or any(letter.isspace() for letter in image):
        raise InputError(f"runtime.image must be the name of an image, not {image[:60]!r}")
    command = _words(runtime.get("command"), "runtime.command")
    if command is None and with_script:
        command = ["/bin/bash", SCRIPT]
    variables = {
        **variables_of(given.get("env"), "env"),
        **variables_of(runtime.get("env"), "runtime.env"),
        **({"NOETL_SCRIPT_PATH": SCRIPT} if with_script else {}),
        "ANABRANCH_RUN": task.run,
        "ANABRANCH_STEP": task.step,
        "ANABRANCH_KEY": task.key,
    }
    for name, text in variables.items():
        _require_line(name, text)
    seconds = runtime.get("timeoutSeconds")
    limit = None if seconds is None else inputs.seconds(seconds, "runtime.timeoutSeconds")
    return _Plan(
        image=image,
        command=command,
        arguments=_words(runtime.get("args"), "runtime.args") or [],
        variables=variables,
        timeout_seconds=inputs.timeout(given) or limit,
    )


def _words(value: Any, what: str) -> list[str] | None:
    if value is None:
        return None
    words = value if isinstance(value, list) else [value]
    return [inputs.scalar(word, what) for word in words]


def _require_line(name: str, text: str) -> None:
    """A variable is one line of the file that podman and docker read."""
    if not _VARIABLE.fullmatch(name):
        raise InputError(f"env: {name[:60]!r} cannot be the name of a variable")
    if "\n" in text or "\r" in text:
        raise InputError(
            f"env.{name} has several lines, and podman and docker take a variable of one line: "
            "give it in base64, or inside the script"
        )
    try:
        size = len(f"{name}={text}".encode())
    except UnicodeEncodeError:
        raise InputError(f"env.{name} is not Unicode text") from None
    if "\0" in text or size > _LINE_BYTES:
        more = "has a NUL in it" if "\0" in text else f"is longer than {_LINE_BYTES:,} bytes"
        raise InputError(f"env.{name} {more}, and cannot be a variable of a container")


def _arguments(name: str, plan: _Plan, task: Task, variables: str, script: str | None) -> list[str]:
    made = ["run", "--rm", "--name", name, "--label", f"anabranch.run={task.run}"]
    made += ["--env-file", variables]
    if script is not None:
        made += ["--volume", f"{script}:{SCRIPT}:ro"]
    if plan.command:
        made += ["--entrypoint", plan.command[0]]
    return [*made, plan.image, *(plan.command or [])[1:], *plan.arguments]
