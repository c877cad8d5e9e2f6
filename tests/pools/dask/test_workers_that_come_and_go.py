"""What is remembered of workers is bounded, and right about each of them. No cluster: the
connection says what a test says."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Sequence
from types import SimpleNamespace
from typing import Any

import pytest

from anabranch.pools.address import read_pool
from anabranch.pools.backend import Lost
from anabranch.pools.dask.backend import NAMED_MAX, DaskBackend
from hangs import HANG_SECONDS
from in_loop import in_loop


class Link:
    """A connection to workers of an old Python, over which nobody ever answers a job."""

    broken = False

    def __init__(self, alone: Collection[str] = ()) -> None:
        self.alone = set(alone)  # workers without a nanny
        self.asked_to_restart = asyncio.Event()

    def submission(self, ticket: str, blob: bytes) -> Any:
        return SimpleNamespace(ticket=ticket, blob=SimpleNamespace(data=blob))

    def submit(self, batch: Sequence[Any], **_: Any) -> list[object]:
        return [object() for _ in batch]

    async def result(self, _future: object) -> Any:
        await asyncio.Event().wait()

    async def cancel(self, futures: Sequence[object]) -> None: ...

    async def stop(self, addresses: Collection[str], tickets: Collection[str]) -> None: ...

    async def restart(self, addresses: Collection[str]) -> set[str]:
        self.asked_to_restart.set()
        return self.alone & set(addresses)

    def release(self, future: object) -> None: ...

    def give_up(self, reason: str) -> None: ...

    async def close(self) -> None: ...

    async def introductions(self, addresses: Collection[str]) -> dict[str, Any]:
        return {one: {"name": one, "python": "3.9.7", "anabranch": "0"} for one in addresses}


def backend(link: Link, *addresses: str) -> Any:
    """Connected, with these workers."""
    made: Any = DaskBackend(read_pool("heavy", "dask://127.0.0.1:1?restart=yes"))
    made._link = link
    made._addresses = set(addresses)
    return made


async def begin(pool: Any, ticket: str, worker: str, address: str) -> None:
    await pool.submit(ticket, b"")
    await asyncio.sleep(0)  # it is sent with the next turn of the loop
    pool.started(ticket, worker, address, "process")


def last_loss(pool: Any) -> Lost:
    return [event for event in pool._events if isinstance(event, Lost)][-1]


@in_loop
async def test_of_unfit_workers_the_latest_are_remembered_and_named_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    link = Link()
    pool = backend(link)
    addresses = [f"tcp://10.0.0.1:{port}" for port in range(NAMED_MAX + 50)]
    for address in addresses:
        await pool._meet(link, [address])
        pool.worker_gone(address, True, ())
    assert len(pool._named) == NAMED_MAX
    assert not pool._unfit
    assert sum("gets no jobs" in one for one in caplog.messages) == len(addresses)
    await pool._meet(link, addresses[-1:])
    assert sum("gets no jobs" in one for one in caplog.messages) == len(addresses)


@in_loop
async def test_a_worker_without_a_nanny_that_was_not_restarted_can_still_die() -> None:
    address = "tcp://10.0.0.1:4000"
    link = Link(alone=[address])
    pool = backend(link, address)
    await begin(pool, "deaf", address, address)
    await pool.cancel(["deaf"], force=True)
    async with asyncio.timeout(HANG_SECONDS):
        await link.asked_to_restart.wait()
    await begin(pool, "next", address, address)
    pool.worker_gone(address, False, ())
    assert last_loss(pool).ticket == "next"
    assert last_loss(pool).worker, "nobody has ended it: it has died"
    assert not pool._restarted
    await pool.close()


@in_loop
async def test_a_worker_that_left_before_its_restart_is_not_remembered() -> None:
    address = "tcp://10.0.0.1:4000"
    pool = backend(Link(), "tcp://10.0.0.2:4000")
    await begin(pool, "deaf", address, address)
    await pool.cancel(["deaf"], force=True)
    assert not pool._restarted
    await pool.close()


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("tcp://10.0.0.1:4000", "the worker tcp://10.0.0.1:4000 died"),
        ("w1", "the worker w1 (tcp://10.0.0.1:4000) died"),
    ],
)
@in_loop
async def test_a_worker_without_a_name_is_named_once(name: str, said: str) -> None:
    address = "tcp://10.0.0.1:4000"
    pool = backend(Link(), address)
    await begin(pool, "one", name, address)
    pool.worker_gone(address, False, ())
    assert last_loss(pool).reason == said
    await pool.close()
