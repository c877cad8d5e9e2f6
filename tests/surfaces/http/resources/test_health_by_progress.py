"""Each reason for being unwell, brought about for real; and that it passes by itself."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from aiohttp import ClientError, ClientSession

from anabranch.store.sqlite.store import SqliteStore
from anabranch.work.kinds.callables import Toolbox

from ..support import HELLO, Client, Reply, playbook, run, serving, step
from .test_health_and_metrics import reasons, red
from .test_webhooks import inbox


async def green(client: Client) -> Reply:
    """Whatever a busy machine held up a while ago."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr("anabranch.operations.health.HELD_AGO_SECONDS", 0.0)
        while (reply := await client.get("/health")).json["status"] != "ok":
            await asyncio.sleep(0.02)
    return reply


async def yellow(client: Client, words: str) -> Reply:
    while True:
        reply = await client.get("/health")
        if reply.json["status"] == "warn" and words in reasons(reply):
            assert (reply.status, reply.json["ready"]) == (200, True)
            return reply
        await asyncio.sleep(0.02)


def limit_pages(store: Any, more: int | None) -> None:
    """Let the file grow by so many pages and no further, as a full disk would; None: no limit."""
    assert isinstance(store, SqliteStore)
    writer = store._writer
    assert writer is not None
    (pages,) = writer.execute("PRAGMA page_count").fetchone()
    writer.execute(f"PRAGMA max_page_count = {2**30 if more is None else pages + more}")


def test_a_tool_that_blocks_the_event_loop_is_told_of_with_its_place_in_the_code(
    caplog: pytest.LogCaptureFixture,
) -> None:
    tools = Toolbox()

    @tools.tool("rude")
    async def rude() -> None:
        time.sleep(2.0)  # which is the point

    async def work() -> None:
        async with serving(tools=tools) as client:
            await green(client)
            await client.ended(await client.start(playbook(step("a", "rude"))))
            reply = await yellow(client, "the event loop was held up for")
            (check,) = [one for one in reply.json["checks"] if one["name"] == "loop"]
            assert check["value"] >= 1.0
            assert "something holds up the event loop" in caplog.text
            assert "in rude" in caplog.text
            assert caplog.text.count("something holds up") == 1
            await green(client)

    run(work())


def test_a_store_without_room_is_waited_out_and_nothing_is_lost(tmp_path: Path) -> None:
    """Commits, timers and the store itself are red; then there is room, and everything goes on."""
    large = {"much": "x" * 200_000}
    tools, calls = Toolbox(), list[int]()

    @tools.tool("flaky")
    async def flaky() -> None:
        calls.append(1)
        if len(calls) <= 2:
            raise ConnectionError("not yet")

    def later(seconds: int) -> dict[str, Any]:
        spec = {"retry": {"attempts": 2, "delay": f"{seconds}s"}}
        return playbook(step("a", "flaky", spec=spec))

    async def work() -> None:
        settings: dict[str, Any] = {"health_stall_seconds": 0.5, "tools": tools}
        async with serving(tmp_path / "store.db", **settings) as client:
            client.parts.engine.be_patient()
            await green(client)
            asleep = [await client.start(later(seconds)) for seconds in (1, 2)]
            while len(calls) < 2:
                await asyncio.sleep(0.01)
            await client.start(HELLO)  # its definition is known from here on
            limit_pages(client.parts.store, 3)
            stuck = asyncio.create_task(client.post("/runs", {"definition": HELLO, "input": large}))
            reply = await red(client, "a commit has been running")
            assert "the disk is full" in reasons(reply)
            assert (reply.json["live"], reply.json["ready"]) == (False, False)
            await red(client, "the store takes no writes")
            await red(client, "the next timer is")
            await red(client, "the engine has taken no turn")
            refused = await client.post("/runs", {"definition": HELLO})
            assert (refused.status, refused.code) == (503, "store_full")
            assert not stuck.done(), "who came later did not wait for it"
            limit_pages(client.parts.store, None)
            begun = await stuck
            assert begun.status == 201, begun.text
            assert await client.ended(begun.json["run"]) == "completed"
            for one in asleep:
                assert await client.ended(one) == "completed"
            await green(client)
            assert await client.ended(await client.start(HELLO, input=large)) == "completed"

    run(work())


def test_a_server_that_is_stopped_while_there_is_no_room_stops(tmp_path: Path) -> None:
    async def work() -> None:
        async with serving(tmp_path / "store.db", health_stall_seconds=0.2) as client:
            client.parts.engine.be_patient()
            limit_pages(client.parts.store, 0)
            large = {"definition": HELLO, "input": {"much": "x" * 200_000}}
            stuck = asyncio.create_task(client.post("/runs", large))
            await red(client, "a commit has been running")
        with contextlib.suppress(ClientError):  # it hears of it, or the connection just ends
            assert (await stuck).status == 503
        async with serving(tmp_path / "store.db") as client:
            assert (await client.get("/runs")).json["items"] == []
            assert await client.ended(await client.start(HELLO)) == "completed"

    run(work())


