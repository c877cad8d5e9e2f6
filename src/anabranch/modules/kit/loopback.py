"""Calls of programs on this machine that are no host: limited in time and size, loopback alone."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from anabranch.market.node.modules.transport import CallLimits, HttpTransport, ModuleAnswer


class LoopbackCalls:
    """One client for each endpoint, made with the first call."""

    def __init__(self) -> None:
        self._transports: dict[str, HttpTransport] = {}

    async def post(
        self,
        endpoint: str,
        path: str,
        body: Any,
        *,
        headers: Mapping[str, str],
        seconds: float,
        answer_bytes: int,
    ) -> ModuleAnswer:
        """Raises `ModuleCallFailed`, and `InputError` for an endpoint that is not loopback."""
        transport = self._transports.get(endpoint)
        if transport is None:
            transport = self._transports[endpoint] = HttpTransport(endpoint)
        limits = CallLimits(seconds, answer_bytes)
        return await transport.call("POST", path, body, headers, limits)

    async def close(self) -> None:
        for transport in self._transports.values():
            await transport.close()
