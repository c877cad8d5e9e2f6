"""Runs over HTTP: begun once, listed in pages, shown, explained and told what to do."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from ..support import ASKING, FAILING, HELLO, gated, playbook, run, serving, step


def test_a_run_is_begun_shown_and_drawn() -> None:
    async def go() -> None:
        async with serving() as client:
            begun = await client.post("/runs", {"definition": HELLO, "labels": {"tenant": "north"}})
            assert begun.status == 201
            name = begun.json["run"]
            assert begun.headers["Location"] == f"/api/v1/runs/{name}"
            assert await client.ended(name) == "completed"
            shown = (await client.get(f"/runs/{name}")).json
            assert (shown["status"], shown["result"], shown["labels"]) == (
                "completed",
                "hello",
                {"tenant": "north"},
            )
            assert shown["created"].startswith("20")
            assert (await client.get("/runs/last")).json["run"] == name
            explained = (await client.get(f"/runs/{name}/explain")).json
            assert (explained["status"], explained["waiting"]) == ("completed", [])
            drawn = (await client.get(f"/runs/{name}/graph?format=dot")).json
            assert drawn["format"] == "dot"
            assert "greet" in drawn["graph"]
            svg = await client.get(f"/runs/{name}/graph?format=svg&raw=true")
            assert svg.headers["Content-Type"].startswith("image/svg+xml")
            assert "sandbox" in svg.headers["Content-Security-Policy"]

    run(go())


def test_input_that_a_definition_has_no_use_for_is_refused_unless_allowed() -> None:
    text = {**HELLO, "workload": {"items": 1}}

    async def go() -> None:
        async with serving() as client:
            body = {"definition": text, "input": {"itemz": 2}}
            refused = await client.post("/runs", body)
            assert (refused.status, refused.code) == (422, "unknown_input")
            assert "did you mean 'items'" in refused.json["detail"]
            assert (await client.post("/runs", body | {"allow_extra_input": True})).status == 201

    run(go())


def test_a_run_can_be_begun_from_a_definition_that_is_kept() -> None:
    async def go() -> None:
        async with serving() as client:
            published = await client.post("/definitions", {"definition": HELLO})
            fingerprint = published.json["fingerprint"]
            begun = await client.post("/runs", {"fingerprint": fingerprint, "run": "mine"})
            assert begun.json["run"] == "mine"
            assert await client.ended("mine") == "completed"
            again = await client.post("/runs", {"fingerprint": fingerprint, "run": "mine"})
            assert (again.status, again.code) == (409, "run_exists")
            missing = await client.post("/runs", {"fingerprint": "0" * 64})
            assert (missing.status, missing.code) == (404, "not_found")

    run(go())


# -- once ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kept", ["memory", "file"])
def test_a_start_that_is_sent_twice_begins_one_run(kept: str, tmp_path: Path) -> None:
    async def go() -> None:
        async with serving(":memory:" if kept == "memory" else tmp_path / "a.db") as client:
            headers = {"Idempotency-Key": "order 7"}
            body = {"definition": HELLO, "input": {"a": 1}}
            first = await client.post("/runs", body, headers=headers)
            second = await client.post("/runs", body, headers=headers)
            assert (first.status, second.status) == (201, 201)
            assert first.json == second.json
            assert "Idempotency-Replayed" not in first.headers
            assert second.headers["Idempotency-Replayed"] == "true"
            assert second.headers["Location"] == first.headers["Location"]
            other = await client.post("/runs", {**body, "input": {"a": 2}}, headers=headers)
            assert (other.status, other.code) == (409, "idempotency")
            somebody = await client.post("/runs", body, headers={**headers, "X-Actor": "ada"})
            assert somebody.json["run"] != first.json["run"]
            assert len((await client.get("/runs")).json["items"]) == 2

    run(go())


def test_the_same_start_sent_at_the_same_time_begins_one_run(tmp_path: Path) -> None:
    async def go() -> None:
        import asyncio

        async with serving(tmp_path / "a.db") as client:
            body, headers = {"definition": HELLO}, {"Idempotency-Key": "k"}
            sent = [client.post("/runs", body, headers=headers) for _ in range(20)]
            replies = await asyncio.gather(*sent)
            assert {reply.status for reply in replies} == {201}
            assert len({reply.json["run"] for reply in replies}) == 1
            assert len((await client.get("/runs")).json["items"]) == 1

    run(go())


def test_a_server_that_stopped_in_the_middle_of_a_start_begins_no_second_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The run is durable, the answer is not: the next server finds the run by the key."""
    from anabranch.store.sqlite.store import SqliteStore

    body, headers = {"definition": HELLO}, {"Idempotency-Key": "k"}

    async def go() -> None:
        with monkeypatch.context() as patched:
            patched.setattr(SqliteStore, "keep_answer", lambda *_given: False)
            async with serving(tmp_path / "a.db") as client:
                first = await client.post("/runs", body, headers=headers)
        async with serving(tmp_path / "a.db") as client:
            second = await client.post("/runs", body, headers=headers)
            assert second.json["run"] == first.json["run"]
            third = await client.post("/runs", body, headers=headers)
            assert third.headers["Idempotency-Replayed"] == "true"
            assert len((await client.get("/runs")).json["items"]) == 1

    run(go())


