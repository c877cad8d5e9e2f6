"""Orders of participants and orgs, requests to dispatch them, and results."""

from __future__ import annotations

from typing import Any

import pytest

from anabranch.errors import InputError
from anabranch.market.documents import InvalidDocument, require

from .examples import (
    AFTER,
    BEFORE,
    BUYER_ID,
    BUYER_NODE,
    GONE,
    LATER,
    NOW,
    ORG,
    ORG_ID,
    PROVIDER,
    PROVIDER_ID,
    PROVIDER_NODE,
    STRANGER,
    STRANGER_ID,
    Document,
    dispatch_request,
    order,
    org_order,
    reply_plan,
    result,
    stage,
)
from .tables import Problems, found, rows


@rows(
    [
        ("id", order(**{"order/id": "order:a b"}), {"/order~1id": "bad-text"}),
        ("no units", order(**{"request/units": 0}), {"/request~1units": "bad-number"}),
        ("input", order(**{"request/input": "text"}), {"/request~1input": "wrong-type"}),
        ("amount", order(**{"pricing/max-amount": -1}), {"/pricing~1max-amount": "bad-number"}),
        ("cents", order(**{"pricing/max-amount": 5.0}), {"/pricing~1max-amount": "wrong-type"}),
        ("sequence", order(**{"offer/seq": -1}), {"/offer~1seq": "bad-number"}),
        ("offer", order(**{"offer/id": "1"}), {"/offer~1id": "bad-text"}),
        (
            "when",
            order(**{"delivery/requested-by": "soon"}),
            {"/delivery~1requested-by": "bad-time"},
        ),
        (
            "refs",
            order(**{"lineage/upstream-refs": [1]}),
            {"/lineage~1upstream-refs/0": "wrong-type"},
        ),
        ("kind", order(**{"buyer/subject-kind": "group"}), {"/buyer~1subject-kind": "bad-choice"}),
        (
            "a node as buyer, with its own key",
            order(**{"buyer/subject-id": BUYER_NODE}),
            {"/buyer~1subject-id": "wrong-role"},
        ),
        (
            "an org as a participant",
            order(ORG, **{"buyer/subject-id": ORG_ID}),
            {"/buyer~1subject-id": "wrong-role"},
        ),
        (
            "provider's node",
            order(**{"provider/node-id": PROVIDER_ID}),
            {"/provider~1node-id": "wrong-role"},
        ),
        ("unsigned", order(signature=GONE), {"/signature": "missing-field"}),
        ("signed by the provider", order(PROVIDER), {"/signature": "wrong-signature"}),
        (
            "a placeholder",
            order(signature={"alg": "ed25519", "value": "…"}),
            {"/signature/value": "bad-signature"},
        ),
        ("changed since", {**order(), "pricing/max-amount": 1}, {"/signature": "wrong-signature"}),
        (
            "a fraction",
            order(**{"request/input": {"x": [1, 0.1]}}),
            {"/request~1input/x/1": "not-signable"},
        ),
    ]
)
def test_what_is_wrong_with_an_order_is_told(document: Document, problems: Problems) -> None:
    assert found(document) == problems


@rows(
    [
        ("good", org_order(), {}),
        (
            "no custodian",
            org_order(**{"buyer/operator-participant-id": GONE}),
            {"/buyer~1operator-participant-id": "missing-field"},
        ),
        ("signed by the org", org_order(ORG), {"/signature": "wrong-signature"}),
        ("signed by another participant", org_order(STRANGER), {"/signature": "wrong-signature"}),
        (
            "another custodian than who signed",
            org_order(**{"buyer/operator-participant-id": STRANGER_ID}),
            {"/signature": "wrong-signature"},
        ),
        (
            "a participant as org",
            org_order(**{"buyer/subject-id": BUYER_ID}),
            {"/buyer~1subject-id": "wrong-role"},
        ),
        (
            "an org as custodian",
            org_order(ORG, **{"buyer/operator-participant-id": ORG_ID}),
            {"/buyer~1operator-participant-id": "wrong-role"},
        ),
    ]
)
def test_an_order_of_an_org_is_signed_by_its_custodian(
    document: Document, problems: Problems
) -> None:
    assert found(document) == problems


