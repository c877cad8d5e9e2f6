"""`targets`, `dispatch`, `request` and `capability`: what each makes of a reply, and of none."""

from __future__ import annotations

import json
import resource
from typing import Any

import pytest

import anabranch
from anabranch import Engine
from anabranch.clock import ManualClock
from anabranch.errors import ExpressionError, InputError
from anabranch.kernel.values import Answer
from anabranch.settings import Settings
from anabranch.work.participants.book import Book
from anabranch.work.participants.http import connections_max
from anabranch.work.participants.performers import (
    CapabilityPerformer,
    DispatchPerformer,
    RequestPerformer,
    TargetsPerformer,
)
from anabranch.work.participants.port import NotKnown, ParticipantQuery, is_negative
from anabranch.work.port import Task

from ..support import fault_of, perform, run, task
from .loopback_participants import asked as run_asked
from .loopback_participants import party, reply, says, sends, solicit

NOW = 1_770_000_000_000


def asked(kind: Any, reply: Any, **inputs: Any) -> tuple[Answer, list[dict[str, Any]]]:
    """What the kind of work answers when the participant (or capability) replies so."""
    seen: list[dict[str, Any]] = []

    def answer(request: Any) -> Any:
        seen.append(dict(request))
        if isinstance(reply, Exception):
            raise reply
        return reply

    async def once() -> Answer:
        book = Book({"participants": {"ann": answer}, "capabilities": {"check": answer}})
        given = {"target": "ann", "capability_id": "check", "step_id": "s", "input": {"a": 1}}
        name = kind.__name__.removesuffix("Performer").lower()
        try:
            return await perform(kind(book, ManualClock(NOW)), task(name, **{**given, **inputs}))
        finally:
            await book.close()

    return run(once()), seen


def test_the_request_says_who_asks_for_what_and_until_when() -> None:
    _, (body,) = asked(DispatchPerformer, 1, service_type="x", filter={"a": 1}, timeout_ms=1500)
    assert body["dispatch_id"].startswith("dispatch:")
    assert {**body, "dispatch_id": ""} == {
        "schema_version": "v1",
        "dispatch_id": "",
        "run_id": "run-1",
        "step_id": "s",
        "service_type": "x",
        "input": {"a": 1},
        "filter": {"a": 1},
        "respond_by": "2026-02-02T02:40:01.500Z",
        "capability_id": "check",
    }


@pytest.mark.parametrize(
    "reply",
    [None, {"status": "no_offer_available"}, {"status": "ERROR"}, {"error": {"code": "x"}}],
)
def test_a_no_is_an_answer_to_a_dispatch_and_a_failure_of_a_request(reply: Any) -> None:
    assert is_negative(reply)
    answer, _ = asked(DispatchPerformer, reply)
    assert (answer.status, answer.outcome, answer.result) == ("ok", "negative", reply)
    fault = fault_of(asked(RequestPerformer, reply)[0])
    assert (fault.kind, fault.retryable, fault.details) == ("refused", True, reply)


@pytest.mark.parametrize("reply", [0, "", [], {}, False, {"status": "offer"}, {"error": None}])
def test_everything_else_is_an_answer(reply: Any) -> None:
    for kind in (DispatchPerformer, RequestPerformer):
        answer, _ = asked(kind, reply)
        assert (answer.status, answer.outcome, answer.result) == ("ok", "ok", reply)


def test_nobody_there_may_be_there_at_the_next_try_but_a_stranger_will_not() -> None:
    """One of many is not tried again by itself: the next round asks everybody."""
    for kind, again in ((DispatchPerformer, False), (RequestPerformer, True)):
        away = fault_of(asked(kind, ConnectionError("gone"))[0])
        assert (away.kind, away.retryable) == ("unreachable", again)
        stranger = fault_of(asked(kind, 1, target="anne")[0])
        assert (stranger.kind, stranger.retryable) == ("unreachable", False)
        assert "did you mean 'ann'?" in stranger.message


def test_an_ordinary_step_tries_again_when_nobody_is_there() -> None:
    tries: list[int] = []

    def answer(_request: Any) -> Any:
        tries.append(1)
        if len(tries) < 3:
            raise ConnectionError("not yet")
        return {"done": True}

    step = {
        "step_id": "s", "service_type": "x", "max_retries": 3, "retry_delay_ms": 1,
        "target": {"resolve": "static", "participants": ["ann"]},
    }  # fmt: skip
    text = json.dumps({"workflow_id": "w", "plan": {"steps": [step]}}, indent=1)
    result = anabranch.run(text, participants={"participants": {"ann": answer}})
    assert (result.status, result.result, len(tries)) == ("completed", {"done": True}, 3)


@pytest.mark.parametrize(
    ("reply", "kind"),
    [(ConnectionError("x"), "connection"), (ValueError("x"), "bad_reply"), ({1}, "bad_reply")],
)
def test_a_decision_source_that_does_not_decide_is_a_failure(reply: Any, kind: str) -> None:
    assert fault_of(asked(CapabilityPerformer, reply)[0]).kind == kind


