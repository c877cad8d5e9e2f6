"""The results of a loop that is over are found by its ref, in order, whoever asks."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

import pytest

from anabranch import Engine, Toolbox
from anabranch.errors import InputError, NotFound
from anabranch.kernel.values import Answer
from anabranch.store.memory.store import MemoryStore
from anabranch.work.kind_options import ArtifactOptions
from anabranch.work.kinds.artifact import Artifact
from anabranch.work.loops.collections.all import Collections
from anabranch.work.loops.results import LoopResults
from anabranch.work.values.payloads import StoredPayloads

from ..support import fault_of, run, task

BOOK = """
apiVersion: noetl.io/v2
kind: Playbook
metadata: {{name: it}}
workflow:
  - step: each
    spec: {{loop_mode: {mode}, fanout: {{shard_size: {size}, {more}}}}}
    loop: {{in: {{range: {count}}}, iterator: n}}
    tool: {{kind: work, n: "{{{{ iter.n }}}}"}}
"""


def book(count: int = 20, mode: str = "fanout", size: Any = 4, more: str = "") -> str:
    return BOOK.format(mode=mode, size=size, more=more or "fail_fast: false", count=count)


class Stage:
    """An engine on a store that can be looked into, and a tool that fails as it is told."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr("anabranch.store.memory.store.MemoryStore", self._fresh)
        self.fails: dict[int, int] = {}
        self.width = 1
        self.box = Toolbox()
        self.box.tool("work", blocking=False)(self._work)

    def _fresh(self) -> MemoryStore:
        self.store = MemoryStore()
        return self.store

    def _work(self, n: int) -> Any:
        if self.fails.get(n, 0):
            self.fails[n] -= 1
            raise TimeoutError("not yet")
        return n if self.width == 1 else str(n).rjust(self.width)

    async def finished(self, engine: Engine, text: str) -> str:
        run_id = await engine.start(text)
        await engine.wait(run_id)
        return ref_of(run_id)

    @property
    def loops(self) -> LoopResults:
        return LoopResults(self.store, StoredPayloads(self.store))


def ref_of(run_id: str, token: int = 1) -> str:
    return f"anabranch:run:{run_id}/loop/l{token}"


@pytest.fixture
def stage(monkeypatch: pytest.MonkeyPatch) -> Stage:
    return Stage(monkeypatch)


def everything(stage: Stage, *texts: str) -> list[list[Any]]:
    """The results of a run of each of the texts."""

    async def scenario() -> list[list[Any]]:
        async with Engine(":memory:", toolbox=stage.box) as engine:
            refs = [await stage.finished(engine, text) for text in texts]
            return [await stage.loops.results(ref, 0, 10**9, None) for ref in refs]

    return run(scenario())


@pytest.mark.parametrize("mode", ["fanout", "local"])
@pytest.mark.parametrize("size", [1, 3, 100, "auto"])
def test_they_come_in_the_order_of_the_items(stage: Stage, mode: str, size: Any) -> None:
    (found,) = everything(stage, book(50, mode, size))
    assert found == list(range(50))


def test_items_tried_again_are_in_their_places_and_failed_ones_are_null(stage: Stage) -> None:
    stage.fails = {3: 1, 5: 2, 9: 99}
    (found,) = everything(stage, book(12, more="max_job_retries: 3, allow_partial: true"))
    assert found == [*range(9), None, 10, 11]


def test_a_loop_that_stopped_early_gives_as_far_as_it_came(stage: Stage) -> None:
    stage.fails = {3: 99}
    (found,) = everything(stage, book(12, size=6, more="fail_fast: true, max_concurrent: 1"))
    assert found == [0, 1, 2, None]


def test_results_that_are_kept_as_payloads_are_fetched(stage: Stage) -> None:
    stage.width = 30_000
    (found,) = everything(stage, book(10))
    assert [int(text) for text in found] == list(range(10))
    assert {len(text) for text in found} == {30_000}


@pytest.mark.parametrize("mode", ["fanout", "local"])
def test_results_that_items_put_aside_themselves_are_whole(stage: Stage, mode: str) -> None:
    """In a report that travels itself, in one that does not, and in one that was handed on."""
    wanted = [str(n).rjust(3_000) for n in range(40)]
    stage.width = 3_000
    for size in (1, 7, 40):
        text = book(40, mode, size).replace(
            "workflow:", "executor: {spec: {result: {inline_max_bytes: 100}}}\nworkflow:"
        )
        assert everything(stage, text) == [wanted]
        assert fetch(stage, text, offset=3, limit=9).result["results"] == wanted[3:12]
        assert "over the limit of 10,000" in fault_of(fetch(stage, text, 10_000)).message
        assert len(fetch(stage, text, 10_000, offset=7, limit=3).result["results"]) == 3


