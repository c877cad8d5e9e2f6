"""What a task hands to its kind of work.

The inputs are a mapping, rendered when the task starts:

    noop      result, message, args
    python    code or script, args, libs, auth
    http      url, method, headers, params, one of body / json / form, auth,
              timeout {connect, read, total} in seconds, verify_ssl, follow_redirects
    shell     command or cmds, shell, cwd, env
    script    script, args, job, interpreter, env, cwd
    container runtime, script, env
    postgres, duckdb, sqlite
              command, commands or query, params, auth; where the database is: dsn, database
    transfer  source, target, mapping, mode, key, chunk_size
    nats      operation and what it works on; where the server is: url, auth
    gcs       source or data, destination, auth, content_type, metadata
    playbook  path or catalog_id, version, args, return_step, return_result, result_step, wait
    secrets   provider, name, path, root, value
    wait      for, until, or event with task, timeout_ms and seen
    artifact  action, result_ref or uri, data, compress, checksum, offset, limit, auth
    others    callables registered as tools: the task's own keys and its args, in one mapping

`auth` is an entry of the keychain (or a mapping of its own) when it arrives at the work.
"""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Mapping
from typing import Any, cast

from anabranch.dialects.findings import Section
from anabranch.dialects.nodes import Fields, Items, Node, Scalar
from anabranch.dialects.noetl.checks.lookups import is_literal
from anabranch.dialects.noetl.tasks.clusters import JOB, check_container, note_cluster
from anabranch.dialects.noetl.tasks.credentials import AuthReader
from anabranch.dialects.noetl.tasks.keys import (
    ALIASES,
    COMMON,
    EXCLUSIVE,
    IGNORED,
    KINDS,
    LATER,
    NATS_OPERATIONS,
    NEEDED,
    SQL_KINDS,
)
from anabranch.dialects.noetl.tasks.transfers import MODES, Side, read_side
from anabranch.dialects.noetl.templates import PYTHON, SHELL, Quoting, TemplateCompiler
from anabranch.dialects.noetl.templates import SQL as QUERY
from anabranch.dialects.port import ToolSignature
from anabranch.expressions.jinja.jinja import has_template
from anabranch.expressions.port import Constant
from anabranch.net.net import ChildPath, ExtraNeed, child_target
from anabranch.net.problems import Position, did_you_mean

#: These always become text: a number rendered into a command is still part of a command.
TEXTS = frozenset({"url", "method", "command", "query", "cwd"})
#: Lists of such texts, or one text.
TEXT_LISTS = frozenset({"commands"})
#: Texts of another language, in which data must be quoted.
EMBEDDED: Mapping[tuple[str, str], Quoting] = {
    ("shell", "command"): SHELL,
    ("shell", "cmds"): SHELL,
    ("python", "code"): PYTHON,
    **{(kind, name): QUERY for kind in SQL_KINDS for name in ("command", "commands", "query")},
}
#: Where a script may be; others need a service, or a call of their own.
SCRIPTS = ("file", "http", "inline", "gcs", "s3")
ACTIONS = ("get", "put")
#: What places of objects in buckets begin with, and the words for them.
_SCHEMES = ("gs://", "s3://")
_CLOUDS = ("gcs", "s3")


