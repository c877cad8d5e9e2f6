"""What hosts and modules tell each other, and what modules ask of their hosts."""

from __future__ import annotations

from typing import Any

import pytest

from anabranch.market.documents.middleware import CHAINS, DECISIONS, is_loopback

from .examples import BUYER_ID, GONE, MAKERS, Document, executor, report
from .tables import Problems, found, rows

INIT, DECISION = MAKERS["middleware-init"], MAKERS["middleware-decision"]
PEER, LOCAL = MAKERS["peer-message-invoke.v1"], MAKERS["local-input-invoke.v1"]
NOTIFY, WRITE = MAKERS["notify-emit-request"], MAKERS["artifact-write-request"]
READ = MAKERS["artifact-read-request"]
PUT, LIST = MAKERS["module-store-put-request"], MAKERS["module-store-list-request"]


def chain(kind: str = "inbound-peer", **fields: Any) -> Document:
    return report(input_chains=[{"chain": kind, **fields}])


def http(**fields: Any) -> Document:
    return executor(http={"endpoint": "http://127.0.0.1:1", **fields})


HERE = "/input_chains/0"


@rows(
    [
        ("executor", INIT(executor_kind="channel_json"), {"/executor_kind": "wrong-value"}),
        ("version", INIT(schema_version="v2"), {"/schema_version": "wrong-value"}),
        ("node", INIT(node_id=BUYER_ID), {"/node_id": "wrong-role"}),
        ("twice", INIT(host_capabilities=["a", "a"]), {"/host_capabilities/1": "bad-list"}),
        ("elsewhere", http(endpoint="http://example.org"), {"/http/endpoint": "bad-endpoint"}),
        ("all addresses", http(endpoint="http://0.0.0.0:1"), {"/http/endpoint": "bad-endpoint"}),
        ("https", http(endpoint="https://127.0.0.1"), {"/http/endpoint": "bad-endpoint"}),
        ("no url", http(endpoint="127.0.0.1:1"), {"/http/endpoint": "bad-endpoint"}),
        ("path", http(ready_path="readyz"), {"/http/ready_path": "bad-text"}),
        ("time", http(request_timeout_ms=0), {"/http/request_timeout_ms": "bad-number"}),
        (
            "restart",
            executor(restart_policy={"mode": "always"}),
            {"/restart_policy/mode": "bad-choice"},
        ),
        (
            "window",
            executor(restart_policy={"mode": "never", "window_sec": 0}),
            {"/restart_policy/window_sec": "bad-number"},
        ),
        (
            "environment",
            executor(launch={"executable": "x", "env": {"A": 1}}),
            {"/launch/env/A": "wrong-type"},
        ),
        (
            "base without a contract",
            report(capabilities=[{"capability_id": "x", "class": "base"}]),
            {"/capabilities/0/output_contract_ref": "missing-field"},
        ),
        (
            "class",
            report(capabilities=[{"capability_id": "x", "class": "top"}]),
            {"/capabilities/0/class": "bad-choice"},
        ),
        ("chain", chain("inbound"), {f"{HERE}/chain": "bad-choice"}),
        (
            "routes elsewhere",
            chain(local_routes=["x"]),
            {f"{HERE}/local_routes": "forbidden-field"},
        ),
        (
            "skip elsewhere",
            chain(skip_generic_chain=True),
            {f"{HERE}/skip_generic_chain": "forbidden-field"},
        ),
        ("observer", chain("audit", observer=True), {f"{HERE}/observer": "forbidden-field"}),
        ("filter", chain(filter=[]), {f"{HERE}/filter": "wrong-type"}),
        ("empty filter", chain(filter={}), {f"{HERE}/filter": "bad-list"}),
        ("AND of one", chain(filter={"AND": {"msg": "x"}}), {f"{HERE}/filter/AND": "wrong-type"}),
        ("OR of none", chain(filter={"OR": []}), {f"{HERE}/filter/OR": "bad-list"}),
        ("NOT of a text", chain(filter={"NOT": "x"}), {f"{HERE}/filter/NOT": "wrong-type"}),
        (
            "deep inside",
            chain(filter={"OR": [{"msg": 1}, {"NOT": {"AND": [5]}}]}),
            {f"{HERE}/filter/OR/1/NOT/AND/0": "wrong-type"},
        ),
        (
            "route out",
            chain("inbound-local", local_routes=["/v1/host/x"]),
            {f"{HERE}/local_routes/0": "bad-path"},
        ),
        (
            "route up",
            chain("inbound-local", local_routes=["/v1/enact/../x"]),
            {f"{HERE}/local_routes/0": "bad-path"},
        ),
        (
            "route object",
            chain("inbound-local", local_routes=[{"method": "GET", "path": "../x"}]),
            {f"{HERE}/local_routes/0/path": "bad-path"},
        ),
        (
            "method",
            chain("inbound-local", local_routes=[{"method": "get", "path": "x"}]),
            {f"{HERE}/local_routes/0/method": "bad-choice"},
        ),
        (
            "rendering",
            report(operator_surfaces=[{"surface_id": "s", "label": "l", "rendering": "pdf"}]),
            {"/operator_surfaces/0/rendering": "bad-choice"},
        ),
        ("from a participant", PEER(remote_node_id=BUYER_ID), {"/remote_node_id": "wrong-role"}),
        ("peer chain", PEER(chain_kind="x"), {"/chain_kind": "bad-choice"}),
        ("local chain", LOCAL(chain_kind="inbound-peer"), {"/chain_kind": "wrong-value"}),
        ("local path", LOCAL(path="x"), {"/path": "bad-text"}),
        ("caller", LOCAL(caller={}), {"/caller/scope": "missing-field"}),
        ("decision", DECISION(decision="maybe"), {"/decision": "bad-choice"}),
        ("level", NOTIFY(level="debug"), {"/level": "bad-choice"}),
        ("title", NOTIFY(title="x" * 241), {"/title": "bad-text"}),
        ("body", NOTIFY(body="x" * 4097), {"/body": "bad-text"}),
        ("both", WRITE(bytes_base64="YQ=="), {"": "conflicting-fields"}),
        ("neither", WRITE(json=GONE), {"": "conflicting-fields"}),
        ("base64", WRITE(json=GONE, bytes_base64="YQ"), {"/bytes_base64": "bad-base64"}),
        ("overwrite", WRITE(overwrite="no"), {"/overwrite": "wrong-type"}),
        ("record", PUT(payload=GONE), {"/payload": "missing-field"}),
        ("owner", PUT(owner_participant_id="kim"), {"/owner_participant_id": "bad-identity"}),
        ("limit", LIST(limit=0), {"/limit": "bad-number"}),
    ]
)
def test_what_is_wrong_with_calls_and_reports_is_told(
    document: Document, problems: Problems
) -> None:
    assert found(document) == problems


