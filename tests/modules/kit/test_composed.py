"""A module of parts: one table, one report, and an end for everything that was begun."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pytest

from anabranch.market.node.api import Answer, Call, Endpoint
from anabranch.modules.kit.composed import ComposedModule
from anabranch.modules.kit.host import HostRefused, HostUnavailable
from anabranch.modules.kit.module import MessageHandler, PeerMessage, reply
from in_loop import in_loop


class Part:
    def __init__(self, name: str, told: list[str], fails: str = "") -> None:
        self._name = name
        self._told = told
        self._fails = fails

    def endpoints(self) -> Sequence[Endpoint]:
        return [
            Endpoint(
                method="GET", path=f"/v1/{self._name}/{{how}}", scopes=("operator",),
                handler=self._answer, summary="Answers or does not",
            )
        ]  # fmt: skip

    def local_routes(self) -> Sequence[str]:
        return [f"GET {self._name}/{{how}}"]

    def messages(self) -> Mapping[str, MessageHandler]:
        return {f"{self._name}.asked": self._decide}

    async def start(self) -> None:
        self._told.append(f"start {self._name}")
        if self._fails == "start":
            raise RuntimeError("it cannot begin")

    async def close(self) -> None:
        self._told.append(f"close {self._name}")
        if self._fails == "close":
            raise RuntimeError("it cannot end")

    async def _answer(self, call: Call) -> Answer:
        match call.params["how"]:
            case "away":
                raise HostUnavailable("later", code="module_not_ready")
            case "refused":
                raise HostRefused(409, "stale_revision", "it has 3", {})
            case "odd":
                raise HostRefused(599, "odd", "it said so", {})
        return Answer(body={"actor": call.caller.actor, "module": call.caller.module})

    async def _decide(self, message: PeerMessage) -> dict[str, Any]:
        return reply({"for": message.payload})


@in_loop
async def test_parts_begin_in_order_and_end_in_the_opposite_one() -> None:
    told: list[str] = []
    module = ComposedModule("m", [Part("a", told), Part("b", told, "close"), Part("c", told)])
    await module.start()
    with pytest.raises(RuntimeError, match="cannot end"):
        await module.close()
    assert told == ["start a", "start b", "start c", "close c", "close b", "close a"]


@in_loop
async def test_where_a_part_cannot_begin_those_before_it_end() -> None:
    told: list[str] = []
    module = ComposedModule("m", [Part("a", told), Part("b", told, "start"), Part("c", told)])
    with pytest.raises(RuntimeError, match="cannot begin"):
        await module.start()
    assert told == ["start a", "start b", "close b", "close a"]


@in_loop
async def test_the_report_has_the_routes_and_messages_of_all_parts() -> None:
    module = ComposedModule("m", [Part("a", []), Part("b", [])], {"module_name": "M"})
    status, report = await module.handle("POST", "/v1/middleware/init", {}, {"module_id": "m"})
    assert (status, report["module_name"]) == (200, "M")
    assert report["input_chains"] == [
        {"chain": "inbound-local", "local_routes": ["GET a/{how}", "GET b/{how}"]},
        {"chain": "inbound-peer", "message_types": ["a.asked", "b.asked"]},
    ]
    asked = {"msg": "b.asked", "payload": 1, "correlation_id": "c", "remote_node_id": "n"}
    _, decided = await module.handle("POST", "/v1/middleware/invoke", {}, asked)
    assert (decided["decision"], decided["patch"]) == ("return", {"for": 1})


def test_two_parts_cannot_decide_about_one_message() -> None:
    with pytest.raises(ValueError, match=r"a\.asked"):
        ComposedModule("m", [Part("a", []), Part("a", [])])


@pytest.mark.parametrize(
    ("how", "status", "code"),
    [("away", 503, "module_not_ready"), ("refused", 409, "stale_revision"), ("odd", 502, "odd")],
)
@in_loop
async def test_what_the_host_does_not_do_is_passed_on(how: str, status: int, code: str) -> None:
    module = ComposedModule("m", [Part("a", [])])
    got, body = await module.handle("GET", f"/v1/a/{how}", {}, None)
    assert (got, body["code"]) == (status, code)


@pytest.mark.parametrize(
    ("caller", "actor", "by"),
    [
        ({"scope": "operator"}, "operator", ""),
        ({"scope": "module", "module_id": "dator"}, "dator", "dator"),
        (None, "operator", ""),
    ],
)
@in_loop
async def test_a_local_route_knows_who_calls(caller: Any, actor: str, by: str) -> None:
    module = ComposedModule("m", [Part("a", [])])
    envelope = {
        "envelope_kind": "local-input",
        "method": "GET",
        "path": "/v1/enact/a/well",
        "caller": caller,
    }
    _, decided = await module.handle("POST", "/v1/middleware/invoke", {}, envelope)
    assert decided["patch"]["body"] == {"actor": actor, "module": by}
