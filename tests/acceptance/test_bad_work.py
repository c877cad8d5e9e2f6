"""Bad input and hostile work, as a playbook meets them: a clear end that `show` names, no flood."""

from __future__ import annotations

import asyncio
import json
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from textwrap import dedent
from typing import Any

import pytest

import anabranch
from anabranch.errors import DefinitionError
from anabranch.settings import Settings
from anabranch.work.kinds.callables import Toolbox
from hangs import HANG_SECONDS

HEAD = "apiVersion: noetl.io/v2\nkind: Playbook\nmetadata: {name: bad}\n"
LOG_MAX = 200_000  # bytes of the log that a failure may cost


def shown(
    body: str, tmp_path: Path, toolbox: Toolbox | None = None, **settings: Any
) -> dict[str, Any]:
    """What `show` says of the run when it is over, after a look at what it left on disk."""
    store = tmp_path / "bad.db"

    async def scenario() -> dict[str, Any]:
        chosen = Settings(store=str(store), **settings)
        box = toolbox if toolbox is not None else Toolbox()
        async with anabranch.Engine(settings=chosen, toolbox=box) as engine:
            run = await engine.start(HEAD + dedent(body))
            async with asyncio.timeout(HANG_SECONDS):
                await engine.wait(run)
            return engine.read.show(run)

    found = asyncio.run(scenario())
    left = sum(file.stat().st_size for file in tmp_path.glob("bad.db*"))
    assert left < LOG_MAX + 4 * 1024 * 1024, f"{left:,} bytes were written"
    return found


def failure(found: dict[str, Any]) -> str:
    """The one failure, as `show` names it: with its step, and as the problem of the run."""
    assert found["status"] == "failed"
    (fault,) = found["failures"]
    assert fault["step"] == "s"
    assert found["problem"]["message"] == fault["message"]
    return str(fault["message"])


# -- collections -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("value", "words"),
    [("5", "not int"), ("text", "not str"), ("null", "not nothing"), ("true", "not bool")],
)
def test_a_collection_that_is_none(value: str, words: str, tmp_path: Path) -> None:
    body = f"""
    workload: {{all: {value}}}
    workflow: [{{step: s, loop: {{in: "{{{{ workload.all }}}}"}}, tool: {{kind: noop}}}}]
    """
    message = failure(shown(body, tmp_path))
    assert "a loop needs a list or the description of a collection" in message
    assert words in message


def lines(path: Path, count: int, bad: int | None = None) -> str:
    rows = [json.dumps({"n": n}) for n in range(count)]
    if bad is not None:
        rows[bad] = "{broken"
    path.write_text("\n".join(rows) + "\n")
    return str(path)


def test_a_collection_that_fails_halfway(tmp_path: Path) -> None:
    path = lines(tmp_path / "rows.jsonl", 50, bad=40)
    body = f"""
    workflow:
      - step: s
        spec: {{fanout: {{shard_size: 5}}}}
        loop: {{in: {{jsonl: "{path}"}}}}
        tool: {{kind: noop}}
    """
    found = shown(body, tmp_path)
    message = failure(found)
    assert "item 40 at byte 390 is not JSON" in message
    (loop,) = found["loops"]
    assert loop["status"] == "failed"
    assert 5 <= loop["succeeded"] <= 40


def test_a_collection_that_changes_between_two_tries(tmp_path: Path) -> None:
    path = tmp_path / "rows.jsonl"
    lines(path, 3)
    box = Toolbox()
    calls: list[int] = []

    @box.tool(name="touchy")
    def touchy(n: int) -> int:
        calls.append(n)
        if len(calls) == 2:
            path.write_text('{"n": 7}\n')
            raise ConnectionError("try again")
        return n

    body = f"""
    workflow:
      - step: s
        spec: {{retry: {{attempts: 3, delay: 0}}, fanout: {{shard_size: 3}}}}
        loop: {{in: {{jsonl: "{path}"}}}}
        tool: {{kind: touchy, args: {{n: "{{{{ item.n }}}}"}}}}
    """
    assert "changed" in failure(shown(body, tmp_path, box))
    assert calls == [0, 1], "the next item waits for the second try of this one"


def test_two_items_of_one_key(tmp_path: Path) -> None:
    body = """
    workflow:
      - step: s
        spec: {fanout: {iter_key: "{{ iter.item.k }}", shard_size: 10}}
        loop: {in: [{k: a}, {k: b}, {k: a}]}
        tool: {kind: noop}
    """
    assert "items 0 and 2 have the same iter_key 'a'" in failure(shown(body, tmp_path))


def test_a_shard_whose_results_are_over_the_limit(tmp_path: Path) -> None:
    body = """
    workflow:
      - step: s
        spec: {fanout: {shard_size: 4}}
        loop: {in: {range: 8}}
        tool: {kind: noop, result: "{{ 'x' * 10000 }}"}
    """
    found = shown(body, tmp_path, result_bytes_max=30_000, inline_bytes_max=1_000)
    message = failure(found)
    assert "over the limit of 30,000" in message
    assert "ANABRANCH_RESULT_BYTES_MAX" in message