@pytest.mark.parametrize(
    "path",
    [
        "/etc/passwd",
        "..",
        "../a",
        "a/../../b",
        "a//b",
        "",
        ".",
        "a/./b",
        "C:/a",
        "a\\b",
        "a\x00b",
        "a/",
    ],
)
def test_a_path_stays_below_the_folder_of_the_module(path: str) -> None:
    for call in (WRITE, READ):
        assert found(call(path=path)) == {("/path", "bad-path")}


@pytest.mark.parametrize(
    ("url", "here"),
    [
        ("http://127.0.0.1", True),
        ("http://127.9.8.7:47981/", True),
        ("http://[::1]:80", True),
        ("http://localhost:1", True),
        ("http://localhost.example.org", False),
        ("http://127.0.0.1:99999", False),
        ("http://user@127.0.0.1", False),
        ("http://127.0.0.1/?x=1", False),
        ("http://[::1", False),
        ("http://2130706433", False),
        ("file:///tmp", False),
    ],
)
def test_endpoints_of_modules_are_on_this_machine(url: str, here: bool) -> None:
    assert is_loopback(url) is here


def test_every_chain_and_decision_is_taken() -> None:
    for kind in CHAINS:
        assert found(chain(kind)) == set()
    for word in DECISIONS:
        assert found(DECISION(decision=word)) == set()
    routes = {"local_routes": ["a/b", "/v1/enact/c"], "skip_generic_chain": False}
    assert found(chain("inbound-local", **routes)) == set()
    assert found(chain("pre-send", observer=True)) == set()


@rows(
    [
        ("outcome", {"outcome": "done"}, {"/outcome": "bad-choice"}),
        ("found", {"outcome": "found"}, {"/record": "missing-field"}),
        ("listed", {"outcome": "listed"}, {"/records": "missing-field"}),
        ("record", {"outcome": "found", "record": 5}, {"/record": "wrong-type"}),
    ]
)
def test_what_is_wrong_with_answers_of_the_store_is_told(
    document: Document, problems: Problems
) -> None:
    assert found(document, kind="module-store-response") == problems


def test_an_artifact_that_was_written_says_where_and_what() -> None:
    kind = "artifact-write-response"
    missing = {
        (f"/{name}", "missing-field") for name in ("artifact_id", "path", "digest", "size_bytes")
    }
    assert found({"outcome": "written"}, kind=kind) == missing
    assert found({"outcome": "rejected_path"}, kind=kind) == set()
    read = "artifact-read-response"
    content = {("/bytes_base64", "missing-field")}
    assert found({"outcome": "found"}, kind=read) == missing | content
    assert found({"outcome": "missing", "path": "a"}, kind=read) == set()


def test_a_report_says_little_and_is_good() -> None:
    assert found({"schema_version": "v1", "module_id": "m", "capabilities": []}) == set()
    nothing = {"local_routes": None, "skip_generic_chain": None, "observer": None, "filter": None}
    assert found(chain("audit", **nothing)) == set()
