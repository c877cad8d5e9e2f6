"""`next`: the router with its arcs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

import msgspec
from msgspec.structs import replace

from anabranch.dialects.findings import Findings, Section
from anabranch.dialects.nodes import Node, Scalar
from anabranch.dialects.noetl.patches import read_patches, refuse_scopes
from anabranch.dialects.noetl.templates import TemplateCompiler
from anabranch.expressions.port import Expression
from anabranch.net.net import Arc, Branch, Step
from anabranch.net.problems import did_you_mean

Mode = Literal["exclusive", "inclusive"]
MODES: tuple[Mode, ...] = ("exclusive", "inclusive")
NO_MATCH = ("complete", "quiet")


class Approved(msgspec.Struct, frozen=True):
    """The guard of an arc out of a decision that has none of its own: a rejection is no way on."""

    text: str = "approved"

    def evaluate(self, names: Mapping[str, Any]) -> bool:
        return bool(names["event"]["ending"] != "failed")


class Router(msgspec.Struct, frozen=True):
    """Reads the `next` of one playbook's steps."""

    steps: frozenset[str]
    templates: TemplateCompiler
    findings: Findings

    def branches(self, step: Section) -> tuple[Branch, ...]:
        """What follows the step."""
        router = step.section("next")
        if router is None:
            return ()
        mode: Mode = "exclusive"
        spec = router.section("spec")
        if spec is not None:
            mode = spec.choice("mode", MODES, mode)
            spec.choice("on_no_match", NO_MATCH, "complete")
            for key in ("policy", "on_no_match"):
                if spec.ask(key) is not None:
                    message = f"`{key}` of {spec.what} is ignored"
                    hint = "`no_next_is_error` of the executor says what no match means"
                    spec.report(key, "ignored-key", message, hint, "note")
            spec.finish()
        arcs = router.items("arcs")
        router.require("arcs", "list the arcs, each with the `step` it leads to")
        router.finish()
        return self._branch(list(arcs) if arcs is not None else [], mode, router.what)

    def after_decision(self, branches: tuple[Branch, ...], step: Section) -> tuple[Branch, ...]:
        """What follows a decision: a rejection is followed only by arcs that ask for it."""
        for branch in branches:
            bare = [arc for arc in branch.arcs if arc.guard is None]
            if bare and branch.arcs[0].guard is not None:  # it looks like an `else`
                message = f"an arc of {step.what} has no `when`: it is followed only after approval"
                hint = "write `when: \"{{ outcome.status == 'error' }}\"` if it is for a rejection"
                self.findings.warn(bare[0].position or step.position, "decision-arc", message, hint)
        return tuple(
            replace(branch, arcs=tuple(_approved(arc) for arc in branch.arcs))
            for branch in branches
        )

    def _branch(self, nodes: list[Node], mode: Mode, what: str) -> tuple[Branch, ...]:
        arcs = [self._arc(node, f"arc {n} in {what}") for n, node in enumerate(nodes, 1)]
        found = tuple(arc for arc in arcs if arc is not None)
        return (Branch(mode=mode, arcs=found),) if found else ()

    def _arc(self, node: Node, what: str) -> Arc | None:
        arc = self.findings.section(node, what)
        if arc is None:
            return None
        name = arc.text("step")
        arc.require("step", "name the step the arc leads to")
        when = arc.ask("when")
        guard = None if when is None else self.templates.condition(when, f"`when` of {what}")
        args = self._args(arc)
        patches = read_patches(arc, self.templates)
        refuse_scopes(arc)
        arc.ignore("spec")
        arc.finish()
        target = None if name is None else self._target(name, what)
        return None if target is None else Arc(target, guard, args, arc.position, patches)

    def _args(self, arc: Section) -> Expression | None:
        args = arc.section("args")
        return None if args is None else self.templates.tree(args.node)

    def _target(self, node: Scalar, what: str) -> str | None:
        name = str(node.value)
        if name in self.steps:
            return name
        hint = did_you_mean(name, self.steps) or "add the step, or remove the arc"
        message = f"{what} leads to the step {name!r}, which does not exist"
        self.findings.add(node.position, "unknown-step", message, hint)
        return None


#: Under these names a guard sees how the step ended.
_OF_OUTCOME = frozenset({"event", "outcome", "output", "error", "fanin", "result", "response"})


def stopping_at_failures(step: Step) -> Step:
    """After a failure only such arcs lead on as look at how the step ended."""
    branches = tuple(
        replace(
            branch,
            arcs=tuple(
                arc if _looks_at_outcome(arc) else replace(arc, after_failure=False)
                for arc in branch.arcs
            ),
        )
        for branch in step.branches
    )
    return replace(step, branches=branches)


def _looks_at_outcome(arc: Arc) -> bool:
    if arc.guard is None:
        return False
    reads = getattr(arc.guard, "reads", None)
    return reads is None or any(root in _OF_OUTCOME for root, *_ in reads)


def _approved(arc: Arc) -> Arc:
    return arc if arc.guard is not None else replace(arc, guard=Approved())
