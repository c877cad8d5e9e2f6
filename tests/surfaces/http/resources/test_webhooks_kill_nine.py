"""`kill -9` of the server between a commit and its delivery: nothing is lost, nothing overtakes."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from aiohttp import web

from anabranch.clock import SystemClock
from anabranch.kernel.events import decode_events, kind_of
from anabranch.operations.webhooks.webhooks import HookDraft, Webhooks
from anabranch.store.sqlite.store import SqliteStore
from seeds import seeds

from ...quick_process import QuickProcess, started
from ..support import run
from .test_webhooks import Inbox, inbox


class Rough(Inbox):
    """Takes some at once and some late, refuses some, hangs up on others, and judges the order. It
    refuses none more than twice, or the server would wait for minutes before its next try.

    What it writes down are the two things that must never be: something that overtook another one
    of its run which had not been taken yet, and two of one run at the same time.
    """

    def __init__(self, seed: int) -> None:
        super().__init__()
        self._dice = random.Random(seed)
        self._taken: dict[tuple[str, str], set[int]] = {}
        self._here: Counter[tuple[str, str]] = Counter()
        self._refused: Counter[str] = Counter()
        self.together: list[str] = []
        self.arrivals: list[tuple[tuple[str, str], int, frozenset[int]]] = []

    async def take(self, request: web.Request) -> web.Response:
        notice = await request.json()
        key = notice["hook"], notice["run"]
        self._here[key] += 1
        if self._here[key] > 1:
            self.together.append(notice["id"])
        taken = self._taken.setdefault(key, set())
        self.arrivals.append((key, notice["seq"], frozenset(taken)))
        how = self._dice.random()
        try:
            if how < 0.1:
                await asyncio.sleep(self._dice.uniform(0.05, 0.3))
            if 0.1 <= how < 0.25:
                self._refused[notice["id"]] += 1
            if self._refused[notice["id"]] > 2:
                how = 1.0
            if 0.1 <= how < 0.2:
                return web.Response(status=self._dice.choice([301, 404, 429, 500, 503]))
            if 0.2 <= how < 0.25 and request.transport is not None:
                request.transport.abort()
                return web.Response(status=500)
            taken.add(notice["seq"])
            return await super().take(request)
        finally:
            self._here[key] -= 1

    async def rest(self) -> None:
        """Until nothing is here any more that a server has sent which is dead by now."""
        quiet = 0
        while quiet < 10:  # looks into every socket meanwhile
            quiet = 0 if any(self._here.values()) else quiet + 1
            await asyncio.sleep(0.01)

    def taken(self, hook: str) -> list[tuple[str, str]]:
        return [key for key in self._taken if key[0] == hook]

    def seqs(self, hook: str, of: str) -> set[int]:
        return self._taken[hook, of]

    def overtook(self, wanted: dict[str, list[int]]) -> list[tuple[str, int]]:
        """Arrivals before everything that stands ahead of them in their run had been taken."""
        return [
            (key[1], seq)
            for key, seq, taken in self.arrivals
            if not {one for one in wanted[key[1]] if one < seq} <= taken
        ]


SERVER = """
import asyncio, sys
from anabranch.settings import Settings
from anabranch.surfaces.http.serve import Server

DEFINITION = '''
apiVersion: noetl.io/v2
kind: Playbook
metadata: {name: three}
workflow:
  - {step: a, tool: {kind: noop}, next: {arcs: [{step: b}]}}
  - {step: b, tool: {kind: noop}, next: {arcs: [{step: c}]}}
  - {step: c, tool: {kind: noop}}
'''

async def main(path, runs):
    settings = Settings(store=path, serve_port=0, webhook_addresses="any")
    async with Server(settings) as server:
        print("open", flush=True)
        for _ in range(int(runs)):
            await server.parts.verbs.start(DEFINITION)
            await asyncio.sleep(0.01)
        print("started", flush=True)
        await asyncio.Event().wait()

