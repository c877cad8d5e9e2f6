"""What a worker may read is decided by the record of its job, never by what the worker wrote.

Somebody else's run has a payload and a loop. Whoever may write something somewhere writes their
addresses there, and whoever reads on behalf of the run gets nothing, unless the address was written
by somebody who operates the run.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from surfaces.worker.support import Server, playbook, run, serving, until, working

SECRET = "of somebody else"
OTHERS = playbook("""
  - step: make
    tool: {kind: python, code: "result = {'text': 'of somebody else ' * 9000}"}
    next: {arcs: [{step: each}]}
  - step: each
    spec: {loop_mode: fanout, fanout: {shard_size: 5}}
    loop: {in: {range: 12}, iterator: n}
    tool: {kind: noop, result: "of somebody else {{ iter.n }}"}
""")
#: A worker's step, one of the engine that reads what the worker names, and a worker's again.
MINE = playbook("""
  - step: far
    spec: {pool: gpu}
    tool: {kind: render}
    next: {arcs: [{step: READ}]}
  - step: got
    tool: {kind: artifact, action: get, result_ref: "{{ far.ref }}"}
    next: {arcs: [{step: last}]}
  - step: looped
    spec: {loop_mode: fanout, fanout: {shard_size: 5}}
    loop: {in: {results_of: "{{ far.ref }}"}, iterator: x}
    tool: {kind: noop, result: "{{ iter.x }}"}
    next: {arcs: [{step: last}]}
  - step: copied
    tool: {kind: noop, result: "{{ far.ref }}"}
    next: {arcs: [{step: last}]}
  - step: parsed
    tool:
      kind: python
      args: {text: "{{ far.text }}"}
      code: |
        import json
        result = json.loads(text)
    next: {arcs: [{step: last}]}
  - step: last
    spec: {pool: gpu}
    tool: {kind: render, given: "{{ results | default(0) }}", all: "{{ steps }}"}
