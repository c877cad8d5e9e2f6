"""Workflow runs: revisions, ends that are final, and no raw answer of a participant anywhere."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from anabranch.market.node.api import Answer
from anabranch.market.node.modules.api.run_shapes import CLOSED_RUNS, CLOSED_STEPS
from anabranch.market.node.modules.api.runs import RUNS, WorkflowRun
from anabranch.market.node.modules.laws import broken_laws, run_history_laws
from anabranch.store.memory.store import MemoryStore

from ..support import Hosted, hosted, in_process, run

CONFIGS = [in_process("arca", enabled=False), in_process("dator", enabled=False)]
BASE = "/v1/module/workflow/runs"
RUN_STATUSES = ["pending", "running", "paused", *sorted(CLOSED_RUNS)]
STEP_STATUSES = [
    "pending", "resolving", "awaiting_fan_out", "awaiting_execution", "awaiting_fulfillment",
    "retry_wait", *sorted(CLOSED_STEPS),
]  # fmt: skip


DISPATCH = {
    "dispatch_id": "dispatch:1",
    "run_id": "run:1",
    "step_id": "s1",
    "target": "participant:did:key:zP",
    "dispatched_at": "2026-05-28T20:26:40.000Z",
    "responded_at": "2026-05-28T20:26:41.000Z",
    "status": "responded",
}


async def write(node: Hosted, as_: str = "arca", **body: Any) -> Answer:
    return await node.ask("POST", BASE, {"run_id": "run:1", "status": "running", **body}, as_=as_)


async def write_step(node: Hosted, step: str = "s1", as_: str = "arca", **body: Any) -> Answer:
    return await node.ask("POST", f"{BASE}/run:1/steps/{step}", body, as_=as_)


async def show(node: Hosted, as_: str = "arca") -> Any:
    return (await node.ask("GET", f"{BASE}/run:1", as_=as_)).body


def test_a_run_is_made_moved_and_read() -> None:
    async def scenario() -> None:
        async with hosted(configs=CONFIGS) as node:
            made = await write(
                node,
                workflow_id="w",
                input={"a": 1},
                deadline_at="2026-06-01T00:00:00Z",
                steps=[{"step_id": "s1", "service_type": "text/x", "depends_on": []}],
            )
            assert (made.status, made.body["revision"]) == (200, 1)
            moved = await write_step(
                node,
                revision=1,
                status="completed",
                attempt=1,
                execution={"completed": True},
                task={"fulfilled": None},
                output=None,
                selected_output={"x": 1},
                dispatches=[DISPATCH],
            )
            assert (moved.status, moved.body["revision"]) == (200, 2)
            assert await show(node) == moved.body == await show(node, "operator")
            assert moved.body == {
                "schema": "workflow-run-snapshot.v1",
                "run_id": "run:1",
                "workflow_id": "w",
                "workflow_kind": "service-order-orchestration",
                "module_id": "arca",
                "status": "running",
                "input": {"a": 1},
                "created_at": "2026-05-28T20:26:40.000Z",
                "updated_at": "2026-05-28T20:26:40.000Z",
                "deadline_at": "2026-06-01T00:00:00Z",
                "revision": 2,
                "steps": [
                    {
                        "step_id": "s1",
                        "status": "completed",
                        "attempt": 1,
                        "depends_on": [],
                        "execution": {"completed": True},
                        "task": {"fulfilled": None},
                        "output": None,
                        "selected_output": {"x": 1},
                        "dispatches": [DISPATCH],
                    }
                ],
            }
            again = await node.ask(
                "POST", BASE, {**moved.body, "status": "completed"}, as_="arca"
            )  # a snapshot can be handed back as it was read
            assert (again.status, again.body["revision"]) == (200, 3)

    run(scenario())


def test_a_write_is_answered_again_and_an_old_one_is_a_conflict() -> None:
    async def scenario() -> None:
        async with hosted(configs=CONFIGS) as node:
            first = await write(node, steps=[{"step_id": "s1"}])
            assert (await write(node, steps=[{"step_id": "s1"}])).body == first.body
            second = await write_step(node, revision=1, status="resolving")
            assert (await write_step(node, revision=1, status="resolving")).body == second.body
            for stale in (
                await write_step(node, revision=1, status="failed"),
                await write_step(node, revision=3, status="failed"),
                await write(node, revision=1, status="paused", steps=[{"step_id": "s1"}]),
                await write(node, status="paused", steps=[{"step_id": "s1"}]),
            ):
                assert (stale.status, stale.body["code"]) == (409, "stale_revision")
                assert stale.body["revision"] == 2
            made_again = await write(node, steps=[{"step_id": "s1"}])  # after it has moved on
            assert (made_again.status, made_again.body) == (200, second.body)

    run(scenario())


def test_runs_are_of_the_module_that_made_them() -> None:
    async def scenario() -> None:
        async with hosted(configs=CONFIGS) as node:
            await write(node, steps=[{"step_id": "s1"}], module_id="dator")
            assert (await show(node))["module_id"] == "arca"
            assert (await write(node, "dator", revision=1)).body["code"] == "forbidden"
            assert (await write_step(node, as_="dator", revision=1)).status == 404
            assert (await node.ask("GET", f"{BASE}/run:1", as_="dator")).status == 404
            assert (await node.ask("GET", BASE, as_="dator")).body["items"] == []
            assert (await write(node, "operator")).status == 403
            assert (await show(node))["revision"] == 1

    run(scenario())


def test_active_runs_are_listed_after_a_restart() -> None:
    store = MemoryStore()

    async def scenario() -> None:
        async with hosted(configs=CONFIGS, store=store) as node:
            for number, status in enumerate(RUN_STATUSES):
                await write(node, run_id=f"run:{number}", status=status)
        async with hosted(configs=CONFIGS, store=store) as node:

            async def listed(**query: str) -> set[str]:
                items = (await node.ask("GET", BASE, as_="arca", query=query)).body["items"]
                return {item["status"] for item in items}

            assert await listed() == set(RUN_STATUSES)
            assert await listed(status="active") == {"pending", "running", "paused"}
            assert await listed(status="failed") == {"failed"}
            assert len((await node.ask("GET", BASE, query={"limit": "2"})).body["items"]) == 2

    run(scenario())


@pytest.mark.parametrize("end", sorted(CLOSED_RUNS))
def test_the_end_of_a_run_is_final(end: str) -> None:
    async def scenario() -> None:
        async with hosted(configs=CONFIGS) as node:
            await write(node, status=end, steps=[{"step_id": "s1"}])
            for status in RUN_STATUSES:
                late = await write(node, revision=1, status=status, pause_reason="late")
                assert (late.status, late.body["code"]) == (409, "run_closed")
            late = await write_step(node, revision=1, status="resolving")
            assert late.body["code"] == "run_closed"
            assert (await show(node))["revision"] == 1

    run(scenario())


@pytest.mark.parametrize("end", sorted(CLOSED_STEPS))
@pytest.mark.parametrize("later", STEP_STATUSES)
def test_a_step_closes_once(end: str, later: str) -> None:
    async def scenario() -> None:
        async with hosted(configs=CONFIGS) as node:
            await write(node, steps=[{"step_id": "s1", "status": end, "attempt": 1}])
            same = await write_step(node, revision=1, status=later, attempt=1)
            assert (same.status == 200) is (later == end)
            revision = 2 if later == end else 1
            next_attempt = await write_step(node, revision=revision, status=later, attempt=2)
            assert (next_attempt.status == 200) is (end == "failed")
            if same.status == 409:
                assert same.body["code"] == "step_closed"

    run(scenario())


@pytest.mark.parametrize(
    ("after", "code"),
    [
        ({"status": "pending", "steps": [{"step_id": "s1"}]}, "run_transition"),
        ({"status": "running", "steps": []}, "step_lost"),
        ({"status": "running", "steps": [{"step_id": "s2"}]}, "step_lost"),
    ],
)
def test_a_snapshot_goes_on_from_the_one_before(after: dict[str, Any], code: str) -> None:
    async def scenario() -> None:
        async with hosted(configs=CONFIGS) as node:
            await write(node, steps=[{"step_id": "s1"}])
            answer = await write(node, revision=1, **after)
            assert (answer.status, answer.body["code"]) == (409, code)

    run(scenario())


LATER = "2026-06-02T00:00:00Z"


def step_with(more: dict[str, Any]) -> dict[str, Any]:
    return {"step_id": "a", "dispatches": [{**DISPATCH, **more}]}


@pytest.mark.parametrize(
    ("body", "code"),
    [
        ({"run_id": ""}, "schema"),
        ({"run_id": "a/b"}, "schema"),
        ({"run_id": "x" * 129}, "schema"),
        ({"status": "timed_out"}, "schema"),
        ({"revision": -1}, "schema"),
        ({"colour": 1}, "schema"),
        ({"deadline_at": "tomorrow"}, "schema"),
        ({"steps": [{"step_id": "a"}, {"step_id": "a"}]}, "schema"),
        ({"steps": [{"step_id": "a b"}]}, "schema"),
        ({"steps": [{"step_id": "a", "status": "done"}]}, "schema"),
        ({"steps": [{"step_id": "a", "responses": []}]}, "schema"),
        ({"steps": [{"step_id": str(n)} for n in range(1001)]}, "schema"),
        ({"steps": [step_with({"raw": 1})]}, "schema"),
        ({"steps": [step_with({"dispatch_id": "d"})]}, "invalid_document"),
        ({"steps": [step_with({"status": "pending"})]}, "invalid_document"),
        ({"steps": [{"step_id": "a", "output_digest": "sha256:short"}]}, "invalid_document"),
        (
            {"started_at": "2026-06-02T00:00:00Z", "finished_at": "2026-06-01T00:00:00Z"},
            "invalid_document",
        ),
        ({"steps": [step_with({"response": 1})]}, "raw_response"),
        ({"steps": [step_with({"response": None})]}, "raw_response"),
    ],
)
def test_a_snapshot_that_does_not_fit_is_refused(body: dict[str, Any], code: str) -> None:
    async def scenario() -> None:
        store = MemoryStore()
        async with hosted(configs=CONFIGS, store=store) as node:
            answer = await write(node, **body)
            assert (answer.status, answer.body["code"]) == (400, code)
        assert store.node_streams is not None
        assert store.node_streams.stream_names() == []

    run(scenario())


def test_a_step_that_does_not_fit_is_refused() -> None:
    async def scenario() -> None:
        async with hosted(configs=CONFIGS) as node:
            await write(node)
            raw = {**DISPATCH, "response": {"offer": 1}}
            answer = await write_step(node, revision=1, dispatches=[raw])
            assert (answer.status, answer.body["code"]) == (400, "raw_response")
            answer = await write_step(node, revision=1, step_id="other")
            assert (answer.status, answer.body["code"]) == (400, "schema")
            missing = await node.ask("POST", f"{BASE}/run:2/steps/s1", {}, as_="arca")
            assert missing.status == 404
            assert (await write(node, run_id="run:2", revision=4)).status == 404
            assert (await write_step(node, "new", revision=1)).body["steps"][0]["step_id"] == "new"

    run(scenario())


writes = st.lists(
    st.one_of(
        st.tuples(
            st.just("run"),
            st.sampled_from(RUN_STATUSES[:4]),
            st.lists(st.sampled_from(STEP_STATUSES), max_size=2),
            st.integers(-1, 0),
        ),
        st.tuples(
            st.just("step"),
            st.sampled_from(STEP_STATUSES),
            st.lists(st.integers(0, 2), min_size=1, max_size=1),
            st.integers(-1, 0),
        ),
    ),
    max_size=10,
)


@settings(max_examples=30)
@given(writes)
def test_every_history_keeps_the_laws(steps: list[tuple[str, str, list[Any], int]]) -> None:
    async def scenario() -> None:
        store = MemoryStore()
        revision = 0
        async with hosted(configs=CONFIGS, store=store) as node:
            for kind, status, more, off in steps:
                based = max(0, revision + off)
                if kind == "run":
                    parts = [{"step_id": f"s{n}", "status": one} for n, one in enumerate(more)]
                    answer = await write(node, revision=based, status=status, steps=parts)
                else:
                    answer = await write_step(
                        node, f"s{more[0]}", revision=based, status=status, attempt=more[0]
                    )
                if answer.status < 300:
                    revision = answer.body["revision"]
            assert await broken_laws(node.node.entities) == []
            shown = await show(node)
        assert run_history_laws("run:1", history(store)) == []
        async with hosted(configs=CONFIGS, store=store) as node:
            assert await show(node) == shown

    run(scenario())


def history(store: MemoryStore) -> list[WorkflowRun]:
    """The states after each event, from the events alone."""
    assert store.node_streams is not None
    states: list[WorkflowRun] = []
    for row in store.node_streams.stream_events("state/workflow-run/run:1"):
        for event in RUNS.events_in(row.events):
            states.append(RUNS.evolve(states[-1] if states else None, event))
    return states
