"""What a module gets to know when it asks its host."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

import pytest

from anabranch.market.node.api import Answer
from anabranch.modules.kit.host import Host, HostRefused, HostUnavailable


def host(answer: Answer) -> Host:
    async def call(_method: str, _path: str, _body: Any, _query: Mapping[str, str]) -> Answer:
        return answer

    return Host(call)


@pytest.mark.parametrize("status", [429, 502, 503, 504])
def test_what_may_be_answered_later_is_unavailable(status: int) -> None:
    said = {"code": "module_not_ready", "detail": "later"}
    with pytest.raises(HostUnavailable, match="later") as raised:
        asyncio.run(host(Answer(status=status, body=said)).ask("GET", "/v1/status"))
    assert raised.value.code == "module_not_ready"


def test_a_refusal_has_its_status_and_code() -> None:
    said = {"code": "stale_revision", "detail": "the run has 3"}
    with pytest.raises(HostRefused, match="the run has 3") as raised:
        asyncio.run(host(Answer(status=409, body=said)).ask("POST", "/v1/module/workflow/runs", {}))
    assert (raised.value.status, raised.value.code) == (409, "stale_revision")


def test_what_is_not_there_is_none() -> None:
    assert asyncio.run(host(Answer(status=404, body={"code": "not_found"})).execution("x")) is None


def test_nobody_is_known_for_sure_only_where_every_seed_could_be_read() -> None:
    unread = {"status": "ok", "items": [], "unread": "the seed directory cannot be read"}
    with pytest.raises(HostUnavailable, match="cannot be read") as raised:
        asyncio.run(host(Answer(body=unread)).holders("offer-catalog"))
    assert raised.value.code == "directory_unread"
    assert asyncio.run(host(Answer(body={"status": "ok", "items": []})).nodes_of("x")) == []


def test_records_are_read_in_as_many_answers_as_they_take() -> None:
    asked: list[Any] = []
    rows = [{"record_id": str(number)} for number in range(5)]

    async def call(_method: str, _path: str, body: Any, _query: Mapping[str, str]) -> Answer:
        asked.append((body.get("before"), body["limit"]))
        at = int(body.get("before", 0))
        page = rows[at : at + min(2, body["limit"])]
        more = {"next": str(at + 2)} if at + 2 < len(rows) else {}
        return Answer(body={"records": page, **more})

    assert asyncio.run(Host(call).records("x", 4)) == rows[:4]
    assert asked == [(None, 4), ("2", 2)]
    assert asyncio.run(Host(call).records("x")) == rows
