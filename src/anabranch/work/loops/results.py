"""The results of a loop, in the order of its items, from the log of its run.

A fan-out gives counts; what its items came to stays in the reports of its shards. The ref of a loop
(`fanin.refs`, `anabranch:run:<run>/loop/<id>`) leads there. One pass over the log finds which
report has which items, and is remembered; the results are read when they are asked for, report by
report. A redriven run has only what it did itself: for the rest its origin's log is looked into.

The ref of a step (`anabranch:run:<run>/step/<name>`, as in the summary that a final step gets)
leads to the last result of that step; here it is a set of one.
"""

from __future__ import annotations

import asyncio
import re
from bisect import bisect_right
from collections import OrderedDict
from collections.abc import AsyncIterator, Callable, Mapping
from typing import Any, NamedTuple, Protocol

from anabranch.errors import InputError, NotFound
from anabranch.kernel import events as e
from anabranch.kernel.tracker import Shard
from anabranch.store.damage import events_of
from anabranch.store.ports import Record
from anabranch.work.run_at_work import working_for
from anabranch.work.values.payloads import (
    PayloadPort,
    encoded,
    holds_ref,
    is_ref,
    load,
    place_in,
)
from anabranch.work.values.results import load_stand_ins

PLACE = "anabranch:run:"
_REF = re.compile(r"anabranch:run:([^/]+)/loop/l([0-9]+)")
_STEP = re.compile(r"(?:anabranch:)?run:([^/]+)/step/(.+)", re.DOTALL)
_ROWS_AT_ONCE = 64
AT_ONCE = 500  # results of one page that are looked at together
_INDEXES_KEPT = 4
_PARTS_KEPT = 16


class Log(Protocol):
    """What is needed of a store."""

    def read(self, run: str, after: int = 0, limit: int | None = None) -> list[Record]: ...


#: The last result of a step of a run, in full; raises `NotFound` where there is none.
StepResult = Callable[[str, str], Any]


class ResultsTooLarge(InputError):
    """They have more bytes than was asked for."""


class Loops(Protocol):
    """Whoever can read the results of a loop or a step: in the log, or from whoever has the log."""

    async def size(self, ref: str) -> int: ...

    async def results(
        self, ref: str, first: int, stop: int, bytes_max: int | None
    ) -> list[Any]: ...


class ResultPart(NamedTuple):
    """Where some results are: in the report of a job, or among those a redriven run took over."""

    run: str
    row: int  # of the log, by its first event
    job: str
    taken_over: int = -1


class ResultIndex(NamedTuple):
    """Which parts have which items. A shard's items end where those of the next one begin."""

    size: int
    firsts: list[int]
    parts: list[list[ResultPart]]  # for each first item: the shard's, and those of later tries


def is_loop(value: Any) -> bool:
    """Is it the ref of a loop?"""
    return isinstance(value, str) and value.startswith(PLACE)


def step_in(value: Any) -> tuple[str, str] | None:
    """The run and the step of a ref to the result of a step; None where it is none."""
    found = _STEP.fullmatch(value) if isinstance(value, str) else None
    return (found[1], found[2]) if found is not None else None


def run_of(ref: str) -> str:
    """The run whose loop or step it is; "" where it is no such ref."""
    found = _REF.fullmatch(ref) or _STEP.fullmatch(ref)
    return found[1] if found is not None else ""


