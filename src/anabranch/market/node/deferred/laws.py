"""What must hold of deferred operations after every step, as functions over state and history."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from anabranch.market.documents import check
from anabranch.market.node.deferred.part import deferred_document, status_document
from anabranch.market.node.deferred.records import OPERATIONS, Deferred, Ended, Operation
from anabranch.market.node.entities import Entities
from anabranch.market.node.ledger.laws import everything


async def broken(entities: Entities) -> list[str]:
    """Which laws do not hold; an empty list is as it must be."""
    operations = await everything(entities, OPERATIONS)
    return [text for one, state in operations.items() for text in _of_operation(one, state)]


def _of_operation(operation_id: str, state: Operation) -> Iterator[str]:
    promise = state.promise
    for document in (deferred_document(operation_id, state), status_document(operation_id, state)):
        for problem in check(document, kind=document["schema"]):
            yield f"{operation_id}: {problem}"
    if state.result is not None and state.status != "completed":
        yield f"{operation_id} is {state.status} and has a result"
    if state.updated_at < promise.at:
        yield f"{operation_id} was changed before it began"
    if state.status == "cancelled" and promise.cancel_unavailable:
        yield f"{operation_id} was cancelled, which it does not allow"


def broken_history(operation_id: str, events: Sequence[Any]) -> Iterator[str]:
    """An operation begins once and ends at most once; nothing follows its end."""
    if [isinstance(event, Deferred) for event in events] != [True] + [False] * (len(events) - 1):
        yield f"{operation_id} did not begin exactly once"
    ends = [at for at, event in enumerate(events) if isinstance(event, Ended)]
    if ends and ends != [len(events) - 1]:
        yield f"{operation_id} went on after its end"
