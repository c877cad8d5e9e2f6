"""`workers`: who works for a server."""

from __future__ import annotations

from anabranch.runtime.jobs.pool_queues import WorkerReport

from ..server_in_thread import served
from ..support import Here


def test_without_a_server_nobody_knows_the_workers(here: Here) -> None:
    done = here.run("workers")
    assert (done.code, "--server URL" in done.err) == (2, True)


def test_a_server_tells_who_works_for_it(here: Here) -> None:
    with served(here.store) as server:
        at = ("--server", server.url)
        assert "no worker has asked this server" in here.ok("workers", *at).out
        pools, now = server.parts.engine.pools, server.parts.engine.clock.now()
        about = WorkerReport(host="box", pid=7, version="1.2", places=3, kinds=["noop", "shell"])
        pools.saw("gpu", "w1", now - 1000, about)
        pools.saw("eu", "w1", now)
        pools.saw("gpu", "old", now - 10 * 60_000)
        shown = here.ok("workers", *at).out.splitlines()
        assert shown[2].split()[:9] == ["w1", "idle", "eu,gpu", "0", "of", "3", "box", "7", "1.2"]
        assert shown[3].split()[:2] == ["old", "silent"]
        told = here.ok("workers", *at, "--json").json
        assert [one["worker"] for one in told["items"]] == ["w1", "old"]
        assert told["server"]["at_work"] == 0
        assert "can do: noop, shell" in here.ok("workers", "w1", *at).out
        missing = here.run("workers", "w2", *at)
        assert (missing.code, "no worker 'w2'" in missing.err) == (2, True)
