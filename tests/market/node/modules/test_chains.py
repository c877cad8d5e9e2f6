"""Chains: who is asked about a message of a peer, in which order, and which decisions count."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from anabranch.market.node.modules.chains import TRUSTED_HEADER, Outcome

from .support import (
    Hosted,
    ScriptedModule,
    decision,
    hosted,
    in_process,
    message,
    run,
)

INVOKE = "/v1/middleware/invoke"
CONFIGS = [in_process("first"), in_process("second")]


def two(first: Any, second: Any = None, **chain: Any) -> tuple[ScriptedModule, ScriptedModule]:
    """Two modules in the chain inbound-peer that answer so."""
    modules = []
    for name, answer in (("first", first), ("second", second or decision("allow"))):
        module = ScriptedModule(name, input_chains=[{"chain": "inbound-peer", **chain}])
        module.answers[INVOKE] = answer
        modules.append(module)
    return modules[0], modules[1]


def test_the_envelope_is_the_one_of_the_contract() -> None:
    async def scenario() -> None:
        first, second = two(decision("return", {"ok": 1}))
        async with hosted(first, second, configs=CONFIGS) as node:
            assert await node.part.peer_message(message("m", {"a": 1})) == {"ok": 1}
        assert first.bodies() == [
            {
                "schema_version": "v1",
                "envelope_kind": "peer-message",
                "msg": "m",
                "chain_kind": "inbound-peer",
                "correlation_id": "c1",
                "remote_node_id": "node:did:key:zPeer",
                "payload": {"a": 1},
            }
        ]
        assert second.bodies() == []

    run(scenario())


@pytest.mark.parametrize(
    ("answer", "outcome", "second_is_asked"),
    [
        (decision("return", {"x": 1}), Outcome("returned", {"x": 1}, "first"), False),
        (decision("return"), Outcome("returned", None, "first"), False),
        (decision("drop"), Outcome("dropped", None, "first"), False),
        *[
            (decision(kind, {"x": 1}), Outcome("returned", {"by": "second"}, "second"), True)
            for kind in ("allow", "annotate", "rewrite", "route", "defer", "reject")
        ],
        ({"decision": "return"}, Outcome("returned", {"by": "second"}, "second"), True),
        ({"decision": "?", "reason": ""}, Outcome("returned", {"by": "second"}, "second"), True),
        ((500, None), Outcome("returned", {"by": "second"}, "second"), True),
        ((302, decision("drop")), Outcome("returned", {"by": "second"}, "second"), True),
        (RuntimeError("boom"), Outcome("returned", {"by": "second"}, "second"), True),
        ("no object", Outcome("returned", {"by": "second"}, "second"), True),
    ],
)  # fmt: skip
def test_what_each_decision_does(answer: Any, outcome: Outcome, second_is_asked: bool) -> None:
    async def scenario() -> None:
        first, second = two(answer, decision("return", {"by": "second"}))
        async with hosted(first, second, configs=CONFIGS) as node:
            assert await node.part.message("peer", message()) == outcome
        assert bool(second.bodies()) is second_is_asked

    run(scenario())


@pytest.mark.parametrize(
    ("chain", "msg", "payload", "asked"),
    [
        ({}, "m", None, True),
        ({"message_types": ["m"]}, "m", None, True),
        ({"message_types": ["n"]}, "m", None, False),
        ({"filter": {"a": 1}}, "m", {"a": 1}, True),
        ({"filter": {"a": 1}}, "m", {"a": True}, False),
        ({"filter": {"NOT": {"msg": "m"}}}, "m", {}, False),
        ({"message_types": ["m"], "filter": {"a": 1}}, "n", {"a": 1}, False),
    ],
)
def test_a_module_is_asked_about_what_fits(
    chain: dict[str, Any], msg: str, payload: Any, asked: bool
) -> None:
    async def scenario() -> None:
        first, second = two(decision("drop"), **chain)
        async with hosted(first, second, configs=CONFIGS) as node:
            await node.part.peer_message(message(msg, payload))
        assert bool(first.bodies()) is asked

    run(scenario())


@pytest.mark.parametrize(
    ("way", "phases"),
    [
        ("peer", ["pre-input", "inbound-peer", "audit"]),
        ("broadcast", ["pre-input", "inbound-broadcast", "inbound-peer", "audit"]),
        ("send", ["pre-send", "audit"]),
    ],
)
def test_the_phases_of_a_message(way: Any, phases: list[str]) -> None:
    async def scenario() -> None:
        kinds = ("audit", "pre-send", "inbound-broadcast", "inbound-peer", "pre-input")
        module = ScriptedModule("first", input_chains=[{"chain": kind} for kind in kinds])
        module.answers[INVOKE] = decision("allow")
        async with hosted(module, configs=CONFIGS[:1]) as node:
            assert (await node.part.message(way, message())).kind == "passed"
            await told(node)
        assert [body["chain_kind"] for body in module.bodies()] == phases

    run(scenario())


def test_observers_and_audit_decide_nothing_and_hear_of_what_others_end() -> None:
    async def scenario() -> None:
        watcher = ScriptedModule(
            "first",
            input_chains=[{"chain": "audit"}, {"chain": "inbound-peer", "observer": True}],
            observe_chains=[{"chain": "pre-input"}],
        )
        watcher.answers[INVOKE] = decision("drop")
        decider = ScriptedModule("second", input_chains=[{"chain": "inbound-peer"}])
        decider.answers[INVOKE] = decision("return", 7)
        async with hosted(watcher, decider, configs=CONFIGS) as node:
            assert await node.part.peer_message(message()) == 7
            await told(node)
        heard = sorted(body["chain_kind"] for body in watcher.bodies())
        assert heard == ["audit", "inbound-peer", "pre-input"]

    run(scenario())


def test_an_early_phase_ends_the_message_for_the_later_one() -> None:
    async def scenario() -> None:
        late, early = (
            ScriptedModule("first", input_chains=[{"chain": "inbound-peer"}]),
            ScriptedModule("second", input_chains=[{"chain": "pre-input"}]),
        )
        early.answers[INVOKE] = decision("drop")
        async with hosted(late, early, configs=CONFIGS) as node:
            assert await node.part.peer_message(message()) is None
        assert late.bodies() == []

    run(scenario())


def test_a_module_that_is_stopped_is_not_asked() -> None:
    async def scenario() -> None:
        first, second = two(decision("drop"), decision("return", 2))
        async with hosted(first, second, configs=CONFIGS) as node:
            await node.ask("POST", "/v1/modules/first/stop")
            assert await node.part.peer_message(message()) == 2
        assert first.bodies() == []

    run(scenario())


async def told(node: Hosted) -> None:
    """Observers are told by tasks of their own."""
    while node.part.chains._told:
        await asyncio.sleep(0)


def saying(trusted: bool) -> Callable[[str], bool]:
    return lambda _node: trusted


def test_a_module_is_told_beside_the_envelope_whether_the_host_trusts_the_sender() -> None:
    async def scenario() -> None:
        first, _ = two(decision("allow"))
        async with hosted(first, configs=CONFIGS[:1]) as node:
            for trusted in (False, True):
                node.part.chains._trusts = saying(trusted)
                await node.part.peer_message(message("m", {}))
        told = [headers for _, path, headers, _ in first.calls if path == INVOKE]
        assert [TRUSTED_HEADER.lower() in one for one in told] == [False, True]

    run(scenario())
