"""Two whole servers on one PostgreSQL store: what clients do at both of them at once."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

import elsewhere
from anabranch.settings import Settings
from anabranch.store.ports import HeadFilter
from anabranch.surfaces.http.guard.browser_sessions import BrowserSessions
from anabranch.surfaces.http.guard.idempotency import REPLAYED

from .support import HELLO, Client, gated, playbook, run, served, step, toolbox

KEYS = 6


@asynccontextmanager
async def two(postgres: str) -> AsyncIterator[tuple[Client, Client]]:
    """Each owns half of the partitions."""
    with elsewhere.on(postgres):
        chosen = elsewhere.moved(Settings(store=":memory:", store_partitions=8))
    async with served(chosen, toolbox()) as one, served(chosen, toolbox()) as other:
        while not all(len(owned(each)) == 4 for each in (one, other)):
            await asyncio.sleep(0.02)
        yield one, other


def owned(client: Client) -> set[int]:
    assert client.parts.engine.member is not None
    return client.parts.engine.member._open


def test_a_key_at_two_servers_at_once_begins_one_run(postgres: str) -> None:
    async def work() -> None:
        async with two(postgres) as both:
            for n in range(KEYS):
                headers = {"Idempotency-Key": f"key-{n}"}
                body = {"definition": HELLO}
                replies = await asyncio.gather(
                    *(each.post("/runs", body, headers=headers) for each in both)
                )
                assert [one.status for one in replies] == [201, 201]
                assert replies[0].json == replies[1].json
            heads = both[0].parts.store.heads(HeadFilter(limit=100))
            assert len(heads) == KEYS

    run(work())


def test_a_patch_with_a_key_at_two_servers_at_once_takes_effect_once(postgres: str) -> None:
    async def work() -> None:
        async with two(postgres) as both:
            begun = await both[0].start(gated())
            for n in range(KEYS):
                headers = {"Idempotency-Key": f"patch-{n}"}
                body = {"values": {"count": 1}, "reducer": "append"}
                path = f"/runs/{begun}/patch"
                replies = await asyncio.gather(
                    *(each.post(path, body, headers=headers) for each in both)
                )
                assert [one.status for one in replies] == [200, 200], replies
                assert sum(REPLAYED in one.headers for one in replies) == 1
            state = both[0].parts.verbs.read.state(begun)
            assert state.ctx["count"] == [1] * KEYS

    run(work())


def test_two_servers_that_are_asked_at_once_redrive_a_run_once(postgres: str) -> None:
    """And the refusal of one leaves nothing behind that would keep others from it."""
    fails = playbook(step("a", "python", code="raise ValueError('no')"), name="fails")

    async def work() -> None:
        async with two(postgres) as both:
            store = both[0].parts.store
            for _ in range(KEYS):
                origin = await both[0].start(fails)
                await both[0].get(f"/runs/{origin}/wait?seconds=30")
                path = f"/runs/{origin}/redrive"
                unknown = await both[0].post(path, {"from": "nowhere"})
                assert unknown.status == 422
                replies = await asyncio.gather(*(each.post(path, {}) for each in both))
                assert sorted(one.status for one in replies) == [201, 409]
                assert [one.code for one in replies if one.status == 409] == ["redriven"]
                assert len(store.redrives([origin])) == 1
                assert (await both[1].post(path, {"again": True})).status == 201
            falls = {**fails, "metadata": {"name": "falls"}}
            origins = [await both[0].start(falls) for _ in range(KEYS)]
            for origin in origins:
                await both[0].get(f"/runs/{origin}/wait?seconds=30")
            bulk = {"verb": "redrive", "filter": {"name": "falls"}}
            await asyncio.gather(*(each.post("/bulk", bulk) for each in both))
            assert {head.origin for head in store.redrives(origins)} == set(origins)
            assert len(store.redrives(origins)) == KEYS

    run(work())


def test_who_has_signed_in_at_one_server_is_known_at_the_other(postgres: str) -> None:
    async def work() -> None:
        async with two(postgres) as both:
            here, there = (BrowserSessions(lambda: 1000, each.parts.store.cluster) for each in both)
            cookie, session = here.begin("token")
            assert there.find(cookie) == session
            assert there.find(cookie + "x") is None
            there.end(cookie)
            assert here.find(cookie) is None
            cookies = [here.begin("token")[0] for _ in range(60)]
            assert sum(there.find(one) is not None for one in cookies) == 50
            late = BrowserSessions(lambda: 2**50, both[1].parts.store.cluster)
            assert late.find(cookies[-1]) is None

    run(work())


@pytest.mark.parametrize("verb", ["pause", "cancel"])
def test_a_verb_at_either_server_is_seen_at_both(postgres: str, verb: str) -> None:
    async def work() -> None:
        async with two(postgres) as both:
            for client in both:
                begun = await both[0].start(gated())
                told = await client.post(f"/runs/{begun}/{verb}", {"reason": "no"})
                assert told.status == 200
                shown = [(await each.get(f"/runs/{begun}")).json for each in both]
                assert shown[0] == shown[1]
                assert shown[0]["status"] == told.json["status"]

    run(work())


def test_a_wait_of_no_seconds_says_at_either_server_whether_a_run_is_settled(postgres: str) -> None:
    async def work() -> None:
        async with two(postgres) as both:
            ended, asked = await both[0].start(HELLO), await both[0].start(gated())
            await both[0].ended(ended)
            await both[0].stands(asked)
            for client in both:
                told = [
                    (await client.get(f"/runs/{name}/wait?seconds=0{standing}")).json["settled"]
                    for name in (ended, asked)
                    for standing in ("", "&standing=true")
                ]
                assert told == [True, True, False, True]

    run(work())


WAITS = playbook(
    step("wait", "wait", "done", event="go"),
    step("done", result="{{ wait.payload }}"),
    name="waits",
)


def test_a_signal_sent_to_any_server_reaches_the_run(postgres: str) -> None:
    async def work() -> None:
        async with two(postgres) as both:
            for n in range(KEYS):
                begun = await both[0].start(WAITS)
                sender = both[n % 2]
                headers = {"Idempotency-Key": f"signal-{n}"}
                body = {"payload": n}
                replies = [
                    await sender.post(f"/runs/{begun}/signals/go", body, headers=headers),
                    await both[1 - n % 2].post(f"/runs/{begun}/signals/go", body, headers=headers),
                ]
                assert [one.status for one in replies] == [200, 200], replies
                assert await sender.ended(begun) == "completed"
                shown = (await sender.get(f"/runs/{begun}")).json
                assert shown["result"] == n
                kinds = [
                    one["kind"]
                    for one in (await both[0].get(f"/runs/{begun}/events")).json["items"]
                ]
                assert kinds.count("signal.received") == kinds.count("signal.taken") == 1

    run(work())


def test_each_run_that_finishes_at_either_server_begins_one_run(postgres: str) -> None:
    async def work() -> None:
        async with two(postgres) as both:
            definitions = [playbook(step("only"), name=name) for name in ("first", "second")]
            drafts = [
                {"definition": json.dumps(one), "path": one["metadata"]["name"]}
                for one in definitions
            ]
            assert (await both[0].post("/catalog", {"definitions": drafts})).status < 300
            trigger = {"name": "then", "after": {"definition": "first"}, "path": "second"}
            assert (await both[1].post("/triggers", trigger)).status == 201
            begun = [await both[n % 2].start(definitions[0]) for n in range(4 * KEYS)]
            wanted = HeadFilter(labels={"trigger": "then"}, limit=1000)
            while len(both[0].parts.store.heads(wanted)) < len(begun):
                await asyncio.sleep(0.05)
            for each in both:  # whatever either has yet to look at
                await each.parts.triggering.dispatcher.round()
            followed = [head.labels["trigger_run"] for head in both[0].parts.store.heads(wanted)]
            assert sorted(followed) == sorted(begun)

    run(work())
