"""`anabranch serve` with a pool on a real Dask cluster, killed with many shards out."""

from __future__ import annotations

import json
import os
import urllib.request
from collections import Counter
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from acceptance.log import read_story
from anabranch.kernel import events as e
from free_ports import free_ports
from hangs import HANG_SECONDS
from pools.clusters import TESTS, DaskCluster
from pools.pool_suite import HEAD, TOOLS, lines_of
from surfaces.cli.support import Process, Terminal, beginning, until

pytestmark = [pytest.mark.slow, pytest.mark.soak]

ITEMS, SHARD = 60, 2

#: Items and results over the inline limit: the work asks the server for them and gives it them.
LARGE = f"""{HEAD}
workload: {{file: "", gate: ""}}
workflow:
  - step: make
    tool: {{kind: python, code: "result = ['x' * 20_000 + str(n) for n in range({ITEMS})]"}}
    next: {{arcs: [{{step: each}}]}}
  - step: each
    spec:
      pool: heavy
      loop_mode: fanout
      fanout: {{shard_size: {SHARD}, max_concurrent: 64}}
    loop: {{in: "{{{{ make }}}}", iterator: text}}
    tool:
      - name: held
        kind: hold
        args:
          n: "{{{{ iter.text | replace('x', '') | int }}}}"
          file: "{{{{ workload.file }}}}"
          gate: "{{{{ workload.gate }}}}"
      - {{kind: python, args: {{text: "{{{{ iter.text }}}}"}}, code: "result = text * 5"}}
    next: {{arcs: [{{step: end}}]}}
  - step: end
    tool: {{kind: noop, result: "{{{{ steps.each.succeeded }}}}"}}
"""


class Server:
    """`anabranch serve`, on the same port in each of its lives."""

    def __init__(self, folder: Path, url: str, stack: ExitStack) -> None:
        self.terminal = Terminal(folder)
        self._pool = f"heavy={url}?queue=40"
        self._stack = stack
        (self._port,) = free_ports(1)
        self._api = f"http://127.0.0.1:{self._port}/api/v1"

    def run(self) -> Process:
        out = self._stack.enter_context((self.terminal.folder / "server.log").open("a"))
        paths = os.pathsep.join([str(TESTS), str(self.terminal.folder)])
        words = ("serve", "--port", self._port, "--tools", TOOLS, "--pool", self._pool)
        process = self._stack.enter_context(
            beginning(self.terminal, *words, stdout=out, stderr=out, env={"PYTHONPATH": paths})
        )
        until(lambda: self._answers() or process.poll() is not None)
        assert process.poll() is None, (self.terminal.folder / "server.log").read_text()
        return process

    def _answers(self) -> bool:
        try:
            self.ask("/pools")
        except OSError:
            return False
        return True

    def ask(self, path: str, body: Any = None) -> Any:
        request = urllib.request.Request(
            f"{self._api}{path}",
            data=None if body is None else json.dumps(body).encode(),
            headers={"Content-Type": "application/json"},
        )
        with urllib.request.urlopen(request, timeout=HANG_SECONDS) as response:
            return json.load(response)


def test_a_server_that_is_killed_with_many_shards_out_loses_and_doubles_nothing(
    dask: DaskCluster, tmp_path: Path
) -> None:
    dask.heal()
    file, gate = tmp_path / "lines", tmp_path / "gate"
    with ExitStack() as stack:
        server = Server(tmp_path, dask.url, stack)
        first = server.run()
        given = {"file": str(file), "gate": str(gate)}
        server.ask("/runs", {"definition": LARGE, "run": "mortal", "input": given})
        until(lambda: len(lines_of(file, "began")) == 2)
        first.kill()
        first.wait()
        gate.touch()
        server.run()
        until(lambda: server.ask("/runs/mortal")["status"] not in ("running", "waiting"))
        ended = server.ask("/runs/mortal")
        assert ended["status"] == "completed", ended
        assert ended["result"] == ITEMS
    story = read_story(server.terminal.store, "mortal")
    losses = [one for one in story.events if isinstance(one, e.JobLost)]
    assert len({one.job for one in losses}) > 10, "many shards were out"
    assert not any(one.counted for one in losses)
    closed = Counter(one.job for one in story.events if isinstance(one, e.ShardClosed))
    assert len(closed) == ITEMS // SHARD
    assert set(closed.values()) == {1}
    done = lines_of(file, "did")
    assert {line.n for line in done} == set(range(ITEMS))
    assert len({line.key for line in done}) == ITEMS, "an item has one key, whoever does it"
