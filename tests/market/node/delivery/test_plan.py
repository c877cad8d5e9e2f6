"""Delivery plans: success policies, fallback stages, and a model of both under random answers."""

# ruff: noqa: ARG002  # fakes have the signatures of ports

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from anabranch.market.node.deferred.part import FAMILIES as DEFERRED_FAMILIES
from anabranch.market.node.deferred.part import make as make_deferred
from anabranch.market.node.delivery import laws
from anabranch.market.node.delivery.part import FAMILIES as DELIVERY_FAMILIES
from anabranch.market.node.delivery.part import make as make_delivery
from anabranch.market.node.delivery.plan import Outcome, Stage, ending, to_send, verdict
from anabranch.market.node.node import MakePart
from anabranch.market.node.ports import PeerUnreachable
from anabranch.testing.market import NodeSpec, World
from market.node.delivery.support import (
    RULE,
    Fakes,
    Outside,
    delivery_of,
    envelope,
    send,
    stage,
)
from market.support import node as node_id

NODES = tuple(node_id(number) for number in range(11, 15))


def outcome(node: str, status: Any, failure: str = "") -> Outcome:
    return Outcome(node_id=node, status=status, failure_class=failure)


@pytest.mark.parametrize(
    ("policy", "need", "statuses", "expected"),
    [
        ("all", 3, "admitted admitted admitted", "succeeded"),
        ("all", 3, "admitted admitted permanent", "failed"),
        ("all", 3, "admitted admitted", "open"),
        ("any", 1, "permanent admitted", "succeeded"),
        ("any", 1, "permanent transient", "open"),
        ("any", 1, "permanent transient permanent", "failed"),
        ("quorum", 2, "admitted transient", "open"),
        ("quorum", 2, "admitted transient admitted", "succeeded"),
        ("quorum", 2, "admitted transient permanent", "failed"),
    ],
)
def test_a_stage_succeeds_by_its_policy(
    policy: str, need: int, statuses: str, expected: str
) -> None:
    one = Stage(stage_id="s", policy=policy, nodes=("a", "b", "c"), need=need)
    found = [outcome(node, word) for node, word in zip("abc", statuses.split(), strict=False)]
    assert verdict(one, found) == expected


def test_a_stage_without_targets_fails_at_once() -> None:
    assert verdict(Stage(stage_id="s", policy="all", nodes=(), need=1), []) == "failed"


def test_what_was_admitted_or_refused_for_good_is_not_sent_again() -> None:
    one = Stage(stage_id="s", policy="all", nodes=("a", "b", "c", "d"), need=4)
    found = [
        outcome("a", "admitted"),
        outcome("b", "permanent", "adapter-permanent"),
        outcome("c", "transient", "adapter-transient"),
        outcome("d", "not-awaited"),
    ]
    assert to_send(one, found) == ["c", "d"]


@pytest.mark.parametrize(
    ("outcomes", "expected"),
    [
        ({"s": "permanent transient"}, "failed-permanent"),
        ({"s": "admitted permanent"}, "partial"),
        ({"s": "admitted transient"}, "failed-retryable"),
        ({"s": "transient transient", "t": "permanent"}, "failed-retryable"),
        ({"s": "permanent permanent", "t": "transient"}, "failed-retryable"),
        ({"s": "admitted permanent", "t": "admitted"}, "succeeded"),
        ({"s": "permanent admitted", "t": "permanent"}, "partial"),
    ],
)
def test_an_attempt_comes_to_what_its_stages_allow(
    outcomes: Mapping[str, str], expected: str
) -> None:
    """`s` needs both of its targets, `t` one: what cannot succeed any more is not tried again."""
    stages = [
        Stage(stage_id="s", policy="all", nodes=("a", "b"), need=2, next=1),
        Stage(stage_id="t", policy="any", nodes=("c",), need=1),
    ]
    found = {
        name: tuple(
            outcome(node, word, "" if word == "admitted" else "adapter-transient")
            for node, word in zip("ab" if name == "s" else "c", words.split(), strict=True)
        )
        for name, words in outcomes.items()
    }
    assert ending(stages, found)[0] == expected


# -- a model ---------------------------------------------------------------------------------

ANSWERS = ("accept", "reject", "busy", "down")


