"""What a worker may read and write beside its reports: what its jobs see, and no secret."""

from __future__ import annotations

import asyncio
import gzip
import hashlib
import io
import json
import logging
import time
from pathlib import Path
from typing import Any

import pytest

from anabranch.kernel import events as e
from anabranch.operations.workers import job_data
from anabranch.runtime.live_run import history
from anabranch.work.values import json_size
from surfaces.worker.support import ONE, Server, playbook, run, serving, until, working

LARGE = playbook("""
  - step: make
    tool: {kind: python, args: {c: "{{ workload.c }}"}, code: "result = {'text': c * 100000}"}
    next: {arcs: [{step: far}]}
  - step: far
    spec: {pool: gpu}
    tool: {kind: noop, result: "{{ make.text | length }}"}
""")


async def claim_one(server: Server, text: str, **given: Any) -> dict[str, Any]:
    name = await server.start(text, **given)
    claimed = await server.claim(wait_seconds=20)
    (task,) = claimed["tasks"]
    assert task["run"] == name
    return {**task, "shared": claimed["runs"][name]}


async def fetch(server: Server, task: Any, sha256: str) -> tuple[int, bytes]:
    async with server.session.get(server.api + server.job(task, f"payloads/{sha256}")) as response:
        return response.status, await response.read()


async def put(server: Server, task: Any, content: bytes) -> tuple[int, Any]:
    where = server.api + server.job(task, "payloads")
    async with server.session.post(where, data=io.BytesIO(content)) as response:
        return response.status, await response.json(content_type=None)


def hash_in(task: Any) -> str:
    return str(task["shared"]["results"]["make"]["_ref"]["ref"].rpartition(":")[2])


def test_a_worker_reads_the_payloads_of_the_run_it_works_for_and_no_others() -> None:
    async def scenario() -> None:
        async with serving() as server:
            mine = await claim_one(server, LARGE, c="a")
            other = await claim_one(server, LARGE, c="b")
            status, content = await fetch(server, mine, hash_in(mine))
            assert (status, len(json.loads(content)["text"])) == (200, 100_000)
            status, content = await fetch(server, mine, hash_in(other))
            assert (status, json.loads(content)["code"]) == (410, "payload_gone")
            status, content = await fetch(server, {**mine, "worker": "w2"}, hash_in(mine))
            assert (status, json.loads(content)["code"]) == (409, "not_your_job")
            await server.good(mine, "report", {"result": 1})
            assert (await fetch(server, mine, hash_in(mine)))[0] == 409

    run(scenario())


def test_a_payload_that_the_values_of_a_job_name_is_one_of_its_own() -> None:
    text = playbook("""
  - step: far
    spec: {pool: gpu}
    tool: {kind: artifact, uri: "{{ workload.place }}"}
""")

    async def scenario() -> None:
        async with serving() as server:
            made = await claim_one(server, LARGE, c="a")
            place = f"anabranch:sha256:{hash_in(made)}"
            task = await claim_one(server, text, place=place)
            assert (await fetch(server, task, hash_in(made)))[0] == 200

    run(scenario())


def test_results_of_loops_are_given_to_jobs_that_know_of_them() -> None:
    text = playbook("""
  - step: each
    spec: {loop_mode: fanout, fanout: {shard_size: 5}}
    loop: {in: {range: 12}, iterator: n}
    tool: {kind: noop, result: "{{ iter.n }}"}
    next: {arcs: [{step: far}]}
  - {step: far, spec: {pool: gpu}, tool: {kind: noop}}
""")

    async def scenario() -> None:
        async with serving() as server:
            task = await claim_one(server, text)
            other = await claim_one(server, ONE)
            ref = task["shared"]["results"]["each"]["refs"]
            path = f"{server.job(task, 'results')}&ref={ref}"
            status, page = await server.ask("GET", f"{path}&first=4&stop=7")
            assert (status, page) == (200, {"total": 12, "first": 4, "results": [4, 5, 6]})
            assert (await server.ask("GET", f"{path}&first=99"))[1]["results"] == []
            status, answer = await server.ask("GET", f"{server.job(other, 'results')}&ref={ref}")
            assert (status, answer["code"]) == (404, "no_loop")
            for wrong in ("", "&ref=nonsense", f"&ref={ref}&first=x", f"&ref={ref}9"):
                status, answer = await server.ask("GET", server.job(task, "results") + wrong)
                assert 400 <= status < 500, answer
                assert answer["hint"]

    run(scenario())


