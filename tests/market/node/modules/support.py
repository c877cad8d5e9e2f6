"""A node with modules and nothing else, for tests."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, TypeVar

from anabranch.clock import Clock, ManualClock
from anabranch.market.node.api import OPERATOR, Answer, Call, Caller
from anabranch.market.node.modules import part as modules_part
from anabranch.market.node.modules.part import ModulesPart
from anabranch.market.node.node import Node
from anabranch.market.node.ports import InboundMessage, NodeConfig, NodeContext
from anabranch.store.memory.store import MemoryStore
from anabranch.store.ports import Store
from hangs import HANG_SECONDS

T = TypeVar("T")
START = 1_780_000_000_000

Decide = Callable[[str, Any], Any]


class NoSigner:
    """Modules have nothing signed."""

    node_id = "node:did:key:zTest"
    participant_id = "participant:did:key:zTest"
    org_id = ""

    def sign_as_node(self, document: dict[str, Any]) -> dict[str, Any]:
        raise AssertionError(f"signed: {document}")

    def sign_as_participant(
        self, document: dict[str, Any], without: tuple[str, ...] = ()
    ) -> dict[str, Any]:
        raise AssertionError(f"signed: {document} {without}")


class NoTransport:
    """Modules send nothing to peers themselves."""

    async def send(
        self, node_id: str, url: str, envelope: bytes, seconds: float, *, most: int | None = None
    ) -> bytes:
        raise AssertionError(f"sent to {node_id} {url}: {envelope!r} {seconds} {most}")

    async def call(self, method: str, url: str, body: bytes, seconds: float) -> tuple[int, bytes]:
        raise AssertionError(f"{method} {url}: {body!r} {seconds}")

    async def close(self) -> None:
        """There is nothing to close."""


class ScriptedModule:
    """A module of this process. `answers` says what it does at a path: a value, an exception, a
    pair of status and body, or a function of the body."""

    def __init__(self, module: str, **report: Any) -> None:
        self.calls: list[tuple[str, str, Mapping[str, str], Any]] = []
        self.answers: dict[str, Any] = {
            "/readyz": {"status": "ok"},
            "/healthz": {"status": "ok"},
            "/v1/middleware/init": {"schema_version": "v1", "module_id": module, **report},
        }

    async def handle(
        self, method: str, path: str, headers: Mapping[str, str], body: Any
    ) -> tuple[int, Any]:
        self.calls.append((method, path, headers, body))
        answer = self.answers.get(path, (404, None))
        if callable(answer):
            answer = answer(body)
        if isinstance(answer, Awaitable):
            answer = await answer
        if isinstance(answer, Exception):
            raise answer
        return answer if isinstance(answer, tuple) else (200, answer)

    def bodies(self, path: str = "/v1/middleware/invoke") -> list[Any]:
        return [body for _, called, _, body in self.calls if called == path]


class Hosted:
    """An open node and its modules."""

    def __init__(self, node: Node, part: ModulesPart) -> None:
        self.node = node
        self.part = part

    async def ask(
        self,
        method: str,
        path: str,
        body: Any = None,
        *,
        as_: str = "operator",
        query: Mapping[str, str] | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> Answer:
        callers = {"operator": OPERATOR, "open": Caller("open"), "peer": Caller("peer")}
        caller = callers.get(as_, Caller("module", module=as_, actor=as_))
        call = Call(
            method=method,
            path=path,
            caller=caller,
            body=body,
            query=query or {},
            headers=headers or {},
        )
        return await self.node.handle(call)


def in_process(module: str, **more: Any) -> dict[str, Any]:
    return {"id": module, "kind": "in_process", **more}


@asynccontextmanager
async def hosted(
    *scripted: ScriptedModule | None,
    configs: list[dict[str, Any]],
    store: Store | None = None,
    clock: Clock | None = None,
    data_dir: Path | None = None,
    url: str = "http://127.0.0.1:1",
    prepare: Callable[[NodeContext], None] = lambda _context: None,
) -> AsyncIterator[Hosted]:
    """A node with these modules, settled; the scripted ones are attached in order."""
    config = NodeConfig(
        data_dir=str(data_dir) if data_dir else "", url=url, raw={"modules": configs}
    )
    node = Node(
        store or MemoryStore(),
        clock or ManualClock(START),
        NoSigner(),
        config,
        NoTransport(),
        [(modules_part.make, modules_part.FAMILIES)],
        random_bytes=counting_bytes(),
    )
    prepare(node.context)
    part = node.context.modules
    assert isinstance(part, ModulesPart)
    for settings, module in zip(configs, scripted, strict=False):
        if module is not None:
            part.attach(settings["id"], module)
    await node.open()
    try:
        await part.settled()
        yield Hosted(node, part)
    finally:
        await node.close()


def counting_bytes() -> Callable[[int], bytes]:
    drawn = iter(range(1, 1 << 20))
    return lambda size: next(drawn).to_bytes(size, "big")


def message(msg: str = "test.message", payload: Any = None) -> InboundMessage:
    return InboundMessage(
        msg=msg, payload=payload, correlation_id="c1", remote_node_id="node:did:key:zPeer"
    )


def decision(kind: str, patch: Any = None) -> dict[str, Any]:
    return {"decision": kind, "reason": "a test", "patch": patch}


def run(work: Awaitable[T]) -> T:
    """Run a test; one that hangs fails."""

    async def limited() -> T:
        async with asyncio.timeout(HANG_SECONDS):
            return await work

    return asyncio.run(limited())
