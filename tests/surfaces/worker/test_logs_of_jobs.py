"""What jobs print on workers: seen while they run, once, without secrets, from their holder."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import pytest

from anabranch.operations.logs.batches import clean_batches
from anabranch.operations.logs.log_lines import LogLine, LogQuery, LogReader
from anabranch.runtime import log_writer
from anabranch.surfaces.http.resources import workers
from anabranch.surfaces.worker import log_sender
from hangs import HANG_SECONDS

from .support import ONE, Server, playbook, run, serving, until, working

SECRET = "very-secret-token"


@pytest.fixture(autouse=True)
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """A worker on a busy machine may need more than five seconds for the last lines of a job."""
    monkeypatch.setattr(log_sender, "LAST_SECONDS", HANG_SECONDS)


def lines(server: Server, name: str) -> list[LogLine]:
    server.parts.engine.logs.flush()
    return LogReader(server.parts.store, name, LogQuery()).page(lines=100_000).items


def texts(server: Server, name: str) -> list[str]:
    return [line.text for line in lines(server, name)]


def shell(command: str) -> str:
    return playbook(f"""
  - step: far
    spec: {{pool: gpu}}
    tool: {{kind: shell, command: "{command}"}}
""")


def test_lines_of_a_worker_are_seen_while_its_job_runs(tmp_path: Path) -> None:
    door = tmp_path / "door"
    text = shell(f"echo begun; while [ ! -e {door} ]; do sleep 0.02; done; echo ended >&2")

    async def scenario() -> None:
        async with serving() as server, working(server.url):
            name = await server.start(text)
            await until(lambda: texts(server, name) == ["begun"])
            door.touch()
            await server.parts.verbs.wait(name)
            found = lines(server, name)
            assert [(one.stream, one.text) for one in found] == [
                ("stdout", "begun"),
                ("stderr", "ended"),
            ]
            assert {(one.step, one.attempt) for one in found} == {("far", 1)}

    run(scenario())


def test_the_last_lines_are_there_before_the_report() -> None:
    async def scenario() -> None:
        async with serving() as server, working(server.url):
            name = await server.start(shell("seq 1 5000; exit 3"))
            await server.parts.verbs.wait(name)
            found = texts(server, name)
            assert found[:5000] == [str(n) for n in range(1, 5001)]
            assert found[5000].startswith("shell: the command ended with exit status 3")

    run(scenario())


def test_a_worker_sends_no_secret(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FAR_TOKEN", SECRET)
    text = playbook(
        """
  - step: far
    spec: {pool: gpu}
    tool:
      kind: python
      args: {key: "{{ keychain.far_key }}"}
      code: |
        import sys
        sys.stdout.write(key[:5]); sys.stdout.flush()
        print(key[5:])
        raise ValueError(key)