def test_a_decision_source_is_not_judged_here() -> None:
    answer, _ = asked(CapabilityPerformer, {"status": "rejected"})
    assert (answer.status, answer.result) == ("ok", {"status": "rejected"})
    missing = fault_of(asked(CapabilityPerformer, 1, capability_id="chekc")[0])
    assert missing.kind == "config"
    assert "did you mean 'check'?" in missing.message


class Says:
    def __init__(self, said: Any) -> None:
        self._said = said

    def find(self, _query: ParticipantQuery) -> list[str]:
        if isinstance(self._said, Exception):
            raise self._said
        found: list[str] = self._said
        return found

    def why_nobody(self, _query: ParticipantQuery) -> str:
        return "nobody is known"


@pytest.mark.parametrize(
    ("said", "kind", "retryable"),
    [
        (NotKnown("later"), "directory", True),
        (InputError("wrong"), "config", False),
        (ExpressionError("no path"), "config", False),
    ],
)
def test_a_search_that_cannot_be_made_says_whether_it_can_be_later(
    said: Exception, kind: str, retryable: bool
) -> None:
    fault = fault_of(TargetsPerformer(Says(said)).perform_now(task(resolve="capability")))
    assert (fault.kind, fault.retryable) == (kind, retryable)


def test_a_search_that_is_none_is_refused() -> None:
    for inputs in ({}, {"resolve": 1}, {"resolve": "capability", "limit": "x"}):
        job: Task = task(**inputs)
        assert fault_of(TargetsPerformer(Says([])).perform_now(job)).kind == "config"


def test_more_targets_than_a_ref_would_hide_are_all_asked() -> None:
    """Their names come to more than `inline_bytes_max`."""
    names = [f"participant-with-a-rather-long-name-{'x' * 40}-{n}" for n in range(1200)]
    people = {name: {"function": lambda _r: 1, "service_types": ["x"]} for name in names}
    step = {
        "step_id": "s", "target": {"resolve": "task_type", "task_type": "x"},
        "fan_in": {"policy": "all"}, "timing": {"timeout": "PT30S"},
    }  # fmt: skip
    text = json.dumps({"workflow_id": "w", "plan": {"steps": [step]}}, indent=1)
    result = anabranch.run(text, participants={"participants": people})
    assert result.status == "completed"
    assert len(result.result["responses"]) == 1200


def test_connections_leave_descriptors_for_the_rest(monkeypatch: pytest.MonkeyPatch) -> None:
    for soft, most in ((1024, 896), (20, 16), (resource.RLIM_INFINITY, 0)):
        monkeypatch.setattr(resource, "getrlimit", lambda _what, soft=soft: (soft, soft))
        assert connections_max() == most


def test_more_participants_than_connections_are_all_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("anabranch.work.participants.http.connections_max", lambda: 3)
    with party(**{f"p{n}": says({"n": n}) for n in range(30)}) as server:
        result, _ = run(run_asked(server.book(), solicit([*server.book()], "all", "PT20S")))
    assert len(result.result["responses"]) == 30


def test_an_error_status_of_a_decision_source_is_no_verdict() -> None:
    """It is asked again, and `on_error` says what follows; to a dispatch the same is a no."""
    error = reply('{"ok": false}', status="503 Service Unavailable")

    async def ask(kind: Any, url: str) -> Answer:
        book = Book(
            {"participants": {"ann": {"url": url}}, "capabilities": {"check": {"url": url}}}
        )
        try:
            work = task("any", target="ann", capability_id="check", step_id="s", input={})
            return await perform(kind(book, ManualClock(NOW)), work)
        finally:
            await book.close()

    with party(check=sends(error)) as server:
        judged = fault_of(run(ask(CapabilityPerformer, server.url("check"))))
        assert (judged.kind, judged.code, judged.retryable) == ("bad_reply", "http_503", True)
        assert run(ask(DispatchPerformer, server.url("check"))).outcome == "negative"


def test_a_redrive_asks_under_the_key_of_the_first_run() -> None:
    """Its dispatch is a new one, and says so."""
    with party(ann=says({"status": "error"})) as server:

        async def scenario() -> None:
            book = {"participants": server.book()}
            async with Engine(participants=book, settings=Settings(store=":memory:")) as engine:
                origin = await engine.start(solicit(["ann"]))
                assert (await engine.wait(origin)).status == "failed"
                for _ in range(2):
                    await engine.wait(await engine.redrive(origin, again=True))

        run(scenario())
        keys = [visit.headers["idempotency-key"] for visit in server.visits]
        bodies = [visit.body for visit in server.visits]
    assert len(keys) == 3
    assert set(keys) == {bodies[0]["dispatch_id"]}
    assert len({body["dispatch_id"] for body in bodies}) == 3
    assert [body.get("idempotency_key") for body in bodies] == [None, *keys[1:]]
