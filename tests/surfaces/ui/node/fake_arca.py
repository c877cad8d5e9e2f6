"""A module that stands in for Arca: it shows runs to its host and answers the routes of the pages.

What it is told it writes down; what it refuses, and what it answers about templates, a test says.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from anabranch.market.node.api import Answer, Call, Endpoint
from anabranch.market.node.errors import NodeError
from anabranch.modules.kit.module import Module


class FakeArca(Module):
    module_id = "arca"

    def __init__(self) -> None:
        self.told: list[tuple[str, Any]] = []  # path below /v1/arca, body
        self.refusal: NodeError | None = None
        self.answers: dict[str, Any] = {}  # by "METHOD path"; a function is given the body
        super().__init__()

    def report(self) -> dict[str, Any]:
        claimed = {"chain": "inbound-local", "local_routes": ["GET service-catalog"]}
        return {"module_name": "Arca", "input_chains": [claimed, {"chain": "inbound-local"}]}

    def endpoints(self) -> Sequence[Endpoint]:
        return [
            _row(method, f"/v1/{root}", self._answer)
            for method in ("GET", "POST", "DELETE")
            for root in ("arca/{rest*}", "service-catalog")
        ]

    async def _answer(self, call: Call) -> Answer:
        path = call.path.removeprefix("/v1/").removeprefix("arca")
        if call.method != "GET":
            if self.refusal is not None:
                raise self.refusal
            self.told.append((path, call.body))
        found = self.answers.get(f"{call.method} {path}")
        if found is None and call.method == "GET":
            raise NodeError(404, "not_found", f"there is nothing at {call.path}")
        return Answer(body=found(call.body) if callable(found) else found or {})


def _row(method: str, path: str, handler: Callable[[Call], Any]) -> Endpoint:
    return Endpoint(
        method=method,
        path=path,
        scopes=("operator",),
        handler=handler,
        summary="For tests",
        query=("active_only", "limit", "service_type", "provider", "provider_node"),
    )
