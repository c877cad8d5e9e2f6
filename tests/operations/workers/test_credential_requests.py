"""A worker gets the credentials that its job looks up, from its own stores or from the server."""

from __future__ import annotations

from typing import Any

import pytest

from anabranch.operations.access.credentials import CredentialDraft
from anabranch.settings import Settings
from surfaces.worker.support import Server, playbook, run, serving, working

SECRET = "hunter2-hunter3-hunter4"
TELL = "code: \"result = {'long': len(got), 'said': got}\""


def keep(server: Server, name: str = "api") -> None:
    server.parts.credentials.add(CredentialDraft(name=name, type="bearer", data=SECRET))


async def told(text: str, **settings: Any) -> Any:
    async with serving() as server, working(server.url, settings=Settings(**settings)):
        keep(server)
        keep(server, "other")
        return await server.parts.verbs.wait(await server.start(text))


@pytest.mark.parametrize(
    ("lookup", "keychain"),
    [
        ("keychain.api.token", "[]"),
        ("keychain[workload.which].token", "[]"),
        ("keychain.mine.token", "[{name: mine, kind: credential, credential: api}]"),
    ],
)
def test_a_worker_asks_the_server_for_what_its_task_looks_up(lookup: str, keychain: str) -> None:
    text = playbook(
        f"""
  - step: far
    spec: {{pool: gpu}}
    tool: {{kind: python, args: {{got: "{{{{ {lookup} }}}}"}}, {TELL}}}
""",
        keychain=keychain,
        workload="{which: api}",
    )

    async def scenario() -> None:
        state = await told(text)
        assert state.status == "completed", state.problem
        assert state.results["far"] == {"long": len(SECRET), "said": "***"}

    run(scenario())


def test_the_stores_of_a_worker_come_before_those_of_the_server(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("MINE_API", '{"token": "of-the-worker"}')
    text = playbook(f"""
  - step: far
    spec: {{pool: gpu}}
    tool: {{kind: python, args: {{got: "{{{{ keychain.api.token }}}}"}}, {TELL}}}
""")

    async def scenario() -> None:
        state = await told(text, credential_env_prefix="MINE_")
        assert state.results["far"] == {"long": len("of-the-worker"), "said": "***"}

    run(scenario())


@pytest.mark.parametrize(
    "tool",
    [
        '{kind: noop, args: {a: "{{ keychain.api }}"}}',
        '{kind: http, url: "http://127.0.0.1:1/", auth: "{{ keychain.api.token }}"}',
    ],
)
def test_a_worker_gets_no_credential_that_its_task_does_not_look_up(tool: str) -> None:
    text = playbook(f"""
  - step: far
    spec: {{pool: gpu}}
    tool: {tool}
    next: {{arcs: [{{step: near}}]}}
  - step: near
    tool: {{kind: noop, args: {{a: "{{{{ keychain.other }}}}"}}}}
""")

    async def scenario() -> None:
        async with serving() as server:
            keep(server)
            keep(server, "other")
            await server.start(text)
            (job,) = (await server.claim(wait_seconds=30))["tasks"]
            where = server.job(job, "credentials/NAME")
            status, found = await server.ask("GET", where.replace("NAME", "api"))
            assert (status, found) == (200, {"type": "bearer", "data": {"token": SECRET}})
            for name in ("other", "nope"):
                status, found = await server.ask("GET", where.replace("NAME", name))
                assert (status, found["code"]) == (409, "credential_refused")
            job["worker"] = "somebody-else"
            status, found = await server.ask("GET", server.job(job, "credentials/api"))
            assert (status, found["code"]) == (409, "not_your_job")

    run(scenario())


@pytest.mark.parametrize(("command", "retryable"), [("false", True), ("true", False)])
def test_a_store_of_the_server_that_cannot_be_asked_may_be_asked_again(
    command: str, retryable: bool
) -> None:
    text = playbook("""
  - step: far
    spec: {pool: gpu}
    tool: {kind: noop, args: {a: "{{ keychain.elsewhere }}"}}
""")

    async def scenario() -> None:
        async with (
            serving(credential_command=command) as server,
            working(server.url),
        ):
            run_id = await server.start(text)
            await server.parts.verbs.wait(run_id)
            (failure,) = server.parts.verbs.read.show(run_id)["failures"]
            assert failure.get("retryable", True) is retryable, failure

    run(scenario())