class TaskInputs:
    """Reads the inputs of one task."""

    def __init__(
        self,
        task: Section,
        spec: Section | None,
        templates: TemplateCompiler,
        credentials: AuthReader,
        *,
        elsewhere: bool = False,
    ) -> None:
        self._elsewhere = elsewhere  # done in a process that may have another Python
        self._task = task
        self._spec = spec
        self._templates = templates
        self._credentials = credentials
        self._findings = task.findings

    def of_kind(self, kind: str) -> dict[str, Any]:
        """For the kinds that come with Anabranch."""
        given = self._own(kind)
        args = self._args()
        if args and "args" in given:
            self.conflict(self._task, "payload", "args")
        elif args:
            given["args"] = args
        if kind == "secrets" and "name" not in given and "name" in self._task:
            given["name"] = self._task.string("name")
        if kind == "secrets":
            self._add_keychain(given)
        self._task.not_yet(*(key for key in LATER if key not in KINDS[kind]))
        if kind == "playbook":
            self._note_child()
        if "script" in given:
            self._check_script()
            if kind == "python":
                self._templates.python.append("context")  # what it reads is in a file
        if given.pop("pool", None) is not None:
            why = "connections are kept for each address, as many as are needed"
            self._task.ignored("pool", why)
        for key, why in IGNORED.get(kind, {}).items():
            if given.pop(key, None) is not None:
                self._task.ignored(key, why)
        if kind == "python":
            self._check_libs()
        if kind == "script":
            note_cluster(self._task, "job", JOB, "the script runs")
        if kind == "container":
            check_container(self._task)
        if kind == "artifact" and args:
            self._task.ignored("args", "an artifact takes its instructions from its own keys")
        if kind == "transfer":
            self._check_transfer()
        if kind == "nats":
            _check_nats(self._task, given)
        if kind == "gcs":
            _check_gcs(self._task, given)
        if not self._elsewhere:
            _note_object(self._task, kind, self._templates.extras)
        self._check(kind, given)
        return given

    def _add_keychain(self, given: dict[str, Any]) -> None:
        """A secret that is nowhere else may be a credential."""
        node = self._task.node
        name = node.get("secret_name") or node.get("name")
        ring = self._credentials.at_hand(name, node.get("provider"), self._task.what)
        if ring is not None:
            given["keychain"] = ring

    def of_tool(self, signature: ToolSignature | None) -> dict[str, Any]:
        """For a registered callable: every key is one of its arguments."""
        given: dict[str, Any] = {}
        for name in self._task.node.fields:
            if name not in COMMON and (node := self._task.ask(name)) is not None:
                given[name] = self._templates.structure(node)
        args = self._args()
        if isinstance(args, dict):
            given |= args
            if signature is not None:
                self._check_arguments(signature, given)
            return given
        hint = "name each argument"
        self._findings.wrong_type(self._task.node.fields["args"], "`args` of a tool", hint)
        return given

    def _check_arguments(self, tool: ToolSignature, given: Mapping[str, Any]) -> None:
        for name in given:
            if tool.known is not None and name not in tool.known:
                message = f"the tool {tool.name!r} takes no argument {name!r}"
                hint = did_you_mean(name, sorted(tool.known)) or "remove it"
                self._findings.add(self._argument_position(name), "tool-arguments", message, hint)
        if missing := sorted(tool.required - given.keys()):
            words = ", ".join(f"`{name}`" for name in missing)
            message = f"{self._task.what} does not give {words} to the tool {tool.name!r}"
            at = self._task.position
            self._findings.add(at, "tool-arguments", message, f"add `args: {{{missing[0]}: …}}`")

    def _argument_position(self, name: str) -> Position:
        for node in (self._task.node, self._task.node.get("args")):
            if isinstance(node, Fields) and name in node.keys:
                return node.keys[name]
        return self._task.position

    def _own(self, kind: str) -> dict[str, Any]:
        """The kind's own keys, under their first name."""
        given: dict[str, Any] = {}
        names = {name: name for name in KINDS[kind]} | dict(ALIASES.get(kind, {}))
        for name, canonical in names.items():
            node = self._task.ask(name)
            if node is None:
                continue
            if canonical in given:
                self.conflict(self._task, name, canonical)
            given[canonical] = self._value(kind, name, node)
            if (kind, name) in EMBEDDED:
                what = f"`{name}` of {self._task.what}"
                self._templates.embedded(node, what, EMBEDDED[kind, name])
        return given

    def _args(self) -> Any:
        """A mapping, or one template that gives a mapping."""
        node = self._task.ask("args")
        if "input" in self._task:
            self.conflict(self._task, "input", "args")
        if node is None:
            return {}
        templated = isinstance(node, Scalar) and has_template(str(node.value))
        if isinstance(node, Fields):
            return {name: self._argument(name, each) for name, each in node.fields.items()}
        if templated:
            return self._templates.structure(node)
        self._findings.wrong_type(node, f"`args` of {self._task.what}", "a mapping")
        return {}

    def _argument(self, name: str, node: Node) -> Any:
        """One that is null is filled by the arc, where that hands on such a name."""
        if isinstance(node, Scalar) and node.value is None and name.isidentifier():
            handed = f"{{{{ args['{name}'] | default(none) }}}}"
            return self._templates.structure(Scalar(handed, node.position))
        return self._templates.structure(node)

    # -- values ------------------------------------------------------------------------------

    def _value(self, kind: str, name: str, node: Node) -> Any:
        canonical = ALIASES.get(kind, {}).get(name, name)
        if canonical == "auth":
            return self._credentials.value(node, f"`{name}` of {self._task.what}")
        if kind == "transfer" and name in ("source", "target"):
            return read_side(cast(Side, name), node, self._task, self._templates, self._credentials)
        if canonical == "script" and isinstance(node, Fields):
            return self._script(node)
        if canonical == "code" or name.endswith("_b64"):
            return self._code(name, node, canonical)
        if canonical in TEXT_LISTS and isinstance(node, Items):
            return [self._text(kind, name, each) for each in node]
        if canonical in TEXTS or canonical in TEXT_LISTS:
            return self._text(kind, name, node)
        return self._templates.structure(node)

    def _script(self, node: Fields) -> Any:
        """The mapping; `auth` of its source is a credential, as that of a task is."""
        source = node.get("source")
        auth = source.get("auth") if isinstance(source, Fields) else None
        if auth is None or not isinstance(source, Fields) or self._unreadable(node) is not None:
            return self._templates.structure(node)
        credential = self._credentials.value(auth, f"`auth` of the script of {self._task.what}")
        whole = {name: self._templates.structure(each) for name, each in _without(node, "source")}
        rest = {name: self._templates.structure(each) for name, each in _without(source, "auth")}
        return {**whole, "source": {**rest, "auth": credential}}

    def _text(self, kind: str, name: str, node: Node) -> Any:
        if isinstance(node, Scalar) and isinstance(node.value, str):
            templates = self._templates
            return templates.command(node) if kind == "shell" else templates.text(node)
        self._findings.wrong_type(node, f"`{name}` of {self._task.what}", "text")
        return ""

    def _code(self, name: str, node: Node, canonical: str) -> Any:
        if not isinstance(node, Scalar) or not isinstance(node.value, str):
            self._findings.wrong_type(node, f"`{name}` of {self._task.what}", "text")
            return ""
        encoded = name.endswith("_b64")
        code: Any = self._decoded(name, node) if encoded else self._templates.code(node)
        text = code.value if isinstance(code, Constant) else code
        if canonical == "code" and isinstance(text, str) and not self._elsewhere:
            self._templates.check_python(node, text, f"`{name}` of {self._task.what}")
        return code

    def _decoded(self, name: str, node: Scalar) -> str:
        try:
            return base64.b64decode(str(node.value), validate=True).decode()
        except (binascii.Error, ValueError):
            message = f"`{name}` is not base64 of UTF-8 text"
            hint = f"encode it again, or use `{name.removesuffix('_b64')}`"
            self._findings.add(node.position, "bad-value", message, hint)
            return ""

    # -- checks ------------------------------------------------------------------------------

    def _check(self, kind: str, given: Mapping[str, Any]) -> None:
        needed = NEEDED.get(kind, ())
        if needed and not any(name in given for name in needed):
            words = " or ".join(f"`{name}`" for name in needed)
            self._task.missing(needed[0], f"{kind} tasks need {words}")
        for group in EXCLUSIVE:
            both = [name for name in group if name in given]
            if len(both) > 1:
                self.conflict(self._task, both[1], both[0])
        if kind == "artifact":
            self._check_artifact(given)

    def _unreadable(self, node: Node | None) -> Scalar | None:
        """The word that says where a script is, where that cannot be reached."""
        source = node.get("source") if isinstance(node, Fields) else None
        kind = source.get("type") if isinstance(source, Fields) else None
        wrong = is_literal(kind) and isinstance(kind, Scalar) and kind.value not in SCRIPTS
        return kind if wrong and isinstance(kind, Scalar) else None

    def _check_script(self) -> None:
        kind = self._unreadable(self._task.node.get("script"))
        if kind is not None:
            what = f"a script from {str(kind.value)[:40]!r} in {self._task.what}"
            hint = "fetch it with a task of its own, or put the file beside the playbook"
            self._findings.not_yet(kind.position, what, hint)

    def _check_transfer(self) -> None:
        for name in ("source", "target"):
            self._task.require(name, "a transfer needs `source` and `target`")
        if is_literal(self._task.node.get("mode")):
            self._task.choice("mode", MODES, "append")

    def _check_libs(self) -> None:
        node = self._task.node.get("libs")
        templated = isinstance(node, Scalar) and (node.value is None or not is_literal(node))
        if node is not None and not isinstance(node, Fields | Items) and not templated:
            expected = "a mapping such as {alias: module}, or a list of modules"
            self._findings.wrong_type(node, f"`libs` of {self._task.what}", expected)

    def _note_child(self) -> None:
        """The definition that is named, where it is: a file, or what the catalog has."""
        keys = ("path", "version", "catalog_id")
        nodes = {key: node for key in keys if (node := self._task.node.get(key)) is not None}
        plain = {key: node.value for key, node in nodes.items() if isinstance(node, Scalar)}
        if len(plain) < len(nodes) or any(has_template(str(one)) for one in plain.values()):
            return
        version = plain.get("version")
        if version is not None and not re.fullmatch(r"[0-9]{1,9}|latest", str(version)):
            message = f"`version` of {self._task.what} is {str(version)[:40]!r}"
            hint = "write a whole number, or `latest`"
            self._task.report("version", "bad-number", message, hint)
        elif target := child_target(plain):
            at = nodes["path"] if "path" in nodes else nodes["catalog_id"]
            self._templates.children.append(ChildPath(target, at.position))

    def _check_artifact(self, given: Mapping[str, Any]) -> None:
        action = self._task.choice("action", ACTIONS, "put" if "data" in given else "get")
        if action == "get" and not given.keys() & {"result_ref", "uri"}:
            self._task.missing("result_ref", "say what to get: `result_ref` or `uri`")
        if action == "put" and "data" not in given:
            self._task.missing("data", "say what to put")

    def conflict(self, holder: Section, name: str, other: str) -> None:
        at = holder.key_position(name) if name in holder else holder.position
        message = f"{self._task.what} has both `{other}` and `{name}`"
        self._findings.add(at, "conflicting-keys", message, "keep one of them")


