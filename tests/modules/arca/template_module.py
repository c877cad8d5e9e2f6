"""A module that has templates and nothing else, for tests."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from anabranch.market.node.api import Answer, Endpoint
from anabranch.market.node.modules.part import HostCall
from anabranch.modules.arca.config import ArcaConfig
from anabranch.modules.arca.templates import TemplatesPart
from anabranch.modules.kit.host import Host
from anabranch.modules.kit.module import ALLOW, Module, PeerMessage
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


class TemplatesOnly(Module):
    module_id = "arca"

    def __init__(self, call: HostCall, started: list[Any] | None = None) -> None:
        self._started = started if started is not None else []
        self.part = TemplatesPart(host=Host(call), start_run=self._start_run, config=ArcaConfig())
        super().__init__()

    async def _start_run(self, definition: Mapping[str, Any], given: Mapping[str, Any]) -> str:
        self._started.append((definition, given))
        return f"run:{len(self._started)}"

    def endpoints(self) -> Sequence[Endpoint]:
        return self.part.endpoints()

    def report(self) -> dict[str, Any]:
        return {
            "input_chains": [
                {"chain": "inbound-local", "local_routes": list(self.part.local_routes())},
                {"chain": "inbound-peer", "message_types": list(self.part.messages())},
            ]
        }

    async def peer_message(self, message: PeerMessage) -> dict[str, Any]:
        handler = self.part.messages().get(message.msg)
        return ALLOW if handler is None else await handler(message)


class Liar(Module):
    """Answers what it is told to, whatever is asked. `said` may be a function of the request."""

    module_id = "arca"

    def __init__(self, call: HostCall, said: Any) -> None:
        self._said = said
        self.host = call
        super().__init__()

    def report(self) -> dict[str, Any]:
        kinds = ["workflow-template.fetch.request"]
        return {"input_chains": [{"chain": "inbound-peer", "message_types": kinds}]}

    async def peer_message(self, message: PeerMessage) -> dict[str, Any]:
        said = self._said(message.payload) if callable(self._said) else self._said
        return {"decision": "return", "reason": "said", "patch": said}


def world(*names: str, **more: Any) -> World:
    """Nodes with templates; `more` has other modules by the name of their node."""
    started: list[Any] = []
    nodes = [
        {"name": name, "modules": {"arca": lambda call: TemplatesOnly(call, started)}}
        for name in names
    ]
    return World(nodes=[*nodes, *({"name": n, "modules": {"arca": m}} for n, m in more.items())])


async def asked(
    node: WorldNode, method: str, path: str = "", body: Any = None, **more: Any
) -> Answered:
    answer: Answered = await node.request(method, ROUTE + path, body, **more)
    return answer


__all__ = ["ROUTE", "STEP", "Answer", "Liar", "TemplatesOnly", "asked", "template", "world"]
