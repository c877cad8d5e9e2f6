"""The audit trail: every change, by whom, also a refused one. Made from the tables of routes."""

from __future__ import annotations

import re
from typing import Any

from anabranch.store.access_ports import AuditEntry, AuditFilter
from anabranch.surfaces.http.app import ALL_ROUTES
from anabranch.surfaces.http.routes import Route
from anabranch.surfaces.ui import routes

from ...tables import wrong_answers
from ..access import START, Door, serving
from ..support import run
from .test_access_ends import signed_in
from .test_access_table import UNCHANGING, application, filled, pages

NEEDED: Any = {"require_tokens": "yes"}
CHANGING = [one for one in ALL_ROUTES if one.method != "GET" and one.scope not in ("read", "open")]


def lines(door: Door) -> list[AuditEntry]:
    return door.server.parts.store.audit(AuditFilter(limit=1000))


async def audit_log(door: Door, token: str = "", **query: str) -> list[tuple[str, ...]]:
    asked = "&".join(f"{key}={value}" for key, value in query.items())
    page = await door.ask("GET", f"/audit?{asked}", token)
    return [(e["actor"], e["action"], e["subject"], e["outcome"]) for e in page.json["items"]]


def test_there_are_changes_to_look_at() -> None:
    assert len(CHANGING) > 20


def test_every_route_that_changes_something_leaves_a_line() -> None:
    async def go() -> None:
        async with serving(**NEEDED) as door:
            eve = door.token("read", name="eve")
            anns = {one.scope: door.token(one.scope, name="ann") for one in CHANGING}

            async def check(route: Route) -> None:
                ann, before = anns[route.scope], len(lines(door))
                given = dict(route.example or {})
                given.pop("wait_seconds", None)
                await door.ask(route.method, filled(route.path), eve, body=given)
                refused, *rest = lines(door)
                assert len(rest) == before
                assert (refused.actor, refused.outcome) == ("eve", "refused: scope")
                await door.ask(route.method, filled(route.path), ann, body=given)
                line, *rest = lines(door)
                assert len(rest) == before + 1
                assert (line.actor, line.address) == ("ann", "127.0.0.1")
                assert line.action.split(".")[0] == refused.action.split(".")[0]
                assert line.detail == f"token {ann.split('_')[1]}"
                assert line.outcome == "done" or line.outcome.startswith("refused: ")
                assert re.fullmatch(r"[a-z_]+(\.[a-z_]+)+", line.action), line.action

            assert await wrong_answers(CHANGING, check) == []

    run(go())


def test_every_form_that_changes_something_leaves_a_line() -> None:
    async def go() -> None:
        async with serving(pages=True, **NEEDED) as door:
            cookie, secret = await signed_in(door, door.token("admin", name="ann"))
            for one in pages(application(door)):
                if one[0] == "GET" or one in UNCHANGING:
                    continue
                before = len(lines(door))
                way = filled(one[1])[1:].replace("/do/verb", "/do/cancel")
                async with door.session.post(
                    door.server.url + way, data={"csrf": secret}, headers=cookie,
                    allow_redirects=False,
                ) as reply:  # fmt: skip
                    assert reply.status in (303, 404, 409, 422, 200), (one, reply.status)
                line, *rest = lines(door)
                assert len(rest) == before, one
                wanted = routes.ACTIONS[one].format(verb="cancel")
                assert (line.actor, line.action) == ("ann", wanted), one

    run(go())


def test_signing_in_and_out_is_written_down() -> None:
    async def go() -> None:
        async with serving(pages=True, **NEEDED) as door:
            cookie, secret = await signed_in(door, door.token("read", name="ann"))
            await door.session.post(
                f"{door.server.url}/logout", data={"csrf": secret}, headers=cookie,
                allow_redirects=False,
            )  # fmt: skip
            told = [(line.actor, line.action, line.address) for line in lines(door)]
            assert told == [
                ("ann", "visits.end", "127.0.0.1"),
                ("ann", "visits.begin", "127.0.0.1"),
            ]

    run(go())


