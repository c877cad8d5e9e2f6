"""`POST /v1/orders`: what the operator wants from an offer, as an order that is open and sent.

The same `order_id` with the same wish is the same order, whenever it is asked for again. An order
that was opened and could not be sent is answered as opened, with why: its money is on hold. The
result that came for an order is shown as it was delivered.
"""

from __future__ import annotations

from base64 import b64decode
from collections.abc import Mapping, Sequence
from typing import Annotated, Any
from urllib.parse import quote

import msgspec

from anabranch.errors import AnabranchError, StoreError
from anabranch.market.node.api import Answer, Call, Endpoint
from anabranch.market.node.buying.dispatching import HOST, dispatch_request, envelope_of
from anabranch.market.node.delivery.envelope import kept_document
from anabranch.market.node.delivery.records import CONTENTS
from anabranch.market.node.entities import Family
from anabranch.market.node.errors import NodeError
from anabranch.market.node.ids import derived
from anabranch.market.node.orders.agreement import total_of
from anabranch.market.node.orders.constraints import same
from anabranch.market.node.orders.executions import with_prefix
from anabranch.market.node.ports import NodeContext
from anabranch.work.participants.performers import rfc3339
from anabranch.work.values.served_json import do_aside

FAMILIES: tuple[Family[Any], ...] = ()
#: The request carries the input three times, and a delivery takes 4 MiB.
INPUT_BYTES = 1024 * 1024


