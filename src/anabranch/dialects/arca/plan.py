"""The whole definition: head, plan, dependencies, lowered to a net.

Steps run when those they depend on have ended well or were skipped; independent ones run side by
side, up to `max_parallel_steps`. A step that failed takes those that depend on it with it: they are
never begun.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import PurePath
from typing import Any

from msgspec.structs import replace

from anabranch.dialects.arca.requests import Inputs
from anabranch.dialects.arca.spelling import step_nodes
from anabranch.dialects.arca.steps import PlanStep, read_step
from anabranch.dialects.arca.timing import iso_duration, refuse_seconds
from anabranch.dialects.findings import Findings, Section
from anabranch.dialects.nodes import Fields, plain
from anabranch.dialects.source import Document
from anabranch.expressions.references import ROOTS, Reference
from anabranch.net.cycles import rings
from anabranch.net.fingerprint import fingerprint
from anabranch.net.net import Arc, Barrier, Branch, Net, RunPolicy, Step
from anabranch.net.problems import Position, Problem, closest, did_you_mean

#: Where the plan has several beginnings, the step without work from which all of them follow.
START = "plan"
PARALLEL_DEFAULT = 16
PARALLEL_MAX = 10_000
WORKFLOW_KIND = "service-order-orchestration"


class Plans:
    """Compiles one definition."""

    def __init__(self, document: Document, root: Fields) -> None:
        self.findings = Findings()
        self._document = document
        self._root = Section(root, "the definition", self.findings)

    def compile(self) -> tuple[Net | None, Sequence[Problem]]:
        root = self._root
        name = self._name()
        kind = root.string("workflow_kind", WORKFLOW_KIND)
        description = root.string("description") or root.string("label")
        for key in ("label", "schema", "schema_version"):
            root.ask(key)
        refuse_seconds(root)
        steps = self._steps(step_nodes(root, self.findings))
        deadline = self._deadline()
        parallel = self._parallel(steps.values())
        workload = self._input()
        root.finish()
        self._check_references(steps)
        self._check_inputs(steps.values(), workload)
        self._check_policies(steps.values(), deadline)
        if not steps or not self._in_order(steps):
            return None, self.findings.problems
        lowered, entry = _routed(steps)
        net = Net(
            name=name,
            dialect="arca",
            fingerprint=fingerprint("arca", self._document.text),
            steps=lowered,
            entry=entry,
            policy=RunPolicy(deadline_ms=deadline, parallel_max=parallel),
            workload=workload,
            labels={"workflow_kind": kind},
            description=description,
        )
        return net, self.findings.problems

    # -- the head ----------------------------------------------------------------------------

    def _name(self) -> str:
        root = self._root
        name = root.string("workflow_id") or root.string("definition_id")
        root.ask("definition_id")
        if name:
            return name
        fallback = PurePath(self._document.file).stem.strip("<>") or "workflow"
        hint = f"add `workflow_id`; until then it is called {fallback!r}"
        self.findings.warn(root.position, "no-name", "the definition has no name", hint)
        return fallback

    def _input(self) -> Mapping[str, Any]:
        given = self._root.section("input")
        value: Mapping[str, Any] = {} if given is None else plain(given.node)
        return value

    def _plan(self) -> Section | None:
        node = self._root.node.get("plan")
        return Section(node, "the plan", self.findings) if isinstance(node, Fields) else None

    def _deadline(self) -> int | None:
        plan = self._plan()
        at_root = iso_duration(self._root, "deadline")
        if plan is None:
            return at_root
        refuse_seconds(plan)
        in_plan = iso_duration(plan, "deadline")
        if at_root is not None and in_plan is not None and at_root != in_plan:
            message = "`deadline` of the plan is not that of the definition"
            plan.report("deadline", "conflicting-keys", message, "keep the one at the root")
        return at_root if at_root is not None else in_plan

    def _has_deadline(self) -> bool:
        plan = self._plan()
        return "deadline" in self._root or (plan is not None and "deadline" in plan)

    def _parallel(self, steps: Any) -> int:
        """A plan without anything new runs one step after the other, as plans always did."""
        default = PARALLEL_DEFAULT if any(step.is_new for step in steps) else 1
        key = "max_parallel_steps"
        plan = self._plan()
        if plan is not None and key in plan and key not in self._root:
            self._root.ask(key)
            return plan.whole(key, default, least=1, most=PARALLEL_MAX)
        return self._root.whole(key, default, least=1, most=PARALLEL_MAX)

    # -- the steps ---------------------------------------------------------------------------

    def _steps(self, nodes: Sequence[Fields]) -> dict[str, PlanStep]:
        found: dict[str, PlanStep] = {}
        for node in nodes:
            step = read_step(node, self.findings)
            if step is None:
                continue
            if step.step_id in found:
                first = found[step.step_id].position
                message = f"step {step.step_id!r} stands twice, first at line {first.line}"
                self.findings.add(step.position, "duplicate-step", message, "rename one of them")
                continue
            found[step.step_id] = step
        if not found and not any(p.severity == "error" for p in self.findings.problems):
            at = self._root.position
            self.findings.add(at, "no-steps", "the plan has no steps", "add at least one")
        self._check_dependencies(found)
        return found

    def _check_dependencies(self, steps: Mapping[str, PlanStep]) -> None:
        for step in steps.values():
            for other, at in step.named.items():
                if other == step.step_id:
                    message = f"step {step.step_id!r} depends on itself"
                    self.findings.add(at, "dependency-cycle", message, "remove it")
                elif other not in steps:
                    message = f"step {step.step_id!r} depends on {other!r}, which is not there"
                    self.findings.add(at, "unknown-step", message, did_you_mean(other, steps))

    def _in_order(self, steps: Mapping[str, PlanStep]) -> bool:
        following = {
            name: [other for other in step.depends_on if other != name]
            for name, step in steps.items()
        }
        if any(name not in steps for names in following.values() for name in names):
            return False
        cycles = rings(following)
        for ring in cycles:
            names = [name for name in steps if name in ring]
            message = f"these steps depend on one another: {', '.join(names)}"
            hint = "remove one of their dependencies"
            self.findings.add(steps[names[0]].position, "dependency-cycle", message, hint)
        return not cycles and not any(name in step.depends_on for name, step in steps.items())

    def _check_references(self, steps: Mapping[str, PlanStep]) -> None:
        """A reference to what cannot be there is found before anybody is asked anything."""
        for step in steps.values():
            given, judged = _references_of(step)
            ordered = list(step.terms.references())
            if not (given or judged or ordered or step.target):
                continue
            before = frozenset(_ancestors(step.step_id, steps))
            for reference in given:
                self._check_reference(step, reference, step.reads_at[0], steps, before)
            for reference, at in ordered:
                self._check_reference(step, reference, at, steps, before)
            if step.target is not None:
                for reference in step.target.references():
                    self._check_reference(step, reference, step.target.position, steps, before)
            if step.fan_in is not None and step.fan_in.bounds is not None:
                for reference in step.fan_in.bounds.references():
                    self._check_reference(step, reference, step.fan_in.position, steps, before)
            for reference in judged:
                at, own = step.reads_at[1], before | {step.step_id}
                self._check_reference(step, reference, at, steps, own)

    def _check_inputs(self, steps: Iterable[PlanStep], declared: Mapping[str, Any]) -> None:
        """What is not in `input` may be given when a run starts, unless it looks like a slip."""
        for step in steps:
            for references, at in zip(_references_of(step), step.reads_at, strict=False):
                for reference in references:
                    self._check_input(step, reference, at, declared)
            for reference, at in step.terms.references():
                self._check_input(step, reference, at, declared)

    def _check_input(
        self, step: PlanStep, reference: Reference, at: Position, declared: Mapping[str, Any]
    ) -> None:
        segments = reference.path.segments
        name = str(segments[1]) if len(segments) > 1 else ""
        if reference.root != "input" or not name or name in declared:
            return
        if hint := closest(name, declared):
            message = f"step {step.step_id!r} reads {reference.text!r}, and `input` has"
            self.findings.warn(at, "unknown-input", f"{message} no {name!r}", hint)

    def _check_reference(
        self,
        step: PlanStep,
        reference: Reference,
        at: Position,
        steps: Mapping[str, PlanStep],
        before: frozenset[str],
    ) -> None:
        root, segments = reference.root, reference.path.segments
        message = f"step {step.step_id!r} reads {reference.text!r}"
        if root not in ROOTS:
            hint = did_you_mean(root, ROOTS) or f"start with one of {', '.join(ROOTS)}"
        elif root == "params":
            message += ", a parameter of a template"
            hint = "run the template with `anabranch template run`"
        elif root != "steps":
            return
        elif (named := _step_in(segments[1:], steps)) is None:
            message += ", and there is no such step"
            hint = did_you_mean(segments[1] if len(segments) > 1 else "", steps)
        elif named in before:
            return
        elif named == step.step_id:
            message, hint = f"{message}, its own output", "only `fulfillment` can read that"
        else:
            hint = f"add {named!r} to its `depends_on`"
        self.findings.add(at, "unknown-reference", message, hint)

    def _check_policies(self, steps: Any, deadline: int | None) -> None:
        if deadline is None and self._has_deadline():
            return  # it is there, and nobody can read it
        for step in steps:
            for message, hint in _unmeetable(step, deadline) if step.sound else ():
                self.findings.warn(step.position, "unmeetable-policy", message, hint)


def _references_of(step: PlanStep) -> tuple[list[Reference], list[Reference]]:
    """Those of its input, and those of what decides whether its task is done."""
    source = step.decision.source
    asked = source.inputs if source is not None else None
    judged = asked.input.given.references() if isinstance(asked, Inputs) else ()
    return list(step.given.references()), list(judged)


def _step_in(segments: Sequence[str], steps: Mapping[str, PlanStep]) -> str | None:
    """Step ids may contain dots, so that one of them can be several segments of a path."""
    for count in range(1, len(segments) + 1):
        for separator in (".", "/"):
            name = separator.join(segments[:count])
            if name in steps:
                return name
    return None


def _ancestors(name: str, steps: Mapping[str, PlanStep]) -> set[str]:
    found: set[str] = set()
    frontier = [name]
    while frontier:
        step = steps.get(frontier.pop())
        for other in step.depends_on if step is not None else ():
            if other not in found:
                found.add(other)
                frontier.append(other)
    return found


def _unmeetable(step: PlanStep, deadline: int | None) -> Iterator[tuple[str, str]]:
    """What the policy of a step asks for and cannot get."""
    fan_in, target, timeout = step.fan_in, step.target, step.timing.timeout_ms
    name = f"step {step.step_id!r}"
    if fan_in is not None and target is not None:
        asked = len(target.participants) if target.resolve == "static" else target.limit
        if target.limit is not None and asked is not None:
            asked = min(asked, target.limit)
        counts = fan_in.policy in ("quorum", "best_of")
        if counts and asked is not None and fan_in.min_responses > asked:
            yield (
                f"{name} waits for {fan_in.min_responses} answers and asks {asked}: it will fail",
                f"lower `min_responses` to at most {asked}, or name more participants",
            )
        if fan_in.policy == "best_of" and timeout is None and deadline is None:
            yield (
                f"{name} waits for the best answer without any time limit",
                "add `timing.timeout`, or a `deadline`",
            )
    if timeout is not None and deadline is not None and timeout > deadline:
        yield (
            f"{name} may take longer than the deadline of the run",
            "shorten its timeout, or move the deadline",
        )


def _routed(steps: Mapping[str, PlanStep]) -> tuple[dict[str, Step], str]:
    """The steps with their routes, and where a run begins."""
    following: dict[str, list[str]] = {name: [] for name in steps}
    for step in steps.values():
        for other in step.depends_on:
            following[other].append(step.step_id)
    lowered = {}
    for name, step in steps.items():
        arcs = tuple(Arc(target) for target in following[name])
        branches = (Branch("ok", "inclusive", arcs), Branch("skipped", "inclusive", arcs))
        barrier = Barrier("all") if len(step.depends_on) > 1 else None
        lowered[name] = replace(step.lowered(), branches=branches if arcs else (), barrier=barrier)
    first = [name for name, step in steps.items() if not step.depends_on]
    if len(first) == 1:
        return lowered, first[0]
    start = START
    while start in lowered:
        start += "'"
    opening = Step(start, branches=(Branch(None, "inclusive", tuple(map(Arc, first))),))
    return {start: opening, **lowered}, start
