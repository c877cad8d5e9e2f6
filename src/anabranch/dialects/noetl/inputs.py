"""What a task hands to its kind of work.

The inputs are a mapping, rendered when the job starts:

    noop     result, message, args
    python   code or script, args, libs
    http     url, method, headers, params, one of body / json / form, auth (basic or bearer),
             timeout {connect, read, total} in seconds, verify_ssl, follow_redirects
    shell    command or cmds, shell, cwd, env
    others   callables registered as tools: the task's own keys and its args, in one mapping
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Mapping
from typing import Any

from anabranch.dialects.findings import Section
from anabranch.dialects.nodes import Fields, Node, Scalar
from anabranch.dialects.noetl.templates import Templates
from anabranch.expressions.jinja import has_template

#: For each kind the keys it takes, apart from those every task has.
KINDS: Mapping[str, tuple[str, ...]] = {
    "noop": ("result", "message"),
    "python": ("code", "code_b64", "script", "libs"),
    "http": (
        *("url", "method", "headers", "params", "body", "json", "form"),
        *("auth", "verify_ssl", "follow_redirects"),
    ),
    "shell": ("command", "cmds", "shell", "cwd", "env"),
    "decision": ("ask", "actors", "on_reject"),
}
#: Other names for the same key, by kind.
ALIASES: Mapping[str, Mapping[str, str]] = {
    "python": {"code_b64": "code"},
    "http": {"endpoint": "url", "payload": "body", "data": "body"},
}
#: One of these must be there.
NEEDED: Mapping[str, tuple[str, ...]] = {
    "python": ("code", "script"),
    "http": ("url",),
    "shell": ("command", "cmds"),
}
#: Only one of these may be there.
EXCLUSIVE = (("code", "script"), ("command", "cmds"), ("body", "json", "form"))
#: These always become text: a number rendered into a command is still part of a command.
TEXTS = frozenset({"url", "method", "command", "cwd"})
#: Keys that have a meaning in playbooks which cannot be run so far.
LATER = ("auth", "credential", "script", "output", "set", "eval", "policy", "sink", "result")
COMMON = ("name", "kind", "desc", "args", "input", "spec", "timeout", "timeout_seconds")


class Inputs:
    """Reads the inputs of one task."""

    def __init__(self, task: Section, spec: Section | None, templates: Templates) -> None:
        self._task = task
        self._spec = spec
        self._templates = templates
        self._findings = task.findings

    def of_kind(self, kind: str, inherited: Mapping[str, Any]) -> dict[str, Any]:
        """For the kinds that come with Anabranch. `inherited`: arguments given on the step."""
        given = self._own(kind)
        args = self._args()
        if isinstance(args, dict):
            args = {**inherited, **args}
        if args:
            given["args"] = args
        self._task.not_yet(*(key for key in LATER if key not in KINDS[kind]))
        self._check(kind, given)
        return given

    def of_tool(self, inherited: Mapping[str, Any]) -> dict[str, Any]:
        """For a registered callable: every key is one of its arguments."""
        given: dict[str, Any] = dict(inherited)
        for name in self._task.node.fields:
            if name not in COMMON and (node := self._task.ask(name)) is not None:
                given[name] = self._templates.structure(node)
        args = self._args()
        if isinstance(args, dict):
            return given | args
        hint = "name each argument"
        self._findings.wrong_type(self._task.node.fields["args"], "`args` of a tool", hint)
        return given

    def _own(self, kind: str) -> dict[str, Any]:
        """The kind's own keys, under their first name."""
        given: dict[str, Any] = {}
        names = {name: name for name in KINDS[kind]} | dict(ALIASES.get(kind, {}))
        for holder in (self._task, self._spec):
            if holder is None:
                continue
            for name, canonical in names.items():
                node = holder.ask(name)
                if node is None:
                    continue
                self._note_place(holder, name)
                if canonical in given:
                    self.conflict(holder, name, canonical)
                given[canonical] = self._value(kind, name, node)
        return given

    def _note_place(self, holder: Section, name: str) -> None:
        """Some playbooks put inputs under the task's `spec`."""
        if holder is self._spec:
            message = f"`{name}` of {holder.what} is an old spelling"
            hint = f"write `{name}` on the task itself"
            self._findings.warn(holder.key_position(name), "old-spelling", message, hint)

    def _args(self) -> Any:
        """A mapping, or one template that gives a mapping."""
        for holder in (self._task, self._spec):
            for key in ("args", "input"):
                node = None if holder is None else holder.ask(key)
                if holder is None or node is None:
                    continue
                self._note_place(holder, key)
                return self._mapping(node, f"`{key}` of {holder.what}")
        return {}

    def _mapping(self, node: Node, what: str) -> Any:
        templated = isinstance(node, Scalar) and has_template(str(node.value))
        if isinstance(node, Fields) or templated:
            return self._templates.structure(node)
        self._findings.wrong_type(node, what, "a mapping")
        return {}

    def _value(self, kind: str, name: str, node: Node) -> Any:
        text = node if isinstance(node, Scalar) and isinstance(node.value, str) else None
        is_code = kind == "python" and name in ("code", "code_b64")
        if name == "auth" and not isinstance(node, Fields):
            self._findings.not_yet(node.position, "a named credential", "write `auth` as a mapping")
        if not is_code and name not in TEXTS and ALIASES.get(kind, {}).get(name) not in TEXTS:
            return self._templates.structure(node)
        if text is None:
            self._findings.wrong_type(node, f"`{name}` of {self._task.what}", "text")
            return ""
        if not is_code:
            return self._templates.text(text)
        return self._decoded(text) if name == "code_b64" else self._templates.code(text)

    def _decoded(self, node: Scalar) -> str:
        try:
            return base64.b64decode(str(node.value), validate=True).decode()
        except (binascii.Error, ValueError):
            message = "`code_b64` is not base64 of UTF-8 text"
            hint = "encode it again, or use `code`"
            self._findings.add(node.position, "bad-value", message, hint)
            return ""

    def _check(self, kind: str, given: Mapping[str, Any]) -> None:
        needed = NEEDED.get(kind, ())
        if needed and not any(name in given for name in needed):
            words = " or ".join(f"`{name}`" for name in needed)
            self._task.require(needed[0], f"{kind} tasks need {words}")
        for group in EXCLUSIVE:
            both = [name for name in group if name in given]
            if len(both) > 1:
                self.conflict(self._task, both[1], both[0])

    def conflict(self, holder: Section, name: str, other: str) -> None:
        at = holder.key_position(name) if name in holder else holder.position
        message = f"{self._task.what} has both `{other}` and `{name}`"
        self._findings.add(at, "conflicting-keys", message, "keep one of them")
