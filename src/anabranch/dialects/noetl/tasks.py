"""The `tool` of a step: which task it is, of which kind, and how long it may take.

A `decision` (ours) has no work at all: the step waits until somebody named says yes or no.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

from anabranch.dialects.findings import Findings, Section
from anabranch.dialects.nodes import Fields, Items, Node, Scalar
from anabranch.dialects.noetl.inputs import COMMON, KINDS, Inputs
from anabranch.dialects.noetl.templates import Templates
from anabranch.dialects.port import Options
from anabranch.expressions.jinja import has_template
from anabranch.net.net import Decision, Retry, Work
from anabranch.net.problems import did_you_mean

LATER_KINDS = frozenset(
    {"postgres", "duckdb", "sqlite", "playbook", "workbook", "secrets", "artifact"}
)
OnReject = Literal["fail", "pause"]
ON_REJECT: tuple[OnReject, ...] = ("fail", "pause")


@dataclass(frozen=True, slots=True)
class Tool:
    """What a task compiled to: work, or a decision in its place."""

    work: Work | None = None
    decision: Decision | None = None


@dataclass(frozen=True, slots=True)
class Tasks:
    """Reads the tasks of one playbook."""

    options: Options
    templates: Templates
    findings: Findings

    def tool(self, step: Section, retry: Retry) -> Tool | None:
        """The step's task. None when there is no `tool` or it could not be read."""
        node = step.ask("tool")
        inherited = self._step_args(step)
        task = None if node is None else self._task(step, node)
        kind = None if task is None else self._kind(task)
        if task is None or kind is None:
            return None
        if kind == "decision":
            return Tool(decision=self._decision(task))
        return Tool(self._work(task, kind, inherited, retry))

    def _work(self, task: Section, kind: str, inherited: dict[str, Any], retry: Retry) -> Work:
        spec = task.section("spec")
        inputs = Inputs(task, spec, self.templates)
        structure = inputs.of_kind(kind, inherited) if kind in KINDS else inputs.of_tool(inherited)
        timeout = self._timeout(task, spec, inputs, parts=kind == "http")
        if isinstance(timeout, dict):
            structure["timeout"] = timeout
            timeout = int(timeout["total"] * 1000) if "total" in timeout else None
        task.finish(also=COMMON)
        if spec is not None:
            hint = "use `retry` in the step's `spec`, and arcs on `event.name`"
            spec.not_yet("policy", "result", hint=hint)
            spec.finish()
        expression = self.templates.compose(structure) if structure else None
        return Work(kind, expression, timeout_ms=timeout, retry=retry)

    # -- which task --------------------------------------------------------------------------

    def _task(self, step: Section, node: Node) -> Section | None:
        what = f"the task of {step.what}"
        if isinstance(node, Items):
            if len(node.items) > 1:
                at, hint = node.items[1].position, "split it into one step per task"
                self.findings.not_yet(at, f"a pipeline of {len(node.items)} tasks", hint)
                return None
            if not node.items:
                hint = "give the step a task, or remove `tool`"
                self.findings.add(node.position, "missing-key", f"{what} is missing", hint)
                return None
            node = node.items[0]
        task = self.findings.section(node, what)
        if task is not None and "kind" not in task and len(task.node.fields) == 1:
            # `{label: {kind: …}}` is the older way to name a task.
            (inner,) = task.node.fields.values()
            if isinstance(inner, Fields):
                return Section(inner, what, self.findings)
        return task

    def _kind(self, task: Section) -> str | None:
        node = task.text("kind")
        if node is None:
            if "kind" not in task:
                task.require("kind", "choose one of " + ", ".join(KINDS))
            return None
        kind = str(node.value)
        if kind in KINDS or kind in self.options.tools:
            return kind
        if kind in LATER_KINDS:
            self.findings.not_yet(node.position, f"the task kind {kind!r}", "use another kind")
            return None
        if self.options.any_tool:
            return kind
        close = did_you_mean(kind, [*KINDS, *self.options.tools])
        hint = close if close.startswith("did") else "choose one of " + ", ".join(KINDS)
        message = f"there is no task kind {kind!r}, and no tool is registered under that name"
        self.findings.add(node.position, "unknown-kind", message, hint)
        return None

    def _step_args(self, step: Section) -> dict[str, Any]:
        """Arguments on the step instead of the task: an older place."""
        found: dict[str, Any] = {}
        for key in ("args", "input"):
            section = step.section(key)
            if section is not None:
                found |= self.templates.structure(section.node)
                message = f"`{key}` of {step.what} is an old spelling"
                at, hint = step.key_position(key), "write `args` on the task"
                self.findings.warn(at, "old-spelling", message, hint)
        return found

    # -- time --------------------------------------------------------------------------------

    def _timeout(
        self, task: Section, spec: Section | None, inputs: Inputs, *, parts: bool
    ) -> int | dict[str, float] | None:
        """Time for one attempt, from any of the places it may stand."""
        found: list[tuple[str, int | dict[str, float] | None]] = []
        for holder, key in ((task, "timeout"), (task, "timeout_seconds"), (spec, "timeout")):
            node = None if holder is None else holder.ask(key)
            if holder is None or node is None:
                continue
            if found:
                inputs.conflict(holder, key, found[0][0])
            in_parts = parts and isinstance(node, Fields)
            time = _time_parts(holder, key) if in_parts else holder.duration_of(key, node)
            found.append((key, time))
        return found[0][1] if found else None

    # -- decisions ---------------------------------------------------------------------------

    def _decision(self, task: Section) -> Decision:
        ask = task.text("ask")
        if ask is None and "ask" not in task:
            task.require("ask", "write the question somebody will answer")
        if ask is not None and has_template(str(ask.value)):
            self.findings.not_yet(ask.position, "a template in `ask`", "write plain text")
        actors = self._actors(task)
        on_reject = task.choice("on_reject", ON_REJECT, "fail")
        task.finish(also=("name", "kind", "desc"))
        return Decision(str(ask.value) if ask else "", actors, on_reject)

    def _actors(self, task: Section) -> tuple[str, ...]:
        node = task.ask("actors")
        if node is None:
            return ()
        names: list[str] = []
        for each in node if isinstance(node, Items) else (node,):
            if isinstance(each, Scalar) and isinstance(each.value, str) and each.value:
                names.append(each.value)
            else:
                self.findings.wrong_type(each, f"an actor of {task.what}", "a name")
        return tuple(names)


def _time_parts(holder: Section, key: str) -> dict[str, float]:
    """Seconds to connect, to read and in all, as HTTP work takes them."""
    parts = holder.section(key)
    assert parts is not None
    times = {name: parts.duration_ms(name) for name in ("connect", "read", "total")}
    parts.finish()
    return {name: time / 1000 for name, time in times.items() if time is not None}
