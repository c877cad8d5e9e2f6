"""An error that no code foresaw fails its attempt: counted, backed off, with its reason."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

import anabranch
from anabranch import parts
from anabranch.kernel import events as e
from anabranch.kernel import jobs
from anabranch.runtime.jobs import executor
from anabranch.settings import Settings
from anabranch.store.memory.store import MemoryStore
from anabranch.work.kinds.callables import Toolbox
from anabranch.work.pipeline.run import PipelineRun
from anabranch.work.secrets import keyring
from runtime.support import Doing, engine, log_of, playbook, start, step
from surfaces.worker.support import SECONDS, serving, working
from surfaces.worker.support import run as run_async

HEAD = "apiVersion: noetl.io/v2\nkind: Playbook\nmetadata: {name: odd}\n"
KEYS = "keychain: [{name: pw, kind: static, value: sesame-open}]\n"
EVENTS_MAX = 60  # of a run that fails; repeated at once and for ever it has thousands in a second

ORCHESTRATION = """{
 "id": "o", "structure": {"A": {"rule": "r"}}
}"""
SOLICIT = {
    kind: json.dumps(
        {
            "workflow_id": "w",
            "plan": {
                "steps": [
                    {
                        "step_id": "ask",
                        "service_type": "x",
                        "target": target,
                        "fan_in": {"policy": "all"},
                        "timing": {"timeout": "PT30S"},
                    }
                ]
            },
        },
        indent=1,
    )
    for kind, target in {
        "dispatch": {"resolve": "static", "participants": ["a", "b"]},
        "targets": {"resolve": "task_type", "task_type": "x"},
    }.items()
}

ODD: dict[str, BaseException] = {
    "overflow": OverflowError("cannot convert float infinity to integer"),
    "deep": RecursionError("maximum recursion depth exceeded"),
    "nul": ValueError("embedded null byte"),
    "digits": ValueError("Exceeds the limit (4300 digits) for integer string conversion"),
    "memory": MemoryError(),
}


@pytest.fixture(autouse=True)
def no_floor(monkeypatch: pytest.MonkeyPatch) -> None:
    """Retries of such errors wait a second at least; one test looks at that, the others do not."""
    monkeypatch.setattr(jobs, "INTERNAL_DELAY_MS", 1)


def ended(body: str, tmp_path: Path, toolbox: Toolbox | None = None, **more: Any) -> Any:
    """What the run came to, and the names of its events."""

    async def scenario() -> tuple[dict[str, Any], Counter[str]]:
        settings = Settings(store=str(tmp_path / "odd.db"))
        async with anabranch.Engine(
            settings=settings, toolbox=toolbox or Toolbox(), **more
        ) as engine:
            run = await engine.start(body)
            async with asyncio.timeout(SECONDS):
                await engine.wait(run)
            names = Counter([record.kind async for record in engine.events(run)])
            return engine.read.show(run), names

    found, names = asyncio.run(scenario())
    assert sum(names.values()) < EVENTS_MAX, names
    return found, names


def broken_keyring(monkeypatch: pytest.MonkeyPatch, error: BaseException, times: int = -1) -> None:
    """Secrets that cannot be had: the next so many times, or always."""
    real, left = keyring.keyring_of, [times]

    async def keyring_of(*given: Any) -> Any:
        left[0] -= 1
        if left[0] == -1:
            return await real(*given)
        raise error

    monkeypatch.setattr(parts, "keyring_of", keyring_of)


@pytest.mark.parametrize("odd", ODD)
def test_an_error_of_preparation_fails_the_step_with_its_reason(
    odd: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    broken_keyring(monkeypatch, ODD[odd])
    body = HEAD + KEYS + "workflow: [{step: s, tool: {kind: noop, result: '{{ keychain.pw }}'}}]"
    found, _ = ended(body, tmp_path)
    (fault,) = found["failures"]
    assert found["status"] == "failed"
    assert fault["kind"] == "internal"
    assert type(ODD[odd]).__name__ in fault["message"]


def test_it_counts_as_an_attempt_and_may_heal(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    broken_keyring(monkeypatch, ODD["nul"], times=2)
    body = f"""{HEAD}{KEYS}workflow:
  - step: s
    spec: {{retry: {{attempts: 3, delay: 1ms}}}}
    tool: {{kind: noop, result: fine}}