class LoopResults:
    """One per process."""

    def __init__(
        self, log: Log, payloads: PayloadPort, step_result: StepResult | None = None
    ) -> None:
        self._log = log
        self._step_result = step_result
        self._payloads = payloads
        self._indexes: OrderedDict[str, ResultIndex] = OrderedDict()
        self._parts: OrderedDict[ResultPart, Any] = OrderedDict()

    async def size(self, ref: str) -> int:
        """How many items there are results for; those that failed count, and give null."""
        return 1 if step_in(ref) else (await self._index(ref)).size

    async def results(self, ref: str, first: int, stop: int, bytes_max: int | None) -> list[Any]:
        """Those of the items `first … stop - 1`; refuses what is over `bytes_max` as JSON."""
        step = step_in(ref)
        if step is not None:
            return self._of_step(*step, bytes_max)[first:stop]
        index = await self._index(ref)
        found: dict[int, Any] = {}
        size = 0
        group = max(0, bisect_right(index.firsts, first) - 1)
        while group < len(index.firsts) and index.firsts[group] < stop:
            for part in index.parts[group]:
                values = await self._values(part, index.firsts[group])
                for at in (at for at in values if first <= at < stop):
                    found[at] = await self._whole(part.run, values[at])
                    if bytes_max is not None:
                        size += len(encoded(found[at])) + 1
                        _require_room(size, bytes_max)
            group += 1
        return [found.get(at) for at in range(first, min(stop, index.size))]

    def _of_step(self, run: str, step: str, bytes_max: int | None) -> list[Any]:
        if self._step_result is None:
            raise InputError("this worker has no way to the results of steps")
        result = self._step_result(run, step)
        if bytes_max is not None and len(encoded(result)) > bytes_max:
            raise _too_large(bytes_max, "raise it")
        return [result]

    # -- one part ----------------------------------------------------------------------------

    async def _values(self, part: ResultPart, first: int) -> dict[int, Any]:
        """The results in it, by item."""
        results = self._parts.get(part)
        if results is None:
            results = await self._read(part)
            self._parts[part] = results
            while len(self._parts) > _PARTS_KEPT:
                self._parts.popitem(last=False)
        if isinstance(results, Mapping):  # of items that went out once more
            return {int(at): value for at, value in results.items()}
        return dict(enumerate(results, start=first))

    async def _whole(self, run: str, value: Any) -> Any:
        """An item may have put its own result aside, as its policy says."""
        if not holds_ref(value):
            return value
        with working_for(run):  # as of the report below
            return await load_stand_ins(value, self._payloads)

    async def _read(self, part: ResultPart) -> Any:
        result: Any = None
        for row in self._log.read(part.run, part.row - 1, 1):
            for event in events_of(part.run, row):
                if isinstance(event, e.JobReported) and event.job == part.job:
                    result = event.answer.result
                elif isinstance(event, e.LoopOpened) and event.loop == part.job:
                    result = (event.carried or {})["parts"][part.taken_over][1]
        if is_ref(result):
            with working_for(part.run):  # the report is as good as what its run may read
                result = await load(self._payloads, str(place_in(result)))
        return [] if result is None else result

    # -- the index ---------------------------------------------------------------------------

    async def _index(self, ref: str) -> ResultIndex:
        known = self._indexes.get(ref)
        if known is None:
            known = self._indexes[ref] = await self._made(ref)
            while len(self._indexes) > _INDEXES_KEPT:
                self._indexes.popitem(last=False)
        return known

    async def _made(self, ref: str) -> ResultIndex:
        found = _REF.fullmatch(ref)
        if found is None:
            raise InputError(f"'{ref:.120}' is not the ref of a loop ({PLACE}<run>/loop/<id>)")
        run, token = found[1], int(found[2])
        scan = _Scan(run, token)
        async for row in self._rows(run):
            for event in events_of(run, row):
                scan.see(event, row.first_seq)
            if scan.over:
                break
        scan.check()
        if scan.origin:
            before = await self._index(f"{PLACE}{scan.origin.replace('/', '/loop/', 1)}")
            for first, parts in zip(before.firsts, before.parts, strict=True):
                scan.parts[first] = [*parts, *scan.parts.get(first, ())]
        firsts = sorted(scan.parts)
        return ResultIndex(scan.size, firsts, [scan.parts[first] for first in firsts])

    async def _rows(self, run: str) -> AsyncIterator[Record]:
        after = 0
        while rows := self._log.read(run, after, _ROWS_AT_ONCE):
            for row in rows:
                yield row
            after = rows[-1].first_seq + rows[-1].count - 1
            await asyncio.sleep(0)  # a long log must not keep others waiting


