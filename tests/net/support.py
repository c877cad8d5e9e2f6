"""Short ways to build nets."""

from __future__ import annotations

from typing import Any

from anabranch.expressions.jinja.jinja import Jinja
from anabranch.net.net import Arc, Branch, GatherRule, Join, Net, Slot, Step, Work
from anabranch.net.problems import Position


def arc(written: str) -> Arc:
    """`target` or `target if condition`."""
    target, _, condition = written.partition(" if ")
    return Arc(target, Jinja().condition(condition) if condition else None)


def step(name: str, *targets: str, line: int = 0, **more: Any) -> Step:
    """A noop step with exclusive arcs, or inclusive ones when the first word is `all`."""
    inclusive = targets[:1] == ("all",)
    arcs = tuple(arc(target) for target in targets[inclusive:])
    branches = (Branch(mode="inclusive" if inclusive else "exclusive", arcs=arcs),) if arcs else ()
    given: dict[str, Any] = {"work": Work("noop"), "branches": branches, **more}
    return Step(name, position=Position(line, 1, "f") if line else None, **given)


def net(*steps: Step, entry: str = "", final: str | None = None, name: str = "test") -> Net:
    named = {each.name: each for each in steps}
    return Net(name, "test", "", named, entry or steps[0].name, final)


def joining(name: str, spawns: str, target: str, slots: str, rule: GatherRule) -> Step:
    """A step that spawns and joins, with space-separated names; a slot may be `node:outcome`."""
    wanted = tuple(Slot(*slot.split(":")) for slot in slots.split())
    arcs = tuple(Arc(spawn) for spawn in spawns.split())
    branch = Branch("valid", "inclusive", arcs, Join(target, rule, wanted, Position(1, 1, "f")))
    return Step(name, work=Work("rule"), branches=(branch,))
