"""What pages allow: headers, forms of other sites, tokens and scopes. No browser is needed."""

from __future__ import annotations

import asyncio
import re
import threading
from collections.abc import Coroutine, Iterator
from pathlib import Path
from typing import Any
from urllib.error import HTTPError
from urllib.parse import unquote, urlencode
from urllib.request import HTTPRedirectHandler, Request, build_opener

import pytest

from anabranch.settings import Settings
from anabranch.surfaces.http import serve
from hangs import HANG_SECONDS

from .support import ASKED, TWO_STEPS, Server


class _Stay(HTTPRedirectHandler):
    def redirect_request(self, *_given: Any, **_more: Any) -> None:
        return None


class Visitor:
    """A browser as far as cookies and forms go."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.cookies: dict[str, str] = {}
        self._opener = build_opener(_Stay())

    def ask(
        self, path: str, form: dict[str, str] | None = None, **headers: str
    ) -> tuple[int, str, Any]:
        data = urlencode(form).encode() if form is not None else None
        request = Request(self.url + path, data)
        request.add_header("Accept", "text/html")
        request.add_header("Cookie", "; ".join(f"{k}={v}" for k, v in self.cookies.items()))
        for name, value in headers.items():
            request.add_header(name.replace("_", "-"), value)
        try:
            response = self._opener.open(request, timeout=HANG_SECONDS)
        except HTTPError as error:
            response = error
        with response:
            for cookie in response.headers.get_all("Set-Cookie", []):
                name, _, value = cookie.partition(";")[0].partition("=")
                self.cookies[name] = value
            return response.status or 0, response.read().decode(), response.headers

    def csrf(self, path: str = "/login") -> str:
        _, text, _ = self.ask(path)
        found = re.search(r'name="csrf" value="([^"]+)"', text)
        assert found is not None
        return found[1]


@pytest.fixture
def visitor(server: Server) -> Visitor:
    return Visitor(server.url)


def test_every_page_forbids_foreign_and_inline_scripts(server: Server, visitor: Visitor) -> None:
    run = server.run(ASKED)
    for path in ("/runs", f"/runs/{run}", "/approvals", "/definitions", "/nowhere", "/login"):
        _, text, headers = visitor.ask(path)
        policy = headers["Content-Security-Policy"]
        assert "default-src 'none'" in policy
        assert "script-src 'self';" in policy
        assert "unsafe" not in policy
        assert headers["X-Content-Type-Options"] == "nosniff"
        assert headers["Cache-Control"] == "no-store"
        inline = re.findall(r"<script(?![^>]* src=)(?![^>]*application/json)", text)
        assert inline == []


def test_a_change_needs_the_secret_of_the_form(server: Server, visitor: Visitor) -> None:
    run = server.start(TWO_STEPS, {"first": "guard", "second": "guard"})
    way = f"/runs/{run}/do/cancel"
    secret = visitor.csrf()
    for form in ({}, {"csrf": ""}, {"csrf": "x" * 43}):
        status, text, _ = visitor.ask(way, form)
        assert status == 403
        assert "earlier session" in text
    for headers in ({"Origin": "http://evil.example"}, {"Sec_Fetch_Site": "cross-site"}):
        status, _, _ = visitor.ask(way, {"csrf": secret}, **headers)
        assert status == 403
    assert Visitor(server.url).ask(way, {"csrf": secret})[0] == 403  # without the cookie
    assert server.status(run) == "running"
    status, _, headers = visitor.ask(way, {"csrf": secret}, Origin=server.url)
    assert (status, headers["Location"]) == (303, f"/runs/{run}?note=cancelled")
    server.steps.open("guard")


def test_the_secret_is_kept_from_scripts_and_from_other_sites(
    server: Server, visitor: Visitor
) -> None:
    _, _, headers = visitor.ask("/login")
    cookie = headers["Set-Cookie"]
    assert "HttpOnly" in cookie
    assert "SameSite=Strict" in cookie


def test_static_files_are_kept_for_ever_and_lead_nowhere_else(visitor: Visitor) -> None:
    _, text, _ = visitor.ask("/runs")
    sheet = re.search(r'href="(/static/[^"]+\.css)"', text)
    assert sheet is not None
    status, _, headers = visitor.ask(sheet[1])
    assert (status, headers["Content-Type"]) == (200, "text/css; charset=utf-8")
    assert "immutable" in headers["Cache-Control"]
    for path in ("..%2fcontext.py", "%2e%2e%2fcontext.py", ".hidden", "nothing.css", "__init__.py"):
        assert visitor.ask(f"/static/x/{path}")[0] == 404


def test_bad_addresses_get_a_page_that_says_what_is_wrong(visitor: Visitor) -> None:
    for path, status in (
        ("/runs/nothing", 404),
        ("/runs?before=x", 422),
        ("/runs?from=yesterday", 422),
        ("/approvals?before=x", 422),
        ("/definitions?fingerprint=x", 404),
        ("/live/runs/nothing", 404),
        ("/runs/nothing/timeline.json", 404),
    ):
        found, text, headers = visitor.ask(path)
        assert (path, found) == (path, status)
        assert "text/html" in headers["Content-Type"]
        assert 'role="alert"' in text


def test_a_run_that_is_not_there_gets_a_link_to_the_list_and_no_command(visitor: Visitor) -> None:
    _, text, _ = visitor.ask("/runs/nothing")
    assert "there is no run" in text
    assert '<a href="/runs">To the list of runs</a>' in text
    assert "anabranch runs" not in text


# -- with tokens -----------------------------------------------------------------------------------


class Locked:
    """A server as `anabranch serve` makes it, that asks for tokens; in a thread of its own."""

    def __init__(self, folder: Path, require_tokens: Any = "yes") -> None:
        store = str(folder / "runs.db")
        settings = Settings(store=store, serve_port=0, require_tokens=require_tokens)
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()
        self.server = self.call(self._made(settings))
        self.call(self.server.start())
        self.url = self.server.url

    async def _made(self, settings: Settings) -> serve.Server:
        return serve.Server(settings, grace_seconds=0.2)

    def call(self, work: Coroutine[Any, Any, Any]) -> Any:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(HANG_SECONDS)

    def token(self, name: str, *scopes: str) -> str:
        text: str = self.server.access.create(name, scopes)[1]
        return text

    def stop(self) -> None:
        self.call(self.server.stop())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(HANG_SECONDS)
        self._loop.close()


@pytest.fixture(scope="module")
def locked(where: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Locked]:
    running = Locked(Path(tmp_path_factory.mktemp("locked")))
    yield running
    running.stop()


def sign_in(server: Locked, token: str, way: str = "/approvals") -> tuple[Visitor, int, Any]:
    visitor = Visitor(server.url)
    status, _, headers = visitor.ask(
        "/login", {"csrf": visitor.csrf(), "token": token, "next": way}
    )
    return visitor, status, headers


def test_without_a_session_people_are_sent_to_the_entrance(locked: Locked) -> None:
    visitor = Visitor(locked.url)
    status, _, headers = visitor.ask("/runs?status=failed")
    assert status == 303
    assert unquote(headers["Location"]) == "/login?next=/runs?status=failed"
    assert visitor.ask("/login")[0] == 200


def test_a_token_opens_the_door_and_signing_out_closes_it(locked: Locked) -> None:
    token = locked.token("kim", "read", "operate", "decide")
    visitor, status, headers = sign_in(locked, token)
    assert (status, headers["Location"]) == (303, "/approvals")
    status, text, _ = visitor.ask("/runs")
    assert status == 200
    assert "kim" in text
    visitor.ask("/logout", {"csrf": visitor.csrf("/runs")})
    assert visitor.ask("/runs")[0] == 303


def test_a_wrong_token_is_refused_in_words(locked: Locked) -> None:
    _, status, _ = sign_in(locked, "anb_wrong_token")
    assert status == 401


def test_the_entrance_leads_to_no_other_site(locked: Locked) -> None:
    token = locked.token("sam", "read")
    for way in ("//evil.example", "https://evil.example", "/\\evil.example", "evil"):
        assert sign_in(locked, token, way)[2]["Location"] == "/runs"


@pytest.mark.parametrize(
    ("scope", "credentials", "probe"),
    [("admin", 200, 200), ("operate", 403, 200), ("decide", 403, 403)],
)
def test_only_an_admin_sees_credentials_and_only_who_operates_looks_at_participants(
    locked: Locked, scope: str, credentials: int, probe: int
) -> None:
    visitor, _, _ = sign_in(locked, locked.token("kim", "read", scope))
    status, text, _ = visitor.ask("/credentials")
    assert status == credentials
    assert ('href="/credentials"' in text) is (credentials == 200)
    assert visitor.ask("/participants")[0] == 200
    assert visitor.ask("/participants", {"csrf": visitor.csrf("/participants")})[0] == probe
    status, _, headers = Visitor(locked.url).ask("/credentials")
    assert status == 303
    assert "/login" in headers["Location"]


def test_who_may_only_read_changes_nothing(locked: Locked) -> None:
    run = locked.call(locked.server.parts.verbs.start(ASKED))
    locked.call(locked.server.parts.verbs.wait(run, standing=True))
    reader, _, _ = sign_in(locked, locked.token("reader", "read"))
    secret = reader.csrf(f"/runs/{run}")
    status, text, _ = reader.ask(f"/runs/{run}/do/cancel", {"csrf": secret})
    assert status == 403
    assert 'role="alert"' in text
    gate = locked.server.parts.engine.state(run).gates
    (name,) = gate
    form = {"csrf": secret, "verdict": "fulfil"}
    assert reader.ask(f"/runs/{run}/gates/{name}", form)[0] == 403
    assert locked.server.parts.engine.state(run).gates
    decider, _, _ = sign_in(locked, locked.token("boss", "read", "decide"))
    form["csrf"] = decider.csrf(f"/runs/{run}")
    assert decider.ask(f"/runs/{run}/gates/{name}", form)[0] == 303
    assert locked.call(locked.server.parts.verbs.wait(run)).status == "completed"


def test_a_call_of_a_hook_that_is_refused_gets_a_problem_and_no_page(visitor: Visitor) -> None:
    status, text, headers = visitor.ask("/hooks/nowhere", {"a": "b"}, Accept="*/*")
    assert status >= 400
    assert headers["Content-Type"].startswith("application/problem+json")
    assert "<html" not in text
