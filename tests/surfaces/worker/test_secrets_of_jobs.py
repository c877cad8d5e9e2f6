"""Secrets on workers: a job is cleaned of what it was given, and of nothing else."""

from __future__ import annotations

import gzip
import json
import re
import sqlite3
from collections.abc import Awaitable, Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from anabranch.kernel import events as e
from anabranch.operations.logs.log_lines import LogQuery, LogReader
from anabranch.work.values.payloads import decoded
from operations.workers.test_claims import events_of

from .support import Server, playbook, run, serving, until, working

SECRET = "very-secret-token"
Say = Callable[[Server, Any], Awaitable[None]]
KEYCHAIN = "[{name: far_key, kind: env, variable: FAR_TOKEN}]"


@pytest.fixture(autouse=True)
def environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FAR_TOKEN", SECRET)


def test_a_worker_cleans_the_answers_of_jobs_that_were_given_the_secret() -> None:
    text = playbook(
        """
  - step: given
    spec: {pool: gpu}
    tool: {kind: python, args: {key: "{{ keychain.far_key }}"}, code: "result = key.upper()"}
    next: {arcs: [{step: innocent}]}
  - step: innocent
    spec: {pool: gpu}
    tool: {kind: python, code: "result = 'a very-secret-token indeed'"}
""",
        keychain=KEYCHAIN,
    )

    async def scenario() -> None:
        async with serving() as server, working(server.url):
            name = await server.start(text)
            state = await server.parts.verbs.wait(name)
            assert state.results["given"] == "***"
            assert state.results["innocent"] == "a very-secret-token indeed"
            assert state.redacted == {"given": 1}

    run(scenario())


def test_a_child_that_a_worker_begins_is_given_the_secret_and_its_log_is_not(
    tmp_path: Path,
) -> None:
    child = tmp_path / "child.yaml"
    child.write_text(
        playbook("""
  - step: only
    spec: {pool: gpu}
    tool: {kind: python, args: {p: "{{ workload.password }}"}, code: "result = [len(p), p]"}
""")
    )
    text = playbook(
        f"""
  - step: far
    spec: {{pool: gpu}}
    tool:
      kind: playbook
      path: {child}
      args: {{password: "{{{{ keychain.far_key }}}}"}}
      return_step: only
""",
        keychain=KEYCHAIN,
    )

    async def scenario() -> None:
        async with serving() as server, working(server.url):
            name = await server.start(text)
            state = await server.parts.verbs.wait(name)
            assert state.results["far"]["result"] == [len(SECRET), "***"], state.problem
            (head,) = [one for one in server.parts.verbs.read.runs() if one["run"] != name]
            (started,) = events_of(server, head["run"], e.RunStarted)
            assert re.fullmatch(r"[*]{3}1[.][0-9a-f]{16}[*]{3}", started.workload["password"])
            assert list(started.sealed) == ["password"]
            for one in (name, head["run"]):
                assert SECRET not in repr(server.parts.verbs.read.events(one))

    run(scenario())


# -- a worker that cleans nothing itself -----------------------------------------------------


async def in_progress(server: Server, task: Any) -> None:
    await server.good(task, "progress", {"progress": {"note": SECRET}})


async def in_memory(server: Server, task: Any) -> None:
    await server.good(task, "park", {"ticket": f"by {SECRET}", "memory": {"note": SECRET}})


async def in_a_reason(server: Server, task: Any) -> None:
    await server.good(task, "release", {"reason": f"cannot use {SECRET}"})


async def in_an_outcome(server: Server, task: Any) -> None:
    await server.good(task, "report", {"result": SECRET, "outcome": SECRET})


async def in_a_payload(server: Server, task: Any) -> None:
    content = json.dumps({"note": SECRET, "more": "x" * 100_000}).encode()
    path = server.api + server.job(task, "payloads")
    for sent in (gzip.compress(content), content):
        async with server.session.post(path, data=sent) as response:
            kept = (await response.json())["sha256"]
        stored = server.parts.store.payload(kept)
        assert stored is not None
        assert decoded(stored)["more"]
        assert SECRET not in str(decoded(stored))
    await server.good(task, "report", {"payload": kept})


async def in_a_failure(server: Server, task: Any) -> None:
    said = {"kind": SECRET, "message": SECRET, "code": SECRET, "details": {SECRET: SECRET}}
    await server.good(task, "fail", said)


