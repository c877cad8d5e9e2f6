"""The modules of a node, put together: supervisors, chains, routes, the bridge, module APIs."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

import msgspec

from anabranch.market.node.api import Answer, Call, Caller, Endpoint
from anabranch.market.node.entities import Family
from anabranch.market.node.errors import NodeError
from anabranch.market.node.modules.acceptors import Acceptors
from anabranch.market.node.modules.api.artifacts import ARTIFACT_KEYS, ARTIFACTS, ModuleArtifacts
from anabranch.market.node.modules.api.completed_steps import (
    CAPABILITY,
    COMPLETED,
    CompletedSteps,
)
from anabranch.market.node.modules.api.notifications import NOTIFICATIONS, Notifications
from anabranch.market.node.modules.api.records import DELETED, RECORDS, ModuleRecords
from anabranch.market.node.modules.api.runs import RUNS, WorkflowRuns
from anabranch.market.node.modules.api.template_signing import SIGN_TEMPLATE, TemplateSigning
from anabranch.market.node.modules.api.words import encoded
from anabranch.market.node.modules.bridge import CapabilityBridge
from anabranch.market.node.modules.chains import Chains, Outcome
from anabranch.market.node.modules.config import ModuleConfig, read_modules
from anabranch.market.node.modules.launcher import Launcher, ObjectLauncher, ProcessLauncher
from anabranch.market.node.modules.operator import OperatorEndpoints
from anabranch.market.node.modules.reports import CheckedReport
from anabranch.market.node.modules.routes import CLAIMS, Claims, LocalRoutes
from anabranch.market.node.modules.supervisor import SupervisedModule
from anabranch.market.node.modules.tokens import ModuleTokens
from anabranch.market.node.modules.transport import InProcessModule, decoded
from anabranch.market.node.ports import Acceptance, InboundMessage, NodeContext
from anabranch.market.node.retention import DAY_MS, Retention, Rule
from anabranch.version import __version__

FAMILIES: tuple[Family[Any], ...] = (
    CLAIMS, RECORDS, NOTIFICATIONS, ARTIFACTS, ARTIFACT_KEYS, RUNS, COMPLETED,
)  # fmt: skip
CONTRACT = "v1"
SAID_MS = 90 * DAY_MS  # what modules have told, also of what strangers asked of them
RETENTION = (
    Rule(RECORDS, DAY_MS, DELETED), Rule(NOTIFICATIONS, SAID_MS), Rule(COMPLETED, SAID_MS),
)  # fmt: skip

#: How a module of this process asks its host: (method, path, body, query) → what is answered.
HostCall = Callable[[str, str, Any, Mapping[str, str]], Awaitable[Answer]]


def make(context: NodeContext) -> ModulesPart:
    part = ModulesPart(context)
    context.modules = part
    context.tokens = part.tokens
    return part


class ModulesPart:
    """Implements `Modules` of the ports."""

    def __init__(self, context: NodeContext) -> None:
        self._context = context
        entities, data_dir = context.entities, context.config.data_dir
        configs = read_modules(context.config.raw.get("modules"))
        folder = Path(data_dir).absolute() if data_dir else None
        files = {config.module: config.auth_token_file for config in configs}
        self.tokens = ModuleTokens(files, context.random_bytes, folder)
        self._objects = ObjectLauncher()
        self._processes = ProcessLauncher(data_dir, context.config.url, self.tokens)
        self.modules = {config.module: self._supervised(config) for config in configs}
        self.claims = Claims(entities)
        self.chains = Chains(self.modules, context.spawn, self._trusts)
        self.routes = LocalRoutes(self.modules, self.claims, self.chains, context.clock)
        self.bridge = CapabilityBridge(self.modules, context.capabilities)
        self.acceptors = Acceptors(self.modules)
        self.completed = CompletedSteps(entities)
        context.capabilities.register(CAPABILITY, self.completed.publish)
        context.capabilities.register(SIGN_TEMPLATE, TemplateSigning(context.signer).sign)
        self._retention = Retention(context, RETENTION)
        self.artifacts = ModuleArtifacts(entities, folder / "middleware" if folder else None)
        self._endpoints = [
            Endpoint(
                method="POST",
                path="/v1/host/capabilities/{capability}",
                scopes=("module",),
                handler=self.bridge.handle,
                summary="Ask the host for something that the module is granted.",
                query=("mode",),
                errors=(403, 409, 413, 502, 503),
            ),
            *OperatorEndpoints(self.modules, self.claims, self.bridge).endpoints(),
            *ModuleRecords(entities, self._retention.look).endpoints(),
            *Notifications(entities).endpoints(),
            *self.artifacts.endpoints(),
            *WorkflowRuns(entities).endpoints(),
            *self.completed.endpoints(),
        ]

    # -- a part of the node --------------------------------------------------------------------

    def endpoints(self) -> Sequence[Endpoint]:
        return self._endpoints

    async def open(self) -> None:
        """Start the modules; they get ready by and by (`settled`)."""
        self.tokens.write()
        self._retention.look()
        await self.claims.restore(self.modules)
        self._context.api.fallback = self.routes.handle
        for module in self.modules.values():
            if module.config.enabled:
                module.start()

    async def close(self) -> None:
        if self.modules:
            await asyncio.gather(*(module.stop() for module in self.modules.values()))

    async def wake(self, family: Family[Any], thing: str) -> None:
        """Nothing of modules waits for an instant."""

    async def settled(self) -> None:
        """Returns when no module is on its way to be ready."""
        for module in self.modules.values():
            if module.config.enabled:
                await module.settled()

    def is_granted(self, module_id: str, capability_id: str) -> bool:
        module = self.modules.get(module_id)
        return module is not None and module.config.grants_capability(capability_id)

    async def read_artifact(self, module_id: str, path: str) -> bytes:
        return await self.artifacts.content(module_id, path)

    # -- modules of this process ---------------------------------------------------------------

    def attach(self, module: str, implementation: InProcessModule) -> None:
        """Give the object of a module that is configured as in_process, before `open`."""
        if module not in self.modules:
            raise NodeError(404, "not_found", f"no module {module} is configured")
        self._objects.attach(module, implementation)

    def host_for(self, module: str) -> HostCall:
        """How that module asks its host: as over HTTP with its token, without a socket."""
        caller = Caller("module", module=module, actor=module)

        async def ask(method: str, path: str, body: Any, query: Mapping[str, str]) -> Answer:
            raw = b"" if body is None else encoded(body)
            call = Call(
                method=method, path=path, caller=caller, query=query, body=decoded(raw), raw=raw
            )
            answer = await self._context.api.handle(call)
            return msgspec.structs.replace(answer, body=decoded(encoded(answer.body)))

        return ask

    # -- what other parts ask ------------------------------------------------------------------

    async def call_capability(self, capability_id: str, body: Any, caller: str) -> Any:
        return (await self.bridge.ask_module(capability_id, body, caller)).body

    async def peer_message(self, message: InboundMessage) -> Any:
        return (await self.chains.message("peer", message)).payload

    async def message(
        self, way: Literal["peer", "broadcast", "send"], message: InboundMessage
    ) -> Outcome:
        """As `peer_message`, and also for broadcasts and for what is about to be sent."""
        return await self.chains.message(way, message)

    def acceptor_for(self, schema: str, content_type: str) -> str:
        return self.acceptors.find(schema, content_type)

    async def accept(self, acceptor_id: str, invoke: Mapping[str, Any]) -> Acceptance:
        return await self.acceptors.ask(acceptor_id, invoke)

    def _trusts(self, node_id: str) -> bool:
        directory = getattr(self._context, "directory", None)
        return directory is not None and directory.is_trusted(node_id)

    # -- how a module is made ------------------------------------------------------------------

    def _supervised(self, config: ModuleConfig) -> SupervisedModule:
        launcher: Launcher = self._objects if config.kind == "in_process" else self._processes
        return SupervisedModule(
            config,
            launcher,
            self._context.clock,
            init=lambda: self._init(config),
            tokens=self.tokens,
            accept=self._accept,
        )

    def _init(self, config: ModuleConfig) -> dict[str, Any]:
        """middleware-init"""
        home = Path(self._context.config.data_dir).absolute() / "middleware" / config.module
        return {
            "schema_version": "v1",
            "middleware_contract_version": CONTRACT,
            "host_api_version": CONTRACT,
            "host_version": __version__,
            "executor_id": config.id,
            "executor_kind": "http_local_json",
            "module_id": config.module,
            "component_id": config.component,
            "node_id": self._context.signer.node_id,
            "middleware_home": str(home) if self._context.config.data_dir else "",
            "host_capabilities": self.bridge.offered_to(self.modules[config.module]),
        }

    async def _accept(self, module: str, report: CheckedReport) -> list[str]:
        with self._context.entities.change() as change:
            refused = self.claims.claim(change, module, report)
        refused += self.bridge.claim(module, report)
        await self._context.entities.durable()
        return refused
