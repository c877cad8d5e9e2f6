"""`source` and `target` of a transfer: each names a kind of task, and has some of its keys."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

from anabranch.dialects.findings import Section
from anabranch.dialects.nodes import Node, Scalar
from anabranch.dialects.noetl.checks.lookups import is_literal
from anabranch.dialects.noetl.tasks.credentials import AuthReader
from anabranch.dialects.noetl.templates import SQL as QUERY
from anabranch.dialects.noetl.templates import TemplateCompiler
from anabranch.net.problems import closest, did_you_mean

Side = Literal["source", "target"]

DATABASES = ("postgres", "sqlite", "duckdb")
MODES = ("append", "insert", "replace", "overwrite", "truncate", "upsert", "merge")
SNOWFLAKE = (
    "it would come with an extra `snowflake` (the package snowflake-connector-python); until then "
    "use `python` with that package"
)
#: Keys that say which kind a side is.
NAMES = ("tool", "kind", "type")
_ALIASES = {"db": "database", "credential": "auth"}
DATABASE_KEYS = ("auth", "credential", "query", "params", "dsn", "database", "db", "read_only")
HTTP_KEYS = (
    *("url", "endpoint", "method", "headers", "params", "body", "json", "form", "auth"),
    *("timeout", "verify_ssl", "follow_redirects", "data_path"),
)
#: What a target may say for the whole transfer, as NoETL lets it.
TARGET_KEYS = ("table", "mapping", "mode", "key")


def read_side(
    name: Side, node: Node, task: Section, templates: TemplateCompiler, credentials: AuthReader
) -> Mapping[str, Any]:
    side = task.findings.section(node, f"`{name}` of {task.what}")
    if side is None:
        return {}
    kind = _kind(side, name)
    given: dict[str, Any] = {}
    for key, value in side.node.fields.items():
        side.ask(key)
        given[_ALIASES.get(key, key)] = _value(key, value, side, templates, credentials)
    if kind is not None:
        _check(side, name, kind)
    return given


def _value(
    key: str, node: Node, side: Section, templates: TemplateCompiler, credentials: AuthReader
) -> Any:
    what = f"`{key}` of {side.what}"
    if key in ("auth", "credential"):
        return credentials.value(node, what)
    if key != "query":
        return templates.structure(node)
    if not isinstance(node, Scalar) or not isinstance(node.value, str):
        side.findings.wrong_type(node, what, "text")
        return ""
    templates.embedded(node, what, QUERY)
    return templates.text(node)


def _kind(side: Section, name: Side) -> str | None:
    """The kind of this side, where it is written out and there is one of that name."""
    key = next((key for key in NAMES if key in side), None)
    if key is None:
        side.require("tool", "say which kind it is: " + ", ".join(DATABASES))
        return None
    node = side.node.get(key)
    if not is_literal(node) or not isinstance(node, Scalar):
        return None
    word = str(node.value).lower()
    word = "postgres" if word == "postgresql" else word
    known = (*DATABASES, "http") if name == "source" else DATABASES
    if word in known:
        return word
    if word == "snowflake":
        side.findings.not_yet(node.position, f"{side.what} with {word}", SNOWFLAKE)
        return None
    hint = closest(word, known) or "choose one of " + ", ".join(known)
    message = f"{side.what} cannot be {str(node.value)[:40]!r}"
    side.findings.add(node.position, "bad-choice", message, hint)
    return None


def _check(side: Section, name: Side, kind: str) -> None:
    own = HTTP_KEYS if kind == "http" else DATABASE_KEYS
    known = {*NAMES, *own, *(TARGET_KEYS if name == "target" else ())}
    for key in side.node.fields:
        if key not in known:
            hint = did_you_mean(key, sorted(known)) or "remove it"
            message = f"{side.what} has no key `{key}`"
            side.report(key, "unknown-key", message, hint)
    if kind == "http" and "url" not in side and "endpoint" not in side:
        side.require("url", "say what to call")
    elif name == "source" and kind != "http":
        side.require("query", "say which rows to read")
    elif name == "target" and ("table" in side) == ("query" in side):
        if "table" in side:
            side.conflict("table", "query")
        else:
            side.require("table", "say where the rows go: `table`, or a `query` for each row")
