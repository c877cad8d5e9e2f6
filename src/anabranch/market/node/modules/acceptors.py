"""Acceptors of modules: who takes in an artifact of which schema, and what they answer.

A module that is not ready, fails or answers something else has not decided: `retryable`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

import msgspec

from anabranch.market.node.modules.config import AcceptorConfig
from anabranch.market.node.modules.supervisor import ModuleNotReady, SupervisedModule
from anabranch.market.node.modules.transport import CallLimits, ModuleCallFailed
from anabranch.market.node.ports import Acceptance

REASON_MAX = 1024


class AdmissionResponse(
    msgspec.Struct,
    frozen=True,
    rename={"acceptor_id": "acceptor/id", "artifact_ref": "artifact/ref"},
):
    """artifact-delivery-admission-response.v1"""

    status: Literal["accepted", "already-present", "rejected", "retryable"]
    acceptor_id: str
    reason: str = ""
    artifact_ref: str = ""


class Acceptors:
    def __init__(self, modules: Mapping[str, SupervisedModule]) -> None:
        self._modules = modules
        self._known: dict[str, tuple[str, AcceptorConfig]] = {
            acceptor.acceptor_id: (module.module, acceptor)
            for module in modules.values()
            for acceptor in module.config.acceptors
        }

    def find(self, schema: str, content_type: str) -> str:
        """The first of the configuration that takes it; "" where none does."""
        for name, (_, acceptor) in self._known.items():
            if acceptor.artifact_schema == schema and acceptor.content_type in ("", content_type):
                return name
        return ""

    async def ask(self, acceptor_id: str, invoke: Mapping[str, Any]) -> Acceptance:
        known = self._known.get(acceptor_id)
        if known is None:
            return _undecided(acceptor_id, "acceptor-unknown")
        module, acceptor = self._modules[known[0]], known[1]
        limits = CallLimits(acceptor.request_timeout_ms / 1000, acceptor.max_response_bytes)
        try:
            answer = await module.call(acceptor.invoke_path, dict(invoke), limits=limits)
        except (ModuleNotReady, ModuleCallFailed) as error:
            return _undecided(acceptor_id, error.code)
        if not answer.good:
            return _undecided(acceptor_id, f"acceptor-answered-{answer.status}")
        try:
            said = msgspec.convert(answer.body, AdmissionResponse)
        except msgspec.ValidationError as error:
            module.note("admission_invalid", f"POST {acceptor.invoke_path}: {error}")
            return _undecided(acceptor_id, "admission-invalid")
        if said.acceptor_id != acceptor_id:
            module.note("admission_invalid", "acceptor/id is that of another acceptor")
            return _undecided(acceptor_id, "admission-invalid")
        return Acceptance(
            status=said.status,
            acceptor_id=acceptor_id,
            reason=said.reason[:REASON_MAX],
            artifact_ref=said.artifact_ref[:REASON_MAX],
        )


def _undecided(acceptor_id: str, reason: str) -> Acceptance:
    return Acceptance(status="retryable", acceptor_id=acceptor_id, reason=reason)