asyncio.run(main(*sys.argv[1:]))
"""


@asynccontextmanager
async def server(path: Path, runs: int) -> AsyncIterator[QuickProcess]:
    """A server in a process of its own, killed at the end."""
    script = path.with_name("server.py")
    script.write_text(SERVER)
    async with started(str(script), str(path), str(runs)) as made:
        assert (await made.read_line()).strip() == b"open"
        yield made


async def settled(path: Path, hook: str) -> None:
    """Every run has ended and nothing waits for the hook."""
    while True:
        store = SqliteStore(path, read_only=True)
        try:
            card = Webhooks(store, SystemClock()).show(hook)
            if not (card.pending or card.behind or store.unfinished()):
                return
        finally:
            store.close()
        await asyncio.sleep(0.1)


def recorded(path: Path) -> dict[str, list[int]]:
    """The numbers of the wanted events, by run, as the log has them."""
    store = SqliteStore(path, read_only=True)
    try:
        found: dict[str, list[int]] = {}
        for entry in store.feed(0, 1_000_000):
            for place, event in enumerate(decode_events(entry.events)):
                if kind_of(event).startswith("token."):
                    found.setdefault(entry.run, []).append(entry.first_seq + place)
        return found
    finally:
        store.close()


def arrived(box: Inbox) -> dict[str, list[int]]:
    """The first arrivals, by run."""
    found: dict[str, list[int]] = {}
    for _, _, notice in box.came:
        seen = found.setdefault(notice["run"], [])
        if notice["seq"] not in seen:
            seen.append(notice["seq"])
    return found


def new_store(path: Path, url: str) -> str:
    store = SqliteStore(path)
    try:
        made = Webhooks(store, SystemClock(), "any").create(
            HookDraft(url=url, kinds=["token.*"], begin="beginning")
        )
        return made.id
    finally:
        store.close()


@pytest.mark.slow
@pytest.mark.parametrize("seed", seeds(2, least=1))
def test_whenever_the_server_is_killed_every_event_arrives_and_those_of_a_run_in_order(
    seed: int, tmp_path: Path
) -> None:
    async def work() -> None:
        dice, path = random.Random(seed), tmp_path / "store.db"
        async with inbox() as box:
            hook = new_store(path, box.url)
            for _ in seeds(4, least=2):
                async with server(path, 20):
                    await box.until(1)  # from here on it is in the middle of things
                    await asyncio.sleep(dice.uniform(0.0, 0.4))
            killed_with = len(box.came)
            async with server(path, 1) as last:
                assert (await last.read_line()).strip() == b"started"
                await settled(path, hook)
        wanted = recorded(path)
        assert arrived(box) == wanted
        assert wanted
        assert killed_with > 0

    run(work())


@pytest.mark.slow
@pytest.mark.parametrize("seed", seeds(2, least=1))
def test_under_kills_and_a_rough_receiver_nothing_is_lost_overtaken_or_doubled_up(
    seed: int, tmp_path: Path
) -> None:
    """Two hooks to one receiver that refuses, hangs up and dawdles, while the server is killed."""

    async def work() -> None:
        dice, path = random.Random(seed), tmp_path / "store.db"
        rough, rounds = Rough(seed), seeds(6, least=3)
        async with inbox(rough):
            hooks = [new_store(path, rough.url) for _ in range(2)]
            for _ in rounds:
                async with server(path, 10):
                    before = len(rough.arrivals)
                    while len(rough.arrivals) == before:
                        await asyncio.sleep(0.01)
                    await asyncio.sleep(dice.uniform(0.0, 0.5))
                await rough.rest()
            async with server(path, 0):
                for hook in hooks:
                    await settled(path, hook)
        wanted = recorded(path)
        assert len(wanted) > len(rounds)
        for hook in hooks:
            assert {key[1]: sorted(rough.seqs(hook, key[1])) for key in rough.taken(hook)} == wanted
        assert rough.overtook(wanted) == []
        assert rough.together == []

    run(work())


@pytest.mark.slow
def test_what_was_committed_and_never_sent_is_sent_by_the_next_server(tmp_path: Path) -> None:
    async def work() -> None:
        path = tmp_path / "store.db"
        async with inbox() as box:
            box.status = 503  # nothing gets through while the first one lives
            hook = new_store(path, box.url)
            async with server(path, 5) as first:
                assert (await first.read_line()).strip() == b"started"
                await box.until(1)
            box.came.clear()
            box.status = 200
            async with server(path, 0):
                await settled(path, hook)
        assert arrived(box) == recorded(path)
        assert len(recorded(path)) == 5

    run(work())