def test_every_change_leaves_a_line_with_its_actor_also_a_refused_one() -> None:
    async def go() -> None:
        async with serving(**NEEDED) as door:
            admin, ann = door.token("admin", name="root"), door.token("operate", name="ann")
            begun = await door.ask("POST", "/runs", ann, START)
            run_id = begun.json["run"]
            await door.ask("POST", f"/runs/{run_id}/pause", ann, {})
            await door.ask("POST", f"/runs/{run_id}/pause", ann, {})
            await door.ask("POST", f"/runs/{run_id}/gates/ask/decide", ann, {"verdict": "fulfil"})
            await door.ask("POST", "/runs/none/cancel", ann, {})
            await door.ask("POST", "/definitions/check", ann, START)  # changes nothing
            await door.ask("POST", "/runs", "", START)  # by nobody
            assert await audit_log(door, admin, actor="ann") == [
                ("ann", "runs.cancel", "none", "refused: not_found"),
                ("ann", "runs.gates.decide", run_id, "refused: scope"),
                ("ann", "runs.pause", run_id, "refused: already_paused"),
                ("ann", "runs.pause", run_id, "done"),
                ("ann", "runs.create", run_id, "done"),
            ]
            assert len(await audit_log(door, admin, subject=run_id)) == 4
            assert len(await audit_log(door, admin)) == 5

    run(go())


def test_a_verb_over_many_runs_says_which_verb_and_which_runs() -> None:
    async def go() -> None:
        async with serving() as door:
            await door.ask("POST", "/runs", body=START, X_Actor="ann")
            wanted = {"verb": "cancel", "filter": {"labels": {"tenant": "a"}}}
            await door.ask("POST", "/bulk", body={**wanted, "dry_run": True}, X_Actor="ann")
            await door.ask("POST", "/bulk", body=wanted, X_Actor="ann")
            done, tried, _ = lines(door)
            assert (done.action, tried.action) == ("bulk.cancel", "bulk.cancel.dry_run")
            assert '"tenant":"a"' in done.subject

    run(go())


def test_who_acts_cannot_be_forged_and_the_attempt_is_written_down() -> None:
    async def go() -> None:
        async with serving(**NEEDED) as door:
            eve = door.token("operate", name="eve")
            reply = await door.ask("POST", "/runs", eve, START, X_Actor="ann")
            assert reply.code == "actor"
            (line,) = lines(door)
            assert (line.actor, line.outcome) == ("eve", "refused: actor")
            for said in ("a\tb", "a" * 101):
                assert (await door.ask("POST", "/runs", eve, START, X_Actor=said)).status == 400

    run(go())


def test_no_secret_and_no_second_line_gets_into_the_trail() -> None:
    async def go() -> None:
        async with serving() as door:
            token = door.token("read")
            await door.ask("DELETE", f"/tokens/{token}")  # the whole instead of its id
            await door.ask("POST", "/runs/a%0Ab%1B%5B31m/cancel", body={})
            await door.ask("POST", "//runs/x/do/a%0Ab")
            shown = (await door.ask("GET", "/audit")).text
            assert token.split("_")[2] not in shown
            assert token.split("_")[1] in shown
            assert all(line.subject.isprintable() and line.action.isprintable() for line in lines(door))  # fmt: skip  # noqa: E501

    run(go())


def test_what_workers_say_is_written_once_and_then_counted() -> None:
    async def go() -> None:
        async with serving(**NEEDED) as door:
            gpu = door.token("work", name="gpu")
            for _ in range(5):
                await door.ask("POST", "/pools/blue/claim", gpu, {"worker": "any name"})
            (line,) = lines(door)
            assert (line.actor, line.action, line.subject) == ("gpu", "pools.claim", "blue")
            await door.server.keeper.audit_log.write_tallies(all_of_them=True)
            assert lines(door)[0].detail.endswith("; 4 more times")

    run(go())


def test_the_audit_trail_comes_in_pages_and_is_for_admins() -> None:
    async def go() -> None:
        async with serving() as door:
            for _ in range(5):
                await door.ask("POST", "/tokens", body={"name": "a", "scopes": ["read"]})
            first = await door.ask("GET", "/audit?limit=3")
            rest = await door.ask("GET", f"/audit?limit=3&cursor={first.json['next']}")
            numbers = [e["number"] for e in first.json["items"] + rest.json["items"]]
            assert numbers == [5, 4, 3, 2, 1]
            assert rest.json["next"] is None
            assert first.json["items"][0]["address"] == "127.0.0.1"
            assert (await door.ask("GET", "/audit", door.token("operate"))).code == "scope"
            assert (await door.ask("GET", "/audit?cursor=x")).code == "parameter"

    run(go())
