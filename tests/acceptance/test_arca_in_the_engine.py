"""The same in the real engine: functions as participants, SQLite, `kill -9` and people."""

from __future__ import annotations

import asyncio
import json
import time
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

import anabranch
from anabranch.errors import Refused
from hangs import HANG_SECONDS
from surfaces.cli.support import Terminal, beginning

from .arca_stage import ask, step, workflow


def offers(price: int) -> Any:
    def answer(request: dict[str, Any]) -> dict[str, Any]:
        return {"price": price, "for": request["input"].get("text", "")}

    return answer


def away(_request: Any) -> Any:
    raise ConnectionError("nobody is there")


def refuses(_request: Any) -> Any:
    return {"status": "no_offer_available"}


def breaks(_request: Any) -> Any:
    raise ValueError("broken")


BOOK = {
    "participants": {
        "p1": {"function": offers(9), "service_types": ["text/summarise"], "price": 9},
        "p2": {"function": offers(4), "service_types": ["text/summarise"], "price": 4},
        "away": away,
        "refuses": refuses,
        "breaks": breaks,
    },
    "capabilities": {"verify": lambda request: {"ok": request["input"]["price"] < 5}},
}
EVERYBODY = ("p1", "p2", "away", "refuses", "breaks")


def run(*steps: Any, **root: Any) -> anabranch.RunResult:
    document = json.dumps(workflow(*steps, **root))
    return anabranch.run(document, {"text": "hello"}, participants=BOOK)


def test_best_of_over_functions() -> None:
    one = ask(
        *EVERYBODY, policy="best_of", score_field="/price", score_order="asc",
        timing={"timeout": "PT10S"}, input={"text": "{{input.text}}"},
    )  # fmt: skip
    result = run(one)
    assert (result.status, result.result) == ("completed", {"price": 4, "for": "hello"})


def test_all_over_functions_has_the_negative_ones_and_not_those_who_are_away() -> None:
    result = run(ask(*EVERYBODY, policy="all"))
    codes = [(r.get("status"), r.get("error", {}).get("code")) for r in result.result["responses"]]
    assert codes == [(None, None), (None, None), ("no_offer_available", None), ("error", "raised")]


def test_an_ordinary_step_chooses_the_cheapest_provider_and_a_source_judges_it() -> None:
    source = {
        "kind": "capability",
        "capability_id": "verify",
        "input": {"price": {"from": "/steps/s/output/price"}},
    }
    match = {"path": "/ok", "fulfilled_values": [True], "not_fulfilled_values": [False]}
    rule = {"policy": "external_decision", "decision_source": source, "result_match": match}
    result = run(step(fulfillment=rule))
    assert (result.status, result.result["price"]) == ("completed", 4)


def test_nobody_reachable_fails_at_once() -> None:
    result = run(ask("away", "somebody-unknown", timing={"timeout": "PT1H"}))
    assert result.status == "failed"
    assert result.problem is not None
    assert result.problem["code"] == "no_reachable_targets"


def test_a_timeout_stops_waiting_for_those_who_are_silent() -> None:
    async def silent(_request: Any) -> Any:
        await asyncio.Event().wait()

    one = ask("silent", "p1", policy="all", timing={"timeout": "PT0.2S"})
    book = {"participants": {"silent": silent, "p1": offers(1)}}
    result = anabranch.run(json.dumps(workflow(one)), participants=book)
    assert result.status == "step_timeout"


def test_only_declared_actors_decide_and_deciding_twice_changes_nothing(tmp_path: Path) -> None:
    source = {"kind": "requester", "actors": ["ann"]}
    rule = {"policy": "requester_confirmation", "decision_source": source}
    two = [ask("p1", step_id=name, fulfillment=rule) for name in ("s", "t")]
    document = json.dumps(workflow(*two))

    async def whole() -> None:
        async with anabranch.Engine(tmp_path / "a.db", participants=BOOK) as engine:
            run_id = await engine.start(document)
            assert (await engine.wait(run_id, standing=True)).status == "waiting"
            with pytest.raises(Refused, match="may be decided by ann"):
                await engine.decide(run_id, "s", "fulfil", actor="mallory")
            assert engine.read.snapshot(run_id)["status"] == "paused"
            await engine.decide(run_id, "s", "fulfil", actor="ann", evidence={"seen": 1})
            revision = engine.read.snapshot(run_id)["revision"]
            await engine.decide(run_id, "s", "fulfil", actor="ann")
            assert engine.read.snapshot(run_id)["revision"] == revision
            await engine.decide(run_id, "t", "fulfil", actor="ann")
            assert (await engine.wait(run_id)).status == "completed"
            snapshot = engine.read.snapshot(run_id)
            assert snapshot["steps"][0]["task"]["decided_by"] == "ann"

    asyncio.run(whole())


