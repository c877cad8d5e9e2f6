"""The network of nodes in one process: every node is called as HTTP would call it.

    network = MemoryNetwork()
    node = Node(…, transport=network.transport(node_id), …)
    network.attach(node_id, "http://a.test", node.handle)
    network.drop(a, b)                          # nothing passes between the two
    network.fate = lambda sent: Fate(copies=(0.0, 2.0))   # every message arrives twice

Each node may run on an event loop of its own: what is asked is started on the loop of the node that
is asked, and its answer is told on the loop of the node that asks. Time is that of the loops.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, NamedTuple
from urllib.parse import parse_qsl, urlsplit

import msgspec

from anabranch.market.node.api import Answer, Call
from anabranch.market.node.peers.http_transport import MESSAGES_PATH
from anabranch.market.node.ports import PeerUnreachable

Handle = Callable[[Call], Awaitable[Answer]]


class Sent(NamedTuple):
    """A call on its way, for the hook that decides its fate."""

    number: int  # of this network, from 1
    source: str
    to: str
    method: str
    path: str
    body: bytes


class Fate(NamedTuple):
    """What becomes of a call: when each copy arrives, in seconds from now, and when the answer to
    the first copy does after it was given; None: the answer is lost."""

    copies: tuple[float, ...] = (0.0,)
    answer: float | None = 0.0


ARRIVES, LOST, ANSWER_LOST = Fate(), Fate(copies=()), Fate(answer=None)


class _Attached(NamedTuple):
    node_id: str
    url: str
    handle: Handle
    loop: asyncio.AbstractEventLoop


class MemoryNetwork:
    def __init__(self) -> None:
        self._nodes: dict[str, _Attached] = {}
        self._dropped: set[frozenset[str]] = set()
        self._count = 0
        #: Asked for every call that is not dropped.
        self.fate: Callable[[Sent], Fate] = lambda _sent: ARRIVES

    def attach(self, node_id: str, url: str, handle: Handle) -> None:
        """From now on the node is there; called on its loop."""
        loop = asyncio.get_running_loop()
        self._nodes[node_id] = _Attached(node_id, url.rstrip("/"), handle, loop)

    def detach(self, node_id: str) -> None:
        """The node is gone; calls that it has not answered stay without an answer."""
        self._nodes.pop(node_id, None)

    def drop(self, one: str, other: str) -> None:
        self._dropped.add(frozenset((one, other)))

    def restore(self, one: str, other: str) -> None:
        self._dropped.discard(frozenset((one, other)))

    def transport(self, node_id: str) -> MemoryTransport:
        return MemoryTransport(self, node_id)

    def node(self, node_id: str) -> _Attached | None:
        return self._nodes.get(node_id)

    def node_at(self, url: str) -> _Attached | None:
        parts = urlsplit(url)
        origin = f"{parts.scheme}://{parts.netloc}"
        return next((one for one in self._nodes.values() if one.url == origin), None)

    def passes(self, one: str, other: str) -> bool:
        return frozenset((one, other)) not in self._dropped

    def next_number(self) -> int:
        self._count += 1
        return self._count


class MemoryTransport:
    """The transport of one node in such a network."""

    def __init__(self, network: MemoryNetwork, source: str) -> None:
        self._network = network
        self._source = source

    async def send(
        self, node_id: str, url: str, envelope: bytes, seconds: float, *, most: int | None = None
    ) -> bytes:
        found = self._network.node(node_id)
        if found is None or (url and found.url != url.rstrip("/")):
            raise PeerUnreachable(f"there is no node at {url}")
        _, body = await self._ask(found, "POST", MESSAGES_PATH, envelope, seconds)
        if most is not None and len(body) > most:
            message = f"the answer of {url} is larger than {most:,} bytes"
            raise PeerUnreachable(message, code="peer_answer_size")
        return body

    async def call(self, method: str, url: str, body: bytes, seconds: float) -> tuple[int, bytes]:
        found = self._network.node_at(url)
        if found is None:
            raise PeerUnreachable(f"there is no node at {url}")
        parts = urlsplit(url)
        target = f"{parts.path}?{parts.query}" if parts.query else parts.path
        return await self._ask(found, method, target, body, seconds)

    async def _ask(
        self, to: _Attached, method: str, target: str, body: bytes, seconds: float
    ) -> tuple[int, bytes]:
        network, loop = self._network, asyncio.get_running_loop()
        sent = Sent(network.next_number(), self._source, to.node_id, method, target, body)
        fate = network.fate(sent) if network.passes(self._source, to.node_id) else LOST
        answered: asyncio.Future[tuple[int, bytes]] = loop.create_future()

        def tell(answer: tuple[int, bytes]) -> None:
            if fate.answer is None or not network.passes(self._source, to.node_id):
                return
            loop.call_soon_threadsafe(loop.call_later, fate.answer, settle, answer)

        def settle(answer: tuple[int, bytes]) -> None:
            if not answered.done():
                answered.set_result(answer)

        for number, delay in enumerate(fate.copies):
            copy = _Copy(network, to, sent, tell if number == 0 else None)
            loop.call_later(delay, copy.arrive)
        try:
            async with asyncio.timeout(seconds):
                return await answered
        except TimeoutError:
            message = f"{to.url} did not answer within {seconds:g} s"
            raise PeerUnreachable(message, code="peer_timeout") from None

    async def close(self) -> None:
        """There is nothing to close."""


class _Copy:
    """One copy of a call, which arrives at the node if that is still the same one."""

    def __init__(
        self,
        network: MemoryNetwork,
        to: _Attached,
        sent: Sent,
        tell: Callable[[tuple[int, bytes]], None] | None,
    ) -> None:
        self._network, self._to, self._sent, self._tell = network, to, sent, tell

    def arrive(self) -> None:
        here = self._network.node(self._to.node_id)
        if here is not None and self._network.passes(self._sent.source, self._sent.to):
            here.loop.call_soon_threadsafe(self._start, here)

    def _start(self, here: _Attached) -> None:
        task = here.loop.create_task(self._handle(here))
        task.add_done_callback(_forget_cancelled)

    async def _handle(self, here: _Attached) -> None:
        answer = await here.handle(call_of(self._sent))
        if self._tell is not None and self._network.node(here.node_id) is here:
            self._tell((answer.status, encoded(answer)))


def _forget_cancelled(task: asyncio.Task[None]) -> None:
    """A node that is killed leaves calls without an answer; anything else is a defect."""
    if not task.cancelled() and (defect := task.exception()) is not None:
        raise defect


def call_of(sent: Sent) -> Call:
    """The call as the HTTP surface would read it."""
    path, _, query = sent.path.partition("?")
    return Call(
        method=sent.method,
        path=path,
        query=dict(parse_qsl(query, keep_blank_values=True)),
        headers={"content-type": "application/json"},
        body=_json(sent.body),
        raw=sent.body,
        remote=sent.source,
    )


def _json(data: bytes) -> Any:
    try:
        return msgspec.json.decode(data) if data else None
    except (msgspec.DecodeError, RecursionError):
        return None


def encoded(answer: Answer) -> bytes:
    return b"" if answer.body is None else msgspec.json.encode(answer.body)
