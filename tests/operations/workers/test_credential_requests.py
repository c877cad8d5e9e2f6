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


NAMES = ("api", "first", "second", "other", "self", "far", "near", "word")


async def granted(text: str, names: tuple[str, ...] = NAMES, **given: Any) -> set[str]:
    """The credentials that the server gives to the worker of the one job of the pool."""
    async with serving() as server:
        for name in names:
            keep(server, name)
        await server.start(text, **given)
        (job,) = (await server.claim(wait_seconds=30))["tasks"]
        answers = {}
        for name in (*names, "nope"):
            answers[name] = await server.ask("GET", server.job(job, f"credentials/{name}"))
        for status, answer in answers.values():
            assert status == 200 or (status, answer["code"]) == (409, "credential_refused")
        return {name for name, (status, _) in answers.items() if status == 200}


CODE = "code: \"def main(context): return len(context['keychain']['mine'])\""
MINE = "[{name: mine, kind: credential, credential: api}, {name: far, kind: credential}]"
LOOP = "loop: {in: ['{{ workload.half }}lf', '{{ workload.which }}'], iterator: it}"
HTTP = "kind: http, url: 'http://127.0.0.1:1/'"


@pytest.mark.parametrize(
    ("tool", "keychain", "wanted"),
    [
        ('tool: {kind: noop, args: {a: "{{ keychain.api }}"}}', "[]", {"api"}),
        ("tool: {HTTP, auth: api}", "[]", {"api"}),
        ("tool: {kind: secrets, provider: store, name: api}", "[]", {"api"}),
        ('tool: {HTTP, auth: "{{ keychain.api.token }}"}', "[]", {"api"}),
        ('tool: {HTTP, auth: "{{ workload.which }}"}', "[]", {"first"}),
        ('tool: {HTTP, auth: {credential: "{{ workload.which }}"}}', "[]", {"first"}),
        ('tool: {HTTP, auth: "{{ workload.half }}cond"}', "[]", {"second"}),
        (
            'tool: {kind: secrets, provider: store, secret_name: "{{ workload.which }}"}',
            "[]",
            {"first"},
        ),
        ('tool: {kind: noop, args: {a: "{{ keychain[ctx.which].token }}"}}', "[]", {"first"}),
        # half of the name was made in the run, and the whole stands nowhere
        ('tool: {HTTP, auth: "{{ ctx.half }}cond"}', "[]", set()),
        # what only the worker knows
        (
            'tool: [{name: x, kind: noop, result: word}, {name: y, HTTP, auth: "{{ x }}"}]',
            "[]",
            set(),
        ),
        # code looks at the entries that it names, and at no credential of another name
        ("tool: {kind: python, CODE}", MINE, {"api"}),
        ("tool: {kind: python, code: 'result = 1'}", MINE, set()),
        # an entry, and what it is made of
        (
            'tool: {HTTP, auth: "{{ keychain[workload.entry] }}"}',
            "[{name: base, kind: credential, credential: api}, {name: mine, kind: bearer, "
            'token: "{{ keychain.base.token }}"}, {name: far, kind: credential}]',
            {"api"},
        ),
        # items of a loop
        ('LOOP, tool: {HTTP, auth: "{{ iter.it }}"}', "[]", {"self"}),
    ],
)
def test_a_worker_gets_no_credential_that_its_task_does_not_look_up(
    tool: str, keychain: str, wanted: set[str]
) -> None:
    """Whatever stands as a word in the input, or as the name of a step."""
    for word, text in (("LOOP", LOOP), ("HTTP", HTTP), ("CODE", CODE)):
        tool = tool.replace(word, text)
    definition = playbook(
        f"""
  - step: far
    spec: {{pool: gpu}}
    {tool.replace(", tool:", chr(10) + "    tool:")}
    next: {{arcs: [{{step: near}}]}}
  - step: near
    tool: {{kind: noop, args: {{a: "{{{{ keychain.other }}}}"}}}}
""",
        keychain=keychain,
        workload="{which: first, half: se, entry: mine, note: the last word of api far near}",
    )
    assert run(granted(definition)) == wanted


def test_a_worker_does_not_say_which_credential_a_later_task_looks_up() -> None:
    """What the context of a run holds may be of a worker; the name of a step helps nobody."""
    text = playbook("""
  - step: first
    spec: {pool: gpu}
    tool: {kind: noop}
    set: {ctx.which: "{{ first }}"}
    next: {arcs: [{step: far}]}
  - step: far
    spec: {pool: gpu}
    tool: {kind: noop, args: {a: "{{ keychain[ctx.which].token }}"}}
""")

    async def scenario(reported: str) -> None:
        async with serving() as server:
            for name in ("api", "far"):
                keep(server, name)
            await server.start(text)
            (job,) = (await server.claim(wait_seconds=30))["tasks"]
            await server.good(job, "report", {"result": reported})
            (job,) = (await server.claim(wait_seconds=30))["tasks"]
            assert job["step"] == "far"
            status, answer = await server.ask("GET", server.job(job, f"credentials/{reported}"))
            assert (status, answer["code"]) == (409, "credential_refused")

    run(scenario("api"))
    run(scenario("far"))


def test_only_the_worker_that_has_the_job_gets_its_credential() -> None:
    text = playbook("""
  - step: far
    spec: {pool: gpu}
    tool: {kind: noop, args: {a: "{{ keychain.api }}"}}
""")

    async def scenario() -> None:
        async with serving() as server:
            keep(server)
            await server.start(text)
            (job,) = (await server.claim(wait_seconds=30))["tasks"]
            status, answer = await server.ask("GET", server.job(job, "credentials/api"))
            assert (status, answer) == (200, {"type": "bearer", "data": {"token": SECRET}})
            job["worker"] = "somebody-else"
            status, answer = await server.ask("GET", server.job(job, "credentials/api"))
            assert (status, answer["code"]) == (409, "not_your_job")

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