""")


class Other(NamedTuple):
    """Addresses of what belongs to somebody else."""

    sha256: str
    loop: str

    @property
    def place(self) -> str:
        return f"anabranch:sha256:{self.sha256}"

    @property
    def stand_in(self) -> dict[str, Any]:
        return {"_ref": self.receipt, "_preview": "x", "_size_bytes": 9, "_store": "x"}

    @property
    def receipt(self) -> dict[str, Any]:
        return {"kind": "result_ref", "ref": self.place, "bytes": 9, "scope": "execution"}


async def others(server: Server) -> Other:
    name = await server.start(OTHERS)
    state = await server.parts.verbs.wait(name)
    ref = state.results["make"]["_ref"]["ref"]
    return Other(ref.rpartition(":")[2], state.results["each"]["refs"])


async def claim(server: Server) -> Any:
    claimed = await server.claim(wait_seconds=20)
    (task,) = claimed["tasks"]
    return {**task, "shared": claimed["runs"][task["run"]]}


async def what_comes(server: Server) -> Any:
    """The next jobs of workers; none where the runs come to their end without."""
    engine = server.parts.engine
    await until(lambda: bool(engine.pools.waiting("gpu") or not engine._core.live))
    return await server.claim()


async def reads(server: Server, task: Any, other: Other) -> None:
    """By hash and by ref: as if there were nothing."""
    assert await fetched(server, task, other.sha256) == (410, "payload_gone")
    step = other.loop.replace("/loop/l2", "/step/make")
    assert step != other.loop
    for ref in (other.loop, f"{other.loop}&first=0", step, step.removeprefix("anabranch:")):
        status, answer = await server.ask("GET", f"{server.job(task, 'results')}&ref={ref}")
        assert (status, answer.get("code")) == (404, "no_loop"), answer


async def fetched(server: Server, task: Any, sha256: str) -> tuple[int, Any]:
    path = server.api + server.job(task, f"payloads/{sha256}")
    async with server.session.get(path) as response:
        content = await response.read()
        return response.status, json.loads(content).get("code", SECRET)


async def in_progress(server: Server, task: Any, value: Any) -> None:
    await server.good(task, "progress", {"progress": {"done": 1, "of": 2, "payload": value}})


async def in_a_checkpoint(server: Server, task: Any, value: Any) -> None:
    await server.good(task, "progress", {"progress": {"checkpoint": {"x": value}}})


async def in_the_claim_after_a_release(server: Server, task: Any, value: Any) -> None:
    await in_progress(server, task, value)
    await server.good(task, "release", {})
    task.update(await claim(server))


WRITES = {f.__name__: f for f in (in_progress, in_a_checkpoint, in_the_claim_after_a_release)}
FORMS: dict[str, Callable[[Other], Any]] = {
    "hash": lambda other: other.sha256,
    "place": lambda other: other.place,
    "loop": lambda other: other.loop,
    "stand_in": lambda other: other.stand_in,
    "receipt": lambda other: other.receipt,
}


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("write", WRITES)
def test_what_a_worker_writes_about_its_job_opens_nothing(write: str, form: str) -> None:
    async def scenario() -> None:
        async with serving() as server:
            other = await others(server)
            await server.start(MINE.replace("READ", "last"))
            task = await claim(server)
            await WRITES[write](server, task, FORMS[form](other))
            await reads(server, task, other)

    run(scenario())


@pytest.mark.parametrize("form", FORMS)
def test_what_a_worker_parks_with_opens_nothing(form: str) -> None:
    async def scenario() -> None:
        async with serving() as server:
            other = await others(server)
            await server.start(MINE.replace("READ", "last"))
            task = await claim(server)
            parked = {"ticket": "nobody", "memory": {"x": FORMS[form](other)}, "limit_ms": 1}
            await server.good(task, "park", parked)
            claimed = await what_comes(server)
            assert SECRET not in json.dumps(claimed)
            for again in claimed["tasks"]:
                await reads(server, again, other)

    run(scenario())


@pytest.mark.parametrize("step", ["got", "looped", "copied", "parsed", "last"])
@pytest.mark.parametrize("form", FORMS)
def test_what_a_worker_reports_opens_nothing_for_the_steps_behind_it(form: str, step: str) -> None:
    async def scenario() -> None:
        async with serving() as server:
            other = await others(server)
            name = await server.start(MINE.replace("READ", step))
            task = await claim(server)
            value = FORMS[form](other)
            result = {"ref": value, "text": json.dumps(value)}
            patches = [["k", value]]
            await server.good(task, "report", {"result": result, "patches": patches})
            claimed = await what_comes(server)
            assert SECRET not in json.dumps(claimed)
            for again in claimed["tasks"]:
                await reads(server, again, other)
                await server.say(again, "report", {"result": 1})
            state = await server.parts.verbs.wait(name)
            assert SECRET not in json.dumps([state.results, state.ctx], default=str)
            assert not server.parts.store.holds_payload(other.sha256, [name])

    run(scenario())


def test_the_results_of_a_loop_open_nothing_that_a_worker_made_up() -> None:
    text = playbook("""
  - step: each
    spec: {pool: gpu, loop_mode: fanout, fanout: {shard_size: 10, keep_results: true}}
    loop: {in: [1, 2], iterator: n}
    tool: {kind: render}
    next: {arcs: [{step: got}]}
  - step: got
    tool: {kind: artifact, action: get, result_ref: "{{ each.refs }}"}
    next: {arcs: [{step: last}]}
  - {step: last, spec: {pool: gpu}, tool: {kind: render}}
