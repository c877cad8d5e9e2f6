"""Modules of this process in virtual time: waits cost nothing, restarts come when they are due."""

from __future__ import annotations

import asyncio
from typing import Any

from anabranch.clock import ManualClock
from anabranch.testing.virtual.event_loop import NEVER, VirtualLoop

from .support import START, ScriptedModule, hosted, in_process


class Virtual:
    """A loop whose time goes on when there is nothing to do now."""

    def __init__(self) -> None:
        self.clock = ManualClock(START)
        self.failures: list[BaseException] = []
        self.loop = VirtualLoop(lambda: self.clock.now() / 1000, lambda: 0.0, self.failures.append)

    def run(self, work: Any) -> Any:
        task = self.loop.create_task(work)
        while not task.done():
            at = self.loop.next_at()
            assert at != NEVER, "it waits for nothing"
            self.clock.advance_to(round(at * 1000))
            self.loop.run_some(1000)
        self.loop.shut_down()
        return task.result()


def test_a_module_that_is_never_ready_is_given_up_after_all_its_restarts() -> None:
    virtual = Virtual()
    module = ScriptedModule("m")
    module.answers["/readyz"] = (503, None)
    config = in_process("m", restart_policy={"max_restarts": 3, "window_sec": 3600})

    async def scenario() -> Any:
        async with hosted(module, configs=[config], clock=virtual.clock) as node:
            return (await node.ask("GET", "/v1/modules/m")).body

    view = virtual.run(scenario())
    assert (view["state"], view["restarts"]) == ("failed", 3)
    assert virtual.clock.now() - START >= 4 * 10_000
    assert virtual.failures == []


def test_restarts_outside_the_window_do_not_count() -> None:
    virtual = Virtual()
    module = ScriptedModule("m")
    module.answers["/readyz"] = (503, None)
    config = in_process("m", restart_policy={"max_restarts": 1, "window_sec": 5})

    async def scenario() -> int:
        async with hosted(configs=[{**config, "enabled": False}], clock=virtual.clock) as node:
            node.part.attach("m", module)
            node.part.modules["m"].start()
            await asyncio.sleep(100)
            return node.part.modules["m"].restarts

    assert virtual.run(scenario()) >= 5  # each start takes 10 s to fail: longer than the window


def test_a_day_with_modules_takes_no_steps_of_their_own() -> None:
    virtual = Virtual()
    module = ScriptedModule("m")

    async def scenario() -> None:
        async with hosted(module, configs=[in_process("m")], clock=virtual.clock):
            await asyncio.sleep(86_400)

    virtual.run(scenario())
    assert len(module.calls) == 2