def test_a_start_that_was_refused_leaves_its_key_free() -> None:
    async def go() -> None:
        async with serving() as client:
            headers = {"Idempotency-Key": "k"}
            wrong = await client.post("/runs", {"definition": "nothing"}, headers=headers)
            assert (wrong.status, wrong.code) == (422, "definition")
            right = await client.post("/runs", {"definition": HELLO}, headers=headers)
            assert right.status == 201
            empty = await client.post(
                "/runs", {"definition": HELLO}, headers={"Idempotency-Key": ""}
            )
            assert (empty.status, empty.code) == (400, "idempotency_key")

    run(go())


def test_a_patch_with_a_key_is_written_once() -> None:
    async def go() -> None:
        async with serving() as client:
            name = await client.start(gated())
            await client.stands(name)
            headers = {"Idempotency-Key": "p"}
            body = {"values": {"seen": ["a"]}, "reducer": "append"}
            for _ in range(3):
                reply = await client.post(f"/runs/{name}/patch", body, headers=headers)
                assert reply.status == 200, reply.text
            assert (await client.get(f"/runs/{name}")).json["context"]["seen"] == [["a"]]

    run(go())


# -- lists -----------------------------------------------------------------------------------------


async def _listed(client: Any, query: str) -> list[str]:
    reply = await client.get(f"/runs?{query}")
    assert reply.status == 200, reply.text
    return [item["run"] for item in reply.json["items"]]


def test_runs_are_listed_by_status_name_label_language_and_time() -> None:
    async def go() -> None:
        async with serving() as client:
            await client.start(HELLO, run="a", labels={"tenant": "north", "tier": "1"})
            await client.start(ASKING, run="b", labels={"tenant": "north"})
            await client.start(HELLO, run="c", labels={"tenant": "south=1"})
            await client.ended("a")
            await client.ended("c")
            await client.stands("b")
            for query, expected in {
                "": "cba",
                "status=completed": "ca",
                "status=waiting": "b",
                "status=waiting&status=completed": "cba",
                "name=hello": "ca",
                "dialect=noetl": "cba",
                "dialect=xrc729": "",
                "label=tenant%3Dnorth": "ba",
                "label=tenant%3Dnorth&label=tier%3D1": "a",
                "label=tenant%3Dsouth%3D1": "c",
                "prefix=b": "b",
                "created_after=0": "cba",
                "created_before=1": "",
                f"created_after={2**53}": "",
            }.items():
                assert "".join(sorted(await _listed(client, query), reverse=True)) == expected

    run(go())


