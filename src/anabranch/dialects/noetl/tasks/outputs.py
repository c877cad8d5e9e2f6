"""Result policies: what becomes of a result before anybody sees it.

`spec.result` may stand at the executor, the step, the loop and the task; the inner one wins key by
key. It is handed on as plain data for the work to apply, after the function that the work itself
reads it with had nothing to say against it.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from anabranch.dialects.findings import Findings, Section
from anabranch.dialects.nodes import Fields, Items, Node, Scalar, plain
from anabranch.dialects.result_policy import (
    COMPRESSIONS,
    KEYS,
    SCOPES,
    STORE_PLACES,
    STORES,
    STRATEGIES,
    read_policy,
)
from anabranch.errors import InputError

POLICY_KEYS = frozenset(KEYS)
BYTES_MAX = 2**40
_IDENTIFIER = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


def read_output(node: Node | None, what: str, findings: Findings) -> Mapping[str, Any] | None:
    """The policy as plain data, checked; None when there is none."""
    if node is None:
        return None
    policy = findings.section(node, what)
    if policy is None:
        return None
    before = len(findings.problems)
    policy.whole("inline_max_bytes", 0, least=0, most=BYTES_MAX)
    policy.whole("preview_max_bytes", 0, least=0, most=BYTES_MAX)
    _store(policy)
    _place(policy)
    _select(policy)
    _accumulate(policy)
    _name(policy)
    policy.finish()
    made: Mapping[str, Any] = plain(policy.node)
    if len(findings.problems) == before:
        _as_the_work_reads_it(policy, made)
    return made or None


def _as_the_work_reads_it(policy: Section, made: Mapping[str, Any]) -> None:
    """Whatever is left to say, said by whoever will carry it out; key by key, to know where."""
    for key, value in made.items():
        try:
            read_policy({key: value})
        except InputError as error:
            at = policy.node.fields[key].position
            policy.findings.add(at, "bad-value", error.message, f"fix `{key}`, or leave it out")


def _store(policy: Section) -> None:
    node = policy.ask("store")
    if isinstance(node, Scalar):
        policy.choice("store", STORES, "auto")
    elif node is not None and (store := policy.section("store")) is not None:
        store.choice("kind", STORES, "auto")
        for key in STORE_PLACES:
            store.ignore(key, "results are kept in the payload store of the engine")
        _place(store)
        store.finish()


def _place(holder: Section) -> None:
    holder.choice("scope", SCOPES, "execution")
    holder.duration_ms("ttl")
    if holder.choice("compression", COMPRESSIONS, "none") == "lz4":
        message = f"`compression: lz4` of {holder.what} is kept as gzip"
        holder.report("compression", "ignored-key", message, severity="note")


def _name(policy: Section) -> None:
    """`as`: what the result is called besides; the task writes it there."""
    node = policy.text("as")
    if node is not None and not _IDENTIFIER.fullmatch(str(node.value)):
        message = f"`as` of {policy.what} is {node.value!r:.60}, which cannot be read as a name"
        policy.findings.add(node.position, "bad-name", message, "use letters, digits and `_`")


def _select(policy: Section) -> None:
    for key in ("select", "output_select"):
        node = policy.ask(key)
        for each in node if isinstance(node, Items) else () if node is None else (node,):
            named = isinstance(each, Fields) and isinstance(each.get("path"), Scalar)
            if named or (isinstance(each, Scalar) and isinstance(each.value, str)):
                continue
            expected = "a path such as `a.b`, or {path: …, as: …}"
            policy.findings.wrong_type(each, f"an entry of `{key}` of {policy.what}", expected)


def _accumulate(policy: Section) -> None:
    accumulate = policy.section("accumulate")
    if accumulate is None:
        return
    accumulate.choice("strategy", STRATEGIES, "append")
    accumulate.text("merge_path")
    accumulate.text("manifest_as")
    for key in ("enabled", "on_success", "on_error"):
        accumulate.flag(key)
    accumulate.whole("max_items", 1, least=1, most=10**12)
    accumulate.finish()
