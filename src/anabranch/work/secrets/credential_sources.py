"""Where credentials are found by name: a port, and the stores outside of ours that fit it.

    environment   a variable: `credential_env_prefix` and the name in capitals
    folder        a file of `credential_folder`: NAME, or NAME.json
    command       `credential_command NAME` prints it

A JSON object is the fields of a credential; anything else is one text. `type` and `data` say what
it is for, as in files that are written for upstream's registry: {"type": "postgres", "data": {…}}.
Whoever has a store of their own writes a class with these three members.
"""

from __future__ import annotations

import asyncio
import os
import re
import shlex
import signal
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any, Protocol

import msgspec

from anabranch import files
from anabranch.errors import InputError
from anabranch.settings import Settings
from anabranch.work.from_settings import own_variables
from anabranch.work.kinds.commands.isolation import SETTINGS, KeptNames
from anabranch.work.secrets.oauth2 import KeychainError

NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,99}")
BYTES_MAX = 64 * 1024  # of one credential
NAMES_KEPT = 1000  # with what was found for them, beside those found just now
KEPT_SECONDS = 30.0  # what a command printed; others are looked at every time


class Credential(msgspec.Struct, frozen=True):
    """What a source found: fields by name, or one text."""

    data: Any
    type: str = ""  # "": it follows from the fields

    def __repr__(self) -> str:
        return f"Credential(type={self.type!r})"


class CredentialSource(Protocol):
    label: str  # for messages: where was looked

    async def find(self, name: str) -> Credential | None:
        """None where there is none; `KeychainError` where that cannot be told now."""
        ...

    def knows(self, name: str) -> bool | None:
        """Whether it has one, without asking anybody; None where only asking would tell."""
        ...


def is_name(name: object) -> bool:
    return isinstance(name, str) and NAME.fullmatch(name) is not None


def read_credential(text: str, place: str) -> Credential:
    """A credential as people write it: a JSON object of fields, or one text."""
    if len(text.encode("utf-8", "surrogatepass")) > BYTES_MAX:
        raise InputError(
            f"{place} has more than {BYTES_MAX:,} bytes, the most that a credential may have",
            code="credential_value",
        )
    plain = text.removesuffix("\n").removesuffix("\r")
    if not plain.lstrip().startswith("{"):
        return Credential(plain)
    try:
        found = msgspec.json.decode(plain)
    except (msgspec.DecodeError, UnicodeEncodeError, RecursionError):
        said = f"{place} starts with {{ and is not valid JSON"
        raise InputError(said, code="credential_value") from None
    data = found.get("data")
    if isinstance(data, Mapping | str) and set(found) <= _CARD:
        return Credential(data, str(found.get("type") or ""))
    return Credential(found, str(found.get("type") or ""))


_CARD = {"name", "type", "data", "description", "tags", "meta", "kind", "apiVersion", "metadata"}


class EnvironmentSource:
    def __init__(self, prefix: str, own: KeptNames = SETTINGS) -> None:
        self._prefix = prefix
        self._own = own
        self.label = f"the environment ({prefix}NAME)"

    def _variable(self, name: str) -> str:
        return self._prefix + re.sub(r"[^A-Za-z0-9]", "_", name).upper()

    def knows(self, name: str) -> bool:
        variable = self._variable(name)
        return variable in os.environ and not self._own.has(variable)

    async def find(self, name: str) -> Credential | None:
        variable = self._variable(name)
        text = None if self._own.has(variable) else os.environ.get(variable)
        return None if text is None else read_credential(text, f"the variable {variable}")


class FolderSource:
    def __init__(self, folder: str | Path) -> None:
        self._folder = Path(folder)
        self.label = f"the folder {folder}"

    def _file(self, name: str) -> Path | None:
        places = (self._folder / name, self._folder / f"{name}.json")
        return next((place for place in places if place.is_file()), None)

    def knows(self, name: str) -> bool | None:
        try:
            return self._file(name) is not None
        except OSError:
            return None

    async def find(self, name: str) -> Credential | None:
        return await files.in_thread(partial(self._read, name), self._folder)

    def _read(self, name: str) -> Credential | None:
        try:
            file = self._file(name)
        except OSError as error:
            raise KeychainError(
                f"{self.label} cannot be read: {error.strerror}", retryable=True
            ) from None
        return (
            None if file is None else read_credential(files.read_text(file, BYTES_MAX), str(file))
        )


