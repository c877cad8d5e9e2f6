"""Small words for building nets by hand."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from anabranch.errors import ExpressionError
from anabranch.expressions.port import Constant, Expression
from anabranch.net.net import (
    Arc,
    Branch,
    Fan,
    GatherRule,
    Join,
    Net,
    Retry,
    RunPolicy,
    Slot,
    Step,
    Work,
)

WORK = Work(kind="test")


@dataclass(frozen=True, slots=True)
class Fn:
    """An expression that is a Python function of the names."""

    function: Callable[[Mapping[str, Any]], Any]
    text: str = "fn"

    def evaluate(self, names: Mapping[str, Any]) -> Any:
        return self.function(names)


@dataclass(frozen=True, slots=True)
class Wrong:
    """An expression that cannot be evaluated."""

    text: str = "1 / 0"

    def evaluate(self, names: Mapping[str, Any]) -> Any:  # noqa: ARG002 - the port's signature
        raise ExpressionError(f"{self.text}: division by zero")


def ctx(key: str) -> Expression:
    """The context value of that key, or nothing."""
    return Fn(lambda names: names["ctx"].get(key), f"ctx.{key}")


def const(value: Any) -> Expression:
    return Constant(value)


def arcs(*targets: str | Arc) -> tuple[Arc, ...]:
    return tuple(target if isinstance(target, Arc) else Arc(target) for target in targets)


def inclusive(*targets: str | Arc, outcome: str | None = None) -> Branch:
    return Branch(outcome, "inclusive", arcs(*targets))


def exclusive(*targets: str | Arc, outcome: str | None = None) -> Branch:
    return Branch(outcome, "exclusive", arcs(*targets))


def step(name: str, *next_steps: str | Branch, work: Work | None = WORK, **more: Any) -> Step:
    """A step with work; bare names after it are an inclusive fork to them."""
    names = [one for one in next_steps if isinstance(one, str)]
    branches = [one for one in next_steps if isinstance(one, Branch)]
    if names:
        branches.append(inclusive(*names))
    return Step(name, work, branches=tuple(branches), **more)


def router(name: str, *next_steps: str | Branch, **more: Any) -> Step:
    """A step without work: it ends as soon as it is reached."""
    return step(name, *next_steps, work=None, **more)


def net(*steps: Step, policy: RunPolicy | None = None, **more: Any) -> Net:
    """The first step is the entry."""
    return Net(
        name="test",
        dialect="test",
        fingerprint="0" * 64,
        steps={one.name: one for one in steps},
        entry=steps[0].name,
        policy=policy or RunPolicy(),
        **more,
    )


def chain(count: int) -> Net:
    """s0 → s1 → …"""
    last = count - 1
    return net(*(step(f"s{i}", *([f"s{i + 1}"] if i < last else [])) for i in range(count)))


def retrying(attempts: int, delay_ms: int = 0, **more: Any) -> Work:
    """Work that is tried that often in all; `more` are fields of `Retry`."""
    return Work(kind="test", retry=Retry(attempts, delay_ms, **more))


def fan_net(
    slots: Sequence[Any], mode: str, *next_steps: str, work: Work = WORK, **more: Any
) -> Net:
    """One fan-out named `ask`; `more` are fields of its rule, its fan and its step."""
    rule_fields = {key: more.pop(key) for key in GatherRule.__struct_fields__ if key in more}
    fan_fields = {
        key: more.pop(key)
        for key in ("window", "score", "usable", "targets", "rounds")
        if key in more
    }
    fan = Fan(Constant(list(slots)), GatherRule(mode=mode, **rule_fields), **fan_fields)  # type: ignore[arg-type]
    after = [router(name) for name in next_steps]
    return net(step("ask", *next_steps, work=work, fan=fan, **more), *after)


# -- joins, in the words of the orchestration language ------------------------------------------


def forks(
    spawns: Sequence[str],
    target: str = "",
    *,
    mode: Literal["any", "all", "kofn"] = "any",
    k: int = 1,
    wait: Literal["kill", "drain"] = "drain",
    froms: Sequence[str] = (),
    outcome: str | None = "valid",
) -> Branch:
    """A branch with spawns and, if `target` is given, a join; a `from` entry is `node:when`."""
    join = None
    if target:
        slots = tuple(Slot(*entry.split(":")) for entry in froms)
        needed = {"any": 1, "all": len(slots), "kofn": k}[mode]
        rule = GatherRule(mode="quorum", k=needed, combine="merge", losers=wait)
        join = Join(target, rule, slots)
    return Branch(outcome, "inclusive", arcs(*spawns), join, carry_payload=True)


def orchestration(**steps: Branch | Sequence[Branch] | None) -> Net:
    """Every step has work; the first is the start."""
    made = []
    for name, branches in steps.items():
        many = [] if branches is None else [branches] if isinstance(branches, Branch) else branches
        made.append(step(name, *many, work=Work(kind="test", error_aborts=True)))
    policy = RunPolicy(on_failure="handled")
    return net(*made, policy=policy, carries_payload=True)


def example_6_1() -> Net:
    """A1 spawns G1, H1, I1 and joins 2 of 3 at J1."""
    return orchestration(
        A1=forks(
            ["G1", "H1", "I1"], "J1", mode="kofn", k=2, wait="kill",
            froms=["G1:valid", "H1:valid", "I1:any"],
        ),
        G1=None, H1=None, I1=None, J1=None,
    )  # fmt: skip


def example_7_4() -> Net:
    return orchestration(
        A1=forks(["G1", "H1"], "J1", mode="any", wait="kill", froms=["G1:valid", "H1:valid"]),
        G1=None,
        H1=None,
        J1=forks(["P1", "Q1"], "J2", mode="all", wait="kill", froms=["P1:valid", "Q1:valid"]),
        P1=None,
        Q1=None,
        J2=forks(["Z1"]),
        Z1=None,
    )
