"""A real browser at real pages of ours and of others: what may not run does not run.

The server is the one of `anabranch serve`, on a loopback address and without tokens: whatever a
page of another site gets done here, it gets done on the machine of whoever visits it.
"""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import urljoin

import pytest

from hangs import HANG_SECONDS

from .plain import PlainPage
from .support import ASKED, LOOP, NASTY, OPINIONS, RULES, eventually
from .test_guard import Locked, Visitor

DEFINITION = json.dumps({"definition": ASKED})

EVIL = """<!doctype html><title>evil</title>
<form id=f method=post enctype=text/plain target=out><input name=x></form>
<iframe name=out></iframe>
<script>
const at = (path) => TARGET + path;
const tries = [];
const attempt = (name, work) => tries.push(
  Promise.resolve().then(work).then(
    (got) => `${name}: ${got}`, (error) => `${name}: refused`));
attempt("simple post", async () => {
  const answer = await fetch(at("/api/v1/runs"), {method: "POST", mode: "no-cors",
    headers: {"Content-Type": "text/plain"}, body: BODY});
  return answer.type;
});
attempt("no body", async () => (await fetch(at(`/api/v1/runs/${RUN}/cancel`),
  {method: "POST", mode: "no-cors"})).type);
attempt("json post", async () => (await fetch(at("/api/v1/runs"), {method: "POST",
  headers: {"Content-Type": "application/json"}, body: BODY})).status);
attempt("delete", async () => (await fetch(at("/api/v1/tokens/x"), {method: "DELETE"})).status);
attempt("read", async () => (await fetch(at("/api/v1/runs"))).text());
attempt("beacon", async () => navigator.sendBeacon(at(`/api/v1/runs/${RUN}/cancel`), ""));
attempt("stream", () => new Promise((good, bad) => {
  const source = new EventSource(at("/live/runs"));
  source.onmessage = source.onopen = () => good("open");
  source.onerror = () => { source.close(); bad(); };
}));
attempt("socket", () => new Promise((good, bad) => {
  const socket = new WebSocket(at("/live/runs").replace("http", "ws"));
  socket.onopen = () => good("open");
  socket.onerror = () => bad();
}));
attempt("script", () => new Promise((good, bad) => {
  const made = document.createElement("script");
  made.src = at("/api/v1/runs");
  made.onload = () => good("loaded");
  made.onerror = () => bad();
  document.head.append(made);
}));
attempt("image", () => new Promise((good, bad) => {
  const made = new Image();
  made.src = at("/favicon.ico");
  made.onload = () => good("loaded");
  made.onerror = () => bad();
}));
attempt("form", () => {
  const form = document.getElementById("f");
  form.action = at(`/runs/${RUN}/do/cancel`);
  form.submit();
  return "sent";
});
Promise.all(tries).then((all) => { window.told = all; });
</script>"""

#: Links of SVG have an address that is not a text.
LINKS = """[...document.querySelectorAll('a[href]')]
  .map(a => new URL(a.getAttribute('href'), location).href)"""


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Locked]:
    running = Locked(Path(tmp_path_factory.mktemp("walls")), require_tokens="no")
    yield running
    running.stop()


@pytest.fixture
def other_site() -> Iterator[ThreadingHTTPServer]:
    """A server of somebody else, under another name."""

    class Page(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            body = self.server.page.encode()  # type: ignore[attr-defined]
            self.send_response(200)
            self.send_header("Content-Type", "text/html; charset=utf-8")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_given: Any) -> None:
            pass

    site = ThreadingHTTPServer(("127.0.0.1", 0), Page)
    thread = threading.Thread(target=site.serve_forever, daemon=True)
    thread.start()
    yield site
    site.shutdown()
    thread.join(HANG_SECONDS)
    site.server_close()


@pytest.fixture(scope="module")
def runs(server: Locked) -> list[str]:
    """With markup wherever people can put some."""

    async def begin() -> list[str]:
        verbs, labels = server.server.parts.verbs, {"label": NASTY, NASTY: "key"}
        text = NASTY.replace("{{", "((")
        begun = [
            await verbs.start(ASKED.replace("120", "null"), {"amount": text}, labels=labels),
            await verbs.start(LOOP.replace("kind: item", "kind: noop"), labels=labels),
            await verbs.start(
                OPINIONS,
                {"amount": 5, "n": NASTY},
                rules=RULES,
                labels=labels,
                allow_extra_input=True,
            ),
        ]
        for run in begun:
            await verbs.wait(run, standing=True)
        return begun

    return list(server.call(begin()))


@pytest.mark.parametrize("name", ["localhost", "127.0.0.1"])  # another site, and another port
def test_a_page_of_another_site_gets_nothing_done(
    browser: Any, server: Locked, other_site: Any, name: str
) -> None:
    run = server.call(server.server.parts.verbs.start(ASKED))
    given = {"TARGET": json.dumps(server.url), "BODY": json.dumps(DEFINITION), "RUN": json.dumps(run)}  # fmt: skip  # noqa: E501
    script = "".join(f"const {key} = {value};" for key, value in given.items())
    other_site.page = EVIL.replace("<script>", f"<script>{script}", 1)
    before = server.call(_count(server))
    page = browser.new_page()
    page.goto(f"http://{name}:{other_site.server_address[1]}/")
    told = eventually(lambda: page.evaluate("window.told"))
    page.close()
    # A browser does not tell such a page how a post without an answer for it went.
    sent = {"simple post: opaque", "no body: opaque", "beacon: true", "form: sent"}
    assert {one for one in told if not one.endswith(": refused")} <= sent
    assert server.call(_count(server)) == before
    head = server.server.parts.store.head(run)
    assert head is not None
    assert head.status == "waiting"
    assert server.server.parts.engine.state(run).gates


