"""Modules as the operator sees them, and the three things the operator does to them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from anabranch.market.node.api import Answer, Call, Endpoint
from anabranch.market.node.errors import NodeError
from anabranch.market.node.modules.bridge import CapabilityBridge
from anabranch.market.node.modules.routes import Claims
from anabranch.market.node.modules.supervisor import SupervisedModule
from anabranch.work.participants.performers import rfc3339


class OperatorEndpoints:
    def __init__(
        self,
        modules: Mapping[str, SupervisedModule],
        claims: Claims,
        bridge: CapabilityBridge,
    ) -> None:
        self._modules = modules
        self._claims = claims
        self._bridge = bridge

    def endpoints(self) -> list[Endpoint]:
        verbs: list[tuple[str, Any, str]] = [
            ("start", self._start, "Start a module that has stopped or failed."),
            ("stop", self._stop, "Stop routing to a module and end it."),
            ("restart", self._restart, "Stop a module and start it again."),
        ]
        return [
            Endpoint(
                method="GET",
                path="/v1/modules",
                scopes=("operator",),
                handler=self._list,
                summary="The modules of this node.",
            ),
            Endpoint(
                method="GET",
                path="/v1/modules/{module}",
                scopes=("operator",),
                handler=self._show,
                summary="One module with its report.",
                errors=(404,),
            ),
            *(
                Endpoint(
                    method="POST",
                    path=f"/v1/modules/{{module}}/{verb}",
                    scopes=("operator",),
                    handler=handler,
                    summary=summary,
                    errors=(404,),
                )
                for verb, handler, summary in verbs
            ),
        ]

    async def _list(self, _call: Call) -> Answer:
        return Answer(body={"items": [self._view(one) for one in self._modules.values()]})

    async def _show(self, call: Call) -> Answer:
        module = self._find(call)
        view = self._view(module)
        checked = module.report
        view["report"] = msgspec.to_builtins(checked.report) if checked is not None else None
        return Answer(body=view)

    async def _start(self, call: Call) -> Answer:
        module = self._find(call)
        module.start()
        return Answer(body=self._view(module))

    async def _stop(self, call: Call) -> Answer:
        module = self._find(call)
        await module.stop()
        return Answer(body=self._view(module))

    async def _restart(self, call: Call) -> Answer:
        module = self._find(call)
        await module.stop()
        module.start()
        return Answer(body=self._view(module))

    def _find(self, call: Call) -> SupervisedModule:
        module = self._modules.get(call.params["module"])
        if module is None:
            raise NodeError(404, "not_found", f"no module {call.params['module'][:64]}")
        return module

    def _view(self, module: SupervisedModule) -> dict[str, Any]:
        config = module.config
        problem = module.problem
        return {
            "module_id": module.module,
            "component_id": config.component,
            "executor_id": config.id,
            "kind": config.kind,
            "endpoint": config.http.endpoint,
            "state": module.state,
            "ready": module.routable,
            "restarts": module.restarts,
            "pid": module.pid,
            "ready_at": rfc3339(module.ready_at) if module.ready_at is not None else None,
            "grants": list(config.grants),
            "routes": [
                {"method": method, "path": path} for method, path in self._claims.of(module.module)
            ],
            "handles": self._bridge.handled_by(module.module),
            "acceptors": [one.acceptor_id for one in config.acceptors],
            "conflicts": list(module.conflicts),
            "last_problem": None
            if problem is None
            else {"code": problem.code, "message": problem.message, "at": rfc3339(problem.at)},
        }
