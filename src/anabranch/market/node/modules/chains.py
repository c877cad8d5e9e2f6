"""Chains of modules: who is asked about a message, in which order, and what their decisions do.

A message of a peer passes the phases pre-input and inbound-peer, a broadcast inbound-broadcast
between them; one that leaves passes pre-send; audit hears of all of them. In a phase the modules
are asked in the order of the configuration: `return` answers, `drop` ends without an answer, every
other decision and every module that fails lets the next one be asked. Observers are told and decide
nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Iterator, Mapping
from typing import Any, Literal

import msgspec

from anabranch.market.node.modules.reports import Chain, ChainKind
from anabranch.market.node.modules.supervisor import ModuleNotReady, SupervisedModule
from anabranch.market.node.modules.transport import ModuleCallFailed
from anabranch.market.node.ports import InboundMessage

TRUSTED_HEADER = "X-Anabranch-Remote-Trusted"  # of messages of nodes that this one trusts
TOLD_AT_ONCE = 256  # observers that have not answered yet; further messages are not told

PHASES: Mapping[str, tuple[ChainKind, ...]] = {
    "peer": ("pre-input", "inbound-peer"),
    "broadcast": ("pre-input", "inbound-broadcast", "inbound-peer"),
    "send": ("pre-send",),
}


class Decision(msgspec.Struct, frozen=True):
    """What a module decided about a message or a local call."""

    decision: Literal["allow", "annotate", "rewrite", "route", "return", "drop", "defer", "reject"]
    reason: str
    annotations: Any = None
    patch_strategy: Any = None
    patch: Any = None
    route: Any = None
    next_step: Any = None
    diagnostics: Any = None


class Outcome(msgspec.Struct, frozen=True):
    """`returned` with a payload, `dropped`, or `passed` by all."""

    kind: Literal["returned", "dropped", "passed"]
    payload: Any = None
    module: str = ""


class Chains:
    def __init__(
        self,
        modules: Mapping[str, SupervisedModule],
        spawn: Callable[[Coroutine[Any, Any, None]], None],
        trusts: Callable[[str], bool] = lambda _node: False,
    ) -> None:
        """`trusts` says whether this node trusts another one, which modules are told."""
        self._modules = modules
        self._spawn = spawn
        self._trusts = trusts
        self._told = 0

    async def message(
        self, way: Literal["peer", "broadcast", "send"], message: InboundMessage
    ) -> Outcome:
        """Ask all phases of a message that comes or goes."""
        outcome = Outcome("passed")
        for kind in PHASES[way]:
            outcome = await self._phase(kind, message)
            if outcome.kind != "passed":
                break
        self._tell("audit", message, deciders=True)
        return outcome

    def entries(self, kind: ChainKind) -> Iterator[tuple[SupervisedModule, Chain]]:
        """Those of modules that can be asked now, in order."""
        for module in list(self._modules.values()):
            if module.routable and module.report is not None:
                yield from ((module, one) for one in module.report.chains if one.kind == kind)

    async def ask(
        self,
        module: SupervisedModule,
        path: str,
        envelope: Mapping[str, Any],
        headers: Mapping[str, str] | None = None,
    ) -> Decision | None:
        """The decision of a module; None where it gave none that counts."""
        try:
            answer = await module.call(path, envelope, headers=headers)
        except (ModuleCallFailed, ModuleNotReady):
            return None
        if not answer.good:
            module.note("invoke_failed", f"POST {path} answered {answer.status}")
            return None
        try:
            return msgspec.convert(answer.body, Decision)
        except msgspec.ValidationError as error:
            module.note("decision_invalid", f"POST {path}: {error}")
            return None

    async def _phase(self, kind: ChainKind, message: InboundMessage) -> Outcome:
        self._tell(kind, message, deciders=False)
        for module, chain in self.entries(kind):
            if chain.observer or not chain.fits(message.msg, message.payload):
                continue
            envelope, about = _envelope(kind, message), self._about(message)
            decision = await self.ask(module, chain.invoke_path, envelope, about)
            if decision is None:
                continue
            if decision.decision == "return":
                return Outcome("returned", decision.patch, module.module)
            if decision.decision == "drop":
                return Outcome("dropped", None, module.module)
        return Outcome("passed")

    def _tell(self, kind: ChainKind, message: InboundMessage, *, deciders: bool) -> None:
        for module, chain in self.entries(kind):
            if (chain.observer or deciders) and chain.fits(message.msg, message.payload):
                if self._told >= TOLD_AT_ONCE:
                    module.note("observers_busy", f"{kind}: a message was not told to it")
                    continue
                self._told += 1
                envelope, about = _envelope(kind, message), self._about(message)
                self._spawn(self._told_one(module, chain.invoke_path, envelope, about))

    async def _told_one(
        self,
        module: SupervisedModule,
        path: str,
        envelope: Mapping[str, Any],
        about: Mapping[str, str],
    ) -> None:
        try:
            await self.ask(module, path, envelope, about)
        finally:
            self._told -= 1

    def _about(self, message: InboundMessage) -> dict[str, str]:
        """What the host says of a message beside its envelope, whose fields are fixed."""
        return {TRUSTED_HEADER: "true"} if self._trusts(message.remote_node_id) else {}


def _envelope(kind: ChainKind, message: InboundMessage) -> dict[str, Any]:
    """peer-message-invoke.v1"""
    return {
        "schema_version": "v1",
        "envelope_kind": "peer-message",
        "msg": message.msg,
        "chain_kind": kind,
        "correlation_id": message.correlation_id,
        "remote_node_id": message.remote_node_id,
        "payload": message.payload,
    }