""",
        keychain="[{name: far_key, kind: env, variable: FAR_TOKEN}]",
    )

    async def scenario() -> None:
        async with serving() as server, working(server.url):
            name = await server.start(text)
            await server.parts.verbs.wait(name)
            found = texts(server, name)
            assert found[0] == "***"
            assert SECRET not in "\n".join(found)

    run(scenario())


BATCH = {
    "first_line": 0,
    "lines": 1,
    "start": 0,
    "size": 6,
    "pieces": [{"at": 5, "stream": "stdout", "level": "info", "text": "hello"}],
}


async def _claimed(server: Server) -> tuple[str, str]:
    name = await server.start(ONE)
    claim = {"worker": "w1", "max": 1, "wait_seconds": 20}
    async with server.session.post(f"{server.url}/api/v1/pools/gpu/claim", json=claim) as answer:
        (task,) = (await answer.json())["tasks"]
    return name, f"{server.url}/api/v1/jobs/{name}/{task['job']}/{task['attempt']}"


async def _said(server: Server, url: str, body: Any) -> tuple[int, str]:
    async with server.session.post(url, json=body) as answer:
        said = await answer.json()
        return answer.status, str(said.get("code", ""))


def test_lines_that_are_sent_twice_are_kept_once() -> None:
    async def scenario() -> None:
        async with serving() as server:
            name, job = await _claimed(server)
            for _ in range(2):
                said = await _said(server, f"{job}/logs?worker=w1", {"batches": [BATCH]})
                assert said == (200, "")
            more = {**BATCH, "first_line": 9, "start": 106}
            await _said(server, f"{job}/logs?worker=w1", {"batches": [BATCH, more]})
            found = lines(server, name)
            assert [one.text for one in found if one.stream == "stdout"] == ["hello", "hello"]
            assert [one.missing for one in found if one.stream == "gap"] == [100]

    run(scenario())


@pytest.mark.parametrize(
    ("change", "status"),
    [
        ({"size": 1}, 422),
        ({"size": 10**9}, 422),
        ({"lines": 7}, 422),
        ({"start": -1}, 422),
        ({"pieces": []}, 422),
        ({"pieces": [{**BATCH["pieces"][0], "level": "loud"}]}, 422),  # type: ignore[index]
        ({"pieces": [{**BATCH["pieces"][0], "stream": "disk"}]}, 422),  # type: ignore[index]
    ],
)
def test_a_batch_that_cannot_be_is_refused_and_changes_nothing(
    change: dict[str, Any], status: int
) -> None:
    async def scenario() -> None:
        async with serving() as server:
            name, job = await _claimed(server)
            body = {"batches": [{**BATCH, **change}]}
            assert (await _said(server, f"{job}/logs?worker=w1", body))[0] == status
            assert lines(server, name) == []

    run(scenario())


def test_only_the_holder_of_a_job_hands_in_its_lines() -> None:
    async def scenario() -> None:
        async with serving() as server:
            name, job = await _claimed(server)
            body = {"batches": [BATCH]}
            assert await _said(server, f"{job}/logs?worker=w2", body) == (409, "not_your_job")
            stale = f"{job.rpartition('/')[0]}/7/logs?worker=w1"
            assert await _said(server, stale, body) == (409, "stale_attempt")
            assert lines(server, name) == []

    run(scenario())


def test_many_pieces_are_cleaned_beside_the_event_loop_and_after_their_job_is_known(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    threads: list[threading.Thread] = []

    def clean(*given: Any) -> Any:
        threads.append(threading.current_thread())
        return clean_batches(*given)

    monkeypatch.setattr(workers, "clean_batches", clean)
    piece = {**BATCH["pieces"][0], "text": "x"}  # type: ignore[index]
    many = {**BATCH, "lines": 2000, "size": 4000, "pieces": [piece] * 2000}

    async def scenario() -> None:
        async with serving() as server:
            name, job = await _claimed(server)
            for whose in ("w2", "w1"):
                await _said(server, f"{job}/logs?worker={whose}", {"batches": [many]})
            (thread,) = threads
            assert thread is not threading.current_thread()
            assert len(texts(server, name)) == 2000

    run(scenario())


def test_escapes_that_a_worker_sends_are_not_kept() -> None:
    async def scenario() -> None:
        async with serving() as server:
            name, job = await _claimed(server)
            piece = {**BATCH["pieces"][0], "text": "\x1b[2Jx\x07"}  # type: ignore[index]
            body = {"batches": [{**BATCH, "size": 50, "pieces": [piece]}]}
            assert (await _said(server, f"{job}/logs?worker=w1", body))[0] == 200
            assert texts(server, name) == ["x\ufffd"]

    run(scenario())


def test_lines_that_the_store_does_not_keep_up_with_are_refused_for_the_moment(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(log_writer, "HANDED_BYTES", 5000)
    door = threading.Event()

    async def scenario() -> None:
        async with serving() as server:
            write = server.parts.store.append_logs

            def append_logs(*rows: Any) -> None:
                assert door.wait(HANG_SECONDS)
                write(*rows)

            monkeypatch.setattr(server.parts.store, "append_logs", append_logs)
            name, job = await _claimed(server)
            url, sent = f"{job}/logs?worker=w1", 0
            try:
                while True:
                    body = {"batches": [{**BATCH, "first_line": sent, "start": 6 * sent}]}
                    async with server.session.post(url, json=body) as answer:
                        if answer.status != 200:
                            assert (answer.status, (await answer.json())["code"]) == (
                                429,
                                "logs_full",
                            )
                            assert int(answer.headers["Retry-After"]) > 0
                            break
                    sent += 1
                    assert sent < 100
            finally:
                door.set()
            assert texts(server, name) == ["hello"] * sent
            assert await _said(server, url, body) == (200, "")
            assert texts(server, name) == ["hello"] * (sent + 1)

    run(scenario())
