"""Workers keep inline work apart as an engine does: no token of theirs, and no kind that is off."""

from __future__ import annotations

import pytest

from anabranch.settings import Settings

from .support import playbook, run, serving, working

SHELL = playbook("""
  - step: far
    spec: {pool: gpu}
    tool: {kind: shell, command: "env"}
""")


def test_a_command_on_a_worker_does_not_get_the_token(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ANABRANCH_TOKEN", "anb_secret")
    monkeypatch.setenv("OTHER_SECRET", "hunter2")

    async def scenario() -> None:
        async with serving() as server, working(server.url):
            name = await server.start(SHELL)
            state = await server.parts.verbs.wait(name)
            assert state.status == "completed"
            shown = server.parts.verbs.read.show(name)
            told = str(shown)
            assert "ANABRANCH_RUN=" in told
            assert "anb_secret" not in told
            assert "hunter2" not in told

    run(scenario())


def test_a_server_without_a_kind_leaves_it_to_a_worker_that_does_it() -> None:
    async def scenario() -> None:
        async with serving(no_inline="shell") as server, working(server.url):
            name = await server.start(SHELL)
            assert (await server.parts.verbs.wait(name)).status == "completed"

    run(scenario())


def test_a_worker_without_a_kind_fails_its_jobs_for_good_and_says_why() -> None:
    async def scenario() -> None:
        off = Settings(no_inline="shell")
        async with serving() as server, working(server.url, settings=off):
            name = await server.start(SHELL)
            state = await server.parts.verbs.wait(name)
            assert state.status == "failed"
            assert "no_inline" in str(server.parts.verbs.read.summary(name, state)["problem"])

    run(scenario())
