"""The host capability bridge: `POST /v1/host/capabilities/{id}` for modules.

The token says which module asks, its grants what it may. A capability is carried out by the host,
or by the module that reported a handler for it; the host's own names cannot be taken by a module.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any

from anabranch.errors import AnabranchError
from anabranch.market.node.api import Answer, Call
from anabranch.market.node.errors import NodeError
from anabranch.market.node.modules.reports import CheckedReport
from anabranch.market.node.modules.supervisor import ModuleNotReady, SupervisedModule
from anabranch.market.node.modules.transport import ModuleAnswer, ModuleCallFailed
from anabranch.market.node.ports import Capabilities

logger = logging.getLogger("anabranch.node")

CALLER_HEADER = "X-Orbiplex-Caller-Module"
CAPABILITY_HEADER = "X-Orbiplex-Capability-Id"


class CapabilityBridge:
    def __init__(self, modules: Mapping[str, SupervisedModule], capabilities: Capabilities) -> None:
        self._modules = modules
        self._capabilities = capabilities
        self._owners: dict[str, str] = {}  # of capabilities that modules handle

    def claim(self, module: str, report: CheckedReport) -> list[str]:
        """Replace what a module handles; says what it cannot have."""
        self._owners = {name: owner for name, owner in self._owners.items() if owner != module}
        refused = []
        for name in report.handlers:
            if self._capabilities.handler(name) is not None:
                refused.append(f"the host capability {name} is the host's own")
            elif name in self._owners:
                refused.append(f"{name} is handled by the module {self._owners[name]}")
            else:
                self._owners[name] = module
        return refused

    def handled_by(self, module: str) -> list[str]:
        return sorted(name for name, owner in self._owners.items() if owner == module)

    def offered_to(self, module: SupervisedModule) -> list[str]:
        """What the host does for this module."""
        return [n for n in self._capabilities.names() if module.config.grants_capability(n)]

    async def handle(self, call: Call) -> Answer:
        name, asking = call.params["capability"], self._modules.get(call.caller.module)
        if asking is None or not asking.config.grants_capability(name):
            raise NodeError(
                403,
                "host_capability_forbidden",
                f"the module {call.caller.module} is not granted {name[:200]} (grants)",
            )
        handler = self._capabilities.handler(name)
        if handler is None:
            answer = await self.ask_module(name, call.body, call.caller.module)
            return Answer(status=answer.status, body=answer.body)
        try:
            return await handler(call.body, call.caller, call.query)
        except AnabranchError:
            raise
        except Exception as error:
            logger.error("the host capability %s failed", name, exc_info=error)
            raise _failed(name, f"it raised {type(error).__name__}") from None

    async def ask_module(self, name: str, body: Any, caller: str) -> ModuleAnswer:
        """Raises `NodeError` 503 and 502."""
        owner = self._owners.get(name)
        if owner is None:
            raise _unavailable(name, "nothing handles it")
        module = self._modules[owner]
        path = module.report.handlers.get(name) if module.report is not None else None
        if path is None or not module.routable:
            raise _unavailable(name, f"the module {owner} is {module.state}")
        headers = {CALLER_HEADER: caller, CAPABILITY_HEADER: name}
        try:
            answer = await module.call(path, body, headers=headers)
        except ModuleNotReady as error:
            raise _unavailable(name, error.message) from None
        except ModuleCallFailed as error:
            raise _failed(name, error.message, reason=error.code) from None
        if not answer.good:
            raise _failed(
                name, f"its handler answered {answer.status}", handler_status=answer.status
            )
        return answer


def _unavailable(name: str, why: str) -> NodeError:
    return NodeError(
        503,
        "host_capability_unavailable",
        f"{name[:200]} is not available: {why}",
        headers={"Retry-After": "2"},
    )


def _failed(name: str, why: str, **more: Any) -> NodeError:
    return NodeError(
        502, "host_capability_dispatch_failed", f"{name[:200]} failed: {why}", more=more
    )
