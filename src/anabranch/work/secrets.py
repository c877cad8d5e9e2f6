"""The kind `secrets`: a secret for the tasks that follow in the same pipeline.

Inputs: `provider` (env, file or static), `name` (also `secret_name`); for a file `path` or `root`,
for static `value`. The result is the value itself and can be used as `_prev` or by its label. It
never leaves the worker: where the pipeline's answer repeats it, there are stars.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

from anabranch import files
from anabranch.errors import InputError
from anabranch.kernel.values import Answer, succeeded
from anabranch.work import inputs
from anabranch.work.faults import fault, misconfigured
from anabranch.work.isolation import not_ours
from anabranch.work.keychain_kinds import read_secret_file
from anabranch.work.port import Task
from anabranch.work.redaction import Redactor, given_to_work


class Secrets:
    def __init__(self, redactor: Redactor, environment: Mapping[str, str] | None = None) -> None:
        self._redactor = redactor
        self._environment = os.environ if environment is None else environment

    async def perform(self, task: Task) -> Answer:
        try:
            value = await self._value(task.inputs)
        except InputError as error:
            return misconfigured(error)
        if value is None:
            name = task.inputs.get("name", task.inputs.get("secret_name"))
            return fault("not_found", f"there is no secret '{name}'")
        self._redactor.learn(value, task.run)
        scope = given_to_work()
        if scope is not None:  # whatever the pipeline says from now on is looked through for it
            scope.learn(value)
        return succeeded(value)

    async def _value(self, given: Mapping[str, Any]) -> str | None:
        provider = given.get("provider", "env")
        if provider == "static":
            return inputs.scalar(given.get("value"), "value")
        if provider == "env":
            return self._environment.get(not_ours(_name(given)))
        if provider == "file":
            return await files.in_thread(partial(_from_file, given), "the secret")
        raise InputError(f"provider '{provider}' cannot be reached from here; use env or file")


def _name(given: Mapping[str, Any]) -> str:
    name = given.get("name", given.get("secret_name"))
    if not isinstance(name, str) or not name:
        raise InputError("a secrets task needs name")
    return name


def _from_file(given: Mapping[str, Any]) -> str | None:
    if given.get("path") is not None:
        path = Path(inputs.text(given["path"], "path"))
    else:
        path = Path(inputs.text(given.get("root", "."), "root")) / _name(given)
    try:
        return read_secret_file(path) if path.exists() else None
    except ValueError:  # a NUL in it
        raise InputError(f"{str(path)!r:.200} is not a path") from None