def test_large_outputs_are_whole_in_the_snapshot_and_so_is_their_digest(tmp_path: Path) -> None:
    large = {"text": "x" * 200_000}
    book = {"participants": {"p1": lambda _request: large}}

    async def whole() -> dict[str, Any]:
        async with anabranch.Engine(tmp_path / "a.db", participants=book) as engine:
            run_id = await engine.start(json.dumps(workflow(ask("p1"))))
            await engine.wait(run_id)
            return engine.read.snapshot(run_id)

    there = asyncio.run(whole())["steps"][0]
    assert there["output"] == large
    small = anabranch.run(json.dumps(workflow(ask("p1"))), participants=book)
    assert small.result == large
    assert there["output_digest"].startswith("sha256:")


# -- kill -9 -------------------------------------------------------------------------------------

PARTIES = """
import time
from pathlib import Path

def quick(request):
    with open("asked.txt", "a") as file:
        file.write("quick " + request["dispatch_id"] + "\\n")
    return {"by": "quick"}

def slow(request):
    with open("asked.txt", "a") as file:
        file.write("slow " + request["dispatch_id"] + "\\n")
    while not Path("go").exists():
        time.sleep(0.02)
    return {"by": "slow"}
"""
NAMES = [f"quick{number}" for number in range(5)] + ["slow"]


def asked(terminal: Terminal) -> Counter[str]:
    file = terminal.folder / "asked.txt"
    return Counter(file.read_text().splitlines()) if file.exists() else Counter()


def until(condition: Any) -> None:
    end = time.monotonic() + HANG_SECONDS
    while not condition():
        assert time.monotonic() < end, "it did not come to that"
        time.sleep(0.02)


def test_a_run_that_awaits_answers_survives_kill_nine_and_asks_nobody_twice_who_answered(
    terminal: Terminal,
) -> None:
    terminal.write("parties.py", PARTIES)
    book = {name: {"function": f"parties:{name.rstrip('01234')}"} for name in NAMES}
    terminal.write("book.json", json.dumps({"participants": book}))
    terminal.write("all.json", json.dumps(workflow(ask(*NAMES, policy="all"))))
    more = ("--participants", "book.json")
    with beginning(terminal, "run", "all.json", "--run-id", "r", *more) as process:
        until(lambda: len(asked(terminal)) == 6)
        until(lambda: _answered(terminal) == 5)
        process.kill()
        process.wait()
    before = {record["dispatch_id"] for record in _records(terminal)}
    assert len(before) == 6
    (terminal.folder / "go").touch()
    done = terminal.run("resume", "r", *more, "--json")
    assert done.code == 0, done
    assert done.json["result"] == {
        "responses": [{"by": "quick"}] * 5 + [{"by": "slow"}],
    }
    times = asked(terminal)
    assert {who: count for who, count in times.items() if who.startswith("quick")} == {
        who: 1 for who in times if who.startswith("quick")
    }
    (slow,) = [who for who in times if who.startswith("slow")]
    assert times[slow] == 2, "who had not answered is asked again, by the same id"
    assert {record["dispatch_id"] for record in _records(terminal)} == before


def _answered(terminal: Terminal) -> int:
    return sum(record["status"] == "responded" for record in _records(terminal))


def _records(terminal: Terminal) -> list[dict[str, Any]]:
    done = terminal.run("dispatches", "r", "--json")
    assert done.code == 0, done
    return [json.loads(line)["record"] for line in done.out.splitlines()]
