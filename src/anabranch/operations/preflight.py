"""What is looked at before a run begins, so that a start that cannot work leaves nothing behind."""

from __future__ import annotations

from collections.abc import Iterator

from anabranch.dialects.xrc729.words import RULE
from anabranch.errors import DefinitionError, InputError
from anabranch.net.net import Net
from anabranch.net.problems import Position, Problem
from anabranch.runtime.pools import Pools


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
