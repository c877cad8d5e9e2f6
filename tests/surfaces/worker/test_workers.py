"""What a worker does with its jobs: the same as the engine would, from another machine."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

from anabranch.errors import InputError
from anabranch.kernel import events as e
from anabranch.kernel import stimuli as s
from anabranch.kernel.values import Answer, failed, succeeded
from anabranch.pools.answers import JobAnswer, worded
from anabranch.pools.remote import server_client
from anabranch.pools.remote.server_services import ServerServices
from anabranch.pools.remote.servers import Servers
from anabranch.pools.task_environment import TaskEnvironment
from anabranch.settings import Settings
from anabranch.surfaces.worker.claimer import Terms
from anabranch.surfaces.worker.worker import Worker
from anabranch.work.kinds.callables import Toolbox
from anabranch.work.port import InlineAnswer, Parked
from hangs import PATIENCE
from operations.workers.test_claims import events_of

from .proxy import bad_network
from .support import LOOP, ONE, playbook, run, serving, until, working

SLOW = playbook("""
  - step: far
    spec: {pool: gpu}
    tool:
      kind: shell
      cmds: ["echo $$ > $PIDFILE; sleep 30"]
      env: {PIDFILE: "{{ workload.file }}"}
""")


async def result_of(text: str, toolbox: Toolbox | None = None, **given: Any) -> Any:
    """What a run comes to whose pooled steps are done by a worker."""
    async with serving() as server, working(server.url, toolbox=toolbox, concurrency=4):
        state = await server.parts.verbs.wait(await server.start(text, **given))
        assert state.status == "completed", state.problem
        return state.results


def test_code_on_a_worker_sees_in_its_context_what_templates_see() -> None:
    text = playbook("""
  - step: fetch
    tool: {kind: noop, result: {rows: [1, 2]}}
    next: {arcs: [{step: far, args: {batch: 3}}]}
  - step: far
    spec: {pool: gpu}
    tool:
      kind: python
      code: |
        def main(fetch, context):
            return [fetch['rows'], context['n'], context['batch'], 'execution_id' in context]
""")

    async def scenario() -> None:
        assert (await result_of(text, n=21))["far"] == [[1, 2], 21, 3, True]

    run(scenario())


def test_a_pipeline_with_rules_and_context_writes_runs_on_a_worker() -> None:
    text = playbook("""
  - step: far
    spec: {pool: gpu}
    tool:
      - {name: one, kind: python, args: {n: "{{ workload.n }}"}, code: "result = n * 2"}
      - name: two
        kind: python
        args: {n: "{{ one }}"}
        code: "result = {'twice': n, 'more': n + 1}"
        spec: {policy: {rules: [{else: {then: {do: continue, set_ctx: {seen: "{{ one }}"}}}}]}}
    next: {arcs: [{step: near}]}
  - step: near
    tool: {kind: noop, result: "{{ [ctx.seen, far.more] }}"}
""")

    async def scenario() -> None:
        assert (await result_of(text, n=21))["near"] == [42, 43]

    run(scenario())


def test_the_worker_resolves_the_keychain_from_its_own_environment_and_sends_no_secret(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("FAR_TOKEN", "very-secret-token")
    keychain = "[{name: far_key, kind: env, variable: FAR_TOKEN}]"
    text = playbook(
        """
  - step: far
    spec: {pool: gpu}
    tool:
      kind: python
      args: {key: "{{ keychain.far_key }}"}
      code: "result = {'long': len(key), 'key': key}"
""",
        keychain=keychain,
    )

    async def scenario() -> None:
        async with serving() as server:
            name = await server.start(text)
            (task,) = (await server.claim())["tasks"]
            assert "inputs" not in task
            assert "very-secret-token" not in str(task)
            await server.good(task, "release")
            async with working(server.url):
                state = await server.parts.verbs.wait(name)
        assert state.results["far"]["long"] == len("very-secret-token")
        assert "very-secret-token" not in str(state.results)

    run(scenario())


def test_large_values_travel_by_their_hash_in_both_directions() -> None:
    text = playbook("""
  - step: make
    tool: {kind: python, code: "result = {'text': 'x' * 200000}"}
    next: {arcs: [{step: far}]}
  - step: far
    spec: {pool: gpu}
    tool:
      kind: python
      args: {text: "{{ make.text }}"}
      code: "result = {'long': len(text), 'twice': text + text}"
    next: {arcs: [{step: back}]}
  - step: back
    tool:
      kind: python
      args: {far: "{{ far }}"}
      code: "result = [far['long'], len(far['twice'])]"
