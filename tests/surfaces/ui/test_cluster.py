"""The page of the cluster: who owns what, drained and taken back with a click; hidden elsewhere."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from anabranch.surfaces.http.serve import Server
from shared_store import PARTITIONS, fresh_schema

from ..cli.server_in_thread import served
from .plain import PlainPage
from .support import ASKED, eventually


@pytest.fixture(scope="module")
def servers(postgres: str) -> Iterator[tuple[Server, Server]]:
    place = fresh_schema(postgres)
    with (
        served(place, store_partitions=PARTITIONS) as first,
        served(place, store_partitions=PARTITIONS) as second,
    ):
        yield first, second


@pytest.fixture(scope="module")
def server(servers: tuple[Server, Server]) -> Server:
    """The one that the browser looks at."""
    return servers[0]


def shares(server: Server) -> list[int]:
    cluster = server.parts.store.cluster
    assert cluster is not None
    return sorted(one.partitions for one in cluster.servers())


def rendered_again(page: Any) -> None:
    """Returns when the card of the servers is another one: leases run, so it always changes."""
    page.evaluate("document.querySelector('[data-key=servers]').dataset.old = 'yes'")
    page.locator("[data-key=servers]:not([data-old])").wait_for()


def test_a_server_is_drained_and_taken_back_with_a_click(page: Any, server: Server) -> None:
    assert eventually(lambda: shares(server) == [PARTITIONS // 2] * 2)
    page.goto("/runs")
    page.get_by_role("link", name="Cluster").click()
    page.get_by_role("heading", name="2 servers").wait_for()
    page.get_by_text("Every partition has an owner").wait_for()
    other = page.locator("tr", has=page.locator("td")).filter(has_not_text="this one").first
    other.get_by_role("button", name="Drain").click()
    page.get_by_role("button", name="Yes, drain").click()
    page.get_by_text("The server drains").wait_for()
    page.locator(".badge", has_text="drained").wait_for()  # the page follows by itself
    page.get_by_text("the only one that takes partitions").wait_for()
    assert eventually(lambda: shares(server) == [0, PARTITIONS])
    page.get_by_role("button", name="Take back").click()
    page.get_by_text("takes its share again").wait_for()
    assert eventually(lambda: shares(server) == [PARTITIONS // 2] * 2)


def test_a_button_keeps_the_focus_while_the_page_is_rendered_again(
    page: Any, server: Server
) -> None:
    page.goto("/cluster")
    page.get_by_role("button", name="Drain").first.focus()
    before = page.evaluate("document.activeElement.id")
    rendered_again(page)
    assert page.evaluate("document.activeElement.id") == before != ""


def test_the_page_tells_who_owns_a_run_and_so_does_the_page_of_the_run(
    plain: PlainPage, server: Server, postgres: str
) -> None:
    plain.goto("/definitions")
    run = begun(plain, server)
    plain.goto(f"/cluster?run={run}")
    said = plain.locator(".note").inner_text()
    assert said.startswith(f"Run {run} is in partition ")
    assert "owned by anabranch (pid " in said
    plain.goto(f"/runs/{run}")
    plain.get_by_role("link", name="anabranch (pid ").click()
    assert plain.locator(".note").inner_text() == said
    plain.goto("/cluster?run=nowhere")
    assert "there is no run 'nowhere'" in plain.get_by_role("alert").inner_text()


def begun(page: Any, server: Server) -> str:
    answer = page.request.post(f"{server.url}/api/v1/runs", data={"definition": ASKED})
    return str(answer.json()["run"])


def test_all_partitions_can_be_listed_and_stay_open(page: Any, server: Server) -> None:
    page.goto("/cluster")
    page.get_by_text("All of them").click()
    rows = page.get_by_role("table", name="All partitions").locator("tbody tr")
    assert rows.count() == PARTITIONS
    rendered_again(page)
    assert rows.count() == PARTITIONS
    assert rows.first.is_visible()


def test_where_servers_share_no_store_the_link_is_hidden_and_the_page_says_why(
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    with served(tmp_path_factory.mktemp("alone") / "runs.db") as alone:
        plain = PlainPage(alone.url)
        plain.goto("/runs")
        assert plain.get_by_role("link", name="Cluster").count() == 0
        plain.goto("/cluster")
        assert "This store has one server" in plain.locator(".empty").inner_text()
