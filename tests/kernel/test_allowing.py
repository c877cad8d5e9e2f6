"""Who may wake a waiting process: its owner, and whom its payload names."""

from __future__ import annotations

from typing import Any

import pytest

from anabranch.kernel import stimuli as s
from anabranch.kernel.allowing import may_wake
from anabranch.kernel.values import succeeded

from .driver import Run
from .nets import forks, orchestration

OWNER, FRIEND, OTHER = ("0x" + digit * 40 for digit in "abc")
RULE, ZERO = "0x" + "7" * 40, "0x" + "0" * 40


def asked(allowed: Any, way: Any = "rpc", asker: str = FRIEND, rule: str = "") -> bool:
    payload = {} if allowed is None else {"__wakeUp": allowed}
    return may_wake(payload, "W1", OWNER, way=way, asker=asker, rule=rule)


def test_whoever_has_the_store_and_the_owner_always_may() -> None:
    assert asked(None, way="", asker="")
    assert asked(None, asker=OWNER)
    assert asked(None, way="internal", asker=OWNER.upper().replace("0X", "0x"))


@pytest.mark.parametrize("way", ["rpc", "internal"])
@pytest.mark.parametrize("allowed", [None, {}, {"steps": {}}, {"default": {}}, "*", ["*"], 7])
def test_nothing_said_is_no(allowed: Any, way: str) -> None:
    assert not asked(allowed, way)


def test_rpc_takes_exact_addresses_only() -> None:
    assert asked({"default": {"rpc": [FRIEND.upper().replace("0X", "0x")]}})
    assert not asked({"default": {"rpc": [OTHER]}})
    assert not asked({"default": {"rpc": ["*"]}}), "a star means nothing there"
    assert not asked({"default": {"rpc": [FRIEND]}}, way="internal"), "and it is not for rules"


def test_the_entry_of_a_step_replaces_the_default_as_a_whole() -> None:
    allowed = {"steps": {"W1": {"internal": [OTHER]}}, "default": {"rpc": [FRIEND]}}
    assert not asked(allowed)
    assert asked({**allowed, "steps": {"V1": {"rpc": [OTHER]}}})


@pytest.mark.parametrize(
    ("internal", "rule", "may"),
    [
        ([FRIEND], "", True),
        ([OTHER], "", False),
        (["*"], "", True),
        ([ZERO], "", True),
        ("*", "", True),
        ({"allow": [FRIEND]}, "", True),
        ({"allow": ["*"], "fromXRC137": [RULE]}, RULE, True),
        ({"allow": ["*"], "fromXRC137": [RULE]}, OTHER, False),
        ({"allow": ["*"], "fromXRC137": [RULE]}, "", False),
        ({"allow": ["*"], "fromXRC137": []}, RULE, False),
        ({"allow": [OTHER], "fromXRC137": [RULE]}, RULE, False),
        ({"fromXRC137": [RULE]}, RULE, False),
        ({"allow": [7, None]}, "", False),
    ],
)
def test_internal_names_owners_and_may_name_rules(internal: Any, rule: str, may: bool) -> None:
    assert asked({"default": {"internal": internal}}, "internal", rule=rule) is may


# -- in the kernel ---------------------------------------------------------------------------


def sleeper(allowed: Any = None) -> Run:
    """A1 is done, W1 sleeps for an hour."""
    net = orchestration(A1=forks(["W1"]), W1=None)
    given = {} if allowed is None else {"__wakeUp": allowed}
    run = Run(net, input=given, labels={"owner": OWNER})
    run.answer("A1", succeeded({"a": 1}, outcome="valid", wait_ms=3_600_000))
    assert run.token("W1").phase == "sleeping"
    return run


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