""")

    async def scenario() -> None:
        assert (await result_of(text))["back"] == [200_000, 400_000]

    run(scenario())


def test_the_items_of_a_file_reach_a_worker_that_does_not_have_the_file(tmp_path: Path) -> None:
    path = tmp_path / "rows.jsonl"
    path.write_text("".join(f'{{"n": {n}}}\n' for n in range(500)))
    text = playbook(
        """
  - step: each
    spec: {pool: gpu, loop_mode: fanout, fanout: {shard_size: 50, reducers: {total: sum}}}
    loop: {in: {jsonl: FILE}, iterator: row}
    tool:
      kind: noop
      spec:
        policy:
          rules: [{else: {then: {do: continue, set_shared: {total: "{{ iter.row.n }}"}}}}]
""".replace("FILE", str(path))
    )

    async def scenario() -> None:
        async with serving() as server:
            name = await server.start(text)
            (task, *_) = (await server.claim(wait_seconds=30, max=1))["tasks"]
            assert "source" not in task
            assert task["items"][0] == [0, task["items"][0][1], {"n": 0}]
            await server.good(task, "release")
            async with working(server.url, concurrency=4):
                state = await server.parts.verbs.wait(name)
        assert state.results["each"]["shared"]["total"] == sum(range(500))

    run(scenario())


def test_tools_that_only_the_worker_has_are_its_own_business() -> None:
    toolbox = Toolbox()

    @toolbox.tool("resize")
    def resize(width: int) -> dict[str, int]:
        return {"width": width // 2}

    text = playbook("""
  - step: far
    spec: {pool: gpu}
    tool: {kind: resize, args: {width: 80}}
""")

    async def scenario() -> None:
        async with serving() as server:  # which has no such tool
            name = await server.start(text)
            async with working(server.url, toolbox=toolbox):
                state = await server.parts.verbs.wait(name)
            assert state.results["far"] == {"width": 40}, state.problem
            name = await server.start(text)
            async with working(server.url):  # neither has this one
                state = await server.parts.verbs.wait(name)
            assert state.problem is not None
            assert "--tools MODULE" in state.problem.message

    run(scenario())


def test_a_child_run_of_a_pooled_step_is_begun_by_the_server_and_holds_no_worker(
    tmp_path: Path,
) -> None:
    child = tmp_path / "child.yaml"
    child.write_text(
        playbook('  - {step: only, tool: {kind: noop, result: "{{ workload.n + 1 }}"}}\n')
    )
    text = playbook(f"""
  - step: far
    spec: {{pool: gpu}}
    tool: {{kind: playbook, path: {child}, args: {{n: 4}}, return_step: only}}
""")

    async def scenario() -> None:
        assert (await result_of(text))["far"]["result"] == 5
        async with serving() as server:
            await server.start(ONE)
            (task,) = (await server.claim())["tasks"]
            body = {"path": str(child), "run": "sneaky"}
            assert await server.refused(task, "children", body) == "no_children"

    run(scenario())


def test_a_worker_stops_the_work_of_a_job_that_was_cancelled(tmp_path: Path) -> None:
    async def scenario() -> None:
        file = tmp_path / "pid"
        async with serving() as server, working(server.url, lease_seconds=3.0):
            name = await server.start(SLOW, file=str(file))
            await until(lambda: file.exists() and bool(file.read_text()))
            await server.parts.verbs.send(name, s.Cancel("me", "enough"))
            state = await server.parts.verbs.wait(name)
            assert state.status == "cancelled"
            (over,) = events_of(server, name, e.JobDischarged)
            assert over.how == "stopped"
            assert not Path(f"/proc/{file.read_text().strip()}").exists()

    run(scenario())


def test_heartbeats_keep_a_job_that_takes_longer_than_its_lease(tmp_path: Path) -> None:
    text = playbook("""
  - step: far
    spec: {pool: gpu}
    tool: {kind: shell, cmds: ["sleep {{ workload.pause }}"]}