def test_a_result_may_be_sent_ahead_as_a_payload_by_any_worker() -> None:
    async def scenario() -> None:
        async with serving(result_bytes_max=30_000_000) as server:
            task = await claim_one(server, ONE)
            content = json.dumps({"text": "x" * 20_000_000}).encode()  # larger than a body may be
            status, kept = await put(server, task, content)
            assert (status, kept["sha256"]) == (200, hashlib.sha256(content).hexdigest())
            await server.good(task, "report", {"payload": kept["sha256"]})
            state = await server.parts.verbs.wait(task["run"])
            assert (
                state.results["far"]["_size_bytes"] == len(content) - 1
            )  # written without a space
            small = await claim_one(server, ONE)
            _, kept = await put(server, small, b"[1, 2]")
            await server.good(small, "report", {"payload": kept["sha256"]})
            assert (await server.parts.verbs.wait(small["run"])).results["far"] == [1, 2]

    run(scenario())


def test_payloads_that_are_no_results_are_refused_and_leave_the_job_where_it_is() -> None:
    async def scenario() -> None:
        async with serving(result_bytes_max=100_000) as server:
            task = await claim_one(server, ONE)
            nowhere = "0" * 64
            for sha256, status, code in ((nowhere, 410, "payload_gone"), ("xyz", 422, "schema")):
                found, answer = await server.say(task, "report", {"payload": sha256})
                assert (found, answer["code"]) == (status, code), answer
                assert answer["hint"]
            both = {"payload": nowhere, "result": 1}
            assert (await server.say(task, "report", both))[0] == 422
            status, answer = await put(server, task, b"x" * 100_001)
            assert (status, answer["code"]) == (413, "too_large")
            assert server.state(task["run"]).jobs["1.0"].phase == "running"
            await server.good(task, "report", {"result": 1})

    run(scenario())


def test_what_is_kept_for_a_worker_is_json_that_the_engine_can_read_later() -> None:
    """By a reference in a result of the worker, in a turn of the engine, when it is too late."""
    most = 100_000
    bomb = gzip.compress(b'"' + b"x" * 100 * most + b'"')
    cases = {
        b"\xff\xfe": "not_json",
        b"{": "not_json",
        b'"\xff"': "not_json",
        b"[" * 50_000: "too_deep",
        b"[" * 500 + b"]" * 500: "too_deep",
        gzip.compress(b"[" * 500 + b"]" * 500): "too_deep",
        gzip.compress(b"[1, 2]")[:-9]: "bad_gzip",
        b"\x1f\x8bnothing": "bad_gzip",
        gzip.compress(b"{"): "not_json",
        bomb: "too_large",
    }

    async def scenario() -> None:
        async with serving(result_bytes_max=most, artifact_bytes=most) as server:
            task = await claim_one(server, ONE)
            for content, code in cases.items():
                status, answer = await put(server, task, content)
                assert (status, answer["code"]) == (422, code), answer
                assert answer["hint"]
                sha256 = hashlib.sha256(content).hexdigest()
                assert server.parts.store.payload(sha256) is None
            packed = gzip.compress(b'{"a": [1, 2]}')
            status, kept = await put(server, task, packed)
            assert (status, kept["sha256"]) == (200, hashlib.sha256(packed).hexdigest())
            async with server.session.get(f"{server.api}/payloads/{kept['sha256']}") as reply:
                assert await reply.json() == {"a": [1, 2]}
            await server.good(task, "report", {"payload": kept["sha256"]})
            assert (await server.parts.verbs.wait(task["run"])).results["far"] == {"a": [1, 2]}

    run(scenario())


def test_what_is_uploaded_is_counted_before_anything_is_built_of_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """64 MB of empty lists are 63 KB once they are packed, and were 7 GB once they were read."""
    many = gzip.compress(b"[" + b"[]," * 1_100_000 + b"[]]")

    def read(_content: bytes) -> Any:
        raise AssertionError("it was read")

    async def scenario() -> None:
        async with serving() as server:
            task = await claim_one(server, ONE)
            with monkeypatch.context() as patched:
                patched.setattr(json_size, "decode", read)
                status, answer = await put(server, task, many)
            assert (status, answer["code"]) == (413, "too_many_values")
            assert answer["hint"]
            assert server.parts.store.payload(hashlib.sha256(many).hexdigest()) is None
            rows = gzip.compress(b"[" + b"[7]," * 300_000 + b"[7]]")  # as a query gives them
            assert (await put(server, task, rows))[0] == 200

    run(scenario())


