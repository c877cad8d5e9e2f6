"""The registry of deferred operations, and its surface: show, status, cancel, expiry."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, cast, get_args

from anabranch.market.node.api import Answer, Call, Caller, Endpoint
from anabranch.market.node.deferred.clamp import DeferredConfig, read_config, retry_seconds, ttl_ms
from anabranch.market.node.deferred.records import (
    OPEN,
    OPERATIONS,
    Deferred,
    Ended,
    Ending,
    Operation,
    Running,
    operation_id_of,
)
from anabranch.market.node.entities import Change, Family
from anabranch.market.node.errors import NodeError
from anabranch.market.node.paging import page_of, paged
from anabranch.market.node.ports import NodeContext
from anabranch.market.node.retention import DAY_MS, Retention, Rule
from anabranch.work.participants.performers import rfc3339

FAMILIES = (OPERATIONS,)
ENDINGS = get_args(Ending)
REMEMBERED_MS = 30 * DAY_MS


def make(context: NodeContext) -> DeferredPart:
    part = DeferredPart(context, read_config(context.config.raw.get("deferred")))
    context.deferred = part
    return part


class DeferredPart:
    def __init__(self, context: NodeContext, config: DeferredConfig) -> None:
        self._context = context
        self._entities = context.entities
        self._config = config
        self._owners: dict[str, Callable[[str], Awaitable[None]] | None] = {}
        self._retention = Retention(context, (Rule(OPERATIONS, REMEMBERED_MS),))

    # -- for the other parts -----------------------------------------------------------------

    def own(self, kind: str, cancel: Callable[[str], Awaitable[None]] | None = None) -> None:
        self._owners[kind] = cancel

    def start(
        self,
        change: Change,
        *,
        kind: str,
        key: str,
        owner: str,
        status_href: str = "",
        retry_seconds: float | None = None,
        ttl_seconds: Sequence[float | None] = (),
        cancel_unavailable: str = "",
        correlation_id: str = "",
        audit_ref: str = "",
    ) -> str:
        operation_id = operation_id_of(kind, key)
        if change.get(OPERATIONS, operation_id) is not None:
            return operation_id
        promise = Deferred(
            kind=kind,
            key=key,
            owner=owner,
            at=change.now,
            expires_at=change.now + ttl_ms(ttl_seconds, self._config),
            retry_after_seconds=_retry_seconds(retry_seconds, self._config),
            status_href=status_href or f"/v1/deferred-operations/{operation_id}/status",
            cancel_unavailable=cancel_unavailable,
            correlation_id=correlation_id,
            audit_ref=audit_ref,
        )
        change.add(OPERATIONS, operation_id, promise)
        self._retention.look()
        return operation_id

    def run(self, change: Change, operation_id: str) -> None:
        operation = change.get(OPERATIONS, operation_id)
        if operation is not None and operation.status == "pending":
            change.add(OPERATIONS, operation_id, Running(at=change.now))

    def end(
        self,
        change: Change,
        operation_id: str,
        status: str,
        *,
        result: Any = None,
        diagnostics: Sequence[str] = (),
    ) -> bool:
        assert status in ENDINGS, status
        operation = change.get(OPERATIONS, operation_id)
        if operation is None or operation.status not in OPEN:
            return False
        ended = Ended(
            at=change.now,
            status=cast(Ending, status),
            result=result if status == "completed" else None,
            diagnostics=tuple(diagnostics),
        )
        change.add(OPERATIONS, operation_id, ended)
        return True

    def document(self, operation_id: str) -> Mapping[str, Any]:
        return deferred_document(operation_id, self._get(operation_id))

    def status(self, operation_id: str) -> Mapping[str, Any]:
        return status_document(operation_id, self._get(operation_id))

    # -- its life ----------------------------------------------------------------------------

    async def open(self) -> None:
        """Operations that no part of this node knows any more have an end, too."""
        with self._entities.change() as change:
            for operation_id, operation in self._entities.each_open(OPERATIONS):
                if operation.promise.kind not in self._owners:
                    note = f"nothing on this node carries out {operation.promise.kind} any more"
                    self.end(change, operation_id, "unknown", diagnostics=[note])
        await self._entities.durable()
        self._retention.look()

    async def close(self) -> None:
        """There is nothing to stop."""

    async def wake(self, family: Family[Any], thing: str) -> None:  # noqa: ARG002  # it is one
        with self._entities.change() as change:
            operation = change.get(OPERATIONS, thing)
            if operation is not None and operation.promise.expires_at <= change.now:
                self.end(change, thing, "expired", diagnostics=["it was not done in time"])
        await self._entities.durable()
        self._retention.look()

    # -- the surface -------------------------------------------------------------------------

    def endpoints(self) -> Sequence[Endpoint]:
        path = "/v1/deferred-operations"
        return (
            Endpoint(
                method="GET",
                path=path,
                scopes=("operator", "module"),
                handler=self._list,
                summary="Deferred operations, newest first; a module sees its own",
                query=("open", "limit", "before"),
            ),
            Endpoint(
                method="GET",
                path=f"{path}/{{operation}}",
                scopes=("operator", "module"),
                handler=self._show,
                summary="The deferred-operation.v1 that the caller was given",
                errors=(404,),
            ),
            Endpoint(
                method="GET",
                path=f"{path}/{{operation}}/status",
                scopes=("operator", "module"),
                handler=self._show_status,
                summary="How an operation stands: deferred-operation-status.v1",
                errors=(404,),
            ),
            Endpoint(
                method="POST",
                path=f"{path}/{{operation}}/cancel",
                scopes=("operator", "module"),
                handler=self._cancel,
                summary="Cancel an operation that can be cancelled",
                errors=(404, 409),
            ),
        )

    async def _list(self, call: Call) -> Answer:
        page = page_of(call.query)
        rows = await self._entities.listed(
            OPERATIONS,
            group=call.caller.module if call.caller.scope == "module" else None,
            is_open=page.is_open,
            before=page.before,
            limit=page.limit,
        )
        return paged([(status_document(one, state), card) for one, state, card in rows], page)

    async def _show(self, call: Call) -> Answer:
        operation_id = self._visible(call)
        return Answer(body=self.document(operation_id))

    async def _show_status(self, call: Call) -> Answer:
        operation_id = self._visible(call)
        await self._entities.durable()
        body = self.status(operation_id)
        retry = body.get("retry_after_seconds")
        return Answer(body=body, headers={"Retry-After": str(retry)} if retry else {})

    async def _cancel(self, call: Call) -> Answer:
        operation_id = self._visible(call)
        operation = self._get(operation_id)
        if operation.status in OPEN:
            if operation.promise.cancel_unavailable:
                why = operation.promise.cancel_unavailable
                raise NodeError(409, "cancel_unavailable", f"it cannot be cancelled: {why}")
            with self._entities.change() as change:
                self.end(change, operation_id, "cancelled")
            await self._entities.durable()
            if (cancel := self._owners.get(operation.promise.kind)) is not None:
                await cancel(operation.promise.key)
        elif operation.status != "cancelled":
            raise NodeError(409, "operation_ended", f"the operation is {operation.status} already")
        return Answer(body=self.status(operation_id))

    def _visible(self, call: Call) -> str:
        operation_id = call.params["operation"]
        if not may_see(call.caller, self._get(operation_id).promise.owner):
            raise _unknown(operation_id)
        return operation_id

    def _get(self, operation_id: str) -> Operation:
        operation = self._entities.get(OPERATIONS, operation_id)
        if operation is None:
            raise _unknown(operation_id)
        return operation


#: The argument of `start` has the name of the function.
_retry_seconds = retry_seconds


def may_see(caller: Caller, owner: str) -> bool:
    """The operator sees everything, a module what is its own."""
    return caller.scope == "operator" or (caller.scope == "module" and caller.module == owner)


def deferred_document(operation_id: str, operation: Operation) -> dict[str, Any]:
    promise = operation.promise
    document: dict[str, Any] = {
        "schema": "deferred-operation.v1",
        "schema/v": 1,
        "status": "deferred",
        "operation/id": operation_id,
        "operation/kind": promise.kind,
        "created_at": rfc3339(promise.at),
        "retry_after_seconds": promise.retry_after_seconds,
        "expires_at": rfc3339(promise.expires_at),
        "status_href": promise.status_href,
    }
    if promise.cancel_unavailable:
        document["cancel/unavailable-reason"] = promise.cancel_unavailable
    else:
        document["cancel_href"] = f"/v1/deferred-operations/{operation_id}/cancel"
    if promise.correlation_id:
        document["correlation/id"] = promise.correlation_id
    if promise.audit_ref:
        document["audit/outcome-ref"] = promise.audit_ref
    return document


def status_document(operation_id: str, operation: Operation) -> dict[str, Any]:
    document: dict[str, Any] = {
        "schema": "deferred-operation-status.v1",
        "schema/v": 1,
        "status": operation.status,
        "operation/id": operation_id,
        "operation/kind": operation.promise.kind,
        "updated_at": rfc3339(operation.updated_at),
        "expires_at": rfc3339(operation.promise.expires_at),
    }
    if operation.status == "completed":
        document["result"] = operation.result
    if operation.status in OPEN:
        document["retry_after_seconds"] = operation.promise.retry_after_seconds
    if operation.diagnostics:
        document["diagnostics"] = list(operation.diagnostics)
    return document


def _unknown(operation_id: str) -> NodeError:
    return NodeError(404, "unknown_operation", f"there is no operation {operation_id[:200]!r}")
