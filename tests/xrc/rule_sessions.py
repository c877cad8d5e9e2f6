"""Random orchestrations with real rules, whose outcome does not depend on order or time.

Forks meet again in joins that wait for all, one inside the other; what a rule comes to follows from
its payload alone. So two runs of one orchestration may differ only in how they were run.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from random import Random
from typing import Any

from anabranch.kernel import stimuli as s
from anabranch.net.net import Net
from anabranch.runtime.values.payloads import resolve
from anabranch.testing import hard_error
from anabranch.testing.play import RUN
from anabranch.testing.scripted.definitions import compiled
from anabranch.testing.scripted.played import Played
from anabranch.testing.scripted.script import Script, Scripts
from operations.sessions.support import bundle, rule
from testing.support import BEFORE, DyingTheatre

INPUTS = {"n": "int64=0", "text": "string=-"}
RULES: dict[str, Any] = {
    "EVEN": rule(
        INPUTS,
        rules=["[n] % 2 == 0"],
        valid={"n": "[n] + 3", "text": "[text] was even", "even": "[n]"},
        invalid={"n": "[n] + 1", "text": "[text] was odd"},
    ),
    "LONG": rule(
        INPUTS,
        rules=["size([text]) > 30"],
        valid={"text": "cut at [n]", "long": "[text]"},
        invalid={"text": "[text], [text]"},
    ),
    "SAYS": rule(
        {**INPUTS, "long": "string=none", "even": "int64=1"},
        rules=["[text].contains('odd') || [even] > 5"],
        valid={"said": "[long] and [text]", "n": "[n] * 2"},
        invalid={"said": "[text]", "even": "[even] + [n]"},
    ),
    "NONE": rule(),
}
EVENTS_MAX = 100_000
INLINE = 10_000_000


@dataclass
class Session:
    structure: dict[str, Any]
    given: dict[str, Any]

    @cached_property
    def net(self) -> Net:
        document = {"id": "random", "structure": self.structure}
        return compiled(bundle(document, RULES))


def session(seed: int) -> Session:
    dice = Random(f"session {seed}")
    made = _Weaver(dice)
    made.block("S", dice.choice((1, 2, 2, 3)))
    text = "t" * dice.choice((1, 20, 400))
    return Session(made.structure, {"n": dice.randint(0, 9), "text": text, "more": [1, {"a": "b"}]})


@dataclass
class _Weaver:
    dice: Random
    structure: dict[str, Any] = field(default_factory=dict)

    def block(self, name: str, depth: int) -> str:
        """A step and what follows it; returns the one with which it ends, whatever rules say."""
        step = self._step(name)
        if depth == 0 or len(self.structure) > 20:
            return name
        if self.dice.random() < 0.35:
            self._both_lead_to(step, f"{name}n")
            return self.block(f"{name}n", depth - 1)
        return self._fork(name, step, depth)

    def _step(self, name: str) -> dict[str, Any]:
        alias = self.dice.choice(list(RULES))
        step: dict[str, Any] = {"rule": f"cm:xrc137:{alias}"}
        self.structure[name] = step
        return step

    def _both_lead_to(self, step: dict[str, Any], target: str) -> None:
        step["onValid"] = {"spawns": [target]}
        step["onInvalid"] = {"spawns": [target]}

    def _fork(self, name: str, step: dict[str, Any], depth: int) -> str:
        spawns = [f"{name}{letter}" for letter in "abc"[: self.dice.choice((2, 2, 3))]]
        ends = [self.block(spawn, self.dice.randint(0, depth - 1)) for spawn in spawns]
        target = f"{name}J"
        join = {
            "joinid": target,
            "mode": "all",
            "waitonjoin": self.dice.choice(("kill", "drain")),
            "from": [{"node": end, "when": "any"} for end in ends],
        }
        step["onValid"] = {"spawns": spawns, "join": join}
        step["onInvalid"] = {"spawns": spawns, "join": join}
        if self.dice.random() < 0.5:
            return self.block(target, 0)
        self._both_lead_to(self._step(target), f"{target}n")
        return self.block(f"{target}n", depth - 1)


def played(
    made: Session,
    *,
    inline_bytes: int = INLINE,
    dies_at: int = 0,
    place: str = BEFORE,
    aborts: str = "",
    start: s.Start | None = None,
    payloads: dict[str, bytes] | None = None,
) -> tuple[Played, DyingTheatre]:
    """`aborts` is a step whose rule cannot be evaluated."""
    kind = type("Stage", (DyingTheatre,), {"inline_bytes_max": inline_bytes})
    script = Script(made.net, {aborts: hard_error()} if aborts else {})
    stage: DyingTheatre = kind(made.net, Scripts(script, Script(made.net, {}, "decisions")))
    stage.dies_at, stage.place = dies_at, place
    for sha256, content in (payloads or {}).items():
        stage.store.put_payload(sha256, content)
    stage.begin(start or s.Start(run=RUN, input=made.given))
    return stage.perform(EVENTS_MAX), stage


def outcome(play: Played, stage: DyingTheatre) -> dict[str, Any]:
    """All that a reader can see in the end."""
    return {
        "status": play.status,
        "session": play.session,
        "problem": play.problem,
        "joins": sorted((join["target"], join["verdict"], join["selected"]) for join in play.joins),
        "steps": {
            name: (step["status"], step["runs"], step["result"])
            for name, step in play.steps.items()
        },
        "input": resolve(play.state.workload, stage.store.payload),
    }
