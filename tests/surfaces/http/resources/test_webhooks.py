"""Webhooks at a real server: made, shown without their secret, delivered signed, sent again."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from aiohttp import web

from anabranch.operations.webhooks.signature import SIGNATURE, verify

from ..support import ASKING, HELLO, looping, run, serving, toolbox


class Inbox:
    """A receiver with an address."""

    def __init__(self) -> None:
        self.came: list[tuple[dict[str, str], bytes, dict[str, Any]]] = []
        self.status = 200
        self.url = ""

    async def take(self, request: web.Request) -> web.Response:
        body = await request.read()
        self.came.append((dict(request.headers), body, await request.json()))
        return web.Response(status=self.status)

    async def until(self, count: int) -> list[dict[str, Any]]:
        while len(self.came) < count:
            await asyncio.sleep(0.01)
        return [notice for _, _, notice in self.came]


@asynccontextmanager
async def inbox(given: Inbox | None = None) -> AsyncIterator[Inbox]:
    made = given or Inbox()
    app = web.Application()
    app.router.add_post("/in", made.take)
    runner = web.AppRunner(app)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    made.url = f"http://127.0.0.1:{runner.addresses[0][1]}/in"
    try:
        yield made
    finally:
        await runner.cleanup()


def test_a_run_is_told_of_from_its_start_to_its_end_signed_with_a_secret_shown_once() -> None:
    async def work() -> None:
        async with inbox() as box, serving(webhook_addresses="any") as client:
            made = await client.post("/webhooks", {"url": box.url, "kinds": ["run.*"]})
            assert made.status == 201
            assert made.headers["Location"] == f"/api/v1/webhooks/{made.json['id']}"
            secret = made.json["secret"]
            started = await client.start(HELLO, labels={"tenant": "a"})
            first, last = await box.until(2)
            assert [first["kind"], last["kind"]] == ["run.started", "run.finished"]
            assert (last["run"], last["labels"]) == (started, {"tenant": "a"})
            for headers, body, _ in box.came:
                assert verify(secret, headers[SIGNATURE], body, time.time())
                assert not verify("another", headers[SIGNATURE], body, time.time())
            listed = await client.get("/webhooks")
            shown = await client.get(f"/webhooks/{made.json['id']}")
            assert secret not in listed.text + shown.text
            assert shown.json["secret"] is None

    run(work())


def test_events_of_loops_come_with_the_names_people_see() -> None:
    async def work() -> None:
        async with inbox() as box, serving(webhook_addresses="any", tools=toolbox()) as client:
            wanted = ["loop.fanin.completed", "loop.done", "run.finished"]
            await client.post("/webhooks", {"url": box.url, "kinds": wanted})
            started = await client.start(looping(20))
            notices = await box.until(2)
            assert [notice["kind"] for notice in notices] == ["loop.done", "run.finished"]
            events = (await client.get(f"/runs/{started}/events?limit=500")).json["items"]
            (shown,) = [event for event in events if event["kind"] == "loop.done"]
            assert (notices[0]["seq"], notices[0]["fields"]) == (shown["seq"], shown["fields"])

    run(work())


def test_a_hook_can_be_changed_turned_off_rotated_and_removed() -> None:
    async def work() -> None:
        async with inbox() as box, serving(webhook_addresses="any") as client:
            draft = {"url": "http://127.0.0.1:9/no", "kinds": ["gate.opened"], "name": "asking"}
            made = (await client.post("/webhooks", draft)).json
            path = f"/webhooks/{made['id']}"
            changed = await client.ask("PATCH", path, json={"url": box.url, "name": None})
            assert (changed.json["url"], changed.json["name"]) == (box.url, None)
            assert changed.json["kinds"] == ["gate.opened"]
            rotated = await client.post(f"{path}/rotate")
            assert rotated.json["secret"] not in (None, made["secret"])
            await client.start(ASKING)
            await box.until(1)
            headers, body, notice = box.came[0]
            assert notice["fields"]["ask"] == "Go on?"
            assert verify(rotated.json["secret"], headers[SIGNATURE], body, time.time())
            off = await client.ask("PATCH", path, json={"enabled": False})
            assert off.json["enabled"] is False
            assert (await client.ask("DELETE", path)).status == 200
            assert (await client.get(path)).status == 404
            assert (await client.get("/webhooks")).json == {"items": [], "next": None}

    run(work())


def test_deliveries_are_listed_with_their_failures_and_sent_again_by_hand() -> None:
    async def work() -> None:
        settings: dict[str, Any] = {"webhook_addresses": "any", "webhook_age_hours": 0.0}
        async with inbox() as box, serving(**settings) as client:
            box.status = 500
            made = (
                await client.post("/webhooks", {"url": box.url, "kinds": ["run.finished"]})
            ).json
            path = f"/webhooks/{made['id']}/deliveries"
            await client.start(HELLO)
            await box.until(1)
            while not (page := (await client.get(f"{path}?state=dead")).json["items"]):
                await asyncio.sleep(0.01)
            (dead,) = page
            assert (dead["last_status"], dead["last_error"]) == (500, "answered 500")
            whole = await client.get(f"{path}/{dead['id']}")
            assert whole.json["body"]["kind"] == "run.finished"
            box.status = 200
            again = await client.post(f"{path}/{dead['id']}/redeliver")
            assert (again.status, again.json["state"]) == (202, "pending")
            first, second = await box.until(2)
            assert first == second
            while (await client.get(f"{path}?state=done")).json["items"] == []:
                await asyncio.sleep(0.01)
            assert (await client.post(f"/webhooks/{made['id']}/redeliver")).json == {"count": 0}
            assert (await client.get(f"{path}/{made['id']}:nobody:1")).status == 404

    run(work())


def test_a_hook_that_cannot_be_is_refused_with_what_to_change() -> None:
    async def work() -> None:
        async with serving() as client:
            good = {"url": "https://example.org/in", "kinds": ["run.finished"]}
            for wrong, code, words in (
                ({"kinds": ["run.finnished"]}, "webhook_kinds", "did you mean 'run.finished'?"),
                ({"kinds": []}, "webhook_kinds", "needs kinds"),
                ({"url": "nowhere"}, "webhook_url", "https://host/path"),
                ({"url": "http://127.0.0.1/x"}, "webhook_url", "webhook_addresses"),
                ({"secret_env": "NO_SUCH_VARIABLE"}, "webhook_secret", "no variable"),
                ({"labels": {"a": 1}}, "schema", "labels"),
                ({"extra": 1}, "schema", "extra"),
            ):
                reply = await client.post("/webhooks", {**good, **wrong})
                assert (reply.status, reply.code) == (422, code)
                assert words in reply.json["detail"]
            assert (await client.get("/webhooks")).json["items"] == []
            assert (await client.ask("DELETE", "/webhooks/none")).status == 404

    run(work())


def test_a_secret_of_the_environment_never_enters_the_store(monkeypatch: Any) -> None:
    async def work() -> None:
        monkeypatch.setenv("HOOK_SECRET", "from-outside")
        async with inbox() as box, serving(webhook_addresses="any") as client:
            draft = {"url": box.url, "kinds": ["run.started"], "secret_env": "HOOK_SECRET"}
            made = (await client.post("/webhooks", draft)).json
            assert (made["secret"], made["secret_env"]) == (None, "HOOK_SECRET")
            stored = client.parts.store.hook(made["id"])
            assert stored is not None
            assert "from-outside" not in repr(stored)
            await client.start(HELLO)
            await box.until(1)
            headers, body, _ = box.came[0]
            assert verify("from-outside", headers[SIGNATURE], body, time.time())
            refused = await client.post(f"/webhooks/{made['id']}/rotate")
            assert (refused.status, refused.code) == (409, "webhook_secret")

    run(work())
