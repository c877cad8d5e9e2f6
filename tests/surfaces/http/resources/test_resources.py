"""Definitions, loops, gates, sessions and payloads over HTTP."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest

from anabranch.operations.read import references

from ...tables import wrong_answers
from ..support import ASKING, HELLO, gated, looping, playbook, run, serving, step

EXAMPLES = Path(__file__).parents[4] / "examples"

# -- definitions -----------------------------------------------------------------------------------


def test_a_definition_is_checked_without_being_kept() -> None:
    async def go() -> None:
        async with serving() as client:
            good = (await client.post("/definitions/check", {"definition": HELLO})).json
            assert (good["ok"], good["name"], good["dialect"]) == (True, "hello", "noetl")
            yaml = (EXAMPLES / "fan_out.yaml").read_text()
            assert (await client.post("/definitions/check", {"definition": yaml})).json["ok"]
            wrong = playbook(step("a", "noop", "nowhere"))
            bad = (await client.post("/definitions/check", {"definition": wrong})).json
            assert (bad["ok"], bad["fingerprint"]) == (False, None)
            problem = bad["problems"][0]
            assert problem["severity"] == "error"
            assert "nowhere" in problem["message"]
            assert problem["line"] >= 1
            assert (await client.get("/definitions")).json["items"] == []

    run(go())


def test_a_published_definition_is_listed_shown_and_drawn() -> None:
    async def go() -> None:
        async with serving() as client:
            first = await client.post("/definitions", {"definition": HELLO})
            assert (first.status, first.json["new"]) == (201, True)
            again = await client.post("/definitions", {"definition": HELLO})
            assert (again.status, again.json["new"]) == (201, False)
            fingerprint = first.json["fingerprint"]
            assert first.headers["Location"] == f"/api/v1/definitions/{fingerprint}"
            shown = (await client.get(f"/definitions/{fingerprint}")).json
            assert json.loads(shown["source"]) == HELLO
            drawn = (await client.get(f"/definitions/{fingerprint}/graph")).json
            assert drawn["graph"].startswith("flowchart")
            raw = await client.get(f"/definitions/{fingerprint}/graph?raw=true&format=dot")
            assert raw.headers["Content-Type"].startswith("text/plain")

    run(go())


def test_versions_of_a_definition_are_listed_newest_first_in_pages(tmp_path: Path) -> None:
    async def go() -> None:
        async with serving(tmp_path / "a.db") as client:
            made = []
            for number in range(5):
                version = playbook(step("one", result=number), name="priced")
                reply = await client.post("/definitions", {"definition": version})
                made.append(reply.json["fingerprint"])
                await asyncio.sleep(0.002)  # two of one millisecond have no order in time
            await client.post("/definitions", {"definition": HELLO})
            seen: list[str] = []
            cursor: str | None = ""
            while cursor is not None:
                page = (await client.get(f"/definitions?name=priced&limit=2&cursor={cursor}")).json
                seen += [item["fingerprint"] for item in page["items"]]
                cursor = page["next"]
            assert seen == made[::-1]
            assert len((await client.get("/definitions?dialect=noetl")).json["items"]) == 6

    run(go())


def test_a_definition_is_never_taken_for_a_path() -> None:
    async def go() -> None:
        async with serving() as client:

            async def check(path: str) -> None:
                for where in ("/definitions", "/runs"):
                    reply = await client.post(where, {"definition": path})
                    assert (reply.status, reply.code) == (422, "definition")
                    assert reply.json["problems"][0]["file"] == "<text>"
                listed = await client.post("/definitions/check", {"definition": path})
                assert not listed.json["ok"]
                assert "root:" not in listed.text

            assert (
                await wrong_answers(
                    ["/etc/passwd", "../secrets.yaml", "examples/hello.yaml", "-"], check
                )
                == []
            )

    run(go())


# -- loops -----------------------------------------------------------------------------------------


def test_items_of_a_loop_come_in_pages_by_state_and_by_error() -> None:
    async def go() -> None:
        async with serving() as client:
            name = await client.start(looping(40, max_in_flight=4))
            await client.ended(name)
            loops = (await client.get(f"/runs/{name}/loops")).json["items"]
            assert [(loop["step"], loop["succeeded"], loop["failed"]) for loop in loops] == [
                ("each", 36, 4)
            ]
            base = f"/runs/{name}/loops/each/items"
            seen: list[int] = []
            after: int | None = -1
            while after is not None:
                page = (await client.get(f"{base}?after={after}&limit=15")).json
                seen += [item["index"] for item in page["items"]]
                after = page["next"]
            assert seen == list(range(40))
            failed = (await client.get(f"{base}?state=failed")).json
            assert [item["index"] for item in failed["items"]] == [7, 17, 27, 37]
            kind = failed["items"][0]["error"]["kind"]
            assert failed["failures"] == {kind: 4}
            by_error = (await client.get(f"{base}?error={kind}&limit=2")).json
            assert [item["index"] for item in by_error["items"]] == [7, 17]
            assert by_error["next"] == 17
            none = (await client.get(f"{base}?error=other")).json
            assert none["items"] == []

    run(go())


def test_a_loop_under_way_gets_another_window_and_is_stopped() -> None:
    async def go() -> None:
        from anabranch.work.kinds.callables import Toolbox

        free, tools = asyncio.Event(), Toolbox()

        @tools.tool("fail_on_seven")
        async def held(n: int) -> int:
            await free.wait()
            return n

        async with serving(tools=tools) as client:
            name = await client.start(looping(500, max_in_flight=2))
            while not (await client.get(f"/runs/{name}/loops")).json["items"]:
                await asyncio.sleep(0.005)
            wider = await client.post(f"/runs/{name}/loops/each", {"window": 5})
            assert wider.status == 200, wider.text
            both = await client.post(f"/runs/{name}/loops/each", {"window": 5, "stop": True})
            assert (both.status, both.code) == (422, "usage")
            none = await client.post(f"/runs/{name}/loops/other", {"window": 5})
            assert none.status == 404, none.text
            stopped = await client.post(f"/runs/{name}/loops/each", {"stop": True, "reason": "x"})
            assert stopped.status == 200, stopped.text
            free.set()
            await client.ended(name)
            loop = (await client.get(f"/runs/{name}/loops")).json["items"][0]
            assert loop["succeeded"] < 500

    run(go())


# -- gates -----------------------------------------------------------------------------------------


def test_open_gates_of_all_runs_are_listed_newest_first_and_answered(tmp_path: Path) -> None:
    async def go() -> None:
        async with serving(tmp_path / "a.db") as client:
            await client.start(HELLO)
            names = []
            for number in range(5):
                names.append(await client.start(ASKING, labels={"n": str(number)}))
                await client.stands(names[-1])
                await asyncio.sleep(0.002)
            held = await client.start(gated())
            await client.stands(held)
            page = (await client.get("/approvals?limit=4")).json
            assert [item["run"] for item in page["items"]] == [held, *names[:1:-1]]
            rest = (await client.get(f"/approvals?limit=4&cursor={page['next']}")).json
            assert [item["run"] for item in rest["items"]] == [names[1], names[0]]
            assert rest["next"] is None
            first, asked = page["items"][0], page["items"][1]
            assert (first["kind"], asked["kind"]) == ("admission", "decision")
            assert (asked["ask"], asked["step"], asked["labels"]) == ("Go on?", "ask", {"n": "4"})
            body = {"verdict": "fulfil", "reason": "seen", "evidence": {"ticket": 7}}
            path = f"/runs/{asked['run']}/gates/{asked['gate']}/decide"
            said = await client.post(path, body, headers={"X-Actor": "ada"})
            assert said.status == 200, said.text
            assert await client.ended(asked["run"]) == "completed"
            twice = await client.post(path, body)
            assert twice.status == 409
            left = (await client.get("/approvals")).json["items"]
            assert asked["run"] not in [item["run"] for item in left]
            assert len(left) == 5
            events = (await client.get(f"/runs/{asked['run']}/events")).json["items"]
            decided = next(one["fields"] for one in events if one["kind"] == "gate.decided")
            assert (decided["actor"], decided["evidence"]) == ("ada", {"ticket": 7})

    run(go())


def test_gates_that_were_open_before_the_server_came_are_listed(tmp_path: Path) -> None:
    async def go() -> None:
        async with serving(tmp_path / "a.db") as client:
            name = await client.start(ASKING)
            await client.stands(name)
        async with serving(tmp_path / "a.db") as client:
            assert [one["run"] for one in (await client.get("/approvals")).json["items"]] == [name]
            await client.post(f"/runs/{name}/cancel")
            await client.ended(name)
            assert (await client.get("/approvals")).json["items"] == []

    run(go())


def test_only_the_actors_of_a_gate_may_answer_it() -> None:
    async def go() -> None:
        asking = playbook(step("ask", "decision", ask="Pay?", actors=["ada", "bob"]))
        async with serving() as client:
            name = await client.start(asking)
            await client.stands(name)
            assert len((await client.get("/approvals?actor=ada")).json["items"]) == 1
            assert (await client.get("/approvals?actor=eve")).json["items"] == []
            body = {"verdict": "fulfil"}
            path = f"/runs/{name}/gates/ask/decide"
            eve = await client.post(path, body, headers={"X-Actor": "eve"})
            assert (eve.status, eve.code) == (403, "not_allowed")
            assert "X-Actor" in eve.json["hint"]
            ada = await client.post(path, body, headers={"X-Actor": "ada"})
            assert ada.status == 200

    run(go())


def test_a_gate_that_is_asked_again_shows_what_was_answered_before() -> None:
    async def go() -> None:
        asking = playbook(step("ask", "decision", ask="Pay?", on_reject="pause"))
        async with serving() as client:
            name = await client.start(asking)
            await client.stands(name)
            body = {"verdict": "reject", "reason": "too dear", "evidence": {"offer": 3}}
            said = await client.post(f"/runs/{name}/gates/ask/decide", body)
            assert said.json["status"] == "paused"
            (item,) = (await client.get("/approvals")).json["items"]
            (before,) = item["answered"]
            assert (before["verdict"], before["reason"], before["evidence"]) == (
                "reject",
                "too dear",
                {"offer": 3},
            )

    run(go())


# -- sessions --------------------------------------------------------------------------------------


def test_an_orchestration_is_begun_with_its_rules_and_read_as_a_session() -> None:
    async def go() -> None:
        folder = EXAMPLES / "orchestration"
        document = json.loads((folder / "second_opinion.json").read_text())
        names = ("ORDER", "WEIGHT", "STOCK", "CREDIT", "APPROVE", "REFUSE")
        rules = {
            name: json.loads((folder / "rules" / f"{name}.json").read_text()) for name in names
        }
        async with serving() as client:
            given = {"definition": document, "rules": rules, "labels": {"owner": "0x" + "a" * 40}}
            begun = await client.post("/runs", given)
            assert begun.status == 201, begun.text
            name = begun.json["run"]
            await client.ended(name)
            processes = (await client.get(f"/runs/{name}/processes")).json["items"]
            assert {(row["sessionId"], row["run"]) for row in processes} == {("1", name)}
            receipts = (await client.get(f"/runs/{name}/receipts")).json["items"]
            assert {row["stepId"] for row in receipts} <= set(names)
            one = (await client.get(f"/runs/{name}/receipts?step=ORDER")).json["items"]
            assert [row["stepId"] for row in one] == ["ORDER"]
            assert (await client.get(f"/runs/{name}/receipts?iteration=1")).json["items"] == one
            listed = (await client.get("/sessions?owner=0x" + "a" * 40)).json["items"]
            assert listed == processes
            assert (await client.get("/sessions?owner=nobody")).json["items"] == []
            gas = await client.post("/sessions/gas", {"rule": rules["ORDER"]})
            assert gas.json["totalWorstCase"] >= gas.json["common"]

    run(go())


def test_a_waiting_process_is_woken_by_number_and_by_step() -> None:
    async def go() -> None:
        rules = {"A": {"payload": {}, "onValid": {"waitSec": 3600}}, "B": {"payload": {}}}
        structure = {
            "A": {"rule": "cm:xrc137:A", "onValid": {"spawns": ["B"]}},
            "B": {"rule": "cm:xrc137:B"},
        }
        async with serving() as client:
            begun = await client.post(
                "/runs", {"definition": {"id": "w", "structure": structure}, "rules": rules}
            )
            name = begun.json["run"]
            for _ in range(400):
                rows = (await client.get(f"/runs/{name}/processes")).json["items"]
                if [row["step"] for row in rows if row["status"] == "waiting"] == ["B"]:
                    break
                await asyncio.sleep(0.01)
            neither = await client.post(f"/runs/{name}/wake", {})
            assert (neither.status, neither.code) == (422, "usage")
            woken = await client.post(f"/runs/{name}/wake", {"step": "B"})
            assert woken.json == {"run": name, "woken": 1}
            assert await client.ended(name) == "completed"
            late = await client.post(f"/runs/{name}/wake", {"step": "B"})
            assert late.json == {"run": name, "woken": 0}, "sessions are counted"
            other = await client.start(gated())
            refused = await client.post(f"/runs/{other}/wake", {"process": 1})
            assert (refused.status, refused.code) == (409, "not_sleeping"), "other runs are not"

    run(go())


# -- payloads --------------------------------------------------------------------------------------


def test_a_large_result_is_found_by_its_hash() -> None:
    async def go() -> None:
        from anabranch.work.kinds.callables import Toolbox

        tools = Toolbox()

        @tools.tool("large")
        async def large() -> list[int]:
            return list(range(40_000))

        async with serving(tools=tools) as client:
            name = await client.start(playbook(step("a", "large")))
            await client.ended(name)
            events = (await client.get(f"/runs/{name}/events")).json["items"]
            report = next(one for one in events if one["kind"] == "job.reported")
            ref = report["fields"]["answer"]["result"]["_ref"]["ref"]
            reply = await client.get(f"/payloads/{ref.removeprefix('anabranch:sha256:')}")
            assert reply.json == list(range(40_000))
            assert "immutable" in reply.headers["Cache-Control"]
            assert (await client.get(f"/payloads/{'0' * 64}")).code == "not_found"
            assert (await client.get("/payloads/zz")).code == "payload_hash"

    run(go())


# -- references ------------------------------------------------------------------------------------


def test_what_the_summary_of_a_final_step_refers_to_can_be_read() -> None:
    async def go() -> None:
        each = step("each", loop={"in": [1, 2, 3], "iterator": "n"}, result="{{ iter.n * 2 }}")
        each["next"] = {"arcs": [{"step": "end"}]}
        first = step("first", "noop", "each", result={"beds": 4})
        end = step("end", result={"results": "{{ args.results }}", "loops": "{{ args.loops }}"})
        text = playbook(first, each, end, executor={"spec": {"final_step": "end"}})
        async with serving() as client:
            name = await client.start(text)
            await client.ended(name)
            told = (await client.get(f"/runs/{name}")).json["result"]
            got = (await client.get(f"/results?ref={told['results']['first']}")).json
            assert got == {"ref": told["results"]["first"], "value": {"beds": 4}}
            newest = (await client.get("/results?ref=anabranch:run:last/step/first")).json
            assert newest == got
            page = (await client.get(f"/results?ref={told['loops']['each']}&limit=2")).json
            assert (page["value"], page["total"], page["next"]) == ([2, 4], 3, 2)
            rest = (await client.get(f"/results?ref={told['loops']['each']}&offset=2")).json
            assert (rest["value"], rest.get("next")) == ([6], None)

    run(go())


def test_a_page_of_results_ends_where_its_bytes_end(monkeypatch: pytest.MonkeyPatch) -> None:
    most = 10_000
    monkeypatch.setattr(references, "PAGE_BYTES", most)
    sizes = [10] * 40 + [3000] * 20 + [50_000] + [10] * 30  # small ones first: those that mislead

    async def go() -> None:
        loop = {"in": sizes, "iterator": "n"}
        each = step("each", "noop", "end", loop=loop, result="{{ 'x' * iter.n }}")
        end = step("end", result="{{ args.loops.each }}")
        text = playbook(each, end, executor={"spec": {"final_step": "end"}})
        async with serving() as client:
            name = await client.start(text)
            await client.ended(name)
            ref = (await client.get(f"/runs/{name}")).json["result"]
            found: list[int] = []
            while True:
                path = f"/results?ref={ref}&limit=10000&offset={len(found)}"
                reply = await client.get(path)
                assert reply.status == 200, reply.text
                page = reply.json
                assert page["value"]
                assert len(reply.text) < most + 1000 or len(page["value"]) == 1
                found += map(len, page["value"])
                if "next" not in page:
                    break
                assert page["next"] == len(found)
            assert found == sizes

    run(go())


def test_a_reference_that_leads_nowhere_says_why() -> None:
    async def go() -> None:
        async with serving() as client:

            async def check(ref: str, status: int, words: str) -> None:
                name = await client.start(HELLO)
                await client.ended(name)
                reply = await client.get(f"/results?ref={ref.replace('NAME', name)}")
                assert reply.status == status, reply.text
                assert words.replace("NAME", name) in reply.text

            assert (
                await wrong_answers(
                    [
                        ("anabranch:run:NAME/step/nowhere", 404, "these have one: greet"),
                        ("anabranch:run:nobody/step/greet", 404, "there is no run 'nobody'"),
                        ("anabranch:run:NAME/loop/l9", 404, "no loop NAME/l9"),
                        ("anabranch:run:NAME/loop/x", 422, "is not the ref of a loop"),
                        ("somewhere", 422, "is no reference: write anabranch:run:RUN/step"),
                        ("anabranch:sha256:" + "0" * 64, 410, "payload"),
                        ("", 400, "missing"),
                    ],
                    check,
                )
                == []
            )

    run(go())
