"""How a hosted fan-out asks a participant, and what it takes for an answer."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

import pytest

from anabranch.work.participants.performers import UNREACHABLE, rfc3339
from virtual import run_virtually

from .support import ANNA, BERT, START, Work, holder, offer, task

DISPATCH = "/v1/host/capabilities/peer.message.dispatch"


def says(**answer: Any) -> Any:
    def reply(request: Mapping[str, Any]) -> dict[str, Any]:
        named = {"schema_version": "v1", "dispatch_id": request["dispatch_id"], **answer}
        return {"status": "responded", "payload": named}

    return reply


def fails(status: str, code: str = "", **more: Any) -> Any:
    error = {"error": {"code": code, "message": "it is so"}} if code else {}
    return lambda _request: {"status": status, **error, **more}


async def ask(work: Work, **inputs: Any) -> Any:
    return await work.perform(task("dispatch", target=ANNA.name, input={"text": "x"}, **inputs))


def made(reply: Any, *offers: Any) -> Work:
    work = Work(*offers)
    work.fake.nodes[ANNA.name] = [ANNA.node]
    work.fake.peers[ANNA.node] = reply
    return work


def test_a_request_has_everything_that_the_other_side_needs() -> None:
    async def scenario() -> None:
        work = made(says(status="offer", offer=offer()))
        answer = await ask(work, timeout_ms=30_000, filter={"region": "eu"})
        (body,) = [body for _, path, body in work.fake.calls if path == DISPATCH]
        request = body["payload"]
        assert body["msg"] == "workflow.fanout.request"
        assert body["correlation_id"] == request["dispatch_id"]
        assert body["correlation_id"].startswith("dispatch:")
        assert (body["execution_mode"], body["timeout_ms"]) == ("blocking", 30_000)
        assert request == {
            "schema_version": "v1", "dispatch_id": body["correlation_id"], "run_id": "run1",
            "step_id": "s1", "service_type": "text/summarise", "input": {"text": "x"},
            "filter": {"region": "eu"}, "respond_by": rfc3339(START + 30_000),
        }  # fmt: skip
        assert (answer.status, answer.outcome) == ("ok", "ok")
        assert answer.result["offer"] == offer()

    run_virtually(scenario())


def test_a_participant_is_asked_at_the_node_of_its_offers_first_then_at_the_others() -> None:
    async def scenario() -> None:
        work = made(fails("unreachable", "peer_unreachable"), offer(ANNA))
        work.fake.nodes[ANNA.name] = [BERT.node]
        work.fake.peers[BERT.node] = says(status="offer", offer=offer())
        assert (await ask(work)).result["status"] == "offer"
        asked = [body for _, path, body in work.fake.calls if path == DISPATCH]
        assert [one["destination"]["node_id"] for one in asked] == [ANNA.node, BERT.node]
        assert asked[0]["payload"] == asked[1]["payload"], "it is one request"

    run_virtually(scenario())


def test_a_participant_is_asked_at_the_node_of_the_search_before_anybody_is_asked_for_it() -> None:
    async def scenario() -> None:
        work = made(says(status="offer", offer=offer()))
        work.fake.holders["offer-catalog"] = [holder(ANNA)]
        searched = task("targets", resolve="capability", capability_id="offer-catalog")
        await work.perform(searched)
        work.fake.calls.clear()
        assert (await ask(work)).result["status"] == "offer"
        assert work.fake.paths() == [f"POST {DISPATCH}"]
        work.fake.nodes[ANNA.name] = [ANNA.node, BERT.node]
        work.fake.peers[BERT.node] = work.fake.peers.pop(ANNA.node)
        assert (await ask(work)).result["status"] == "offer", "the other nodes are looked up then"
        await asyncio.sleep(60)
        work.fake.calls.clear()
        assert (await ask(work)).result["status"] == "offer"
        assert "seed.directory.query" in work.fake.paths()[0], "a search is forgotten soon"

    run_virtually(scenario())


@pytest.mark.parametrize(
    ("reply", "code"),
    [
        (fails("unreachable", "peer_unreachable"), "peer_unreachable"),
        (fails("unreachable", "peer_backoff"), "peer_backoff"),
        (fails("dropped"), "held_back"),
        (fails("responded", payload={"status": "offer"}, answered_by="node:me"), "held_back"),
    ],
)
def test_whoever_is_not_reached_leaves_the_count(reply: Any, code: str) -> None:
    async def scenario() -> None:
        answer = await ask(made(reply))
        assert (answer.fault.kind, answer.fault.code) == (UNREACHABLE, code)
        assert not answer.fault.retryable

    run_virtually(scenario())


def test_a_participant_without_a_known_node_leaves_the_count() -> None:
    async def scenario() -> None:
        answer = await ask(Work())
        assert (answer.fault.kind, answer.fault.code) == (UNREACHABLE, "unknown_participant")

    run_virtually(scenario())


@pytest.mark.parametrize(
    ("reply", "code"),
    [
        (says(status="no_offer_available"), None),
        (says(status="error", error={"code": "x", "message": "y"}), "x"),
        (fails("error", "message_unknown"), "message_unknown"),
        (fails("responded", payload=["offer"]), "bad_reply"),
        (fails("responded", payload={"status": "offer", "dispatch_id": "dispatch:x"}),
         "wrong_dispatch"),
        (says(status="sure", offer=offer()), "bad_reply"),
        (says(status="offer"), "bad_reply"),
        (says(status="offer", offer={**offer(), "pricing/amount": 1}), "bad_reply"),
        (says(status="offer", offer=offer(BERT)), "bad_reply"),
        (says(status="offer", offer=offer(service__type="x/y")), "bad_reply"),
    ],
    ids=[
        "no offer", "an error", "a node without Arca", "no object", "another request",
        "an unknown status", "no offer inside", "a forged price", "the offer of another",
        "another service",
    ],
)  # fmt: skip
def test_a_no_and_nonsense_are_negative_answers(reply: Any, code: str | None) -> None:
    async def scenario() -> None:
        answer = await ask(made(reply), whole=True)
        assert (answer.status, answer.outcome) == ("ok", "negative")
        assert answer.result.get("error", {}).get("code") == code

    run_virtually(scenario())


@pytest.mark.parametrize("silence", ["no_response", "peer_timeout", "peer_busy"])
def test_whoever_is_silent_is_asked_again_as_the_same_request(silence: str) -> None:
    async def scenario() -> None:
        heard: list[Any] = []

        def later(request: Mapping[str, Any]) -> Any:
            heard.append(request)
            if len(heard) < 4:
                quiet = silence == "no_response"
                return fails(*(["no_response"] if quiet else ["unreachable", silence]))(request)
            return says(status="offer", offer=offer())(request)

        assert (await ask(made(later), timeout_ms=60_000)).result["status"] == "offer"
        assert len(heard) == 4
        assert all(one == heard[0] for one in heard)

    run_virtually(scenario())


def test_silence_is_no_answer_until_the_engine_ends_the_step() -> None:
    async def scenario() -> None:
        work = made(fails("no_response"))
        waiting = asyncio.ensure_future(ask(work, timeout_ms=10_000))
        await asyncio.sleep(10.5)
        assert not waiting.done(), "the engine tells when the time of the step is over"
        waiting.cancel()
        await asyncio.wait([waiting])
        work = made(fails("no_response"))
        answer = await ask(work)  # without a time limit
        assert answer.result["error"]["code"] == "no_response"
        assert work.clock.now() - START < 200_000

    run_virtually(scenario())


def test_a_host_that_is_away_is_asked_again() -> None:
    async def scenario() -> None:
        work = made(says(status="offer", offer=offer()))
        work.fake.away = 3
        assert (await ask(work)).result["status"] == "offer"
        work.fake.refusals[DISPATCH] = 403, "host_capability_forbidden"
        answer = await ask(work)
        assert (answer.fault.kind, answer.fault.code) == ("no_means", "host_capability_forbidden")

    run_virtually(scenario())
