"""What a host and its modules tell each other: set-up, report, calls of chains, decisions."""

from __future__ import annotations

import ipaddress
from collections.abc import Mapping
from typing import Any
from urllib.parse import urlsplit

from anabranch.market.documents.problems import Found, below, shown
from anabranch.market.documents.rules import forbids, when
from anabranch.market.documents.shapes import (
    ANYTHING,
    FLAG,
    FREE_TEXT,
    NAME,
    OBJECT,
    Choice,
    Constant,
    Fields,
    ListOf,
    MapOf,
    Object,
    OrNull,
    Shape,
    Text,
    TextOr,
    Whole,
    choice,
    pattern,
)
from anabranch.market.documents.values import CALL_VERSION, CORRELATION, NODE

CHAINS = ("pre-input", "inbound-peer", "inbound-broadcast", "inbound-local", "pre-send", "audit")
OBSERVED_CHAINS = ("pre-input", "inbound-peer", "pre-send")
DECISIONS = ("allow", "annotate", "rewrite", "route", "return", "drop", "defer", "reject")
ENACT = "/v1/enact/"
METHODS = ("GET", "POST", "PUT", "PATCH", "DELETE")

_PATH = pattern("a path such as /v1/middleware/invoke", r"/[^\s?#]*")

# -- set-up ----------------------------------------------------------------------------------

INIT = Fields(
    {
        "schema_version": CALL_VERSION,
        "middleware_contract_version": NAME,
        "host_api_version": NAME,
        "host_version": NAME,
        "executor_id": NAME,
        "executor_kind": Constant("http_local_json"),
        "module_id": NAME,
        "component_id": NAME,
        "middleware_home": Text(least=0),  # a host without a data folder has none
        "host_capabilities": ListOf(NAME, distinct=True),
    },
    {"node_id": OrNull(NODE)},
)


class LoopbackUrl:
    """An http address of this machine."""

    def check(self, value: Any, path: str, found: Found) -> None:
        if not isinstance(value, str):
            found.add(path, "wrong-type", f"{shown(value)} is here; write http://127.0.0.1:…")
        elif not is_loopback(value):
            message = f"{shown(value)} is not on this machine; write http://127.0.0.1:…"
            found.add(path, "bad-endpoint", message)

    def words(self) -> str:
        return "http://127.0.0.1:…"


def is_loopback(url: str) -> bool:
    try:
        parts = urlsplit(url)
        host, _port = parts.hostname or "", parts.port
        plain = parts.scheme == "http" and parts.username is None and not parts.query
        return plain and (host == "localhost" or ipaddress.ip_address(host).is_loopback)
    except ValueError:
        return False


EXECUTOR = Fields(
    {
        "id": NAME,
        "kind": Constant("http_local_json"),
        "module_id": NAME,
        "http": Fields(
            {"endpoint": LoopbackUrl()},
            {
                "invoke_path": _PATH,
                "ready_path": _PATH,
                "health_path": _PATH,
                "method": Choice(METHODS),
                "headers": MapOf(Text(least=0, secret=True)),
                "startup_timeout_ms": Whole(1),
                "request_timeout_ms": Whole(1),
                "max_response_bytes": Whole(1),
            },
        ),
    },
    {
        "component_id": NAME,
        "launch": Fields(
            {"executable": NAME},
            {
                "args": ListOf(Text(least=0, most=4096)),
                "cwd": OrNull(NAME),
                "env": MapOf(Text(least=0, most=65_536, secret=True)),
            },
        ),
        "sandbox_profile": OrNull(NAME),
        "restart_policy": Fields(
            {"mode": choice("never", "on_failure")},
            {"max_restarts": Whole(0), "window_sec": Whole(1)},
        ),
    },
)

# -- report ----------------------------------------------------------------------------------


class FilterTree:
    """`{"msg": v}`, `{"field": v}`, and AND, OR and NOT of such trees; several keys all hold."""

    def check(self, value: Any, path: str, found: Found) -> None:
        if not isinstance(value, dict):
            found.add(path, "wrong-type", f"{shown(value)} is here; write an object")
            return
        if not value:
            found.add(path, "bad-list", 'nothing is asked for here; write {"msg": "…"} or the like')
        for key, part in value.items():
            where = below(path, key)
            if key in ("AND", "OR"):
                ListOf(self, least=1).check(part, where, found)
            elif key == "NOT":
                self.check(part, where, found)

    def words(self) -> str:
        return "tree of {field: value}, AND, OR and NOT"


class LocalRoute:
    """A path, or a method and a path: relative ones are below /v1/enact/, others stay there."""

    def check(self, value: Any, path: str, found: Found) -> None:
        if isinstance(value, str):
            _check_route(value, path, found)
            return
        _ROUTE.check(value, path, found)
        if isinstance(value, dict) and isinstance(value.get("path"), str):
            _check_route(value["path"], below(path, "path"), found)

    def words(self) -> str:
        return f"path below {ENACT}, or {{method, path}}"


_ROUTE = Fields({"path": NAME}, {"method": Choice(METHODS)})