"""
    found, names = ended(body, tmp_path)
    assert (found["status"], names["job.retrying"], names["job.lost"]) == ("completed", 2, 0)


def test_no_policy_repeats_it_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(jobs, "INTERNAL_DELAY_MS", 86_400_000)
    broken_keyring(monkeypatch, ODD["deep"])
    body = f"""{HEAD}{KEYS}workflow:
  - step: s
    spec: {{retry: {{attempts: 10000, delay: 0s}}}}
    tool: {{kind: noop, result: fine}}
"""

    async def scenario() -> None:
        settings = Settings(store=str(tmp_path / "odd.db"))
        async with anabranch.Engine(settings=settings, toolbox=Toolbox()) as engine:
            run = await engine.start(body)
            async for record in engine.events(run):
                if record.kind == "job.retrying":
                    waits = record.fields["due"] - record.at
                    assert waits >= 86_000_000
                    return

    asyncio.run(scenario())


def test_work_that_cancels_itself_has_failed() -> None:
    async def odd(_task: Any) -> Any:
        raise asyncio.CancelledError

    async def scenario() -> None:
        store = MemoryStore()
        async with engine(store, {"odd": Doing(odd)}) as made:
            run = await start(made, playbook(step("s", "odd")), ("odd",))
            await made.wait(run)
        events = log_of(store, run)
        (reported,) = [event for event in events if isinstance(event, e.JobReported)]
        assert reported.answer.fault is not None
        assert reported.answer.fault.message == "the work cancelled itself"
        assert not any(isinstance(event, e.JobLost) for event in events)

    run_async(scenario())


def test_items_of_a_loop_fail_one_by_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = PipelineRun._prepared

    def prepared(self: Any, spec: Any, attempt: int, names: Any) -> Any:
        if names["local"]["iter"]["item"] == 2:
            raise ODD["nul"]
        return real(self, spec, attempt, names)

    monkeypatch.setattr(PipelineRun, "_prepared", prepared)
    body = f"""{HEAD}workflow:
  - step: s
    loop: {{in: [1, 2, 3], spec: {{policy: {{failure: {{mode: best_effort}}}}}}}}
    tool: [{{a: {{kind: noop}}}}, {{b: {{kind: noop, result: "{{{{ iter.item }}}}"}}}}]
"""
    found, _ = ended(body, tmp_path)
    (loop,) = found["loops"]
    assert (loop["succeeded"], loop["failed"]) == (2, 1)


@pytest.mark.parametrize(
    "tool",
    [
        "[{kind: noop, spec: {policy: {before: {kind: noop}}}}]",
        "[{kind: noop, spec: {policy: {after: {kind: noop}}}}]",
        "[{kind: noop}, {kind: noop, result: 1}]",
    ],
)
def test_tasks_and_hooks_of_a_pipeline(
    tool: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def prepared(*_given: Any) -> Any:
        raise ODD["deep"]

    monkeypatch.setattr(PipelineRun, "_prepared", prepared)
    found, _ = ended(f"{HEAD}workflow: [{{step: s, tool: {tool}}}]", tmp_path)
    (fault,) = found["failures"]
    assert fault["kind"] == "internal"
    assert "it nests too deep" in fault["message"]


def test_an_answer_that_cannot_be_recorded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from anabranch.work.secrets.redaction import Redactor

    def answer(*_given: Any) -> Any:
        raise ODD["digits"]

    monkeypatch.setattr(Redactor, "answer", answer)
    body = HEAD + KEYS + "workflow: [{step: s, tool: {kind: noop, result: '{{ keychain.pw }}'}}]"
    found, _ = ended(body, tmp_path)
    (fault,) = found["failures"]
    assert (fault["kind"], fault["message"]) == (
        "internal",
        "the answer cannot be recorded: ValueError",
    )


NUL = '"folder/a\\0b"'


@pytest.mark.parametrize(
    "step",
    [
        f"{{step: s, tool: {{kind: playbook, path: {NUL}}}}}",
        f"{{step: s, tool: {{kind: python, script: {NUL}}}}}",
        f"{{step: s, tool: {{kind: artifact, action: get, uri: {NUL}}}}}",
        f"{{step: s, tool: {{kind: secrets, provider: file, path: {NUL}}}}}",
        f"{{step: s, tool: {{kind: shell, command: 'true', cwd: {NUL}}}}}",
        f"{{step: s, loop: {{in: {{jsonl: {NUL}}}}}, tool: {{kind: noop}}}}",
        f"{{step: s, loop: {{in: {{listing: {NUL}}}}}, tool: {{kind: noop}}}}",
    ],
)
def test_a_path_with_a_nul(step: str, tmp_path: Path) -> None:
    found, names = ended(f"{HEAD}workflow: [{step}]", tmp_path)
    (fault,) = found["failures"]
    assert found["status"] == "failed"
    assert names["job.lost"] == 0
    assert fault["message"]


def test_a_keychain_file_whose_name_has_a_nul(tmp_path: Path) -> None:
    keys = f"keychain: [{{name: pw, kind: file, path: {NUL}}}]\n"
    step = "{step: s, tool: {kind: noop, result: '{{ keychain.pw }}'}}"
    found, names = ended(f"{HEAD}{keys}workflow: [{step}]", tmp_path)
    assert found["status"] == "failed"
    assert names["job.lost"] == 0
    assert names["job.started"] < 5


@pytest.mark.parametrize("content", ["[" * 200_000, '{"a": 1e3000}', '{"a": %s}' % ("9" * 6000)])
def test_a_keychain_file_that_no_reader_likes(content: str, tmp_path: Path) -> None:
    (tmp_path / "odd.json").write_text(content)
    body = f"""{HEAD}keychain: [{{name: pw, kind: file, path: "{tmp_path}/odd.json", format: json}}]
