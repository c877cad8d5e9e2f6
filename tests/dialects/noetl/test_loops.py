"""What a loop compiles to: local and fan-out, windows and shards, failures, reducers."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from anabranch.kernel.tracker import Shard
from anabranch.kernel.values import Answer
from anabranch.net.net import Loop, Retry, Step
from anabranch.net.program import Iteration
from anabranch.work.kinds.noop import Noop
from anabranch.work.loops.shards import Shards
from anabranch.work.pipeline.pipeline import Services
from anabranch.work.port import Task

from ..support import net_of, playbook, step_of

NAMES: dict[str, Any] = {
    "run": "r",
    "workload": {"items": [1, 2], "w": 7, "map": {"a": 1}},
    "ctx": {},
    "args": {},
    "results": {},
}
NOOP = "tool: {kind: noop}"


def looping(step: str) -> tuple[Loop, Iteration]:
    return parts(step_of(step))


def parts(step: Step) -> tuple[Loop, Iteration]:
    assert step.loop is not None
    assert step.work is not None
    assert step.work.kind == "loop.shard"
    iteration: Iteration = step.work.program
    return step.loop, iteration


def local(keys: str, spec: str = "") -> tuple[Loop, Iteration]:
    return looping(f"{spec}\nloop: {{in: [1, 2], iterator: x{keys}}}\n{NOOP}")


def fanned(keys: str = "") -> Step:
    return step_of(f"spec: {{loop_mode: fanout, fanout: {{{keys}}}}}\nloop: {{in: [1]}}\n{NOOP}")


def window(loop: Loop) -> Any:
    return None if loop.window is None else loop.window.evaluate(NAMES)


# -- local loops -----------------------------------------------------------------------------


def test_a_loop_is_local_and_sequential_unless_it_says_otherwise() -> None:
    loop, iteration = local("")
    assert (loop.mode, window(loop), loop.shard_size) == ("local", None, None)
    assert (loop.fail_fast, loop.allow_partial, loop.item_retries) == (True, False, 0)
    assert (iteration.iterator, iteration.parallel, iteration.ordered) == ("x", False, True)
    assert [task.kind for task in iteration.program.tasks] == ["noop"]
    assert looping(f"loop: {{in: [1]}}\n{NOOP}")[1].iterator == "item"


def test_a_parallel_loop_runs_eight_items_at_once_by_default() -> None:
    loop, iteration = local(", spec: {mode: parallel}")
    assert (window(loop), iteration.parallel, loop.shard_size) == (8, True, None)
    assert not iteration.ordered


def test_there_is_a_shard_for_every_item_in_flight() -> None:
    loop, iteration = local(", spec: {mode: parallel, max_in_flight: 100}")
    assert (window(loop), iteration.parallel, loop.shard_size) == (100, True, None)


def test_the_number_in_flight_may_be_a_template() -> None:
    loop, iteration = local(', spec: {mode: parallel, max_in_flight: "{{ workload.w }}"}')
    assert (window(loop), iteration.parallel) == (7, True)


def test_best_effort_goes_on_after_failures() -> None:
    for spec in (
        "spec: {policy: {failure: {mode: best_effort}}}",
        "spec: {fanout: {fail_fast: false, allow_partial: true}}",
    ):
        loop, _ = local("", spec)
        assert (loop.fail_fast, loop.allow_partial) == (False, True)
    inside, _ = local(", spec: {policy: {exec: distributed, failure: {mode: best_effort}}}")
    assert (inside.mode, inside.allow_partial) == ("local", True)


def test_the_retry_of_a_step_is_one_for_items() -> None:
    loop, _ = local("", "spec: {retry: {attempts: 4}}")
    assert loop.item_retries == 3


@pytest.mark.parametrize(
    ("legacy", "shards"),
    [("mode: async", 8), ("mode: parallel, concurrency: 3", 3), ("mode: sequential", None)],
)
def test_older_places_of_mode_and_concurrency(legacy: str, shards: int | None) -> None:
    loop, _ = looping(f"loop: {{collection: [1], element: y, {legacy}}}\n{NOOP}")
    assert window(loop) == shards


# -- what is gone through --------------------------------------------------------------------


@pytest.mark.parametrize(
    ("over", "value"),
    [
        ("[1, '{{ workload.w }}']", [1, 7]),
        ('"{{ workload.items }}"', [1, 2]),
        ('"{{ workload.nothing | default(none) }}"', None),
        ("{a: 1}", [{"key": "a", "value": 1}]),
        ('"{{ workload.map }}"', [{"key": "a", "value": 1}]),
        ('{range: [0, "{{ workload.w }}"]}', {"range": [0, 7]}),
        ("{range: 1000000000}", {"range": 1_000_000_000}),
        ("{jsonl: data.jsonl}", {"jsonl": "data.jsonl"}),
        ("{csv: {path: a.csv, delimiter: ';'}}", {"csv": {"path": "a.csv", "delimiter": ";"}}),
        ("{parquet: a.parquet}", {"parquet": "a.parquet"}),
        ("{listing: 'data/*.txt'}", {"listing": "data/*.txt"}),
        ("{sql: {query: q, key: id}}", {"sql": {"query": "q", "key": "id"}}),
        ("{pages: {url: u}}", {"pages": {"url": "u"}}),
    ],
)
def test_collections_are_lists_or_descriptions(over: str, value: Any) -> None:
    loop, _ = looping(f"loop: {{in: {over}}}\n{NOOP}")
    assert loop.over.evaluate(NAMES) == value


# -- fan-out ---------------------------------------------------------------------------------


def test_a_fan_out_by_default() -> None:
    loop, iteration = parts(fanned())
    assert (loop.mode, window(loop), loop.shard_size) == ("fanout", 8, None)
    assert (loop.fail_fast, loop.allow_partial, loop.keep_results) == (False, False, True)
    assert (iteration.parallel, iteration.key) == (False, None)


def test_a_fan_out_in_full() -> None:
    step = fanned(
        "fail_fast: true, allow_partial: true, max_job_retries: 2, max_shards: 50, "
        "max_concurrent: 30, shard_size: 10, tolerated_failures: 5, "
        "tolerated_failure_percentage: 2.5, queue_ttl_s: 600, lease_s: 90, "
        'iter_key: "{{ iter.item }}-{{ loop_id }}", reducers: {total: sum, best: max}, '
        "keep_results: false"
    )
    loop, iteration = parts(step)
    assert (loop.fail_fast, loop.allow_partial, loop.item_retries) == (True, True, 2)
    assert (loop.shards_max, window(loop), loop.shard_size) == (50, 30, 10)
    assert (loop.tolerate, loop.tolerate_percent) == (5, 2.5)
    assert (loop.queue_ttl_ms, loop.keep_results) == (600_000, False)
    assert loop.reducers == iteration.reducers == {"total": "sum", "best": "max"}
    assert iteration.keep_results is False
    assert iteration.key is not None
    names = {**NAMES, "local": {"iter": {"item": 9, "loop_id": "l1"}}}
    assert iteration.key.evaluate(names) == "9-l1"
    assert step.work is not None
    assert (step.work.lease_ms, step.work.retry) == (90_000, Retry(3, 1_000))


def test_other_names_and_dotted_spellings() -> None:
    aliases = "max_shard_retries: 1, max_shards_per_loop: 5, max_in_flight: 6, batch_size: 7"
    loop, _ = parts(fanned(aliases))
    assert (loop.item_retries, loop.shards_max, window(loop), loop.shard_size) == (1, 5, 6, 7)
    dotted = "spec: {loop_mode: fanout, fanout.fail_fast: true, fanout.batch_size: auto}"
    loop, _ = looping(f"{dotted}\nloop: {{in: [1]}}\n{NOOP}")
    assert (loop.fail_fast, loop.shard_size) == (True, None)


def test_the_executor_decides_and_the_step_decides_over_it() -> None:
    net = net_of(
        """
        executor: {kind: distributed, spec: {loop_mode: fanout, fanout: {max_concurrent: 3}}}
        workflow:
          - step: a
            loop: {in: [1]}
            tool: {kind: noop}
            next: {arcs: [{step: b}]}
          - step: b
            spec: {loop_mode: local}
            loop: {in: [1]}
            tool: {kind: noop}
            next: {arcs: [{step: c}]}
          - step: c
            spec: {fanout: {fail_fast: true}}
            loop: {in: [1]}
            tool: {kind: noop}
        """
    )
    a, b, c = (parts(net.steps[name])[0] for name in "abc")
    assert (a.mode, window(a), a.fail_fast) == ("fanout", 3, False)
    assert (b.mode, window(b)) == ("local", None)
    assert (c.mode, window(c), c.fail_fast) == ("fanout", 3, True)


def test_shared_values_have_the_reducer_that_was_allowed() -> None:
    rule = "{else: {then: {do: continue, set_shared: {total: 1}}}}"
    _, iteration = looping(
        "spec: {loop_mode: fanout, fanout: {reducers: {total: sum}}}\n"
        "loop: {in: [1]}\n"
        f"tool: {{kind: noop, spec: {{policy: {{rules: [{rule}]}}}}}}"
    )
    (write,) = iteration.program.tasks[0].rules[0].set_shared
    assert (write.key, write.reducer) == ("total", "sum")


def test_reduced_context_writes_of_a_fan_out_are_no_problem() -> None:
    body = """
    workflow:
      - step: s
        spec: {loop_mode: fanout}
        loop: {in: [1]}
        tool: {kind: noop, set_ctx: {n: {reduce: sum, value: 1}}, set_iter: {a: 1}}
    """
    assert playbook(body).problems == ()


# -- how it runs -----------------------------------------------------------------------------


class Listed:
    async def items(self, source: Any, shard: Shard, **_keyring: Any) -> list[tuple[int, str, Any]]:
        wanted = range(shard.first, shard.first + shard.count)
        return [(index, str(index), source[index]) for index in wanted]


@pytest.mark.parametrize("kind", ["spec: {mode: sequential}", "spec: {mode: parallel}"])
def test_items_run_through_the_tasks_with_their_own_names(kind: str) -> None:
    step = step_of(
        f"""
        spec: {{fanout: {{reducers: {{total: sum}}}}}}
        loop: {{in: [3, 4], iterator: n, {kind}}}
        tool:
          - {{name: twice, kind: noop, result: "{{{{ iter.n * 2 }}}}", set_iter: {{seen: "{{{{ n }}}}"}}}}
          - name: show
            kind: noop
            result: "{{{{ loop_index }}}}: {{{{ twice }}}}, {{{{ iter.seen }}}}"
            spec:
              policy:
                rules:
                  - else: {{then: {{do: continue, set_shared: {{total: "{{{{ twice }}}}"}}}}}}
        """  # noqa: E501
    )
    loop, iteration = parts(step)
    shard = Shard(0, 0, 2)
    names: dict[str, Any] = {"run": "r", "step": "s", "job": "j", "attempt": 1, "key": "k"}
    task = Task(
        **names,
        kind="loop.shard",
        inputs={},
        names=NAMES,
        program=iteration,
        loop="l1",
        source=loop.over.evaluate(NAMES),
        shard=shard,
    )
    answer = asyncio.run(Shards(Services(performers={"noop": Noop()}), Listed()).perform(task))
    assert isinstance(answer, Answer)
    assert answer.result == ["0: 6, 3", "1: 8, 4"]
    assert answer.shard is not None
    assert answer.shard.shared == {"total": 14}


@pytest.mark.parametrize(("written", "most"), [("max_job_retries: 2", 2), ("shard_size: 5", None)])
def test_max_job_retries_also_bounds_the_workers_that_are_lost(
    written: str, most: int | None
) -> None:
    step = step_of(f"spec: {{loop_mode: fanout, fanout: {{{written}}}}}\nloop: {{in: [1]}}\n{NOOP}")
    assert step.work is not None
    assert step.work.workers_lost_max == most