""")

    async def scenario() -> None:
        async with serving() as server:
            other = await others(server)
            name = await server.start(text)
            task = await claim(server)
            said = {"result": other.stand_in, "shard": {"succeeded": 2, "failed": [], "shared": {}}}
            await server.say(task, "report", said)
            claimed = await what_comes(server)
            assert SECRET not in json.dumps(claimed)
            for last in claimed["tasks"]:
                ref = f"anabranch:run:{name}/loop/l1"
                path = f"{server.job(last, 'results')}&ref={ref}"
                assert SECRET not in json.dumps((await server.ask("GET", path))[1])
                await server.say(last, "report", {"result": 1})
            state = await server.parts.verbs.wait(name)
            assert SECRET not in json.dumps(state.results, default=str)

    run(scenario())


@pytest.mark.parametrize("waits", [True, False], ids=["a child waited for", "a child let go"])
@pytest.mark.parametrize("form", ["place", "loop", "stand_in"])
def test_what_a_worker_hands_to_a_child_opens_nothing_there(
    tmp_path: Path, form: str, waits: bool
) -> None:
    child = tmp_path / "child.yaml"
    child.write_text(
        playbook("""
  - step: got
    tool: {kind: artifact, action: get, result_ref: "{{ workload.ref }}"}
    next: {arcs: [{step: far}]}
  - {step: far, spec: {pool: gpu}, tool: {kind: render}}
""")
    )
    text = playbook(f"""
  - step: far
    spec: {{pool: gpu}}
    tool: {{kind: render}}
    next: {{arcs: [{{step: sub}}]}}
  - step: sub
    tool: {{kind: playbook, path: {child}, args: {{ref: "{{{{ far.ref }}}}"}}, wait: {waits}}}
""")

    async def scenario() -> None:
        async with serving() as server:
            other = await others(server)
            await server.start(text)
            task = await claim(server)
            await server.good(task, "report", {"result": {"ref": FORMS[form](other)}})
            claimed = await what_comes(server)
            assert SECRET not in json.dumps(claimed)
            for inside in claimed["tasks"]:
                await reads(server, inside, other)

    run(scenario())


@pytest.mark.parametrize("form", ["place", "loop", "stand_in"])
def test_what_the_worker_of_a_child_made_up_opens_nothing_for_a_parent_without_workers(
    tmp_path: Path, form: str
) -> None:
    child = tmp_path / "child.yaml"
    child.write_text(
        playbook("""
  - {step: far, spec: {pool: gpu}, tool: {kind: render, given: "{{ workload }}"}}
""")
    )
    text = playbook(f"""
  - step: sub
    tool: {{kind: playbook, path: {child}, return_step: far}}
    next: {{arcs: [{{step: {"copied" if form == "stand_in" else "got"}}}]}}
  - step: got
    tool: {{kind: artifact, action: get, result_ref: "{{{{ sub.result.ref }}}}"}}
    next: {{arcs: [{{step: again}}]}}
  - step: copied
    tool: {{kind: noop, result: "{{{{ sub.result.ref }}}}"}}
    next: {{arcs: [{{step: again}}]}}
  - step: again
    tool: {{kind: playbook, path: {child}, args: {{all: "{{{{ results }}}}"}}}}
""")

    async def scenario() -> None:
        async with serving() as server:
            other = await others(server)
            name = await server.start(text)
            task = await claim(server)
            await server.good(task, "report", {"result": {"ref": FORMS[form](other)}})
            claimed = await what_comes(server)
            assert SECRET not in json.dumps(claimed)
            for inside in claimed["tasks"]:
                await reads(server, inside, other)
                await server.say(inside, "report", {"result": 1})
            state = await server.parts.verbs.wait(name)
            assert SECRET not in json.dumps([state.results, state.ctx], default=str)
            assert not server.parts.store.holds_payload(other.sha256, [name])

    run(scenario())


# -- what operators and the kernel write does open something ---------------------------------------


def test_a_parent_reads_what_its_child_names_in_plain_text(tmp_path: Path) -> None:
    child = tmp_path / "child.yaml"
    child.write_text(
        playbook("""
  - step: make
    tool: {kind: artifact, action: put, data: "of somebody else"}
    next: {arcs: [{step: end}]}
  - {step: end, tool: {kind: noop, result: {place: "{{ make.ref.ref }}"}}}
""")
    )
    text = playbook(f"""
  - step: sub
    tool: {{kind: playbook, path: {child}, return_step: end}}
    next: {{arcs: [{{step: got}}]}}
  - step: got
    tool: {{kind: artifact, action: get, result_ref: "{{{{ sub.result.place }}}}"}}
