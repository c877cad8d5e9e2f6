"""The end of a pool on Ray, with a small program in the place of the driver."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path
from typing import Any

import pytest

from anabranch.pools.address import read_pool
from anabranch.pools.backend import Lost, WentAway
from anabranch.pools.ray.backend import RayBackend
from in_loop import in_loop

#: Answers as if it were connected, and writes the names of further requests to a file. Before it
#: ends it says more than a pipe holds, as work may that is told to stop.
DRIVER = """
import sys
from anabranch.pools.backend import Capacity
from anabranch.pools.driver.wire import *

def read():
    head = sys.stdin.buffer.read(LENGTH_BYTES)
    return request_of(sys.stdin.buffer.read(length_of(head))) if head else None

def reply(message):
    sys.stdout.buffer.write(framed(message))
    sys.stdout.buffer.flush()

read()
reply(Connected(Capacity(slots=1, workers=1)))
while (request := read()) is not None:
    if isinstance(request, Submit) and "nonsense" in request.tickets:
        sys.stdout.buffer.write((3).to_bytes(LENGTH_BYTES, "big") + b"???" + bytes(5_000_000))
        sys.stdout.buffer.flush()
    if isinstance(request, Close):
        reply(Told([("finished", "shard-1", "w", bytes(5_000_000))]))
    with open(sys.argv[1], "a") as file:
        file.write(type(request).__name__ + " ")
    if isinstance(request, Close):
        break
"""


@pytest.fixture
def heard(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """What the drivers of the test were asked."""
    file = tmp_path / "heard"
    real = asyncio.create_subprocess_exec

    async def start(*_words: str, **options: Any) -> asyncio.subprocess.Process:
        return await real(sys.executable, "-c", DRIVER, str(file), **options)

    monkeypatch.setattr(asyncio, "create_subprocess_exec", start)
    return file


def backend() -> RayBackend:
    return RayBackend(read_pool("pool", "ray:127.0.0.1:6379"), pauses=(0.01, 0.01))


@in_loop
async def test_a_driver_is_asked_to_close_and_can_say_all_it_has_to_say(heard: Path) -> None:
    """Else its process would be killed, and with it the work, before that is told to stop."""
    pool = backend()
    await pool.open()
    await pool.submit("shard-1", b"work")
    await asyncio.sleep(0)  # the driver is being heard
    await pool.close()
    assert heard.read_text() == "Submit Close "


@in_loop
async def test_a_driver_that_cannot_be_understood_is_replaced_whatever_else_it_says(
    heard: Path,
) -> None:
    pool = backend()
    await pool.open()
    first = pool.driver_pid
    await pool.submit("nonsense", b"")
    events = pool.events()
    lost, gone = await anext(events)
    assert isinstance(lost, Lost)
    assert isinstance(gone, WentAway)
    assert "cannot be understood" in gone.reason
    await anext(events)
    assert pool.driver_pid not in (0, first)
    await pool.close()
    assert heard.read_text().split()[-1] == "Close"
