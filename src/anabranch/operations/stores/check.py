"""Is everything in a store what was written? Reads all of it, and says what is not, run by run.

Every log is replayed through the kernel and must lead to its head; a snapshot must be the state
that the log has at that event; a payload must have its hash; a definition must compile to its
fingerprint; what is sealed must open; partitions, cursors and messages must agree with the log;
schedules and other records must be readable and due when they say; streams of a node must have no
gaps and end where their cards say.
Memory holds one run at a time.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator
from typing import Literal, cast

import msgspec

from anabranch.errors import AnabranchError, DamagedRun
from anabranch.kernel.evolve import evolve
from anabranch.kernel.quiescence import status_of
from anabranch.kernel.state import State, encode_state
from anabranch.kernel.timing import next_wake
from anabranch.operations.access.secret_key import SecretKey
from anabranch.operations.definitions import templates
from anabranch.operations.stores.records import wrong_with_record
from anabranch.operations.stores.sealed_values import unopened
from anabranch.operations.stores.streams import wrong_with_stream
from anabranch.runtime.child_runs import may_be_child
from anabranch.runtime.messages.codec import read_message
from anabranch.runtime.nets import Compile
from anabranch.runtime.values.sealing import opened
from anabranch.store.damage import damage_of, events_of, require_next, state_in
from anabranch.store.inspection import Inspection
from anabranch.store.ports import Definition, Head, StateSnapshot

PROBLEMS_KEPT = 1000  # more are counted

Part = Literal[
    "file", "definition", "head", "log", "snapshot", "payload", "hold", "sealed", "partition",
    "webhook", "message", "counter", "credential", "stream", "record",
]  # fmt: skip
#: Called with what is looked at, how many are done and how many there are; may raise to give up.
Progress = Callable[[str, int, int], None]


class StoreProblem(msgspec.Struct, frozen=True, kw_only=True):
    """Something that is not what was written. `run` is empty where it belongs to none."""

    run: str
    part: Part
    message: str


class StoreReport(msgspec.Struct, kw_only=True):
    store: str
    runs: int = 0
    events: int = 0
    definitions: int = 0
    payloads: int = 0
    streams: int = 0  # of a node
    records: int = 0  # of features, such as schedules
    problems: list[StoreProblem] = []
    problems_not_listed: int = 0
    notes: list[str] = []

    @property
    def sound(self) -> bool:
        return not self.problems

    def add(self, run: str, part: Part, message: str) -> None:
        if len(self.problems) < PROBLEMS_KEPT:
            self.problems.append(StoreProblem(run=run, part=part, message=message))
        else:
            self.problems_not_listed += 1


def check_store(
    store: Inspection,
    compile_definition: Compile,
    progress: Progress,
    key: SecretKey | None = None,
) -> StoreReport:
    """Look at everything in the store as it is at this moment; with a key also at secrets."""
    report = StoreReport(store=store.shown, notes=store.notes())
    for line in store.integrity(lambda: progress("pages of the file", 0, 0)):
        report.add("", "file", line)
    parts: tuple[tuple[Part, Callable[[], None]], ...] = (
        ("definition", lambda: _definitions(store, compile_definition, report, progress)),
        ("head", lambda: _runs(store, report, progress)),
        ("payload", lambda: _payloads(store, report, progress)),
        ("hold", lambda: _loose_ends(store, report)),
        ("message", lambda: _messages(store, report)),
        ("partition", lambda: _disagreements(store, report, progress)),
        ("credential", lambda: _sealed(store, report, key)),
        ("stream", lambda: _streams(store, report, progress)),
        ("record", lambda: _records(store, report, progress)),
    )
    for part, look in parts:
        try:
            look()
        except AnabranchError as error:  # pages are damaged: the next table may be whole
            report.add("", part, error.message)
    return report


# -- definitions -----------------------------------------------------------------------------


def _definitions(
    store: Inspection, compile_definition: Compile, report: StoreReport, progress: Progress
) -> None:
    total = store.count("definitions")
    for definition in store.definitions():
        report.definitions += 1
        progress("definitions", report.definitions, total)
        if wrong := wrong_with(definition, compile_definition):
            name = f"definition {definition.fingerprint:.16} ({definition.name:.60})"
            report.add("", "definition", f"{name} {wrong}")


def wrong_with(definition: Definition, compile_definition: Compile) -> str:
    if definition.dialect == templates.DIALECT:
        return templates.wrong_with(definition)
    try:
        net = compile_definition(definition)
    except AnabranchError as error:
        return f"does not compile: {error.message:.200}"
    except Exception as error:  # a text that no author wrote may do anything
        return f"does not compile: {error!r:.200}"
    if net.fingerprint != definition.fingerprint:
        return f"has the fingerprint {net.fingerprint:.16}: its source was changed"
    return ""


# -- runs ------------------------------------------------------------------------------------


def _runs(store: Inspection, report: StoreReport, progress: Progress) -> None:
    total = store.count("heads")
    for head in store.heads():
        report.runs += 1
        progress("runs", report.runs, total)
        if damage := damage_of(head):
            report.add(head.run, "head", damage)
        try:
            _replay(store, head, report, lambda: progress("runs", report.runs, total))
        except AnabranchError as error:
            report.add(head.run, "log", getattr(error, "what", error.message))
        _open_sealed(store, head, report)
        if not store.has_definition(head.definition):
            report.add(head.run, "head", f"the store has no definition {head.definition:.16}")


def _replay(store: Inspection, head: Head, report: StoreReport, tick: Callable[[], None]) -> None:
    state = State()
    snapshot = store.snapshot(head.run)
    for record in store.records(head.run):
        tick()
        require_next(head.run, record, state.seq)
        for event in events_of(head.run, record):
            try:
                evolve(state, event, record.at)
            except Exception as error:  # an event that never follows the ones before it
                what = f"event {state.seq + 1} cannot be replayed ({error!r:.120})"
                raise DamagedRun(head.run, what) from error
            report.events += 1
        if snapshot is not None and snapshot.seq == state.seq:
            _compare_snapshot(head.run, snapshot, state, report)
            snapshot = None
    if snapshot is not None:
        what = f"the snapshot is of event {snapshot.seq}, at which no row of the log ends"
        report.add(head.run, "snapshot", what)
    for what in differences(head, state):
        report.add(head.run, "head", what)


def _compare_snapshot(run: str, snapshot: StateSnapshot, state: State, report: StoreReport) -> None:
    try:
        kept = state_in(run, snapshot)
    except DamagedRun as damage:
        report.add(run, "snapshot", damage.what)
        return
    if b'"tolerated":' not in snapshot.state:
        _add_newer(kept, state)
    _add_skips(kept, state)
    if encode_state(kept) != encode_state(state):
        plain = msgspec.json.encode
        names = [name for name in State.__struct_fields__
                 if plain(getattr(kept, name)) != plain(getattr(state, name))]  # fmt: skip
        what = f"the snapshot at event {snapshot.seq} differs from the log in {', '.join(names)}"
        report.add(run, "snapshot", what)


def _add_newer(kept: State, state: State) -> None:
    """What a snapshot from before these were counted cannot have."""
    kept.counts.tolerated = state.counts.tolerated
    for name, tally in kept.steps.items():
        if name in state.steps:
            tally.outcome = state.steps[name].outcome
            tally.by_error = state.steps[name].by_error


def _add_skips(kept: State, state: State) -> None:
    """Snapshots from before the reason of a skip was kept have none."""
    for name, tally in kept.steps.items():
        if name in state.steps and not tally.by_error and "skipped" in tally.statuses[-1:]:
            tally.by_error = state.steps[name].by_error


def differences(head: Head, state: State) -> Iterator[str]:
    """Where the index card does not say what the log says."""
    wake = None if state.finished else next_wake(state)
    pairs: tuple[tuple[str, object, object], ...] = (
        ("last event", head.seq, state.seq),
        ("run", head.run, state.run),
        ("status", head.status, _status_for(head, state)),
        ("end", head.finished, state.finished),
        ("definition", head.definition, state.definition),
        ("begin", head.created_at, state.started_at),
        ("next timer", None if head.finished else head.next_wake, wake),
        ("labels", dict(head.labels) if not head.damage else state.labels, state.labels),
        ("parent", head.parent, state.parent),
        ("origin", head.origin, state.origin),
    )
    for name, said, found in pairs:
        if said != found:
            yield f"{name}: its head says {said!r:.80}, its log {found!r:.80}"
            if name == "last event":
                return  # the rest follows from it


def _status_for(head: Head, state: State) -> str:
    """Of a run that waited, and whose child ended while it was set aside, only the head says that
    there is something to do for it (`Batch.to_recover`)."""
    status = status_of(state) if state.seq else ""
    if status == "waiting" and head.status == "running" and _waits_for_children(state):
        return "running"
    return status


def _waits_for_children(state: State) -> bool:
    return any(
        job.phase == "parked" and may_be_child(job.ticket, state.run) for job in state.jobs.values()
    )


# -- payloads and what hangs on them ---------------------------------------------------------


def _payloads(store: Inspection, report: StoreReport, progress: Progress) -> None:
    total = store.count("payloads")
    for sha256, content in store.payloads():
        report.payloads += 1
        progress("payloads", report.payloads, total)
        found = hashlib.sha256(content).hexdigest()
        if found != sha256:
            runs = ", ".join(store.holders(sha256)) or "no run"
            what = f"payload {sha256:.16} has the hash {found:.16}; it is held by {runs}"
            report.add("", "payload", what)


def _loose_ends(store: Inspection, report: StoreReport) -> None:
    tables: dict[str, Part] = {"log": "log", "snapshots": "snapshot", "sealed": "sealed"}
    for table, run in store.headless(PROBLEMS_KEPT):
        report.add(run, tables[table], f"the table {table} has rows of a run that has no head")
    for run, sha256 in store.holds_on_nothing(PROBLEMS_KEPT):
        report.add(run, "hold", f"it needs the payload {sha256:.16}, which is not there")


# -- the rest --------------------------------------------------------------------------------


def _open_sealed(store: Inspection, head: Head, report: StoreReport) -> None:
    """What a run that goes on will want to read."""
    if head.finished:
        return
    try:
        opened(store.sealed(head.run), head.run)
    except DamagedRun as damage:
        report.add(head.run, "sealed", damage.what)


def _messages(store: Inspection, report: StoreReport) -> None:
    for message in store.messages():
        try:
            read_message(message)
        except AnabranchError as error:
            report.add(message.run, "message", error.message)


def _disagreements(store: Inspection, report: StoreReport, progress: Progress) -> None:
    progress("partitions, webhooks and counters", 0, 0)
    for one in store.disagreements(PROBLEMS_KEPT):
        report.add(one.run, cast(Part, one.part), one.message)


def _streams(store: Inspection, report: StoreReport, progress: Progress) -> None:
    total = store.count("streams") if store.has_streams() else 0
    for card in store.streams():
        report.streams += 1
        progress("streams", report.streams, total)
        if wrong := wrong_with_stream(card, store.stream_events(card.stream)):
            report.add("", "stream", f"stream {card.stream:.120} {wrong}")
    for stream in store.cardless_streams(PROBLEMS_KEPT):
        report.add("", "stream", f"stream {stream:.120} has events and no card")


def _records(store: Inspection, report: StoreReport, progress: Progress) -> None:
    total = store.count("named_records")
    for record in store.named_records():
        report.records += 1
        progress("records", report.records, total)
        if wrong := wrong_with_record(record):
            report.add("", "record", f"{record.family:.60} {record.name:.120} {wrong}")


def _sealed(store: Inspection, report: StoreReport, key: SecretKey | None) -> None:
    for part, what in unopened(store, key) if key is not None else ():
        if part:
            report.add("", cast(Part, part), what)
        else:
            report.notes.append(what)
