"""What is looked at before a run begins, so that a start that cannot work leaves nothing behind."""

from __future__ import annotations

from collections.abc import Iterator

from anabranch.dialects.xrc729.words import RULE
from anabranch.errors import DefinitionError
from anabranch.net.net import Net
from anabranch.net.problems import Position, Problem


def require_rules(net: Net, *, chain: bool) -> None:
    """Every step's rule must be at hand, or be one that the chain can be asked for."""
    missing = list(missing_rules(net, chain=chain))
    if missing:
        raise DefinitionError(missing)


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
