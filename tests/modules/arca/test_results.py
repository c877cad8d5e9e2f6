"""The acceptor for results: each for its step, once, and by its request alone."""

from __future__ import annotations

import asyncio
from base64 import b64encode
from typing import Any

import msgspec
import pytest

from anabranch.market.documents import digest_of
from anabranch.market.identities import canonical
from anabranch.modules.arca.results import LEGACY
from anabranch.modules.arca.work.attempts import Attempt
from anabranch.modules.kit.module import PeerMessage
from anabranch.work.participants.performers import rfc3339

from .work.support import ANNA, START, Work, offer, task, virtually

REQUEST = Attempt("run1", "s1", "a1").request_id


def result(**changes: Any) -> dict[str, Any]:
    """A completed result for the first attempt."""
    document: dict[str, Any] = {
        "schema": "service-order.result.v1",
        "request_id": REQUEST,
        "workflow/run-id": "run1",
        "workflow/phase-id": "s1",
        "correlation/id": "run1",
        "service_type": "text/summarise",
        "status": "completed",
        "provider/node-id": ANNA.node,
        "provider/participant-id": ANNA.name,
        "responded_at": rfc3339(START),
        "output": {"summary": "short"},
    }
    return {**document, **changes}


def invoke(document: Any, **artifact: Any) -> dict[str, Any]:
    data = document if isinstance(document, bytes) else canonical(document)
    described = {
        "schema": "service-order.result.v1",
        "content/type": "application/json",
        "digest": digest_of(data),
        "size/bytes": len(data),
        "bytes/base64": b64encode(data).decode(),
        **artifact,
    }
    return {"acceptor/id": "arca-results", "source/peer": ANNA.node, "artifact": described}


async def waiting(work: Work) -> asyncio.Future[Any]:
    """A step that has ordered, sent its request, and waits."""
    asked = task("request", target=ANNA.name, input={"text": "long"})
    work.open_attempts.add(Attempt("run1", "s1", "a1"))
    doing = asyncio.ensure_future(work.perform(asked))
    await asyncio.sleep(1)
    (execution,) = work.fake.executions.values()
    execution["request_id"] = REQUEST
    return doing


async def ended(work: Work, doing: asyncio.Future[Any]) -> Any:
    work.fake.end("released", output=1)
    return await doing


@virtually
async def test_a_result_for_a_step_that_waits_is_accepted_and_wakes_it() -> None:
    work = Work(offer())
    doing = await waiting(work)
    await asyncio.sleep(600)  # the step looks every five seconds by now
    before = work.clock.now()
    assert await work.results.accept(invoke(result())) == {"status": "accepted", "reason": ""}
    assert (await ended(work, doing)).status == "ok"
    assert work.clock.now() - before < 100, "virtual milliseconds"


@virtually
async def test_the_same_result_again_is_present_and_another_one_conflicts() -> None:
    work = Work(offer())
    doing = await waiting(work)
    first = invoke(result())
    (execution,) = work.fake.executions.values()
    execution["result"] = {"status": "completed", "digest": first["artifact"]["digest"]}
    assert (await work.results.accept(first))["status"] == "already-present"
    other = invoke(result(output={"summary": "another"}))
    assert await work.results.accept(other) == {
        "status": "rejected", "reason": "conflicting-result",
    }  # fmt: skip
    assert [one["reason"] for one in work.results.refused] == ["conflicting-result"]
    await ended(work, doing)
    assert (await work.results.accept(first))["status"] == "already-present", "also when closed"


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"request_id": "remote-execution:run1:s1:a2"}, "unknown-request"),
        ({"request_id": "remote-execution:run1:s9:a1"}, "unknown-request"),
        ({"request_id": "something"}, "unknown-request"),
        ({"workflow/phase-id": "s2"}, "unknown-request"),
        ({"workflow/run-id": "run2"}, "wrong-run"),
        ({"request_id": "remote-execution:run2:s1:a1"}, "wrong-run"),
    ],
)
@virtually
async def test_a_result_for_another_request_is_rejected_by_name(changes: Any, reason: str) -> None:
    work = Work(offer())
    doing = await waiting(work)
    said = await work.results.accept(invoke(result(**changes)))
    assert said == {"status": "rejected", "reason": reason}
    await asyncio.sleep(600)
    assert not doing.done()
    await ended(work, doing)


