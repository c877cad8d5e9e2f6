"""The host-owned run: after each change the host is shown the newest state, with its revision.

One write at a time for a run; what changes meanwhile is shown by the next one. A host that is away
is asked again, one that refuses after a minute; a revision that is not the newest is read anew.
What the host has closed stays as it is there. The last write of a run closes it, after the operator
was told and its artifact was kept, so a run that is still active at the host after a crash has
something left to be done.
"""

from __future__ import annotations

import asyncio
import logging
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from anabranch.cancel import cancel_and_wait
from anabranch.modules.arca.config import ArcaConfig
from anabranch.modules.arca.ends import RunEnds
from anabranch.modules.arca.host_runs import CLOSED_RUNS, CLOSED_STEPS, HostRuns
from anabranch.modules.arca.snapshots import ORDER_FIELDS, bare, fitting
from anabranch.modules.kit.host import HostRefused, HostUnavailable

logger = logging.getLogger("anabranch.module")

WRITES_AT_ONCE = 32
IDLE_KEPT = 2_000  # runs whose last state at the host is remembered; others are read again
STEPS_WRITTEN_ALONE = 2  # where more have changed the run is written as a whole
CONFLICTS_MAX = 20  # in a row, of one run; the host changes it for nobody else
REFUSED_SECONDS = 60.0  # before a run is shown again that the host has refused

#: The newest state of a run, and the decisions it waits for; None where there is no such run.
Look = Callable[[str], tuple[dict[str, Any], Sequence[str]] | None]
#: Told that the host knows the end of a run.
Closed = Callable[[str], None]


class _Shown:
    """What the host knows of a run."""

    def __init__(self) -> None:
        self.dirty = False
        self.known = False  # whether the rest says what the host has
        self.revision = 0
        self.run: dict[str, Any] = {}
        self.steps: dict[str, dict[str, Any]] = {}
        self.task: asyncio.Task[None] | None = None

    def learn(self, snapshot: Mapping[str, Any] | None) -> None:
        self.known = True
        self.revision = snapshot["revision"] if snapshot else 0
        self.run = {
            name: value
            for name, value in (snapshot or {}).items()
            if name not in ("steps", "schema", "module_id", "revision", "updated_at", "created_at")
        }
        self.steps = {step["step_id"]: step for step in (snapshot or {}).get("steps", ())}

    @property
    def closed(self) -> bool:
        return self.run.get("status") in CLOSED_RUNS


