"""Templates, dispatches, snapshots, fan-out messages, role modules and records of Agora."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from anabranch.market import check

from .examples import (
    AFTER,
    BEFORE,
    BUYER,
    BUYER_ID,
    GONE,
    MAKERS,
    STRANGER,
    Document,
    agora_record,
    dispatch,
    offer,
    snapshot,
)
from .tables import Problems, found, rows

TEMPLATE = MAKERS["workflow-template.v1"]
REQUEST, RESPONSE = MAKERS["workflow.fanout.request"], MAKERS["workflow.fanout.response"]
DECISION = MAKERS["arca-task-fulfillment-decision.v1"]
ROLE_ANSWER = MAKERS["service-dispatch-response"]


def step(**changes: Any) -> Document:
    (one,) = snapshot()["steps"]
    return snapshot(steps=[{**one, **changes}])


@rows(
    [
        ("no plan", TEMPLATE(plan=GONE), {"/plan": "missing-field"}),
        ("kind", TEMPLATE(template_kind="job"), {"/template_kind": "bad-choice"}),
        ("of a step", TEMPLATE(template_kind="step"), {"/service_type": "missing-field"}),
        ("parameters", TEMPLATE(parameters={"x": {}}), {"/parameters/x/type": "missing-field"}),
        ("at the root", TEMPLATE(deadline_seconds=5), {"/deadline_seconds": "forbidden-field"}),
        (
            "in the plan",
            TEMPLATE(plan={"deadline_seconds": 5}),
            {"/plan/deadline_seconds": "forbidden-field"},
        ),
        (
            "in a step",
            TEMPLATE(plan={"steps": [{}, {"deadline_seconds": 5}]}),
            {"/plan/steps/1/deadline_seconds": "forbidden-field"},
        ),
        (
            "in a step by name",
            TEMPLATE(plan={"steps": {"a/b": {"deadline_seconds": 5}}}),
            {"/plan/steps/a~1b/deadline_seconds": "forbidden-field"},
        ),
        ("dispatch id", dispatch(dispatch_id="1"), {"/dispatch_id": "bad-text"}),
        ("capital", dispatch(status="Responded"), {"/status": "bad-choice"}),
        ("timed_out", dispatch(status="timed_out"), {"/status": "bad-choice"}),
        ("responded, when", dispatch(responded_at=GONE), {"/responded_at": "missing-field"}),
        ("too early", dispatch(responded_at=BEFORE), {"/responded_at": "times-out-of-order"}),
        (
            "pending with an answer",
            dispatch(status="pending"),
            {"/response": "forbidden-field", "/responded_at": "forbidden-field"},
        ),
        ("outcome", dispatch(outcome="lost"), {"/outcome": "bad-choice"}),
        ("step id", dispatch(step_id="a b"), {"/step_id": "bad-text"}),
        ("run status", snapshot(status="timed_out"), {"/status": "bad-choice"}),
        ("step status", step(status="running"), {"/steps/0/status": "bad-choice"}),
        (
            "a raw response",
            step(dispatches=[dispatch()]),
            {"/steps/0/dispatches/0/response": "forbidden-field"},
        ),
        ("no dispatches", step(dispatches=None), {"/steps/0/dispatches": "wrong-type"}),
        ("fulfilled", step(task={"fulfilled": "yes"}), {"/steps/0/task/fulfilled": "wrong-type"}),
        (
            "a step twice",
            snapshot(steps=snapshot()["steps"] * 2),
            {"/steps/1/step_id": "bad-list"},
        ),
        ("revision", snapshot(revision=-1), {"/revision": "bad-number"}),
        ("respond by", REQUEST(respond_by="PT5S"), {"/respond_by": "bad-time"}),
        ("an offer is missing", RESPONSE(offer=GONE), {"/offer": "missing-field"}),
        (
            "a forged offer",
            RESPONSE(offer=offer(STRANGER)),
            {"/offer/signature": "wrong-signature"},
        ),
        ("an offer too many", RESPONSE(status="no_offer_available"), {"/offer": "forbidden-field"}),
        (
            "an error without a word",
            RESPONSE(status="error", offer=GONE),
            {"/error": "missing-field"},
        ),
        (
            "neither yes nor no",
            DECISION(**{"fulfillment/status": "maybe"}),
            {"/fulfillment~1status": "bad-choice"},
        ),
        ("evidence", DECISION(evidence="seen"), {"/evidence": "wrong-type"}),
        ("role status", ROLE_ANSWER(status="done"), {"/status": "bad-choice"}),
        (
            "no answer",
            ROLE_ANSWER(**{"answer/content": GONE}),
            {"/answer~1content": "missing-field"},
        ),
        ("format", ROLE_ANSWER(**{"answer/format": "html"}), {"/answer~1format": "bad-choice"}),
    ]
)
def test_what_is_wrong_with_documents_of_workflows_is_told(
    document: Document, problems: Problems
) -> None:
    assert found(document) == problems


def test_more_good_documents_of_workflows() -> None:
    for document in (
        TEMPLATE(template_kind="offer", plan=GONE, service_type="text/summarise"),
        dispatch(status="timeout", responded_at=None, response=None),
        dispatch(status="timeout", response={"late": True}),
        RESPONSE(status="no_offer_available", offer=GONE),
        ROLE_ANSWER(status="failed", **{"answer/content": GONE, "completed-at": GONE}),
    ):
        assert check(document) == []
    assert found(REQUEST(), at=AFTER) == {("/respond_by", "expired")}


def test_the_template_among_the_examples_is_good() -> None:
    file = Path(__file__).parents[3] / "examples" / "arca" / "template.json"
    assert check(json.loads(file.read_text("utf-8"))) == []


@rows(
    [
        (
            "a dot",
            agora_record(**{"record/kind": "workflow.completed", "content/schema": "x.v1"}),
            {"/record~1kind": "bad-text"},
        ),
        ("topic", agora_record(**{"topic/key": "x" * 513}), {"/topic~1key": "bad-text"}),
        ("schema", agora_record(**{"content/schema": "offer"}), {"/content~1schema": "bad-text"}),
        ("of a stranger", agora_record(STRANGER), {"/signature": "wrong-signature"}),
        (
            "another key",
            agora_record(BUYER, **{"author/participant-id": BUYER_ID}),
            {"/signature/key~1public": "conflicting-values"},
        ),
        (
            "a forged offer inside",
            agora_record(content=offer(STRANGER)),
            {"/content/signature": "wrong-signature"},
        ),
    ]
)
def test_what_is_wrong_with_a_record_is_told(document: Document, problems: Problems) -> None:
    assert found(document) == problems


def test_what_relays_add_to_a_record_is_not_signed() -> None:
    relayed = {**agora_record(), "relay/hops": 2}
    assert check(relayed) == []
    assert found({**agora_record(), "record/tags": ["new"]}) == {("/signature", "wrong-signature")}
    completed = {"record/kind": "workflow-completed", "content/schema": "workflow-fact.v1"}
    assert check(agora_record(**completed, content={"event": "workflow.completed"})) == []
    unsigned = agora_record()
    del unsigned["signature"]["key/public"]
    assert found(unsigned) == {("/signature/key~1public", "missing-field")}