def _require_room(size: int, bytes_max: int) -> None:
    if size > bytes_max:
        raise _too_large(bytes_max, "request fewer at once with `offset` and `limit`")


def _too_large(bytes_max: int, hint: str) -> ResultsTooLarge:
    limit = f"the limit of {bytes_max:,} bytes (setting artifact_bytes)"
    return ResultsTooLarge(f"the results are over {limit}: {hint}")


async def page_of(loops: Loops, ref: str, first: int, stop: int, bytes_max: int) -> list[Any]:
    """The results from `first` on, as many as fit; one at least, however large it is. No more than
    fits is in memory at once: more and more are asked for, and fewer where those are too many."""
    if first >= stop:
        return []
    found = await loops.results(ref, first, first + 1, None)
    left, count, grows = bytes_max - len(encoded(found)), 1, True
    while (begin := first + len(found)) < stop:
        try:
            more = await loops.results(ref, begin, min(begin + count, stop), max(left, 0))
        except ResultsTooLarge:
            if count == 1:
                break
            count, grows = count // 2, False
            continue
        found += more
        left -= len(encoded(more))
        count = min(count * 2, AT_ONCE) if grows else count
    return found


class _Scan:
    """Hears from the events of a run what became of the shards of one loop."""

    def __init__(self, run: str, token: int) -> None:
        self.parts: dict[int, list[ResultPart]] = {}
        self.size = 0
        self.origin = ""  # of a redriven loop: the one whose log has the rest
        self.over = False
        self._run, self._token, self._loop = run, token, f"l{token}"
        self._opened: e.LoopOpened | None = None
        self._shards: dict[str, Shard] = {}
        self._reports: dict[str, tuple[int, e.JobReported]] = {}

    def see(self, event: e.Event, row: int) -> None:
        match event:
            case e.LoopOpened(loop=self._loop):
                self._open(event, row)
            case e.ShardScheduled(token=self._token):
                self._shards[event.job] = event.shard
            case e.JobReported() if event.job in self._shards:
                self._reports[event.job] = (row, event)
            case e.ShardClosed(loop=self._loop):
                self._close(event)
            case e.TokenFinished(token=self._token):
                self.over = True
            case e.LoopSettled(loop=self._loop):
                self.over = True
            case _:
                pass

    def _open(self, event: e.LoopOpened, row: int) -> None:
        self._opened = event
        carried = event.carried or {}
        self.size = max((stop for _, stop in carried.get("done", ())), default=0)
        for number, (first, _) in enumerate(carried.get("parts", ())):
            self.parts.setdefault(first, []).append(ResultPart(self._run, row, self._loop, number))
        if carried and event.mode == "fanout":
            self.origin = carried.get("loop", "")

    def _close(self, event: e.ShardClosed) -> None:
        shard = self._shards.pop(event.job)
        row, told = self._reports.pop(event.job, (0, None))
        if event.whole:
            return
        report = None if told is None or event.fault is not None else told.answer.shard
        unbegun = () if report is None else report.unbegun
        items = shard.only or range(shard.first, shard.first + shard.count)
        ended = (at for at in reversed(items) if at not in unbegun and at not in event.again)
        self.size = max(self.size, next(ended, -1) + 1)
        if report is not None:
            self.parts.setdefault(shard.first, []).append(ResultPart(self._run, row, event.job))

    def check(self) -> None:
        """Refuse what has no results, and say why."""
        name = f"{self._run}/{self._loop}"
        if self._opened is None:
            raise NotFound(f"there is no loop {name} in this store: was its run purged?")
        if not self.over:
            raise InputError(f"loop {name} is not over yet; its results can be read when it is")
        if not self._opened.keep_results:
            raise InputError(
                f"loop {name} did not keep its results: give it `keep_results: true`, or reduce "
                "what you need with `reducers`"
            )