def test_an_order_is_checked_for_the_instant_that_is_given() -> None:
    assert found(order(), at=NOW) == set()
    assert found(order(), at=BEFORE) == {("/created-at", "not-yet-valid")}
    assert found(order(), at=AFTER) == {("/delivery~1requested-by", "expired")}
    assert found(order(**{"delivery/requested-by": GONE}), at=AFTER) == set()


def test_a_draft_comes_without_what_the_host_fills_in_and_nothing_else() -> None:
    buyer = ("buyer/node-id", "buyer/subject-kind", "buyer/subject-id")
    draft = order(signature=GONE, **dict.fromkeys(buyer, GONE))
    assert found(draft, draft=True) == set()
    assert found(draft) == {
        ("/signature", "missing-field"),
        *((f"/{field.replace('/', '~1')}", "missing-field") for field in buyer),
    }
    short = {name: value for name, value in draft.items() if name != "offer/id"}
    assert found(short, kind="service-order.v1", draft=True) == {("/offer~1id", "missing-field")}
    forged = order(STRANGER)
    assert found(forged, draft=True) == {("/signature", "wrong-signature")}, "given, so it counts"


def test_require_raises_with_the_first_problems() -> None:
    require(order(), "service-order.v1", at=NOW)
    with pytest.raises(InvalidDocument) as caught:
        require(order(**{"offer/seq": -1, "request/units": 0}), "service-order.v1", at=AFTER)
    assert isinstance(caught.value, InputError)
    assert caught.value.code == "invalid_document"
    assert "/offer~1seq: bad-number" in caught.value.message
    assert len(caught.value.problems) == 3
    with pytest.raises(InvalidDocument, match="missing-field"):
        require({}, "service-offer.v1")


# -- dispatch --------------------------------------------------------------------------------


def target(kind: str, **fields: object) -> Document:
    return dispatch_request(**{"reply/target": {"selector/kind": kind, **fields}})


def planned(**changes: object) -> Document:
    return dispatch_request(**{"reply/delivery_plan": reply_plan(**changes)})


def staged(*stages: Document) -> Document:
    return planned(stages=[{"mode": "parallel", "success/policy": "all", **one} for one in stages])


PLAN = "/reply~1delivery_plan"


@rows(
    [
        (
            "schema",
            dispatch_request(schema="service-order.dispatch.v1"),
            {"/schema": "unknown-kind"},
        ),
        ("an odd key", dispatch_request(request_id="a b"), {"/request_id": "bad-text"}),
        ("a long key", dispatch_request(request_id="a" * 257), {"/request_id": "bad-text"}),
        ("payload", dispatch_request(dispatch_payload=[]), {"/dispatch_payload": "wrong-type"}),
        ("unknown field", dispatch_request(service_typ="x"), {"/service_typ": "unknown-field"}),
        ("deadline", dispatch_request(delivery_deadline="P1D"), {"/delivery_deadline": "bad-time"}),
        (
            "another service than ordered",
            dispatch_request(service_type="text/translate"),
            {"/service_type": "conflicting-values"},
        ),
        (
            "another run than ordered",
            dispatch_request(**{"workflow/run-id": "run:2"}),
            {"/workflow~1run-id": "conflicting-values"},
        ),
        (
            "another step than ordered",
            dispatch_request(**{"workflow/phase-id": "other"}),
            {"/workflow~1phase-id": "conflicting-values"},
        ),
        (
            "an unsigned order",
            dispatch_request(order=order(signature=GONE)),
            {"/order/signature": "missing-field"},
        ),
        (
            "a forged order",
            dispatch_request(order=order(STRANGER)),
            {"/order/signature": "wrong-signature"},
        ),
        (
            "no selector",
            dispatch_request(**{"reply/target": {}}),
            {"/reply~1target/selector~1kind": "missing-field"},
        ),
        ("an odd selector", target("phone"), {"/reply~1target/selector~1kind": "bad-choice"}),
        (
            "selector 5",
            dispatch_request(**{"reply/target": {"selector/kind": 5}}),
            {"/reply~1target/selector~1kind": "wrong-type"},
        ),
        ("node without id", target("node"), {"/reply~1target/node~1id": "missing-field"}),
        (
            "node with a participant",
            target("node", **{"node/id": BUYER_ID}),
            {"/reply~1target/node~1id": "wrong-role"},
        ),
        (
            "node with more",
            target("node", **{"node/id": BUYER_NODE, "max/nodes": 1}),
            {"/reply~1target/max~1nodes": "unknown-field"},
        ),
        (
            "no node at all",
            target("participant", **{"participant/id": BUYER_ID, "max/nodes": 0}),
            {"/reply~1target/max~1nodes": "bad-number"},
        ),
        ("plan mode", planned(mode="chaos"), {f"{PLAN}/mode": "bad-choice"}),
        ("no stages", planned(stages=[]), {f"{PLAN}/stages": "bad-list"}),
        ("no targets", staged(stage("a", 0)), {f"{PLAN}/stages/0/targets": "bad-list"}),
        (
            "unknown fallback",
            staged(stage(**{"on/failure": "third"})),
            {f"{PLAN}/stages/0/on~1failure": "unknown-reference"},
        ),
        (
            "quorum without a number",
            staged(stage(**{"success/policy": "quorum"})),
            {f"{PLAN}/stages/0/quorum~1min-success": "missing-field"},
        ),
    ]
)
def test_what_is_wrong_with_a_dispatch_request_is_told(
    document: Document, problems: Problems
) -> None:
    assert found(document) == problems


