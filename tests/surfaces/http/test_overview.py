"""The overview, searches and saved views over HTTP."""

from __future__ import annotations

from typing import Any

from .support import playbook, run, serving, step

ASK = playbook(step("ask", "decision", ask="Go on?"), name="asking")
BROKEN = playbook(
    step("pay", "python", code="raise ValueError('the bank is closed')"), name="broken"
)


def test_runs_are_found_by_words_page_by_page_and_say_their_reason() -> None:
    async def scenario() -> None:
        async with serving() as client:
            bad = await client.start(BROKEN)
            await client.ended(bad)
            asked = [await client.start(ASK, labels={"order": str(n)}) for n in range(3)]
            for name in asked:
                await client.stands(name)
            found = (await client.get("/runs?search=BANK+closed")).json
            assert [one["run"] for one in found["items"]] == [bad]
            assert "the bank is closed" in found["items"][0]["reason"]
            seen, cursor = [], ""
            for _ in range(5):
                page = (await client.get(f"/runs?search=order%3D&limit=1{cursor}")).json
                seen += [one["run"] for one in page["items"]]
                if page["next"] is None:
                    break
                cursor = f"&cursor={page['next']}"
            assert seen == asked[::-1]
            assert (await client.get("/runs?search=%25")).json["items"] == []

    run(scenario())


def test_a_search_or_window_that_cannot_be_is_refused() -> None:
    async def scenario() -> None:
        async with serving() as client:
            for path in (
                "/runs?search=" + "x" * 7000,
                "/runs?search=a%00b",
                "/runs?status=happy",
                "/overview?window=2h",
                "/overview?windows=1h",
            ):
                assert (await client.get(path)).status in (400, 422), path

    run(scenario())


def test_the_overview_counts_runs_over_time_and_by_definition() -> None:
    async def scenario() -> None:
        async with serving() as client:
            await client.ended(await client.start(BROKEN))
            asked = await client.start(ASK)
            await client.stands(asked)
            found: dict[str, Any] = (await client.get("/overview?window=1h")).json
            assert (found["runs"]["runs"], found["runs"]["failed"]) == (2, 1)
            assert found["runs"]["failure_rate"] == 1.0
            assert len(found["slots"]) == 60
            assert sum(sum(slot["statuses"].values()) for slot in found["slots"]) == 2
            rows = {one["name"]: one for one in found["definitions"]}
            assert rows["broken"]["p95_ms"] >= 0
            assert rows["asking"]["p50_ms"] is None
            assert found["unfinished"] == {"waiting": 1}
            assert [one["run"] for one in found["oldest"]] == [asked]
            assert found["oldest"][0]["reason"].startswith("ask waits for a decision")
            assert found["health"]["live"] is True

    run(scenario())


def test_a_view_is_saved_listed_replaced_and_deleted() -> None:
    async def scenario() -> None:
        async with serving() as client:

            async def put(name: str, query: str) -> int:
                return (await client.ask("PUT", f"/views/{name}", json={"query": query})).status

            assert await put("broken", "?status=failed&before=1.x&search=bank") == 200
            assert await put("broken", "status=failed") == 200
            (view,) = (await client.get("/views")).json["items"]
            assert (view["name"], view["query"]) == ("broken", "status=failed")
            for name, query in (
                ("none", "before=1.x"),
                ("n" * 61, "status=failed"),
                ("long", "search=" + "x" * 3000),
                ("search", "search=" + "x" * 300),
            ):
                assert await put(name, query) == 422, name
            assert (await client.ask("DELETE", "/views/other")).status == 404
            assert (await client.ask("DELETE", "/views/broken")).status == 200
            assert (await client.get("/views")).json["items"] == []

    run(scenario())
