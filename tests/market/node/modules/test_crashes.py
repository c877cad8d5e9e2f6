"""A node with a module that dies around any commit: what was answered stays, laws hold."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

import pytest

from anabranch.errors import AnabranchError
from anabranch.market.node.modules import part as modules
from anabranch.market.node.modules.laws import broken_laws
from anabranch.market.node.modules.part import HostCall
from anabranch.testing.market import NodeSpec, World
from anabranch.testing.market.disk import Died
from in_loop import in_loop

CATALOG = "/v1/enact/catalog"


class Keeper:
    """A module that keeps what it is asked to, and counts by its host alone."""

    def __init__(self, host: HostCall) -> None:
        self._host = host

    async def handle(
        self, _method: str, path: str, _headers: Mapping[str, str], body: Any
    ) -> tuple[int, Any]:
        if path == "/v1/middleware/init":
            chain = {"chain": "inbound-local", "local_routes": [f"POST {CATALOG}"]}
            return 200, {"schema_version": "v1", "module_id": "keeper", "input_chains": [chain]}
        if path != "/v1/middleware/invoke":
            return 200, {"status": "ok"}
        number = body["body"]["number"]
        await self._put(number)
        run = {"run_id": f"run:{number}", "status": "running"}
        made = await self._host("POST", "/v1/module/workflow/runs", run, {})
        done = {**run, "status": "completed", "revision": made.body["revision"]}
        if made.body["status"] == "running":
            made = await self._host("POST", "/v1/module/workflow/runs", done, {})
        patch = {"status": 200, "body": made.body["revision"]}
        return 200, {"decision": "return", "reason": "kept", "patch": patch}

    async def _put(self, number: int) -> None:
        record = {
            "schema_version": "v1", "capability_id": "module_store_put",
            "record_kind": "k", "record_id": str(number), "payload": number,
        }  # fmt: skip
        answer = await self._host("POST", "/v1/module/store/records/put", record, {})
        assert answer.status == 200


def world() -> World:
    spec = NodeSpec(name="a", modules={"keeper": Keeper})
    return World([spec], makers=lambda: [(modules.make, modules.FAMILIES)])


@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize("number", range(2, 11))
@in_loop
async def test_dying_at_a_commit_loses_nothing_that_was_answered(when: str, number: int) -> None:
    one = world()
    node = one["a"]
    answered: list[int] = []

    def die(at: str, commit: int) -> None:
        if (at, commit) == (when, number):
            raise Died(9)

    node.on_commit = die
    for call in range(3):
        while call not in answered:
            if node.node is None:
                node.on_commit = lambda _when, _number: None
                node.start()
            try:
                status, body = await node.request("POST", CATALOG, {"number": call})
            except (AnabranchError, asyncio.CancelledError):
                continue
            if status == 503:
                one.advance(1)
                continue
            assert (status, body) == (200, 2)
            answered.append(call)
    assert node.lives == 2
    assert node.run(broken_laws(node.entities)) == []
    items = (await node.request("GET", "/v1/module/workflow/runs")).body["items"]
    assert sorted(item["run_id"] for item in items) == ["run:0", "run:1", "run:2"]
    assert {(item["status"], item["revision"]) for item in items} == {("completed", 2)}
    listed = {"schema_version": "v1", "capability_id": "module_store_list"}
    records = await node.request("POST", "/v1/module/store/records/list", listed, as_="keeper")
    assert sorted(row["payload"] for row in records.body["records"]) == [0, 1, 2]