@pytest.mark.parametrize(
    "write",
    [
        'set_shared: {total: "{{ item }}"}',
        'set_ctx: {total: {reduce: sum, value: "{{ item }}"}}',
    ],
)
def test_a_reducer_over_something_that_is_no_number(write: str, tmp_path: Path) -> None:
    body = f"""
    workflow:
      - step: s
        spec: {{fanout: {{reducers: {{total: sum}}}}}}
        loop: {{in: [1, apple]}}
        tool: {{kind: noop, {write}}}
    """
    message = failure(shown(body, tmp_path))
    assert "item 1 failed (patch)" in message
    assert "'total': sum cannot combine" in message


def test_nothing_in_flight_is_refused_before_it_runs_and_when_a_template_gives_it(
    tmp_path: Path,
) -> None:
    loop = "{{in: [1], spec: {{mode: parallel, max_in_flight: {}}}}}"
    body = "workflow: [{{step: s, loop: {}, tool: {{kind: noop}}}}]"
    with pytest.raises(DefinitionError, match="the number of items in flight is 0"):
        shown(body.format(loop.format(0)), tmp_path)
    message = failure(shown(body.format(loop.format('"{{ 0 }}"')), tmp_path))
    assert "max_in_flight must be a whole number above zero, not 0" in message


# -- policies --------------------------------------------------------------------------------


def test_a_policy_that_jumps_for_ever(tmp_path: Path) -> None:
    body = """
    workflow:
      - step: s
        tool:
          - {name: a, kind: noop, spec: {policy: {rules: [{else: {then: {do: jump, to: a}}}]}}}
    """
    message = failure(shown(body, tmp_path))
    assert message == "more than 10,000 jumps, the last to task a: this looks endless"


# -- work ------------------------------------------------------------------------------------


def python(code: str, **more: str) -> str:
    spec = f", timeout: {more['timeout']}" if "timeout" in more else ""
    return f"workflow: [{{step: s, tool: {{kind: python, code: {json.dumps(code)}{spec}}}}}]"


@pytest.mark.parametrize(
    ("code", "words"),
    [
        ("import sys; sys.exit(3)", "3"),
        ("import os; os._exit(4)", "4"),
        ("import os, signal; os.kill(os.getpid(), signal.SIGKILL)", "SIGKILL"),
        ("raise SystemExit", "use return instead"),
    ],
)
def test_code_that_ends_its_process(code: str, words: str, tmp_path: Path) -> None:
    assert words in failure(shown(python(code), tmp_path))


def test_code_that_forks_answers_once(tmp_path: Path) -> None:
    code = "import os\nos.fork()\nresult = {'answered': True}"
    found = shown(python(code), tmp_path)
    assert (found["status"], found["result"]) == ("completed", {"answered": True})


def test_code_that_prints_far_more_than_is_kept(tmp_path: Path) -> None:
    code = "line = 'x' * (1 << 20)\nfor _ in range(96): print(line)\nresult = 'done'"
    found = shown(python(code), tmp_path)
    assert (found["status"], found["result"]) == ("completed", "done")


def test_code_that_never_returns_is_explained_while_it_runs_and_ended_in_time(
    tmp_path: Path,
) -> None:
    body = python("while True: pass", timeout="1s")

    async def scenario() -> tuple[list[dict[str, Any]], dict[str, Any]]:
        async with anabranch.Engine(str(tmp_path / "bad.db"), toolbox=Toolbox()) as engine:
            run = await engine.start(HEAD + body)
            waits: list[dict[str, Any]] = []
            while not any(one["what"] == "job" for one in waits):
                await asyncio.sleep(0.005)
                waits = engine.read.explain(run)["waiting"]
            async with asyncio.timeout(HANG_SECONDS):
                await engine.wait(run)
            return waits, engine.read.show(run)

    waits, found = asyncio.run(scenario())
    (job,) = [one for one in waits if one["what"] == "job"]
    assert job["step"] == "s"
    assert job["waits_for"].startswith(("its work", "a free worker"))
    assert "no answer within 1 s" in failure(found)


@contextmanager
def dripping() -> Iterator[str]:
    """A server that sends its answer byte by byte, for ever."""
    stop = threading.Event()
    server = socket.create_server(("127.0.0.1", 0))
    server.settimeout(0.1)

    def serve() -> None:
        while not stop.is_set():
            try:
                client, _ = server.accept()
            except TimeoutError:
                continue
            with client:
                client.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 1000000\r\n\r\n")
                try:
                    while not stop.wait(0.02):
                        client.sendall(b"x")
                except OSError:
                    continue

    thread = threading.Thread(target=serve)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.getsockname()[1]}/"
    finally:
        stop.set()
        thread.join()
        server.close()


def test_a_server_that_drips_is_left_in_time(tmp_path: Path) -> None:
    with dripping() as url:
        body = f'workflow: [{{step: s, tool: {{kind: http, url: "{url}", timeout: 300ms}}}}]'
        message = failure(shown(body, tmp_path))
    assert "within 0.3 s" in message
