"""The head of a run says in one line why it stands as it does, for lists and searches."""

from __future__ import annotations

import asyncio
from functools import partial

from msgspec.structs import replace

from anabranch import Engine
from anabranch.kernel import stimuli as s
from anabranch.kernel.explain import REASON_LETTERS, reason_of
from anabranch.kernel.state import State
from anabranch.kernel.values import Answer, failed
from anabranch.net.net import Net
from anabranch.runtime.engine import EngineLoop
from anabranch.store.location import MEMORY
from anabranch.work.port import Task
from costs import operations

from .support import Doing, asking, chain, engine, forever, gated, playbook, run, start, step, until


def reason(made: EngineLoop, name: str) -> str:
    head = made.store.head(name)
    assert head is not None
    return head.reason


def fails(message: str) -> Doing:
    async def perform(_task: Task) -> Answer:
        return failed("http", message, retryable=False)

    return Doing(perform)


def test_a_run_that_waits_says_for_whom_or_what() -> None:
    pooled = playbook(step("train", "noop", spec={"pool": "gpu"}))
    cases: dict[str, str] = {
        asking("ann"): "ask waits for a decision by ann: Go on?",
        gated(): "held waits for admission (rules: {{ ctx.go }})",
        pooled: "train waits for a worker of pool gpu (attempt 1)",
    }

    async def scenario() -> None:
        async with engine() as made:
            for text, expected in cases.items():
                name = await start(made, text)
                await until(partial(reason, made, name))
                assert reason(made, name) == expected

    run(scenario())


def test_a_durable_wait_says_for_which_signal_or_that_it_is_for_time() -> None:
    cases: dict[str, str] = {
        playbook(step("pay", "wait", event="paid")): "pay waits for a signal paid",
        playbook(step("rest", "wait", **{"for": "30d"})): "rest waits for its time",
    }

    async def scenario() -> None:
        async with Engine(MEMORY) as made:
            for text, expected in cases.items():
                begun = await made.start(text)
                await made.wait(begun, standing=True)
                assert reason(made._open.engine, begun) == expected

    run(scenario())


def test_a_run_that_waits_for_a_place_says_under_which_limit() -> None:
    text = playbook(step("pay", "wait", event="paid"), name="one", concurrency={"limit": 1})

    async def scenario() -> None:
        async with Engine(MEMORY) as made:
            first = await made.start(text)
            await made.wait(first, standing=True)
            second = await made.start(text)
            loop = made._open.engine
            await until(partial(reason, loop, second))
            assert reason(loop, second).startswith("waits for a place under the limit of")

    run(scenario())


def test_a_run_that_failed_says_where_and_why_and_one_that_is_well_says_nothing() -> None:
    async def scenario() -> None:
        async with engine(performers={"doing": fails("HTTP 500 from the bank")}) as made:
            bad = await start(made, playbook(step("pay", "doing")))
            await made.wait(bad)
            assert reason(made, bad) == "pay: HTTP 500 from the bank"
            good = await start(made, chain(2))
            await made.wait(good)
            assert reason(made, good) == ""

    run(scenario())


def test_what_is_being_done_needs_no_reason_and_a_pause_has_its_own() -> None:
    async def scenario() -> None:
        async with engine(performers={"doing": Doing(forever)}) as made:
            name = await start(made, playbook(step("dig", "doing")))
            await until(lambda: "dig" in str(made.state(name).jobs))
            assert reason(made, name) == ""
            await made.send(name, s.Pause("ann", "lunch"))
            await until(lambda: reason(made, name))
            assert reason(made, name) == "waits for an operator to resume it (paused: lunch)"
            await made.send(name, s.Resume("ann"))
            await until(lambda: not reason(made, name))

    run(scenario())


def test_a_retry_that_waits_says_so_and_a_cancelled_run_why() -> None:
    async def broken(_task: Task) -> Answer:
        return failed("http", "no route", retryable=True)

    text = playbook(step("call", "doing", spec={"retry": {"attempts": 3, "delay": 3600}}))

    async def scenario() -> None:
        async with engine(performers={"doing": Doing(broken)}) as made:
            name = await start(made, text)
            await until(lambda: "next try" in reason(made, name))
            assert reason(made, name) == "call waits for its next try (attempt 2)"
            await made.send(name, s.Cancel("ann", "the supplier called"))
            await made.wait(name)
            assert "the supplier called" in reason(made, name)

    run(scenario())


def test_a_reason_is_one_short_line_that_every_store_can_keep() -> None:
    nasty = "a\x00b\x1b[31m\n\t c\ud800 " + "x" * 100_000

    async def scenario() -> None:
        async with engine(performers={"doing": fails(nasty)}) as made:
            name = await start(made, playbook(step("pay", "doing")))
            await asyncio.sleep(0)
            await until(lambda: reason(made, name) or made.set_aside)
            if name not in made.set_aside:
                found = reason(made, name)
                assert found.isprintable()
                assert len(found) <= REASON_LETTERS
                assert found.startswith("pay: a b")

    run(scenario())


def test_a_reason_costs_the_same_however_many_jobs_wait() -> None:
    async def scenario() -> tuple[Net, State]:
        async with engine() as made:
            name = await start(made, playbook(step("train", "noop", spec={"pool": "gpu"})))
            await until(lambda: made.state(name).jobs)
            state = made.state(name)
            return made.nets.get(state.definition), state

    net, state = run(scenario())
    (job,) = state.jobs.values()

    def cost(width: int) -> int:
        state.jobs = {str(n): replace(job, id=str(n)) for n in range(width)}
        assert reason_of(net, state) == "train waits for a worker of pool gpu (attempt 1)"
        return operations(lambda: reason_of(net, state))

    assert cost(4000) == cost(400)
