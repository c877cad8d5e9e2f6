"""Inline code of many runs: what waits for a process says so, and says who has them."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

from hangs import HANG_SECONDS

from ..support import Client, playbook, run, serving, step

WAITS = "import os, time\nwhile not os.path.exists(door): time.sleep(0.01)\nreturn 'open'"


def waiting(name: str, door: Path) -> dict[str, Any]:
    return playbook(step("dig", "python", code=WAITS, args={"door": str(door)}), name=name)


def loop(door: Path) -> dict[str, Any]:
    each = step("each", "python", code=WAITS, args={"door": str(door)})
    each["loop"] = {"in": [1, 2], "iterator": "n", "spec": {"mode": "parallel"}}
    return playbook(each, name="loop")


def pipeline() -> dict[str, Any]:
    tasks = [{"one": {"kind": "python", "code": "return 1"}}, {"two": {"kind": "noop"}}]
    return playbook({"step": "work", "tool": tasks}, name="pipeline")


async def explained(client: Client, one: str, words: str) -> dict[str, Any]:
    """What it waits for, as soon as that has these words."""
    async with asyncio.timeout(HANG_SECONDS):
        while True:
            for row in (await client.get(f"/runs/{one}/explain")).json["waiting"]:
                if words in row["waits_for"]:
                    return dict(row)
            await asyncio.sleep(0.01)


def test_hello_comes_beside_steps_and_loops_that_sleep(tmp_path: Path) -> None:
    async def scenario() -> None:
        door = tmp_path / "door"
        async with serving() as client:
            sleepers = [await client.start(waiting(f"sleeper{n}", door)) for n in range(6)]
            sleepers.append(await client.start(loop(door)))
            for short in (playbook(step("greet", "python", code="return 'hello'")), pipeline()):
                assert await client.ended(await client.start(short)) == "completed"
            door.touch()
            for one in sleepers:
                assert await client.ended(one) == "completed"

    run(scenario())


def test_what_waits_for_a_process_is_queued_and_says_who_has_one(tmp_path: Path) -> None:
    async def scenario() -> None:
        door = tmp_path / "door"
        async with serving(processes_max=2) as client:
            holders = [await client.start(waiting(name, door)) for name in ("north", "south")]
            for one in holders:
                await explained(client, one, "its work")
            queued = [
                await client.start(definition)
                for definition in (waiting("late", door), pipeline(), loop(door))
            ]
            for one in queued:
                row = await explained(client, one, "a process (2 at work: dig of ")
                assert (row.get("queued"), row.get("at_work")) == (True, None), row
                assert all(holder in row["waits_for"] for holder in holders)
            server = (await client.get("/workers")).json["server"]["python"]
            assert (server["places"], server["most"], server["at_work"]) == (2, 2, 2)
            assert server["queued"] >= 3
            assert {(one["run"], one["step"]) for one in server["jobs"]} == {
                (one, "dig") for one in holders
            }
            door.touch()
            for one in (*holders, *queued):
                assert await client.ended(one) == "completed"
            server = (await client.get("/workers")).json["server"]["python"]
            assert (server["at_work"], server["queued"], server["jobs"]) == (0, 0, [])

    run(scenario())
