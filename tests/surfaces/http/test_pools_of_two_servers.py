"""The overview of servers that share a store: the pools of all of them, whichever is asked."""

from __future__ import annotations

import asyncio

import pytest

from anabranch.operations.overview import pool_loads

from .support import Client, playbook, run, step
from .test_two_servers import two


async def pools_at(client: Client) -> dict[tuple[str, str], int]:
    """(pool, server) → jobs that wait."""
    found = (await client.get("/overview")).json
    return {(one["pool"], one["server"]): one["waiting"] for one in found["pools"]}


def id_of(client: Client) -> str:
    cluster = client.parts.store.cluster
    assert cluster is not None
    return cluster.server


def far(pool: str) -> dict[str, object]:
    return playbook(step("far", spec={"pool": pool}), name=f"on-{pool}")


def test_any_server_shows_the_queues_of_all(postgres: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pool_loads, "EVERY_SECONDS", 0.05)

    async def work() -> None:
        async with two(postgres) as both:
            here, there = map(id_of, both)
            assert await pools_at(both[0]) == {}
            for client, pool, jobs in ((both[0], "gpu", 2), (both[1], "gpu", 1), (both[1], "x", 3)):
                for _ in range(jobs):
                    await client.start(far(pool))
            expected = {("gpu", here): 2, ("gpu", there): 1, ("x", there): 3}
            for client in both:
                while await pools_at(client) != expected:
                    await asyncio.sleep(0.02)

    run(work())
