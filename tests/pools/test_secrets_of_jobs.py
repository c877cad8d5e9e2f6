"""Secrets on workers: a job is cleaned of what it was given, and of nothing else."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from anabranch.kernel import events as e

from .support import playbook, run, serving, working
from .test_claims import events_of

SECRET = "very-secret-token"
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