def test_dispatch_requests_reply_to_each_of_the_three_targets_and_by_plan() -> None:
    for document in (
        target("routing-subject", **{"routing-subject/id": "subject:1", "max/nodes": 2}),
        target("participant", **{"participant/id": BUYER_ID}),
        target("node", **{"node/id": BUYER_NODE}),
        planned(),
        planned(mode="parallel"),
        staged(stage("a"), stage("b", 2)),
        dispatch_request(order=org_order()),
    ):
        assert found(document, at=NOW) == set()
    assert found(dispatch_request(), at=LATER) == {
        ("/delivery_deadline", "expired"),
        ("/order/delivery~1requested-by", "expired"),
    }


# -- results ---------------------------------------------------------------------------------

ERROR = {"code": "busy", "message": "try again later"}


def failed(**changes: object) -> Document:
    return result(**{"status": "failed", "output": GONE, "error": ERROR, **changes})


@rows(
    [
        ("status", result(status="done"), {"/status": "bad-choice"}),
        ("not terminal", result(status="running"), {"/status": "bad-choice"}),
        ("completed without output", result(output=GONE), {"/output": "missing-field"}),
        ("completed with an error", result(error=ERROR), {"/error": "forbidden-field"}),
        ("failed without an error", failed(error=GONE), {"/error": "missing-field"}),
        ("failed with output", failed(output=None), {"/output": "forbidden-field"}),
        (
            "rejected with output",
            failed(status="rejected", output={}),
            {"/output": "forbidden-field"},
        ),
        (
            "a code too long",
            failed(error={**ERROR, "code": "x" * 129}),
            {"/error/code": "bad-text"},
        ),
        (
            "a message too long",
            failed(error={**ERROR, "message": "x" * 4097}),
            {"/error/message": "bad-text"},
        ),
        (
            "more in the error",
            failed(error={**ERROR, "trace": ""}),
            {"/error/trace": "unknown-field"},
        ),
        ("closed", result(price=1), {"/price": "unknown-field"}),
        (
            "digest in hex",
            result(**{"result/artifact-digest": "sha256:" + "0" * 64}),
            {"/result~1artifact-digest": "bad-digest"},
        ),
        (
            "a participant as node",
            result(**{"provider/node-id": PROVIDER_ID}),
            {"/provider~1node-id": "wrong-role"},
        ),
        (
            "a node as participant",
            result(**{"provider/participant-id": PROVIDER_NODE}),
            {"/provider~1participant-id": "wrong-role"},
        ),
    ]
)
def test_what_is_wrong_with_a_result_is_told(document: Document, problems: Problems) -> None:
    assert found(document) == problems


def test_any_json_is_an_output_and_errors_may_be_tracked() -> None:
    outputs: list[Any] = [None, 0, "", [], 1.5, {"deep": [None]}]
    for output in outputs:
        assert found(result(output=output)) == set()
    for status in ("failed", "rejected"):
        assert found(failed(status=status, error={**ERROR, "tracking/id": "t1"})) == set()
    assert found(result(), at=BEFORE) == {("/responded_at", "not-yet-valid")}
