"""Small nets for the tests of the kit, and a theatre whose engine dies at a chosen commit."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from anabranch.errors import ExpressionError
from anabranch.kernel import stimuli as s
from anabranch.net.net import (
    Arc,
    Branch,
    Fan,
    GatherRule,
    Join,
    Net,
    Retry,
    Slot,
    Step,
    Work,
)
from anabranch.testing.play import RUN, Theatre
from anabranch.testing.random.steps import PythonExpression
from anabranch.testing.scripted.answers import Scripted
from anabranch.testing.scripted.played import Played
from anabranch.testing.scripted.script import Script, Scripts

BEFORE, AFTER, AMID = "before commit", "after commit", "amid effects"


def when(text: str, function: Callable[[Mapping[str, Any]], Any]) -> PythonExpression:
    return PythonExpression(text, function)


def calls(
    name: str,
    *,
    kind: str = "http",
    retry: Retry | None = None,
    inputs: Any = None,
    job_timeout_ms: int | None = None,
    **more: Any,
) -> Step:
    """A step that would reach outside; `more` are fields of `Step`."""
    work = Work(kind, inputs=inputs, retry=retry or Retry(), timeout_ms=job_timeout_ms)
    return Step(name, work=work, **more)


def to(*targets: str, mode: Any = "inclusive") -> tuple[Branch, ...]:
    return (Branch(mode=mode, arcs=tuple(Arc(target) for target in targets)),)


def asks(name: str, labels: list[str], rule: GatherRule, **more: Any) -> Step:
    """A step that asks several parties at once."""
    over = when("parties", lambda _names: labels)
    return Step(
        name, work=Work("http"), fan=Fan(over, rule, window=more.pop("window", None)), **more
    )


def joins(
    *spawns: str, target: str, rule: GatherRule, slots_at: tuple[str, ...] = ()
) -> tuple[Branch, ...]:
    """A join of what is spawned, or of the steps `slots_at` further on."""
    arcs = tuple(Arc(spawn) for spawn in spawns)
    slots = tuple(Slot(node) for node in slots_at or spawns)
    return (Branch(None, "inclusive", arcs, Join(target, rule, slots), carry_payload=True),)


def net(*steps: Step, **more: Any) -> Net:
    return Net(
        name="sample",
        dialect="test",
        fingerprint="sample",
        steps={step.name: step for step in steps},
        entry=steps[0].name,
        **more,
    )


def chain(length: int = 3, retry: Retry | None = None) -> Net:
    """a → b → c, each reaching outside."""
    names = [chr(ord("a") + number) for number in range(length)]
    following = [*names[1:], ""]
    return net(
        *(
            calls(name, retry=retry or Retry(), branches=to(target) if target else ())
            for name, target in zip(names, following, strict=True)
        )
    )


def broken(_names: Mapping[str, Any]) -> Any:
    raise ExpressionError("made to fail")


class DyingTheatre(Theatre):
    """A play whose engine dies once: at the commit with that number, at that place."""

    commits = 0
    dies_at = 0
    place = BEFORE

    def turn(self) -> None:
        turned = self.core.turn(self.clock.now())
        self.commits += bool(turned.batch.commits)
        if not turned.batch.commits or self.commits != self.dies_at:
            self.write(turned)
            self.let_out(turned.effects)
            return
        if self.place != BEFORE:
            self.write(turned)
        if self.place == AMID:
            self.let_out(turned.effects[: len(turned.effects) // 2])
        self.come_up(snapshot_every=3)


def play_and_die(
    definition: Net,
    script: Mapping[str, Scripted],
    dies_at: int,
    place: str,
    patches: Mapping[float, Mapping[str, Any]] | None = None,
) -> tuple[Played, int]:
    """The play, and how many commits it made."""
    scripts = Scripts(Script(definition, script), Script(definition, {}))
    theatre = DyingTheatre(definition, scripts)
    theatre.dies_at, theatre.place = dies_at, place
    theatre.announce(patches or {}, None)
    theatre.begin(s.Start(run=RUN))
    return theatre.perform(100_000), theatre.commits
