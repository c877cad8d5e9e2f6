"""Hooks, and the runs of one hook, stand apart at a real server: who is slow is slow alone."""

from __future__ import annotations

import asyncio
import hashlib
import re
import time
from pathlib import Path
from typing import Any

from aiohttp import web

from anabranch.operations.webhooks.signature import SIGNATURE, verify

from ..support import HELLO, run, serving
from .test_webhooks import Inbox, inbox


class Slow(Inbox):
    """Lets some wait until the end of the test."""

    def __init__(self, *stuck: str) -> None:
        super().__init__()
        self.stuck = stuck  # runs; none: all of them
        self.end = asyncio.Event()
        self.hanging = 0

    async def take(self, request: web.Request) -> web.Response:
        notice = await request.json()
        if not self.stuck or notice["run"] in self.stuck:
            self.hanging += 1
            await self.end.wait()
        return await super().take(request)


def test_a_dozen_receivers_that_never_answer_do_not_keep_another_one_waiting() -> None:
    """Each of them has as many out as it may; the good one needs no place of theirs."""

    async def work() -> None:
        settings: dict[str, Any] = {"webhook_addresses": "any", "webhook_timeout_seconds": 60.0}
        slow = Slow()
        async with inbox(slow), inbox() as good, serving(**settings) as client:
            for _ in range(12):
                await client.post("/webhooks", {"url": slow.url, "kinds": ["run.finished"]})
            await client.post("/webhooks", {"url": good.url, "kinds": ["run.finished"]})
            for _ in range(10):
                await client.start(HELLO)
            while slow.hanging < 12 * 8:
                await asyncio.sleep(0.01)
            await client.start(HELLO)
            await good.until(11)
            slow.end.set()

    run(work())


def test_a_run_that_its_receiver_lets_wait_keeps_no_other_run_waiting() -> None:
    async def work() -> None:
        settings: dict[str, Any] = {"webhook_addresses": "any", "webhook_timeout_seconds": 60.0}
        slow = Slow("stuck-1", "stuck-2")
        async with inbox(slow), serving(**settings) as client:
            await client.post("/webhooks", {"url": slow.url, "kinds": ["run.*"]})
            for name in slow.stuck:
                await client.start(HELLO, run=name)
            while slow.hanging < 2:
                await asyncio.sleep(0.01)
            for number in range(30):
                await client.start(HELLO, run=f"free-{number}")
            notices = await slow.until(60)
            assert {notice["run"] for notice in notices} == {f"free-{n}" for n in range(30)}
            slow.end.set()
            assert len(await slow.until(64)) == 64

    run(work())


def test_a_receiver_that_was_down_gets_everything_in_order_when_it_is_back() -> None:
    """Nobody listens at first; then somebody does, and is told by hand to be tried again."""

    async def work() -> None:
        async with inbox() as box:
            url = box.url
        box = Inbox()
        async with serving(webhook_addresses="any") as client:
            made = (
                await client.post("/webhooks", {"url": url, "kinds": ["run.*", "token.*"]})
            ).json
            started = [await client.start(HELLO) for _ in range(5)]
            path = f"/webhooks/{made['id']}"
            while True:
                items = (await client.get(f"{path}/deliveries?limit=500")).json["items"]
                if sum(one["attempts"] > 0 for one in items) == 5:
                    break
                await asyncio.sleep(0.02)
            assert all(one["last_error"].startswith("no connection (") for one in items if one["attempts"])  # fmt: skip  # noqa: E501
            app = web.Application()
            app.router.add_post("/in", box.take)
            runner = web.AppRunner(app)
            await runner.setup()
            port = int(url.rpartition(":")[2].partition("/")[0])
            await web.TCPSite(runner, "127.0.0.1", port, reuse_address=True).start()
            try:
                await client.post(f"{path}/redeliver")
                notices = await box.until(len(items))
            finally:
                await runner.cleanup()
            for one in started:
                seqs = [notice["seq"] for notice in notices if notice["run"] == one]
                assert seqs == sorted(set(seqs))
            assert {notice["run"] for notice in notices} == set(started)

    run(work())


def test_connections_are_kept_and_the_documented_check_takes_what_is_sent() -> None:
    """The snippet of the documentation, word for word, on what really arrived."""
    page = (Path(__file__).parents[4] / "docs" / "webhooks.md").read_text()
    (code,) = (one for one in re.findall(r"```python\n(.*?)```", page, re.S) if "hmac" in one)
    names: dict[str, Any] = {}
    exec(code, names)
    genuine = names["genuine"]

    async def work() -> None:
        peers: set[Any] = set()

        class Counting(Inbox):
            async def take(self, request: web.Request) -> web.Response:
                assert request.transport is not None
                peers.add(request.transport.get_extra_info("peername"))
                return await super().take(request)

        async with inbox(Counting()) as box, serving(webhook_addresses="any") as client:
            made = (await client.post("/webhooks", {"url": box.url, "kinds": ["run.*"]})).json
            await client.start(HELLO)
            await box.until(2)
            rotated = (await client.post(f"/webhooks/{made['id']}/rotate")).json
            for _ in range(10):
                await client.start(HELLO)
            await box.until(22)
        assert len(peers) <= 8
        (headers, body, _), *_rest, (later, last, _) = box.came
        assert genuine(made["secret"], headers[SIGNATURE], body)
        assert not genuine(rotated["secret"], headers[SIGNATURE], body)
        for secret in (made["secret"], rotated["secret"]):  # both, until the receiver has changed
            assert genuine(secret, later[SIGNATURE], last)
            assert verify(secret, later[SIGNATURE], last, time.time())
        other = hashlib.sha256(b"x").hexdigest()
        for wrong in (f"t={int(time.time())},v1={other}", "", "t=x,v1=y", "t=1,v1=" + other):
            assert not genuine(made["secret"], wrong, body)
        stale = re.sub(r"t=\d+", "t=1000", headers[SIGNATURE])
        assert not genuine(made["secret"], stale, body)

    run(work())
