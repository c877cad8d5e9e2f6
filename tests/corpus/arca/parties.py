"""The participants of these cases, as functions: `corpus.arca.parties:cheap` in a book."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

Request = Mapping[str, Any]


def cheap(_request: Request) -> dict[str, Any]:
    return {"by": "cheap", "price": 2}


def dear(_request: Request) -> dict[str, Any]:
    return {"by": "dear", "price": 9}


def fair(_request: Request) -> dict[str, Any]:
    return {"by": "fair", "price": 5}


def silent(_request: Request) -> dict[str, Any]:
    return {"by": "silent"}


def declines(_request: Request) -> dict[str, Any]:
    return {"status": "declined"}


def fails(_request: Request) -> dict[str, Any]:
    raise ValueError("out of order")


def away(_request: Request) -> dict[str, Any]:
    raise ConnectionError("nobody is there")


def echo(request: Request) -> dict[str, Any]:
    return {"echo": request["input"]}


def publishes(_request: Request) -> dict[str, Any]:
    return {"publish_commit": "abc123", "done": True}


def verifies(request: Request) -> dict[str, Any]:
    seen = request["input"].get("commit_sha") == "abc123"
    return {"verification": {"status": "fulfilled" if seen else "rejected"}}


def decides(_request: Request) -> dict[str, Any]:
    return {
        "schema": "arca-task-fulfillment-decision.v1",
        "fulfillment/status": "fulfilled",
        "reason": "seen on origin",
    }


def sells_cheap(request: Request) -> dict[str, Any]:
    return _sells(request, "p-cheap", {"offer/id": "offer:cheap", "pricing/amount": 4})


def sells_dear(request: Request) -> dict[str, Any]:
    return _sells(request, "p-dear", {"offer/id": "offer:dear", "pricing/amount": 9})


def _sells(request: Request, name: str, offer: Request) -> dict[str, Any]:
    """Its offer; or, where one was ordered, what was said about the order."""
    if "offer" not in request:
        return {"status": "offer", "offer": {**offer, "provider/participant-id": name}}
    return {
        "by": name,
        "offer": request["offer"]["offer/id"],
        "units": request["request_units"],
        "at_most": request["max_amount"],
        "in": request["currency"],
    }
