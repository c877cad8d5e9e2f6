"""What is looked at before a run begins, so that a start that cannot work leaves nothing behind."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from anabranch.dialects.xrc729.words import RULE
from anabranch.errors import DefinitionError, InputError
from anabranch.net.net import Net, Work
from anabranch.net.problems import Position, Problem
from anabranch.net.program import Iteration, Program
from anabranch.runtime.pools import Pools
from anabranch.work.switched_off import why_off


@dataclass(frozen=True, slots=True)
class Kinds:
    """Which kinds of work this process does not do. Those of workers elsewhere are their matter."""

    off: frozenset[str] = frozenset()
    outside: Callable[[str], bool] = lambda _pool: False

    def require(self, net: Net) -> None:
        if refused := list(self.refused(net)):
            raise DefinitionError(refused)

    def refused(self, net: Net) -> Iterator[Problem]:
        """What a definition asks for and would not get here."""
        if not self.off:
            return
        for step in net.steps.values():
            if step.work is None or self.outside(step.work.pool):
                continue
            for kind, at in _kinds(step.work):
                if kind in self.off:
                    where = at or step.position or Position(1, 1)
                    said = f"step {step.name!r}: {why_off(kind)}"
                    yield Problem(where, "kind-off", said, "use another kind, or a pool of workers")


def _kinds(work: Work) -> Iterator[tuple[str, Position | None]]:
    """The kinds of a step's tasks, those inside a pipeline or a loop included."""
    yield work.kind, None
    program = work.program.program if isinstance(work.program, Iteration) else work.program
    if isinstance(program, Program):
        for task in program.every_task():
            yield task.kind, task.position


def require_rules(net: Net, *, chain: bool) -> None:
    """Every step's rule must be at hand, or be one that the chain can be asked for."""
    missing = list(missing_rules(net, chain=chain))
    if missing:
        raise DefinitionError(missing)


def require_no_workers(net: Net, pools: Pools) -> None:
    """Refuse what only workers elsewhere may do, where they have no door to come in by."""
    for step in net.steps.values():
        pool = step.work.pool if step.work is not None else ""
        if pools.outside(pool):
            raise InputError(
                f"step {step.name!r} is for the workers of pool {pool!r}, who ask a server: run it "
                f"on one (`anabranch serve`, --server URL), or let this process do their work "
                f"(ANABRANCH_POOLS_HERE={pool})",
                code="no_workers",
            )


def child_depth(above: int, most: int) -> int:
    """How deep a child is below the first run; refused where that is too deep."""
    if above + 1 > most:
        raise InputError(
            f"it would be a child {above + 1:,} runs below the first, which is too deep; the limit "
            f"child_depth_max is {most:,}: a definition that begins itself needs an end",
            code="too_deep",
        )
    return above + 1


def missing_children(net: Net, beside: Path) -> Iterator[Problem]:
    """Child definitions that are named and not there: neither where this process runs, which is
    where an engine looks, nor beside the definition."""
    for child in net.children:
        path = Path(child.path)
        if not any(_is_file(place) for place in (path, beside / path)):
            message = f"there is no file {child.path} for the child"
            hint = "paths of children begin in the folder that the engine runs in"
            yield Problem(child.position, "missing-child", message, hint, "warning")


def _is_file(path: Path) -> bool:
    try:
        return path.is_file()
    except (OSError, ValueError):
        return False


def missing_rules(net: Net, *, chain: bool) -> Iterator[Problem]:
    for step in net.steps.values():
        rule = step.work.program if step.work is not None and step.work.kind == RULE else None
        if rule is None or rule.text is not None:
            continue
        if rule.address and chain:
            continue
        name = rule.address or rule.alias
        why = "is not here, and no chain is configured" if rule.address else "is not here"
        hint = "give the rules with --rules" + (", or a chain with --rpc" if rule.address else "")
        message = f"the rule {name} of step {step.name!r} {why}"
        yield Problem(step.position or Position(1, 1), "no-rule", message, hint)
