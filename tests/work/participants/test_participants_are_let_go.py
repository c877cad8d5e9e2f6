"""When enough is known the others are let go: at once, really, and without effect."""

from __future__ import annotations

import asyncio
import time
from typing import Any

from ..support import run
from .loopback_participants import (
    Behaviour,
    Visit,
    asked,
    closed_port,
    engine,
    never,
    party,
    reply,
    says,
    sends,
    solicit,
)

SOON = 1.0  # seconds; the benchmark B8 measures it on a machine that is at rest
HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 99\r\n\r\n"


def after(seconds: float, body: str) -> Behaviour:
    async def answer(writer: asyncio.StreamWriter, _visit: Visit) -> None:
        await asyncio.sleep(seconds)
        writer.write(reply(body))

    return answer


def test_the_first_answer_closes_the_connections_to_all_others() -> None:
    others: dict[str, Behaviour] = {f"slow{n}": never for n in range(20)}
    others |= {"hanging": sends(HEAD, end=False), "dripping": sends(HEAD, *[b" "] * 99, pause=0.1)}
    with party(first=after(0.3, '{"price": 1}'), **others) as server:
        result, dispatches = run(
            asked(server.book(), solicit([*others, "first"], "any_one", "PT60S"))
        )
        assert server.wait(server.all_closed, SOON)
        answered = server.seen("first")[0].asked_at + 0.3
        assert max(visit.closed_at for visit in server.visits) - answered < SOON
        assert len(server.visits) == len(others) + 1, "nobody was asked twice"
    assert result.result == {"price": 1}
    assert {dispatches[name].record.status for name in others} == {"cancelled"}


def test_a_deadline_of_the_run_closes_every_connection() -> None:
    with party(a=never, b=never) as server:
        definition = solicit(["a", "b"], "all", "PT60S").replace(
            '"plan"', '"deadline": "PT0.4S", "plan"'
        )
        result, dispatches = run(asked(server.book(), definition))
        assert server.wait(server.all_closed, SOON)
    assert result.status == "deadline_exceeded"
    assert {each.record.status for each in dispatches.values()} == {"cancelled"}


def test_an_answer_after_the_policy_is_met_or_the_time_is_up_changes_nothing() -> None:
    """A callable cannot be torn from its work: it answers although nobody waits."""
    gone_on = []

    async def stubborn(request: Any) -> Any:
        try:
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            gone_on.append(request["dispatch_id"])
        return {"price": 0}

    async def first(_request: Any) -> Any:
        await asyncio.sleep(0.05)
        return {"price": 9}

    people = {"stubborn": stubborn, "first": first}
    met, dispatches = run(asked(people, solicit([*people], "any_one", "PT30S")))
    assert met.result == {"price": 9}
    late = dispatches["stubborn"]
    assert (late.record.status, late.record.response, late.selected) == ("cancelled", None, False)
    timed, dispatches = run(asked(people, solicit([*people], "best_of", "PT0.3S")))
    assert timed.result == {"price": 9}
    assert dispatches["stubborn"].record.status == "timeout"
    assert len(gone_on) == 2


def test_the_answer_to_an_earlier_try_is_not_taken_for_the_answer_to_the_next() -> None:
    seen: list[str] = []

    def confused(request: Any) -> Any:
        seen.append(request["dispatch_id"])
        if len(seen) == 1:
            return {"status": "error"}
        return {"price": 1, "dispatch_id": seen[0]}

    more = {"timing": {"retry": {"max_attempts": 1, "backoff": "PT0S"}}}
    result, dispatches = run(asked({"x": confused}, solicit(["x"], "any_one", "PT5S", **more)))
    assert len(set(seen)) == 2, "each round is a request of its own"
    assert result.status == "failed"
    assert dispatches["x"].record.response["error"]["code"] == "wrong_dispatch"


def test_explain_names_who_answered_who_is_out_and_who_was_lost_and_why() -> None:
    async def look() -> tuple[str, list[dict[str, Any]]]:
        names = ["mute", "good", "broken", "away"]
        people = server.book() | {"away": {"url": f"http://127.0.0.1:{closed_port()}/"}}
        async with engine({"participants": people}) as opened:
            one = await opened.start(solicit(names, "best_of", "PT20S"))
            settled = 0
            async for record in opened.events(one):
                settled += record.kind in ("gather.delivered", "gather.slot_lost")
                if settled == 3:
                    break
            told = opened.read.explain(one)["waiting"]
            await opened.cancel(one)
            return one, told

    with party(mute=never, good=says({"price": 1}), broken=sends(reply("{", kind=""))) as server:
        _, told = run(look())
    (fan,) = [each for each in told if each["what"] == "gather"]
    for words in (
        "1 of 4 in (good)",
        "2 lost",
        "broken: negative: wrong_content_type",
        "away: unreachable",
        "1 open (mute)",
    ):
        assert words in fan["waits_for"], (words, fan)
    (job,) = [each for each in told if each["what"] == "job"]
    assert job["waits_for"] == "the answer of mute (attempt 1)"
    assert list(job["movers"]) == ["mute"]
    assert job["since"] <= time.time() * 1000
    assert fan["until"] > fan["since"]