def test_a_receiver_that_takes_nothing_is_a_warning_until_it_does() -> None:
    async def work() -> None:
        settings: dict[str, Any] = {"webhook_addresses": "any", "health_queue_seconds": 0.3}
        async with inbox() as box, serving(**settings) as client:
            box.status = 500
            hook = (await client.post("/webhooks", {"url": box.url, "kinds": ["run.*"]})).json
            await client.start(HELLO)
            reply = await yellow(client, "for the receiver of webhook")
            assert box.url not in reply.text  # health is open to everybody
            box.status = 200
            await client.post(f"/webhooks/{hook['id']}/redeliver")
            await green(client)

    run(work())


def test_a_courier_that_stands_still_is_a_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    async def work() -> None:
        from anabranch.surfaces.http.resources.webhooks import DISPATCHER

        async with serving(health_stall_seconds=0.3) as client:
            dispatcher = client.app[DISPATCHER]
            while not dispatcher.rounded_at:
                await asyncio.sleep(0.01)
            assert dispatcher._task is not None
            dispatcher._task.cancel()
            await red(client, "the dispatcher has not looked for notifications")
            dispatcher.start()
            await green(client)

    monkeypatch.setattr("anabranch.operations.webhooks.dispatcher.POLL_SECONDS", 0.05)
    run(work())


def test_a_job_that_no_worker_fetches_is_a_warning_until_one_does() -> None:
    far = playbook(step("far", "noop", spec={"pool": "gpu"}))

    async def work() -> None:
        async with serving(health_queue_seconds=0.2) as client:
            await client.start(far)
            await yellow(client, "for a worker of pool 'gpu': start one")
            claimed = await client.post("/pools/gpu/claim", {"worker": "w1", "max": 1})
            assert len(claimed.json["tasks"]) == 1
            await green(client)

    run(work())


def test_health_can_be_read_by_people_and_asking_often_costs_the_store_nothing(
    tmp_path: Path,
) -> None:
    async def work() -> None:
        async with serving(tmp_path / "store.db") as client:
            text = await client.get("/health?format=text")
            assert (text.status, text.headers["Content-Type"]) == (200, "text/plain; charset=utf-8")
            state, _, rest = text.text.partition(": live, ready\n")
            assert state in ("ok", "warn")  # which may be: a busy machine holds up the event loop
            assert {line.split()[1] for line in rest.splitlines()} >= {"store", "turns"}
            probes: list[int] = []
            plain = client.parts.store.probe_write

            def counted() -> None:
                probes.append(1)
                plain()

            client.parts.store.probe_write = counted  # type: ignore[method-assign]
            begin = time.monotonic()
            await asyncio.gather(*(client.get("/health") for _ in range(100)))
            assert len(probes) <= 2 + time.monotonic() - begin

    run(work())


SMALL_DISK = (
    "mount -t tmpfs -o size=6m tmpfs {folder} && cd {folder} && "
    "exec {python} -m anabranch serve --port 0 --json --store {folder}/store.db"
)


def can_mount() -> bool:
    """Whether this machine lets us have a small disk of our own."""
    if shutil.which("unshare") is None:
        return False
    tried = ["unshare", "-rm", "sh", "-c", "mount -t tmpfs -o size=1m tmpfs /mnt"]
    return subprocess.run(tried, capture_output=True, check=False).returncode == 0


@pytest.mark.slow
def test_a_server_whose_disk_is_really_full_goes_on_when_there_is_room(tmp_path: Path) -> None:
    """A disk of six megabytes, filled by somebody else."""
    if not can_mount():
        pytest.skip("this machine lets nobody mount a file system of their own")

    async def work() -> None:
        command = SMALL_DISK.format(folder=tmp_path, python=sys.executable)
        own = {"ANABRANCH_HEALTH_STALL_SECONDS": "1", "ANABRANCH_HEALTH_DISK_BYTES": "300000"}
        made = await asyncio.create_subprocess_exec(
            *("unshare", "-rm", "sh", "-c", command),
            env={**os.environ, **own},
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.DEVNULL,
        )
        assert made.stdout is not None
        try:
            url = json.loads(await made.stdout.readline())["url"]
            filler = Path(f"/proc/{made.pid}/root{tmp_path}/filler")
            async with ClientSession(f"{url}/api/v1/") as session:

                async def health() -> tuple[int, Any]:
                    async with session.get("health") as answer:
                        return answer.status, await answer.json()

                async def healthy() -> None:
                    while (await health())[0] != 200:  # a busy machine may stall it for a second
                        await asyncio.sleep(0.05)

                async def start(size: int) -> tuple[int, Any]:
                    body = {"definition": HELLO, "input": {"much": "x" * size}}
                    async with session.post("runs", json=body) as answer:
                        return answer.status, await answer.json()

                await healthy()
                assert (await start(10))[0] == 201
                with pytest.raises(OSError, match="No space left"):
                    filler.write_bytes(b"x" * 6 * 1024 * 1024)
                stuck = asyncio.create_task(start(500_000))
                while True:
                    status, report = await health()
                    said = " ".join(report["reasons"])
                    if status == 503 and "a commit has been running" in said:
                        break
                    await asyncio.sleep(0.05)
                assert "the disk is full" in said
                assert "make room" in said
                assert (await start(10))[0] == 503
                assert made.returncode is None
                filler.unlink()
                status, begun = await stuck
                assert status == 201, begun
                await healthy()
                assert (await start(10))[0] == 201
                made.terminate()
                assert await made.wait() == 0
        finally:
            if made.returncode is None:
                made.kill()
                await made.wait()

    run(work())
