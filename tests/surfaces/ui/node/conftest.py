"""Two nodes for each file of tests, and a page for the operator of each."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest

from ..plain import PlainPage
from .fake_arca import FakeArca
from .support import Browser, Served, TwoNodes

OpenPage = Callable[..., Any]
Visit = Callable[[Served], Any]


@pytest.fixture(scope="module")
def nodes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TwoNodes]:
    with TwoNodes(Path(tmp_path_factory.mktemp("nodes"))) as running:
        yield running


@pytest.fixture(scope="module")
def contexts(browser: Any) -> Iterator[dict[str, Any]]:
    """Of the operators, each signed in once."""
    made: dict[str, Any] = {}
    yield made
    for one in made.values():
        one.close()


@pytest.fixture
def open_page(browser: Any, contexts: dict[str, Any]) -> Iterator[OpenPage]:
    """`open_page(node)`: a page of it, signed in; it fails the test when a script fails."""

    def opened(node: Served, *, signed_in: bool = True, **more: Any) -> Any:
        name = f"{node.url} {more}"
        if not signed_in:
            context = _context(browser, node, **more)
            stack.callback(context.close)
        else:
            if name not in contexts:
                contexts[name] = _context(browser, node, **more)
                contexts[name].add_cookies(_cookies(node))
            context = contexts[name]
        return stack.enter_context(_page(context))

    with ExitStack() as stack:
        yield opened


@pytest.fixture(scope="module")
def windows(browser: Any, contexts: dict[str, Any]) -> dict[str, tuple[Any, list[str]]]:
    """Pages that the tests of a file use one after the other, and what went wrong in them."""
    return {}


@pytest.fixture
def visit(
    browser: Any, contexts: dict[str, Any], windows: dict[str, tuple[Any, list[str]]]
) -> Iterator[Visit]:
    """`visit(node)`: the page of its operator that earlier tests had, for tests that only look."""
    looked: list[list[str]] = []

    def visited(node: Served) -> Any:
        if node.url not in contexts:
            contexts[node.url] = _context(browser, node)
            contexts[node.url].add_cookies(_cookies(node))
        if node.url not in windows:
            page = contexts[node.url].new_page()
            windows[node.url] = page, _heard(page)
        page, wrong = windows[node.url]
        wrong.clear()
        looked.append(wrong)
        return page

    yield visited
    for wrong in looked:
        _is_right(wrong)


def _context(browser: Any, node: Served, **more: Any) -> Any:
    given = {"viewport": {"width": 1280, "height": 900}, "reduced_motion": "reduce"} | more
    return browser.new_context(base_url=node.url, **given)


def signed_in(node: Served) -> PlainPage:
    """A page without scripts of an operator who has given the token."""
    plain = PlainPage(node.url)
    plain.goto("/login")
    plain.get_by_label("Control token").fill(node.token)
    plain.get_by_role("button", name="Sign in").click()
    return plain


def _cookies(node: Served) -> list[dict[str, Any]]:
    jar = signed_in(node).request.jar
    return [{"name": one.name, "value": one.value, "url": node.url} for one in jar]


@contextmanager
def _page(context: Any) -> Iterator[Any]:
    page = context.new_page()
    wrong = _heard(page)
    yield page
    page.close()
    _is_right(wrong)


def _heard(page: Any) -> list[str]:
    """What goes wrong in it from now on."""
    wrong: list[str] = []
    page.on("console", lambda said: wrong.append(said.text) if said.type == "error" else None)
    page.on("pageerror", lambda error: wrong.append(str(error)))
    return wrong


def _is_right(wrong: list[str]) -> None:
    refused = "Failed to load resource"  # a page that is an error by intention
    assert [text for text in wrong if refused not in text] == []


def sign_in(page: Any, token: str) -> None:
    if "/login" not in page.url:
        page.goto("/login")
    page.get_by_label("Control token").fill(token)
    page.get_by_role("button", name="Sign in").click()


# -- pages as text ---------------------------------------------------------------------------


@pytest.fixture(scope="module")
def arca() -> FakeArca:
    """For tests whose nodes host it."""
    return FakeArca()


@pytest.fixture
def browser_of(nodes: TwoNodes) -> Iterator[Callable[[str], Browser]]:
    """`browser_of("buyer")`: requests of its operator, without a program that shows pages."""
    made: list[Browser] = []

    def opened(name: str) -> Browser:
        made.append(Browser(nodes, getattr(nodes, name)))
        made[-1].sign_in()
        return made[-1]

    yield opened
    for one in made:
        one.close()


@pytest.fixture
def operator(browser_of: Callable[[str], Browser], arca: FakeArca) -> Browser:
    """Of the buyer; Arca has been told nothing yet."""
    arca.told.clear()
    arca.refusal = None
    return browser_of("buyer")
