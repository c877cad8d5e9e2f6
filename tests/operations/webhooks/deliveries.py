"""A store with runs in it, a receiver that does as it is told, and a dispatcher between the two."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from types import SimpleNamespace
from typing import Any, cast

import msgspec

from anabranch.clock import ManualClock
from anabranch.kernel import events as e
from anabranch.operations.webhooks.dispatcher import WebhookDispatcher
from anabranch.operations.webhooks.matcher import WebhookMatcher
from anabranch.operations.webhooks.sender import DELIVERY, SendResult, WebhookSender
from anabranch.operations.webhooks.webhooks import HookCard, HookDraft, Webhooks
from anabranch.settings import Settings
from anabranch.store.memory.store import MemoryStore
from anabranch.store.ports import Batch, Commit, Head, Store
from anabranch.testing.store_suite.samples import NOW

URL = "https://example.org/in"
Answer = Callable[[Mapping[str, Any]], int | None]


class Receiver:
    """In place of the network: remembers what came, and answers as the test says."""

    def __init__(self) -> None:
        self.came: list[dict[str, Any]] = []  # every attempt
        self.taken: list[str] = []  # ids of those that were answered with 2xx
        self.headers: list[dict[str, str]] = []
        self.bodies: list[bytes] = []
        self.answer: Answer = lambda _notice: 200
        self.hold: asyncio.Event | None = None

    async def post(self, _url: str, body: bytes, headers: dict[str, str]) -> SendResult:
        notice = msgspec.json.decode(body)
        assert headers[DELIVERY] == notice["id"]
        self.came.append(notice)
        self.headers.append(headers)
        self.bodies.append(body)
        if self.hold is not None:
            await self.hold.wait()
        status = self.answer(notice)
        if status is not None and 200 <= status < 300:
            self.taken.append(notice["id"])
            return SendResult(status)
        return SendResult(status, f"answered {status}" if status else "no connection")

    async def close(self) -> None:
        pass


class Scene:
    def __init__(self, store: Store | None = None, **settings: Any) -> None:
        self.store = store or MemoryStore()
        self.clock = ManualClock(NOW)
        self.settings = Settings(**settings)
        self.receiver = Receiver()
        self.hooks = Webhooks(self.store, self.clock)
        self.dispatcher = self.another_courier()
        self._seq: dict[str, int] = {}

    def another_courier(self) -> WebhookDispatcher:
        nets = SimpleNamespace(get=lambda _fingerprint: SimpleNamespace(private="_"))
        finder = WebhookMatcher(self.store, cast(Any, nets), self.settings.webhook_body_bytes)
        self.dispatcher = WebhookDispatcher(
            self.store,
            finder,
            cast(WebhookSender, self.receiver),
            clock=self.clock,
            settings=self.settings,
            dice=lambda: 1.0,
        )
        return self.dispatcher

    def hook(self, *kinds: str, **more: Any) -> HookCard:
        return self.hooks.create(HookDraft(url=URL, kinds=list(kinds) or ["*"], **more))

    def record(self, run: str, *events: e.Event, finished: bool = False, **head: Any) -> None:
        """One turn of a run."""
        seq = self._seq[run] = self._seq.get(run, 0) + len(events)
        fields = {"definition": "d", "name": "order", "dialect": "noetl", "status": "running"}
        now = self.clock.now()
        card = Head(
            run=run,
            seq=seq,
            created_at=NOW,
            updated_at=now,
            finished=finished,
            **{**fields, **head},
        )
        commit = Commit(head=card, at=now, events=e.encode_events(events), count=len(events))
        self.store.commit(Batch(commits=[commit]))

    def whole_run(self, run: str, **head: Any) -> None:
        """Three events: it starts, is paused, ends."""
        self.record(run, e.RunStarted(run, "d", "order", {}), e.RunPaused("ann", "x"), **head)
        self.record(run, e.RunFinished("completed"), finished=True, **head)

    async def rounds(self, count: int = 1) -> None:
        """Look and send so often; each round ends when all that went out is settled."""
        for _ in range(count):
            while await self.dispatcher.round():
                pass
            while out := list(self.dispatcher._out.values()):
                await asyncio.wait(out)

    def pass_time(self, seconds: float) -> None:
        self.clock.advance_to(self.clock.now() + int(seconds * 1000))


def ids(notices: list[dict[str, Any]]) -> list[tuple[str, int]]:
    return [(notice["run"], notice["seq"]) for notice in notices]