workflow: [{{step: s, tool: {{kind: noop, result: "{{{{ keychain.pw.a }}}}"}}}}]
"""
    found, names = ended(body, tmp_path)
    assert found["status"] in ("completed", "failed")
    assert names["job.lost"] == 0


@pytest.mark.parametrize("kind", ["dispatch", "targets", "rule"])
def test_participants_and_rules(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Work that is prepared and cannot be: whoever is asked, the run comes to an end."""

    def odd(*_given: Any, **_named: Any) -> Any:
        raise ODD["deep"]

    monkeypatch.setattr(executor, "prepare_task", odd)
    text = ORCHESTRATION if kind == "rule" else SOLICIT[kind]

    async def scenario() -> None:
        store = MemoryStore()
        async with engine(store, {kind: Doing()}) as made:
            run = await start(made, text)
            await made.wait(run)
        events = log_of(store, run)
        assert len(events) < EVENTS_MAX
        assert not any(isinstance(event, e.JobLost) for event in events)
        faults = [one.answer.fault for one in events if isinstance(one, e.JobReported)]
        assert faults
        assert all(fault is not None and fault.kind == "internal" for fault in faults)

    run_async(scenario())


@pytest.mark.parametrize("place", ["worker", "claim"])
def test_a_job_that_a_worker_cannot_prepare(place: str, monkeypatch: pytest.MonkeyPatch) -> None:
    from anabranch.operations.workers import claims
    from anabranch.pools import task_environment

    def odd(*_given: Any, **_named: Any) -> Any:
        raise ODD["nul"]

    if place == "worker":
        monkeypatch.setattr(task_environment, "from_wire", odd)
    else:
        monkeypatch.setattr(claims, "to_wire", odd)

    async def scenario() -> None:
        async with serving() as server:
            body = f"{HEAD}workflow: [{{step: s, spec: {{pool: gpu}}, tool: {{kind: noop}}}}]"
            run = await server.parts.verbs.start(body)
            async with working(server.url):
                await server.parts.verbs.wait(run)
            found = server.parts.verbs.read.show(run)
            (fault,) = found["failures"]
            assert fault["kind"] == "internal"
            assert "embedded null byte" in fault["message"]

    run_async(scenario())


@pytest.mark.parametrize("life", ["1e306", "1" + "0" * 400, "1e3000"])
def test_a_token_that_lives_for_ever(life: str, tmp_path: Path) -> None:
    """What made a run repeat its step for ever: the answer of a token endpoint."""
    from aiohttp import web

    from work.support import server

    async def token(_request: web.BaseRequest) -> web.StreamResponse:
        text = f'{{"access_token": "sesame-open", "expires_in": {life}}}'
        return web.Response(text=text, content_type="application/json")

    async def scenario() -> str:
        async with server(token) as url:
            entry = f'{{name: idp, kind: oauth2, endpoint: "{url}", data: {{a: b}}}}'
            body = f"""{HEAD}keychain: [{entry}]
workflow: [{{step: s, tool: {{kind: noop, result: "{{{{ keychain.idp.token | length }}}}"}}}}]
"""
            settings = Settings(store=str(tmp_path / "odd.db"))
            async with anabranch.Engine(settings=settings, toolbox=Toolbox()) as engine:
                run = await engine.start(body)
                async with asyncio.timeout(SECONDS):
                    return (await engine.wait(run)).status

    assert asyncio.run(scenario()) in ("completed", "failed")
