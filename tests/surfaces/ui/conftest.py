"""A browser for each file of tests; every test gets a page that fails it when a script fails."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from .support import Server, install_chromium


@pytest.fixture(scope="module")  # while it runs, the thread has a loop that others cannot share
def browser() -> Iterator[Any]:
    from playwright.sync_api import Locator, sync_playwright

    path = install_chromium()
    if path is None:
        pytest.skip("there is no Chromium and it cannot be installed: run `make browser` as root")
    with sync_playwright() as driver, pytest.MonkeyPatch.context() as patch:
        patch.setattr(Locator, "click", _to_the_end_of_the_page(Locator.click))
        browser = driver.chromium.launch(
            executable_path=path, args=["--no-sandbox", "--disable-dev-shm-usage"]
        )
        yield browser
        browser.close()


def _to_the_end_of_the_page(click: Any) -> Any:
    """A click returns when the page it leads to begins: a busy machine has read half of it then."""

    def clicked(locator: Any, **given: Any) -> None:
        click(locator, **given)
        locator.page.wait_for_load_state()

    return clicked


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with Server(Path(tmp_path_factory.mktemp("server"))) as running:
        yield running


@pytest.fixture
def page(browser: Any, server: Server) -> Iterator[Any]:
    context = browser.new_context(
        base_url=server.url, viewport={"width": 1280, "height": 900}, reduced_motion="reduce"
    )
    context.set_default_timeout(120_000)
    wrong: list[str] = []
    page = context.new_page()
    page.on("console", lambda said: wrong.append(said.text) if said.type == "error" else None)
    page.on("pageerror", lambda error: wrong.append(str(error)))
    yield page
    context.close()
    refused = "Failed to load resource"  # a page that is an error by intention
    assert [text for text in wrong if refused not in text] == []
