"""The kind `secrets`: a secret for the tasks that follow in the same pipeline.

Inputs: `provider` (env, file, static, store or one that cannot be reached), `name` (also
`secret_name`); for a file `path` or `root`, for static `value`. Without a provider a variable of
the environment is looked for, then the keychain entry or the credential of that name. The result is
the value itself and can be used as `_prev` or by its label. It never leaves the worker: where the
pipeline's answer repeats it, there are stars.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

from anabranch import files
from anabranch.errors import InputError
from anabranch.kernel.values import Answer, succeeded
from anabranch.work.faults import fault, misconfigured
from anabranch.work.file_policy import EVERYWHERE, FilePolicy
from anabranch.work.kinds import inputs
from anabranch.work.kinds.commands.isolation import SETTINGS, KeptNames, ReadableVariables
from anabranch.work.port import Task
from anabranch.work.secrets.credential_entries import ELSEWHERE
from anabranch.work.secrets.keychain_kinds import read_secret_file
from anabranch.work.secrets.oauth2 import KeychainError
from anabranch.work.secrets.redaction import Keyring, Redactor, given_to_work


class SecretsPerformer:
    def __init__(
        self,
        redactor: Redactor,
        environment: Mapping[str, str] | None = None,
        *,
        allowed: FilePolicy = EVERYWHERE,
        own: KeptNames = SETTINGS,
    ) -> None:
        self._redactor = redactor
        self._allowed = allowed
        self._environment = ReadableVariables(own, environment)

    async def perform(self, task: Task) -> Answer:
        try:
            value = await self._value(task.inputs)
        except InputError as error:
            return misconfigured(error)
        except KeychainError as error:
            return fault(error.kind, error.message, retryable=error.retryable)
        if value is None:
            name = task.inputs.get("name", task.inputs.get("secret_name"))
            provider = task.inputs.get("provider", "env")
            return fault("not_found", f"there is no secret '{name}' (looked in {provider})")
        self._redactor.learn(_secrets(value), task.run)
        scope = given_to_work()
        if scope is not None:  # whatever the pipeline says from now on is looked through for it
            scope.learn(_secrets(value))
        return succeeded(value)

    async def _value(self, given: Mapping[str, Any]) -> Any:
        provider = given.get("provider")
        if provider == "static":
            return inputs.scalar(given.get("value"), "value")
        if provider == "file":
            return await files.in_thread(partial(_from_file, given, self._allowed), "the secret")
        if provider in (None, "env"):
            found = self._environment.get(_name(given))
            if found is not None or provider == "env":
                return found
            return await _credential(given, "the environment has no such variable, and ")
        if provider == "store":
            return await _credential(given)
        if provider in ELSEWHERE:
            said = f"the provider '{provider}' cannot be reached from here, and "
            return await _credential(given, said, "config")
        known = ", ".join(("env", "file", "static", "store", *sorted(ELSEWHERE)))
        raise InputError(f"provider '{provider}' is not known here; there are {known}")


async def _credential(
    given: Mapping[str, Any], before: str = "", missing: str = "not_found"
) -> Any:
    """The keychain entry of this name, else the credential: a text, or its fields."""
    name, ring = _name(given), given.get("keychain")
    what = f"there is no secret '{name}': {before}"
    if not isinstance(ring, Keyring):
        raise KeychainError(f"{what}no credential can be looked up here", kind=missing)
    try:
        await ring.fetch(name)
        found = ring[name]
    except KeychainError as error:
        kind = error.kind if error.retryable else missing
        raise KeychainError(
            f"{what}{error.message}", kind=kind, retryable=error.retryable
        ) from None
    except KeyError:
        raise KeychainError(f"{what}the keychain has no such entry", kind=missing) from None
    return dict(found) if isinstance(found, Mapping) else found


def _secrets(value: Any) -> Any:
    """The ring has told already which fields are secret."""
    return None if isinstance(value, Mapping) else value


def _name(given: Mapping[str, Any]) -> str:
    name = given.get("name", given.get("secret_name"))
    if not isinstance(name, str) or not name:
        raise InputError("a secrets task needs name")
    return name


def _from_file(given: Mapping[str, Any], allowed: FilePolicy) -> str | None:
    if given.get("path") is not None:
        path = Path(inputs.text(given["path"], "path"))
    else:
        path = Path(inputs.text(given.get("root", "."), "root")) / _name(given)
    return read_secret_file(path, allowed) if allowed.exists(path) else None
