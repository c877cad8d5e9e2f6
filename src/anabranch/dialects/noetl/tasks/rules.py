"""`spec.policy` of a task: what follows its outcome.

Rules are looked at from the top and the first that matches decides; with `mode: inclusive` all that
match write, and the first of them that leads away decides. Without a match a success goes
on and an error fails, unless `on_unmatched: continue` says otherwise.

`before`, `after` and `finally` are tasks around it: once when the pipeline comes to the task, after
each of its executions, once when the pipeline leaves it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Literal

import msgspec

from anabranch.dialects.findings import Findings, Section
from anabranch.dialects.nodes import Node, Scalar
from anabranch.dialects.noetl.patches import Around, read_writes
from anabranch.dialects.noetl.tasks.durations import seconds
from anabranch.dialects.noetl.templates import TemplateCompiler
from anabranch.expressions.jinja.jinja import has_template
from anabranch.expressions.port import Expression
from anabranch.net.problems import did_you_mean
from anabranch.net.program import Control, Program, Rule, TaskHooks

CONTROLS: tuple[Control, ...] = ("continue", "skip", "retry", "jump", "break", "fail")
Backoff = Literal["none", "constant", "linear", "exponential"]
BACKOFFS: dict[str, Backoff] = {
    "none": "none",
    "fixed": "constant",
    "constant": "constant",
    "linear": "linear",
    "exponential": "exponential",
}
Unmatched = Literal["fail", "continue"]
UNMATCHED: tuple[Unmatched, ...] = ("fail", "continue")
MODES = ("exclusive", "inclusive")
HOOKS = ("before", "after", "finally")
PREVIOUS = "previous"
ATTEMPTS_MAX = 1_000_000
#: Reads the tasks of a hook: the node, and what to call them.
ReadHook = Callable[[Node, str], Program | None]


class Policy(msgspec.Struct, frozen=True):
    rules: tuple[Rule, ...] = ()
    on_unmatched: Unmatched = "fail"
    hooks: TaskHooks | None = None
    inclusive: bool = False


class Rules(msgspec.Struct, frozen=True):
    """Reads the policies of one pipeline, whose labels are known."""

    templates: TemplateCompiler
    findings: Findings
    labels: Sequence[str]
    around: Around
    read_hook: ReadHook

    def policy(self, node: Node | None, what: str, number: int) -> Policy:
        """The policy of the task with that number, counted from zero."""
        section = None if node is None else self.findings.section(node, f"`policy` of {what}")
        if section is None:
            return Policy()
        inclusive = section.choice("mode", MODES, "exclusive") == "inclusive"
        unmatched = section.choice("on_unmatched", UNMATCHED, "fail")
        hooks = self._hooks(section, what)
        nodes = section.items("rules")
        said = any(key in section for key in ("rules", "on_unmatched", *HOOKS))
        if nodes is None and not said:
            section.require("rules", "give it rules, or leave `policy` out")
        section.finish()
        rules: list[Rule] = []
        for count, each in enumerate(nodes or (), 1):
            if rules and rules[-1].when is None:
                message = f"rule {count} of {what} stands after `else` and is never evaluated"
                self.findings.warn(each.position, "dead-rule", message, "move `else` to the end")
                break
            rule = self._rule(each, f"rule {count} of {what}", number)
            if rule is not None:
                rules.append(rule)
        return Policy(tuple(rules), unmatched, hooks, inclusive)

    def _hooks(self, policy: Section, what: str) -> TaskHooks | None:
        found: dict[str, Program | None] = {}
        for name in HOOKS:
            node = policy.ask(name)
            if node is not None:
                found[name] = self.read_hook(node, f"`{name}` of {what}")
        if not any(found.values()):
            return None
        return TaskHooks(found.get("before"), found.get("after"), found.get("finally"))

    def _rule(self, node: Node, what: str, number: int) -> Rule | None:
        rule = self.findings.section(node, what)
        if rule is None:
            return None
        otherwise = rule.section("else")
        when = rule.ask("when")
        holder = otherwise or rule
        then = holder.section("then")
        holder.require("then", "write `then: {do: continue}`, or another word for `do`")
        if otherwise is not None:
            otherwise.finish()
        else:
            rule.require("when", "write `when` and `then`, or `else`")
        rule.finish()
        if then is None or (when is None and otherwise is None):
            return None
        guard = None
        if otherwise is None and when is not None:
            guard = self.templates.condition(when, f"`when` of {what}")
        return self._then(then, what, guard, number)

    def _then(self, then: Section, what: str, guard: Expression | None, number: int) -> Rule:
        then.require("do", "choose one of " + ", ".join(CONTROLS))
        do = then.choice("do", CONTROLS, "continue")
        writes = read_writes(then, self.templates, self.around)
        made = Rule(
            when=guard,
            do=do,
            attempts=self._attempts(then),
            delay=seconds(then, "delay", self.templates, zero=True),
            backoff=BACKOFFS[then.choice("backoff", tuple(BACKOFFS), "none")],
            to=self._target(then, what, do, number),
            set_ctx=writes.ctx,
            set_iter=writes.iteration,
            set_shared=writes.shared,
            set_prev=writes.prev,
            position=then.position,
        )
        then.finish()
        return made

    def _attempts(self, then: Section) -> int | Expression:
        node = then.ask("attempts")
        if isinstance(node, Scalar) and isinstance(node.value, str) and has_template(node.value):
            return self.templates.tree(node)
        return then.whole("attempts", 3, least=1, most=ATTEMPTS_MAX)

    def _target(self, then: Section, what: str, do: Control, number: int) -> str:
        node = then.text("to")
        if do != "jump":
            if node is not None:
                message = f"{what} does not jump, so `to` has no effect"
                then.report("to", "ignored-key", message, severity="note")
            return ""
        if node is None:
            then.missing("to", "name the task to go on with, or `previous`")
            return ""
        label = str(node.value)
        if label == PREVIOUS and PREVIOUS not in self.labels:
            if number > 0:
                return self.labels[number - 1]
            message = f"{what} jumps to the task before the first one"
            self.findings.add(node.position, "unknown-label", message, "name a task")
            return ""
        if label not in self.labels:
            message = f"{what} jumps to the task {label!r}, which is not in this pipeline"
            hint = did_you_mean(label, self.labels) or "name a task of this pipeline"
            self.findings.add(node.position, "unknown-label", message, hint)
            return ""
        return label
