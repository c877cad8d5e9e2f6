"""Starting a module: as a process that is watched, or as the object that the program attached."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path
from typing import Protocol

from anabranch.errors import InputError
from anabranch.market.node.modules.config import ModuleConfig, loopback_address
from anabranch.market.node.modules.listening import port_problem
from anabranch.market.node.modules.preflight import ModuleFolders, port_is_free, preflight
from anabranch.market.node.modules.process import ModuleProcess, environment
from anabranch.market.node.modules.tokens import ModuleTokens
from anabranch.market.node.modules.transport import (
    HttpTransport,
    InProcessModule,
    InProcessTransport,
    ModuleTransport,
)

_PORT_POLL_SECONDS = 0.1


class RunningModule(Protocol):
    """What was started, until it ends."""

    transport: ModuleTransport
    pid: int | None  # of its process, where it has one of its own

    async def exited(self) -> int:
        """The exit status, once it has ended by itself."""

    async def stop(self) -> None: ...

    async def port_problem(self) -> str:
        """What is wrong with where it listens, or nothing."""


class Launcher(Protocol):
    async def launch(self, config: ModuleConfig) -> RunningModule:
        """Raises `InputError` where it cannot be started."""


class ProcessLauncher:
    def __init__(self, data_dir: str, url: str, tokens: ModuleTokens) -> None:
        self._data_dir = data_dir
        self._url = url
        self._tokens = tokens

    async def launch(self, config: ModuleConfig) -> RunningModule:
        if not self._data_dir:
            raise InputError(
                "data_dir: a node without a data folder starts no processes",
                code="preflight_folder",
            )
        folders = ModuleFolders(Path(self._data_dir).absolute(), config)
        loop = asyncio.get_running_loop()
        executable = await loop.run_in_executor(None, preflight, config, folders)
        await _wait_for_port(config)
        env = environment(config, folders, self._tokens, self._url, os.environ)
        process = ModuleProcess.start(executable, config, env, folders, self._tokens.secrets())
        return _RunningProcess(process, config)


class _RunningProcess:
    def __init__(self, process: ModuleProcess, config: ModuleConfig) -> None:
        self._process = process
        self._grace = config.http.stop_timeout_ms / 1000
        self._port = loopback_address(config.http.endpoint)[1]
        self.transport: ModuleTransport = HttpTransport(config.http.endpoint)
        self.pid: int | None = process.group

    async def exited(self) -> int:
        return await self._process.exited()

    async def stop(self) -> None:
        await self._process.stop(self._grace)  # calls in hand may still be answered meanwhile
        await self.transport.close()

    async def port_problem(self) -> str:
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(None, port_problem, self._process.group, self._port)


class ObjectLauncher:
    """Modules of this process, by module id."""

    def __init__(self) -> None:
        self._modules: dict[str, InProcessModule] = {}

    def attach(self, module: str, implementation: InProcessModule) -> None:
        self._modules[module] = implementation

    async def launch(self, config: ModuleConfig) -> RunningModule:
        implementation = self._modules.get(config.module)
        if implementation is None:
            raise InputError(
                f"no object is attached for the module {config.module} of kind in_process",
                code="not_attached",
            )
        running = _RunningObject(implementation)
        await running.start()
        return running


class _RunningObject:
    """An object may have `start` and `close`, which are called as its process begins and is told to
    end, and `exited`, which returns when that process has ended by itself."""

    def __init__(self, implementation: InProcessModule) -> None:
        self.pid: int | None = None
        self._implementation = implementation
        self.transport: ModuleTransport = InProcessTransport(implementation)

    async def start(self) -> None:
        if (start := getattr(self._implementation, "start", None)) is not None:
            await start()

    async def exited(self) -> int:
        exited = getattr(self._implementation, "exited", None)
        if exited is not None:
            return int(await exited())
        ended: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        return await ended  # it ends with the node

    async def stop(self) -> None:
        """It is not called any more."""
        if (close := getattr(self._implementation, "close", None)) is not None:
            await close()

    async def port_problem(self) -> str:
        return ""


async def _wait_for_port(config: ModuleConfig) -> None:
    """The process before may need a moment to let go of its port."""
    try:
        async with asyncio.timeout(config.http.startup_timeout_ms / 1000):
            while not port_is_free(config):
                await asyncio.sleep(_PORT_POLL_SECONDS)
    except TimeoutError:
        raise InputError(
            f"http.endpoint: another process listens at {config.http.endpoint}",
            code="preflight_port",
        ) from None