""")

    async def scenario() -> None:
        async with serving() as server:
            state = await server.parts.verbs.wait(await server.start(text))
            assert state.results["sub"]["result"]["place"].startswith("anabranch:sha256:")
            assert SECRET in json.dumps(state.results["got"])

    run(scenario())


def test_what_the_input_the_definition_and_an_operator_name_can_be_read() -> None:
    text = playbook("""
  - step: far
    spec: {pool: gpu}
    tool: {kind: render, from: "{{ workload.from | default(none) }}", at: "PLACE"}
""")

    async def scenario() -> None:
        async with serving() as server:
            other = await others(server)
            for given, source in (
                ({"from": [other.place, other.loop]}, text),
                ({"from": other.stand_in}, text),
                ({}, text.replace("PLACE", f"{other.place} {other.loop}")),
            ):
                await server.start(source, **given)
                task = await claim(server)
                assert await fetched(server, task, other.sha256) == (200, SECRET)
                path = f"{server.job(task, 'results')}&ref={other.loop}&stop=1"
                status, _ = await server.ask("GET", path)
                assert status == (404 if "_ref" in str(given) else 200)
            await server.start(text)
            task = await claim(server)
            await reads(server, task, other)
            path = f"/runs/{task['run']}/patch"
            status, said = await server.ask("POST", path, {"values": {"at": other.place}})
            assert status < 300, said
            assert await fetched(server, task, other.sha256) == (200, SECRET)

    run(scenario())


def test_the_name_of_one_loop_does_not_open_another_that_is_called_alike() -> None:
    async def scenario() -> None:
        async with serving() as server:
            other = await others(server)
            await server.start(MINE.replace("READ", "last"), ref=f"{other.loop}9")
            await reads(server, await claim(server), other)

    run(scenario())


def test_a_worker_reads_what_its_own_run_and_its_children_came_to(tmp_path: Path) -> None:
    child = tmp_path / "child.yaml"
    child.write_text(
        OTHERS + "    next: {arcs: [{step: end}]}\n" + "  - {step: end, tool: {kind: "
        'noop, result: {text: "{{ make }}", loop: "{{ each.refs }}"}}}\n'
    )
    text = playbook(f"""
  - step: sub
    spec: {{pool: gpu}}
    tool: {{kind: playbook, path: {child}, return_step: end}}
    next: {{arcs: [{{step: own}}]}}
  - step: own
    spec: {{pool: gpu}}
    tool: {{kind: python, code: "result = 'own' * 40000"}}
    next: {{arcs: [{{step: size}}]}}
  - step: size
    spec: {{pool: gpu}}
    tool:
      - {{name: a, kind: noop, result: "{{{{ own | length }}}}"}}
      - {{name: b, kind: noop, result: "{{{{ sub.result.text | string | length }}}}"}}
      - {{name: c, kind: artifact, action: get, result_ref: "{{{{ sub.result.loop }}}}"}}
      - {{kind: noop, result: ["{{{{ a }}}}", "{{{{ b }}}}", "{{{{ c.total }}}}"]}}
""")

    async def scenario() -> None:
        async with serving() as server, working(server.url):
            name = await server.start(text)
            state = await server.parts.verbs.wait(name)
            assert "size" in state.results, state.problem
            own, text_of_child, total = state.results["size"]
            assert (own, total) == (120_000, 12), state.problem
            assert text_of_child > 100_000

    run(scenario())


def test_runs_without_workers_read_what_they_are_told_to() -> None:
    """Everything in their values comes from this engine: nothing has changed for them."""
    text = playbook("""
  - step: found
    tool: {kind: python, args: {at: "{{ workload.parts }}"}, code: "result = ''.join(at)"}
    next: {arcs: [{step: got}]}
  - step: got
    tool: {kind: artifact, action: get, uri: "{{ found }}"}
""")

    async def scenario() -> None:
        async with serving() as server:
            other = await others(server)
            name = await server.start(text, parts=["anabranch:sha256:", other.sha256])
            state = await server.parts.verbs.wait(name)
            assert SECRET in state.results["got"]["text"], state.problem

    run(scenario())