""")

    async def kept(lease: float) -> bool:
        async with serving() as server, working(server.url, lease_seconds=lease):
            name = await server.start(text, pause=1.5 * lease)
            assert (await server.parts.verbs.wait(name)).status == "completed"
            lost, extended = (events_of(server, name, one) for one in (e.JobLost, e.JobExtended))
            return not lost and len(extended) >= 2

    assert any(run(kept(lease)) for lease in PATIENCE[1:])


def test_a_worker_that_is_stopped_hands_back_what_it_cannot_finish(tmp_path: Path) -> None:
    async def scenario() -> None:
        file = tmp_path / "pid"
        async with serving() as server:
            name = await server.start(SLOW, file=str(file))
            async with working(server.url, grace_seconds=0.1) as worker:
                await until(lambda: file.exists() and bool(file.read_text()))
            assert worker.tally.handed_back == 1
            (lost,) = events_of(server, name, e.JobLost)
            assert (lost.reason, lost.counted) == ("its worker stops", False)
            assert server.parts.engine.pools.waiting("gpu") == 1

    run(scenario())


def test_with_once_a_worker_ends_when_nothing_waits() -> None:
    async def scenario() -> None:
        async with serving() as server:
            names = [await server.start(ONE) for _ in range(5)]
            async with working(server.url, once=True, concurrency=2) as worker:
                for name in names:
                    await server.parts.verbs.wait(name)
                await until(lambda: worker.tally.done == 5)

    run(scenario())


def test_how_far_a_shard_is_can_be_seen_while_it_is_at_work() -> None:
    text = playbook("""
  - step: each
    spec: {pool: gpu, loop_mode: fanout, fanout: {shard_size: 40}}
    loop: {in: "{{ workload.items }}", iterator: n}
    tool: {kind: shell, cmds: ["sleep 0.1"]}
