"""The runs of a store: what is known of them, and what is said to them."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager, nullcontext
from typing import TYPE_CHECKING

import msgspec

from anabranch.ages import age_ms
from anabranch.clock import SystemClock
from anabranch.operations.definitions.prepare import compiler
from anabranch.operations.logs.log_lines import LogLine, LogQuery, open_log
from anabranch.operations.overview.windows import Window
from anabranch.operations.read.items import ItemFilter, Page
from anabranch.operations.read.reader import Reader
from anabranch.operations.read.references import Referred, read_reference
from anabranch.operations.runs.purge import Purged, purge
from anabranch.operations.runs.redrive_plan import RedrivePlan, prepare_redrive
from anabranch.runtime.messages.codec import Sayable
from anabranch.runtime.nets import Nets
from anabranch.store.ports import HeadFilter
from anabranch.surfaces.cli import values
from anabranch.surfaces.cli.backend.local.audit import ACTIONS
from anabranch.surfaces.cli.backend.local.store import LocalTopic
from anabranch.surfaces.cli.backend.port import Row, Told

if TYPE_CHECKING:
    from anabranch.kernel import stimuli as s
    from anabranch.operations.read.dispatches import Dispatch
    from anabranch.operations.runs.bulk import Bulk
    from anabranch.operations.runs.signals import SignalSent
    from anabranch.surfaces.cli.backend.port import BulkPage

FOLLOW_SECONDS = 0.1
LAST_LOOKS = 5  # after the end of a run: its last lines may be on their way


class LocalRunBackend(LocalTopic):
    @contextmanager
    def _reading(self) -> Iterator[Reader]:
        with self._store.reading() as store:
            elsewhere = store.owner() is not None  # what that engine has is not known here
            preflight = None if elsewhere else self._store.preflight()
            yield Reader(store, Nets(store, compiler()), preflight)

    async def search(self, wanted: HeadFilter) -> list[Row]:
        with self._reading() as read:
            await read.look_at_files(read.store.heads(wanted))
            return read.runs(wanted)

    async def overview(self, window: Window) -> Row:
        from anabranch.operations.overview.overview import read_overview

        with self._store.reading() as store:
            found = read_overview(store, window, SystemClock().now())
        shown: Row = msgspec.to_builtins(found)
        return shown

    async def has_engine(self) -> bool:
        with self._store.reading() as store:
            return store.owner() is not None

    async def show(self, run: str) -> Row:
        with self._reading() as read:
            await read.look_at_files([read.find(run)])
            return read.show(run)

    async def items(self, run: str, step: str, wanted: ItemFilter) -> Page:
        with self._reading() as read:
            return read.items(run, step, **msgspec.structs.asdict(wanted))

    async def explain(self, run: str) -> Row:
        with self._reading() as read:
            await read.look_at_files([read.find(run)])
            return read.explain(run)

    async def referred(self, ref: str, offset: int, limit: int) -> Referred:
        with self._reading() as read:
            return await read_reference(read, ref, offset=offset, limit=limit)

    async def plan_redrive(self, run: str, from_step: str = "") -> RedrivePlan:
        with self._reading() as read:
            return prepare_redrive(read, run, from_step).plan()

    async def graph(self, run: str, form: str) -> str:
        with self._reading() as read:
            return read.graph(run, form)

    async def dispatches(self, run: str, *, step: str | None, status: str | None) -> list[Dispatch]:
        with self._reading() as read:
            return [
                one
                for one in read.dispatches(run)
                if step in (None, one.record.step_id) and status in (None, one.record.status)
            ]

    async def snapshot(self, run: str) -> Row:
        with self._reading() as read:
            return read.snapshot(run)

    async def events(self, run: str, after: int, *, follow: bool) -> AsyncIterator[tuple[Row, int]]:
        with self._reading() as read:
            head = read.find(run)
            while True:
                records = read.events(head.run, after)
                for record in records:
                    after = record.seq
                    yield msgspec.to_builtins(record), head.created_at
                done = any(record.kind == "run.finished" for record in records)
                if not follow or done or (read.find(head.run).finished and not records):
                    return
                await asyncio.sleep(FOLLOW_SECONDS)

    async def logs(self, run: str, wanted: LogQuery, *, follow: bool) -> AsyncIterator[LogLine]:
        with self._reading() as read:
            lines, after, left = open_log(read, run, wanted), 0, LAST_LOOKS
            while left:
                finished = read.find(lines.run).finished
                found = lines.page(after)
                for line in found.items:
                    yield line
                if found.last == after:
                    if not follow:
                        return
                    left = left - 1 if finished else LAST_LOOKS
                    await asyncio.sleep(FOLLOW_SECONDS)
                after = found.last

    async def say(self, run: str, said: Sayable) -> Told:
        from anabranch.operations.runs.verbs import say  # verbs that look need none

        async with self._store.parts() as parts:
            found = parts.verbs.read.find(run).run
            line = self._store.audit_line(parts.store, ACTIONS[type(said)], found)
            with line.follow():
                how = await line.send(
                    lambda audit: say(parts.store, lambda: parts.engine, found, said, audit)
                )
            return Told(found, how, parts.verbs.read.find(found).status)

    async def signal(self, run: str, said: s.Signal) -> tuple[SignalSent, str]:
        from anabranch.operations.runs.signals import repeats_heard, sent
        from anabranch.operations.runs.verbs import say  # verbs that look need none

        async with self._store.parts() as parts:
            found, how = parts.verbs.read.find(run).run, "recorded"
            line = self._store.audit_line(parts.store, ACTIONS[type(said)], found)
            with line.follow():
                async with repeats_heard(parts.verbs, found, said):
                    how = await line.send(
                        lambda audit: say(parts.store, lambda: parts.engine, found, said, audit)
                    )
            return await sent(parts.verbs, found, said), how

    async def purge(self, wanted: HeadFilter, older_than: str, *, dry_run: bool) -> Purged:
        with self._store.writing() as store:
            age, now = age_ms(older_than), int(time.time() * 1000)
            line = self._store.audit_line(store, "runs.purge")
            with nullcontext() if dry_run else line.announce():
                return purge(store, age, now, dry_run=dry_run, wanted=wanted)

    @asynccontextmanager
    async def bulk(self, asked: Bulk) -> AsyncIterator[BulkPage]:
        from anabranch.operations.runs.bulk import bulks_at  # brings an engine along

        dry = ".dry_run" if asked.dry_run else ""
        subject = msgspec.json.encode(values.bulk_fields(asked.wanted)).decode()
        async with self._store.parts(grace=0) as parts:
            line = self._store.audit_line(parts.store, f"bulk.{asked.verb}{dry}", subject)
            with line.follow() if asked.dry_run else line.announce():
                yield (await bulks_at(parts.verbs)).page
