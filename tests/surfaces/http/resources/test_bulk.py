"""One verb over many runs: a dry run lists, every run has its own outcome, pages miss none."""

from __future__ import annotations

from typing import Any

import pytest

from anabranch.operations.runs import bulk
from anabranch.operations.runs.verbs import patches

from ..access import serving as guarded
from ..support import ASKING, FAILING, HELLO, Client, gated, run, serving


async def page(client: Client, verb: str, **body: Any) -> Any:
    reply = await client.post("/bulk", {"verb": verb, **body})
    assert reply.status == 200, reply.text
    return reply.json


async def waiting(client: Client, count: int, **more: Any) -> list[str]:
    runs = [await client.start(gated(), **more) for _ in range(count)]
    for one in runs:
        await client.stands(one)
    return runs


def outcomes(told: Any) -> dict[str, str]:
    return {item["run"]: item["outcome"] for item in told["items"]}


async def status(client: Client, run_id: str) -> str:
    return str((await client.get(f"/runs/{run_id}")).json["status"])


def test_a_dry_run_lists_what_would_be_done_and_changes_nothing() -> None:
    async def work() -> None:
        async with serving() as client:
            runs = await waiting(client, 3, labels={"tenant": "a"})
            await waiting(client, 1, labels={"tenant": "b"})
            wanted = {"status": ["waiting"], "labels": {"tenant": "a"}}
            told = await page(client, "cancel", filter=wanted, dry_run=True)
            assert outcomes(told) == dict.fromkeys(runs, "would")
            assert (told["found"], told["done"], told["refused"]) == (3, 0, 0)
            assert {await status(client, one) for one in runs} == {"waiting"}
            told = await page(client, "cancel", filter=wanted, reason="tidy")
            assert (told["found"], told["done"], told["refused"]) == (3, 3, 0)
            assert {await status(client, one) for one in runs} == {"cancelled"}

    run(work())


def test_one_that_refuses_does_not_keep_the_others_from_it() -> None:
    async def work() -> None:
        async with serving() as client:
            ended = await client.start(HELLO)
            await client.ended(ended)
            (going,) = await waiting(client, 1)
            dry = await page(client, "pause", everything=True, dry_run=True)
            told = await page(client, "pause", everything=True)
            assert outcomes(dry) == {ended: "refused", going: "would"}
            assert outcomes(told) == {ended: "refused", going: "done"}
            refused = next(item for item in told["items"] if item["run"] == ended)
            assert refused["code"] == "run_finished"
            again = await page(client, "pause", filter={"status": ["paused"]})
            assert again["items"][0]["code"] == "already_paused"
            told = await page(client, "resume", filter={"status": ["paused"]})
            assert outcomes(told) == {going: "done"}

    run(work())


def test_what_many_runs_are_told_is_made_once(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[Any] = []

    def counted(values: Any, reducer: Any = "set") -> Any:
        made.append(values)
        return patches(values, reducer)

    monkeypatch.setattr(bulk, "patches", counted)

    async def work() -> None:
        async with serving() as client:
            runs = await waiting(client, 5)
            told = await page(client, "patch", everything=True, values={"n": [1, 2]})
            assert outcomes(told) == dict.fromkeys(runs, "done")
            for one in runs:
                await client.post(f"/runs/{one}/patch", {"values": {"n": 3}, "reducer": "append"})
                ctx = client.parts.engine.state(one).ctx
                assert ctx["n"] == [1, 2, 3], "each has its own"

    run(work())
    assert len(made) == 2, "once to check it, and once for all runs"


def test_pages_miss_none_although_the_verb_changes_what_the_filter_looks_at() -> None:
    async def work() -> None:
        async with serving() as client:
            runs = await waiting(client, 7)
            seen: list[str] = []
            cursor = None
            while True:
                wanted = {"status": ["waiting"]}
                told = await page(client, "pause", filter=wanted, limit=3, cursor=cursor)
                seen += [item["run"] for item in told["items"]]
                cursor = told["next"]
                if cursor is None:
                    break
            assert sorted(seen) == sorted(runs)
            assert {await status(client, one) for one in runs} == {"paused"}

    run(work())


def test_patch_writes_to_all_of_them_and_redrive_begins_linked_runs() -> None:
    async def work() -> None:
        async with serving() as client:
            runs = await waiting(client, 2)
            told = await page(client, "patch", filter={"name": "gated"}, values={"go": True})
            assert told["done"] == 2
            assert {await client.ended(one) for one in runs} == {"completed"}
            bad = await client.start(FAILING)
            assert await client.ended(bad) == "failed"
            told = await page(client, "redrive", filter={"status": ["failed"]})
            (item,) = told["items"]
            assert item["run"] == bad
            assert (await client.get(f"/runs/{item['new']}")).json["origin"] == bad

    run(work())


def test_a_purge_deletes_ended_runs_and_keeps_those_that_are_needed() -> None:
    async def work() -> None:
        async with serving() as client:
            ended = await client.start(HELLO)
            await client.ended(ended)
            asked = await client.start(ASKING)
            await client.stands(asked)
            dry = await page(client, "purge", everything=True, dry_run=True)
            assert outcomes(dry) == {ended: "would", asked: "refused"}
            assert (await client.get(f"/runs/{ended}")).status == 200
            told = await page(client, "purge", everything=True)
            assert outcomes(told) == {ended: "done", asked: "refused"}
            assert (await client.get(f"/runs/{ended}")).status == 404
            assert (await client.get(f"/runs/{asked}")).status == 200

    run(work())


def test_what_is_asked_badly_is_refused_and_changes_nothing() -> None:
    async def work() -> None:
        async with serving() as client:
            (one,) = await waiting(client, 1)
            for body, code in (
                ({"verb": "cancel"}, "bulk_everything"),
                ({"verb": "explode", "everything": True}, "schema"),
                ({"verb": "patch", "everything": True}, "usage"),
                ({"verb": "pause", "everything": True, "values": {"a": 1}}, "usage"),
                ({"verb": "pause", "everything": True, "limit": 501}, "usage"),
                ({"verb": "pause", "filter": {"state": ["x"]}}, "schema"),
            ):
                reply = await client.post("/bulk", body)
                assert (reply.status, reply.code) == (422, code), reply.text
            reply = await client.post("/bulk", {"verb": "pause", "everything": True, "cursor": "x"})
            assert (reply.status, reply.code) == (400, "parameter")
            assert await status(client, one) == "waiting"

    run(work())


def test_who_may_operate_may_not_delete() -> None:
    async def work() -> None:
        async with guarded(require_tokens="yes") as door:
            operator, admin = door.token("operate"), door.token("admin", name="bob")
            body = {"verb": "purge", "everything": True}
            refused = await door.ask("POST", "/bulk", operator, body)
            assert (refused.status, refused.code) == (403, "scope")
            dry = await door.ask("POST", "/bulk", operator, {**body, "dry_run": True})
            assert dry.status == 200
            assert (await door.ask("POST", "/bulk", admin, body)).status == 200
            assert (await door.ask("GET", "/health")).status == 200
            assert (await door.ask("GET", "/metrics")).status == 401
            assert (await door.ask("GET", "/webhooks", operator)).status == 403

    run(work())