def _check_route(text: str, path: str, found: Found) -> None:
    inside = not text.startswith("/") or text.startswith(ENACT)
    parts = text.removeprefix(ENACT).split("/")
    if not inside or not text or any(part in ("", ".", "..") for part in parts):
        message = f"{shown(text)} is not below {ENACT}; write a path without . and .."
        found.add(path, "bad-path", message)


def _only_on_its_chain(entry: Object, path: str, found: Found) -> None:
    chain = entry.get("chain")
    given = [key for key, value in entry.items() if value is not None]
    wrong: list[str] = []
    if chain in CHAINS and chain != "inbound-local":
        wrong += [key for key in ("local_routes", "skip_generic_chain") if key in given]
    if chain in CHAINS and chain not in OBSERVED_CHAINS:
        wrong += [key for key in ("observer",) if key in given]
    forbids(entry, path, found, wrong, f"chain {chain}")


_CHAIN = Fields(
    {"chain": Choice(CHAINS)},
    {
        "message_types": ListOf(NAME),
        "filter": OrNull(FilterTree()),
        "invoke_path": _PATH,
        "local_routes": OrNull(ListOf(LocalRoute())),
        "skip_generic_chain": OrNull(FLAG),
        "observer": OrNull(FLAG),
    },
    rules=(_only_on_its_chain,),
)


def _base_needs_contract(entry: Object, path: str, found: Found) -> None:
    if not entry.get("output_contract_ref"):
        message = "a capability of the class base needs `output_contract_ref`; add it"
        found.add(below(path, "output_contract_ref"), "missing-field", message)


REPORT = Fields(
    {
        "schema_version": CALL_VERSION,
        "module_id": NAME,
    },
    {
        "module_name": FREE_TEXT,
        "module_version": FREE_TEXT,
        "middleware_contract_version": FREE_TEXT,
        "module_description": FREE_TEXT,
        "module_role": FREE_TEXT,
        "host_api_version": FREE_TEXT,
        "capabilities": ListOf(
            Fields(
                {"capability_id": NAME},
                {
                    "class": choice("base", "other"),
                    "description": FREE_TEXT,
                    "output_contract_ref": FREE_TEXT,
                },
                rules=(when("class", "base", _base_needs_contract),),
            )
        ),
        "handles_service_types": ListOf(NAME),
        "handles_workflow_kinds": ListOf(NAME),
        "workflow_kind_handlers": ListOf(
            Fields({"workflow_kind": NAME}, {"plan_schema_path": FREE_TEXT})
        ),
        "input_chains": ListOf(_CHAIN),
        "observe_chains": ListOf(ANYTHING),
        "host_capability_handlers": ListOf(Fields({"capability_id": NAME}, {"invoke_path": _PATH})),
        "catalog_endpoints": ListOf(Fields({"catalog_kind": NAME, "path": _PATH})),
        "operator_surfaces": ListOf(
            Fields(
                {"surface_id": NAME},
                {
                    "label": FREE_TEXT,
                    "description": FREE_TEXT,
                    "rendering": choice("host-mediated", "server-html"),
                    "entry_path": _PATH,
                    "nav_group": NAME,
                    "nav_entries": ListOf(ANYTHING),
                    "required_capabilities": ListOf(NAME),
                },
            )
        ),
        "readiness_requirements": ListOf(ANYTHING),
        "api/surface": ANYTHING,
        "handles_peer_message_types": ListOf(NAME),
        "peer_message_filter": OrNull(FilterTree()),
        "peer_message_phase": NAME,
    },
)

# -- calls -----------------------------------------------------------------------------------

PEER_MESSAGE = Fields(
    {
        "schema_version": CALL_VERSION,
        "envelope_kind": Constant("peer-message"),
        "msg": NAME,
        "chain_kind": Choice(CHAINS),
        "correlation_id": CORRELATION,
        "remote_node_id": NODE,
        "payload": ANYTHING,
    }
)

_TEXTS: Shape = MapOf(Text(least=0, most=65_536, secret=True))

LOCAL_INPUT = Fields(
    {
        "schema_version": CALL_VERSION,
        "envelope_kind": Constant("local-input"),
        "chain_kind": Constant("inbound-local"),
        "correlation_id": CORRELATION,
        "method": Choice(METHODS),
        "path": _PATH,
    },
    {
        "query": OBJECT,
        "headers": _TEXTS,
        "body": ANYTHING,
        "caller": Fields({"scope": NAME}, {"module_id": OrNull(NAME)}),
    },
)

DECISION = Fields(
    {"decision": Choice(DECISIONS), "reason": Text(least=0, most=4096)},
    {
        "annotations": OrNull(OBJECT),
        "patch_strategy": OrNull(NAME),
        "patch": ANYTHING,
        "route": ANYTHING,
        "next_step": ANYTHING,
        "diagnostics": OrNull(ListOf(TextOr(OBJECT))),
    },
)

KINDS: Mapping[str, Fields] = {
    "middleware-init": INIT,
    "middleware-module-report": REPORT,
    "middleware-executor": EXECUTOR,
    "peer-message-invoke.v1": PEER_MESSAGE,
    "local-input-invoke.v1": LOCAL_INPUT,
    "middleware-decision": DECISION,
}
