"""What the API answers with, as types: the schemas of the OpenAPI document come from here.

What only one module takes or gives is a type of that module.
"""

from __future__ import annotations

from datetime import UTC, datetime
from functools import lru_cache
from typing import Any, Literal

import msgspec

from anabranch.operations.definitions.inputs import RunInput
from anabranch.operations.read.event_view import EventRecord
from anabranch.operations.read.items import LoopItem
from anabranch.operations.read.joins import GatheredStep
from anabranch.operations.read.waiting import SignalView, Waiting
from anabranch.operations.runs.approvals import Approval
from anabranch.operations.runs.children import ChildRun
from anabranch.store.damage import damage_of
from anabranch.store.ports import DefinitionCard, Head
from anabranch.surfaces.http.io.problems import PlaceProblem


class Nothing(msgspec.Struct, forbid_unknown_fields=True):
    """There is nothing more to say; an empty object will do."""


class RunCard(msgspec.Struct):
    """A run in a list."""

    run: str
    name: str
    dialect: str
    status: str
    definition: str
    labels: dict[str, str]
    parent: str | None
    origin: str | None  # the run that it redrives
    redriven_by: list[str]  # the runs that redrive it, newest first
    finished: bool
    events: int
    created_at: int
    updated_at: int
    next_wake: int | None
    problems: int
    reason: str  # its problem, or what it waits for
    missing: list[str]
    created: str
    updated: str
    damage: str = ""  # what is wrong with what the store holds of it
    queued: str = ""  # of a queued run: under which keys it waits, and where it stands there


class RunPage(msgspec.Struct):
    items: list[RunCard]
    next: str | None


class Started(msgspec.Struct):
    """The run that was started; with an Idempotency-Key every repeat gets the same."""

    run: str
    origin: str | None = None


class StepShown(msgspec.Struct, omit_defaults=True, kw_only=True):
    runs: int
    status: str
    statuses: list[str]  # of the last runs, if there are many
    result: Any
    state: str  # the status of its last run in plain words: queued, retrying, valid, invalid …
    outcome: str = ""  # what its work calls what the last one came to, such as valid
    by_error: str = ""  # why that is a no although no rule said so, or why it was skipped
    earlier: dict[str, int] | None = None  # how many of the others are in which status


class JoinShown(msgspec.Struct):
    target: str
    verdict: str
    selected: list[str]
    late: int


class RunProblem(msgspec.Struct):
    code: str
    message: str


class RunShown(msgspec.Struct, omit_defaults=True):
    """Everything about one run that fits on a page."""

    run: str
    name: str
    dialect: str
    status: str
    result: Any
    steps: dict[str, StepShown]
    joins: list[JoinShown]
    problem: RunProblem | None
    problems: int  # step runs that did not end as they should, with the tolerated ones
    tolerated: int
    handled: int  # failures that have a way of their own out of their step
    input: Any
    context: Any
    labels: dict[str, str]
    definition: str
    origin: str | None  # the run that it redrives
    redriven_by: list[str]  # the runs that redrive it, newest first
    parent: str | None
    created_at: int
    updated_at: int
    finished_at: int | None
    events: int
    failures: list[dict[str, Any]]
    redacted: dict[str, int]  # step → places in its answers with stars for a secret
    loops: list[dict[str, Any]]
    waiting: list[Waiting]
    created: str
    updated: str
    signals: list[SignalView] = []  # that it keeps
    session: dict[str, Any] | None = None
    joins_dropped: int | None = None
    execution_number: str | None = None  # of a playbook: what `execution_id` is in it


class Explained(msgspec.Struct):
    run: str
    name: str
    status: str
    problems: int  # as of the run itself
    tolerated: int
    handled: int
    went_wrong: str  # the first thing that did not end as it should; "" where all did
    engine: str | None
    waiting: list[Waiting]
    signals: list[SignalView] = []  # that it keeps
    #: Runs that its tasks have begun without waiting for them, and that have not ended well.
    children: list[ChildRun] = []


class EventPage(msgspec.Struct):
    """Request the rest with `after=next`; `next` is null at the end of the log."""

    items: list[EventRecord]
    next: int | None
    finished: bool


class RunStatus(msgspec.Struct):
    """The status of the run after the request was recorded."""

    run: str
    status: str


class Woken(msgspec.Struct):
    run: str
    woken: int | None  # None where it is not counted


class LoopPage(msgspec.Struct):
    items: list[dict[str, Any]]


class ItemPage(msgspec.Struct):
    loop: str
    step: str
    status: str
    total: int | None
    succeeded: int
    failed: int
    items: list[LoopItem]
    next: int | None
    failures: dict[str, int] | None


class JoinPage(msgspec.Struct):
    """Joins that were settled, and those that wait, slot by slot."""

    items: list[JoinShown]
    open: list[Waiting]
    dropped: int
    gathered: list[GatheredStep]  # newest first: joins, fan-ins and barriers with their rounds
    gathers_dropped: int  # earlier gathers, which only the events have


class RowPage(msgspec.Struct):
    items: list[dict[str, Any]]


class ApprovalPage(msgspec.Struct):
    items: list[Approval]
    next: str | None


class Checked(msgspec.Struct):
    ok: bool
    name: str | None
    dialect: str | None
    fingerprint: str | None
    problems: list[PlaceProblem]
    inputs: list[RunInput]  # what runs of it are given


class DefinitionListed(msgspec.Struct):
    fingerprint: str
    dialect: str
    name: str
    origin: str
    created_at: int
    created: str


class DefinitionShown(DefinitionListed):
    source: str


class Published(DefinitionListed):
    """`new` is false where the very same definition was there already."""

    new: bool
    problems: list[PlaceProblem]


class DefinitionPage(msgspec.Struct):
    items: list[DefinitionListed]
    next: str | None


class Respelled(msgspec.Struct):
    definition: str
    changed: bool


class Graph(msgspec.Struct):
    format: Literal["mermaid", "dot", "svg"]
    graph: str


@lru_cache(maxsize=1024)  # who asks again and again sees the same instants
def instant(ms: int) -> str:
    """RFC 3339, for people."""
    return datetime.fromtimestamp(ms / 1000, UTC).isoformat(timespec="milliseconds")


def run_card(head: Head, redriven_by: list[str], missing: list[str], queued: str = "") -> RunCard:
    return RunCard(
        run=head.run,
        name=head.name,
        dialect=head.dialect,
        status=head.status,
        definition=head.definition,
        labels=dict(head.labels),
        parent=head.parent,
        origin=head.origin,
        redriven_by=redriven_by,
        finished=head.finished,
        events=head.seq,
        created_at=head.created_at,
        updated_at=head.updated_at,
        next_wake=head.next_wake,
        problems=head.problems,
        reason=head.reason,
        missing=missing,
        created=instant(head.created_at),
        updated=instant(head.updated_at),
        damage=damage_of(head),
        queued=queued,
    )


def listed(card: DefinitionCard) -> dict[str, Any]:
    fields: dict[str, Any] = msgspec.structs.asdict(card)
    return {**fields, "created": instant(card.created_at)}