def _without(node: Fields, left_out: str) -> list[tuple[str, Node]]:
    return [(name, each) for name, each in node.fields.items() if name != left_out]


def _check_nats(task: Section, given: dict[str, Any]) -> None:
    """What each operation cannot do without."""
    if given.pop("ttl", None) is not None:
        task.ignored("ttl", "how long values are kept is said by the bucket")
    if "args" in task:
        task.ignored("args", "an operation takes its instructions from its own keys")
    node = task.node.get("operation")
    if not isinstance(node, Scalar) or not is_literal(node):
        return
    operation = str(node.value)
    if operation.startswith("object_"):
        what = f"the operation {operation!r} of {task.what}"
        task.findings.not_yet(node.position, what, "keep large values as artifacts")
        return
    chosen = task.choice("operation", tuple(NATS_OPERATIONS), "kv_get")
    if chosen == operation:
        for key in NATS_OPERATIONS[operation]:
            task.require(key, f"{operation} needs `{key}`")


def _check_gcs(task: Section, given: Mapping[str, Any]) -> None:
    """What an upload cannot do without, as far as it is written there."""
    if "args" in task:
        task.ignored("args", "an upload takes its instructions from its own keys")
    if "source" in given and "data" in given:
        task.conflict("source", "data")
    if "source" not in given and "data" not in given:
        task.missing("source", "name the file to upload, or give `data`")
    node = task.node.get("destination")
    if isinstance(node, Scalar) and is_literal(node) and not str(node.value).startswith("gs://"):
        message = f"`destination` of {task.what} is {str(node.value)[:60]!r}"
        task.findings.add(node.position, "bad-value", message, "write gs://bucket/key")


def _note_object(task: Section, kind: str, needs: list[ExtraNeed]) -> None:
    """Whether the task needs the packages for buckets."""
    at = (
        task.node.get("kind")
        if kind == "gcs"
        else _script_in_bucket(task) or _artifact_in_bucket(task, kind)
    )
    if at is not None:
        needs.append(ExtraNeed("buckets", task.what, at.position))


def _script_in_bucket(task: Section) -> Node | None:
    script = task.node.get("script")
    if not isinstance(script, Fields):
        return script if _is_object(script) else None
    source = script.get("source")
    word = source.get("type") if isinstance(source, Fields) else None
    if isinstance(word, Scalar):
        return word if word.value in _CLOUDS else None
    uri = script.get("uri")
    return uri if _is_object(uri) else None


def _artifact_in_bucket(task: Section, kind: str) -> Node | None:
    uri = task.node.get("uri") if kind == "artifact" else None
    return uri if _is_object(uri) else None


def _is_object(node: Node | None) -> bool:
    return isinstance(node, Scalar) and str(node.value).startswith(_SCHEMES)