def test_few_payloads_are_read_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    now, most = 0, 0

    def read(_content: bytes, *_more: Any) -> Any:
        nonlocal now, most
        now += 1
        most = max(most, now)
        time.sleep(0.02)
        now -= 1

    async def scenario() -> None:
        monkeypatch.setattr(job_data, "read_untrusted", read)
        async with serving() as server:
            task = await claim_one(server, ONE)
            await asyncio.gather(*(put(server, task, b"[%d]" % n) for n in range(10)))
        assert most == job_data.READ_AT_ONCE

    run(scenario())


CANARY = "canary-7f3a9c51"
LEAKY = playbook(
    """
  - step: far
    spec: {pool: gpu, retry: {attempts: 2, delay: 0s}}
    tool:
      - name: shown
        kind: python
        args: {key: "{{ keychain.bird }}"}
        code: |
          print("said", key)
          result = {"key": key, "url": "http://x/?k=" + key, "large": [key] * 9000}
        set_ctx: {bird: "{{ outcome.result.key }}"}
      - {name: child, kind: playbook, path: CHILD, wait: true}
      - {name: kept, kind: artifact, action: put, data: "{{ shown.large }}"}
      - name: echo
        kind: shell
        command: "echo $BIRD >&2; exit 3"
        env: {BIRD: "{{ keychain.bird }}"}
        spec: {policy: {rules: [{else: {then: {do: continue}}}]}}
      - {kind: noop, result: ["{{ shown.key }}", "{{ kept.uri }}"]}
    next: {arcs: [{step: each}]}
  - step: each
    spec:
      pool: gpu
      loop_mode: fanout
      fanout: {shard_size: 30, tolerated_failures: 1, reducers: {birds: append}}
    loop: {in: {range: 40}, iterator: n}
    tool:
      kind: python
      args: {key: "{{ keychain.bird }}", n: "{{ iter.n }}"}
      code: |
        import time
        time.sleep(0.02)
        if n == 3: raise ValueError("no " + key)
        result = key
      set_shared: {birds: "{{ outcome.result }}"}
""",
    keychain="[{name: bird, kind: env, variable: BIRD}]",
)


def test_no_secret_of_a_worker_reaches_the_server_its_log_or_any_answer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("BIRD", CANARY)
    caplog.set_level(logging.DEBUG)
    child = tmp_path / "child.yaml"
    child.write_text(playbook("  - {step: only, tool: {kind: noop, result: 1}}\n"))
    said: list[str] = []

    async def scenario() -> None:
        store = tmp_path / "store.db"
        async with serving(store) as server:
            hear = server.parts.engine.listen(lambda news: said.append(str(news.events)))
            name = await server.start(LEAKY.replace("CHILD", str(child)))
            async with working(server.url, lease_seconds=1.0, concurrency=2):
                state = await server.parts.verbs.wait(name)
            hear()
            assert state.results["far"][0] == "***", state.problem
            assert state.ctx["bird"] == "***"
            assert (state.results["each"]["succeeded"], state.results["each"]["failed"]) == (39, 1)
            log = [event for _, event in history(server.parts.store.read(name))]
            assert any(isinstance(event, e.JobProgressed) for event in log), "checkpoints were told"
            for path in ("", "/events?limit=500", "/loops", "/explain"):
                assert CANARY not in str(await server.ask("GET", f"/runs/{name}{path}"))
            uri = state.results["far"][1]
            sha256 = uri.rpartition(":")[2]
            assert CANARY not in str(server.parts.store.payload(sha256))
        await asyncio.to_thread(lambda: None)
        raw = b"".join(file.read_bytes() for file in tmp_path.glob("store.db*"))
        assert CANARY.encode() not in raw

    run(scenario())
    assert CANARY not in "".join(said)
    assert CANARY not in caplog.text


def test_the_server_needs_no_secret_of_its_workers_and_tells_none_it_has(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A definition with a keychain: the inputs are rendered on the worker, from what it has."""
    monkeypatch.setenv("BIRD", CANARY)

    async def scenario() -> None:
        text = playbook(
            "  - {step: far, spec: {pool: gpu}, tool: "
            '{kind: noop, result: "{{ keychain.bird }}"}}\n',
            keychain="[{name: bird, kind: env, variable: BIRD}]",
        )
        async with serving() as server:
            task = await claim_one(server, text)
            source = await server.ask("GET", server.job(task, "definition"))
            assert CANARY not in str([task, source])
            assert "inputs" not in task
            await server.good(task, "release")
            monkeypatch.delenv("BIRD")
            async with working(server.url):
                await until(lambda: server.state(task["run"]).finished)
            problem = server.state(task["run"]).problem
            assert problem is not None
            assert "the environment has no variable BIRD" in problem.message

    run(scenario())
