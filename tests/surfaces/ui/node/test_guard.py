"""Pages of a node are for its operator alone, and no other site makes a browser change anything."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest
from yarl import URL

from anabranch.surfaces.ui.guard import STRANGERS_BYTES
from anabranch.surfaces.ui.node import routes

from .support import Browser, Served, TwoNodes

PAGES = sorted(path.replace("{", "").replace("}", "") for path in routes._GET)
FORMS = sorted(path.replace("{", "").replace("}", "") for path in routes._POST)


@pytest.fixture
def stranger(nodes: TwoNodes) -> Iterator[Browser]:
    made = Browser(nodes, nodes.buyer)
    yield made
    made.close()


@pytest.fixture
def operator(stranger: Browser) -> Browser:
    stranger.sign_in()
    return stranger


def balance(node: Served) -> int:
    found: int = node.ask("GET", "/v1/ledger/account")["balance"]
    return found


@pytest.mark.parametrize("path", PAGES)
def test_a_stranger_sees_no_page(stranger: Browser, path: str) -> None:
    found, text = stranger.send("GET", path)
    assert found.status == 303
    assert found.headers["Location"].startswith("/login?next=/")
    assert stranger.node.node_id not in text
    found, text = stranger.send("GET", "/login")
    assert (found.status, "buyer" in text) == (200, False)  # not even what it is called


@pytest.mark.parametrize("path", FORMS)
def test_a_stranger_sends_no_form(stranger: Browser, path: str) -> None:
    found, _ = stranger.post(path, {"csrf": stranger.secret(), "amount": "5"})
    assert found.status == 401
    assert balance(stranger.node) == 0


@pytest.mark.parametrize("path", ["/login", "/logout"])
def test_a_large_form_of_a_stranger_is_not_even_read(stranger: Browser, path: str) -> None:
    fields = {"csrf": stranger.secret(), "token": "x" * STRANGERS_BYTES}
    found, text = stranger.post(path, fields)
    assert (found.status, "before the user has signed in" in text) == (413, True)


def test_the_control_token_opens_a_session_that_scripts_and_other_sites_cannot_read(
    stranger: Browser,
) -> None:
    found = stranger.sign_in()
    assert (found.status, found.headers["Location"]) == (303, "/ledger")
    (cookie,) = [one for one in found.headers.getall("Set-Cookie") if "anabranch_node_" in one]
    assert {"HttpOnly", "SameSite=Strict", "Path=/"} <= set(cookie.split("; "))
    assert stranger.node.token not in cookie
    assert stranger.send("GET", "/ledger")[0].status == 200


def test_a_wrong_token_opens_nothing(stranger: Browser, nodes: TwoNodes) -> None:
    for token in ("", "a guess", nodes.provider.token):
        fields = {"csrf": stranger.secret(), "token": token}
        found, text = stranger.post("/login", fields)
        assert (found.status, "not the token of the node" in text) == (401, True)
        assert stranger.send("GET", "/")[0].status == 303


def test_a_session_ends_when_the_operator_signs_out(operator: Browser) -> None:
    kept = operator._session.cookie_jar.filter_cookies(URL(operator.node.url))
    cookies = {name: morsel.value for name, morsel in kept.items()}
    found, _ = operator.post("/logout", {"csrf": operator.secret("/")})
    assert found.headers["Location"] == "/login?note=signed_out"
    assert operator.send("GET", "/")[0].status == 303
    assert operator.send("GET", "/", cookies=cookies)[0].status == 303  # nor by the old cookie


def test_a_session_is_not_one_of_another_node_and_does_not_end_it(
    operator: Browser, nodes: TwoNodes
) -> None:
    url = operator.node.url
    operator.node = nodes.provider  # browsers send the cookies of a machine to all its ports
    assert operator.send("GET", "/")[0].status == 303
    operator.sign_in()
    assert operator.send("GET", "/")[0].status == 200
    operator.node = nodes.buyer
    assert operator.node.url == url
    assert operator.send("GET", "/")[0].status == 200


def test_a_session_is_none_of_the_api(operator: Browser) -> None:
    found, _ = operator.send("GET", "/v1/status")
    assert found.status == 401
    header = {"X-Orbiplex-Authtok": operator.node.token}
    assert operator.send("GET", "/v1/status", headers=header)[0].status == 200


@pytest.mark.parametrize("secret", ["", "x" * 43])
def test_a_form_without_the_secret_of_the_session_changes_nothing(
    operator: Browser, secret: str
) -> None:
    found, text = operator.post("/ledger/top-up", {"amount": "5", "csrf": secret})
    assert (found.status, "earlier session" in text) == (403, True)
    assert balance(operator.node) == 0


def test_a_form_of_another_site_changes_nothing(operator: Browser, nodes: TwoNodes) -> None:
    fields = {"amount": "5", "csrf": operator.secret("/ledger")}
    for said in (
        {"Origin": "https://evil.example"},
        {"Origin": nodes.provider.url},  # the same machine, another port
        {"Sec-Fetch-Site": "same-site"},
        {"Sec-Fetch-Site": "cross-site"},
    ):
        found, _ = operator.post("/ledger/top-up", fields, **said)
        assert found.status == 403, said
    assert balance(operator.node) == 0


def test_a_name_that_is_not_of_this_machine_shows_nothing(operator: Browser) -> None:
    for path in ("/", "/login", "/ledger"):
        found, text = operator.send("GET", path, headers={"Host": "evil.example"})
        assert found.status == 421
        assert operator.node.node_id not in text


def test_a_sign_in_leads_to_no_other_site(stranger: Browser) -> None:
    for way in ("//evil.example/", "https://evil.example/", "/\\evil.example", "/\t/evil.example"):
        fields = {"csrf": stranger.secret(), "token": stranger.node.token, "next": way}
        assert stranger.post("/login", fields)[0].headers["Location"] == "/"


def test_strangers_send_no_large_form(stranger: Browser) -> None:
    fields = {"csrf": stranger.secret(), "token": "x" * 20_000}
    assert stranger.post("/login", fields)[0].status == 413


def test_every_page_says_what_a_browser_may_load(operator: Browser) -> None:
    for path in ("/", "/login", "/orders/nothing"):
        found, text = operator.send("GET", path)
        policy = found.headers["Content-Security-Policy"]
        assert "default-src 'none'" in policy
        assert "script-src 'self'" in policy
        assert (found.headers["X-Frame-Options"], found.headers["Cache-Control"]) == (
            "DENY",
            "no-store",
        )
        assert not re.search(r"<script(?![^>]* src=)|\son\w+=|\sstyle=", text)


def test_what_is_no_page_is_answered_by_the_node(operator: Browser) -> None:
    found, _ = operator.send("GET", "/nowhere")
    assert (found.status, found.content_type) == (404, "application/problem+json")
    found, text = operator.send("GET", "/orders/execution:none")
    assert (found.status, found.content_type) == (404, "text/html")
    assert "there is no execution" in text
