"""While a server opens its runs, whoever watches over it hears that it lives."""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path
from typing import Any

import pytest
from aiohttp import ClientSession

from anabranch.runtime.recovery import recover
from anabranch.settings import Settings
from anabranch.surfaces.http.opening import HEALTH
from anabranch.surfaces.http.serve import Server
from hangs import HANG_SECONDS

from .support import run


def test_it_answers_for_its_health_before_its_runs_are_open(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    reading, read = threading.Event(), threading.Event()

    def slow(*given: Any, **more: Any) -> int:
        reading.set()
        assert read.wait(HANG_SECONDS)
        return recover(*given, **more)

    monkeypatch.setattr("anabranch.runtime.recovery.recover", slow)
    server = Server(Settings(store=str(tmp_path / "a.db"), serve_port=0), mounts=())

    async def work() -> None:
        starting = asyncio.create_task(server.start())
        try:
            await asyncio.to_thread(reading.wait, HANG_SECONDS)
            async with ClientSession(server.url) as session:
                assert await asked(session, f"{HEALTH}?check=live") == (200, "")
                assert await asked(session, HEALTH) == (503, "")
                assert await asked(session, "/api/v1/runs") == (503, "opening")
                read.set()
                await starting
                assert await asked(session, HEALTH) == (200, "")
                assert await asked(session, "/api/v1/runs") == (200, "")
        finally:
            read.set()
            await asyncio.gather(starting, return_exceptions=True)
            await server.stop()

    run(work())


async def asked(session: ClientSession, path: str) -> tuple[int, str]:
    """The status and the code of a problem; what waits is asked to come again."""
    async with session.get(path) as response:
        document = await response.json()
        code: str = document.get("code", "") if isinstance(document, dict) else ""
        assert ("Retry-After" in response.headers) == (code == "opening")
        return response.status, code
