"""The endpoints of orders, executions, contracts and receipts."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Annotated, Literal, Protocol

import msgspec

from anabranch.market.node.api import Answer, Call, Endpoint, Scope

_Reason = Annotated[str, msgspec.Meta(max_length=1024)]
_READERS: tuple[Scope, ...] = ("operator", "module")


class Remark(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Why, for the record."""

    reason: _Reason = ""


class Resolution(
    msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, rename={"party": "for"}
):
    """Who is right in a dispute."""

    party: Literal["payer", "payee"]
    reason: _Reason = ""


class Handlers(Protocol):
    """Who carries the endpoints out."""

    async def submit(self, call: Call) -> Answer: ...

    async def execution(self, call: Call) -> Answer: ...

    async def executions(self, call: Call) -> Answer: ...

    async def contract(self, call: Call) -> Answer: ...

    async def receipt(self, call: Call) -> Answer: ...

    async def act(self, call: Call, trigger: str, reason: str) -> Answer: ...


def table(orders: Handlers) -> tuple[Endpoint, ...]:
    return (
        Endpoint(
            method="POST",
            path="/v1/service-orders",
            scopes=_READERS,
            handler=orders.submit,
            summary="Open an execution for a service-order.v1, or say by its class why not",
            status=201,
            errors=(400, 409),
        ),
        Endpoint(
            method="GET",
            path="/v1/executions",
            scopes=_READERS,
            handler=orders.executions,
            summary="Executions, newest first",
            query=("open", "run_id", "limit", "before"),
            errors=(400,),
        ),
        _read("/v1/executions/{execution}", orders.execution, "How an execution stands"),
        _read("/v1/contracts/{contract}", orders.contract, "A procurement-contract.v1"),
        _read("/v1/receipts/{receipt}", orders.receipt, "A procurement-receipt.v1"),
        _action(orders, "release", "The operator releases the money to the provider"),
        _action(orders, "accept", "The payer accepts the result"),
        _action(orders, "dispute", "The payer disputes the result; the money stays on hold"),
        Endpoint(
            method="POST",
            path="/v1/executions/{execution}/resolve",
            scopes=("operator",),
            handler=_resolve(orders),
            summary="End a dispute, for the payer or for the payee",
            body=Resolution,
            example={"for": "payee", "reason": "the result is as ordered"},
            errors=(400, 404, 409),
        ),
    )


def _read(path: str, handler: Callable[[Call], Awaitable[Answer]], summary: str) -> Endpoint:
    return Endpoint(
        method="GET",
        path=path,
        scopes=_READERS,
        handler=handler,
        summary=summary,
        errors=(404,),
    )


def _action(orders: Handlers, trigger: str, summary: str) -> Endpoint:
    async def handler(call: Call) -> Answer:
        remark = msgspec.convert(call.body, Remark | None) or Remark()
        return await orders.act(call, trigger, remark.reason)

    return Endpoint(
        method="POST",
        path=f"/v1/executions/{{execution}}/{trigger}",
        scopes=("operator",),
        handler=handler,
        summary=summary,
        body=Remark | None,
        example={"reason": "as ordered"},
        errors=(400, 404, 409),
    )


def _resolve(orders: Handlers) -> Callable[[Call], Awaitable[Answer]]:
    async def handler(call: Call) -> Answer:
        resolution = msgspec.convert(call.body, Resolution)
        return await orders.act(call, f"for-{resolution.party}", resolution.reason)

    return handler