def test_pages_hold_every_run_once_also_when_runs_are_added_meanwhile(tmp_path: Path) -> None:
    async def go() -> None:
        async with serving(tmp_path / "a.db") as client:
            names = [await client.start(HELLO) for _ in range(7)]
            seen: list[str] = []
            cursor = ""
            while True:
                page = (await client.get(f"/runs?limit=3&cursor={cursor}")).json
                seen += [item["run"] for item in page["items"]]
                await client.start(HELLO)
                if page["next"] is None:
                    break
                cursor = page["next"]
            assert sorted(seen) == sorted(names)

    run(go())


# -- telling ---------------------------------------------------------------------------------------


def test_a_run_is_paused_resumed_patched_and_cancelled() -> None:
    async def go() -> None:
        async with serving() as client:
            name = await client.start(gated())
            await client.stands(name)
            explained = (await client.get(f"/runs/{name}/explain")).json
            assert "admission" in explained["waiting"][0]["waits_for"]
            paused = await client.post(f"/runs/{name}/pause", {"reason": "lunch"})
            assert paused.json == {"run": name, "status": "paused"}
            twice = await client.post(f"/runs/{name}/pause")
            assert (twice.status, twice.code) == (409, "already_paused")
            assert (await client.post(f"/runs/{name}/resume")).json["status"] == "waiting"
            resumed = await client.post(f"/runs/{name}/resume")
            assert (resumed.status, resumed.code) == (409, "not_paused")
            done = await client.post(f"/runs/{name}/patch", {"values": {"go": True}})
            assert done.status == 200
            assert await client.ended(name) == "completed"
            late = await client.post(f"/runs/{name}/cancel")
            assert (late.status, late.code) == (409, "run_finished")
            other = await client.start(gated())
            assert (await client.post(f"/runs/{other}/cancel", {"reason": "no"})).status == 200
            assert await client.ended(other) == "cancelled"
            events = (await client.get(f"/runs/{other}/events")).json["items"]
            ending = next(one for one in events if one["kind"] == "run.ending")
            assert ending["fields"]["reason"] == "no"

    run(go())


def test_who_asks_is_recorded() -> None:
    async def go() -> None:
        async with serving() as client:
            name = await client.start(gated())
            await client.post(f"/runs/{name}/pause", headers={"X-Actor": "ada"})
            events = (await client.get(f"/runs/{name}/events")).json["items"]
            assert [e["fields"]["actor"] for e in events if e["kind"] == "run.paused"] == ["ada"]

    run(go())


def test_a_failed_run_is_redriven_once_per_key() -> None:
    async def go() -> None:
        async with serving() as client:
            name = await client.start(FAILING)
            assert await client.ended(name) == "failed"
            headers = {"Idempotency-Key": "again"}
            first = await client.post(f"/runs/{name}/redrive", headers=headers)
            second = await client.post(f"/runs/{name}/redrive", headers=headers)
            assert first.status == 201
            assert first.json == second.json
            assert first.json["origin"] == name
            shown = (await client.get(f"/runs/{first.json['run']}")).json
            assert shown["origin"] == name
            waiting = await client.start(ASKING)
            early = await client.post(f"/runs/{waiting}/redrive")
            assert (early.status, early.code) == (409, "not_finished")

    run(go())


