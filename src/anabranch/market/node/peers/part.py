"""The part of a node that talks to other nodes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from anabranch.market.node.api import Answer, Call, Endpoint
from anabranch.market.node.entities import Family
from anabranch.market.node.errors import NodeError
from anabranch.market.node.peers.dispatch import Dispatcher
from anabranch.market.node.peers.http_transport import MESSAGES_PATH
from anabranch.market.node.peers.messenger import Messenger, RemotePeer
from anabranch.market.node.peers.settings import peer_settings
from anabranch.market.node.ports import NodeContext, PeerUnreachable
from anabranch.work.participants.performers import rfc3339

FAMILIES: tuple[Family[Any], ...] = ()  # sessions end with the process


class PeersPart:
    def __init__(self, context: NodeContext) -> None:
        self._context = context
        self.settings = peer_settings(context.config.raw)
        self.messenger = Messenger(context, self.settings)
        Dispatcher(context, self.messenger).register()

    def endpoints(self) -> Sequence[Endpoint]:
        return (
            Endpoint(
                method="POST",
                path=MESSAGES_PATH,
                scopes=("open",),
                handler=self.messenger.receiver.receive,
                summary="Take a message of another node, in an envelope that this node signed",
                errors=(400, 401, 403, 409, 413, 429),
                body_bytes=self.settings.envelope_bytes,
            ),
            Endpoint(
                method="GET",
                path="/v1/peers",
                scopes=("operator",),
                handler=self._list,
                summary="Peers that this node has talked to since it was started",
            ),
            Endpoint(
                method="POST",
                path="/v1/peers/{node}/session",
                scopes=("operator",),
                handler=self._establish,
                summary="Open a session with a node, or find that it does not answer",
                errors=(404, 503),
            ),
        )

    async def open(self) -> None:
        """Sessions are opened with the first message."""

    async def close(self) -> None:
        await self.messenger.close()

    async def wake(self, family: Family[Any], thing: str) -> None:
        """There is nothing to wake."""

    async def _establish(self, call: Call) -> Answer:
        node_id = call.params["node"]
        try:
            session = await self.messenger.establish(node_id, self.settings.establish_ms / 1000)
        except PeerUnreachable as error:
            raise NodeError(503, error.code, error.message) from None
        return Answer(body={"status": "established", "node_id": node_id, "session_id": session})

    async def _list(self, _call: Call) -> Answer:
        remotes = sorted(self.messenger.remotes.items())
        inbound = self.messenger.receiver.sessions.counts()
        return Answer(
            body={"items": [self._row(name, one, inbound[name]) for name, one in remotes]}
        )

    def _row(self, node_id: str, remote: RemotePeer, inbound: int) -> dict[str, Any]:
        now = self._context.clock.now()
        status = "unknown"
        if remote.failures:
            status = "unreachable"
        elif remote.heard_at is not None:
            status = "reachable"
        live = remote.session is not None and remote.session.expires_at > now
        return {
            "node_id": node_id,
            "status": status,
            "url": self._context.directory.endpoint(node_id),
            "session_id": remote.session.session if live and remote.session else None,
            "inbound_sessions": inbound,
            "failures": remote.failures,
            "error": remote.error or None,
            "heard_at": None if remote.heard_at is None else rfc3339(remote.heard_at),
            "retry_at": rfc3339(remote.not_before) if remote.not_before > now else None,
        }


def make(context: NodeContext) -> PeersPart:
    part = PeersPart(context)
    context.peers = part.messenger
    return part
