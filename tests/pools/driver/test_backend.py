"""Who asks a driver may be cancelled before it answers, as the watch of a pool is at its end."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

import pytest

from anabranch.pools.address import read_pool
from anabranch.pools.backend import BackendAway
from anabranch.pools.driver.backend import DriverBackend
from in_loop import in_loop
from pools.driver.late_driver import CAPACITY

TESTS = Path(__file__).parent.parent.parent


class LateBackend(DriverBackend):
    engine = "none"
    module = "pools.driver.late_driver"
    frame_bytes = 1024


@in_loop
async def test_an_answer_that_nobody_waits_for_any_more_ends_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(os.environ, "PYTHONPATH", str(TESTS))
    backend = LateBackend(read_pool("pool", "dask://127.0.0.1:1"))
    await backend.open()
    pid = backend.driver_pid
    await backend.submit("t", b"")
    for question in (backend.look(), backend.cancel(["t"])):
        asking = asyncio.ensure_future(question)
        await asyncio.sleep(0)
        asking.cancel()
    looking, waiting = asyncio.ensure_future(backend.look()), asyncio.ensure_future(backend.look())
    assert await looking == CAPACITY
    assert backend.driver_pid == pid
    forgotten = asyncio.ensure_future(backend.look())
    await asyncio.sleep(0)
    forgotten.cancel()
    await backend.close()
    with pytest.raises(BackendAway, match="it was closed"):
        await waiting
