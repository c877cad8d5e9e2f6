"""A simulated server: the real engine with everything it has of the cluster, in a process of its
own that can be stopped and killed between any two steps of its event loop."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from math import ceil
from random import Random
from typing import Any, Protocol, cast

from anabranch.errors import AnabranchError, MissingRequirements
from anabranch.kernel.state import State
from anabranch.net.net import Net
from anabranch.operations.definitions.prepare import compiler
from anabranch.operations.webhooks.dispatcher import WebhookDispatcher
from anabranch.operations.webhooks.matcher import WebhookMatcher
from anabranch.operations.webhooks.sender import DELIVERY, SendResult, WebhookSender
from anabranch.runtime.engine import EngineLoop
from anabranch.runtime.nets import Nets
from anabranch.settings import Settings
from anabranch.store.ports import Store
from anabranch.testing.simulated.shared_store import UnreliableServer, UnreliableStore
from anabranch.testing.simulated.workload import Effect, child, parent
from anabranch.testing.virtual.event_loop import NEVER, RESOLUTION, TICK, VirtualLoop
from anabranch.work.kinds.child import Child
from anabranch.work.kinds.noop import Noop
from anabranch.work.kinds.wait import WaitPerformer
from anabranch.work.port import Task

LEASE_SECONDS = 2.0
Told = Callable[[Any, AnabranchError | None], None]


class Surroundings(Protocol):
    """The world as a server sees it."""

    dice: Random
    shared: UnreliableStore

    def now(self) -> int: ...

    def runs(self) -> list[str]: ...

    @property
    def child_seconds(self) -> float:
        """What the work of a child takes beyond that of others."""
        ...

    def strikes(self, name: str) -> bool: ...

    def stop(self, server: SimulatedServer) -> None:
        """As SIGSTOP does, for a while."""
        ...

    def broke(self, error: BaseException) -> None: ...

    def effect_left(self, server: SimulatedServer, task: Task) -> None: ...

    def notice_sent(self, server: SimulatedServer, delivery: str) -> None: ...

    def notice_taken(self, delivery: str) -> bool:
        """Whether the receiver takes it."""
        ...


class SimulatedServer:
    def __init__(
        self, world: Surroundings, name: str, *, sends_webhooks: bool, lacks: bool = False
    ) -> None:
        """One that `lacks` something sets the runs aside that wait for a child; not the child."""
        self._world = world
        self.name = name
        self.lacks = lacks
        self.asleep_until = 0
        self.dead = False
        self.leaving = False
        self.drains = 0  # how often an operator drained it
        dice = world.dice
        self._slow_disk = dice.random() < 0.5
        self._spent = 0.0  # by commits, where they are slow
        self.loop = VirtualLoop(self.seconds, self._thread_seconds, self._failed)
        self.store = UnreliableServer(world.shared, name)
        if self._slow_disk:
            self.store.takes_time = self._spend
        store = cast(Store, self.store)
        nets = Nets(store, compiler(["effect"]))
        self.engine = EngineLoop(
            store,
            nets,
            {
                "noop": Noop(),
                "wait": WaitPerformer(),
                "effect": Effect(dice, self._effect_left, world.runs, world.child_seconds),
                "playbook": Child(self._start_child),
            },
            clock=self,
            settings=Settings(
                poll_seconds=0.8,
                server_lease_seconds=LEASE_SECONDS,
                grace_seconds=1.0,
                evict_after_seconds=dice.choice((0.0, 2.0)),
                snapshot_every=dice.choice((1, 5, 200)),
            ),
            owner=name,
            require=_lack if lacks else None,
            seconds=self.seconds,
        )
        self.engine.be_patient()
        self.engine.draw_run_id = self._draw_run_id  # type: ignore[assignment]
        self.dispatcher = self._dispatcher(nets) if sends_webhooks else None
        self.loop.create_task(self._open())

    async def _open(self) -> None:
        try:
            await self.engine.open()
        except AnabranchError:
            if not self.leaving:
                raise
            return
        self.store.cluster.opened = True
        if self.dispatcher is not None:
            self.dispatcher.start()

    def leave(self) -> None:
        """As a server does that is told to stop."""
        self.leaving = True
        self.loop.create_task(self._close())

    async def _close(self) -> None:
        if self.dispatcher is not None:
            await self.dispatcher.close()
        await self.engine.close()
        self.dead = True

    # -- time --------------------------------------------------------------------------------

    def now(self) -> int:
        """The wall clock."""
        return self._world.now()

    def seconds(self) -> float:
        """Goes on while the process is stopped."""
        return self._world.now() / 1000 + self._spent

    def _spend(self) -> None:
        self._spent += 0.01

    def _thread_seconds(self) -> float:
        """Where a process is stopped here, it is so with a turn that is computed and not written,
        or with one that is written and its effects not let out."""
        if self._world.strikes("stop_midway"):
            self._world.stop(self)
            return TICK
        return self._world.dice.choice((0.0, 0.0, 0.001, 0.02))

    def next_at(self) -> float:
        """When it has something to do, on the clock of the world."""
        at = self.loop.next_at()
        if at == 0.0:  # now
            return self.asleep_until
        if at == NEVER:
            return NEVER
        return max(self.asleep_until, ceil((at - self._spent - RESOLUTION) * 1000))

    def run_some(self, most: int) -> None:
        self.loop.run_some(most)
        if self.engine.failure is not None and not self.leaving:
            self._failed(self.engine.failure)
        for why in self.engine.set_aside.values():
            if not isinstance(why, MissingRequirements):
                self._failed(why)

    def _failed(self, error: BaseException) -> None:
        if not self.dead:
            self._world.broke(error)

    # -- what it does for others -----------------------------------------------------------------

    def ask(self, question: Callable[[EngineLoop], Awaitable[Any]], told: Told) -> None:
        """As a request to its API: it is told to the one who asked how that went."""

        async def handle() -> None:
            try:
                answer = await question(self.engine)
            except AnabranchError as error:
                told(None, error)
            else:
                told(answer, None)

        self.loop.create_task(handle())

    @property
    def drained(self) -> bool:
        """Whether it was at its last look at the cluster."""
        assert self.engine.member is not None
        return self.engine.member.membership.drained

    def owns(self, run: str) -> bool:
        """Whether the store says so."""
        shared = self._world.shared
        return shared.partitions[shared.place(run)].owner == self.name

    # -- work ------------------------------------------------------------------------------------

    def _draw_run_id(self, _now: int) -> str:
        return f"run-{self._world.dice.randrange(10**9)}"

    def _effect_left(self, task: Task) -> None:
        self._world.effect_left(self, task)

    async def _start_child(
        self, _path: str, given: Mapping[str, Any], run: str, parent: str | None, returns: str
    ) -> str:
        if self.engine.known(run):
            return run
        definition, net = child().definition, child().net
        return await self.engine.start(
            definition, net, run=run, parent=parent, returns=returns, input=given
        )

    # -- webhooks --------------------------------------------------------------------------------

    def _dispatcher(self, nets: Nets) -> WebhookDispatcher:
        dispatcher = WebhookDispatcher(
            cast(Store, self.store),
            WebhookMatcher(cast(Store, self.store), nets, 10_000),
            cast(WebhookSender, _Receiver(self._world, self)),
            clock=self,
            settings=Settings(),
            dice=self._world.dice.random,
            may_act_for=self.engine.may_act_for,
        )
        assert self.engine.member is not None
        self.engine.member.before_hand_over.append(dispatcher.let_go)
        self.engine.listen(dispatcher.news)
        return dispatcher


def _lack(net: Net, _state: State | None) -> None:
    if net.name == parent().net.name:
        raise MissingRequirements("this server lacks what a parent needs", ["tool"])


class _Receiver:
    """In the place of the sender of webhooks, with the receiver behind it."""

    def __init__(self, world: Surroundings, server: SimulatedServer) -> None:
        self._world = world
        self._server = server

    async def post(self, _url: str, _body: bytes, headers: Mapping[str, str]) -> SendResult:
        delivery = headers[DELIVERY]
        self._world.notice_sent(self._server, delivery)
        await asyncio.sleep(self._world.dice.choice((0.0, 0.05, 1.0)))
        return SendResult(200 if self._world.notice_taken(delivery) else 503)

    async def close(self) -> None:
        pass
