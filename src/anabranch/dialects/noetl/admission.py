"""`spec.policy.admit`: who may pass into a step.

Rules are looked at from the top and the first that matches decides. When there are rules and none
matches, the token is denied: a gate that was written down stays shut until a rule opens it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

import msgspec

from anabranch.dialects.findings import Section
from anabranch.dialects.nodes import Node
from anabranch.dialects.noetl.templates import TemplateCompiler
from anabranch.expressions.port import Expression, Paths
from anabranch.net.net import Admission, AdmitRule

OnDeny = Literal["pending", "discard", "skip"]
MODES = ("exclusive",)
ON_DENY: tuple[OnDeny, ...] = ("pending", "discard", "skip")


class Not(msgspec.Struct, frozen=True):
    """The opposite of a condition."""

    inner: Expression

    @property
    def text(self) -> str:
        return f"not ({self.inner.text})"

    @property
    def reads(self) -> Paths | None:
        return getattr(self.inner, "reads", None)

    def evaluate(self, names: Mapping[str, Any]) -> bool:
        return not self.inner.evaluate(names)


def read_admission(policy: Section | None, templates: TemplateCompiler) -> Admission | None:
    admit = None if policy is None else policy.section("admit")
    return None if admit is None else _admit(admit, templates)


def _admit(admit: Section, templates: TemplateCompiler) -> Admission | None:
    admit.choice("mode", MODES, "exclusive")
    on_deny = admit.choice("on_deny", ON_DENY, "pending")
    nodes = admit.items("rules")
    admit.finish()
    if nodes is None or not nodes.items:
        if nodes is not None or "rules" not in admit:
            admit.missing("rules", "give it rules, or leave `admit` out to let everything in")
        return None
    rules: list[AdmitRule] = []
    for number, node in enumerate(nodes, 1):
        what = f"rule {number} of {admit.what}"
        if rules and rules[-1].guard is None:
            message = f"{what} stands after `else` and is never evaluated"
            admit.findings.warn(node.position, "dead-rule", message, "move `else` to the end")
            break
        rule = _rule(admit, node, what, templates)
        if rule is not None:
            rules.append(rule)
    if rules and rules[-1].guard is not None:
        rules.append(AdmitRule(None, False))
    return Admission(tuple(rules), on_deny)


def _rule(admit: Section, node: Node, what: str, templates: TemplateCompiler) -> AdmitRule | None:
    rule = admit.findings.section(node, what)
    if rule is None:
        return None
    otherwise = rule.section("else")
    when, unless = rule.ask("when"), rule.ask("unless")
    if otherwise is not None:
        allow = _allow(otherwise, rule.what)
        otherwise.finish()
        rule.finish()
        return AdmitRule(None, allow)
    if when is not None and unless is not None:
        rule.conflict("when", "unless")
    guard: Expression
    if when is not None:
        guard = templates.condition(when, f"`when` of {what}")
    elif unless is not None:
        guard = Not(templates.condition(unless, f"`unless` of {what}"))
    else:
        rule.require("when", "write `when` and `then`, or `else`")
        rule.ask("then")
        rule.finish()
        return None
    allow = _allow(rule, what)
    rule.finish()
    return AdmitRule(guard, allow)


def _allow(holder: Section, what: str) -> bool:
    """`then: {allow: …}`; in `else` also `allow` without the `then`."""
    then = holder.section("then") if "then" in holder else None
    source = then or holder
    if "allow" not in source:
        holder.ask("then")
        hint = "write `then: {allow: true}` or `then: {allow: false}`"
        holder.findings.add(holder.position, "missing-key", f"{what} does not say `allow`", hint)
        return False
    allow = source.flag("allow")
    if then is not None:
        then.finish()
    return allow