def test_a_run_that_was_redriven_says_so_and_is_redriven_again_only_on_demand() -> None:
    async def go() -> None:
        async with serving() as client:
            name = await client.start(FAILING)
            assert await client.ended(name) == "failed"
            assert (await client.get(f"/runs/{name}")).json["redriven_by"] == []
            both = await asyncio.gather(
                *(client.post(f"/runs/{name}/redrive", {}) for _ in range(2))
            )
            assert sorted(answer.status for answer in both) == [201, 409]
            refused = max(both, key=lambda answer: answer.status)
            assert refused.code == "redriven"
            begun = min(both, key=lambda answer: answer.status).json["run"]
            again = await client.post(f"/runs/{name}/redrive", {"again": True})
            assert again.status == 201
            expected = [again.json["run"], begun]
            assert (await client.get(f"/runs/{name}")).json["redriven_by"] == expected
            assert (await client.get(f"/runs/{name}/redrive")).json["redriven_by"] == expected
            (card,) = (await client.get("/runs?redriven=true")).json["items"]
            assert (card["run"], card["redriven_by"]) == (name, expected)
            others = (await client.get("/runs?redriven=false")).json["items"]
            assert [card["run"] for card in others] == expected
            assert not any(card["redriven_by"] for card in others)
            for one in expected:
                await client.ended(one)
            wanted = {"verb": "redrive", "filter": {"status": ["failed"]}, "dry_run": True}
            told = (await client.post("/bulk", wanted)).json
            assert {item["run"] for item in told["items"]} == set(expected)
            overview = (await client.get("/overview")).json
            assert (overview["runs"]["failed"], overview["need_attention"]) == (3, 2)

    run(go())


def test_what_a_redrive_would_do_is_told_before_anything_is_begun() -> None:
    async def go() -> None:
        async with serving() as client:
            name = await client.start(FAILING)
            assert await client.ended(name) == "failed"
            plan = (await client.get(f"/runs/{name}/redrive")).json
            assert plan["run"] == name
            assert [one["how"] for one in plan["again"]][:1] == ["failed"]
            assert {one["step"] for one in plan["again"]}.isdisjoint(plan["reused"])
            assert len((await client.get("/runs")).json["items"]) == 1
            waiting = await client.start(ASKING)
            early = await client.get(f"/runs/{waiting}/redrive")
            assert (early.status, early.code) == (409, "not_finished")

    run(go())


def test_joins_are_shown_when_they_are_settled() -> None:
    async def go() -> None:
        both = {"spec": {"mode": "inclusive"}, "arcs": [{"step": "north"}, {"step": "south"}]}
        ways = [step("north", "noop", "meet"), step("south", "noop", "meet")]
        meet = step("meet", spec={"join": "all"})
        async with serving() as client:
            name = await client.start(playbook({"step": "begin", "next": both}, *ways, meet))
            assert await client.ended(name) == "completed"
            joins = (await client.get(f"/runs/{name}/joins")).json
            (gathered,) = joins.pop("gathered")
            assert joins == {
                "items": [
                    {
                        "target": "meet",
                        "verdict": "closed",
                        "selected": ["north", "south"],
                        "late": 0,
                    }
                ],
                "open": [],
                "dropped": 0,
                "gathers_dropped": 0,
            }
            assert (gathered["step"], gathered["kind"], gathered["rule"], gathered["state"]) == (
                *("meet", "barrier", "all that come", "closed"),
            )
            (only,) = gathered["rounds"]
            assert [(one["label"], one["outcome"]["word"]) for one in only["slots"]] == [
                ("north", "counted"),
                ("south", "counted"),
            ]

    run(go())


def test_an_open_join_says_who_delivered_and_who_can_still_come() -> None:
    async def go() -> None:
        both = {"spec": {"mode": "inclusive"}, "arcs": [{"step": "north"}, {"step": "south"}]}
        ways = [step("north", "noop", "meet"), step("south", "decision", "meet", ask="Go on?")]
        meet = step("meet", spec={"join": "all"})
        async with serving() as client:
            name = await client.start(playbook({"step": "begin", "next": both}, *ways, meet))
            await client.stands(name)
            joins = (await client.get(f"/runs/{name}/joins")).json
            (gathered,) = joins["gathered"]
            (only,) = gathered["rounds"]
            assert (gathered["state"], only["have"], only["need"]) == ("open", 1, 2)
            assert {one["label"]: one["outcome"] for one in only["slots"]} == {
                "north": {"word": "in", "text": ""},
                "south": {"word": "late", "text": "can still come: at south"},
            }

    run(go())
