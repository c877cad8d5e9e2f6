"""Result policies: what becomes of a result before anybody sees it.

`spec.result` may stand at the executor, the step, the loop and the task; the inner one wins key by
key. It is handed on as plain data for the work to apply (see `work.results`).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from anabranch.dialects.findings import Findings, Section
from anabranch.dialects.nodes import Fields, Items, Node, Scalar, plain

STORES = ("auto", "memory", "kv", "object", "disk", "s3", "gcs", "db", "duckdb", "eventlog")
SCOPES = ("step", "execution", "workflow", "permanent")
COMPRESSIONS = ("none", "gzip", "lz4")
STRATEGIES = ("append", "replace", "merge", "concat")
POLICY_KEYS = frozenset(
    {"inline_max_bytes", "preview_max_bytes", "store", "select", "output_select", "scope", "ttl"}
    | {"compression", "accumulate"}
)
BYTES_MAX = 2**40


def read_output(node: Node | None, what: str, findings: Findings) -> Mapping[str, Any] | None:
    """The policy as plain data, checked; None when there is none."""
    if node is None:
        return None
    policy = findings.section(node, what)
    if policy is None:
        return None
    policy.whole("inline_max_bytes", 0, least=0, most=BYTES_MAX)
    policy.whole("preview_max_bytes", 0, least=0, most=BYTES_MAX)
    _store(policy)
    _place(policy)
    _select(policy)
    _accumulate(policy)
    policy.finish()
    made: Mapping[str, Any] = plain(policy.node)
    return made or None


def _store(policy: Section) -> None:
    node = policy.ask("store")
    if isinstance(node, Scalar):
        policy.choice("store", STORES, "auto")
    elif node is not None and (store := policy.section("store")) is not None:
        store.choice("kind", STORES, "auto")
        _place(store)
        store.finish()


def _place(holder: Section) -> None:
    holder.choice("scope", SCOPES, "execution")
    holder.duration_ms("ttl")
    holder.choice("compression", COMPRESSIONS, "none")


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
    accumulate.whole("max_items", 0, least=1, most=10**12)
    accumulate.finish()
