"""What the tests of the runtime share: playbooks in short, engines on any store, a hang guard."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, TypeVar

from anabranch.clock import Clock, SystemClock
from anabranch.kernel.events import Event
from anabranch.kernel.state import State
from anabranch.kernel.summary import summarise
from anabranch.kernel.values import Answer, succeeded
from anabranch.net.net import Net
from anabranch.operations.definitions.prepare import compiler, prepare
from anabranch.runtime.engine import EngineLoop
from anabranch.runtime.live_run import history
from anabranch.runtime.nets import Nets
from anabranch.runtime.slices import Slices
from anabranch.settings import Settings
from anabranch.store.memory.store import MemoryStore
from anabranch.store.ports import Batch, Store
from anabranch.work.kinds.noop import Noop
from anabranch.work.port import Parked, Performer, Task
from hangs import HANG_SECONDS

T = TypeVar("T")
Perform = Callable[[Task], Awaitable[Answer | Parked]]


def run(work: Coroutine[Any, Any, T], seconds: float = HANG_SECONDS) -> T:
    """Runs to the end in a loop of its own, with a limit so that a hang becomes a failure."""

    async def limited() -> T:
        async with asyncio.timeout(seconds):
            return await work

    return asyncio.run(limited())


# -- playbooks -------------------------------------------------------------------------------


def playbook(*workflow: Mapping[str, Any], name: str = "test", **top: Any) -> str:
    head = {"apiVersion": "noetl.io/v2", "kind": "Playbook", "metadata": {"name": name}}
    return json.dumps({**head, **top, "workflow": list(workflow)}) + "\n"


STEP_KEYS: tuple[str, ...] = ("spec", "set_ctx", "next")


def step(name: str, kind: str = "noop", *then: str, **more: Any) -> dict[str, Any]:
    """A step of that kind; keys of the step itself (`spec`, `set_ctx`) stay out of its tool."""
    own: dict[str, Any] = {key: more.pop(key) for key in STEP_KEYS if key in more}
    arcs = {"next": {"arcs": [{"step": target} for target in then]}} if then else {}
    return {"step": name, "tool": {"kind": kind, **more}, **arcs, **own}


def chain(length: int, kind: str = "noop", **more: Any) -> str:
    names = [f"s{number}" for number in range(length)]
    return playbook(
        *(step(one, kind, *names[at + 1 : at + 2], **more) for at, one in enumerate(names)),
        name=f"chain-{length}-{kind}",
    )


def gated(name: str = "gated") -> str:
    """Waits at its first step until somebody sets `go` in the context."""
    rules = [{"when": "{{ ctx.go }}", "then": {"allow": True}}]
    return playbook(
        step("held", "noop", "after", spec={"policy": {"admit": {"rules": rules}}}),
        step("after", "noop", result="went on"),
        name=name,
    )


def asking(*actors: str) -> str:
    return playbook(
        step("ask", "decision", "after", ask="Go on?", **({"actors": actors} if actors else {})),
        step("after", "noop", result="went on"),
        name="asking",
    )


# -- engines ---------------------------------------------------------------------------------


class Doing:
    """A performer that calls a function and remembers what it was asked."""

    def __init__(self, perform: Perform | None = None) -> None:
        self._perform = perform
        self.tasks: list[Task] = []

    async def perform(self, task: Task) -> Answer | Parked:
        self.tasks.append(task)
        return succeeded("ok") if self._perform is None else await self._perform(task)


async def forever(_task: Task) -> Answer:
    await asyncio.Event().wait()
    raise AssertionError("nobody sets that event")


@asynccontextmanager
async def engine(
    store: Store | None = None,
    performers: Mapping[str, Performer] | None = None,
    *,
    clock: Clock | None = None,
    grace: float = 0,
    only: list[str] | None = None,
    require: Callable[[Net, State | None], None] | None = None,
    sharing: bool = False,
    **settings: Any,
) -> AsyncIterator[EngineLoop]:
    """An engine with `noop` and these performers; stopped at the end without waiting for work. The
    event loop is its own, unless it is `sharing` that with others, as in a server."""
    chosen = store if store is not None else MemoryStore()
    made = EngineLoop(
        chosen,
        Nets(chosen, compiler()),
        {"noop": Noop(), **(performers or {})},
        clock=clock or SystemClock(),
        settings=Settings(**settings),
        require=require,
    )
    if sharing:
        made.share_loop(Slices())
    await made.open(only=only)
    try:
        yield made
    finally:
        await made.close(grace)


async def start(made: EngineLoop, text: str, kinds: tuple[str, ...] = (), **given: Any) -> str:
    prepared = prepare(text, [*KINDS, *kinds])
    return await made.start(prepared.definition, prepared.net, **given)


KINDS = ("doing", "first", "second", "child")  # the names tests give to their performers


def summary(made: EngineLoop, state: State) -> dict[str, Any]:
    return summarise(made.nets.get(state.definition), state)


def log_of(store: Store, name: str) -> list[Event]:
    return [event for _, event in history(store.read(name))]


async def until(condition: Callable[[], object], seconds: float = HANG_SECONDS) -> None:
    """Give others their turn until the condition holds."""
    async with asyncio.timeout(seconds):
        while not condition():
            await asyncio.sleep(0.002)


class Crash(Exception):
    """Stands for the death of the process: what was not committed never happened."""


class Fragile(MemoryStore):
    """A store whose commits can be watched, held up and made to fail."""

    def __init__(self) -> None:
        super().__init__()
        self.batches: list[Batch] = []
        self.before: Callable[[Batch], None] = lambda _batch: None

    def commit(self, batch: Batch) -> None:
        self.before(batch)
        super().commit(batch)
        self.batches.append(batch)


def file_of(folder: Path) -> str:
    return str(folder / "store.db")