class Wish(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What to order. Without `order_id` every call is an order of its own."""

    offer_id: str
    input: dict[str, Any] = {}
    units: Annotated[int, msgspec.Meta(ge=1)] = 1
    max_amount: Annotated[int, msgspec.Meta(ge=0)] | None = None  # else what the offer asks
    order_id: str | None = None
    dispatch: bool = True


class BuyingPart:
    def __init__(self, context: NodeContext) -> None:
        self._context = context

    def endpoints(self) -> Sequence[Endpoint]:
        return (
            Endpoint(
                method="POST",
                path="/v1/orders",
                scopes=("operator",),
                handler=self._place,
                summary="Order from an offer that this node knows, and send the order",
                body=Wish,
                example={"offer_id": "offer:summaries", "input": {"text": "a long text"}},
                status=201,
                errors=(400, 404, 409, 413),
            ),
            Endpoint(
                method="POST",
                path="/v1/executions/{execution}/dispatch",
                scopes=("operator",),
                handler=self._dispatch,
                summary="Send the order of an execution to its provider",
                errors=(404, 409),
            ),
            Endpoint(
                method="GET",
                path="/v1/executions/{execution}/result",
                scopes=("operator", "module"),
                handler=self._result,
                summary="The service-order.result.v1 that an execution has taken",
                errors=(404,),
            ),
        )

    async def open(self) -> None:
        """What is on its way is looked after by the deliveries."""

    async def close(self) -> None:
        """There is nothing to end."""

    async def wake(self, family: Family[Any], thing: str) -> None:
        """There is nothing to wake."""

    async def _place(self, call: Call) -> Answer:
        wish = msgspec.convert(call.body, Wish)
        _require_size(wish.input)
        order = await self._placed_before(call, wish) or self._order(wish)
        answer = await self._asked(call, "POST", "/v1/service-orders", order)
        if answer.status >= 400 or answer.body["status"] == "rejected" or not wish.dispatch:
            return answer
        try:
            operation = await self._send(call, answer.body["execution_id"])
        except StoreError:
            raise
        except AnabranchError as error:
            operation = {"status": "failed", "code": error.code, "detail": error.message}
        return msgspec.structs.replace(answer, body={**answer.body, "delivery": operation})

    async def _placed_before(self, call: Call, wish: Wish) -> Any:
        """The order of this id where it says the same; None where there is none, or another."""
        if wish.order_id is None:
            return None
        found = await self._found(call, with_prefix(wish.order_id, "execution"))
        order = found.body["order"] if found.status == 200 else None
        return order if order is not None and _is_wished(order, wish) else None

    async def _dispatch(self, call: Call) -> Answer:
        execution_id = call.params["execution"]
        await self._send(call, execution_id)
        return Answer(body=await self._execution(call, execution_id))

    async def _result(self, call: Call) -> Answer:
        """As it was delivered; kept by its digest."""
        execution_id = call.params["execution"]
        execution = await self._execution(call, execution_id)
        taken = execution["result"]
        kept = self._context.entities.get(CONTENTS, taken["digest"]) if taken else None
        if kept is None:
            message = f"{execution_id} is {execution['state']} and has no result"
            raise NodeError(404, "no_result", message)
        data = b64decode(kept.base64)
        return Answer(body=await do_aside(len(data), kept_document, data))

    def _order(self, wish: Wish) -> dict[str, Any]:
        """An unsigned draft: buyer and signature are added where orders come in."""
        offer = self._context.offers.offer(wish.offer_id)
        if offer is None:
            raise NodeError(404, "offer-not-found", f"no offer {wish.offer_id[:100]!r} is known")
        now = self._context.clock.now()
        drawn = derived("order", wish.offer_id, self._context.random_bytes(16).hex())
        amount = total_of({"request/units": wish.units}, offer)
        return {
            "schema/v": 1,
            "order/id": wish.order_id or f"order:{drawn.replace('_', '-').strip('-')}",
            "created-at": rfc3339(now),
            "provider/node-id": offer["provider/node-id"],
            "provider/participant-id": offer["provider/participant-id"],
            "offer/id": wish.offer_id,
            "offer/seq": offer["sequence/no"],
            "service/type": offer["service/type"],
            "request/units": wish.units,
            "request/input": wish.input,
            "pricing/max-amount": amount if wish.max_amount is None else wish.max_amount,
            "pricing/currency": offer["pricing/currency"],
        }

    async def _send(self, call: Call, execution_id: str) -> Any:
        """The same request for the same order: sent again, it is the same delivery."""
        execution = await self._execution(call, execution_id)
        request = dispatch_request(
            execution["order"],
            execution_id,
            execution["deadlines"]["work_by"],
            self._context.signer.node_id,
        )
        envelope = envelope_of(request, execution["provider"]["node_id"])
        return await self._context.delivery.send_deferred(HOST, envelope)

    async def _execution(self, call: Call, execution_id: str) -> Any:
        found = await self._found(call, execution_id)
        if found.status != 200:
            raise NodeError(found.status, found.body["code"], found.body["detail"])
        return found.body

    async def _found(self, call: Call, execution_id: str) -> Answer:
        return await self._asked(call, "GET", f"/v1/executions/{quote(execution_id, safe='')}")

    async def _asked(self, call: Call, method: str, path: str, body: Any = None) -> Answer:
        """Through the table of the node, as the one who calls."""
        return await self._context.api.handle(
            Call(method=method, path=path, caller=call.caller, body=body)
        )


def _is_wished(order: Mapping[str, Any], wish: Wish) -> bool:
    """Whether the order says what is wished; without `max_amount` any price was."""
    wanted = {
        "offer/id": wish.offer_id,
        "request/units": wish.units,
        "request/input": wish.input,
        "pricing/max-amount": wish.max_amount,
    }
    return all(same(order[key], value) for key, value in wanted.items() if value is not None)


def _require_size(given: dict[str, Any]) -> None:
    try:
        size = len(msgspec.json.encode(given))
    except (RecursionError, ValueError, OverflowError):
        return  # no order has such an input; the place where orders come in says why
    if size > INPUT_BYTES:
        message = f"`input` has {size:,} bytes, which is more than the {INPUT_BYTES:,} of an order"
        raise NodeError(413, "too_large", message)


def make(context: NodeContext) -> BuyingPart:
    return BuyingPart(context)
