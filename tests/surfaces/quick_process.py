"""A process of `quick_starts` for tests with an event loop: what blocks is done in threads."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import quick_starts


class QuickProcess:
    """What is printed is read line by line; errors stand in a file, if one is named."""

    def __init__(self, popen: quick_starts.Popen[bytes]) -> None:
        self._popen = popen
        self.pid = popen.pid

    async def read_line(self) -> bytes:
        assert self._popen.stdout is not None
        return await asyncio.to_thread(self._popen.stdout.readline)

    def is_running(self) -> bool:
        return self._popen.poll() is None

    def kill(self) -> None:
        self._popen.kill()

    def terminate(self) -> None:
        self._popen.terminate()

    async def wait(self) -> int:
        return await asyncio.to_thread(self._popen.wait)


@asynccontextmanager
async def started(
    *words: str,
    env: Mapping[str, str] | None = None,
    cwd: Path | None = None,
    errors: Path | None = None,
) -> AsyncIterator[QuickProcess]:
    """A script, or a module behind `-m`; what is left of it at the end is killed."""
    with open(errors or os.devnull, "ab") as file:
        more: dict[str, Any] = {} if errors is None else {"stderr": file}
        popen: quick_starts.Popen[bytes] = quick_starts.Popen(
            [sys.executable, *words],
            env=env,
            cwd=cwd,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            **more,
        )
    with popen:
        process = QuickProcess(popen)
        try:
            yield process
        finally:
            if process.is_running():
                process.kill()
            await process.wait()
