"""Participants for the workflows in this folder: three who summarise, one who is never there."""

from __future__ import annotations

import time
from typing import Any


def north(request: dict[str, Any]) -> dict[str, Any]:
    return _summary(request, price=9)


def south(request: dict[str, Any]) -> dict[str, Any]:
    time.sleep(0.05)
    return _summary(request, price=4)


def west(_request: dict[str, Any]) -> dict[str, Any]:
    return {"status": "no_offer_available"}


def nobody(_request: dict[str, Any]) -> dict[str, Any]:
    raise ConnectionError("nobody is there")


def review(request: dict[str, Any]) -> dict[str, Any]:
    """Accepts what is short enough."""
    return {"verdict": "accepted" if len(request["input"]["summary"]) <= 40 else "rejected"}


def visible(request: dict[str, Any]) -> dict[str, Any]:
    """A decision source that knows nothing of workflows: it says ok, or not."""
    return {"ok": bool(request["input"]["summary"])}


def _summary(request: dict[str, Any], price: int) -> dict[str, Any]:
    return {"price": price, "summary": request["input"]["text"][:40]}
