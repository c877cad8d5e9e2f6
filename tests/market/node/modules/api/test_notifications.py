"""Notifications: kept once for a key, seen by the operator alone."""

from __future__ import annotations

from typing import Any

import pytest

from anabranch.market.node.api import Answer
from anabranch.store.memory.store import MemoryStore

from ..support import Hosted, hosted, in_process, run

CONFIGS = [in_process("arca", enabled=False), in_process("dator", enabled=False)]


async def notify(node: Hosted, as_: str = "arca", **more: Any) -> Answer:
    body = {"schema_version": "v1", "capability_id": "notify_emit", "level": "info", "title": "t"}
    return await node.ask("POST", "/v1/module/notify", {**body, **more}, as_=as_)


def test_the_operator_sees_what_modules_say() -> None:
    async def scenario() -> None:
        async with hosted(configs=CONFIGS) as node:
            said = await notify(node, title="Run done", body="all", correlation_id="run:1")
            await notify(node, "dator", level="error")
            (one,) = (await node.ask("GET", "/v1/notifications", query={"module": "arca"})).body[
                "items"
            ]
            assert one == {
                "notification_id": said.body["notification_id"],
                "module_id": "arca",
                "level": "info",
                "title": "Run done",
                "body": "all",
                "emitted_at": "2026-05-28T20:26:40.000Z",
                "correlation_id": "run:1",
            }
            errors = await node.ask("GET", "/v1/notifications", query={"level": "error"})
            assert [one["module_id"] for one in errors.body["items"]] == ["dator"]
            limited = await node.ask("GET", "/v1/notifications", query={"limit": "1"})
            assert len(limited.body["items"]) == 1
            for limit in ("0", "-1", "x", ""):
                bad = await node.ask("GET", "/v1/notifications", query={"limit": limit})
                assert bad.status == 400
            assert (await node.ask("GET", "/v1/notifications", as_="arca")).status == 403

    run(scenario())


def test_a_key_is_emitted_once_for_each_module() -> None:
    async def scenario() -> None:
        async with hosted(configs=CONFIGS) as node:
            first = (await notify(node, idempotency_key="k")).body
            again = (await notify(node, idempotency_key="k")).body
            other = (await notify(node, "dator", idempotency_key="k")).body
            assert first["outcome"] == other["outcome"] == "emitted"
            assert again == {**first, "outcome": "already_emitted"}
            conflict = await notify(node, idempotency_key="k", title="something else")
            assert (conflict.status, conflict.body["outcome"]) == (409, "rejected_other")
            assert len((await node.ask("GET", "/v1/notifications")).body["items"]) == 2

    run(scenario())


def test_without_a_key_the_same_words_are_said_again() -> None:
    async def scenario() -> None:
        async with hosted(configs=CONFIGS) as node:
            ids = {(await notify(node)).body["notification_id"] for _ in range(3)}
            assert len(ids) == 3

    run(scenario())


@pytest.mark.parametrize(
    "body",
    [
        {"level": "debug"},
        {"title": ""},
        {"title": "x" * 241},
        {"body": "x" * 4097},
        {"schema_version": "v2"},
        {"capability_id": "artifact_write"},
        {"idempotency_key": ""},
        {"idempotency_key": "x" * 257},
        {"title": 7},
    ],
)
def test_a_bad_notification_is_refused(body: dict[str, Any]) -> None:
    async def scenario() -> None:
        store = MemoryStore()
        async with hosted(configs=CONFIGS, store=store) as node:
            answer = await notify(node, **body)
        assert (answer.status, answer.body["outcome"]) == (400, "rejected_invalid_request")
        assert store.node_streams is not None
        assert store.node_streams.stream_names() == []

    run(scenario())
