"""The `tool` of a step: one task, and what its kind of work receives.

The inputs a kind of work receives are a mapping made when the job starts:

    noop     result, message
    python   code, args, libs
    http     url, method, headers, params, one of body / json / form, verify_ssl, follow_redirects
    shell    command or cmds, shell, cwd, env
    others   callables registered as tools: the task's own keys and its args, in one mapping

A `decision` (ours) has no work at all: the step waits until somebody named says yes or no.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from anabranch.dialects.findings import Findings, Section
from anabranch.dialects.nodes import Fields, Items, Node, Scalar
from anabranch.dialects.noetl.templates import Templates
from anabranch.expressions.jinja import has_template
from anabranch.net.net import Decision, Retry, Work
from anabranch.net.problems import did_you_mean

#: For each kind the keys it takes, apart from those every task has.
KINDS: Mapping[str, tuple[str, ...]] = {
    "noop": ("result", "message"),
    "python": ("code", "code_b64", "libs"),
    "http": ("url", "method", "headers", "params", "body", "json", "form")
    + ("verify_ssl", "follow_redirects"),
    "shell": ("command", "cmds", "shell", "cwd", "env"),
    "decision": ("ask", "actors", "on_reject"),
}
#: Other names for the same key, by kind.
ALIASES: Mapping[str, Mapping[str, str]] = {
    "http": {"endpoint": "url", "payload": "body", "data": "body"},
}
COMMON = ("name", "kind", "desc", "args", "input", "spec", "timeout", "timeout_seconds")
LATER_KINDS = frozenset(
    {"postgres", "duckdb", "sqlite", "playbook", "workbook", "secrets", "artifact"}
)
LATER_KEYS = ("auth", "credential", "script", "output", "set", "eval", "policy", "sink", "result")
#: These always become text; a number rendered into a command is still part of a command.
TEXTS = frozenset({"url", "method", "command", "cwd", "shell"})


@dataclass(frozen=True, slots=True)
class Tool:
    """What a task compiled to: work, or a decision in its place."""

    work: Work | None = None
    decision: Decision | None = None


@dataclass(frozen=True, slots=True)
class Tasks:
    """Reads the tasks of one playbook."""

    tools: frozenset[str]
    templates: Templates
    findings: Findings

    def tool(self, step: Section, retry: Retry) -> Tool | None:
        """The step's task. None when there is no `tool` or it could not be read."""
        node = step.ask("tool")
        inherited = self._step_args(step)
        if node is None:
            return None
        task = self._task(step, node)
        if task is None:
            return None
        kind = self._kind(task)
        if kind is None:
            return None
        if kind == "decision":
            return Tool(decision=self._decision(task))
        timeout_ms = self._timeout(task)
        structure = self._inputs(task, kind, inherited)
        inputs = self.templates.compose(structure) if structure else None
        return Tool(Work(kind, inputs, timeout_ms=timeout_ms, retry=retry))

    # -- which task --------------------------------------------------------------------------

    def _task(self, step: Section, node: Node) -> Section | None:
        what = f"the task of {step.what}"
        if isinstance(node, Items):
            if len(node.items) > 1:
                at = node.items[1].position
                hint = "split it into one step per task"
                self.findings.not_yet(at, f"a pipeline of {len(node.items)} tasks", hint)
                return None
            if not node.items:
                hint = "give the step a task, or remove `tool`"
                self.findings.add(node.position, "missing-key", f"{what} is missing", hint)
                return None
            node = node.items[0]
        task = self.findings.section(node, what)
        if task is not None and "kind" not in task and len(task.node.fields) == 1:
            # `{label: {kind: …}}`, the older way to name a task
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
        if kind in KINDS or kind in self.tools:
            return kind
        if kind in LATER_KINDS:
            self.findings.not_yet(node.position, f"the task kind {kind!r}", "use another kind")
            return None
        hint = did_you_mean(kind, [*KINDS, *self.tools, *LATER_KINDS])
        hint = hint if hint.startswith("did") else "choose one of " + ", ".join(KINDS)
        message = f"there is no task kind {kind!r}, and no tool is registered under that name"
        self.findings.add(node.position, "unknown-kind", message, hint)
        return None

    # -- inputs ------------------------------------------------------------------------------

    def _inputs(self, task: Section, kind: str, inherited: dict[str, Any]) -> dict[str, Any]:
        self._policy(task)
        given = self._own(task, kind)
        args = self._args(task)
        if isinstance(args, dict):
            args = {**inherited, **args}
        if kind not in KINDS:
            return self._flat(task, given, args)
        if args:
            given["args"] = args
        self._check(task, kind, given)
        return given

    def _own(self, task: Section, kind: str) -> dict[str, Any]:
        """The kind's own keys, under their first name."""
        given: dict[str, Any] = {}
        names = {name: name for name in KINDS.get(kind, ())} | dict(ALIASES.get(kind, {}))
        holders = [task, *self._misplaced(task, names)]
        for holder in holders:
            for name, canonical in names.items():
                node = holder.ask(name)
                if node is None:
                    continue
                if canonical in given:
                    self._conflict(holder, name, canonical)
                given[canonical] = self._value(kind, canonical, node)
        if kind not in KINDS:
            for name in task.node.fields:
                if name not in COMMON and (node := task.ask(name)) is not None:
                    given[name] = self.templates.structure(node)
        else:
            task.not_yet(*(key for key in LATER_KEYS if key not in names))
        for key in COMMON:
            task.ask(key)
        task.finish()
        return given

    def _misplaced(self, task: Section, names: Mapping[str, str]) -> list[Section]:
        """Inputs under `spec`, where some playbooks put them."""
        node = task.node.get("spec")
        if not isinstance(node, Fields) or not any(name in node for name in names):
            return []
        spec = Section(node, f"`spec` of {task.what}", self.findings)
        for name in names:
            if name in node:
                message = f"`{name}` of {spec.what} is an old spelling"
                hint = f"write `{name}` on the task itself"
                self.findings.warn(node.keys[name], "old-spelling", message, hint)
        return [spec]

    def _value(self, kind: str, name: str, node: Node) -> Any:
        if kind == "python" and name in ("code", "code_b64"):
            return self._code(name, node)
        if name in TEXTS:
            if isinstance(node, Scalar) and isinstance(node.value, str):
                return self.templates.text(node)
            self.findings.wrong_type(node, f"`{name}`", "text")
            return ""
        return self.templates.structure(node)

    def _code(self, name: str, node: Node) -> Any:
        if not isinstance(node, Scalar) or not isinstance(node.value, str):
            self.findings.wrong_type(node, f"`{name}`", "text")
            return ""
        if name == "code":
            return self.templates.code(node)
        try:
            return base64.b64decode(node.value, validate=True).decode()
        except (binascii.Error, ValueError):
            message = "`code_b64` is not base64 of UTF-8 text"
            self.findings.add(node.position, "bad-value", message, "encode it again, or use `code`")
            return ""

    def _args(self, task: Section) -> Any:
        """A mapping, or one template that gives a mapping."""
        key = "input" if "input" in task and "args" not in task else "args"
        node = task.ask(key)
        if node is None:
            return {}
        if isinstance(node, Fields):
            return self.templates.structure(node)
        if isinstance(node, Scalar) and isinstance(node.value, str) and has_template(node.value):
            return self.templates.structure(node)
        self.findings.wrong_type(node, f"`{key}` of {task.what}", "a mapping")
        return {}

    def _step_args(self, step: Section) -> dict[str, Any]:
        """Arguments on the step instead of the task: an older place."""
        found: dict[str, Any] = {}
        for key in ("args", "input"):
            section = step.section(key)
            if section is not None:
                found |= self.templates.structure(section.node)
                message = f"`{key}` of {step.what} is an old spelling"
                hint = "write `args` on the task"
                at = step.key_position(key)
                self.findings.warn(at, "old-spelling", message, hint)
        return found

    def _flat(self, task: Section, given: dict[str, Any], args: Any) -> dict[str, Any]:
        if isinstance(args, dict):
            return {**given, **args}
        message = f"`args` of {task.what} must be a mapping for a registered tool"
        self.findings.add(task.key_position("args"), "wrong-type", message, "name each argument")
        return given

    # -- rules of the kinds ------------------------------------------------------------------

    def _check(self, task: Section, kind: str, given: dict[str, Any]) -> None:
        if "code_b64" in given:
            given["code"] = given.pop("code_b64")
        needed = {"python": ("code",), "http": ("url",), "shell": ("command", "cmds")}
        names = needed.get(kind, ())
        if names and not any(name in given for name in names):
            task.require(names[0], f"a {kind} task needs " + " or ".join(f"`{n}`" for n in names))
        for group in (("command", "cmds"), ("body", "json", "form")):
            both = [name for name in group if name in given]
            if len(both) > 1 and kind in ("http", "shell"):
                self._conflict(task, both[1], both[0])

    def _conflict(self, task: Section, name: str, other: str) -> None:
        at = task.key_position(name) if name in task else task.position
        message = f"{task.what} has both `{other}` and `{name}`"
        self.findings.add(at, "conflicting-keys", message, "keep one of them")

    def _policy(self, task: Section) -> None:
        spec = task.section("spec")
        if spec is not None:
            hint = "write `retry` into the step's `spec`, and arcs on `event.name` for the rest"
            spec.not_yet("policy", hint=hint)
            spec.not_yet("result")

    def _timeout(self, task: Section) -> int | None:
        """Time for one attempt, from any of the places it may stand."""
        found: dict[str, int | None] = {}
        spec = task.section("spec")
        for holder, key in ((task, "timeout"), (task, "timeout_seconds"), (spec, "timeout")):
            if holder is None or (node := holder.ask(key)) is None:
                continue
            if found:
                self._conflict(task, key, next(iter(found)))
            found[key if holder is task else "spec.timeout"] = self._time(holder, key, node)
        if spec is not None:
            spec.finish(also=("policy", "result", *KINDS["python"], *KINDS["http"]))
        return next(iter(found.values()), None)

    def _time(self, holder: Section, key: str, node: Node) -> int | None:
        if not isinstance(node, Fields):
            return holder.duration_of(key, node)
        parts = Section(node, f"`{key}` of {holder.what}", self.findings)
        times = [parts.duration_ms(name) for name in ("connect", "read")]
        parts.finish()
        return sum(time for time in times if time is not None) or None

    def _decision(self, task: Section) -> Decision:
        ask = task.text("ask")
        if ask is None and "ask" not in task:
            task.require("ask", "write the question somebody will answer")
        if ask is not None and has_template(str(ask.value)):
            self.findings.not_yet(ask.position, "a template in `ask`", "write plain text")
        actors = self._actors(task)
        on_reject = task.choice("on_reject", ("fail", "pause"), "fail")
        for key in ("name", "kind", "desc"):
            task.ask(key)
        task.finish()
        return Decision(str(ask.value) if ask else "", actors, on_reject)

    def _actors(self, task: Section) -> tuple[str, ...]:
        node = task.ask("actors")
        if node is None:
            return ()
        nodes = list(node) if isinstance(node, Items) else [node]
        names = []
        for each in nodes:
            if isinstance(each, Scalar) and isinstance(each.value, str) and each.value:
                names.append(each.value)
            else:
                self.findings.wrong_type(each, f"an actor of {task.what}", "a name")
        return tuple(names)
