"""Envelopes and their plans, acceptors, results, and deferred operations."""

from __future__ import annotations

import base64

import pytest

from anabranch.market import check
from anabranch.market.documents.deferred import OPERATION_STATUSES
from anabranch.market.documents.delivery import (
    ADMISSIONS,
    FAILURE_CLASSES,
    SELECTORS,
    STATUSES,
)

from .examples import (
    AFTER,
    BEFORE,
    BUYER_ID,
    BUYER_NODE,
    BYTES,
    GONE,
    MAKERS,
    NOW,
    ORG_ID,
    Document,
    artifact,
    envelope,
    stage,
)
from .tables import Problems, found, rows


def sent(**changes: object) -> Document:
    return envelope(artifact=artifact(**changes))


def planned(*stages: Document, **changes: object) -> Document:
    plan: Document = {"stages": list(stages)} if stages else {}
    return envelope(**{"delivery/plan": {**plan, **changes}})


def to(kind: str, **fields: object) -> Document:
    return planned(stage("a", 0) | {"targets": [{"selector/kind": kind, **fields}]})


PLAN = "/delivery~1plan"
STAGE = f"{PLAN}/stages/0"


@rows(
    [
        ("closed", envelope(x=1), {"/x": "unknown-field"}),
        ("no plan", envelope(**{"delivery/plan": GONE}), {PLAN: "missing-field"}),
        ("bytes and ref", sent(**{"artifact/ref": "a:1"}), {"/artifact": "conflicting-fields"}),
        ("neither", sent(**{"bytes/base64": GONE}), {"/artifact": "conflicting-fields"}),
        ("size", sent(**{"size/bytes": 5}), {"/artifact/size~1bytes": "wrong-size"}),
        ("negative size", sent(**{"size/bytes": -1}), {"/artifact/size~1bytes": "bad-number"}),
        ("digest", sent(digest="sha256:" + "A" * 43), {"/artifact/digest": "wrong-digest"}),
        ("digest in hex", sent(digest="sha256:" + "0" * 64), {"/artifact/digest": "bad-digest"}),
        (
            "padded digest",
            sent(digest=artifact()["digest"] + "="),
            {"/artifact/digest": "bad-digest"},
        ),
        ("md5", sent(digest="md5:" + "A" * 43), {"/artifact/digest": "bad-digest"}),
        ("artifact is closed", sent(name="a"), {"/artifact/name": "unknown-field"}),
        ("no padding", sent(**{"bytes/base64": "YQ"}), {"/artifact/bytes~1base64": "bad-base64"}),
        ("loose bits", sent(**{"bytes/base64": "YR=="}), {"/artifact/bytes~1base64": "bad-base64"}),
        ("base64url", sent(**{"bytes/base64": "_-8="}), {"/artifact/bytes~1base64": "bad-base64"}),
        ("blanks", sent(**{"bytes/base64": "YQ ==\n"}), {"/artifact/bytes~1base64": "bad-base64"}),
        ("route and stages", planned(stage(), **{"route/ref": "r"}), {PLAN: "conflicting-fields"}),
        ("no route, no stages", planned(), {PLAN: "conflicting-fields"}),
        ("plan is closed", planned(stage(), after=1), {f"{PLAN}/after": "unknown-field"}),
        ("parallel stages", planned(stage(), mode="parallel"), {f"{PLAN}/mode": "wrong-value"}),
        ("targets in turn", planned(stage(mode="sequence")), {f"{STAGE}/mode": "wrong-value"}),
        ("stage is closed", planned(stage(retries=3)), {f"{STAGE}/retries": "unknown-field"}),
        ("no targets", planned(stage("a", 0)), {f"{STAGE}/targets": "bad-list"}),
        (
            "policy",
            planned(stage(**{"success/policy": "most"})),
            {f"{STAGE}/success~1policy": "bad-choice"},
        ),
        (
            "quorum without a number",
            planned(stage(**{"success/policy": "quorum"})),
            {f"{STAGE}/quorum~1min-success": "missing-field"},
        ),
        (
            "quorum of 0",
            planned(stage(**{"success/policy": "quorum", "quorum/min-success": 0})),
            {f"{STAGE}/quorum~1min-success": "bad-number"},
        ),
        (
            "quorum that cannot be met",
            planned(stage("a", 2, **{"success/policy": "quorum", "quorum/min-success": 3})),
            {f"{STAGE}/quorum~1min-success": "bad-number"},
        ),
        (
            "a number without quorum",
            planned(stage(**{"quorum/min-success": 1})),
            {f"{STAGE}/quorum~1min-success": "forbidden-field"},
        ),
        (
            "a number with any",
            planned(stage(**{"success/policy": "any", "quorum/min-success": 1})),
            {f"{STAGE}/quorum~1min-success": "forbidden-field"},
        ),
        (
            "the same id",
            planned(stage("a"), stage("a")),
            {f"{PLAN}/stages/1/stage~1id": "bad-list"},
        ),
        (
            "unknown fallback",
            planned(stage("a", **{"on/failure": "c"}), stage("b")),
            {f"{STAGE}/on~1failure": "unknown-reference"},
        ),
        (
            "back to itself",
            planned(stage("a", **{"on/failure": "a"})),
            {f"{STAGE}/on~1failure": "stage-loop"},
        ),
        (
            "round and round",
            planned(stage("a"), stage("b", **{"on/failure": "a"})),
            {f"{PLAN}/stages/1/on~1failure": "stage-loop"},
        ),
        ("selector", to("pigeon"), {f"{STAGE}/targets/0/selector~1kind": "bad-choice"}),
        (
            "node of a participant",
            to("node", **{"node/id": BUYER_ID}),
            {f"{STAGE}/targets/0/node~1id": "wrong-role"},
        ),
        (
            "selector is closed",
            to("group", **{"group/id": "g", "x": 1}),
            {f"{STAGE}/targets/0/x": "unknown-field"},
        ),
        (
            "odd authorization",
            to(
                "node",
                **{
                    "node/id": BUYER_NODE,
                    "inac/authorization": {"mode": "trust-me", "passport": {}},
                },
            ),
            {f"{STAGE}/targets/0/inac~1authorization/mode": "bad-choice"},
        ),
        ("privacy", envelope(policy={"privacy": "secret"}), {"/policy/privacy": "bad-choice"}),
        (
            "guarantee",
            envelope(policy={"delivery": "exactly-once"}),
            {"/policy/delivery": "bad-choice"},
        ),
        ("no time", envelope(policy={"timeout/ms": 0}), {"/policy/timeout~1ms": "bad-number"}),
        ("policy is closed", envelope(policy={"ttl": 1}), {"/policy/ttl": "unknown-field"}),
        (
            "a long key",
            envelope(**{"idempotency/key": "k" * 257}),
            {"/idempotency~1key": "bad-text"},
        ),
    ]
)
def test_what_is_wrong_with_an_envelope_is_told(document: Document, problems: Problems) -> None:
    assert found(document) == problems


