"""Must: execution completed and task fulfilled are two facts; only what is declared decides."""

from __future__ import annotations

from typing import Any

import pytest

from modules.arca.work.stage import RUNS, Make, Stage, step

ENVELOPE = "arca-task-fulfillment-decision.v1"
MATCH = {"path": "/ok", "fulfilled_values": [True], "not_fulfilled_values": [False]}
SOURCE = {
    "kind": "capability", "capability_id": "publication.verify",
    "input": {"made": {"from": "/steps/order/output/ok"}, "fixed": 1},
}  # fmt: skip


def decided(policy: str, **more: Any) -> dict[str, Any]:
    return step("order", input={}, fulfillment={"policy": policy, **more})


def come_to(stage: Stage, asked: dict[str, Any], output: Any = None) -> tuple[str, Any]:
    """The status of the run, and its only step."""
    stage.sold["anna"].answers = lambda _request: {
        "status": "completed", "output": {"ok": True} if output is None else output,
    }  # fmt: skip
    stage.start([asked])
    run = stage.ended()
    return run["status"], run["steps"][0]


def test_completed_and_fulfilled_are_two_facts(made: Make) -> None:
    stage = made({"anna": 0})
    status, shown = come_to(stage, decided("requester_confirmation"))
    assert (status, shown["status"]) == ("paused", "awaiting_fulfillment")
    assert (shown["execution"], shown["task"]["fulfilled"]) == ({"completed": True}, None)
    assert shown["output"] == {"ok": True}, "it is kept before anything is decided"
    path = f"{RUNS}/run:one/steps/order/confirm"
    stage.ask("POST", path, {"fulfilled": True, "actor": "kim", "reason": "seen"})
    (shown,) = stage.ended()["steps"]
    assert (shown["status"], shown["execution"]) == ("completed", {"completed": True})
    assert shown["task"] == {"fulfilled": True, "decided_by": "kim", "reason": "seen"}


@pytest.mark.parametrize("policy", ["requester_confirmation", "never", "output_match"])
def test_a_decision_on_its_way_through_a_payload_decides_nothing(made: Make, policy: str) -> None:
    stage = made({"anna": 0})
    smuggled = {
        "schema": ENVELOPE, "fulfillment/status": "fulfilled", "task": {"fulfilled": True},
        "ok": False,
    }  # fmt: skip
    more = {"result_match": MATCH} if policy == "output_match" else {}
    status, shown = come_to(stage, decided(policy, **more), smuggled)
    assert status == "paused"
    assert shown["task"]["fulfilled"] is not True
    assert shown["output"] == smuggled, "it is an output like any other"


@pytest.mark.parametrize(
    ("policy", "more", "status", "fulfilled"),
    [
        ("auto", {}, "completed", True),
        ("output_match", {"result_match": MATCH}, "completed", True),
        ("external_decision", {"decision_source": SOURCE, "result_match": MATCH}, "completed",
         True),
        ("requester_confirmation", {}, "paused", None),
        ("never", {}, "paused", None),
    ],
)  # fmt: skip
def test_each_policy_decides_as_it_is_declared(
    made: Make, policy: str, more: Any, status: str, fulfilled: bool | None
) -> None:
    stage = made({"anna": 0})
    stage.verdicts.append({"ok": True})
    found, shown = come_to(stage, decided(policy, **more))
    assert (found, shown["task"]["fulfilled"]) == (status, fulfilled)
    assert (stage.verdicts == []) is (policy == "external_decision"), "only then it is asked"


@pytest.mark.parametrize(
    ("verdict", "more", "status"),
    [
        ({"ok": False}, {"on_not_fulfilled": "pause"}, "paused"),
        ({"ok": False}, {"on_not_fulfilled": "fail"}, "failed"),
        ({"ok": False}, {"on_not_fulfilled": "continue"}, "completed"),
        ({"odd": 1}, {"on_error": "fail"}, "failed"),
        ({"odd": 1}, {"on_error": "pause"}, "paused"),
    ],
)
def test_a_source_is_any_capability_with_its_input_and_transitions(
    made: Make, verdict: Any, more: Any, status: str
) -> None:
    stage = made({"anna": 0})
    asked: list[Any] = []

    def decide(body: Any) -> Any:
        asked.append(body)
        return verdict

    stage.verdicts.append(decide)
    declared = decided("external_decision", decision_source=SOURCE, result_match=MATCH, **more)
    found, shown = come_to(stage, declared)
    assert asked == [{"made": True, "fixed": 1}], "the input is mapped as the workflow says"
    assert found == status
    assert shown["task"]["fulfilled"] is not True


@pytest.mark.parametrize(
    ("verdict", "matcher", "status"),
    [
        ({"schema": ENVELOPE, "fulfillment/status": "fulfilled", "reason": "it is there",
          "evidence": {"commit": "c1"}}, None, "completed"),
        ({"schema": ENVELOPE, "fulfillment/status": "not_fulfilled"}, None, "paused"),
        ({"ok": True}, MATCH, "completed"),
        ({"status": "done"}, {"path": "/status", "fulfilled_values": ["done"],
                              "not_fulfilled_values": ["open"]}, "completed"),
        ({"ok": 1}, MATCH, "failed"),
    ],
    ids=["aware yes", "aware no", "plain ok", "plain status", "1 is not true"],
)  # fmt: skip
def test_both_styles_of_answer_decide(made: Make, verdict: Any, matcher: Any, status: str) -> None:
    stage = made({"anna": 0})
    stage.verdicts.append(verdict)
    more = {} if matcher is None else {"result_match": matcher}
    found, shown = come_to(stage, decided("external_decision", decision_source=SOURCE, **more))
    assert found == status
    if "evidence" in verdict:
        assert shown["task"]["evidence"] == {"commit": "c1"}
        assert shown["task"]["reason"] == "it is there"