class ScriptedPeers(Fakes):
    """Peers that answer as a script says, and accept what comes after it."""

    script: dict[str, list[str]]
    sent: list[str]

    async def request(
        self, node_id: str, msg: str, payload: Any, *, correlation_id: str, seconds: float
    ) -> Any:
        self.sent.append(node_id)
        answers = self.script.get(node_id, [])
        answer = answers.pop(0) if answers else "accept"
        if answer == "down":
            raise PeerUnreachable("down")
        status = {"accept": "accepted", "reject": "rejected", "busy": "retryable"}[answer]
        return {"status": status, "acceptor/id": "x"}


class Model:
    """An independent account of a delivery: what is sent to whom, and what it comes to."""

    def __init__(self, stages: list[dict[str, Any]], script: Mapping[str, list[str]]) -> None:
        self.stages = stages
        self.script = {name: list(answers) for name, answers in script.items()}
        self.sent: list[str] = []
        self.known: list[dict[str, str]] = [{} for _ in stages]
        self.attempts = 0

    def run(self) -> str:
        while True:
            self.attempts += 1
            if self._walk():
                return "succeeded"
            if not any(map(self._is_hopeful, range(len(self.stages)))):
                some = any("accept" in known.values() for known in self.known)
                return "partial" if some else "failed-permanent"

    def _walk(self) -> bool:
        at: int | None = 0
        while at is not None:
            for node in self._nodes(at):
                if self.known[at].get(node) not in ("accept", "reject"):
                    self.sent.append(node)
                    answers = self.script.get(node, [])
                    self.known[at][node] = answers.pop(0) if answers else "accept"
            if list(self.known[at].values()).count("accept") >= self._need(at):
                return True
            at = self._next(at)
        return False

    def _nodes(self, at: int) -> list[str]:
        return [one["node/id"] for one in self.stages[at]["targets"]]

    def _need(self, at: int) -> int:
        one = self.stages[at]
        policy = one.get("success/policy", "all")
        return int({"all": len(one["targets"]), "any": 1}.get(policy) or one["quorum/min-success"])

    def _next(self, at: int) -> int | None:
        names = [one["stage/id"] for one in self.stages]
        if "on/failure" in self.stages[at]:
            return names.index(self.stages[at]["on/failure"])
        return at + 1 if at + 1 < len(names) else None

    def _is_hopeful(self, at: int) -> bool:
        known = list(self.known[at].values())
        waits = known.count("busy") + known.count("down")
        return waits > 0 and len(self._nodes(at)) - known.count("reject") >= self._need(at)


@st.composite
def plans(draw: st.DrawFn) -> list[dict[str, Any]]:
    stages = []
    count = draw(st.integers(1, 3))
    for number in range(count):
        nodes = draw(st.lists(st.sampled_from(NODES), min_size=1, max_size=4, unique=True))
        policy = draw(st.sampled_from(["all", "any", "quorum", None]))
        more: dict[str, Any] = {}
        if policy:
            more["success/policy"] = policy
        if policy == "quorum":
            more["quorum/min-success"] = draw(st.integers(1, len(nodes)))
        if number + 1 < count and draw(st.booleans()):
            more["on/failure"] = f"s{draw(st.integers(number + 1, count - 1))}"
        stages.append({**stage(f"s{number}", *nodes), **more})
    return stages


SCRIPTS = st.dictionaries(
    st.sampled_from(NODES), st.lists(st.sampled_from(ANSWERS), max_size=4), max_size=4
)


@settings(max_examples=50, deadline=None)
@given(plans(), SCRIPTS)
def test_a_delivery_does_what_the_model_of_plans_does(
    stages: list[dict[str, Any]], script: dict[str, list[str]]
) -> None:
    model = Model(stages, script)
    expected = model.run()
    sent: list[str] = []

    def fakes(context: Any) -> Fakes:
        peers = ScriptedPeers(context, Outside())
        peers.script, peers.sent = {name: list(one) for name, one in script.items()}, sent
        return peers

    makers: list[MakePart] = [
        (fakes, ()), (make_deferred, DEFERRED_FAMILIES), (make_delivery, DELIVERY_FAMILIES),
    ]  # fmt: skip
    config = {"delivery": {"outbound": [RULE], "retry_seconds_max": 2}}
    world = World([NodeSpec(name="a", config=config)], makers=lambda: makers)

    async def play() -> None:
        _, body = await send(world["a"], envelope(*stages))
        await world.advance(120)
        delivery = await delivery_of(world["a"], body["delivery/id"])
        assert (delivery["status"], delivery["attempts"]) == (expected, model.attempts)
        assert sorted(sent) == sorted(model.sent)
        assert world["a"].run(laws.broken(world["a"].entities)) == []

    asyncio.run(play())
