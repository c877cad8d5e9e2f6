"""The runs of a server: what it knows of them, and what is said to them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

import msgspec

from anabranch.ages import age_ms
from anabranch.errors import AnabranchError
from anabranch.kernel import stimuli as s
from anabranch.operations.logs.log_lines import LogLine, LogLines, LogQuery
from anabranch.operations.overview.windows import Window
from anabranch.operations.read.items import ItemFilter, Page
from anabranch.operations.read.references import Referred
from anabranch.operations.runs.purge import Purged, added
from anabranch.operations.runs.redrive_plan import RedrivePlan
from anabranch.runtime.messages.codec import Sayable
from anabranch.store.ports import Forgotten, Head, HeadFilter, Space
from anabranch.surfaces.cli import values
from anabranch.surfaces.cli.backend.http.topic import HttpTopic, pages
from anabranch.surfaces.cli.backend.port import Row, Told

if TYPE_CHECKING:
    from anabranch.operations.read.dispatches import Dispatch
    from anabranch.operations.runs.bulk import Bulk, BulkReport
    from anabranch.operations.runs.signals import SignalSent
    from anabranch.surfaces.cli.backend.port import BulkPage

EVENTS = 1000
WAIT_SECONDS = 30
NO_ROOM = ("too_many_at_once", "too_many_streams")
NO_ROOM_SECONDS = 2.0


class HttpRunBackend(HttpTopic):
    async def search(self, wanted: HeadFilter) -> list[Row]:
        labels = [f"{key}={value}" for key, value in wanted.labels.items()]
        status = list(wanted.statuses)
        cards = await self._all(
            "runs",
            most=wanted.limit,
            status=status,
            name=wanted.name,
            label=labels,
            search=wanted.search or None,
            redriven=None if wanted.redriven is None else str(wanted.redriven).lower(),
        )
        return [_head_fields(card) for card in cards]

    async def overview(self, window: Window) -> Row:
        return await self._client.get("overview", window=window)

    async def has_engine(self) -> bool:
        return True  # the server itself

    async def show(self, run: str) -> Row:
        shown = await self._client.get("runs", run)
        return {key: value for key, value in shown.items() if key not in ("created", "updated")}

    async def items(self, run: str, step: str, wanted: ItemFilter) -> Page:
        fields = msgspec.structs.asdict(wanted)
        page = await self._client.get("runs", run, "loops", step, "items", **fields)
        page["more_after"] = page.pop("next")
        return msgspec.convert(page, Page)

    async def explain(self, run: str) -> Row:
        return await self._client.get("runs", run, "explain")

    async def referred(self, ref: str, offset: int, limit: int) -> Referred:
        found = await self._client.get("results", ref=ref, offset=offset, limit=limit)
        return msgspec.convert(found, Referred)

    async def plan_redrive(self, run: str, from_step: str = "") -> RedrivePlan:
        only = {"from": from_step} if from_step else {}
        return msgspec.convert(await self._client.get("runs", run, "redrive", **only), RedrivePlan)

    async def graph(self, run: str, form: str) -> str:
        return str((await self._client.get("runs", run, "graph", format=form))["graph"])

    async def dispatches(self, run: str, *, step: str | None, status: str | None) -> list[Dispatch]:
        path = ("runs", run, "dispatches")
        found = await self._all(*path, by="after", first=0, step=step, status=status)
        return [_dispatch(fields) for fields in found]

    async def snapshot(self, run: str) -> Row:
        return await self._client.get("runs", run, "snapshot")

    async def events(self, run: str, after: int, *, follow: bool) -> AsyncIterator[tuple[Row, int]]:
        shown = await self.show(run)
        run, began, finished = shown["run"], shown["created_at"], False

        async def ask(after: int, limit: int) -> Row:
            return await self._client.get("runs", run, "events", after=after, limit=limit)

        async for page in pages(ask, after, size=EVENTS):
            for record in page["items"]:
                after = record["seq"]
                yield record, began
            finished = page["finished"]
        if follow and not finished:
            async for record in self._client.stream("runs", run, "events", "stream", after=after):
                yield record, began

    async def logs(self, run: str, wanted: LogQuery, *, follow: bool) -> AsyncIterator[LogLine]:
        run, after = (await self.show(run))["run"], 0
        asked = msgspec.structs.asdict(wanted)
        asked = {name: value for name, value in asked.items() if value not in (None, "")}
        while True:
            page = msgspec.convert(
                await self._client.get("runs", run, "logs", after=after, **asked), LogLines
            )
            for line in page.items:
                yield line
            after = page.last
            if page.next is None:
                break
        if follow:
            path = ("runs", run, "logs", "stream")
            async for frame in self._client.stream(*path, after=after, item="logs", **asked):
                for fields in frame["items"]:
                    yield msgspec.convert(fields, LogLine)

    # -- saying ------------------------------------------------------------------------------

    async def say(self, run: str, said: Sayable) -> Told:
        path, body = route_of(said)
        told = await self._client.post("runs", run, *path, body=body)
        return Told(told["run"], "engine", told["status"])

    async def signal(self, run: str, said: s.Signal) -> tuple[SignalSent, str]:
        from anabranch.operations.runs.signals import SignalSent  # verbs that look need none

        ttl = f"{said.ttl_ms}ms" if said.ttl_ms else None
        body = {"payload": said.payload, "ttl": ttl}
        path = ("runs", run, "signals", said.name)
        told = await self._client.post(*path, body=body, once=said.id)
        return msgspec.convert(told, SignalSent), "engine"

    async def start(self, body: Row) -> str:
        return str((await self._client.post("runs", body=body, once=True))["run"])

    async def redrive(
        self, run: str, from_step: str = "", *, again: bool = False, secrets: Row | None = None
    ) -> Row:
        body: Row = {"from": from_step} if from_step else {}
        if secrets:
            body["input"] = dict(secrets)
        if again:
            body["again"] = True
        return await self._client.post("runs", run, "redrive", body=body, once=True)

    async def settled(self, run: str, *, standing: bool = True) -> None:
        """When it has ended, or with `standing` also when only somebody can move it. A server that
        has no room for one more who waits is asked now and then instead: too many who wait
        elsewhere end no command."""
        seconds = WAIT_SECONDS
        while True:
            try:
                asked = {"seconds": seconds, "standing": "true" if standing else "false"}
                if (await self._client.get("runs", run, "wait", **asked))["settled"]:
                    return
                seconds = WAIT_SECONDS
            except AnabranchError as error:
                if error.code not in NO_ROOM:
                    raise
                await asyncio.sleep(NO_ROOM_SECONDS)
                seconds = 0

    async def purge(self, wanted: HeadFilter, older_than: str, *, dry_run: bool) -> Purged:
        age_ms(older_than)  # what is not an age is told here as there
        which = values.purge_fields(wanted)
        body = {"older_than": older_than, "filter": which, "dry_run": dry_run}
        gone, space = Forgotten(), Space()

        async def ask(after: str | None, _limit: int) -> Row:
            more = {} if after is None else {"cursor": after}
            return await self._client.post("runs", "purge", body={**body, **more})

        async for page in pages(ask):
            gone = added(gone, Forgotten(page["runs"], page["payloads"], page["bytes"]))
            space = msgspec.convert(page["space"], Space)
        return Purged(runs=gone.runs, payloads=gone.payloads, bytes=gone.bytes, space=space)

    @asynccontextmanager
    async def bulk(self, _asked: Bulk) -> AsyncIterator[BulkPage]:
        yield self._bulk_page

    async def _bulk_page(self, asked: Bulk) -> BulkReport:
        from anabranch.operations.runs.bulk import PAGE_MAX, BulkReport
        from anabranch.surfaces.http.io.request_body import cursor, read_cursor

        wanted = asked.wanted
        body = {
            "verb": asked.verb,
            "filter": values.bulk_fields(wanted),
            "dry_run": asked.dry_run,
            "everything": asked.everything,
            "reason": asked.reason,
            "values": dict(asked.values),
            "reducer": asked.reducer,
            "limit": min(wanted.limit, PAGE_MAX),
        }
        if wanted.before is not None:
            body["cursor"] = cursor(*wanted.before)
        told = await self._client.post("bulk", body=body)
        told["next"] = read_cursor(told["next"], int, str) if told["next"] else None
        return msgspec.convert(told, BulkReport)


def route_of(said: Sayable) -> tuple[tuple[str, ...], Row]:
    """Where a stimulus is posted, and as what. Who says it is known from the request."""
    match said:
        case s.Pause():
            return ("pause",), {"reason": said.reason}
        case s.Resume():
            return ("resume",), {}
        case s.Cancel():
            return ("cancel",), {"reason": said.reason}
        case s.PatchContext():
            given = {patch.key: patch.value for patch in said.patches}
            return ("patch",), {"values": given, "reducer": said.patches[0].reducer}
        case s.TuneLoop():
            body = {"window": said.window, "stop": said.stop, "reason": said.reason}
            return ("loops", said.loop), body
        case s.RetryNow():
            return ("steps", said.step, "retry"), {"token": said.token, "reason": said.reason}
        case s.Skip():
            body = {"token": said.token, "reason": said.reason}
            if said.answered:
                body["result"] = said.result
            return ("steps", said.step, "skip"), body
        case s.Decide():
            body = {"verdict": said.verdict, "reason": said.reason, "evidence": said.evidence}
            if said.override:
                body["override"] = True
            return ("gates", said.gate, "decide"), body
        case _:
            raise AnabranchError(f"{type(said).__name__} cannot be said to a server")


def _head_fields(card: Row) -> Row:
    """A card of the API as the index card it was made from."""
    fields = {**card, "seq": card["events"]}
    if not fields.get("damage"):
        fields.pop("damage", None)  # as it is left out where the store is read here
    wanted = (*Head.__struct_fields__, "redriven_by", "missing")
    return {name: fields[name] for name in wanted if name in fields}


def _dispatch(fields: Row) -> Dispatch:
    from anabranch.operations.read.dispatches import Dispatch

    return msgspec.convert({**fields, "late_at": fields["late_response_at"]}, Dispatch)
