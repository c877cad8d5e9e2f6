"""Laws of what modules have at their node, over the state: each names what breaks it."""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator
from itertools import pairwise
from typing import TypeVar

from anabranch.market.node.entities import Entities, Family
from anabranch.market.node.modules.api.completed_steps import (
    COMPLETED,
    StepCompleted,
    record_id_of,
)
from anabranch.market.node.modules.api.records import RECORDS, StoredRecord
from anabranch.market.node.modules.api.run_shapes import CLOSED_RUNS, CLOSED_STEPS
from anabranch.market.node.modules.api.runs import RUNS, WorkflowRun, snapshot
from anabranch.market.node.modules.api.words import stream_key
from anabranch.market.node.modules.routes import CLAIMS

S = TypeVar("S")
PAGE = 500


async def broken_laws(entities: Entities) -> list[str]:
    """What is wrong with the state of modules, for a test to look at after any step."""
    found: list[str] = []
    async for thing, record in _all(entities, RECORDS):
        found += record_laws(thing, record)
    async for thing, run in _all(entities, RUNS):
        found += run_laws(thing, run)
    async for thing, completed in _all(entities, COMPLETED):
        found += completed_laws(thing, completed)
    owners = Counter([
        tuple(route) async for _, claims in _all(entities, CLAIMS) for route in claims.routes
    ])  # fmt: skip
    found += [f"two modules own {' '.join(route)}" for route, times in owners.items() if times > 1]
    return found


def record_laws(thing: str, record: StoredRecord) -> list[str]:
    found = []
    if thing != stream_key(record.module_id, record.record_kind, record.record_id):
        found.append(f"the record {thing} is kept under the key of another")
    if record.deleted and (record.payload is not None or record.owner_participant_id):
        found.append(f"the tombstone {thing} holds a payload")
    if record.created_at > record.updated_at:
        found.append(f"the record {thing} was changed before it was made")
    return found


def run_laws(thing: str, run: WorkflowRun) -> list[str]:
    found = []
    if run.run["run_id"] != thing:
        found.append(f"the run {thing} says it is {run.run['run_id']}")
    if run.revision < 1 or run.last_base >= run.revision:
        found.append(f"the run {thing} was written on a revision that was not there")
    for step in snapshot(run)["steps"]:
        if any("response" in dispatch for dispatch in step["dispatches"]):
            found.append(f"the run {thing} shows a raw response in step {step['step_id']}")
    return found


def run_history_laws(thing: str, states: list[WorkflowRun]) -> list[str]:
    """An end is final and a step closes at most once; over the states after each event."""
    found = []
    for before, after in pairwise(states):
        if after.revision != before.revision + 1:
            found.append(f"the run {thing} skipped a revision")
        if before.run["status"] in CLOSED_RUNS:
            found.append(f"the run {thing} went on after its end")
        steps = {step["step_id"]: step for step in after.run["steps"]}
        for step in before.run["steps"]:
            later = steps.get(step["step_id"])
            if later is None:
                found.append(f"the run {thing} lost the step {step['step_id']}")
            elif step["status"] in CLOSED_STEPS - {"failed"} and later != step:
                found.append(f"the step {step['step_id']} of {thing} closed twice")
    return found


def completed_laws(thing: str, completed: StepCompleted) -> list[str]:
    if thing != record_id_of(completed.module_id, completed.record):
        return [f"the record {thing} is not what its id says"]
    return []


async def _all(entities: Entities, family: Family[S]) -> AsyncIterator[tuple[str, S]]:
    before: tuple[int, str] | None = None
    while page := await entities.listed(family, before=before, limit=PAGE):
        for thing, state, _ in page:
            yield thing, state
        before = page[-1][2].created_at, page[-1][2].stream
