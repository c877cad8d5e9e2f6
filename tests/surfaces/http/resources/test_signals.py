"""Signals over HTTP: sent, kept, taken once, listed, refused with a reason."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from ..support import HELLO, Client, playbook, run, serving, step

WAITING = playbook(
    step("first", "wait", "second", event="paid", filter="{{ signal.payload.n == workload.n }}"),
    step("second", "wait", "done", event="sent"),
    step("done", result="{{ first.payload.n }}"),
    name="waiting",
    workload={"n": 7},
)


async def waits(client: Client) -> str:
    begun = await client.start(WAITING)
    await client.stands(begun)
    return begun


def test_a_signal_is_taken_by_its_wait_or_kept_for_it() -> None:
    async def work() -> None:
        async with serving() as client:
            name = await waits(client)
            early = await client.post(f"/runs/{name}/signals/sent")
            assert (early.status, early.json["signal"], early.json["status"]) == (
                200,
                "kept",
                "waiting",
            )
            other = await client.post(f"/runs/{name}/signals/paid", {"payload": {"n": 1}})
            assert other.json["signal"] == "kept"
            sent = await client.post(f"/runs/{name}/signals/paid", {"payload": {"n": 7}})
            assert sent.json["signal"] == "taken"
            assert await client.ended(name) == "completed"
            shown = (await client.get(f"/runs/{name}")).json
            assert (shown["result"], shown.get("signals", [])) == (7, [])
            listed = (await client.get(f"/runs/{name}/signals")).json
            assert listed["names"] == ["paid", "sent"]
            assert sorted((one["name"], one["status"]) for one in listed["items"]) == [
                ("paid", "dropped"),
                ("paid", "taken"),
                ("sent", "taken"),
            ]

    run(work())


def test_a_key_makes_a_repeated_signal_the_same_one() -> None:
    async def work() -> None:
        async with serving() as client:
            name = await waits(client)
            path, headers = f"/runs/{name}/signals/sent", {"Idempotency-Key": "k"}
            replies = await asyncio.gather(
                *(client.post(path, {"payload": 1}, headers=headers) for _ in range(5))
            )
            assert {one.status for one in replies} == {200}
            assert {one.json["id"] for one in replies} == {"k"}
            items = (await client.get(f"/runs/{name}/signals")).json["items"]
            assert [(one["id"], one["payload"]) for one in items] == [("k", 1)]
            other = await client.post(path, {"payload": 2}, headers=headers)
            assert (other.status, other.code) == (409, "signal_id_used")

    run(work())


@pytest.mark.parametrize(
    ("path", "body", "status", "code", "said"),
    [
        ("sennt", {}, 422, "unknown_signal", "did you mean 'sent'?"),
        ("a%20b", {}, 422, "signal_name", "cannot be the name of a signal"),
        ("sent", {"ttl": "soon"}, 422, "signal_ttl", "is not a duration"),
        ("sent", {"ttl": 0}, 422, "signal_ttl", "zero"),
        ("sent", {"ttl": -1}, 422, "signal_ttl", "negative"),
        ("sent", {"payload": 1, "odd": 2}, 422, "schema", "odd"),
        ("sent", [1], 422, "schema", "object"),
    ],
)
def test_bad_input_is_refused_and_changes_nothing(
    path: str, body: Any, status: int, code: str, said: str
) -> None:
    async def work() -> None:
        async with serving() as client:
            name = await waits(client)
            reply = await client.post(f"/runs/{name}/signals/{path}", body)
            assert (reply.status, reply.code) == (status, code), reply.text
            assert said in reply.text
            assert (await client.get(f"/runs/{name}/signals")).json["items"] == []

    run(work())


def test_a_run_without_waits_and_one_that_has_ended_take_no_signals() -> None:
    async def work() -> None:
        async with serving() as client:
            ended = await client.start(HELLO)
            await client.ended(ended)
            reply = await client.post(f"/runs/{ended}/signals/paid")
            assert (reply.status, reply.code) == (409, "run_finished")
            missing = await client.post("/runs/nobody/signals/paid")
            assert missing.status == 404
            assert (await client.get(f"/runs/{ended}/signals")).json["names"] == []

    run(work())


def test_a_large_payload_is_kept_beside_the_log_and_a_filter_reads_it() -> None:
    async def work() -> None:
        async with serving(inline_bytes_max=200) as client:
            name = await waits(client)
            large = {"n": 7, "text": "x" * 5000}
            kept = await client.post(f"/runs/{name}/signals/sent", {"payload": large})
            assert kept.json["signal"] == "kept"
            shown = (await client.get(f"/runs/{name}/explain")).json["signals"]
            assert shown[0]["payload"] == large
            sent = await client.post(f"/runs/{name}/signals/paid", {"payload": large})
            assert sent.json["signal"] == "taken"
            assert await client.ended(name) == "completed"
            assert (await client.get(f"/runs/{name}")).json["result"] == 7
            log = (await client.get(f"/runs/{name}/events")).json["items"]
            received = [one for one in log if one["kind"] == "signal.received"]
            assert len(received) == 2
            assert all("_ref" in one["fields"]["payload"] for one in received)
            assert all(one["fields"]["size"] < 5000 for one in received)

    run(work())