TARGETS: dict[str, Document] = {
    "node": {"node/id": BUYER_NODE},
    "configured-default": {"name": "results"},
    "group": {"group/id": "group:1"},
    "agora-default": {},
    "capability-first": {"capability/id": "offer-catalog", "filters": {}},
    "capability-many": {"capability/id": "offer-catalog", "max/nodes": 3},
    "participant": {"participant/id": BUYER_ID, "max/nodes": 1},
    "org": {"org/id": ORG_ID},
    "routing-subject": {"routing-subject/id": "s:1"},
    "contact-lookup": {"contact/name": "kim"},
    "object-store-indirect": {"node/id": BUYER_NODE},
}


@pytest.mark.parametrize("kind", SELECTORS)
def test_every_selector_is_taken(kind: str) -> None:
    assert check(to(kind, **TARGETS[kind])) == []


def test_more_good_envelopes() -> None:
    big = bytes(range(256)) * 40
    inline = base64.b64encode(big).decode()
    for document in (
        planned(**{"route/ref": "route:results", "mode": "sequence"}),
        planned(stage("a", 3, **{"success/policy": "quorum", "quorum/min-success": 3})),
        planned(stage("a", **{"on/failure": "c"}), stage("b"), stage("c")),
        planned(  # back, and past itself: this ends
            stage("a", **{"on/failure": "c"}),
            stage("b", **{"on/failure": "d"}),
            stage("c", **{"on/failure": "b"}),
            stage("d"),
        ),
        sent(**{"bytes/base64": GONE, "artifact/ref": "artifact:1"}),
        envelope(policy={"privacy": "private", "delivery": "best-effort", "timeout/ms": 1}),
        envelope(**{"idempotency/key": "k", "classification": "internal", "causal/context": {}}),
    ):
        assert check(document) == []
    digest = check(sent(**{"bytes/base64": inline, "size/bytes": len(big)}))
    assert [one.code for one in digest] == ["wrong-digest"]
    right = digest[0].message.rpartition(" ")[2]
    assert check(sent(**{"bytes/base64": inline, "size/bytes": len(big), "digest": right})) == []
    assert len(BYTES) == artifact()["size/bytes"]


