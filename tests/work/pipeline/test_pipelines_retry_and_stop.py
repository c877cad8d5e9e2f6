"""Retries, keys, timeouts, cancels, parking and broken performers inside a pipeline."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from anabranch.errors import StoreError
from anabranch.kernel.values import Answer
from anabranch.net.program import Program
from anabranch.work.kind_options import ProcessOptions
from anabranch.work.kinds.noop import Noop
from anabranch.work.kinds.python.performer import Python
from anabranch.work.pipeline.pipeline import Pipeline, Services
from anabranch.work.port import Parked, Task
from anabranch.work.secrets.keychain import KeychainError
from anabranch.work.values.payloads import MemoryPayloads, decoded

from ..support import fault_of, gone, run
from .pipelines import (
    Scripted,
    Sleeps,
    answer_of,
    echo,
    error,
    job,
    ok,
    rule,
    spec,
)

FAILED = "local.outcome.status == 'error'"


# -- retry -----------------------------------------------------------------------------------


def retrying(*script: Any, **retry: Any) -> tuple[Answer, Scripted, list[float]]:
    work, sleeps = Scripted(*script), Sleeps()
    tasks = [spec("a", rule(FAILED, "retry", **retry), kind="w")]
    return answer_of(tasks, {"w": work}, sleeps=sleeps), work, sleeps.seconds


def test_attempts_count_all_executions() -> None:
    answer, work, slept = retrying(error("timeout", "last words"), attempts=3)
    assert fault_of(answer).message == "last words"
    assert (len(work.tasks), len(slept)) == (3, 2)
    assert retrying(error(), attempts=1)[2] == []


def test_a_retry_that_succeeds_goes_on() -> None:
    answer, work, _ = retrying(error(), error(), ok("third"), attempts=3)
    assert (answer.result, len(work.tasks)) == ("third", 3)


@pytest.mark.parametrize(
    ("backoff", "delays"),
    [
        ("none", [0.5, 0.5, 0.5]),
        ("constant", [0.5, 0.5, 0.5]),
        ("linear", [0.5, 1.0, 1.5]),
        ("exponential", [0.5, 1.0, 2.0]),
    ],
)
def test_delays_grow_as_the_rule_says(backoff: Any, delays: list[float]) -> None:
    assert retrying(error(), attempts=4, backoff=backoff, delay=0.5)[2] == delays


def test_a_delay_is_a_second_unless_said_otherwise() -> None:
    assert retrying(error(), attempts=2)[2] == [1.0]
    assert retrying(error(), attempts=2, delay="250ms")[2] == [0.25]
    assert retrying(error(), attempts=2, delay=0)[2] == [0]


def test_a_delay_can_be_what_the_server_asked_for() -> None:
    busy = error("rate_limit", details={"retry_after": 7.5})
    assert retrying(busy, attempts=2, delay="{{ local.outcome.error.retry_after }}")[2] == [7.5]


def test_a_delay_that_is_none_is_a_clear_failure() -> None:
    delay = "{{ local.outcome.error.retry_after | default(none) }}"
    answer, _, slept = retrying(error(), attempts=3, delay=delay)
    fault = fault_of(answer)
    assert fault.message == "task a: delay must be a number of seconds or text as '5s', not None"
    assert slept == []


def test_very_many_retries_do_not_overflow() -> None:
    _, _, slept = retrying(error(), attempts=2000, backoff="exponential", delay=1)
    assert slept[-1] == 2.0**40


def test_a_success_sets_the_count_back() -> None:
    """Ten rounds with one failed attempt each: two attempts are enough for every round."""
    script = [each for page in range(10) for each in (error(), ok(page))]
    work = Scripted(*script)
    tasks = [
        spec("fetch", rule(FAILED, "retry", attempts=2), kind="w"),
        spec("more", rule("local.results.fetch < 9", "jump", to="fetch"), kind="echo"),
    ]
    answer = answer_of(tasks, {"w": work, "echo": Scripted(echo)})
    assert answer.status == "ok"
    assert len(work.tasks) == 20


def test_a_success_may_be_asked_again_without_changing_what_it_sees() -> None:
    """Polling: not done yet is a success that is told to retry."""
    work = Scripted(ok({"state": "pending"}), ok({"state": "pending"}), ok({"state": "done"}))
    pending = rule("local.outcome.result.state == 'pending'", "retry", attempts=5, delay=2)
    sleeps = Sleeps()
    tasks = [
        spec("order", kind="echo", value="order-7"),
        spec("poll", pending, kind="w", value="{{ local.prev }}"),
    ]
    answer = answer_of(tasks, {"echo": Scripted(echo), "w": work}, sleeps=sleeps)
    assert answer.result == {"state": "done"}
    assert [task.inputs["value"] for task in work.tasks] == ["order-7"] * 3
    assert sleeps.seconds == [2, 2]


def test_polling_in_vain_says_so() -> None:
    pending = rule(None, "retry", attempts=4)
    fault = fault_of(answer_of([spec("poll", pending, kind="w")], {"w": Scripted(ok("pending"))}))
    assert (fault.kind, fault.message) == ("retries", "task poll: 4 attempts were not enough")


# -- keys ------------------------------------------------------------------------------------


def test_keys_are_per_task_and_shared_by_the_attempts_of_one_deed() -> None:
    first = Scripted(error(), error(), ok())
    second = Scripted(ok())
    tasks = [spec("a", rule(FAILED, "retry"), kind="w"), spec("b", kind="x")]
    answer_of(tasks, {"w": first, "x": second})
    assert first.keys == ["k/a", "k/a", "k/a"]
    assert second.keys == ["k/b"]


def test_each_round_of_a_jump_is_a_deed_of_its_own() -> None:
    script = (ok(1), error(), ok(2), error(), ok(3))
    skip = rule(FAILED, "retry", attempts=9)
    back = rule("local.results.a < 3", "jump", to="a")

    def walk() -> list[str]:
        work = Scripted(*script)
        answer_of([spec("a", skip, back, kind="w")], {"w": work})
        return work.keys

    assert walk() == ["k/a", "k/a~2", "k/a~2", "k/a~3", "k/a~3"]
    assert walk() == walk()  # a job that starts again makes the same keys


def test_an_error_left_behind_is_a_deed_too() -> None:
    work = Scripted(error(), ok())
    tasks = [
        spec("a", rule(FAILED, "continue"), kind="w"),
        spec("b", rule("local.results.a is undefined", "jump", to="a"), kind="noop"),
    ]
    answer_of(tasks, {"w": work, "noop": Noop()})
    assert work.keys == ["k/a", "k/a~2"]


# -- stopping --------------------------------------------------------------------------------


def test_the_time_of_a_task_stops_its_work() -> None:
    ended: list[str] = []

    async def hang(_: Task) -> Answer:
        try:
            await asyncio.sleep(60)
        finally:
            ended.append("stopped")
        return ok()

    tasks = [spec("a", rule(FAILED, "retry", attempts=2), kind="w", timeout_ms=30)]
    work = Scripted(hang)
    fault = fault_of(answer_of(tasks, {"w": work}))
    assert (fault.kind, fault.code, fault.retryable) == ("timeout", "TIMEOUT", True)
    assert fault.message == "no answer within 0.03 s"
    assert ended == ["stopped", "stopped"]
    assert [task.timeout_seconds for task in work.tasks] == [0.03, 0.03]


def test_code_that_never_returns_is_ended_and_the_pipeline_goes_on() -> None:
    async def scenario() -> tuple[Answer | Parked, tuple[int, ...]]:
        python = Python(ProcessOptions(limit=1, grace_seconds=0.2))
        tasks = (
            spec(
                "stuck",
                rule(FAILED, "continue"),
                kind="python",
                timeout_ms=400,
                inputs={"code": "while True: pass"},
            ),
            spec(
                "exit",
                rule(FAILED, "continue"),
                kind="python",
                inputs={"code": "import sys; sys.exit(1)"},
            ),
            spec("fine", kind="python", inputs={"code": "import os\nreturn os.getpid()"}),
        )
        try:
            pipeline = Pipeline(Services(performers={"python": python}))
            return await pipeline.perform(job(Program(tasks))), python.pids
        finally:
            await python.close()

    answer, pids = run(scenario())
    assert isinstance(answer, Answer)
    assert answer.result in pids
    assert gone(*pids)


def test_a_timeout_of_the_performer_itself_is_no_defect() -> None:
    fault = fault_of(answer_of([spec("a", kind="w")], {"w": Scripted(TimeoutError())}))
    assert (fault.kind, fault.message) == ("timeout", "the w work ran out of time")


@pytest.mark.parametrize("where", ["in a task", "between retries", "in a loop of jumps"])
def test_a_cancel_goes_through(where: str) -> None:
    async def scenario() -> None:
        started = asyncio.Event()

        async def hang(_: Task) -> Answer:
            started.set()
            if where == "in a task":
                await asyncio.sleep(3600)
            return error()

        action = "jump" if where == "in a loop of jumps" else "retry"
        tasks = (spec("a", rule(None, action, to="a", delay=3600), kind="w"),)
        pipeline = Pipeline(Services(performers={"w": Scripted(hang)}))
        work = asyncio.ensure_future(pipeline.perform(job(Program(tasks, jumps_max=10**9))))
        await started.wait()
        await asyncio.sleep(0.01)
        work.cancel()
        with pytest.raises(asyncio.CancelledError):
            await work

    run(scenario())


# -- what can break --------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("defect", "words"),
    [
        (ZeroDivisionError("oops"), "the w performer failed: ZeroDivisionError('oops')"),
        (lambda _: "text", "the w performer gave a str for an answer"),
    ],
)
def test_a_broken_performer_is_a_defect_that_rules_can_meet(defect: Any, words: str) -> None:
    fault = fault_of(answer_of([spec("a", kind="w")], {"w": Scripted(defect)}))
    assert (fault.kind, fault.retryable, fault.message) == ("defect", False, words)
    caught = rule("local.outcome.error.kind == 'defect'", "continue")
    assert answer_of([spec("a", caught, kind="w")], {"w": Scripted(defect)}).status == "ok"


def test_inputs_that_cannot_be_rendered_are_an_error_of_the_task() -> None:
    tasks = [spec("a", kind="w", value="{{ 1 / 0 }}")]
    fault = fault_of(answer_of(tasks, {"w": Scripted(ok())}))
    assert (fault.kind, fault.retryable) == ("transform", False)
    assert "division by zero" in fault.message


def test_a_keychain_that_fails_is_an_error_of_the_task() -> None:
    async def keyring(_: Task) -> Any:
        raise KeychainError("keychain.idp: no token", kind="connection", retryable=True)

    sleeps = Sleeps()
    tasks = [spec("a", rule("local.outcome.error.retryable", "retry", attempts=2), kind="w")]
    fault = fault_of(answer_of(tasks, {"w": Scripted(ok())}, keyring=keyring, sleeps=sleeps))
    assert (fault.kind, fault.retryable, sleeps.seconds) == ("connection", True, [1.0])


# -- results by reference --------------------------------------------------------------------

LARGE = {"items": list(range(300)), "count": 300}


def test_the_policy_of_a_task_decides_what_travels() -> None:
    payloads = MemoryPayloads()
    tasks = [
        spec("a", kind="w", output={"inline_max_bytes": 100}),
        spec(
            "b",
            kind="echo",
            value=["{{ local.prev['items'] | length }}", "{{ local.prev._size_bytes }}"],
        ),
    ]
    performers = {"w": Scripted(ok(LARGE)), "echo": Scripted(echo)}
    whole, size = answer_of(tasks, performers, payloads=payloads).result
    assert whole == 300  # the next task sees all of it
    assert size > 1000
    travelled = answer_of(tasks[:1], performers, payloads=payloads).result
    assert (travelled["count"], travelled["items_count"]) == (300, 300)
    (content,) = payloads.contents.values()
    assert decoded(content) == LARGE


def test_a_policy_that_cannot_be_read_fails_the_task() -> None:
    tasks = [spec("a", kind="w", output={"inline_max_bytes": "many"})]
    fault = fault_of(answer_of(tasks, {"w": Scripted(ok(1))}))
    assert "task a: output.inline_max_bytes must be a number of bytes" in fault.message


def test_a_store_that_fails_may_be_tried_again() -> None:
    class Broken:
        async def get(self, sha256: str) -> bytes | None:
            raise NotImplementedError

        async def put(self, content: bytes, run: str = "", scope: str = "job") -> str:  # noqa: ARG002
            raise StoreError("the disk is full")

    tasks = [spec("a", kind="w", output={"inline_max_bytes": 10})]
    fault = fault_of(answer_of(tasks, {"w": Scripted(ok(LARGE))}, payloads=Broken()))
    assert (fault.kind, fault.retryable) == ("store", True)
