"""Modules of two nodes: one sends through its host, the chains of the other decide who answers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from anabranch.market.node.api import Answer
from anabranch.market.node.modules.part import HostCall
from anabranch.testing.market import NodeSpec, World
from in_loop import in_loop


class Module:
    """Answers one kind of message with who asked, and asks where it is told to."""

    def __init__(self, module: str, host: HostCall) -> None:
        self.module = module
        self.host = host
        self.heard: list[Any] = []

    async def handle(
        self, _method: str, path: str, _headers: Mapping[str, str], body: Any
    ) -> tuple[int, Any]:
        if path == "/v1/middleware/init":
            chains = [{"chain": "inbound-peer", "message_types": ["test.ask"]}]
            report = {"schema_version": "v1", "module_id": self.module, "input_chains": chains}
            return 200, report
        if path != "/v1/middleware/invoke":
            return 200, {"status": "ok"}
        self.heard.append(body)
        patch = {"by": self.module, "asked_by": body["remote_node_id"]}
        return 200, {"decision": "return", "reason": "asked", "patch": patch}


class Gatekeeper(Module):
    """Lets no message with a secret leave its node, and hears of broadcasts."""

    async def handle(
        self, method: str, path: str, headers: Mapping[str, str], body: Any
    ) -> tuple[int, Any]:
        if path == "/v1/middleware/init":
            chains = [
                {"chain": "pre-send", "filter": {"secret": True}},
                {"chain": "inbound-broadcast"},
            ]
            return 200, {"schema_version": "v1", "module_id": self.module, "input_chains": chains}
        if path == "/v1/middleware/invoke":
            self.heard.append(body["chain_kind"])
            said = "drop" if body["chain_kind"] == "pre-send" else "allow"
            return 200, {"decision": said, "reason": "secret"}
        return await super().handle(method, path, headers, body)


@in_loop
async def test_modules_decide_what_leaves_their_node_and_hear_of_broadcasts() -> None:
    made: dict[str, Module] = {}

    def maker(name: str, kind: type[Module]) -> Any:
        def make(host: HostCall) -> Module:
            made[name] = kind(name, host)
            return made[name]

        return make

    passports = {"directory": {"passports": ["offer-catalog"]}}
    world = World([
        NodeSpec(name="a", modules={"a": maker("a", Gatekeeper)}),
        NodeSpec(name="b", config=passports, modules={
            "watch": maker("watch", Gatekeeper), "b": maker("b", Module),
        }),
    ])  # fmt: skip
    world.advance(60)

    def ask(payload: Any, destination: Any) -> Any:
        body = {
            "execution_mode": "blocking", "destination": destination, "msg": "test.ask",
            "payload": payload, "correlation_id": "c1",
        }  # fmt: skip

        async def asked() -> Answer:
            path = "/v1/host/capabilities/peer.message.dispatch"
            return await made["a"].host("POST", path, body, {})

        (target,) = world["a"].run(asked()).body["targets"]
        return target["status"]

    everyone = {"capability_id": "offer-catalog"}
    assert ask({"secret": True}, everyone) == "dropped"
    assert made["a"].heard == ["pre-send"]
    assert made["b"].heard == made["watch"].heard == []
    assert ask({"secret": False}, everyone) == "responded"
    assert made["watch"].heard == ["inbound-broadcast"]
    assert ask({}, {"node_id": world["b"].node_id}) == "responded"
    assert made["watch"].heard == ["inbound-broadcast"]
    assert len(made["b"].heard) == 2


@in_loop
async def test_a_message_reaches_the_module_of_another_node_and_says_truly_who_sent_it() -> None:
    made: dict[str, Module] = {}

    def maker(name: str) -> Any:
        def make(host: HostCall) -> Module:
            made[name] = Module(name, host)
            return made[name]

        return make

    specs = [NodeSpec(name=name, modules={name: maker(name)}) for name in ("a", "b")]
    world = World(specs)
    a, b = world["a"], world["b"]
    body = {
        "execution_mode": "blocking",
        "destination": {"node_id": b.node_id},
        "msg": "test.ask",
        "payload": {"remote_node_id": b.node_id},
        "correlation_id": "c1",
    }

    async def ask() -> Answer:
        return await made["a"].host("POST", "/v1/host/capabilities/peer.message.dispatch", body, {})

    world.advance(60)
    answer = a.run(ask())
    assert answer.status == 200, answer.body
    (target,) = answer.body["targets"]
    assert (target["node_id"], target["status"]) == (b.node_id, "responded")
    assert target["payload"] == {"by": "b", "asked_by": a.node_id}
    (heard,) = made["b"].heard
    assert heard["remote_node_id"] == a.node_id
    assert made["a"].heard == []
