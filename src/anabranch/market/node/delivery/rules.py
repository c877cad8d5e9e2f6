"""Which component may send what to whom: the outbound rules of the node's configuration.

An envelope is allowed where one rule allows all of it. A rule names one component and one schema
(`*` is any). Selectors and nodes that a rule does not list are not limited; named routes and
references are allowed only where they are listed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from anabranch.market.node.delivery.envelope import Envelope, refused
from anabranch.market.node.delivery.plan import Stage

#: What the host itself sends needs no rule.
HOST = "host"
_ANY = "*"


def require_allowed(
    rules: Sequence[Mapping[str, Any]], envelope: Envelope, stages: Sequence[Stage], size: int
) -> None:
    """Raises `outbound-denied` with what the closest rule does not allow."""
    if envelope.component_id == HOST:
        return
    about = [rule for rule in rules if _is_about(rule, envelope)]
    reasons = [_refusal(rule, envelope, stages, size) for rule in about]
    if "" in reasons:
        return
    why = reasons[-1] if reasons else "no rule is about them"
    raise refused(
        "outbound-denied",
        f"{envelope.component_id!r} may not send {envelope.schema!r} so: {why}; "
        "see delivery.outbound of this node",
    )


def routes_for(rules: Sequence[Mapping[str, Any]], component_id: str) -> set[str]:
    """Named routes that a component may use."""
    return {
        ref
        for rule in rules
        if rule["component/id"] in (_ANY, component_id)
        for ref in rule.get("route/refs", ())
    }


def _is_about(rule: Mapping[str, Any], envelope: Envelope) -> bool:
    return rule["component/id"] in (_ANY, envelope.component_id) and rule["schema"] in (
        _ANY,
        envelope.schema,
    )


def _refusal(
    rule: Mapping[str, Any], envelope: Envelope, stages: Sequence[Stage], size: int
) -> str:
    """Why this rule does not allow the envelope; "" where it does."""
    return (
        _refused_targets(rule, envelope, stages)
        or _refused_reference(rule, envelope)
        or _refused_sizes(rule, stages, size)
    )


def _refused_targets(rule: Mapping[str, Any], envelope: Envelope, stages: Sequence[Stage]) -> str:
    if envelope.route_ref:  # its stages are the operator's own
        allowed = envelope.route_ref in rule.get("route/refs", ())
        return "" if allowed else f"the route {envelope.route_ref!r} is not allowed"
    selectors = rule.get("recipient/selectors")
    for stage in envelope.stages:
        for target in stage["targets"]:
            kind = target["selector/kind"]
            if selectors is not None and kind not in selectors:
                return f"the selector {kind!r} is not allowed"
    nodes = rule.get("target/node-ids")
    if nodes is not None:
        for stage_found in stages:
            for node in stage_found.nodes:
                if node not in nodes:
                    return f"the node {node} is not allowed"
    return ""


def _refused_reference(rule: Mapping[str, Any], envelope: Envelope) -> str:
    if not envelope.ref:
        return ""
    scheme = envelope.ref.partition(":")[0]
    allowed = scheme in rule.get("artifact/ref-schemes", ())
    return "" if allowed else f"references {scheme[:40]!r} are not allowed"


def _refused_sizes(rule: Mapping[str, Any], stages: Sequence[Stage], size: int) -> str:
    targets = max((len(stage.nodes) for stage in stages), default=0)
    limits = (
        ("fanout/max-targets", targets, "targets in one stage"),
        ("fallback/max-stages", len(stages), "stages"),
        ("max/bytes", size, "bytes"),
    )
    for name, has, what in limits:
        most = rule.get(name)
        if most is not None and has > most:
            return f"{has:,} {what} are more than `{name}` {most:,}"
    return ""
