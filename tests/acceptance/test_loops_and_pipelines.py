"""Playbooks with loops, pipelines, secrets and children, run by the real engine."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import anabranch
import quick_starts
from anabranch.errors import AnabranchError
from anabranch.store.sqlite.store import SqliteStore
from hangs import HANG_SECONDS
from surfaces.cli.support import until

HEAD = "apiVersion: noetl.io/v2\nkind: Playbook\nmetadata: {name: it}\n"


def command(folder: Path, *arguments: str) -> list[str]:
    return [sys.executable, "-m", "anabranch", *arguments, "--store", str(folder / "it.db")]


def run_json(folder: Path, *arguments: str, **environment: str) -> dict[str, Any]:
    done = quick_starts.run(
        command(folder, *arguments, "--json"),
        text=True,
        env={**os.environ, **environment},
        timeout=HANG_SECONDS,
    )
    found: dict[str, Any] = json.loads(done.stdout)
    return found


SUM = """
workflow:
  - step: each
    spec:
      loop_mode: fanout
      fanout: {shard_size: 500, max_concurrent: 2, reducers: {total: sum}}
    loop: {in: {range: [0, 100000]}, iterator: n}
    tool:
      kind: noop
      result: "{{ iter.n }}"
      spec:
        policy:
          rules:
            - else: {then: {do: continue, set_shared: {total: "{{ outcome.result }}"}}}
    next: {arcs: [{step: report}]}
  - step: report
    tool: {kind: noop, result: "{{ ctx.total }}"}
"""


def events_of(folder: Path, run: str) -> int:
    """How long the log of the run is; asked in this process, for a command takes too long."""
    try:
        store = SqliteStore(folder / "it.db", read_only=True)
    except AnabranchError:
        return 0  # not there yet
    try:
        head = store.head(run)
        return 0 if head is None else head.seq
    finally:
        store.close()


def kill_after(process: quick_starts.Popen[bytes], folder: Path, events: int) -> None:
    until(lambda: events_of(folder, "sum") > events or process.poll() is not None)
    assert process.poll() is None, "it ended before it could be killed"
    process.send_signal(signal.SIGKILL)
    process.wait()


@pytest.mark.slow
def test_killed_in_the_middle_of_a_hundred_thousand_items_the_sum_is_exact(tmp_path: Path) -> None:
    playbook = tmp_path / "sum.yaml"
    playbook.write_text(HEAD + SUM)
    started = command(tmp_path, "run", str(playbook), "--run-id", "sum", "--no-watch")
    process: quick_starts.Popen[bytes] = quick_starts.Popen(
        started, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    recorded = 0
    for _ in range(3):
        kill_after(process, tmp_path, recorded + 40)  # of the eight hundred that its shards make
        recorded = events_of(tmp_path, "sum")
        again = command(tmp_path, "resume", "sum", "--no-watch")
        process = quick_starts.Popen(again, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    process.wait(timeout=HANG_SECONDS)
    shown = quick_starts.run(command(tmp_path, "show", "sum", "--json"), text=True)
    run = json.loads(shown.stdout)
    assert (run["status"], run["result"]) == ("completed", sum(range(100_000)))
    fanin = run["steps"]["each"]["result"]
    assert (fanin["succeeded"], fanin["failed"]) == (100_000, 0)


def test_a_secret_reaches_its_work_and_nothing_else(tmp_path: Path) -> None:
    playbook = tmp_path / "canary.yaml"
    playbook.write_text(
        HEAD
        + """
keychain:
  - {name: api, kind: static, map: {token: "{{ env.CANARY }}"}}
workflow:
  - step: use
    tool: {kind: shell, command: "echo {{ keychain.api.token | sh }}"}
    next: {arcs: [{step: fail}]}
  - step: fail
    tool:
      kind: python
      args: {token: "{{ keychain.api.token }}"}
      code: raise ValueError("the token is " + token)
"""
    )
    canary = "sk-canary-4711-0815"
    run = run_json(tmp_path, "run", str(playbook), CANARY=canary)
    assert run["steps"]["use"]["result"]["stdout"] == "***\n"
    assert run["problem"]["message"].endswith("the token is ***")
    for file in tmp_path.iterdir():
        assert canary.encode() not in file.read_bytes(), f"the canary is in {file.name}"


def test_a_child_run_is_waited_for_without_a_worker(tmp_path: Path) -> None:
    child = tmp_path / "child.yaml"
    child.write_text(
        HEAD + "workflow:\n  - step: one\n    tool: {kind: noop, result: '{{ workload.n }}'}\n"
    )
    parent = f"""
workflow:
  - step: ask
    tool: {{kind: playbook, path: "{child}", args: {{n: 7}}, return_step: one}}
    next: {{arcs: [{{step: use}}]}}
  - step: use
    tool: {{kind: noop, result: "{{{{ ask.result }}}}"}}
"""
    result = anabranch.run(HEAD + parent)
    assert (result.status, result.result) == ("completed", 7)


def test_a_pipeline_retries_jumps_and_keeps_its_results(tmp_path: Path) -> None:
    playbook = """
workflow:
  - step: pages
    tool:
      - name: fetch
        kind: python
        args: {page: "{{ iter.page | default(1) }}"}
        code: "result = {'page': page, 'more': page < 3}"
        spec:
          policy:
            rules:
              - when: "{{ outcome.result.more }}"
                then: {do: jump, to: fetch, set_iter: {page: "{{ outcome.result.page + 1 }}"}}
              - else: {then: {do: continue, set_ctx: {last: "{{ outcome.result.page }}"}}}
      - name: sum_up
        kind: noop
        result: "{{ _prev.page }} pages"
"""
    result = anabranch.run(HEAD + playbook)
    assert (result.status, result.result) == ("completed", "3 pages")


def test_a_redrive_of_a_loop_works_only_on_the_failed_items(tmp_path: Path) -> None:
    playbook = tmp_path / "loop.yaml"
    playbook.write_text(
        HEAD
        + f"""
workflow:
  - step: each
    spec: {{loop_mode: fanout, fanout: {{shard_size: 2, allow_partial: false}}}}
    loop: {{in: "{{{{ [0, 1, 2, 3, 4, 5] }}}}", iterator: n}}
    tool:
      kind: shell
      cwd: "{tmp_path}"
      command: "echo {{{{ iter.n }}}} >> tried; test {{{{ iter.n }}}} != 3 || test -e mended"
"""
    )
    first = run_json(tmp_path, "run", str(playbook))
    assert first["status"] == "failed"
    (tmp_path / "mended").touch()
    (tmp_path / "tried").unlink()
    again = run_json(tmp_path, "redrive", first["run"])
    assert again["status"] == "completed"
    assert (tmp_path / "tried").read_text().split() == ["3"]
