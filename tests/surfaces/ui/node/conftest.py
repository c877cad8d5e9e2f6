"""Two nodes for each file of tests, and a page for the operator of each."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest

from .fake_arca import FakeArca
from .support import Browser, Served, TwoNodes

OpenPage = Callable[..., Any]


@pytest.fixture(scope="module")
def nodes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TwoNodes]:
    with TwoNodes(Path(tmp_path_factory.mktemp("nodes"))) as running:
        yield running


@pytest.fixture
def open_page(browser: Any) -> Iterator[OpenPage]:
    """`open_page(node)`: a page of it, signed in; it fails the test when a script fails."""
    with ExitStack() as stack:
        yield lambda node, **more: stack.enter_context(_page(browser, node, **more))


@contextmanager
def _page(browser: Any, node: Served, *, signed_in: bool = True, **more: Any) -> Iterator[Any]:
    given = {"viewport": {"width": 1280, "height": 900}, "reduced_motion": "reduce"} | more
    context = browser.new_context(base_url=node.url, **given)
    wrong: list[str] = []
    page = context.new_page()
    page.on("console", lambda said: wrong.append(said.text) if said.type == "error" else None)
    page.on("pageerror", lambda error: wrong.append(str(error)))
    if signed_in:
        sign_in(page, node.token)
    yield page
    context.close()
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
