"""Signing in, in the browser: what a token opens, what it does not, and where it leads."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import pytest

from .plain import PlainPage
from .support import ASKED, Server, eventually
from .test_guard import Locked


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Locked]:
    running = Locked(Path(tmp_path_factory.mktemp("entrance")))
    yield running
    running.stop()


def sign_in(page: Any, token: str) -> None:
    page.get_by_label("Token").fill(token)
    page.get_by_role("button", name="Sign in").click()


def asked(server: Locked) -> str:
    run: str = server.call(server.server.parts.verbs.start(ASKED))
    server.call(server.server.parts.verbs.wait(run, standing=True))
    return run


def test_a_token_leads_to_the_page_that_was_asked_for(page: Any, server: Locked) -> None:
    page.goto("/runs?status=failed&name=%C3%A9t%C3%A9")
    assert "/login" in page.url
    sign_in(page, server.token("kim", "operate"))
    page.wait_for_url("**/runs?status=failed&name=*")
    assert page.get_by_label("Name").input_value() == "été"
    assert page.locator(".who").inner_text() == "kim"
    (cookie,) = [one for one in page.context.cookies() if one["name"] == "anabranch_session"]
    assert (cookie["httpOnly"], cookie["sameSite"], cookie["secure"]) == (True, "Strict", False)
    assert all(one["httpOnly"] and one["sameSite"] == "Strict" for one in page.context.cookies())
    assert page.evaluate("document.cookie") == ""


def test_it_leads_to_no_other_site(server: Locked) -> None:
    for way in ("//evil.example/", "https://evil.example/", "/\\evil.example", "/\t/evil.example"):
        plain = PlainPage(server.url)
        plain.goto("/login")
        plain.locator("[name=next]").fill(way)
        sign_in(plain, server.token("sam", "read"))
        assert plain.url == f"{server.url}/runs", way


def test_a_wrong_token_is_refused_at_the_field_and_not_kept(page: Any, server: Locked) -> None:
    page.goto("/approvals")
    sign_in(page, "anb_" + "0" * 12 + "_" + "1" * 52)
    assert "not known here" in page.get_by_role("alert").inner_text()
    field = page.get_by_label("Token")
    assert (field.input_value(), field.get_attribute("aria-invalid")) == ("", "true")
    assert page.evaluate("document.activeElement.name") == "token"
    sign_in(page, server.token("eve", "read"))  # and where to go is not forgotten
    page.wait_for_url("**/approvals")


def test_a_token_that_has_expired_says_so(plain: PlainPage, server: Locked) -> None:
    access = server.server.access
    token, text = access.create("old", ["read"], lifetime_days=1e-7)
    assert eventually(lambda: access.state_of(token) == "expired")
    plain.goto("/login")
    sign_in(plain, text)
    assert "has expired" in plain.get_by_role("alert").inner_text()


def test_whoever_signed_out_is_asked_again(plain: PlainPage, server: Locked) -> None:
    plain.goto("/runs")
    sign_in(plain, server.token("leo", "read"))
    plain.get_by_role("button", name="Sign out").click()
    plain.get_by_text("You are signed out.").wait_for()
    assert plain.get_by_role("alert").count() == 0
    plain.goto("/runs")
    assert "/login" in plain.url
    assert "anabranch_session" not in {one.name for one in plain.request.jar}


def test_a_token_that_is_revoked_ends_the_visit_and_says_why(
    plain: PlainPage, server: Locked
) -> None:
    token, text = server.server.access.create("gone", ["read"])
    plain.goto("/runs")
    sign_in(plain, text)
    plain.wait_for_url("**/runs")
    server.server.access.revoke(token.id)
    plain.goto("/sessions")
    assert unquote(plain.url).endswith("/login?next=/sessions")
    assert "was revoked" in plain.get_by_role("alert").inner_text()


def test_who_may_only_look_gets_no_button_that_changes_something(
    plain: PlainPage, server: Locked
) -> None:
    run = asked(server)
    plain.goto("/runs")
    sign_in(plain, server.token("reader", "read"))
    plain.wait_for_url("**/runs")
    verbs = ("Pause", "Resume", "Cancel", "Redrive", "Approve", "Reject", "Start", "Keep", "End")
    for way in ("/runs", f"/runs/{run}", "/approvals", "/sessions", f"/runs/{run}/joins"):
        plain.goto(way)
        for verb in verbs:
            assert plain.get_by_role("button", name=verb, exact=True).count() == 0, (way, verb)
    plain.goto(f"/runs/{run}")
    plain.locator(".verbs").get_by_text("needs the scope operate").wait_for()
    plain.goto("/approvals")
    plain.get_by_text("needs the scope decide").first.wait_for()
    plain.goto("/definitions")
    plain.get_by_role("textbox", name="Text").fill(ASKED)
    plain.get_by_role("button", name="Check").click()
    plain.get_by_text("starting needs the scope operate").wait_for()
    assert plain.get_by_role("button", name="Start", exact=True).count() == 0


def test_who_may_decide_decides_and_does_not_operate(plain: PlainPage, server: Locked) -> None:
    run = asked(server)
    plain.goto(f"/runs/{run}")
    sign_in(plain, server.token("boss", "decide"))
    plain.wait_for_url(f"**/runs/{run}")
    assert plain.locator(".verbs").get_by_role("button").count() == 0
    plain.goto("/approvals")
    plain.locator(f'[data-gate="{run}"]').get_by_role("button", name="Approve").click()
    assert server.call(server.server.parts.verbs.wait(run)).status == "completed"


def test_where_no_token_is_asked_for_the_entrance_says_so(tmp_path: Path) -> None:
    with Server(tmp_path) as open_server:
        plain = PlainPage(open_server.url)
        plain.goto("/login?next=/approvals")
        plain.get_by_role("link", name="go on").click()
        assert plain.url == f"{open_server.url}/approvals"
