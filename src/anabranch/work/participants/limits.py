"""How much of our time and memory a participant may take."""

from __future__ import annotations

import msgspec


class HttpLimits(msgspec.Struct, frozen=True, kw_only=True):
    connect_seconds: float = 5.0  # to find the address, and again to connect
    total_seconds: float = 300.0  # for the whole exchange, where the step has no timeout
    kept_seconds: float = 4.0  # a connection without a request; many servers end one after five
    reply_bytes: int = 1024 * 1024
