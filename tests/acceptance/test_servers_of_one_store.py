"""Servers on one PostgreSQL store and a worker, as real processes: one is killed, nothing is lost
and nothing counts twice."""

from __future__ import annotations

import json
import signal
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any

import pytest

from anabranch.kernel import events as e
from anabranch.runtime.live_run import history
from anabranch.store.postgres.store import PostgresStore
from hangs import HANG_SECONDS
from surfaces.cli.support import HEAD, Process, Terminal, beginning, until
from surfaces.worker.cluster import schema_in

pytestmark = pytest.mark.slow

HELD = f"""{HEAD}metadata: {{name: held}}
workflow:
  - step: far
    spec: {{pool: gpu}}
    tool:
      kind: shell
      command: "echo $ANABRANCH_KEY >> done.keys; until [ -e {{{{ workload.go }}}} ]; do sleep 0.05; done"
"""  # noqa: E501


class Cluster:
    """`anabranch serve` several times on one store, and workers."""

    def __init__(self, folder: Path, store: str, stack: ExitStack) -> None:
        self.terminal = Terminal(folder)
        self.address = store
        self._stack = stack
        self._env = {
            "ANABRANCH_STORE": store,
            "ANABRANCH_STORE_PARTITIONS": "8",
            "ANABRANCH_SERVER_LEASE_SECONDS": "5",
        }
        self.store: PostgresStore | None = None

    def _begin(self, log: str, *words: object, **env: str) -> Process:
        out = self._stack.enter_context((self.terminal.folder / log).open("a"))
        return self._stack.enter_context(
            beginning(self.terminal, *words, stdout=out, stderr=out, env=env)
        )

    def serve(self, name: str) -> tuple[Process, str]:
        process = self._begin(f"{name}.log", "serve", "--port", "0", "--json", **self._env)
        until(lambda: '"url"' in self.log(name) or process.poll() is not None)
        assert process.poll() is None, self.log(name)
        line = next(one for one in self.log(name).splitlines() if '"url"' in one)
        return process, json.loads(line)["url"]

    def worker(self, name: str, *servers: str) -> Process:
        words = ("worker", "--server", ",".join(servers), "--pool", "gpu", "--name", name)
        return self._begin(f"{name}.log", *words, "--json")

    def log(self, name: str) -> str:
        return (self.terminal.folder / f"{name}.log").read_text()

    def lines(self, name: str) -> list[str]:
        path = self.terminal.folder / name
        return path.read_text().split() if path.exists() else []

    def shared_out(self, servers: int) -> None:
        """Until each server owns as many partitions as the others."""
        if self.store is None:
            self.store = self._stack.enter_context(closing(PostgresStore(self.address)))
        cluster = self.store.cluster
        share = [8 // servers] * servers
        until(lambda: [one.partitions for one in cluster.servers() if one.alive] == share)

    def start(self, url: str, **given: Any) -> str:
        body = {"definition": HELD, "input": given}
        request = urllib.request.Request(
            f"{url}/api/v1/runs",
            data=json.dumps(body).encode(),
            headers={"Content-Type": "application/json"},
        )
        with urllib.request.urlopen(request, timeout=HANG_SECONDS) as response:
            return str(json.load(response)["run"])

    def wait(self, url: str, run: str) -> str:
        def status() -> str:
            try:
                with urllib.request.urlopen(f"{url}/api/v1/runs/{run}", timeout=30) as response:
                    return str(json.load(response)["status"])
            except (urllib.error.URLError, OSError):
                return "away"

        until(lambda: status() in ("completed", "failed", "cancelled"))
        return status()

    def events(self, run: str, kind: type[e.Event]) -> list[Any]:
        assert self.store is not None
        found = history(self.store.read(run))
        return [event for _, event in found if isinstance(event, kind)]

    def go(self, name: str) -> None:
        (self.terminal.folder / name).touch()


@pytest.fixture
def cluster(tmp_path: Path, postgres: str) -> Iterator[Cluster]:
    with ExitStack() as stack:
        yield Cluster(tmp_path, schema_in(postgres), stack)


def test_the_job_of_a_killed_server_is_reported_to_the_next_owner_and_counts_once(
    cluster: Cluster,
) -> None:
    """The worker was given the address of the server that dies; it goes on with the other."""
    _, at_a = cluster.serve("a")
    b, at_b = cluster.serve("b")
    cluster.shared_out(2)
    worker = cluster.worker("w", at_b)
    held = cluster.start(at_b, go="first")  # a server starts runs in its own partitions
    until(lambda: len(cluster.lines("done.keys")) == 1)
    b.kill()
    b.wait()
    cluster.go("first")
    assert cluster.wait(at_a, held) == "completed"
    assert cluster.lines("done.keys") == [f"{held}/1.0"]  # done once
    assert len(cluster.events(held, e.JobReported)) == 1
    assert cluster.events(held, e.JobLost) == []

    cluster.go("second")
    late = cluster.start(at_a, go="second")
    assert cluster.wait(at_a, late) == "completed"

    _, at_c = cluster.serve("c")  # joins later, and is served without a restart of the worker
    cluster.shared_out(2)
    joined = cluster.start(at_c, go="second")
    assert cluster.wait(at_c, joined) == "completed"
    worker.send_signal(signal.SIGTERM)
    assert worker.wait(HANG_SECONDS) == 0
    last = json.loads(cluster.log("w").splitlines()[-1])
    assert (last["done"], last["failed"], last["void"]) == (3, 0, 0)


def test_the_job_of_a_server_that_stops_in_order_goes_on_at_its_worker(cluster: Cluster) -> None:
    _, at_a = cluster.serve("a")
    b, at_b = cluster.serve("b")
    cluster.shared_out(2)
    worker = cluster.worker("w", at_a)
    held = cluster.start(at_b, go="first")
    until(lambda: len(cluster.lines("done.keys")) == 1)
    b.terminate()
    assert b.wait(HANG_SECONDS) == 0
    cluster.shared_out(1)
    cluster.go("first")
    assert cluster.wait(at_a, held) == "completed"
    assert cluster.lines("done.keys") == [f"{held}/1.0"]
    assert cluster.events(held, e.JobLost) == []
    worker.terminate()
    assert worker.wait(HANG_SECONDS) == 0
