"""`spec.policy.admit`: who may pass into a step, and the older `when` of the step itself.

Rules are looked at from the top and the first that matches decides. When there are rules and none
matches, the token is denied: a gate that was written down stays shut until a rule opens it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal

from anabranch.dialects.findings import Section
from anabranch.dialects.nodes import Node
from anabranch.dialects.noetl.templates import Templates
from anabranch.expressions.port import Expression
from anabranch.net.net import Admission, AdmitRule

OnDeny = Literal["pending", "discard", "skip"]
ON_DENY: tuple[OnDeny, ...] = ("pending", "discard", "skip")


@dataclass(frozen=True, slots=True)
class Not:
    """The opposite of a condition."""

    inner: Expression

    @property
    def text(self) -> str:
        return f"not ({self.inner.text})"

    def evaluate(self, names: Mapping[str, Any]) -> bool:
        return not self.inner.evaluate(names)


def read_admission(step: Section, policy: Section | None, templates: Templates) -> Admission | None:
    admission = None
    admit = None if policy is None else policy.section("admit")
    if admit is not None:
        admission = _admit(admit, templates)
    when = step.ask("when")
    if when is None:
        return admission
    step.findings.warn(
        step.key_position("when"),
        "old-spelling",
        f"`when` of {step.what} is an old spelling",
        "write `spec: {policy: {admit: {rules: [{when: …, then: {allow: true}}]}}}`",
    )
    return _and_when(templates.condition(when, f"`when` of {step.what}"), admission)


def _and_when(guard: Expression, admission: Admission | None) -> Admission:
    """Both must agree: `when` denies first, then the rules decide."""
    if admission is None:
        return Admission((AdmitRule(guard, True), AdmitRule(None, False)))
    return replace(admission, rules=(AdmitRule(Not(guard), False), *admission.rules))


def _admit(admit: Section, templates: Templates) -> Admission | None:
    admit.choice("mode", ("exclusive",), "exclusive")
    on_deny = admit.choice("on_deny", ON_DENY, "pending")
    nodes = admit.items("rules")
    admit.finish()
    if nodes is None or not nodes.items:
        if nodes is not None or "rules" not in admit:
            admit.require("rules", "give it rules, or leave `admit` out to let everything in")
        return None
    rules: list[AdmitRule] = []
    for number, node in enumerate(nodes, 1):
        what = f"rule {number} of {admit.what}"
        if rules and rules[-1].guard is None:
            message = f"{what} stands after `else` and is never looked at"
            admit.findings.warn(node.position, "dead-rule", message, "move `else` to the end")
            break
        rule = _rule(admit, node, what, templates)
        if rule is not None:
            rules.append(rule)
    if rules and rules[-1].guard is not None:
        rules.append(AdmitRule(None, False))
    return Admission(tuple(rules), on_deny)


def _rule(admit: Section, node: Node, what: str, templates: Templates) -> AdmitRule | None:
    rule = admit.findings.section(node, what)
    if rule is None:
        return None
    otherwise = rule.section("else")
    when = rule.ask("when")
    if otherwise is not None:
        allow = _allow(otherwise, rule.what)
        otherwise.finish()
        rule.finish()
        return AdmitRule(None, allow)
    if when is None:
        rule.require("when", "write `when` and `then`, or `else`")
        rule.ask("then")
        rule.finish()
        return None
    guard = templates.condition(when, f"`when` of {what}")
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
