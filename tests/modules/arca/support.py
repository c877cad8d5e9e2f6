"""A node of the world with a module that runs workflows, and work that tests decide about."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from anabranch.kernel.values import Answer as Done
from anabranch.kernel.values import failed, succeeded
from anabranch.market.node.api import Answer
from anabranch.market.node.modules.part import HostCall
from anabranch.modules.arca.config import ArcaConfig
from anabranch.modules.arca.details import StepDetails
from anabranch.modules.arca.hosted_runs import HostedRuns
from anabranch.modules.kit.composed import ComposedModule
from anabranch.modules.kit.host import Host, HostUnavailable
from anabranch.store.memory.store import MemoryStore
from anabranch.testing.market import LastingModule, ModuleLife, NodeSpec, World
from anabranch.work.port import InlineAnswer, Task

BUYER = "buyer"
PROVIDER = "participant:did:key:z6MkwJFpvJVFe15ygGgYLTYuiPwfhkkDRkMG4eKQFT8g65yE"
RUNS = "/v1/enact/arca/runs"
HOST_RUNS = "/v1/module/workflow/runs"


class Desk:
    """What the steps of a run come to; it outlives the module, as other nodes do."""

    def __init__(self) -> None:
        self.answers: dict[str, deque[Any]] = {}
        self.asked: list[tuple[str, str, int]] = []  # run, step, try
        self.waiting: set[tuple[str, str]] = set()
        self.given: dict[tuple[str, str, int], Any] = {}  # to whom asks the same again
        #: What performers say about steps while they work.
        self.notes: dict[str, Mapping[str, Any]] = {}

    def answer(self, step: str, *outputs: Any) -> None:
        """In order; None is a failure that may be tried again."""
        self.answers.setdefault(step, deque()).extend(outputs)


class _Search:
    async def perform(self, task: Task) -> Done:
        return self.perform_now(task)

    def perform_now(self, _task: Task) -> Done:
        return InlineAnswer(status="ok", result={"targets": [PROVIDER]})


class _Request:
    def __init__(self, desk: Desk, details: StepDetails) -> None:
        self._desk = desk
        self._details = details

    async def perform(self, task: Task) -> Done:
        desk, step = self._desk, task.step
        desk.asked.append((task.run, step, task.tries))
        if step in desk.notes:
            self._details.note(task.run, step, **desk.notes[step])
        desk.waiting.add((task.run, step))
        key = task.run, task.job, task.tries
        try:
            while key not in desk.given and not desk.answers.get(step):
                await asyncio.sleep(0.5)
        finally:
            desk.waiting.discard((task.run, step))
        if key not in desk.given:
            desk.given[key] = desk.answers[step].popleft()
        output = desk.given[key]
        if output is None:
            return failed("refused", "not today")
        return succeeded(output)


class RunsModule(ComposedModule):
    """Runs alone, without a catalog and without orders."""

    def __init__(self, life: ModuleLife, store: MemoryStore, desk: Desk) -> None:
        details = StepDetails()
        request = _Request(desk, details)
        self.runs = HostedRuns(
            host=Host(life.host),
            clock=life.clock,
            store=life.disk(store),
            performers={"targets": _Search(), "request": request, "dispatch": request},
            details=details,
            config=ArcaConfig(),
        )
        super().__init__("arca", [self.runs])

    async def ready(self) -> bool:
        return self.runs.ready


class Stores:
    """The homes of the module, so that one can be lost."""

    def __init__(self) -> None:
        self.newest = MemoryStore()

    def lose(self) -> None:
        self.newest = MemoryStore()


#: (when, method, path, body) → an answer in the place of the host's, or None.
OnHost = Callable[[str, str, str, Any], Awaitable[Answer | None]]


async def _nothing(_when: str, _method: str, _path: str, _body: Any) -> None:
    return None


class Stage:
    """One node with the module; `async with Stage() as stage:`."""

    def __init__(self) -> None:
        self.desk = Desk()
        self.stores = Stores()
        self.modules: list[RunsModule] = []
        self.host_is_away = False
        self.asked_host: list[tuple[str, str]] = []  # method, path
        #: Told "before" and "after" each call of the host; may answer in its place, or raise.
        self.on_host: OnHost = _nothing

        def make(life: ModuleLife, stores: Stores) -> RunsModule:
            reached = life._replace(host=self._reached(life.host))
            self.modules.append(RunsModule(reached, stores.newest, self.desk))
            return self.modules[-1]

        arca = LastingModule(lambda _clock: self.stores, make)
        self.world = World([NodeSpec(name=BUYER, modules={"arca": arca})])
        self.world.advance(2)

    def _reached(self, host: HostCall) -> HostCall:
        async def call(method: str, path: str, body: Any, query: Mapping[str, str]) -> Answer:
            if self.host_is_away:
                raise HostUnavailable("it is away")
            self.asked_host.append((method, path))
            said = await self.on_host("before", method, path, body)
            answer = said or await host(method, path, body, query)
            return await self.on_host("after", method, path, body) or answer

        return call

    async def __aenter__(self) -> Stage:
        return self

    async def __aexit__(self, *_exc: object) -> None:
        await self.world.close()

    @property
    def node(self) -> Any:
        return self.world[BUYER]

    async def ask(self, method: str, path: str, body: Any = None, as_: str = "operator") -> Any:
        return await self.node.request(method, path, body, as_=as_)

    async def start(self, definition: Any, run: str = "run:one", **more: Any) -> Any:
        body = {"definition": definition, "run_id": run, **more}
        answer = await self.ask("POST", RUNS, body)
        assert answer.status == 201, answer.body
        return answer.body

    async def run(self, run: str = "run:one") -> Any:
        answer = await self.ask("GET", f"{RUNS}/{run}")
        assert answer.status == 200, answer.body
        return answer.body

    async def at_host(self, run: str = "run:one") -> Any:
        answer = await self.ask("GET", f"{HOST_RUNS}/{run}")
        assert answer.status == 200, answer.body
        return answer.body

    async def until(self, is_so: Callable[[Any], bool], run: str = "run:one") -> Any:
        """What the host shows of a run, once it is so; at most an hour of virtual time."""
        for _ in range(720):
            shown = await self.at_host(run)
            if is_so(shown):
                return shown
            self.world.advance(5)
        raise AssertionError(f"the host still shows {str(shown)[:2000]}")

    async def ended(self, run: str = "run:one") -> Any:
        return await self.until(lambda shown: shown["status"] not in ("pending", "running"), run)


def step(step_id: str, **more: Any) -> dict[str, Any]:
    return {
        "step_id": step_id,
        "service_type": "text/summarise",
        "target": {"resolve": "static", "participants": [PROVIDER]},
        **more,
    }


def workflow(*steps: Mapping[str, Any], **more: Any) -> dict[str, Any]:
    return {"workflow_id": "summaries", "plan": {"steps": list(steps)}, **more}
