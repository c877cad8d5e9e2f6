"""Pages of pools on a compute cluster: its state, its jobs, and where a job of a run is."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from anabranch.pools.backend import BackendAway, BackendUnfit, CameBack, Lost, WentAway
from anabranch.surfaces.http.serve import Server
from pools.scripted import Script, ScriptedBackend, use_scripts

from ..cli.server_in_thread import served
from .plain import PlainPage
from .support import NASTY, eventually

HEAD = "apiVersion: noetl.io/v2\nkind: Playbook\n"
STEP = f"""{HEAD}metadata: {{name: step}}
workflow:
  - step: render
    spec: {{pool: heavy}}
    tool: {{kind: noop}}
"""
LOOP = f"""{HEAD}metadata: {{name: loop}}
workflow:
  - step: frames
    spec: {{pool: heavy, loop_mode: fanout, fanout: {{shard_size: 5, max_concurrent: 8}}}}
    loop: {{in: {{range: 100}}, iterator: n}}
    tool: {{kind: noop}}
"""
WAITS = f"""{HEAD}metadata: {{name: waits}}
workflow:
  - step: far_off
    spec: {{pool: far}}
    tool: {{kind: noop}}
"""
WORKER = "tcp://10.0.0.7:4021"
POOLS = "heavy=dask://10.0.0.5:8786, far=dask+tls://hpc.internal:8786, gpu=ray:auto"


@pytest.fixture(scope="module")
def scripts() -> Iterator[dict[str, Script]]:
    with pytest.MonkeyPatch.context() as patch:
        known = use_scripts(patch)
        known |= {"heavy": Script(slots=2, workers=2), "far": Script(), "gpu": Script()}
        known["far"].refuses = BackendAway(f"the scheduler does not answer: {NASTY}")
        known["gpu"].refuses = BackendUnfit("node-3 has Python 3.12.4, the engine has 3.11.9")
        yield known


@pytest.fixture(scope="module")
def server(
    scripts: dict[str, Script], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Server]:
    with served(tmp_path_factory.mktemp("pools") / "runs.db", pools=POOLS) as running:
        yield running


@pytest.fixture
def heavy(scripts: dict[str, Script]) -> ScriptedBackend:
    found = scripts["heavy"].backend
    assert found is not None
    return found


def begun(page: Any, server: Server, definition: str) -> str:
    answer = page.request.post(f"{server.url}/api/v1/runs", data={"definition": definition})
    return str(answer.json()["run"])


def given(heavy: ScriptedBackend, step: str, count: int = 1) -> list[str]:
    """The tickets of a step that the cluster has."""
    found: list[str] = []

    def there() -> bool:
        found[:] = [one for one in list(heavy.tickets) if one.startswith(f"{step}-")]
        return len(found) >= count

    assert eventually(there)
    return found


def cancel(page: Any, server: Server, run: str) -> None:
    page.request.post(f"{server.url}/api/v1/runs/{run}/cancel", data={})


def test_each_cluster_says_whether_it_can_be_used_and_why_not(page: Any, server: Server) -> None:
    page.goto("/runs")
    page.get_by_role("link", name="Pools").click()
    heavy, far, gpu = (page.locator(f"[data-key=pool-{name}]") for name in ("heavy", "far", "gpu"))
    heavy.locator("h2 .badge", has_text="open").wait_for()
    assert "dask at 10.0.0.5:8786 · Dask 1.2.3" in heavy.inner_text()
    link = heavy.get_by_role("link", name="Dashboard of Dask")
    assert link.get_attribute("href") == "http://127.0.0.1:8787/status"
    far.locator("h2 .badge", has_text="away").wait_for()
    assert "dask at hpc.internal:8786 (tls)" in far.inner_text()
    assert NASTY in far.get_by_role("alert").inner_text()
    assert "use up no attempt" in far.inner_text()
    gpu.locator("h2 .badge", has_text="unfit").wait_for()
    assert "node-3 has Python 3.12.4" in gpu.get_by_role("alert").inner_text()
    assert page.evaluate("window.hacked") is None


def test_a_job_is_in_the_queue_of_the_cluster_until_a_worker_has_begun_it(
    page: Any, server: Server, heavy: ScriptedBackend
) -> None:
    run = begun(page, server, STEP)
    (ticket,) = given(heavy, "render")
    page.goto(f"/runs/{run}")
    said = page.locator(".waits li", has_text="render")
    assert f"a worker of dask at 10.0.0.5:8786: task {ticket} is in its queue" in said.inner_text()
    page.goto("/pools")
    row = page.locator("[data-key=pool-heavy] tr", has_text=ticket)
    assert "in the queue" in row.inner_text()
    heavy.begin_soon(ticket, WORKER)
    row.locator("td", has_text=WORKER).wait_for()  # the page follows by itself
    row.get_by_role("link", name=run).click()
    assert f"on dask at 10.0.0.5:8786, worker {WORKER}, task {ticket}" in said.inner_text()
    assert said.get_by_role("link", name="Dashboard of Dask").is_visible()
    cancel(page, server, run)
    heavy.tell_soon(Lost(ticket, "stopped", worker=False))  # or it would be there for 20 s more


def test_the_page_of_a_loop_says_where_its_shards_are(
    plain: PlainPage, server: Server, heavy: ScriptedBackend
) -> None:
    run = begun(plain, server, LOOP)
    tickets = given(heavy, "frames", 8)  # all that the window lets out
    heavy.begin_soon(tickets[0], WORKER)
    said = plain.locator("[data-cluster]")

    def shown() -> bool:
        plain.goto(f"/runs/{run}/loops/frames")
        return "1 at work there, 7 in its queue" in said.inner_text()

    assert eventually(shown)
    assert "Its shards are for dask at 10.0.0.5:8786" in said.inner_text()
    said.get_by_role("link", name="heavy").click()
    plain.locator("[data-key=pool-heavy] summary", has_text="8 jobs there").wait_for()
    cancel(plain, server, run)
    heavy.tell_soon(*(Lost(one, "stopped", worker=False) for one in tickets))


def test_a_run_that_waits_for_a_cluster_that_is_away_says_so(
    plain: PlainPage, server: Server
) -> None:
    run = begun(plain, server, WAITS)
    plain.goto(f"/runs/{run}")
    said = plain.locator(".waits li", has_text="far_off").inner_text()
    assert "waits for dask at hpc.internal:8786 (tls), away for" in said
    assert "anabranch worker" not in said  # nobody could serve it so
    cancel(plain, server, run)


def test_shards_that_wait_for_the_same_are_one_line(page: Any, server: Server) -> None:
    run = begun(page, server, LOOP.replace("heavy", "far"))
    page.goto(f"/runs/{run}")
    said = page.locator(".waits li", has_text="hpc.internal")
    said.filter(has_text="frames and 7 more").wait_for()  # of the eight that the window lets out
    assert said.count() == 1
    cancel(page, server, run)


def test_the_page_follows_a_cluster_that_goes_and_comes_back(
    page: Any, server: Server, heavy: ScriptedBackend
) -> None:
    page.goto("/pools")
    badge = page.locator("[data-key=pool-heavy] h2 .badge")
    heavy.tell_soon(WentAway("the connection broke"))
    badge.filter(has_text="away").wait_for()
    assert "the connection broke" in page.locator("[data-key=pool-heavy]").inner_text()
    heavy.tell_soon(CameBack())
    badge.filter(has_text="open").wait_for()


def test_where_no_run_used_a_pool_the_link_is_hidden(
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    with served(tmp_path_factory.mktemp("alone") / "runs.db") as alone:
        plain = PlainPage(alone.url)
        plain.goto("/runs")
        assert plain.get_by_role("link", name="Pools").count() == 0
        plain.goto("/pools")
        assert "has no compute cluster" in plain.locator(".empty").inner_text()
        plain.request.post(f"{alone.url}/api/v1/runs", data={"definition": WAITS})
        plain.goto("/runs")
        plain.get_by_role("link", name="Pools").click()
        card = plain.locator("[data-key=pool-far]")
        assert "anabranch worker --pool far" in card.inner_text()
