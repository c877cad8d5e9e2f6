"""The laws see what breaks them."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from anabranch.market.node.modules.api.completed_steps import StepCompleted, record_id_of
from anabranch.market.node.modules.api.records import StoredRecord
from anabranch.market.node.modules.api.runs import WorkflowRun
from anabranch.market.node.modules.api.words import stream_key
from anabranch.market.node.modules.laws import (
    completed_laws,
    record_laws,
    run_history_laws,
    run_laws,
)

RECORD = StoredRecord(
    module_id="m", record_kind="k", record_id="r", payload=1, owner_participant_id="",
    created_at=1, updated_at=1,
)  # fmt: skip
KEY = stream_key("m", "k", "r")


@pytest.mark.parametrize(
    ("change", "key", "sound"),
    [
        ({}, KEY, True),
        ({"deleted": True, "payload": None}, KEY, True),
        ({"deleted": True}, KEY, False),
        ({"created_at": 2}, KEY, False),
        ({"module_id": "n"}, KEY, False),
        ({}, "other", False),
    ],
)
def test_laws_of_records(change: dict[str, Any], key: str, sound: bool) -> None:
    assert (record_laws(key, msgspec.structs.replace(RECORD, **change)) == []) is sound


def state(revision: int, status: str, *steps: tuple[str, str], **dispatch: Any) -> WorkflowRun:
    parts: list[dict[str, Any]] = [
        {"step_id": name, "status": one, "dispatches": [dispatch] if dispatch else []}
        for name, one in steps
    ]
    return WorkflowRun(
        module_id="m",
        run={"run_id": "r", "status": status, "steps": parts},
        revision=revision,
        created_at=1,
        updated_at=1,
        made_by="",
        last_base=revision - 1,
        last_write="",
    )


@pytest.mark.parametrize(
    ("one", "sound"),
    [
        (state(1, "running", ("s", "pending"), dispatch_id="d"), True),
        (state(1, "running", ("s", "pending"), dispatch_id="d", response=None), False),
        (state(0, "running"), False),
        (msgspec.structs.replace(state(1, "running"), last_base=1), False),
        (msgspec.structs.replace(state(1, "running"), run={"run_id": "x", "steps": []}), False),
    ],
)
def test_laws_of_runs(one: WorkflowRun, sound: bool) -> None:
    assert (run_laws("r", one) == []) is sound


@pytest.mark.parametrize(
    ("later", "sound"),
    [
        (state(2, "completed", ("a", "completed"), ("b", "resolving")), True),
        (state(2, "running", ("a", "completed"), ("b", "retry_wait"), ("c", "pending")), True),
        (state(3, "running", ("a", "completed"), ("b", "failed")), False),
        (state(2, "running", ("a", "failed"), ("b", "failed")), False),
        (state(2, "running", ("a", "completed")), False),
    ],
)
def test_laws_of_histories(later: WorkflowRun, sound: bool) -> None:
    first = state(1, "running", ("a", "completed"), ("b", "failed"))
    assert (run_history_laws("r", [first, later]) == []) is sound
    assert run_history_laws("r", [state(1, "failed"), state(2, "running")]) != []


def test_laws_of_completed_steps() -> None:
    record = {"run_id": "r", "step_id": "s"}
    one = StepCompleted(module_id="m", run_id="r", step_id="s", record=record, at=1)
    assert completed_laws(record_id_of("m", record), one) == []
    assert completed_laws(record_id_of("n", record), one) != []
