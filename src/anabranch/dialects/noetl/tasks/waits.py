"""The task kind `wait`: for a while, until an instant, or for a signal.

    {kind: wait, for: 1h}
    {kind: wait, until: "{{ ctx.opens_at }}"}
    {kind: wait, event: paid, filter: "{{ signal.payload.order == iter.order }}", timeout: 2d}

The name of a signal is plain text, so that a sender can be told of a slip. The filter becomes part
of the net; the work is told only what the filter will want to see of the job.
"""

from __future__ import annotations

from typing import Any

from anabranch.dialects.durations import parse_duration
from anabranch.dialects.findings import Section
from anabranch.dialects.instants import parse_instant
from anabranch.dialects.nodes import Node, Scalar
from anabranch.dialects.noetl.signals import SIGNAL, seen_by, signal_view
from anabranch.dialects.noetl.templates import TemplateCompiler
from anabranch.expressions.jinja.jinja import has_template
from anabranch.expressions.port import Expression
from anabranch.net.net import WaitRule
from anabranch.net.waits import SIGNAL_NAME

KIND = "wait"
WAYS = ("for", "until", "event")


class WaitReader:
    """Reads the keys of one task of this kind."""

    def __init__(self, task: Section, templates: TemplateCompiler) -> None:
        self._task = task
        self._templates = templates

    def read(
        self, label: str, timeout: int | Expression | None
    ) -> tuple[dict[str, Any], WaitRule | None]:
        """The inputs of the work, and the rule of a wait for a signal."""
        task = self._task
        nodes = {way: node for way in WAYS if (node := task.ask(way)) is not None}
        condition = task.ask("filter")
        if not nodes:
            task.missing("for", "say how it waits: `for`, `until` or `event`")
            return {}, None
        way, node = next(iter(nodes.items()))
        for other in list(nodes)[1:]:
            task.conflict(way, other)
        if "args" in task or "input" in task:
            task.ignored("args" if "args" in task else "input", "a wait takes none")
        if way == "event":
            return self._signal(node, condition, label, timeout)
        self._only_for_signals("filter", "timeout", "timeout_seconds")
        return {way: self._time(way, node)}, None

    def _only_for_signals(self, *keys: str) -> None:
        for key in keys:
            if key in self._task:
                message = f"`{key}` of {self._task.what} is for waits with `event`"
                self._task.report(key, "conflicting-keys", message, f"leave out `{key}`")

    def _time(self, way: str, node: Node) -> Any:
        """A duration or an instant, in milliseconds where it is plain; else worked out later."""
        if isinstance(node, Scalar) and isinstance(node.value, str) and has_template(node.value):
            return self._templates.structure(node)
        what = f"`{way}` of {self._task.what}"
        if not isinstance(node, Scalar):
            expected = "a duration" if way == "for" else "an instant"
            self._task.findings.wrong_type(node, what, expected)
            return 0
        value = str(node.value) if way == "until" else node.value
        try:
            parse_duration(value) if way == "for" else parse_instant(value)
        except ValueError as error:
            message, _, hint = str(error).partition("; ")
            code = "bad-duration" if way == "for" else "bad-value"
            self._task.findings.add(node.position, code, f"{what}: {message}", hint)
            return 0
        return value

    def _signal(
        self, node: Node, condition: Node | None, label: str, timeout: int | Expression | None
    ) -> tuple[dict[str, Any], WaitRule | None]:
        name = node.value if isinstance(node, Scalar) else None
        if not isinstance(name, str) or not SIGNAL_NAME.fullmatch(name):
            what = f"`event` of {self._task.what}"
            if isinstance(name, str) and has_template(name):
                hint = "write a plain name, and compare in `filter`"
                message = f"{what} is a template, and the name of a signal is plain text"
            else:
                hint = "use up to 100 letters, digits, `_`, `.` and `-`"
                message = f"{what} cannot be the name of a signal"
            self._task.findings.add(node.position, "bad-name", message, hint)
            return {}, None
        given: dict[str, Any] = {"event": name, "task": label}
        if timeout is not None:
            given["timeout_ms" if isinstance(timeout, int) else "timeout"] = timeout
        if condition is None:
            return given, WaitRule(name)
        viewed = self._templates.viewed(signal_view, also=(SIGNAL,))
        compiled = viewed.condition(condition, f"`filter` of {self._task.what}")
        if any(path[0] == "keychain" for path in getattr(compiled, "reads", None) or ()):
            message = f"`filter` of {self._task.what} reads the keychain, which only work can"
            self._task.report("filter", "misplaced-task", message, "compare something else")
        seen = seen_by(compiled)
        if seen is not None:
            given["seen"] = seen
        return given, WaitRule(name, compiled)
