"""A module as a child process: its environment, its start, its end, and what it prints.

It leads a group of its own that ends with the node, however the node ends. What it prints goes to a
log file of bounded size in which no token of the node is found.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from anabranch.errors import InputError
from anabranch.market.node.modules.config import ModuleConfig
from anabranch.market.node.modules.preflight import ModuleFolders
from anabranch.market.node.modules.tokens import MODULE_HEADER, ModuleTokens
from anabranch.work.kinds.commands.child_process import ChildProcess

LOG_BYTES = 1024 * 1024  # then the log starts over; the one before is kept
LINE_BYTES = 8 * 1024
_REDACTED = b"[redacted]"
_KEPT_ENV = ("PATH", "LANG", "LC_ALL", "TZ", "TMPDIR", "HOME", "VIRTUAL_ENV")


def environment(
    config: ModuleConfig,
    folders: ModuleFolders,
    tokens: ModuleTokens,
    url: str,
    given: Mapping[str, str],
) -> dict[str, str]:
    """What the module finds: little of what the node has, and its contract."""
    module = config.module
    contract = {
        "ORBIPLEX_MIDDLEWARE_HOME": str(folders.home),
        "ORBIPLEX_MIDDLEWARE_CONFIG_DIR": str(folders.module_config),
        "ORBIPLEX_NODE_CONFIG_DIR": str(folders.node_config),
        "ORBIPLEX_MIDDLEWARE_MODULE_ID": module,
        "ORBIPLEX_MIDDLEWARE_ENDPOINT": config.http.endpoint,
        "ORBIPLEX_HOST_CAPABILITY_BASE_URL": url,
        "ORBIPLEX_HOST_CAPABILITY_AUTH_HEADER": MODULE_HEADER,
        "ORBIPLEX_HOST_CAPABILITY_AUTHTOK_FILE": str(tokens.file_of_module(module) or ""),
        "ORBIPLEX_MIDDLEWARE_AUTH_HEADER": config.auth_token,
        "ORBIPLEX_MIDDLEWARE_AUTHTOK_FILE": str(tokens.file_to_module(module) or ""),
    }
    kept = {name: given[name] for name in _KEPT_ENV if name in given}
    return {**kept, **config.launch.env, **contract}


class ModuleLog:
    """The file of what a module prints: whole lines, without secrets, of bounded size."""

    def __init__(self, path: Path, secrets: Sequence[str]) -> None:
        self._path = path
        self._secrets = [secret.encode() for secret in secrets]
        self._overlap = max(map(len, self._secrets), default=1) - 1
        self._waiting = b""
        self._size = path.stat().st_size if path.exists() else 0

    def add(self, data: bytes) -> None:
        self._waiting += data
        whole = self._waiting.rfind(b"\n") + 1
        if not whole and len(self._waiting) > LINE_BYTES:
            # A secret may have come in part: what could be the beginning of one waits.
            self._waiting = self._redacted(self._waiting)
            whole = len(self._waiting) - self._overlap
        if whole:
            ready, self._waiting = self._waiting[:whole], self._waiting[whole:]
            self._write(self._redacted(ready))

    def finish(self) -> None:
        self._write(self._redacted(self._waiting))
        self._waiting = b""

    def _redacted(self, data: bytes) -> bytes:
        for secret in self._secrets:
            data = data.replace(secret, _REDACTED)
        return data

    def _write(self, data: bytes) -> None:
        if not data:
            return
        if self._size + len(data) > LOG_BYTES:
            with suppress(OSError):
                os.replace(self._path, self._path.with_name(self._path.name + ".1"))
            self._size = 0
        # The module has this folder: what lies there under that name must neither be followed
        # nor waited for.
        flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC
        flags |= os.O_NOFOLLOW | os.O_NONBLOCK
        with suppress(OSError):  # a full disk does not stop a module
            descriptor = os.open(self._path, flags, 0o600)
            try:
                self._size += os.write(descriptor, data[-LOG_BYTES:])
            finally:
                os.close(descriptor)


class ModuleProcess:
    """Started by `start`; `exited` tells the end, `stop` makes it."""

    def __init__(self, child: ChildProcess, reading: int, log: ModuleLog) -> None:
        self._child = child
        self._reading = reading
        self._log = log
        self._open = True
        os.set_blocking(reading, False)
        asyncio.get_running_loop().add_reader(reading, self._read)

    @classmethod
    def start(
        cls,
        executable: Path,
        config: ModuleConfig,
        env: Mapping[str, str],
        folders: ModuleFolders,
        secrets: Sequence[str],
    ) -> ModuleProcess:
        log = ModuleLog(folders.log, secrets)
        reading, writing = os.pipe2(os.O_CLOEXEC) if hasattr(os, "pipe2") else os.pipe()
        try:
            child = ChildProcess.start(
                [str(executable), *config.launch.args],
                output=writing,
                errors=writing,
                env=env,
                cwd=config.launch.cwd or str(folders.home),
            )
        except OSError as error:
            os.close(reading)
            raise InputError(
                f"launch.executable: {executable} cannot be started: {error.strerror}",
                code="spawn_failed",
            ) from None
        finally:
            os.close(writing)
        return cls(child, reading, log)

    @property
    def group(self) -> int:
        return self._child.pid

    async def exited(self) -> int:
        code = await self._child.exited()
        self._drain()
        return code

    async def stop(self, grace_seconds: float) -> int:
        """TERM to the group, then KILL to what is left of it."""
        code = await self._child.stop(grace_seconds, with_descendants=True)
        self._drain()
        return code

    def _read(self) -> bool:
        """Whether there may be more."""
        try:
            data = os.read(self._reading, 64 * 1024)
        except BlockingIOError:
            return False
        except OSError:
            data = b""
        if data:
            self._log.add(data)
            return True
        self._close()
        return False

    def _drain(self) -> None:
        """What is left in the pipe; a descendant elsewhere may still hold it open."""
        for _ in range(64):
            if not self._open or not self._read():
                break
        self._close()

    def _close(self) -> None:
        if self._open:
            self._open = False
            asyncio.get_running_loop().remove_reader(self._reading)
            os.close(self._reading)
            self._log.finish()
