"""A server is killed around the ends of runs: what follows each begins once, and none is lost."""

from __future__ import annotations

import random
import signal
import time
from collections import Counter
from contextlib import closing
from pathlib import Path

from anabranch.store.ports import HeadFilter
from anabranch.store.sqlite.store import SqliteStore
from seeds import seeds

from .test_server_kill_nine import ask, server

PLAYBOOK = """apiVersion: noetl.io/v2
kind: Playbook
metadata: {name: NAME, path: NAME}
workload: {of: ""}
workflow:
  - step: note
    tool: {kind: noop, result: "{{ workload.of }}"}
"""
KILLS = len(seeds(6, least=3))
RUNS = 12  # that are begun before each


def heads(folder: Path, name: str) -> list[tuple[str, str, str]]:
    """(run, the run it follows, status) of a definition."""
    with closing(SqliteStore(folder / "s.db", read_only=True)) as store:
        found = store.heads(HeadFilter(name=name, limit=100_000))
        return [(head.run, head.labels.get("trigger_run", ""), head.status) for head in found]


def add(url: str) -> None:
    texts = [PLAYBOOK.replace("NAME", name) for name in ("first", "second")]
    ask(url, "/catalog", {"definitions": [{"definition": text} for text in texts]})
    trigger = {
        "name": "then",
        "after": {"definition": "first"},
        "path": "second",
        "input": {"of": "{{ run.id }}"},
    }
    ask(url, "/triggers", trigger)


def test_each_finished_run_begins_one_run_however_often_the_server_is_killed(
    tmp_path: Path,
) -> None:
    dice = random.Random(11)
    for number in range(KILLS):
        with server(tmp_path) as (process, url):
            if not number:
                add(url)
            for _ in range(RUNS):
                ask(url, "/runs", {"path": "first"})
            last = (number + 1) * RUNS - 1  # all but one; a busy machine may show us only the last
            before = min(len(heads(tmp_path, "second")), last)
            while len(heads(tmp_path, "second")) <= before:
                time.sleep(dice.random() / 50)  # then at any moment around others
            time.sleep(dice.random() / 10)
            process.send_signal(signal.SIGKILL)
            process.wait()
    with server(tmp_path):
        while len(heads(tmp_path, "second")) < KILLS * RUNS or any(
            status != "completed" for *_, status in heads(tmp_path, "second")
        ):
            time.sleep(0.05)
    first = {run for run, *_ in heads(tmp_path, "first")}
    followed = Counter(of for _, of, _ in heads(tmp_path, "second"))
    assert followed == dict.fromkeys(first, 1)