async def _count(server: Locked) -> int:
    return sum(count for *_, count in server.server.parts.store.run_counts())


@pytest.fixture(scope="module")
def ways(server: Locked, runs: list[str]) -> list[str]:
    """The addresses that links lead to from these, and what is not a page of ours has none."""
    plain = PlainPage(server.url)
    left = ["/runs", "/approvals", "/definitions", "/sessions", "/login", "/nowhere"]
    left += [f"/runs/{run}" for run in runs]
    seen: list[str] = []
    while left and len(seen) < 40:
        way = left.pop(0)
        answer = plain.goto(way)
        if "html" not in answer.headers["content-type"]:
            continue
        seen.append(way)
        assert "script-src 'self'" in answer.headers["content-security-policy"]
        assert answer.headers["cache-control"] == "no-store"
        links = {urljoin(plain.url, link) for link in plain.rows("a[href]", "href")}
        assert {link for link in links if not link.startswith(server.url)} == set(), way
        assert plain.locator("[href^='javascript:'], [src^='data:text']").count() == 0, way
        found = {link.removeprefix(server.url).partition("#")[0] for link in links}
        left += sorted(found - set(seen) - set(left))
    return seen


def test_no_page_breaks_its_own_policy_and_no_markup_runs(
    watched: Any, server: Locked, ways: list[str]
) -> None:
    """One of each kind; `test_gallery.py` opens every page and hears when one breaks its policy."""
    kinds = {re.sub(r"/[0-9a-z]{16}|[?].*", "", way): way for way in ways}
    assert len(ways) > 20
    assert len(kinds) > 8
    for way in kinds.values():
        watched.goto(way)
        watched.evaluate("() => new Promise(go => requestAnimationFrame(() => setTimeout(go, 20)))")
        assert watched.evaluate("window.broken") == [], way
        assert watched.evaluate("window.hacked") is None, way
        links = watched.evaluate(LINKS)
        assert all(link.startswith(server.url) for link in links), way
        script = "[href^='javascript:' i], [src^='data:text' i]"
        assert watched.locator(script).count() == 0, way


@pytest.fixture
def watched(browser: Any, server: Locked) -> Iterator[Any]:
    """A page that notes what breaks its policy."""
    context = browser.new_context(base_url=server.url)
    context.add_init_script(
        "window.broken = [];"
        "document.addEventListener('securitypolicyviolation',"
        " (event) => window.broken.push(`${event.violatedDirective} ${event.blockedURI}`));"
    )
    yield context.new_page()
    context.close()


INJECTED = {
    "an inline script": "const s = document.createElement('script');"
    "s.textContent = 'window.hacked = 1'; document.body.append(s);",
    "a handler": "document.body.insertAdjacentHTML('beforeend',"
    ' \'<img src="/nothing.png" onerror="window.hacked = 1">\');',
    "a script of elsewhere": "const s = document.createElement('script');"
    "s.src = 'data:text/javascript,window.hacked=1'; document.body.append(s);",
    "a style": "document.body.insertAdjacentHTML('beforeend', '<p style=\"color: red\">x</p>');",
    "a frame": "const f = document.createElement('iframe'); f.src = '/runs'; document.body.append(f);",  # noqa: E501
    "a base": "const b = document.createElement('base'); b.href = 'https://evil.example/';"
    "document.head.append(b);",
    "a form for elsewhere": "const f = document.createElement('form');"
    "f.action = 'https://evil.example/'; document.body.append(f); f.submit();",
    "a call elsewhere": "fetch('https://evil.example/').catch(() => 0);",
    "a text that becomes a program": "try { eval('window.hacked = 1') } catch {}",
}


def test_what_gets_into_a_page_by_a_mistake_of_ours_does_not_run(
    watched: Any, server: Locked
) -> None:
    watched.goto("/runs")
    for name, code in INJECTED.items():
        # In the page, not from outside: what a debugger evaluates no policy holds back.
        watched.evaluate("code => { window.broken = []; setTimeout(new Function(code), 0); }", code)
        assert eventually(lambda: watched.evaluate("window.broken")), f"{name} was let through"
        assert watched.evaluate("window.hacked") is None, name
        assert watched.url == f"{server.url}/runs", name


def test_a_page_of_ours_cannot_be_put_into_a_frame(
    browser: Any, server: Locked, other_site: Any
) -> None:
    other_site.page = f'<iframe src="{server.url}/runs"></iframe>'
    page = browser.new_page()
    refused: list[str] = []
    page.on("console", lambda said: refused.append(said.text))
    page.goto(f"http://localhost:{other_site.server_address[1]}/")
    assert eventually(lambda: [text for text in refused if "frame" in text.lower()])
    assert all("Anabranch" not in frame.title() for frame in page.frames if frame != page.main_frame)  # fmt: skip  # noqa: E501
    page.close()


def test_names_in_answers_stay_text(server: Locked, runs: list[str]) -> None:
    """What is not a page is not taken for one, whatever it holds."""
    visitor = Visitor(server.url)
    for run in runs:
        for way in (
            f"/api/v1/runs/{run}",
            f"/api/v1/runs/{run}/graph?format=svg&raw=true",
            f"/api/v1/runs/{run}/graph?format=mermaid&raw=true",
            f"/runs/{run}/data/input.json",
            f"/runs/{run}/timeline.json",
            f"/api/v1/runs/{NASTY.encode().hex()}",
        ):
            _, text, headers = visitor.ask(way)
            assert "text/html" not in headers["Content-Type"], way
            assert headers["X-Content-Type-Options"] == "nosniff"
            assert "default-src 'none'" in headers["Content-Security-Policy"]
            if "svg" in headers["Content-Type"]:
                assert "<script" not in text
                assert "<img" not in text
