"""A job that keeps more and more until it answers is ended before memory is full of it."""

from __future__ import annotations

from typing import Any

import pytest

from anabranch.kernel.tracker import Shard
from anabranch.kernel.values import Answer
from anabranch.net.program import InnerLoop, Iteration, Program, TaskSpec
from anabranch.work.loops.shards import Shards
from anabranch.work.pipeline.pipeline import Services
from anabranch.work.port import Task
from anabranch.work.values.payloads import MemoryPayloads

from ..support import fault_of, run
from .pipelines import JINJA, Scripted, answer_of, echo, ok, rule, shard_task, spec

ROOM = 100_000
LARGE = "x" * 10_000
MOST = 12  # of them are made: what does not fit has been made, and what stands around it counts
ROUNDS = 1_000


def rounds(**more: Any) -> TaskSpec:
    """A task that is come back to."""
    output = {"output": more.pop("output")} if "output" in more else {}
    more["set_iter"] = {"n": "{{ local.iter.n + 1 }}", **more.get("set_iter", {})}
    again = rule(f"local.iter.n < {ROUNDS}", "jump", to="a", **more)
    return spec("a", again, kind="w", **output)


def looping(tasks: tuple[TaskSpec, ...], window: int | None = None) -> list[TaskSpec]:
    at_once = None if window is None else JINJA.tree(window)
    loop = InnerLoop(Program(tasks), JINJA.tree({"range": ROUNDS}), "n", at_once)
    return [spec("all", kind="w", loop=loop)]


GROWING = {
    "results of tasks": [spec(f"a{number}", kind="w") for number in range(100)],
    "results of items": looping((spec("a", kind="w"),)),
    "results of items side by side": looping((spec("a", kind="w"),), 2),
    "writes of items": looping(
        (spec("a", kind="w", set_ctx={"c": (LARGE, "append")}), spec("b", kind="small"))
    ),
    "rounds that add up": [rounds(output={"accumulate": {}})],
    "writes to the context": [rounds(set_ctx={"c": "{{ local.outcome.result }}"})],
    "writes that add up": [rounds(set_iter={"all": ("{{ local.outcome.result }}", "append")})],
    "writes that are shared": [rounds(set_shared={"c": ("{{ local.outcome.result }}", "append")})],
}


@pytest.mark.parametrize("what", GROWING)
def test_what_a_pipeline_keeps_has_a_limit(what: str) -> None:
    work = Scripted(ok(LARGE))
    answer = answer_of(
        GROWING[what],
        {"w": work, "small": Scripted(ok(1))},
        iteration={"n": 1},
        held_bytes_max=ROOM,
        payloads=MemoryPayloads(),
    )
    fault = fault_of(answer)
    assert "setting expression_bytes_max" in fault.message
    assert len(work.tasks) <= MOST
    assert not fault.retryable


@pytest.mark.parametrize(
    "tasks",
    [
        [rounds(set_iter={"last": "{{ local.outcome.result }}"})],
        [rounds(output={"accumulate": {"strategy": "replace"}})],
        [spec("z", kind="w"), rounds()],
    ],
)
def test_what_takes_the_place_of_another_counts_once(tasks: list[TaskSpec]) -> None:
    work = Scripted(ok(LARGE))
    answer = answer_of(tasks, {"w": work}, iteration={"n": 1}, held_bytes_max=ROOM)
    assert (answer.status, len(work.tasks) >= ROUNDS) == ("ok", True)


def test_parts_that_lie_over_one_another_count_once() -> None:
    work = Scripted(ok({"k": LARGE}))
    tasks = [rounds(output={"accumulate": {"strategy": "merge"}})]
    answer = answer_of(tasks, {"w": work}, iteration={"n": 1}, held_bytes_max=ROOM)
    assert answer.result == {"k": LARGE}


def test_what_rounds_accumulate_is_put_aside_once_when_the_task_is_left() -> None:
    """After each round it took the square of their number, on the event loop and on the disk."""
    work, payloads = Scripted(ok({"text": "x" * 100})), MemoryPayloads()
    output = {"accumulate": {"manifest_as": "all"}, "inline_max_bytes": 1_000}
    tasks = [
        rounds(output=output),
        spec("b", kind="echo", value="{{ local.results.a._ref.bytes }}"),
    ]
    performers = {"w": work, "echo": Scripted(echo)}
    answer = answer_of(tasks, performers, iteration={"n": 1}, payloads=payloads)
    assert (len(work.tasks), len(payloads.contents)) == (ROUNDS, 1)
    assert answer.result == len(*payloads.contents.values()) > 100 * ROUNDS


class Numbers:
    async def items(self, _source: Any, shard: Shard, **_more: Any) -> list[tuple[int, str, Any]]:
        return [(index, "", index) for index in range(shard.first, shard.first + shard.count)]


class Now(Scripted):
    """The same without waiting, which lets a shard take its short way."""

    def perform_now(self, task: Task) -> Answer:
        self.tasks.append(task)
        return ok(LARGE)


@pytest.mark.parametrize("kind", [Scripted, Now])
def test_what_a_shard_keeps_has_a_limit(kind: type[Scripted]) -> None:
    work = kind(ok(LARGE))
    task = shard_task(Iteration(Program((spec("w"),)), "n", stops=True), Shard(0, 0, ROUNDS))
    services = Services(performers={"w": work}, held_bytes_max=ROOM)
    answer = run(Shards(services, Numbers()).perform(task))
    assert isinstance(answer, Answer)
    assert answer.shard is not None
    assert "setting expression_bytes_max" in answer.shard.failed[0].message
    assert answer.shard.failed[0].kind == "result"
    assert len(work.tasks) <= MOST
