"""Who may wake a waiting process, beside its owner: whom its payload names."""

from __future__ import annotations

from typing import Any

import pytest

from anabranch.dialects.xrc729.wake_policy import PayloadWakePolicy

FRIEND, OTHER = "0x" + "b" * 40, "0x" + "c" * 40
RULE, ZERO = "0x" + "7" * 40, "0x" + "0" * 40


def asked(allowed: Any, way: Any = "rpc", asker: str = FRIEND, rule: str = "") -> bool:
    payload = {} if allowed is None else {"__wakeUp": allowed}
    return PayloadWakePolicy().allows(payload, "W1", way=way, asker=asker, rule=rule)


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
