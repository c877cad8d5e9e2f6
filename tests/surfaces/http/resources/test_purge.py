"""What a purge over HTTP frees is given back to the file system, and said."""

from __future__ import annotations

from pathlib import Path

from ..support import playbook, run, serving, step

LARGE = playbook(step("make", result="{{ 'x' * 300000 }}{{ workload.n }}"), name="large")


def test_a_purge_at_a_server_gives_room_back_with_its_last_page(tmp_path: Path) -> None:
    async def work() -> None:
        path = tmp_path / "store.db"
        async with serving(path) as client:
            for number in range(4):
                await client.ended(await client.start(LARGE, input={"n": number}))
            body = {"older_than": "0s", "limit": 3}
            first = (await client.post("/runs/purge", body)).json
            assert first["space"]["given_back"] == 0
            body["cursor"] = first["next"]
            last = (await client.post("/runs/purge", body)).json
            assert last["next"] is None
            assert last["space"]["given_back"] > 1_200_000
            assert last["space"]["unused"] == 0
        assert path.stat().st_size < 1_200_000

    run(work())


def test_a_bulk_purge_gives_room_back_too(tmp_path: Path) -> None:
    async def work() -> None:
        path = tmp_path / "store.db"
        async with serving(path) as client:
            for number in range(4):
                await client.ended(await client.start(LARGE, input={"n": number}))
            reply = await client.post("/bulk", {"verb": "purge", "filter": {"name": "large"}})
            assert reply.json["done"] == 4
        assert path.stat().st_size < 1_200_000

    run(work())
