"""Reading verbs: they need a store, not an engine, and work beside a running one."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from functools import cached_property
from typing import TYPE_CHECKING, Any

import msgspec

from anabranch.errors import AnabranchError, NotFound
from anabranch.ids import run_number
from anabranch.kernel.explain import Unfinished, explain, trouble_of
from anabranch.kernel.privacy import public
from anabranch.kernel.state import Job, State
from anabranch.kernel.step_status import step_statuses
from anabranch.kernel.summary import faults_of, joins_of, loops_of, problems_of, summarise
from anabranch.literals import ItemState
from anabranch.net.net import Net
from anabranch.operations.definitions.keychain_files import look_at_files
from anabranch.operations.definitions.preflight import Preflight
from anabranch.operations.read.event_view import EventRecord, EventView
from anabranch.operations.read.on_clusters import Clusters, placed
from anabranch.operations.read.waiting import (
    Waiting,
    awaited,
    kept_signals,
    place_words,
    signals_of,
    with_processes,
    worded,
)
from anabranch.operations.runs.children import (
    Relative,
    begun_children,
    through_children,
    unfinished_family,
)
from anabranch.operations.schedules.labels import begun_by
from anabranch.runtime.child_runs import is_child_of, may_be_begun_by_task, may_be_child
from anabranch.runtime.live_run import history, load_state
from anabranch.runtime.nets import Nets
from anabranch.runtime.values.payloads import mentions_ref, resolve
from anabranch.store.damage import damage_of, require_reached, require_sound
from anabranch.store.ports import Head, HeadFilter, Store
from anabranch.work.kinds.python.places import Places
from anabranch.work.values.payloads import holds_ref

if TYPE_CHECKING:
    from anabranch.operations.read.dispatches import Dispatch
    from anabranch.operations.read.items import Page
    from anabranch.operations.read.timeline import Timeline, Timelines

NEWEST = "last"
NEWEST_LOOKED_AT = 50


class Reader:
    def __init__(self, store: Store, nets: Nets, preflight: Preflight | None = None) -> None:
        self._store = store
        self._nets = nets
        #: Knows what the engine has; None where that is not known.
        self._preflight = preflight
        self._followed = ("", EventView(""))
        #: When a worker last asked for jobs of a pool, 0 for never; only an engine knows.
        self.asked: Callable[[str], int] | None = None
        #: Where the jobs of pools are that compute clusters do; only an engine knows.
        self.clusters: Clusters | None = None
        #: Of the processes of inline code; only an engine knows.
        self.processes: Places | None = None

    @cached_property
    def timelines(self) -> Timelines:
        """Readers in several threads share them."""
        from anabranch.operations.read.timeline import Timelines

        return Timelines()

    @property
    def store(self) -> Store:
        return self._store

    def find(self, name: str) -> Head:
        """The run with this id, the only one that begins so, or the newest one for `last`, which is
        no child of another."""
        if name == NEWEST:
            return self._newest()
        exact = self._store.head(name)
        if exact is not None:
            return exact
        found = self._store.heads(HeadFilter(run_prefix=name, limit=2)) if name else []
        if len(found) == 1:
            return found[0]
        if found:
            raise NotFound(f"several runs start with {name!r}: give more of the id")
        raise NotFound(f"there is no run {name!r}", hint="`anabranch runs` lists them")

    def _newest(self) -> Head:
        """A child only where there is no other among so many."""
        newest = self._store.heads(HeadFilter(limit=NEWEST_LOOKED_AT))
        if not newest:
            raise NotFound("there is no run in this store yet")
        return next((head for head in newest if not self._is_child(head)), newest[0])

    def _is_child(self, head: Head) -> bool:
        """Its parent may only have begun it; then its own state knows."""
        if head.parent or not may_be_begun_by_task(head.run):
            return bool(head.parent)
        with suppress(AnabranchError):  # whoever opens it says what is wrong with it
            return bool(self.state(head.run).begun_by)
        return False

    def runs(self, wanted: HeadFilter | None = None) -> list[dict[str, Any]]:
        """The index cards of the runs that fit, newest first."""
        heads = self._store.heads(wanted or HeadFilter())
        redriven = self.redriven_by(heads)
        return [
            {**head_fields(head), "redriven_by": redriven[head.run], "missing": self.missing(head)}
            | self._queued(head)
            for head in heads
        ]

    def redriven_by(self, heads: Iterable[Head]) -> dict[str, list[str]]:
        """run → the runs that redrive it, newest first."""
        found: dict[str, list[str]] = {head.run: [] for head in heads}
        for redrive in self._store.redrives(list(found)):
            found[redrive.origin or ""].append(redrive.run)
        return found

    def queued(self, head: Head) -> str:
        """Where a queued run stands; "" of any other."""
        return self.queue_place(head.run) if head.status == "queued" else ""

    def _queued(self, head: Head) -> dict[str, str]:
        return {"queued": said} if (said := self.queued(head)) else {}

    async def look_at_files(self, heads: Iterable[Head]) -> None:
        """What can be had of the keychains of these runs is known from here on."""
        if self._preflight is not None:
            await look_at_files(self._preflight.secrets, self, heads)

    def missing(self, head: Head) -> list[str]:
        """What an unfinished run needs and the engine does not have, as far as that is known."""
        if head.finished or self._preflight is None or damage_of(head):
            return []
        try:
            net = self.net(head)
            return self._missing(net, self.state_of(head)) if self._preflight.suspects(net) else []
        except AnabranchError:
            return []  # it cannot be read here; whoever opens it says so

    def _missing(self, net: Net, state: State) -> list[str]:
        if self._preflight is None:
            return []
        found = self._preflight.missing_for(net, state)
        return [f"{one.message} ({one.hint})" for one in found]

    def state(self, run: str) -> State:
        snapshot, tail = self._store.read_many([run])[run]
        return load_state(snapshot, tail, run)

    def state_of(self, head: Head) -> State:
        """The state of a run that was found; raises `DamagedRun` where the two do not agree."""
        require_sound(head)
        state = self.state(head.run)
        require_reached(head, state)
        return state

    def net(self, head: Head) -> Net:
        return self.net_of(head.definition)

    def net_of(self, definition: str) -> Net:
        return self._nets.get(definition)

    def private(self, run: str) -> str:
        """How keys begin that are not shown of this run."""
        return self.net(self.find(run)).private

    def summary(self, run: str, state: State | None = None) -> dict[str, Any]:
        """The object that `run --json` prints, with large results in full. Where the state is given
        the store is not asked for the run."""
        known = self.state_of(self.find(run)) if state is None else state
        return self._summary(self.net_of(known.definition), known)

    def _summary(self, net: Net, state: State) -> dict[str, Any]:
        summary = summarise(net, state)
        if not mentions_ref((summary["result"], summary["steps"])):
            return summary
        summary["result"] = self.whole(summary["result"])
        for step in summary["steps"].values():
            step["result"] = self.whole(step["result"])
        return summary

    def whole(self, value: Any) -> Any:
        """The value with large parts in full; as it travels, where a part is not kept any more."""
        if not holds_ref(value):
            return value
        try:
            return resolve(value, self._payload)
        except NotFound:
            return value

    def _payload(self, sha256: str) -> bytes | None:
        return self._store.payload(sha256)

    def show(self, run: str) -> dict[str, Any]:
        return self.show_head(self.find(run))

    def show_head(self, head: Head) -> dict[str, Any]:
        """The same of a run that was found."""
        state, net = self.state_of(head), self.net(head)
        return {
            **self._summary(net, state),
            **_number(net, state),
            "input": public(self.whole(state.workload), net.private),
            "context": public(self.whole(state.ctx), net.private),
            "labels": dict(head.labels),
            "definition": head.definition,
            "origin": head.origin,
            "redriven_by": self.redriven_by([head])[head.run],
            "parent": head.parent,
            "created_at": head.created_at,
            "updated_at": head.updated_at,
            "finished_at": state.finished_at or None,
            "events": head.seq,
            "started_with": dict(state.started_with),
            "missing": self._missing(net, state),
            "failures": faults_of(state),
            "redacted": dict(state.redacted),
            "loops": loops_of(state, max(head.updated_at, self._now())),
            "waiting": self._waiting(net, state),
            "signals": self._kept(net, state),
        }

    def items(
        self,
        run: str,
        loop: str,
        *,
        state: ItemState | None = None,
        error: str | None = None,
        after: int = -1,
        limit: int = 50,
    ) -> Page:
        """A page of the items of a loop, which is named by its step or its id.

        The next page is asked for with `after=page.more_after`, until that is None.
        """
        from anabranch.operations.read.items import ItemFilter, page_of

        wanted = ItemFilter(state=state, error=error, after=after, limit=limit)
        return page_of(self._store, self.state(self.find(run).run), loop, wanted)

    def explain(self, run: str) -> dict[str, Any]:
        """Why it is not finished: everything it waits for, and who can move it."""
        head = self.find(run)
        net, state = self.net(head), self.state_of(head)
        return {
            "run": head.run,
            "name": head.name,
            "status": head.status,
            "problems": problems_of(state),
            "tolerated": state.counts.tolerated,
            "handled": state.counts.handled,
            "went_wrong": trouble_of(state),
            "engine": self._store.owner(),  # None: nobody moves it at present
            "started_with": dict(state.started_with),
            "schedule": begun_by(state.labels),  # None: no schedule began it
            "missing": self._missing(net, state),
            "waiting": self._waiting(net, state),
            "signals": self._kept(net, state),
            "children": self.begun(head.run),
        }

    def signals(self, run: str) -> dict[str, Any]:
        """The names that the run can wait for, and its signals."""
        head = self.find(run)
        net, state = self.net(head), self.state_of(head)
        return {
            "run": head.run,
            "names": awaited(net),
            "items": [msgspec.to_builtins(one) for one in signals_of(net, state, self.whole)],
        }

    def _kept(self, net: Net, state: State) -> list[dict[str, Any]]:
        return [msgspec.to_builtins(one) for one in kept_signals(net, state, self.whole)]

    @staticmethod
    def _now() -> int:
        return int(time.time() * 1000)

    def _waiting(self, net: Net, state: State) -> list[dict[str, Any]]:
        unfinished = through_children(explain(net, state), state, self._child)
        found = [self._told(net, state, one) for one in unfinished]
        missing = self._preflight.missing_for(net, state) if self._preflight is not None else []
        if missing:
            why = "an engine that has what it needs: " + "; ".join(one.message for one in missing)
            movers = tuple(one.hint for one in missing)
            found.insert(0, Waiting("run", state.run, "", why, state.updated_at, None, movers))
        return [msgspec.to_builtins(one) for one in found]

    def begun(self, run: str) -> list[dict[str, Any]]:
        """The runs that it has begun without waiting for them, and that have not ended well."""
        found = begun_children(self._store, self.state_of, run)
        return [msgspec.to_builtins(one) for one in found]

    def unfinished_family(self, run: str) -> list[Relative]:
        """The unfinished runs that it waits for or has begun, and theirs."""
        return list(unfinished_family(self._store, self.state_of, run))

    def _child(self, state: State, job: Job) -> tuple[Net, State] | None:
        head = self._store.head(job.ticket) if may_be_child(job.ticket, state.run) else None
        if head is None or head.finished:
            return None
        child = self.state_of(head)
        return (self.net(head), child) if is_child_of(child, state.run, job.id) else None

    def _told(self, net: Net, state: State, one: Unfinished) -> Waiting:
        """One thing in words; a job of a pool also says who does that pool."""
        if one.step in net.steps:  # it may be of a child
            one = with_processes(net, state, one, self.processes)
        if self.clusters is not None:
            one, cluster = placed(state, one, self.clusters, self._now())
            if cluster is not None:
                return worded(one, cluster)
        if one.what == "run" and state.queued_for_place and (said := self.queue_place(state.run)):
            one = msgspec.structs.replace(one, waits_for=f"{one.waits_for}; {said}")
        return self._with_asked(worded(one))

    def queue_place(self, run: str) -> str:
        """Under which keys a queued run waits, and where it stands there; "" where it does not."""
        return place_words(self._store.places(run))

    def _with_asked(self, one: Waiting) -> Waiting:
        """A job that waits for its pool also says whether anybody serves that pool."""
        if not one.pool or self.asked is None:
            return one
        at = self.asked(one.pool)
        seconds = max(0, self._now() - at) // 1000
        said = (
            f"one last asked {seconds:,} s ago" if at else "none has asked since the engine started"
        )
        return msgspec.structs.replace(one, waits_for=f"{one.waits_for}; {said}")

    def events(self, run: str, after: int = 0) -> list[EventRecord]:
        """The recorded events numbered above `after`."""
        shown = self.shown(run, after)
        pairs = history(self._store.read(run, after), after, run)
        records = [shown.record(at, event) for at, event in pairs]
        self._followed = (run, shown)
        return records

    def shown(self, run: str, after: int = 0) -> EventView:
        """What has to be known of the events up to `after` to show those that follow."""
        followed, shown = self._followed
        if followed == run and shown.seq == after and after:
            return shown  # whoever follows a run asks again and again for what is new
        shown = EventView(run, self.private(run))
        if after:
            shown.skip(history(self._store.read(run), run=run)[:after])
        return shown

    def timeline(self, head: Head) -> Timeline:
        """What happened in it; reads what is new in the log."""
        return self.timelines.of(self._store, head)

    def joins(self, run: str) -> dict[str, Any]:
        """The joins that were settled, those that wait, and everything that was gathered."""
        from anabranch.operations.read.joins import gathered_steps, waiting_by_token

        head = self.find(run)
        require_sound(head)
        timeline = self.timeline(head)
        net, state = self.net(head), self.state_of(head)
        return {
            "items": joins_of(state),
            "open": [one for one in self._waiting(net, state) if one.get("slots")],
            "dropped": state.joins_dropped,
            "gathered": gathered_steps(timeline, net, state, waiting_by_token(net, state)),
            "gathers_dropped": timeline.gathers.dropped,
        }

    def dispatches(self, run: str) -> list[Dispatch]:
        """Every request that the run made of a participant, with what became of it.

        A no is there in full, because it says why; a large answer as it stands in the log.
        """
        from anabranch.operations.read.dispatches import dispatches_of  # only Arca runs have them

        head = self.find(run)
        found = dispatches_of(
            self.net(head), head.run, history(self._store.read(head.run), run=head.run)
        )
        for one in found:
            if one.outcome == "negative":
                one.record.response = self.whole(one.record.response)
        return found

    def snapshot(self, run: str) -> dict[str, Any]:
        """The run as a `WorkflowRunSnapshot`."""
        from anabranch.operations.read.snapshots import snapshot_of  # only Arca runs have one

        head = self.find(run)
        events = history(self._store.read(head.run), run=head.run)
        state = self.state(head.run)
        net = self.net(head)
        snapshot = snapshot_of(net, state, events, self.whole)
        whole: dict[str, Any] = public(self.whole(snapshot), net.private)
        return whole

    def graph(self, run: str, form: str) -> str:
        head = self.find(run)
        state = self.state(head.run)
        statuses = {name: one.status for name, one in step_statuses(state).items()}
        counts = {name: tally.runs for name, tally in state.steps.items()}
        return draw(self.net(head), form, statuses, counts)


def draw(
    net: Net,
    form: str,
    statuses: Mapping[str, str] | None = None,
    counts: Mapping[str, int] | None = None,
) -> str:
    from anabranch.net import draw as drawings  # few look at pictures

    forms = {"mermaid": drawings.mermaid, "dot": drawings.dot, "svg": drawings.svg}
    return forms[form](net, statuses=statuses or {}, counts=counts or {})


def _number(net: Net, state: State) -> dict[str, str]:
    """What a run is in the queries of its playbook; as text, for readers of JSON with small
    numbers."""
    if net.dialect != "noetl":
        return {}
    return {"execution_number": str(run_number(state.root_run))}


def head_fields(head: Head) -> dict[str, Any]:
    """The index card; `damage` is there only where something is wrong with it."""
    fields: dict[str, Any] = msgspec.to_builtins(head)
    del fields["damage"]
    return {**fields, "damage": damage} if (damage := damage_of(head)) else fields
