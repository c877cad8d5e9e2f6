"""All expressions of one turn of a run share a budget; what is beyond does not hold the others."""

from __future__ import annotations

import asyncio
from random import Random
from typing import Any

from anabranch import Engine, Toolbox
from anabranch.expressions.jinja.jinja import Jinja
from anabranch.kernel import stimuli as s
from anabranch.net.net import Admission, AdmitRule, Net, Step
from anabranch.operations.definitions.prepare import compiler
from anabranch.runtime.core import Core
from anabranch.runtime.nets import Nets
from anabranch.store.memory.store import MemoryStore
from anabranch.testing.virtual.one_lane import OneLane
from anabranch.testing.virtual.world import UNLIMITED

from .support import KINDS, Doing, engine, playbook, run, start, step

#: Nearly half of what a turn has, within hundredths of a second: mostly the sizes of texts.
HEAVY = "(['x' * 1000000] * 8) | sort | length == 8"


def arc(target: str) -> dict[str, Any]:
    return {"step": target, "when": HEAVY}


def fork(guards: int) -> str:
    """So many heavy guards, all asked in the turn in which the first step ends."""
    targets = [f"s{number}" for number in range(guards)]
    then = {"spec": {"mode": "inclusive"}, "arcs": [arc(target) for target in targets]}
    return playbook(step("start", next=then), *(step(target) for target in targets))


def chain(guards: int) -> str:
    """As many, but each in a turn of its own."""
    between = [step(f"s{n}", next={"arcs": [arc(f"s{n + 1}")]}) for n in range(guards)]
    return playbook(*between, step(f"s{guards}"))


async def outcome(engine: Engine, run_id: str) -> tuple[str, str]:
    result = await engine.wait(run_id)
    return result.status, (result.problem or {}).get("message", "")


def test_guards_of_one_turn_share_what_it_may_take() -> None:
    async def work() -> None:
        async with Engine(":memory:") as engine:
            assert await outcome(engine, await engine.start(fork(2))) == ("completed", "")
            status, why = await outcome(engine, await engine.start(fork(4)))
            assert status == "failed"
            assert "the limit turn_work_max is 67,108,864" in why
            # The next turn has a budget of its own, and so has every other run.
            assert await outcome(engine, await engine.start(chain(4))) == ("completed", "")

    run(work())


def test_a_redrive_comes_to_the_same_although_it_takes_all_answers_over_in_one_turn() -> None:
    async def work() -> None:
        async with Engine(":memory:") as engine:
            first = await engine.start(chain(5))
            assert await outcome(engine, first) == ("completed", "")
            again = await engine.redrive(first, from_step="s5")
            assert await outcome(engine, again) == ("completed", "")

    run(work())


def test_a_step_that_waits_for_admission_is_not_forgotten_where_the_budget_ends() -> None:
    """Nobody would ask again, perhaps for ever: it fails with the reason."""
    rules = [{"when": f"{{{{ ctx.go and {HEAVY} }}}}", "then": {"allow": True}}]
    waiting = [f"s{number}" for number in range(4)]
    then = {"spec": {"mode": "inclusive"}, "arcs": [{"step": target} for target in waiting]}
    text = playbook(
        step("start", next=then),
        *(step(target, spec={"policy": {"admit": {"rules": rules}}}) for target in waiting),
    )

    async def work() -> None:
        async with Engine(":memory:") as engine:
            run_id = await engine.start(text)
            await engine.wait(run_id, standing=True)
            await engine.patch(run_id, {"go": True})
            status, why = await outcome(engine, run_id)
            assert status == "failed"
            assert "admission of step" in why
            assert "turn_work_max" in why

    run(work())


def test_tasks_of_a_pipeline_that_never_wait_let_the_event_loop_turn() -> None:
    rounds, seen = 0, []
    toolbox = Toolbox()

    async def look(heavy: bool) -> bool:
        seen.append(rounds)
        return heavy

    toolbox.tool("look")(look)
    tasks = [{"name": f"t{n}", "kind": "look", "heavy": f"{{{{ {HEAVY} }}}}"} for n in range(4)]

    async def count_rounds() -> None:
        nonlocal rounds
        while True:
            rounds += 1
            await asyncio.sleep(0)

    async def work() -> None:
        async with Engine(":memory:", toolbox=toolbox) as engine:
            counting = asyncio.create_task(count_rounds())
            text = playbook({"step": "start", "tool": tasks})
            assert await outcome(engine, await engine.start(text)) == ("completed", "")
            counting.cancel()

    run(work())
    assert len(set(seen)) == 4


def test_runs_behind_heavy_ones_wait_for_the_next_turn_of_the_engine() -> None:
    """In between, the event loop gets its own turn. No run is refused for what others did."""
    guard = Jinja().condition(HEAVY)
    held = Step("a", admission=Admission((AdmitRule(guard, True),)))
    steps = {"a": held}
    net = Net(name="heavy", dialect="test", fingerprint="heavy", entry="a", steps=steps)
    core = Core(MemoryStore(), Nets(MemoryStore(), compiler(KINDS)), OneLane(UNLIMITED, Random(1)))
    for number in range(6):
        core.open_run(f"run-{number}", net)
        core.offer(f"run-{number}", s.Start(run=f"run-{number}"))
    left = []
    while core.inbox:
        commits = core.turn(1).batch.commits
        assert not any(commit.head.problems for commit in commits)
        left.append(core.inbox)
    assert left == [5, 4, 3, 2, 1, 0]


def test_the_many_jobs_of_one_run_keep_those_of_another_waiting_for_one_of_them() -> None:
    """Where each takes what a round of the event loop can give."""
    inputs = "{{ range(6000) | map('abs') | sum }}"
    targets = [f"s{number}" for number in range(200)]
    then = {"spec": {"mode": "inclusive"}, "arcs": [{"step": target} for target in targets]}
    jobs = [step(target, "doing", given=inputs) for target in targets]
    many = playbook(step("first", next=then), *jobs)
    few = playbook(step("one", "doing", "two", given=inputs), step("two", "doing", given=inputs))

    async def work() -> list[str]:
        doing = Doing()
        async with engine(performers={"doing": doing}) as made:
            first = await start(made, many)
            second = await start(made, few)
            await made.wait(second)
            done_before = [task.run for task in doing.tasks]
            assert done_before.count(second) == 2
            await made.wait(first)
        assert len(doing.tasks) == 202
        return done_before

    assert len(run(work())) < 100