@pytest.mark.parametrize("mode", ["fanout", "local"])
def test_a_redriven_loop_has_those_of_all_its_origins(stage: Stage, mode: str) -> None:
    stage.fails = {2: 1, 7: 2, 8: 1}

    async def scenario() -> list[list[Any]]:
        async with Engine(":memory:", toolbox=stage.box) as engine:
            runs = [await engine.start(book(10, mode, 3))]
            await engine.wait(runs[0])
            for _ in range(2):
                runs.append(await engine.redrive(runs[-1]))
                await engine.wait(runs[-1])
            return [await stage.loops.results(ref_of(one), 0, 99, None) for one in runs]

    first, second, third = run(scenario())
    assert first == [0, 1, None, 3, 4, 5, 6, None, None, 9]
    assert second == [0, 1, 2, 3, 4, 5, 6, None, 8, 9]
    assert third == list(range(10))


def test_what_has_no_results_is_refused_with_the_reason(stage: Stage) -> None:
    gate, begun = asyncio.Event(), asyncio.Event()

    @stage.box.tool("hold")
    async def wait() -> None:
        begun.set()
        await gate.wait()

    waiting = book(1).replace('kind: work, n: "{{ iter.n }}"', "kind: hold")

    async def scenario() -> None:
        async with Engine(":memory:", toolbox=stage.box) as engine:
            bare = await stage.finished(engine, book(3, more="keep_results: false"))
            open_one = await engine.start(waiting)
            await begun.wait()
            loops = stage.loops
            with pytest.raises(InputError, match="did not keep its results: give it `keep_res"):
                await loops.size(bare)
            with pytest.raises(InputError, match="is not over yet"):
                await loops.size(ref_of(open_one))
            with pytest.raises(NotFound, match="no loop nobody/l1 in this store"):
                await loops.size(ref_of("nobody"))
            with pytest.raises(NotFound, match="/l7 in this store"):
                await loops.size(ref_of(open_one, 7))
            with pytest.raises(InputError, match="is not the ref of a loop"):
                await loops.size("anabranch:run:x")
            gate.set()
            await engine.wait(open_one)
            assert await loops.results(ref_of(open_one), 0, 9, None) == [None]

    run(scenario())


# -- as an artifact --------------------------------------------------------------------------


def fetch(stage: Stage, text: str, bytes_max: int = 10**6, **given: Any) -> Answer:
    async def scenario() -> Answer:
        async with Engine(":memory:", toolbox=stage.box) as engine:
            ref = await stage.finished(engine, text)
            options = ArtifactOptions(bytes_max=bytes_max)
            artifact = Artifact(StoredPayloads(stage.store), options, loops=stage.loops)
            return await artifact.perform(task("artifact", **{"result_ref": ref, **given}))

    return run(scenario())


def test_an_artifact_gives_all_of_them_or_a_page(stage: Stage) -> None:
    assert fetch(stage, book(5)).result == {
        "results": [0, 1, 2, 3, 4],
        "total": 5,
        "offset": 0,
        "next": None,
    }
    page = fetch(stage, book(9), offset="3", limit=4).result
    assert (page["results"], page["next"], page["total"]) == ([3, 4, 5, 6], 7, 9)
    assert fetch(stage, book(9), offset=7, limit=4).result["results"] == [7, 8]
    assert fetch(stage, book(9), offset=99).result["results"] == []


def test_an_artifact_refuses_more_than_its_limit_and_says_how_to_ask_for_less(
    stage: Stage,
) -> None:
    stage.width = 1000
    fault = fault_of(fetch(stage, book(20), 10_000))
    assert "over the limit of 10,000 bytes" in fault.message
    assert "`offset` and `limit`" in fault.message
    assert len(fetch(stage, book(20), 10_000, offset=3, limit=5).result["results"]) == 5


@pytest.mark.parametrize("given", [{"offset": -1}, {"limit": "many"}, {"limit": True}])
def test_an_artifact_refuses_pages_that_are_none(stage: Stage, given: Mapping[str, Any]) -> None:
    assert "whole number from 0 up" in fault_of(fetch(stage, book(3), **given)).message


def test_pages_are_for_loops_only(stage: Stage) -> None:
    fault = fault_of(fetch(stage, book(1), result_ref=[1, 2], limit=1))
    assert fault.message == "offset and limit are for the results of a loop (its `refs`)"


# -- as a collection -------------------------------------------------------------------------


def test_a_collection_of_them_is_described_in_a_few_bytes_and_read_by_number(stage: Stage) -> None:
    async def scenario() -> None:
        async with Engine(":memory:", toolbox=stage.box) as engine:
            ref = await stage.finished(engine, book(40))
            collections = Collections(loops=stage.loops)
            descriptor = await collections.describe({"results_of": ref})
            assert collections.size(descriptor) == 40
            assert len(str(descriptor)) < 200
            items = await collections.items(descriptor, 10, 5)
            assert [(item.number, item.key, item.item) for item in items] == [
                (n, str(n), n) for n in range(10, 15)
            ]
            with pytest.raises(InputError, match="no loop nobody/l1"):
                await collections.describe({"results_of": ref_of("nobody")})
            with pytest.raises(InputError, match="takes the `refs` of a loop"):
                await collections.describe({"results_of": [1]})
            await collections.close()

    run(scenario())