class CommandSource:
    """Asks a command: what it prints is the credential, and nothing means that there is none."""

    def __init__(self, command: str, seconds: float, own: KeptNames = SETTINGS) -> None:
        self._own = own
        try:
            self._argv = shlex.split(command)
        except ValueError as error:
            raise InputError(f"credential_command: {error}", code="settings") from None
        self._seconds = seconds
        self._known: dict[str, tuple[float, Credential | None]] = {}
        self._asking: dict[str, asyncio.Lock] = {}
        self.label = f"the command {self._argv[0] if self._argv else ''}"

    def knows(self, name: str) -> bool | None:  # noqa: ARG002 - the port's signature
        return None

    async def find(self, name: str) -> Credential | None:
        async with self._asking.setdefault(name, asyncio.Lock()):
            known = self._known.get(name)
            if known is not None and time.monotonic() < known[0]:
                return known[1]
            text = await self._printed(name)
            found = read_credential(text, f"what {self.label} printed") if text.strip() else None
            self._forget_old_ones()
            self._known[name] = (time.monotonic() + KEPT_SECONDS, found)
            return found

    def _forget_old_ones(self) -> None:
        """Names are rendered: there may be any number of them in the life of an engine."""
        if len(self._asking) > NAMES_KEPT:
            now = time.monotonic()
            self._known = {name: one for name, one in self._known.items() if now < one[0]}
            self._asking = {
                name: lock
                for name, lock in self._asking.items()
                if name in self._known or lock.locked()
            }

    async def _printed(self, name: str) -> str:
        try:
            process = await asyncio.create_subprocess_exec(
                *self._argv,
                name,
                stdin=asyncio.subprocess.DEVNULL,
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.DEVNULL,  # it may say more than it should
                env=self._own.without(),
                start_new_session=True,
                limit=BYTES_MAX,
            )
        except OSError as error:
            raise KeychainError(
                f"{self.label} cannot be started: {error.strerror}", retryable=True
            ) from None
        try:
            async with asyncio.timeout(self._seconds):
                assert process.stdout is not None
                printed = await _up_to(process.stdout, BYTES_MAX + 1)
                code = await process.wait()
        except TimeoutError:
            raise KeychainError(
                f"{self.label} took longer than credential_command_seconds ({self._seconds:g} s)",
                retryable=True,
            ) from None
        finally:
            with suppress(ProcessLookupError, PermissionError):
                os.killpg(process.pid, signal.SIGKILL)
            await process.wait()
        if code:
            raise KeychainError(f"{self.label} ended with exit status {code}", retryable=True)
        return printed.decode("utf-8", "replace")


async def _up_to(stream: asyncio.StreamReader, most: int) -> bytes:
    """No more than so much is read: one byte too many is a message, and the rest is not wanted."""
    read = b""
    while len(read) < most and (more := await stream.read(most - len(read))):
        read += more
    return read


def outside_sources(settings: Settings) -> list[CredentialSource]:
    """The stores outside of ours that the settings name, in the order they are asked."""
    found: list[CredentialSource] = []
    own = own_variables(settings)
    if settings.credential_env_prefix:
        found.append(EnvironmentSource(settings.credential_env_prefix, own))
    if settings.credential_folder:
        found.append(FolderSource(settings.credential_folder))
    if settings.credential_command:
        found.append(
            CommandSource(settings.credential_command, settings.credential_command_seconds, own)
        )
    return found


async def find_in(sources: Sequence[CredentialSource], name: str) -> Credential:
    """The credential of this name, from the first source that has one."""
    if not is_name(name):
        raise KeychainError(
            f"{name!r:.60} cannot be the name of a credential: letters, digits, `_`, `-` and `.`, "
            "at most 100; a token itself is written `auth: {type: bearer, token: …}`"
        )
    for source in sources:
        found = await source.find(name)
        if found is not None:
            return found
    looked = ", ".join(source.label for source in sources) or "nowhere"
    raise KeychainError(
        f"there is no credential {name!r} (looked in the keychain of the definition, {looked}): "
        f"`anabranch credential add {name}` keeps one"
    )
