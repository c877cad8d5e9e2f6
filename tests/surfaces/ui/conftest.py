"""One browser for all files of a process; every test gets a page that fails it when a script fails.

`page` is a page of Chromium, for what needs scripts, keys, layout or colours. `plain` reads and
sends what the server renders, without it.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from hangs import HANG_SECONDS

from .plain import PlainPage
from .support import Server, install_chromium

#: With one renderer the pages of a context share a process, whose start is most of what a test of
#: a page takes.
ARGUMENTS = ("--no-sandbox", "--disable-dev-shm-usage", "--renderer-process-limit=1")
SIZE = {"width": 1280, "height": 900}


@pytest.fixture(scope="package")  # while it runs, the thread has a loop that others cannot share
def browser() -> Iterator[Any]:
    from playwright.sync_api import Browser, Locator, sync_playwright

    path = install_chromium()
    if path is None:
        pytest.skip("there is no Chromium and it cannot be installed: run `make browser` as root")
    with sync_playwright() as driver, pytest.MonkeyPatch.context() as patch:
        patch.setattr(Locator, "click", _to_the_end_of_the_page(Locator.click))
        for name in ("new_context", "new_page"):
            patch.setattr(Browser, name, _patient(getattr(Browser, name)))
        browser = driver.chromium.launch(executable_path=path, args=list(ARGUMENTS))
        yield browser
        browser.close()


def _to_the_end_of_the_page(click: Any) -> Any:
    """A click returns when the page it leads to begins: a busy machine has read half of it then."""

    def clicked(locator: Any, **given: Any) -> None:
        click(locator, **given)
        locator.page.wait_for_load_state()

    return clicked


def _patient(make: Any) -> Any:
    """What is waited for must happen: thirty seconds may be too few on a busy machine."""

    def made(browser: Any, **given: Any) -> Any:
        opened = make(browser, **given)
        opened.set_default_timeout(1000 * HANG_SECONDS)
        return opened

    return made


@pytest.fixture(scope="module")
def server(where: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """One for each place: with a server that owns its runs, and with one that does not."""
    with Server(Path(tmp_path_factory.mktemp("server"))) as running:
        yield running


@pytest.fixture
def plain(server: Any) -> PlainPage:
    """In a browser that has not been here before and runs no scripts."""
    return PlainPage(server.url)


@pytest.fixture(scope="module")
def context(browser: Any, server: Server) -> Iterator[Any]:
    context = browser.new_context(base_url=server.url, viewport=SIZE, reduced_motion="reduce")
    yield context
    context.close()


@pytest.fixture(scope="module")
def shared_page(context: Any) -> tuple[Any, list[str]]:
    """The page that the tests of a file use one after the other, and what went wrong in it."""
    wrong: list[str] = []
    page = context.new_page()
    page.on("console", lambda said: wrong.append(said.text) if said.type == "error" else None)
    page.on("pageerror", lambda error: wrong.append(str(error)))
    return page, wrong


@pytest.fixture
def page(context: Any, shared_page: tuple[Any, list[str]]) -> Iterator[Any]:
    """As a browser shows it that has not been here before."""
    page, wrong = shared_page
    wrong.clear()
    before = context.pages
    yield page
    said = list(wrong)
    for opened in context.pages:
        if opened not in before:
            opened.close()
    _make_new(page)
    refused = "Failed to load resource"  # a page that is an error by intention
    assert [text for text in said if refused not in text] == []


def _make_new(page: Any) -> None:
    """For the next test: what a test may have changed."""
    page.context.set_offline(False)
    page.context.clear_cookies()
    if page.url.startswith("http"):
        page.evaluate("localStorage.clear()")
    if page.viewport_size != SIZE:
        page.set_viewport_size(SIZE)
    page.emulate_media(color_scheme="light", reduced_motion="reduce")


@pytest.fixture
def new_page(context: Any) -> Iterator[Any]:
    """A page of its own, for tests that add scripts, which no page loses again."""
    page = context.new_page()
    yield page
    page.close()
