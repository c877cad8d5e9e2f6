"""What the command line can do and the API can, too: spelling, drawing, purging, old sessions."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import yaml

from anabranch.operations.access.tokens import SCOPES

from .access import serving as guarded
from .support import ASKING, FAILING, HELLO, Client, run, serving

OLD = """workflow:
- step: start  # kept
  next: [{step: end}]
- {step: end, tool: {kind: noop}}
"""


# -- spelling and drawing --------------------------------------------------------------------------


def test_a_playbook_is_respelled_and_nothing_is_kept() -> None:
    async def go() -> None:
        async with serving() as client:
            told = (await client.post("/definitions/format", {"definition": OLD})).json
            assert told["changed"] is True
            assert "# kept" in told["definition"]
            again = {"definition": told["definition"]}
            settled = (await client.post("/definitions/format", again)).json
            assert settled == {"definition": told["definition"], "changed": False}
            asked = {"definition": json.dumps(yaml.safe_load(OLD)), "file": "old.json"}
            as_json = (await client.post("/definitions/format", asked)).json["definition"]
            assert as_json.startswith("{\n")
            for wrong in ("", "x", "[", "{a: workflow}"):
                reply = await client.post("/definitions/format", {"definition": wrong})
                assert (reply.status, reply.code) == (422, "definition"), wrong
                assert reply.json["problems"][0]["line"] >= 1
            assert (await client.get("/definitions")).json["items"] == []

    run(go())


def test_a_definition_that_is_sent_along_is_drawn() -> None:
    async def go() -> None:
        async with serving() as client:
            body = {"definition": HELLO}
            told = (await client.post("/definitions/graph?format=dot", body)).json
            assert told["format"] == "dot"
            assert "greet" in told["graph"]
            raw = await client.post("/definitions/graph?format=svg&raw=true", body)
            assert raw.headers["Content-Type"].startswith("image/svg+xml")
            assert "sandbox" in raw.headers["Content-Security-Policy"]
            reply = await client.post("/definitions/graph", {"definition": "workflow: ["})
            assert (reply.status, reply.code) == (422, "definition")
            assert (await client.post("/definitions/graph?format=png", body)).code == "parameter"
            assert (await client.get("/definitions")).json["items"] == []

    run(go())


def test_the_name_of_a_file_names_problems_and_what_has_no_name_and_is_never_read() -> None:
    async def go() -> None:
        async with serving() as client:
            body = {"definition": "workflow: [", "file": "order.yaml"}
            told = (await client.post("/definitions/check", body)).json
            assert {one["file"] for one in told["problems"]} == {"order.yaml"}
            nameless = {"workflow": [{"step": "a", "tool": {"kind": "noop"}}]}
            started = await client.start(nameless, file="order.v2.json")
            assert (await client.get(f"/runs/{started}")).json["name"] == "order.v2"
            for wrong in ("", "/etc/passwd", "../a.yaml", "a\\b", "a\nb", "x" * 201):
                for path in ("/definitions/check", "/definitions/format", "/definitions/graph",
                             "/definitions", "/runs"):  # fmt: skip
                    reply = await client.post(path, {"definition": OLD, "file": wrong})
                    assert (reply.status, reply.code) == (422, "usage"), (path, wrong)

    run(go())


# -- purging ---------------------------------------------------------------------------------------


async def ended(client: Client, definition: Any, **more: Any) -> str:
    """A run that has ended, at the latest a millisecond ago."""
    started = await client.start(definition, **more)
    await client.ended(started)
    head = client.parts.store.head(started)
    assert head is not None
    while client.parts.engine.clock.now() <= head.updated_at:
        await asyncio.sleep(0.001)
    return started


async def names(client: Client) -> list[str]:
    return sorted(one["name"] for one in (await client.get("/runs")).json["items"])


def test_a_purge_deletes_what_the_filter_finds_and_a_dry_run_nothing() -> None:
    async def go() -> None:
        async with serving() as client:
            await ended(client, HELLO, labels={"tenant": "a"})
            await ended(client, HELLO, labels={"tenant": "b"})
            await ended(client, FAILING)
            waiting = await client.start(ASKING)
            await client.stands(waiting)

            async def purge(**body: Any) -> Any:
                reply = await client.post("/runs/purge", {"older_than": "0s", **body})
                assert reply.status == 200, reply.text
                return reply.json

            told = await purge(dry_run=True)
            assert (told["runs"], told["dry_run"], told["next"]) == (3, True, None)
            assert (await purge(older_than="1d"))["runs"] == 0
            for filtered, count in (
                ({"labels": {"tenant": "a"}}, 1),
                ({"name": "hello"}, 2),
                ({"status": ["failed"]}, 1),
                ({"dialect": "arca"}, 0),
                ({"prefix": waiting}, 0),
            ):
                assert (await purge(filter=filtered, dry_run=True))["runs"] == count, filtered
            assert len(await names(client)) == 4
            assert (await purge(filter={"labels": {"tenant": "a"}}))["runs"] == 1
            assert await names(client) == ["asking", "failing", "hello"]
            assert (await purge())["runs"] == 2
            assert await names(client) == ["asking"]

    run(go())


def test_a_purge_goes_on_where_its_last_page_ended() -> None:
    async def go() -> None:
        async with serving() as client:
            for _ in range(5):
                await ended(client, HELLO)
            for dry_run in (True, False):
                body: dict[str, Any] = {"older_than": "0s", "limit": 2, "dry_run": dry_run}
                counts = []
                while True:
                    told = (await client.post("/runs/purge", body)).json
                    counts.append(told["runs"])
                    if told["next"] is None:
                        break
                    body["cursor"] = told["next"]
                assert counts == [2, 2, 1]
            assert await names(client) == []

    run(go())


def test_a_purge_that_is_not_understood_deletes_nothing() -> None:
    async def go() -> None:
        async with serving() as client:
            await ended(client, HELLO)
            for body, status, code in (
                ({"older_than": "soon"}, 422, "usage"),
                ({"older_than": ""}, 422, "usage"),
                ({"older_than": "0s", "limit": 0}, 422, "usage"),
                ({"older_than": "0s", "limit": 1001}, 422, "usage"),
                ({"older_than": "0s", "cursor": "x"}, 400, "parameter"),
                ({"older_than": "0s", "filter": {"ended_before": 1}}, 422, "schema"),
                ({"older_than": 0}, 422, "schema"),
            ):
                reply = await client.post("/runs/purge", body)
                assert (reply.status, reply.code) == (status, code), body
            assert await names(client) == ["hello"]

    run(go())


# -- sessions --------------------------------------------------------------------------------------

SESSION = {"id": "one", "structure": {"A1": {"rule": "cm:xrc137:A"}}}
RULES = {"A": {"payload": {"n": {"type": "int64"}}, "rules": ["[n] > 0"]}}


def test_sessions_come_in_pages_newest_first() -> None:
    async def go() -> None:
        async with serving() as client:
            begun = [await ended(client, SESSION, rules=RULES, input={"n": n}) for n in (1, 2, 3)]
            found, query = [], "limit=2"
            while True:
                page = (await client.get(f"/sessions?{query}")).json
                found.append([row["sessionId"] for row in page["items"]])
                if page["next"] is None:
                    break
                query = f"limit=2&cursor={page['next']}"
            assert [len(some) for some in found] == [2, 1]
            assert sorted(found[0] + found[1]) == sorted(begun)
            assert (await client.get("/sessions?cursor=x")).code == "parameter"

    run(go())


# -- who may, and who did --------------------------------------------------------------------------

TEMPLATE = {"template_id": "t.v1", "plan": {"steps": [{"step_id": "a", "service_type": "x"}]}}
CHANGES: tuple[tuple[str, Any, str, str, str], ...] = (
    ("/templates", {"template": TEMPLATE}, "operate", "templates.create", "t.v1"),
    ("/runs", {"template": "t.v1", "run": "mine"}, "operate", "runs.create", "mine"),
    ("/runs/purge", {"older_than": "0s"}, "admin", "runs.purge", ""),
)


def test_every_change_is_written_down_with_who_asked_and_refusals_too(tmp_path: Path) -> None:
    book = tmp_path / "book.yaml"
    book.write_text("participants: {}")

    async def go() -> None:
        async with guarded(require_tokens="yes", participants=str(book)) as door:
            tokens = {scope: door.token(scope, name=f"{scope}-er") for scope in SCOPES}
            for path, body, scope, action, subject in CHANGES:
                refused = await door.ask("POST", path, tokens["decide"], body)
                assert (refused.status, refused.code) == (403, "scope")
                done = await door.ask("POST", path, tokens[scope], body)
                assert done.status < 300, done.json
                found = await door.ask("GET", f"/audit?action={action}", tokens["admin"])
                written = [(one["actor"], one["outcome"]) for one in found.json["items"]]
                assert written == [(f"{scope}-er", "done"), ("decide-er", "refused: scope")]
                assert found.json["items"][0]["subject"] == subject
            trial = {"older_than": "0s", "dry_run": True}
            assert (await door.ask("POST", "/runs/purge", tokens["admin"], trial)).status == 200
            found = await door.ask("GET", "/audit?action=runs.purge.dry_run", tokens["admin"])
            assert [one["actor"] for one in found.json["items"]] == ["admin-er"]

    run(go())


def test_looking_needs_read_and_is_not_written_down() -> None:
    looks: tuple[tuple[str, str, Any], ...] = (
        ("POST", "/definitions/format", {"definition": OLD}),
        ("POST", "/definitions/graph", {"definition": HELLO}),
        ("POST", "/templates/t.v1/definition", {}),
        ("GET", "/templates/t.v1", None),
        ("GET", "/templates/t.v1/versions", None),
        ("GET", "/templates", None),
    )

    async def go() -> None:
        async with guarded(require_tokens="yes") as door:
            admin, read, work = (door.token(scope) for scope in ("admin", "read", "work"))
            await door.ask("POST", "/templates", admin, {"template": TEMPLATE})
            for method, path, body in looks:
                assert (await door.ask(method, path, work, body)).code == "scope"
                assert (await door.ask(method, path, read, body)).status == 200, path
            kept = (await door.ask("GET", "/audit", admin)).json["items"]
            assert [one["action"] for one in kept] == ["templates.create"]

    run(go())