""")

    async def scenario() -> None:
        async with serving() as server, working(server.url, lease_seconds=3.0):
            name = await server.start(text, items=list(range(40)))
            await until(lambda: bool(events_of(server, name, e.JobProgressed)))
            jobs = [one for one in server.parts.verbs.read.explain(name)["waiting"]
                    if one["what"] == "job"]  # fmt: skip
            assert "of 40 done" in jobs[0]["waits_for"]
            await server.parts.verbs.send(name, s.Cancel())
            await server.parts.verbs.wait(name)

    run(scenario())


def test_a_result_is_kept_until_a_server_that_was_away_is_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server_client, "DELAY_SECONDS", (0.05, 0.2))
    toolbox = Toolbox()
    begun, go_on, done = asyncio.Event(), asyncio.Event(), []

    @toolbox.tool("patient")
    async def patient() -> int:
        begun.set()
        await go_on.wait()
        done.append(1)
        return 7

    text = playbook("  - {step: far, spec: {pool: gpu}, tool: {kind: patient}}\n")

    async def scenario() -> None:
        path = tmp_path / "store.db"
        async with serving(path) as first, bad_network(first.url, share=0.0) as network:
            name = await first.start(text)
            async with working(network.url, toolbox=toolbox, grace_seconds=20):
                await begun.wait()
                await first.parts.close()
                network.cut_all()
                go_on.set()
                await until(lambda: bool(done))
                first.parts.store.close()
                async with serving(path) as second:
                    network.leads_to(second.url)
                    state = await second.parts.verbs.wait(name)
                    assert state.results["far"] == 7
                    assert events_of(second, name, e.JobLost) == []
            assert done == [1]

    run(scenario())


@pytest.mark.parametrize("seed", range(4))
def test_a_network_that_cuts_connections_loses_and_doubles_nothing(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server_client, "DELAY_SECONDS", (0.01, 0.1))

    async def scenario() -> None:
        async with serving() as server, bad_network(server.url, seed=seed) as network:
            name = await server.start(LOOP, items=list(range(600)))
            async with (
                working(network.url, name="w1", concurrency=3, lease_seconds=2.0),
                working(network.url, name="w2", concurrency=3, lease_seconds=2.0),
            ):
                state = await server.parts.verbs.wait(name)
            assert network.cuts > 5
            assert (state.status, state.results["sum"]) == ("completed", sum(range(600)))
            each = state.results["each"]
            assert (each["succeeded"], each["failed"]) == (600, 0)

    run(scenario())


def test_every_kind_of_answer_has_its_words() -> None:
    assert worded(JobAnswer(Parked("t", limit_ms=5))) == (
        "park",
        {"ticket": "t", "until": 0, "memory": None, "limit_ms": 5, "wait": None},
    )
    verb, body = worded(JobAnswer(InlineAnswer(status="ok", result=1)))
    assert (verb, body["inline"], body["outcome"]) == ("report", True, "ok")
    assert worded(JobAnswer(succeeded(1, outcome="valid")))[1]["outcome"] == "valid"
    assert worded(JobAnswer(succeeded(), "5f3c"))[1]["payload"] == "5f3c"
    verb, body = worded(JobAnswer(failed("kind", "why", code="C", retryable=False, details=[1])))
    assert (verb, body["code"], body["retryable"], body["details"]) == ("fail", "C", False, [1])
    assert worded(JobAnswer(Answer(status="cancel_run")))[1]["status"] == "cancel_run"


def test_a_server_that_is_no_address_is_refused() -> None:
    with pytest.raises(InputError, match="give its URL"):
        server_client.ServerClient("localhost:8629")


def test_a_worker_whose_token_was_never_known_ends_and_says_so() -> None:
    async def closed_door(_request: web.Request) -> web.Response:
        return web.json_response({"code": "token", "detail": "this token is not known"}, status=401)

    async def scenario() -> None:
        application = web.Application()
        application.router.add_post("/api/v1/pools/{pool}/claim", closed_door)
        runner = web.AppRunner(application, access_log=None)
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        try:
            url = f"http://127.0.0.1:{runner.addresses[0][1]}"
            async with Servers([url], worker="w1") as way:
                environment = TaskEnvironment(ServerServices(way), Settings(), Toolbox())
                with pytest.raises(server_client.ServerRefused, match="this token is not known"):
                    await Worker(way, environment, Terms(pool="gpu")).run()
                await environment.close()
        finally:
            await runner.cleanup()

    run(scenario())


TOLD = playbook("""
  - step: far
    spec: {pool: gpu}
    tool: [{name: one, kind: noop}, {name: two, kind: noop, result: 1}]
    next: {arcs: [{step: each}]}
  - step: each
    spec: {pool: gpu, loop_mode: fanout, fanout: {shard_size: 2, iter_key: "k{{ iter.n }}"}}
    loop: {in: [0, 1], iterator: n}
    tool: [{name: a, kind: noop}, {name: b, kind: noop}]
    next: {arcs: [{step: read}]}
  - step: read
    spec: {pool: gpu}
    tool: {kind: artifact, action: get, result_ref: "anabranch:run:{{ run_id }}/step/far"}
""")


def test_a_worker_tells_what_its_tasks_did_and_reads_what_references_lead_to() -> None:
    async def scenario() -> None:
        async with serving() as server, working(server.url, concurrency=1):
            name = await server.start(TOLD)
            state = await server.parts.verbs.wait(name)
            assert (state.status, state.results["read"]) == ("completed", 1), state.problem
            told = [one async for one in server.parts.verbs.events(name, tasks=True)]
            done = [one.fields for one in told if one.kind == "task.processed"]
            assert [one["task"] for one in done] == ["one", "two", "a", "b", "a", "b", "read_task"]
            assert [one.get("iter_key") for one in done[2:6]] == ["k0", "k0", "k1", "k1"]

    run(scenario())
