"""Nodes with a module that has templates and nothing else, for tests."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from anabranch.market.node.modules.part import HostCall
from anabranch.modules.arca.config import ArcaConfig
from anabranch.modules.arca.templates import TemplatesPart
from anabranch.modules.kit.composed import ComposedModule
from anabranch.modules.kit.host import Host
from anabranch.modules.kit.module import Module, PeerMessage
from anabranch.testing.market import Answered, World, WorldNode

ROUTE = "/v1/enact/arca/templates"
STEP = {"step_id": "a", "service_type": "text/summarise", "input": {"of": "{{params.topic}}"}}


def template(template_id: str = "weekly.v1", **changes: Any) -> dict[str, Any]:
    return {
        "template_id": template_id,
        "label": "Weekly",
        "parameters": {"topic": {"type": "string"}, "limit": {"type": "integer", "default": 3}},
        "plan": {
            "steps": [
                {**STEP, "max_amount": "{{params.limit}}"},
                {"step_id": "b", "service_type": "text/post", "input_from": "a"},
            ]
        },
        **changes,
    }


Started = list[tuple[Mapping[str, Any], Mapping[str, Any]]]


def templates_only(started: Started) -> Callable[[HostCall], Module]:
    """Makes the module; what it would start is added to `started`."""

    async def start_run(definition: Mapping[str, Any], given: Mapping[str, Any]) -> str:
        started.append((definition, given))
        return f"run:{len(started)}"

    def make(call: HostCall) -> Module:
        part = TemplatesPart(host=Host(call), start_run=start_run, config=ArcaConfig())
        return ComposedModule("arca", [part])

    return make


class Liar(Module):
    """Answers what it is told to; `said` makes that of the request."""

    module_id = "arca"

    def __init__(self, said: Callable[[dict[str, Any]], Any], chain: str = "inbound-peer") -> None:
        self._said = said
        self._chain = chain
        super().__init__()

    def report(self) -> dict[str, Any]:
        kinds = ["workflow-template.fetch.request"]
        return {"input_chains": [{"chain": self._chain, "message_types": kinds}]}

    async def peer_message(self, message: PeerMessage) -> dict[str, Any]:
        return {"decision": "return", "reason": "said", "patch": self._said(message.payload)}


class Bystander(Module):
    """A module beside Arca, with nothing of its own."""

    def report(self) -> dict[str, Any]:
        return {}


def world(*names: str, started: Started | None = None, **others: Any) -> World:
    """Nodes with templates; `others` has the module that a node of that name has instead."""
    own = templates_only([] if started is None else started)
    modules = {**dict.fromkeys(names, own), **others}
    beside = {"other": lambda _call: Bystander()}
    return World(
        nodes=[
            {"name": name, "modules": {"arca": module, **beside}}
            for name, module in modules.items()
        ]
    )


async def asked(
    node: WorldNode, method: str, path: str = "", body: Any = None, **more: Any
) -> Answered:
    """What the node answers below its route for templates."""
    answer: Answered = await node.request(method, ROUTE + path, body, **more)
    return answer
