"""What the work of a job needs from the server, and what is too large for its report.

A worker sees what its job sees, and no more: payloads that the run of the job holds or that its
values name, the results of loops that they name. A hash that leads elsewhere is answered like one
that leads nowhere.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from typing import Any

import msgspec

from anabranch.errors import InputError, NotFound, Refused
from anabranch.kernel.jobs import DEFAULT_WORK
from anabranch.kernel.state import Job
from anabranch.net.net import Net
from anabranch.operations.leases import Out, held
from anabranch.runtime.engine import Engine
from anabranch.runtime.live import LiveRun
from anabranch.runtime.parcels import shared_names
from anabranch.runtime.payloads import Light, TooLarge, lighten
from anabranch.settings import Settings
from anabranch.store.ports import Definition
from anabranch.work.child import child_of
from anabranch.work.json_check import MAX_DEPTH, deeper_than
from anabranch.work.loop_results import Loops, run_of
from anabranch.work.payloads import StoredPayloads, encoded, purged
from anabranch.work.tracing import traceparent, working_in

RESULTS_AT_ONCE = 500  # are looked at together, and as many of them sent as fit
RESULTS_BYTES = 4 * 1024 * 1024
ORIGINS_MAX = 100  # how far back a chain of redrives is followed

_encode = msgspec.json.Encoder(enc_hook=str).encode


class ResultsPage(msgspec.Struct, frozen=True, kw_only=True):
    """Results of a loop in the order of its items, from `first` on: as many as fit."""

    total: int
    first: int
    results: list[Any]


#: As in `work.child`, and the secrets for which marks stand in the input.
StartChild = Callable[
    [str, Mapping[str, Any], str, str | None, str, Mapping[str, Any] | None], Awaitable[str]
]


class Supplies:
    """One per engine."""

    def __init__(
        self,
        engine: Engine,
        settings: Settings,
        *,
        loops: Loops,
        start_child: StartChild,
    ) -> None:
        self._engine = engine
        self._settings = settings
        self._loops = loops
        self._start_child = start_child
        self._payloads = StoredPayloads(engine.store)

    def definition(self, out: Out) -> Definition:
        """The source of what the job is part of."""
        live, _ = held(self._engine, out)
        found = self._engine.store.definition(live.state.definition)
        if found is None:
            raise NotFound(f"the store has no definition {live.state.definition}")
        return found

    async def payload(self, out: Out, sha256: str) -> bytes:
        live, job = held(self._engine, out)
        if not self._may_see(live, job, sha256):
            raise purged(sha256)
        content = await self._payloads.get(sha256)
        if content is None:
            raise purged(sha256)
        return content

    async def put_payload(self, out: Out, content: bytes) -> str:
        """Keep what is too large for a report; gives its hash."""
        held(self._engine, out)
        return await self._payloads.put(content, out.run)

    async def results(self, out: Out, ref: str, first: int, stop: int) -> ResultsPage:
        """Results of a loop that the job has the ref of."""
        live, job = held(self._engine, out)
        related = run_of(ref) in {out.run, *self._origins(live)}
        if not related and not _mentions(self._values(live, job), ref):
            raise NotFound(f"the job knows of no loop {ref:.200}", code="no_loop")
        total = await self._loops.size(ref)
        found: list[Any] = []
        first, size = min(first, total), 0
        stop = min(stop, total)
        while first + len(found) < stop:
            begin = first + len(found)
            more = await self._loops.results(ref, begin, min(begin + RESULTS_AT_ONCE, stop))
            for result in more:
                size += len(encoded(result))
                if size > RESULTS_BYTES and found:
                    return ResultsPage(total=total, first=first, results=found)
                found.append(result)
        return ResultsPage(total=total, first=first, results=found)

    async def whole(self, out: Out, sha256: str, *, inline: bool) -> Any:
        """The result of a report that was sent ahead as a payload, fit to be recorded."""
        content = await self.payload(out, sha256)
        light = await asyncio.to_thread(self._light, content, sha256, inline)
        if light.sha256 and light.sha256 != sha256:  # it was written in another way than ours
            self._engine.core.keep_payload(out.run, light.sha256, light.content)
        return light.result

    def _light(self, content: bytes, sha256: str, inline: bool) -> Light:
        try:
            value = msgspec.json.decode(content)
            many = content.count(b"[") + content.count(b"{") > MAX_DEPTH
            if many and deeper_than(value, MAX_DEPTH):
                raise RecursionError
        except RecursionError:
            message = f"the payload {sha256} nests more than {MAX_DEPTH} levels: flatten the result"
            raise InputError(message, code="too_deep") from None
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            message = f"the payload {sha256} is not JSON: {error}"
            raise InputError(message, code="not_json") from None
        if inline:
            return Light(value)
        most = self._settings
        try:
            return lighten(value, most.inline_bytes_max, most.result_bytes_max)
        except TooLarge as error:
            raise InputError(error.message, code="too_large") from None

    async def child(
        self,
        out: Out,
        *,
        path: str,
        given: Mapping[str, Any],
        child: str,
        waits: bool,
        returns: str,
        marks: Mapping[str, Any] | None = None,
    ) -> str:
        """Begin the child run that a task of kind `playbook` asks for, once. `marks` stand for the
        secrets in what it is given."""
        live, job = held(self._engine, out, "running")
        if not _has_children(live.net, job.step):
            said = f"no task of step {job.step!r} is of kind playbook"
            raise Refused(said, code="no_children")
        if not child_of(out.run, child):
            said = f"{child[:200]!r} is not the id of a child of run {out.run}"
            raise InputError(said, code="bad_run_id")
        parent = f"{out.run}/{out.job}#{out.attempt}" if waits else None
        place = ""
        if self._engine.traces:
            place = traceparent(out.run, out.job, out.attempt, live.state.trace)
        with working_in(place):
            return await self._start_child(path, given, child, parent, returns, marks)

    # -- what a job may see ------------------------------------------------------------------

    def _may_see(self, live: LiveRun, job: Job, sha256: str) -> bool:
        runs = [live.state.run, "", *self._origins(live)]
        if live.state.parent is not None:  # whose payloads of scope `workflow` are these too
            runs.append(live.state.parent.partition("/")[0])
        if self._engine.store.holds_payload(sha256, runs):
            return True
        return _mentions(self._values(live, job), sha256)

    def _origins(self, live: LiveRun) -> Iterator[str]:
        """The runs that this one goes on from."""
        origin = live.state.origin
        for _ in range(ORIGINS_MAX):
            if origin is None:
                return
            yield origin
            head = self._engine.store.head(origin)
            origin = head.origin if head is not None else None

    def _values(self, live: LiveRun, job: Job) -> Sequence[Any]:
        """Everything that the templates of the job can name an address from."""
        token = live.state.tokens.get(job.token)
        tracker = live.state.loops.get(token.loop) if token is not None and token.loop else None
        found = self._engine.store.definition(live.state.definition)
        return (
            found.source if found is not None else "",
            job.memory,
            job.progress,
            job.heard,
            token.args if token is not None else None,
            token.payload if token is not None else None,
            tracker.source if tracker is not None else None,
            shared_names(live),
        )


def _mentions(values: Sequence[Any], text: str) -> bool:
    wanted = text.encode()
    return any(wanted in _encode(value) for value in values if value)


def _has_children(net: Net, step: str) -> bool:
    work = net.steps[step].work or DEFAULT_WORK
    program = getattr(work.program, "program", work.program)
    tasks = program.every_task() if program is not None else ()
    return work.kind == "playbook" or any(task.kind == "playbook" for task in tasks)
