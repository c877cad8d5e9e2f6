"""What must hold of deliveries and admissions after every step.

A delivery succeeds where a stage of its plan did, and ends once; an artifact is admitted once; what
one node calls admitted, the other one has accepted.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from anabranch.market.documents import check
from anabranch.market.documents.delivery import FAILURE_CLASSES
from anabranch.market.node.delivery.admission_records import (
    ADMISSIONS,
    INBOX,
    Admission,
    Decided,
    InboxEntry,
    Offered,
)
from anabranch.market.node.delivery.envelope import RESULT
from anabranch.market.node.delivery.inbox import INBOX_ACCEPTOR, entry_id_of
from anabranch.market.node.delivery.plan import Outcome, verdict
from anabranch.market.node.delivery.records import (
    CONTENTS,
    DELIVERIES,
    TERMINAL,
    Delivery,
    Ended,
    Expired,
    Promised,
    Submitted,
    Told,
    delivery_id_of,
)
from anabranch.market.node.delivery.views import result_document, status_document
from anabranch.market.node.entities import Entities
from anabranch.market.node.ledger.laws import everything


async def broken(entities: Entities) -> list[str]:
    """Which laws do not hold on this node; an empty list is as it must be."""
    deliveries = await everything(entities, DELIVERIES)
    contents = await everything(entities, CONTENTS)
    admissions = await everything(entities, ADMISSIONS)
    inbox = await everything(entities, INBOX)
    return [
        *(text for one, state in deliveries.items() for text in _of_delivery(one, state)),
        *(
            f"{one} has lost its bytes"
            for one, state in deliveries.items()
            if state.submitted.artifact.digest not in contents
        ),
        *(text for one, state in admissions.items() for text in _of_admission(one, state, inbox)),
        *(text for one, state in inbox.items() for text in _of_entry(one, state, deliveries)),
    ]


async def broken_between(
    source: Entities, node_id: str, others: Mapping[str, Entities]
) -> list[str]:
    """What the deliveries of one node call admitted and the receiving node does not know."""
    wrong = []
    accepted = {
        name: {
            (one.offered.peer, one.offered.digest)
            for one in (await everything(entities, ADMISSIONS)).values()
            if one.status == "accepted"
        }
        for name, entities in others.items()
    }
    for delivery_id, delivery in (await everything(source, DELIVERIES)).items():
        for outcome in _outcomes(delivery):
            admitted = outcome.status == "admitted" and outcome.node_id in others
            named = node_id, delivery.submitted.artifact.digest
            is_result = delivery.submitted.artifact.schema == RESULT  # orders admit those, too
            if admitted and not is_result and named not in accepted[outcome.node_id]:
                wrong.append(f"{delivery_id} was not admitted at {outcome.node_id}")
    return wrong


def _outcomes(delivery: Delivery) -> list[Outcome]:
    return [one for each in delivery.outcomes.values() for one in each]


def _of_delivery(delivery_id: str, state: Delivery) -> Iterator[str]:
    submitted = state.submitted
    for document in (result_document(delivery_id, state), status_document(delivery_id, state)):
        for problem in check(document, kind=document["schema"]):
            yield f"{delivery_id}: {problem}"
    expected = delivery_id_of(
        submitted.component_id,
        submitted.artifact.digest,
        submitted.plan_digest,
        submitted.idempotency_key,
    )
    if delivery_id != expected:
        yield f"{delivery_id} is not the id of what it delivers"
    won = any(
        verdict(stage, state.outcomes.get(stage.stage_id, ())) == "succeeded"
        for stage in submitted.stages
    )
    if won != (state.status == "succeeded"):
        which = "a" if won else "no"
        yield f"{delivery_id} is {state.status}, and {which} stage of its plan has succeeded"
    yield from _of_failure(delivery_id, state)
    nodes = {stage.stage_id: stage.nodes for stage in submitted.stages}
    for name, outcomes in state.outcomes.items():
        if tuple(one.node_id for one in outcomes) != nodes[name]:
            yield f"{delivery_id} has outcomes of others than the targets of {name}"
    if state.told and not (submitted.order_id and state.status in TERMINAL):
        yield f"{delivery_id} was told to an order before its end"


def _of_failure(delivery_id: str, state: Delivery) -> Iterator[str]:
    some = any(one.status == "admitted" for one in _outcomes(state))
    failed = state.status in ("partial", "failed-retryable", "failed-permanent")
    if failed and state.failure_class not in FAILURE_CLASSES:
        yield f"{delivery_id} is {state.status} for no known reason"
    if (state.status == "partial" and not some) or (state.status == "failed-permanent" and some):
        yield f"{delivery_id} is {state.status}, and {'some' if some else 'no'} target has it"
    if (state.status == "failed-retryable") != bool(state.next_at):
        yield f"{delivery_id} is {state.status} and is tried again at {state.next_at}"
    if state.status not in ("accepted", "expired") and not state.attempts:
        yield f"{delivery_id} is {state.status} without an attempt"


def _of_admission(
    admission_id: str, state: Admission, inbox: Mapping[str, InboxEntry]
) -> Iterator[str]:
    if state.told and state.offered.schema != RESULT:
        yield f"{admission_id} was told to an order, and is no result"
    if state.status == "pending" and (state.reason or state.artifact_ref or state.told):
        yield f"{admission_id} is pending with an outcome"
    entry = inbox.get(entry_id_of(admission_id))
    in_inbox = state.status == "accepted" and state.offered.acceptor_id == INBOX_ACCEPTOR
    if in_inbox and (entry is None or entry.received.digest != state.offered.digest):
        yield f"{admission_id} was admitted and is not in the inbox"


def _of_entry(
    entry_id: str, entry: InboxEntry, deliveries: Mapping[str, Delivery]
) -> Iterator[str]:
    if len({str(one.result) for one in entry.answers}) > 1:
        yield f"{entry_id} was answered with different results"
    for answer in entry.answers:
        if answer.delivery_id not in deliveries:
            yield f"{entry_id} was answered without a delivery"


# -- histories -------------------------------------------------------------------------------


def broken_delivery_history(delivery_id: str, events: Sequence[Any]) -> Iterator[str]:
    """It is submitted once and ends once; nothing but who knows of it changes after its end."""
    if [isinstance(event, Submitted) for event in events] != [True] + [False] * (len(events) - 1):
        yield f"{delivery_id} was not submitted exactly once"
    ends = [at for at, event in enumerate(events) if _is_end(event)]
    if len(ends) > 1:
        yield f"{delivery_id} ended {len(ends)} times"
    if ends and not all(isinstance(event, Promised | Told) for event in events[ends[0] + 1 :]):
        yield f"{delivery_id} went on after its end"


def _is_end(event: Any) -> bool:
    return isinstance(event, Expired) or (isinstance(event, Ended) and event.status in TERMINAL)


def broken_admission_history(admission_id: str, events: Sequence[Any]) -> Iterator[str]:
    """It is admitted once at most, and nothing else is offered under its key from then on."""
    accepted = [
        at
        for at, event in enumerate(events)
        if isinstance(event, Decided) and event.status == "accepted"
    ]
    if len(accepted) > 1:
        yield f"{admission_id} was admitted {len(accepted)} times"
    if accepted and any(
        isinstance(event, Offered | Decided) for event in events[accepted[0] + 1 :]
    ):
        yield f"{admission_id} was offered again after it was admitted"
