"""Who asks a driver may be cancelled before it answers, as the watch of a pool is at its end."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

import pytest

from anabranch.pools.address import read_pool
from anabranch.pools.backend import BackendAway, Lost, Progressed, WentAway
from anabranch.pools.driver.backend import NEWS_MAX, DriverBackend
from anabranch.settings import Settings
from anabranch.work.from_settings import own_variables
from in_loop import in_loop
from pools.driver.late_driver import CAPACITY, LOUD

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


@in_loop
async def test_a_frame_that_is_longer_than_any_outcome_is_not_read(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(os.environ, "PYTHONPATH", str(TESTS))
    backend = LateBackend(read_pool("pool", "dask://127.0.0.1:1"), pauses=(0.01, 0.01))
    await backend.open()
    first = backend.driver_pid
    await backend.submit("huge", b"")
    events = backend.events()
    lost, gone = await anext(events)
    assert isinstance(lost, Lost)
    assert isinstance(gone, WentAway)
    assert "longer than any outcome" in gone.reason
    await anext(events)
    assert backend.driver_pid not in (0, first)
    await backend.close()


@in_loop
async def test_a_driver_that_says_more_than_is_taken_has_to_wait(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(os.environ, "PYTHONPATH", str(TESTS))
    backend = LateBackend(read_pool("pool", "dask://127.0.0.1:1"))
    await backend.open()
    await backend.submit("loud", b"")
    while not backend._news.full():
        await asyncio.sleep(0.01)
    await asyncio.sleep(0.1)
    assert backend._news.qsize() == NEWS_MAX
    events, heard = backend.events(), list[bytes]()
    while len(heard) < LOUD:
        heard += [one.said for one in await anext(events) if isinstance(one, Progressed)]
    assert heard == [b"%d" % number for number in range(LOUD)]
    await backend.submit("again", b"")
    await backend.close()


@pytest.mark.skipif(not Path("/proc/self/environ").exists(), reason="needs /proc")
@in_loop
async def test_a_driver_has_none_of_the_variables_that_are_secrets_of_the_engine(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(os.environ, "PYTHONPATH", str(TESTS))
    secrets = {"WALLET": "0xkey", "PGPASSWORD": "long-one", "ANABRANCH_TOKEN": "anb_one"}
    for name, value in secrets.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("DASK_OF_A_PROGRAM", "inherited")
    own = own_variables(Settings(store="postgresql://db.example/x", chain_signer_key_env="WALLET"))
    backend = LateBackend(read_pool("pool", "dask://127.0.0.1:1"), own=own)
    await backend.open()
    given = Path(f"/proc/{backend.driver_pid}/environ").read_text().split("\0")
    await backend.close()
    assert "DASK_OF_A_PROGRAM=inherited" in given
    assert {line.partition("=")[0] for line in given} & secrets.keys() == set()