async def in_what_it_prints(server: Server, task: Any) -> None:
    text = f"is {SECRET}"
    piece = {"at": 1_760_000_000_000, "stream": "stdout", "level": "info", "text": text}
    size = len(text) + 1
    batch = {"first_line": 0, "lines": 1, "start": 0, "size": size, "pieces": [piece]}
    await server.good(task, "logs", {"batches": [batch]})
    server.parts.engine.logs.flush()
    (line,) = LogReader(server.parts.store, task["run"], LogQuery()).page(lines=9).items
    assert line.text == "is ***"


SAYINGS = (
    *(in_progress, in_memory, in_a_reason, in_an_outcome, in_a_payload),
    *(in_a_failure, in_what_it_prints),
)


@pytest.mark.parametrize("say", SAYINGS)
def test_nothing_that_a_worker_says_shows_a_sealed_secret(tmp_path: Path, say: Say) -> None:
    child = tmp_path / "child.yaml"
    child.write_text(
        playbook("""
  - step: only
    spec: {pool: gpu}
    tool: {kind: render, p: "{{ workload.password }}"}
""")
    )
    text = playbook(
        f"""
  - step: near
    tool: {{kind: playbook, path: {child}, args: {{password: "{{{{ keychain.far_key }}}}"}}}}
""",
        keychain=KEYCHAIN,
    )

    async def scenario() -> None:
        async with serving() as server:
            await server.start(text)
            (task,) = (await server.claim(wait_seconds=20))["tasks"]
            assert SECRET in task["sealed"].values()
            await say(server, task)
            assert SECRET not in repr(server.parts.verbs.read.events(task["run"]))

    run(scenario())


def test_a_worker_that_marks_nothing_shows_no_sealed_secret_in_a_child(tmp_path: Path) -> None:
    grandchild = tmp_path / "grandchild.yaml"
    grandchild.write_text(
        playbook("""
  - {step: only, spec: {pool: gpu}, tool: {kind: render, p: "{{ workload.password }}"}}
""")
    )
    child = tmp_path / "child.yaml"
    child.write_text(
        playbook(f"""
  - step: only
    spec: {{pool: gpu}}
    tool:
      {{kind: playbook, path: {grandchild}, args: {{password: "{{{{ workload.password }}}}"}}}}
""")
    )
    text = playbook(
        f"""
  - step: near
    tool: {{kind: playbook, path: {child}, args: {{password: "{{{{ keychain.far_key }}}}"}}}}
""",
        keychain=KEYCHAIN,
    )

    async def scenario() -> None:
        async with serving() as server:
            await server.start(text)
            (task,) = (await server.claim(wait_seconds=20))["tasks"]
            body = {"path": str(grandchild), "input": {"password": SECRET}}
            name = f"{task['run']}-{task['job']}"
            status, said = await server.say(task, "children", {**body, "run": name})
            assert status == 200, said
            (inside,) = (await server.claim(wait_seconds=20))["tasks"]
            assert inside["run"] == name
            assert SECRET in inside["sealed"].values()
            assert SECRET not in repr(server.parts.verbs.read.events(name))

    run(scenario())


def test_a_shard_that_cannot_be_read_for_a_worker_shows_no_secret(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The server reads the items of the shard, with the keychain, when a worker claims it."""
    database = tmp_path / f"{SECRET}.db"
    with closing(sqlite3.connect(database)) as made:
        made.executescript("CREATE TABLE t (id INTEGER PRIMARY KEY); INSERT INTO t VALUES (1), (2)")
    monkeypatch.setenv("FAR_TOKEN", str(database))
    text = playbook(
        """
  - step: each
    spec: {pool: gpu, loop_mode: fanout, fanout: {shard_size: 2}}
    loop: {in: {sql: {kind: sqlite, query: select * from t, key: id, auth: base}}, iterator: n}
    tool: {kind: render}
""",
        keychain="[{name: base, kind: env, map: {dsn: FAR_TOKEN}}]",
    )

    async def scenario() -> None:
        async with serving() as server:
            name = await server.start(text)
            await until(lambda: bool(server.parts.engine.pools.waiting("gpu")))
            database.unlink()
            database.mkdir()
            assert (await server.claim())["tasks"] == []
            state = await server.parts.verbs.wait(name)
            assert state.problem is not None
            assert "unable to open" in state.problem.message
            assert SECRET not in repr(server.parts.verbs.read.events(name))

    run(scenario())
