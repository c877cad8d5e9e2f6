"""The page of workers: who works for this server, where, at what, and the queues of the pools."""

from __future__ import annotations

from typing import Any

from anabranch.runtime.jobs.pool_queues import WorkerReport

from .scenes import shot
from .support import NASTY, TWO_FRAMES, TWO_STEPS, Server

POOLED = TWO_STEPS.replace("step: dig\n", "step: dig\n    spec: {pool: gpu}\n")


def asks(server: Server, worker: str, pool: str, about: WorkerReport | None = None) -> None:
    server.call(server.parts.pools.claim(pool, worker, about=about))


def test_a_worker_is_shown_with_where_it_runs_and_what_it_has(page: Any, server: Server) -> None:
    server.parts.engine.pools.add("waiting", "1.0", 1, "slow", server.parts.engine.clock.now())
    about = WorkerReport(host="build-7", pid=4711, version="0.0.1", places=4, kinds=["noop"])
    asks(server, "w-7", "gpu", about)
    asks(server, NASTY[:60], "gpu")
    page.goto("/runs")
    page.get_by_role("link", name="Workers").click()
    row = page.locator('tr[data-worker="w-7"]')
    for words in ("idle", "gpu", "0 of 4", "build-7", "4711", "0.0.1", "not ours", "noop"):
        assert words in row.inner_text()
    assert page.locator("#own-work").inner_text().startswith("This server")
    queue = page.locator('tr[data-pool="slow"]')
    assert "no worker" in queue.inner_text()
    assert page.evaluate("window.hacked") is None
    shot(page, "workers")


def test_the_page_follows_a_worker_that_comes(page: Any, server: Server) -> None:
    page.goto("/workers")
    asks(server, "late-comer", "gpu")
    page.locator('tr[data-worker="late-comer"]').wait_for()


def test_it_fits_a_telephone(page: Any, server: Server) -> None:
    asks(server, "w" * 60, "gpu", WorkerReport(host="h" * 60, kinds=["noop", "k" * 50]))
    page.set_viewport_size({"width": 400, "height": 800})
    page.goto("/workers")
    for scheme in ("light", "dark"):
        page.emulate_media(color_scheme=scheme)
        page.evaluate(TWO_FRAMES)
        assert page.evaluate("document.documentElement.scrollWidth") <= 400, scheme
