"""Requests of a buyer, signed, and what the host makes of them for an acceptor."""

from __future__ import annotations

from base64 import b64encode
from typing import Any

from anabranch.market.documents import digest_of
from anabranch.market.identities import SigningKey, canonical
from anabranch.market.node.buying.dispatching import dispatch_request
from modules.dator.fake_host import NODE

BUYER = SigningKey.from_seed(b"b" * 32)
PROVIDER = SigningKey.from_seed(b"p" * 32)
BUYER_NODE = SigningKey.from_seed(b"n" * 32).identity("node")
OTHER_NODE = SigningKey.from_seed(b"o" * 32).identity("node")


def order_of(offer_id: str, name: str = "one", /, **changes: Any) -> dict[str, Any]:
    order = {
        "schema/v": 1,
        "order/id": f"order:{name}",
        "created-at": "2026-06-10T08:00:00Z",
        "buyer/node-id": BUYER_NODE,
        "buyer/subject-kind": "participant",
        "buyer/subject-id": BUYER.identity("participant"),
        "provider/node-id": NODE,
        "provider/participant-id": PROVIDER.identity("participant"),
        "offer/id": offer_id,
        "offer/seq": 1,
        "service/type": "text/summarise",
        "request/units": 1,
        "request/input": {"text": "a long text"},
        "pricing/max-amount": 100,
        "pricing/currency": "ORC",
        **changes,
    }
    return BUYER.sign(order)


def request_of(
    order: dict[str, Any], deadline: str = "2026-06-10T09:00:00Z", /, **changes: Any
) -> dict[str, Any]:
    name = order["order/id"].partition(":")[2]
    request = dispatch_request(order, f"execution:{name}", deadline, BUYER_NODE)
    return {**request, **changes}


def invoke_of(request: Any, peer: str = BUYER_NODE) -> dict[str, Any]:
    data = request if isinstance(request, bytes) else canonical(request)
    return {
        "schema": "artifact-delivery-acceptor-invoke.v1",
        "admission/id": "admission:1",
        "acceptor/id": "dator-requests",
        "source/adapter": "peer",
        "source/peer": peer,
        "idempotency/key": "k",
        "artifact": {
            "schema": "service-order.dispatch.request.v1",
            "content/type": "application/json",
            "digest": digest_of(data),
            "size/bytes": len(data),
            "bytes/base64": b64encode(data).decode(),
        },
        "invocation/token": "t",
    }
