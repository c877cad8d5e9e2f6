"""Envelopes that are refused: the named class, its status, and nothing in the ledger."""

from __future__ import annotations

from typing import Any

import pytest

from in_loop import in_loop
from market.node.delivery.support import (
    RULE,
    SCHEMA,
    Module,
    Outside,
    artifact,
    delivery_world,
    envelope,
    send,
    stage,
)
from market.support import node as node_id
from market.support import participant

OTHER = node_id(9)
HERE = stage("s", OTHER)


def with_plan(**plan: Any) -> dict[str, Any]:
    return envelope(delivery__plan={key.replace("__", "/"): one for key, one in plan.items()})


def selected(**selector: Any) -> dict[str, Any]:
    return envelope(stage("s", {key.replace("__", "/"): one for key, one in selector.items()}))


REFUSED: dict[str, tuple[Any, int, str]] = {
    "no object": (["x"], 400, "envelope-malformed"),
    "nothing": (None, 400, "envelope-malformed"),
    "unknown field": (envelope(HERE, extra=1), 400, "envelope-malformed"),
    "no plan": (envelope(HERE, delivery__plan=None), 400, "envelope-malformed"),
    "no targets": (with_plan(stages=[{"stage/id": "s", "targets": []}]), 400, "envelope-malformed"),
    "not base64": (
        envelope(HERE, artifact=artifact(**{"bytes/base64": "???"})), 400, "envelope-malformed",
    ),
    "hex digest": (
        envelope(HERE, artifact=artifact(digest="sha256:" + "0" * 64)), 400, "envelope-malformed",
    ),
    "inline and ref": (
        envelope(HERE, artifact=artifact(**{"artifact/ref": "artifact:x"})),
        400, "envelope-invalid",
    ),
    "neither inline nor ref": (
        envelope(HERE, artifact=artifact(**{"bytes/base64": None})), 400, "envelope-invalid",
    ),
    "route and stages": (
        with_plan(route__ref="news", stages=[HERE]), 400, "envelope-invalid",
    ),
    "neither route nor stages": (with_plan(mode="sequence"), 400, "envelope-invalid"),
    "wrong digest": (
        envelope(HERE, artifact=artifact(digest=artifact("other")["digest"])),
        400, "envelope-invalid",
    ),
    "wrong size": (envelope(HERE, artifact=artifact(**{"size/bytes": 8})), 400, "envelope-invalid"),
    "stages that loop": (
        envelope(stage("a", OTHER, on__failure="b"), stage("b", OTHER, on__failure="a")),
        400, "envelope-invalid",
    ),
    "a quorum that is none": (
        envelope(stage("a", OTHER, quorum__min_success=1)), 400, "envelope-invalid",
    ),
    "another component": (envelope(HERE, component="dator"), 403, "outbound-denied"),
    "a selector that is not supported": (
        selected(selector__kind="agora-default"), 400, "kind-not-supported",
    ),
    "an authorization that is not used": (
        envelope(stage("s", {
            "selector/kind": "node", "node/id": OTHER,
            "inac/authorization": {"mode": "capability-passport", "passport": {}},
        })), 400, "kind-not-supported",
    ),
    "an unknown scheme": (
        envelope(HERE, artifact=artifact(**{"bytes/base64": None, "artifact/ref": "ftp:x"})),
        403, "outbound-denied",
    ),
    "a route that there is not": (with_plan(route__ref="nowhere"), 422, "route-unresolved"),
    "a participant without nodes": (
        selected(selector__kind="participant", participant__id=participant(5)),
        422, "route-unresolved",
    ),
    "a group that there is not": (
        selected(selector__kind="group", group__id="nobody"), 422, "route-unresolved",
    ),
    "a default that there is not": (
        selected(selector__kind="configured-default", name="nobody"), 422, "route-unresolved",
    ),
    "more bytes than the node takes": (
        envelope(HERE, artifact=artifact("x" * 2000)), 429, "runtime-limit",
    ),
    "an order that is none": (
        envelope(HERE, artifact=artifact({}, "service-order.dispatch.request.v1")),
        400, "envelope-invalid",
    ),
    "a result that is none": (
        envelope(HERE, artifact=artifact(b"{", "service-order.result.v1")),
        400, "envelope-invalid",
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", REFUSED)
@in_loop
async def test_an_envelope_is_refused_with_its_class_and_nothing_is_recorded(case: str) -> None:
    document, status, failure_class = REFUSED[case]
    world = delivery_world("a", config={"max_bytes": 1500})
    for query in ("", "?mode=deferred"):
        answer = await send(world["a"], document, query=query)
        assert (answer.status, answer.body["code"]) == (status, failure_class)
        assert answer.body["failure/class"] == failure_class
    assert world["a"].store.node_streams.stream_names() == []


# -- references ------------------------------------------------------------------------------


def by_reference(reference: str, value: Any = "hello", **changes: Any) -> dict[str, Any]:
    given = artifact(value, **{"bytes/base64": None, "artifact/ref": reference, **changes})
    return envelope(artifact=given)


@in_loop
async def test_bytes_behind_a_reference_are_read_checked_and_delivered() -> None:
    outside = Outside()
    outside.modules["a"] = {"x": Module()}
    outside.modules["a"]["x"].files["out/hello.json"] = b'"hello"'
    world = delivery_world("a", "b", outside=outside)
    document = by_reference("module-artifact:out/hello.json")
    document["delivery/plan"] = {"stages": [stage("s", world["b"])]}
    assert (await send(world["a"], document)).body["status"] == "succeeded"
    kept = by_reference(f"artifact:{artifact()['digest']}")  # the node keeps what it delivered
    kept["delivery/plan"] = {"stages": [stage("again", world["b"])]}
    answer = await send(world["a"], kept)
    assert answer.body["stage/results"][0]["targets"][0]["admission"] == "already-present"


@pytest.mark.parametrize(
    ("reference", "changes"),
    [
        ("module-artifact:missing", {}),
        ("artifact:sha256:missing", {}),
        ("module-artifact:out/hello.json", {"size/bytes": 3}),
        ("module-artifact:out/hello.json", {"digest": artifact("other")["digest"]}),
    ],
)
@in_loop
async def test_bytes_that_are_not_those_of_the_envelope_are_refused(
    reference: str, changes: dict[str, Any]
) -> None:
    outside = Outside()
    outside.modules["a"] = {"x": Module()}
    outside.modules["a"]["x"].files["out/hello.json"] = b'"hello"'
    world = delivery_world("a", outside=outside)
    document = by_reference(reference, **changes)
    document["delivery/plan"] = {"stages": [HERE]}
    answer = await send(world["a"], document)
    assert (answer.status, answer.body["code"]) == (400, "envelope-invalid")
    assert world["a"].store.node_streams.stream_names() == []


@in_loop
async def test_a_scheme_that_a_rule_allows_and_the_node_does_not_read_is_not_supported() -> None:
    rule = {**RULE, "artifact/ref-schemes": ["s3"]}
    world = delivery_world("a", config={"outbound": [rule]})
    document = by_reference("s3:bucket/key")
    document["delivery/plan"] = {"stages": [HERE]}
    answer = await send(world["a"], document)
    assert (answer.status, answer.body["code"]) == (400, "kind-not-supported")


# -- queries ---------------------------------------------------------------------------------


@pytest.mark.parametrize("query", ["?deferred=true", "?mode=later", "?mode=deferred&x=1"])
@in_loop
async def test_a_mode_that_there_is_not_is_refused(query: str) -> None:
    world = delivery_world("a")
    answer = await send(world["a"], envelope(HERE), query=query)
    assert (answer.status, answer.body["code"]) == (400, "bad_query")
    assert world["a"].store.node_streams.stream_names() == []


# -- outbound rules --------------------------------------------------------------------------

ALLOWED = {
    "component/id": "arca",
    "schema": SCHEMA,
    "recipient/selectors": ["node"],
    "target/node-ids": [OTHER],
    "fanout/max-targets": 1,
    "fallback/max-stages": 1,
    "max/bytes": 10,
}
DENIED: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "another component": ({"component/id": "dator"}, envelope(HERE)),
    "another schema": ({"schema": "other.v1"}, envelope(HERE)),
    "another selector": ({"recipient/selectors": ["participant"]}, envelope(HERE)),
    "another node": ({"target/node-ids": [node_id(8)]}, envelope(HERE)),
    "too many targets": (
        {"target/node-ids": [OTHER, node_id(8)]}, envelope(stage("s", OTHER, node_id(8))),
    ),
    "too many stages": ({}, envelope(stage("s", OTHER), stage("t", OTHER))),
    "too many bytes": ({"max/bytes": 6}, envelope(HERE)),
    "a reference": (
        {},
        envelope(HERE, artifact=artifact(**{"bytes/base64": None, "artifact/ref": "artifact:x"})),
    ),
    "a route": ({}, with_plan(route__ref="news")),
}  # fmt: skip


@pytest.mark.parametrize("case", DENIED)
@in_loop
async def test_what_no_rule_allows_is_denied(case: str) -> None:
    changes, document = DENIED[case]
    config = {"outbound": [{**ALLOWED, **changes}], "routes": {"news": [HERE]}}
    world = delivery_world("a", config=config)
    answer = await send(world["a"], document)
    assert (answer.status, answer.body["code"]) == (403, "outbound-denied")
    assert world["a"].store.node_streams.stream_names() == []


@in_loop
async def test_one_rule_that_allows_all_of_it_is_enough() -> None:
    rules = [{**ALLOWED, "max/bytes": 1}, ALLOWED, {**ALLOWED, "component/id": "dator"}]
    world = delivery_world("a", config={"outbound": rules})
    assert (await send(world["a"], envelope(HERE), query="?mode=deferred")).status == 202


@in_loop
async def test_a_module_with_the_name_of_the_host_is_no_host() -> None:
    world = delivery_world("a", config={"outbound": []})
    answer = await send(world["a"], envelope(HERE, component="host"), as_="host")
    assert (answer.status, answer.body["code"]) == (403, "outbound-denied")


@in_loop
async def test_an_empty_list_of_rules_allows_nothing() -> None:
    world = delivery_world("a", config={"outbound": []})
    assert (await send(world["a"], envelope(HERE))).body["code"] == "outbound-denied"
