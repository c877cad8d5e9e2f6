"""`next`: the router with its arcs, and the older spellings it had."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from anabranch.dialects.findings import Findings, Section
from anabranch.dialects.nodes import Fields, Items, Node, Scalar
from anabranch.dialects.noetl.templates import Templates
from anabranch.expressions.port import Expression
from anabranch.net.net import Arc, Branch
from anabranch.net.problems import Position, did_you_mean

Mode = Literal["exclusive", "inclusive"]
MODES: tuple[Mode, ...] = ("exclusive", "inclusive")
ROUTER = "next: {spec: {mode: exclusive}, arcs: [{step: …}]}"


@dataclass(frozen=True, slots=True)
class Router:
    """Reads the `next` of one playbook's steps."""

    steps: frozenset[str]
    templates: Templates
    findings: Findings

    def branches(self, step: Section, old_mode: Mode | None) -> tuple[Branch, ...]:
        """What follows the step. `old_mode` is what `spec.next_mode` said, if anything."""
        node = step.ask("next")
        if node is None:
            return ()
        what = f"`next` of {step.what}"
        if isinstance(node, Fields) and "step" not in node:
            return self._router(Section(node, what, self.findings), old_mode)
        self._old(step.key_position("next"), f"{what} as {_spelling(node)}", ROUTER)
        nodes: list[Node] = list(node) if isinstance(node, Items) else [node]
        parallel = isinstance(node, Items) and all(isinstance(each, Scalar) for each in nodes)
        mode: Mode = old_mode or ("inclusive" if parallel else "exclusive")
        return self._branch(nodes, mode, what)

    def _router(self, router: Section, old_mode: Mode | None) -> tuple[Branch, ...]:
        mode: Mode = old_mode or "exclusive"
        spec = router.section("spec")
        if spec is not None:
            mode = spec.choice("mode", MODES, mode)
            spec.not_yet("policy", "on_no_match")
            spec.finish()
        arcs = router.items("arcs")
        if arcs is None and "arcs" not in router:
            router.require("arcs", "list the arcs, each with the `step` it leads to")
        router.finish()
        return self._branch(list(arcs) if arcs is not None else [], mode, router.what)

    def _branch(self, nodes: list[Node], mode: Mode, what: str) -> tuple[Branch, ...]:
        arcs = [self._arc(node, f"arc {n} in {what}") for n, node in enumerate(nodes, 1)]
        found = tuple(arc for arc in arcs if arc is not None)
        return (Branch(mode=mode, arcs=found),) if found else ()

    def _arc(self, node: Node, what: str) -> Arc | None:
        if isinstance(node, Scalar):
            target = self._target(node, what)
            return None if target is None else Arc(target, position=node.position)
        arc = self.findings.section(node, what)
        if arc is None:
            return None
        name = arc.text("step")
        if name is None and "step" not in arc:
            arc.require("step", "name the step the arc leads to")
        when = arc.ask("when")
        guard = None if when is None else self.templates.condition(when, f"`when` of {what}")
        args = self._args(arc)
        arc.not_yet("set", "spec", hint="write the step's `set_ctx` instead")
        arc.finish()
        target = None if name is None else self._target(name, what)
        return None if target is None else Arc(target, guard, args, arc.position)

    def _args(self, arc: Section) -> Expression | None:
        node = arc.ask("args")
        if node is None:
            return None
        if not isinstance(node, Fields):
            self.findings.wrong_type(node, f"`args` of {arc.what}", "a mapping")
            return None
        return self.templates.tree(node)

    def _target(self, node: Scalar, what: str) -> str | None:
        name = str(node.value)
        if name in self.steps:
            return name
        hint = did_you_mean(name, self.steps) or "add the step, or remove the arc"
        message = f"{what} leads to the step {name!r}, which does not exist"
        self.findings.add(node.position, "unknown-step", message, hint)
        return None

    def _old(self, at: Position, what: str, canonical: str) -> None:
        self.findings.warn(at, "old-spelling", f"{what} is an old spelling", f"write `{canonical}`")


def _spelling(node: Node) -> str:
    return {Scalar: "a name", Items: "a list", Fields: "a single arc"}[type(node)]