@virtually
async def test_a_result_for_a_request_that_was_never_sent_is_unknown() -> None:
    work = Work(offer())
    doing = await waiting(work)
    (execution,) = work.fake.executions.values()
    execution["request_id"] = None
    assert (await work.results.accept(invoke(result())))["reason"] == "unknown-request"
    await ended(work, doing)


@virtually
async def test_a_result_for_a_closed_step_or_an_earlier_attempt_is_step_already_closed() -> None:
    work = Work(offer())
    doing = await waiting(work)
    work.open_attempts = {Attempt("run1", "s1", "a2")}
    said = await work.results.accept(invoke(result()))
    assert said == {"status": "rejected", "reason": "step-already-closed"}
    work.open_attempts.clear()
    said = await work.results.accept(invoke(result()))
    assert said == {"status": "rejected", "reason": "step-already-closed"}
    await ended(work, doing)


@virtually
async def test_after_a_restart_a_result_is_accepted_before_its_step_waits_again() -> None:
    work = Work(offer())
    doing = await waiting(work)
    doing.cancel()
    await asyncio.wait([doing])
    assert work.results._waiting == {}
    assert (await work.results.accept(invoke(result())))["status"] == "accepted"


@virtually
async def test_a_host_that_cannot_be_asked_makes_the_result_come_again() -> None:
    work = Work(offer())
    doing = await waiting(work)
    work.fake.away = 1
    said = await work.results.accept(invoke(result()))
    assert said == {"status": "retryable", "reason": "host-unavailable"}
    path = "/v1/executions/execution%3Arun1-s1-a1"
    work.fake.refusals[path] = 403, "host_capability_forbidden"
    said = await work.results.accept(invoke(result()))
    assert said == {"status": "retryable", "reason": "host_capability_forbidden"}
    del work.fake.refusals[path]
    await ended(work, doing)


@pytest.mark.parametrize(
    "wrong",
    [
        {},
        {"artifact": None},
        invoke(result(), schema="something.v1"),
        invoke(b"no json"),
        invoke(b"[1]"),
        invoke(result(status="done")),
        invoke(result(output=None) | {"error": {"code": "x", "message": "y"}}),
        invoke(result(), **{"bytes/base64": "*"}),
        invoke(result(), **{"bytes/base64": 7}),
    ],
    ids=range(9),
)
@virtually
async def test_what_is_no_result_is_rejected_and_asks_nobody(wrong: Any) -> None:
    work = Work(offer())
    said = await work.results.accept(wrong)
    assert said["status"] == "rejected"
    assert said["reason"] in ("kind-not-supported", "envelope-invalid")
    assert work.fake.calls == []


@virtually
async def test_a_decision_shaped_object_inside_an_output_decides_nothing() -> None:
    work = Work(offer())
    doing = await waiting(work)
    envelope = {
        "schema": "arca-task-fulfillment-decision.v1",
        "fulfillment/status": "fulfilled",
        "reason": "I say so",
    }
    assert (await work.results.accept(invoke(result(output=envelope))))["status"] == "accepted"
    assert not doing.done()
    work.fake.end("released", output=envelope)
    answer = await doing
    assert answer.result == envelope, "it is an output like any other"
    assert answer.outcome == "ok"


@virtually
async def test_a_legacy_response_of_a_peer_is_dropped_with_a_diagnostic() -> None:
    work = Work(offer())
    doing = await waiting(work)
    handler = work.results.messages()[LEGACY]
    message = PeerMessage(LEGACY, result(), "c1", ANNA.node)
    said = await handler(message)
    assert (said["decision"], said["reason"]) == ("drop", "legacy-response")
    assert "is ignored" in said["diagnostics"][0]
    await asyncio.sleep(600)
    assert not doing.done()
    await ended(work, doing)


@virtually
async def test_refused_results_are_kept_for_people_and_not_without_bound() -> None:
    work = Work(offer())
    for number in range(300):
        await work.results.accept(invoke(result(request_id=f"x:{number}")))
    assert len(work.results.refused) == 200
    assert work.results.refused[-1]["request_id"] == "x:299"
    assert msgspec.json.encode(list(work.results.refused))
