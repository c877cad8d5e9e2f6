"""The page of modules: how each stands, what is wrong with it, and start, stop, restart."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from .conftest import OpenPage
from .support import TwoNodes, module_config


@pytest.fixture(scope="module")
def nodes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TwoNodes]:
    modules = [module_config("works"), module_config("broken", "/nowhere/program")]
    with TwoNodes(Path(tmp_path_factory.mktemp("nodes")), modules=modules) as running:
        yield running


def test_a_module_is_stopped_and_started(open_page: OpenPage, nodes: TwoNodes) -> None:
    page = open_page(nodes.provider)
    page.goto("/modules")
    card = page.get_by_role("article", name="works")
    card.locator("h2 .badge").get_by_text("ready").wait_for()
    card.get_by_role("button", name="Stop works").click()
    page.get_by_role("button", name="Yes").click()
    page.get_by_text("The module is stopped.").wait_for()
    card.locator("h2 .badge").get_by_text("stopped").wait_for()
    card.get_by_role("button", name="Start works").click()
    page.get_by_text("The module is started.").wait_for()
    card.locator("h2 .badge").get_by_text("ready").wait_for()


def test_a_module_that_cannot_start_is_named_on_the_first_page(
    open_page: OpenPage, nodes: TwoNodes
) -> None:
    page = open_page(nodes.provider)
    page.goto("/")
    page.get_by_role("region", name="What needs you").get_by_role(
        "link", name="Module broken"
    ).click()
    assert "/nowhere/program" in page.locator("p.trouble").inner_text()
    page.get_by_role("button", name="Start broken").wait_for()


def test_what_a_module_says_is_listed_by_its_level(open_page: OpenPage, nodes: TwoNodes) -> None:
    said = {"schema_version": "v1", "capability_id": "notify_emit"}
    for level in ("info", "error"):
        note = {**said, "level": level, "title": f"an {level}", "body": "line one\nline two"}
        nodes.provider.say("works", "/v1/module/notify", note)
    page = open_page(nodes.provider)
    page.goto("/notifications")
    assert page.get_by_role("article").count() == 2
    page.get_by_role("link", name="Error", exact=True).click()
    assert page.get_by_role("heading", level=2).all_inner_texts() == ["an error"]
    page.get_by_role("link", name="works").click()
    page.get_by_role("region", name="What it said last").get_by_text("an info").wait_for()
