"""What the work of a job needs from the server, and what is too large for its report.

A worker sees what its job sees, and no more: `runtime.values.read_rights` says from the record what
that is, whatever the worker has written. A hash that leads elsewhere is answered like one that
leads nowhere. A child run is begun as the task says (`operations.workers.child_requests`).

What is only read, and payloads, are in the store: on one that several servers share, each of them
can be asked. A child is begun by the server that owns the run of the job.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterator, Mapping
from functools import partial
from typing import Any

import msgspec

from anabranch import files
from anabranch.errors import DefinitionError, InputError, NotFound, Refused
from anabranch.kernel.idempotency import key_of
from anabranch.kernel.state import Job
from anabranch.operations.definitions.catalog import plain_path
from anabranch.operations.workers.child_requests import ChildRequest, agreed, beside, has_children
from anabranch.operations.workers.leases import (
    LeaseClaim,
    require_lease_holder,
    require_reader,
)
from anabranch.runtime.engine import EngineLoop
from anabranch.runtime.live_run import LiveRun
from anabranch.runtime.values.payloads import Light, TooLarge, lighten
from anabranch.runtime.values.sealing import Sealed, checked_marks, seal
from anabranch.settings import Settings
from anabranch.store.ports import Definition
from anabranch.work.kinds.child import child_of, name_in_run
from anabranch.work.loops.results import Loops, page_of
from anabranch.work.run_at_work import working_for
from anabranch.work.tracing import traceparent, working_in
from anabranch.work.values.payloads import StoredPayloads, encoded, purged, read_untrusted

RESULTS_BYTES = 4 * 1024 * 1024
READ_AT_ONCE = 2  # payloads, each of which may take ten times its size in memory

log = logging.getLogger("anabranch.engine")


class ResultsPage(msgspec.Struct, frozen=True, kw_only=True):
    """Results of a loop in the order of its items, from `first` on: as many as fit."""

    total: int
    first: int
    results: list[Any]


#: As in `work.child`, and the secrets for which marks stand in the input.
StartChild = Callable[
    [str, Mapping[str, Any], str, str | None, str, Mapping[str, Any] | None], Awaitable[str]
]


class JobData:
    """One per engine."""

    def __init__(
        self,
        engine: EngineLoop,
        settings: Settings,
        *,
        loops: Loops,
        start_child: StartChild,
    ) -> None:
        self._engine = engine
        self._settings = settings
        self._loops = loops
        self._start_child = start_child
        self._payloads = StoredPayloads(engine.store, aside=True)
        self._reading = asyncio.Semaphore(READ_AT_ONCE)

    @property
    def bytes_max(self) -> int:
        """Of a payload."""
        return self._settings.payload_bytes_max

    async def definition(self, out: LeaseClaim) -> Definition:
        """The source of what the job is part of."""
        live, _ = await require_reader(self._engine, out)
        found = self._engine.store.definition(live.state.definition)
        if found is None:
            raise NotFound(f"the store has no definition {live.state.definition}")
        return found

    async def payload(self, out: LeaseClaim, sha256: str) -> bytes:
        await require_reader(self._engine, out)
        if not self._engine.rights.strictly_payload(out.run, sha256):
            raise purged(sha256)
        content = await self._payloads.get(sha256)
        if content is None:
            raise purged(sha256)
        return content

    async def require_job(self, out: LeaseClaim) -> None:
        """Raises where it is not out with this worker."""
        await require_reader(self._engine, out)

    async def put_payload(self, out: LeaseClaim, content: bytes) -> str:
        """Keep what is too large for a report; gives its hash. That is another one than the worker
        may expect where the content had a sealed secret of its run in it."""
        live, _ = await require_reader(self._engine, out)
        async with self._reading:
            content = await asyncio.to_thread(self._checked, live.sealed, content)
        return await self._payloads.put(content, out.run)

    def _checked(self, sealed: Sealed, content: bytes) -> bytes:
        """Whoever reads it later, perhaps in a turn of the engine, finds JSON of a known size."""
        value = read_untrusted(content, self._settings.payload_bytes_max, "the payload")
        cleaned = sealed.clean_value(value)
        return content if cleaned is value else encoded(cleaned)

    async def results(self, out: LeaseClaim, ref: str, first: int, stop: int) -> ResultsPage:
        """Results of a loop that the run of the job may read."""
        await require_reader(self._engine, out)
        if not self._engine.rights.strictly_loop(out.run, ref):
            raise NotFound(f"the job knows of no loop {ref:.200}", code="no_loop")
        total = await self._loops.size(ref)
        first = min(first, total)
        found = await page_of(self._loops, ref, first, min(stop, total), RESULTS_BYTES)
        return ResultsPage(total=total, first=first, results=found)

    async def whole(self, out: LeaseClaim, sha256: str, *, inline: bool) -> Any:
        """The result of a report that was sent ahead as a payload, fit to be recorded."""
        content = await self.payload(out, sha256)
        async with self._reading:
            light = await asyncio.to_thread(self._light, content, sha256, inline)
        if light.sha256 and light.sha256 != sha256:  # it was written in another way than ours
            self._engine.keep_payload(out.run, light.sha256, light.content)
        return light.result

    def _light(self, content: bytes, sha256: str, inline: bool) -> Light:
        most = self._settings
        value = read_untrusted(content, most.result_bytes_max, f"the payload {sha256}")
        if inline:
            return Light(value)
        try:
            return lighten(value, most.inline_bytes_max, most.result_bytes_max)
        except TooLarge as error:
            raise InputError(error.message, code="too_large") from None

    async def child(
        self,
        out: LeaseClaim,
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
        live, job = require_lease_holder(self._engine, out, "running")
        if not has_children(live.net, job.step):
            said = f"no task of step {job.step!r} is of kind playbook"
            raise Refused(said, code="no_children")
        if not any(child_of(key, child) for key in _keys(live, job)):
            said = f"{child[:200]!r} is not the id of a child of job {out.job} of run {out.run}"
            raise InputError(said, code="bad_run_id")
        fetch = self._engine.rights.fetch(out.run)
        asked = ChildRequest(path, given, waits, returns)
        begun = await agreed(live, job, asked, fetch, partial(self._near, live))
        require_lease_holder(self._engine, out, "running")  # to work that out took its time
        parent = f"{out.run}/{out.job}#{out.attempt}" if begun.waits else None
        place = ""
        if self._engine.traces:
            place = traceparent(out.run, out.job, out.attempt, live.state.trace)
        with working_in(place), working_for(out.run):
            shown, more = seal(begun.given, live.sealed.scope())
            all_marks = {**(checked_marks(marks) or {}), **more}
            return await self._begin(begun._replace(given=shown), child, parent, all_marks)

    async def _begin(
        self, begun: ChildRequest, child: str, parent: str | None, marks: Mapping[str, Any] | None
    ) -> str:
        """What is wrong with a file of the server is for its log, and not for a worker."""
        try:
            return await self._start_child(
                begun.path, begun.given, child, parent, begun.returns, marks
            )
        except (DefinitionError, InputError, NotFound) as error:
            log.warning("the child %s of %s cannot be started: %s", child, begun.path, error)
            raise Refused(
                f"the server cannot start {begun.path[:200]!r} ({error.code}); its log says why, "
                "and so does `anabranch check` there",
                code="child_refused",
            ) from None

    async def _near(self, live: LiveRun, path: str) -> bool:
        """Whether a path that only the worker knows may be begun. It may lead to a dead mount."""
        named = plain_path(path)
        if named and self._engine.rights.named(live.state.run, named):
            return True
        definition = self._engine.store.definition(live.state.definition)
        if definition is None:
            return False
        look = partial(beside, definition.origin, path)
        return await files.in_thread(look, f"the child {path[:200]!r}")


def _keys(live: LiveRun, job: Job) -> Iterator[str]:
    """With what the keys of the work in this job begin: its own, or that of its loop."""
    state = live.state
    yield name_in_run(state.run, key_of(state, job.id))
    token = state.tokens.get(job.token)
    if token is not None and token.loop:
        yield name_in_run(state.run, key_of(state, token.loop))
