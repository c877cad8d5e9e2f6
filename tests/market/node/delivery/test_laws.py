"""The laws see what they are for: each is broken on purpose."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from anabranch.market.node.deferred import laws as deferred_laws
from anabranch.market.node.deferred import records as deferred
from anabranch.market.node.delivery import laws
from anabranch.market.node.delivery.admission_records import ADMISSIONS, Decided, Offered, Told
from anabranch.market.node.delivery.plan import Outcome, Stage
from anabranch.market.node.delivery.records import (
    CONTENTS,
    DELIVERIES,
    Artifact,
    Ended,
    Expired,
    Kept,
    Started,
    Submitted,
    delivery_id_of,
)
from anabranch.market.node.entities import Family
from in_loop import in_loop
from market.node.delivery.support import artifact, delivery_world
from market.support import node as node_id

B, C = node_id(2), node_id(3)
DIGEST = artifact()["digest"]
SUBMITTED = Submitted(
    component_id="arca",
    artifact=Artifact(schema="note.v1", content_type="x", digest=DIGEST, size=7),
    plan_digest="p",
    stages=(Stage(stage_id="s", policy="all", nodes=(B, C), need=2),),
    at=1,
    expires_at=2,
)
NAME = delivery_id_of("arca", DIGEST, "p", "")
IN, OUT = (Outcome(node_id=B, status="admitted"), Outcome(node_id=C, status="admitted"))
NOT = Outcome(node_id=C, status="permanent", failure_class="adapter-permanent")
OFFERED = Offered(
    at=1, adapter="peer", peer=C, component_id="arca", key="k", schema="note.v1",
    content_type="x", digest=DIGEST, size=7, acceptor_id="x",
)  # fmt: skip


def ended(status: Any, *outcomes: Outcome, **more: Any) -> Ended:
    return Ended(at=1, status=status, stage_id="s", outcomes=outcomes, **more)


async def broken_by(family: Family[Any], thing: str, *events: Any, content: bool = True) -> str:
    world = delivery_world("a")
    entities = world["a"].entities
    with entities.change() as change:
        if content:
            change.add(CONTENTS, DIGEST, Kept(base64="ImhlbGxvIg==", size=7))
        for event in events:
            change.add(family, thing, event)
    return "; ".join(world["a"].run(laws.broken(entities)))


@pytest.mark.parametrize(
    ("events", "told"),
    [
        ([SUBMITTED, Started(at=1), ended("succeeded", IN, OUT)], ""),
        ([SUBMITTED, Started(at=1), ended("succeeded", IN, NOT)], "no stage of its plan"),
        ([SUBMITTED, Started(at=1), ended("failed-permanent", IN, OUT)], "a stage of its plan"),
        (
            [SUBMITTED, Started(at=1), ended("failed-permanent", IN, NOT, failure_class="x")],
            "for no known reason",
        ),
        (
            [SUBMITTED, Started(at=1),
             ended("failed-permanent", IN, NOT, failure_class="ledger-error")],
            "some target has it",
        ),
        ([SUBMITTED, Started(at=1), ended("partial", NOT, NOT)], "no target has it"),
        ([SUBMITTED, Started(at=1), ended("failed-retryable", IN, NOT)], "tried again at 0"),
        ([SUBMITTED, ended("partial", IN, NOT)], "without an attempt"),
        ([SUBMITTED, Started(at=1), ended("succeeded", OUT, IN)], "of others than the targets"),
        ([msgspec.structs.replace(SUBMITTED, component_id="x")], "is not the id"),
    ],
)  # fmt: skip
@in_loop
async def test_a_delivery_that_is_not_what_it_says_is_found(events: Any, told: str) -> None:
    found = await broken_by(DELIVERIES, NAME, *events)
    assert told in found
    assert bool(found) == bool(told)


@in_loop
async def test_a_delivery_without_its_bytes_is_found() -> None:
    assert "has lost its bytes" in await broken_by(DELIVERIES, NAME, SUBMITTED, content=False)


@in_loop
async def test_an_admission_that_is_not_in_the_inbox_is_found() -> None:
    offered = msgspec.structs.replace(OFFERED, acceptor_id="host.inbox")
    decided = Decided(at=1, status="accepted")
    assert "not in the inbox" in await broken_by(ADMISSIONS, "admission:x", offered, decided)
    assert "is no result" in await broken_by(ADMISSIONS, "admission:x", OFFERED, Told(at=1))
    assert await broken_by(ADMISSIONS, "admission:x", OFFERED, decided) == ""


@in_loop
async def test_a_target_that_never_admitted_the_artifact_is_found() -> None:
    world = delivery_world("a", "b")
    a, b = world["a"], world["b"]
    stage = Stage(stage_id="s", policy="all", nodes=(b.node_id,), need=1)
    submitted = msgspec.structs.replace(SUBMITTED, stages=(stage,))
    outcome = Outcome(node_id=b.node_id, status="admitted")
    with a.entities.change() as change:
        for event in (submitted, Started(at=1), ended("succeeded", outcome)):
            change.add(DELIVERIES, NAME, event)
    others = {b.node_id: b.entities}
    a.run(a.entities.durable())
    assert a.run(laws.broken_between(a.entities, a.node_id, others)) != []
    with b.entities.change() as change:
        offered = msgspec.structs.replace(OFFERED, peer=a.node_id)
        change.add(ADMISSIONS, "admission:x", offered)
        change.add(ADMISSIONS, "admission:x", Decided(at=1, status="accepted"))
    b.run(b.entities.durable())
    assert a.run(laws.broken_between(a.entities, a.node_id, others)) == []


@pytest.mark.parametrize(
    ("events", "wrong"),
    [
        ([SUBMITTED, Started(at=1), Expired(at=1)], 0),
        ([SUBMITTED, Expired(at=1), Started(at=1)], 1),
        ([SUBMITTED, Expired(at=1), Expired(at=1)], 2),
        ([SUBMITTED, SUBMITTED], 1),
        ([Started(at=1)], 1),
    ],
)
def test_a_history_in_which_a_delivery_begins_or_ends_twice_is_found(
    events: Any, wrong: int
) -> None:
    assert len(list(laws.broken_delivery_history("x", events))) == wrong


def test_a_history_in_which_an_artifact_is_admitted_twice_is_found() -> None:
    accepted, rejected = (Decided(at=1, status="accepted"), Decided(at=1, status="rejected"))
    fine = [OFFERED, rejected, OFFERED, accepted]
    assert list(laws.broken_admission_history("x", fine)) == []
    assert len(list(laws.broken_admission_history("x", [*fine, accepted]))) == 2
    assert len(list(laws.broken_admission_history("x", [*fine, OFFERED]))) == 1


def test_a_history_in_which_an_operation_goes_on_after_its_end_is_found() -> None:
    promise = deferred.Deferred(
        kind="k", key="x", owner="arca", at=1, expires_at=2, retry_after_seconds=1, status_href="/"
    )
    end, run = deferred.Ended(at=1, status="failed"), deferred.Running(at=1)
    assert list(deferred_laws.broken_history("x", [promise, run, end])) == []
    assert len(list(deferred_laws.broken_history("x", [promise, end, run]))) == 1
    assert len(list(deferred_laws.broken_history("x", [promise, end, end]))) == 1
    assert len(list(deferred_laws.broken_history("x", [run]))) == 1
