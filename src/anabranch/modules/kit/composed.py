"""A module that is put together of parts: one table, one report, one start and one end."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import AsyncExitStack
from typing import Any

from anabranch.market.node.api import Endpoint
from anabranch.modules.kit.module import (
    ALLOW,
    MessageHandler,
    Module,
    ModulePart,
    PeerMessage,
)
from anabranch.version import __version__

CONTRACT = "v1"


class ComposedModule(Module):
    """`about` is said in the report besides what the parts are: names, surfaces, kinds."""

    def __init__(
        self, module_id: str, parts: Sequence[ModulePart], about: Mapping[str, Any] | None = None
    ) -> None:
        self.module_id = module_id
        self._parts = tuple(parts)
        self._about = dict(about or {})
        self._messages: dict[str, MessageHandler] = {}
        for part in self._parts:
            for msg, handler in part.messages().items():
                if msg in self._messages:
                    raise ValueError(f"two parts of {module_id} decide about {msg}")
                self._messages[msg] = handler
        super().__init__()

    def endpoints(self) -> Sequence[Endpoint]:
        return [row for part in self._parts for row in part.endpoints()]

    def report(self) -> dict[str, Any]:
        routes = [route for part in self._parts for route in part.local_routes()]
        chains: list[dict[str, Any]] = []
        if routes:
            chains.append({"chain": "inbound-local", "local_routes": routes})
        if self._messages:
            chains.append({"chain": "inbound-peer", "message_types": sorted(self._messages)})
        return {
            "module_version": __version__,
            "middleware_contract_version": CONTRACT,
            "host_api_version": CONTRACT,
            **self._about,
            "input_chains": chains,
        }

    async def peer_message(self, message: PeerMessage) -> dict[str, Any]:
        handler = self._messages.get(message.msg)
        return ALLOW if handler is None else await handler(message)

    async def start(self) -> None:
        """In the order of the parts; where one fails, those before it are closed."""
        async with AsyncExitStack() as begun:
            for part in self._parts:
                begun.push_async_callback(part.close)
                await part.start()
            begun.pop_all()

    async def close(self) -> None:
        """In the opposite order, to the end, also where a part fails."""
        async with AsyncExitStack() as left:
            for part in self._parts:
                left.push_async_callback(part.close)