class RunMirror:
    def __init__(
        self, runs: HostRuns, ends: RunEnds, look: Look, config: ArcaConfig, closed: Closed
    ) -> None:
        self._host = runs
        self._ends = ends
        self._look = look
        self._config = config
        self._on_closed = closed
        self._runs: OrderedDict[str, _Shown] = OrderedDict()
        self._turns = asyncio.Semaphore(WRITES_AT_ONCE)
        self._closing = False

    async def create(self, document: Mapping[str, Any]) -> dict[str, Any]:
        """Make the run at the host, before anything of it is done; what it has become where it was
        made before. Raises `HostRefused` and `HostUnavailable`."""
        snapshot = await self._host.write(fitting(dict(document)), 0)
        self._of(document["run_id"]).learn(snapshot)
        return snapshot

    def changed(self, run: str) -> None:
        """Show the newest state of this run, soon."""
        if self._closing:
            return
        shown = self._of(run)
        shown.dirty = True
        if shown.task is None:
            shown.task = asyncio.get_running_loop().create_task(self._keep(run, shown))
            shown.task.add_done_callback(_report)

    def as_shown(self, document: dict[str, Any]) -> dict[str, Any]:
        """A state of a run with what the host knows of it besides: orders of before a restart."""
        shown = self._runs.get(document["run_id"])
        if shown is None or not shown.known:
            return {**document, "revision": 0}
        return {**_after(document, shown.steps), "revision": shown.revision}

    async def settled(self) -> None:
        """Returns when the host has been shown everything; for tests and for the end."""
        while tasks := [one.task for one in self._runs.values() if one.task is not None]:
            await asyncio.wait(tasks)

    async def close(self) -> None:
        """What was not shown is shown after the next start."""
        self._closing = True
        tasks = [one.task for one in self._runs.values() if one.task is not None]
        await cancel_and_wait(*tasks)

    # -- one run ---------------------------------------------------------------------------------

    def _of(self, run: str) -> _Shown:
        shown = self._runs.setdefault(run, _Shown())
        self._runs.move_to_end(run)
        if len(self._runs) > IDLE_KEPT:
            idle = (name for name, one in self._runs.items() if one.task is None and name != run)
            for name in list(idle)[: len(self._runs) - IDLE_KEPT]:
                del self._runs[name]
        return shown

    async def _keep(self, run: str, shown: _Shown) -> None:
        """Until the host has the newest state."""
        pauses = _Pauses(self._config)
        try:
            while shown.dirty:
                shown.dirty = False
                try:
                    async with self._turns:
                        await self._show(run, shown)
                except (HostUnavailable, HostRefused) as error:
                    shown.dirty = True
                    shown.known = shown.known and not _is_conflict(error)
                    await asyncio.sleep(pauses.after(run, error))
                else:
                    pauses = _Pauses(self._config)
        finally:
            shown.task = None
        if shown.closed:
            self._runs.pop(run, None)
            self._on_closed(run)

    async def _show(self, run: str, shown: _Shown) -> None:
        found = self._look(run)
        if found is None:
            return
        if not shown.known:
            shown.learn(await self._host.find(run))
        if shown.closed:
            return
        document, gates = found
        document = _after(document, shown.steps)
        await self._ends.tell(document, gates)
        closed = {name for name, one in shown.steps.items() if one["status"] in CLOSED_STEPS}
        try:
            await self._write(run, shown, fitting(document, closed))
        except HostRefused as error:
            if error.status not in (400, 413):
                raise
            logger.warning("run %s: %s; only its statuses are shown", run, error.message)
            shown.learn(await self._host.write(bare(document, closed), shown.revision))

    async def _write(self, run: str, shown: _Shown, document: dict[str, Any]) -> None:
        steps = [step for step in document["steps"] if shown.steps.get(step["step_id"]) != step]
        above = {name: value for name, value in document.items() if name != "steps"}
        if above == shown.run and len(steps) <= STEPS_WRITTEN_ALONE:
            for step in steps:
                shown.learn(await self._host.write_step(run, step, shown.revision))
        else:
            shown.learn(await self._host.write(document, shown.revision))


class _Pauses:
    """How long to wait before a run is shown again that the host did not take."""

    def __init__(self, config: ArcaConfig) -> None:
        self._next = config.host_retry_first_ms / 1000
        self._most = config.host_retry_max_ms / 1000
        self._conflicts = 0
        self._told = ""

    def after(self, run: str, error: HostUnavailable | HostRefused) -> float:
        if isinstance(error, HostUnavailable):
            pause, self._next = self._next, min(self._next * 2, self._most)
            return pause
        if _is_conflict(error) and self._conflicts < CONFLICTS_MAX:
            self._conflicts += 1
            return 0.0
        self._conflicts = 0
        if self._told != error.message:
            self._told = error.message
            logger.error("run %s: the host refuses its state: %s", run, error.message)
        return REFUSED_SECONDS


def _is_conflict(error: Exception) -> bool:
    """The host has another state of the run than it was taken to have, or none."""
    return isinstance(error, HostRefused) and error.status in (404, 409)


def _report(task: asyncio.Task[None]) -> None:
    """A defect is logged by the loop; a world for tests hears of it."""
    if not task.cancelled() and (defect := task.exception()) is not None:
        said = {"message": "a run could not be shown to the host", "exception": defect}
        asyncio.get_running_loop().call_exception_handler(said)


def _after(document: dict[str, Any], before: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    """The document as it may follow what the host has: what is closed there stays, and what is
    known there of an order is not forgotten."""
    steps = [_step_after(step, before.get(step["step_id"], {})) for step in document["steps"]]
    return {**document, "steps": steps}


def _step_after(step: dict[str, Any], before: Mapping[str, Any]) -> dict[str, Any]:
    if before.get("status") in CLOSED_STEPS:
        again = before["status"] == "failed" and step["attempt"] > before["attempt"]
        return step if again else dict(before)
    if before.get("attempt", 0) != step["attempt"]:
        return step
    kept = {name: before[name] for name in (*ORDER_FIELDS, "delivery") if name in before}
    return {**kept, **step}
