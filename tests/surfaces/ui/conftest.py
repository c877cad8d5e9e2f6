"""A browser for each file of tests; every test gets a page that fails it when a script fails."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from anabranch.surfaces.ui.rendering import static_path
from hangs import HANG_SECONDS

from .support import Server, install_chromium

#: With one renderer the pages of a context share a process, whose start is most of what a test of
#: a page takes.
ARGUMENTS = ("--no-sandbox", "--disable-dev-shm-usage", "--renderer-process-limit=1")


@pytest.fixture(scope="module")  # while it runs, the thread has a loop that others cannot share
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


@pytest.fixture(scope="module")
def context(browser: Any, server: Server) -> Iterator[Any]:
    """With a page that stays open, so that the process that shows the pages stays as well."""
    context = browser.new_context(
        base_url=server.url, viewport={"width": 1280, "height": 900}, reduced_motion="reduce"
    )
    context.new_page().goto(static_path("icon.svg"))
    yield context
    context.close()


@pytest.fixture
def page(context: Any) -> Iterator[Any]:
    """In a browser that has not been here before."""
    (kept,) = context.pages
    wrong: list[str] = []
    page = context.new_page()
    page.on("console", lambda said: wrong.append(said.text) if said.type == "error" else None)
    page.on("pageerror", lambda error: wrong.append(str(error)))
    yield page
    for opened in context.pages:
        if opened is not kept:
            opened.close()
    context.set_offline(False)
    context.clear_cookies()
    kept.evaluate("localStorage.clear()")
    refused = "Failed to load resource"  # a page that is an error by intention
    assert [text for text in wrong if refused not in text] == []