def test_a_quorum_of_selectors_that_stand_for_many_is_not_counted() -> None:
    many = {"selector/kind": "capability-many", "capability/id": "x"}
    fields = {"targets": [many], "success/policy": "quorum", "quorum/min-success": 3}
    assert check(planned(stage() | fields)) == []


# -- acceptors, results, operations ----------------------------------------------------------

INVOKE = MAKERS["artifact-delivery-acceptor-invoke.v1"]
ADMISSION = MAKERS["artifact-delivery-admission-response.v1"]
RESULT = MAKERS["artifact-delivery-result.v1"]
STATUS = MAKERS["artifact-delivery-status.v1"]
DEFERRED = MAKERS["deferred-operation.v1"]
OPERATION = MAKERS["deferred-operation-status.v1"]


@rows(
    [
        ("peer", INVOKE(**{"source/peer": BUYER_ID}), {"/source~1peer": "wrong-role"}),
        ("artifact", INVOKE(artifact=artifact(digest="x")), {"/artifact/digest": "bad-digest"}),
        ("token", INVOKE(**{"invocation/token": 5}), {"/invocation~1token": "wrong-type"}),
        ("status", ADMISSION(status="ok"), {"/status": "bad-choice"}),
        ("reason", ADMISSION(reason="x" * 1025), {"/reason": "bad-text"}),
        ("delivery id", RESULT(**{"delivery/id": "delivery:a:b"}), {"/delivery~1id": "bad-text"}),
        ("delivery status", RESULT(status="done"), {"/status": "bad-choice"}),
        ("class", RESULT(**{"failure/class": "boom"}), {"/failure~1class": "bad-choice"}),
        ("no failure", RESULT(status="succeeded"), {"/failure~1class": "forbidden-field"}),
        ("stages", RESULT(**{"stage/results": [1]}), {"/stage~1results/0": "wrong-type"}),
        ("ends early", STATUS(**{"expires-at": BEFORE}), {"/expires-at": "times-out-of-order"}),
        (
            "two ways to cancel",
            DEFERRED(cancel_href="/v1/x"),
            {"": "conflicting-fields"},
        ),
        (
            "no way to cancel, and no reason",
            DEFERRED(**{"cancel/unavailable-reason": GONE}),
            {"": "conflicting-fields"},
        ),
        ("too soon", DEFERRED(retry_after_seconds=0), {"/retry_after_seconds": "bad-number"}),
        ("too late", DEFERRED(retry_after_seconds=3601), {"/retry_after_seconds": "bad-number"}),
        ("not deferred", DEFERRED(status="pending"), {"/status": "wrong-value"}),
        ("id", DEFERRED(**{"operation/id": "deferred:X:1"}), {"/operation~1id": "bad-text"}),
        ("kind", DEFERRED(**{"operation/kind": "Submit"}), {"/operation~1kind": "bad-text"}),
        ("over before", DEFERRED(expires_at=BEFORE), {"/expires_at": "times-out-of-order"}),
        ("attempts", OPERATION(attempt_no=1), {"/attempt_no": "unknown-field"}),
        ("completed without", OPERATION(result=GONE), {"/result": "missing-field"}),
        ("result too early", OPERATION(status="running"), {"/result": "forbidden-field"}),
        ("deferred is no status", OPERATION(status="deferred"), {"/status": "bad-choice"}),
    ]
)
def test_what_is_wrong_with_what_follows_a_delivery_is_told(
    document: Document, problems: Problems
) -> None:
    assert found(document) == problems


def test_a_token_is_never_told() -> None:
    (problem,) = check(INVOKE(**{"invocation/token": "secret-token" * 200}))
    assert "secret" not in problem.message


def test_every_status_and_class_is_taken() -> None:
    for status in STATUSES:
        assert check(RESULT(**{"status": status, "failure/class": GONE})) == []
        assert check(STATUS(status=status)) == []
    for failure in FAILURE_CLASSES:
        assert check(RESULT(**{"failure/class": failure})) == []
    for status in ADMISSIONS:
        assert check(ADMISSION(status=status)) == []
    for status in OPERATION_STATUSES:
        changes = {} if status == "completed" else {"result": GONE}
        assert check(OPERATION(status=status, **changes)) == []
    cancellable = {"cancel/unavailable-reason": GONE, "cancel_href": "/v1/deferred-operations/x"}
    assert check(DEFERRED(**cancellable), at=NOW) == []
    assert found(DEFERRED(), at=AFTER) == {("/expires_at", "expired")}
