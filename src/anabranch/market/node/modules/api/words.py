"""Small things that the module APIs share: sorted JSON, names, ids that are derived."""

from __future__ import annotations

import base64
from typing import Any

import msgspec

from anabranch.market.node.ids import derived

_encode = msgspec.json.Encoder(order="deterministic").encode


def encoded(value: Any) -> bytes:
    """JSON with sorted keys."""
    return _encode(value)


def derived_id(kind: str, *parts: str) -> str:
    """`kind:…`; the same parts give the same id."""
    return f"{kind}:{derived(kind, *parts)}"


def stream_key(*parts: str) -> str:
    """base64url(module·kind·id). No part may hold the dot itself."""
    return base64.urlsafe_b64encode("·".join(parts).encode()).rstrip(b"=").decode()


def is_name(text: str, longest: int = 256) -> bool:
    """A name that people can read, and that fits into the key of a stream."""
    return 0 < len(text) <= longest and text.isprintable() and "·" not in text
