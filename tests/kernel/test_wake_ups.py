"""Waking what sleeps: by its owner, and by whom the policy of the net allows."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from anabranch.dialects.xrc729.wake_policy import PayloadWakePolicy
from anabranch.kernel import stimuli as s
from anabranch.kernel.values import succeeded
from anabranch.net.net import WakePolicy

from .driver import Run
from .nets import forks, orchestration

OWNER, FRIEND, OTHER = ("0x" + digit * 40 for digit in "abc")
POLICY = PayloadWakePolicy()


def sleeper(allowed: Any = None, policy: WakePolicy | None = POLICY) -> Run:
    """A1 is done, W1 sleeps for an hour."""
    net = replace(orchestration(A1=forks(["W1"]), W1=None), wake_policy=policy)
    given = {} if allowed is None else {"__wakeUp": allowed}
    run = Run(net, input=given, labels={"owner": OWNER})
    run.answer("A1", succeeded({"a": 1}, outcome="valid", wait_ms=3_600_000))
    assert run.token("W1").phase == "sleeping"
    return run


@pytest.mark.parametrize("policy", [POLICY, None])
def test_whoever_has_the_store_and_the_owner_always_may(policy: WakePolicy | None) -> None:
    for wake in (
        s.Wake(step="W1"),
        s.Wake(step="W1", way="rpc", asker=OWNER),
        s.Wake(token=2, way="rpc", asker=OWNER),
        s.Wake(step="W1", way="internal", asker=OWNER.upper().replace("0X", "0x")),
    ):
        run = sleeper(policy=policy)
        run.send(wake)
        assert run.token("W1").phase == "ready"


def test_without_a_policy_nobody_else_may() -> None:
    run = sleeper({"default": {"rpc": [FRIEND], "internal": ["*"]}}, policy=None)
    run.refuses(s.Wake(step="W1", way="rpc", asker=FRIEND), "not_allowed")
    run.refuses(s.Wake(step="W1", way="internal", asker=FRIEND), "not_allowed")


def test_an_allowed_wake_merges_its_payload_without_underscores() -> None:
    run = sleeper({"default": {"rpc": [FRIEND]}})
    run.send(s.Wake(step="W1", payload={"b": 2, "_c": 3, "__wakeUp": {}}, way="rpc", asker=FRIEND))
    assert run.token("W1").phase == "ready"
    assert run.token("W1").payload == {
        "a": 1,
        "b": 2,
        "__wakeUp": {"default": {"rpc": [FRIEND]}},
    }, "and the list is still there for the steps after it"


def test_a_wake_that_is_not_allowed_changes_nothing() -> None:
    run = sleeper({"default": {"rpc": [FRIEND]}})
    run.refuses(s.Wake(step="W1", way="rpc", asker=OTHER), "not_allowed")
    run.refuses(s.Wake(step="W1", way="internal", asker=FRIEND), "not_allowed")
    assert run.token("W1").phase == "sleeping"


def test_one_process_or_all_of_a_step() -> None:
    net = orchestration(A1=forks(["W1", "W1"]), W1=None)
    run = Run(net)
    run.answer("A1", succeeded({}, outcome="valid", wait_ms=1_000))
    run.send(s.Wake(token=2))
    assert [run.state.tokens[2].phase, run.state.tokens[3].phase] == ["ready", "sleeping"]
    run.send(s.Wake(step="W1"))
    assert run.state.tokens[3].phase == "ready"
    run.refuses(s.Wake(step="W1"), "not_sleeping")


def test_an_open_join_is_never_woken() -> None:
    run = Run(orchestration(A1=forks(["G1"], "J1", froms=["G1:any"]), G1=None, J1=None))
    run.answer("A1", succeeded({}, outcome="valid", wait_ms=5_000))
    run.refuses(s.Wake(step="J1"), "not_sleeping")


def test_a_closed_join_still_waits_for_its_wake_time() -> None:
    net = orchestration(A1=forks(["G1"], "J1", froms=["G1:any"]), G1=None, J1=None)
    run = Run(net)
    run.answer("A1", succeeded({}, outcome="valid", wait_ms=5_000))
    run.send(s.Wake(step="G1"))
    run.valid("G1")
    assert run.token("J1").phase == "sleeping"
    run.tick(6_000)
    assert run.token("J1").phase == "ready"
