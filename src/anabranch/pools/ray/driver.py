"""The process that is connected to a Ray cluster: a child of the engine, one per pool.

A program that is connected to Ray does not outlive its cluster. Measured with Ray 2.60: 60 seconds
after the head was killed, the library ended the program with exit code 1, from a thread of its own
and without running any `finally`; until then questions to the head hung. When only the node died to
which a program was connected, the program stayed, could do nothing any more, and no call said so.
Neither must happen to an engine. So this process ends whenever the cluster does not answer, the
engine starts another one, and ends one that says nothing.

When the engine is gone it ends at once, and Ray ends what it had out.
"""

from __future__ import annotations

import asyncio
import os
import platform
import re
import socket
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Mapping
from contextlib import suppress
from functools import partial
from importlib import import_module
from typing import Any

import ray
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from anabranch.pools.backend import Capacity
from anabranch.pools.driver.child import Engine, end_later
from anabranch.pools.driver.unpickling import exceptions_of, restrict_pickles
from anabranch.pools.driver.wire import (
    OUTCOME_BYTES,
    Away,
    Beat,
    Cancel,
    Close,
    Connect,
    Connected,
    Refused,
    Reply,
    Request,
    Submit,
    decode_said,
    told_of,
    word_of,
)
from anabranch.pools.fitness import absent, misfit
from anabranch.pools.ray.worker import Relay, reason_of

NAMESPACE = "anabranch"
REACH_SECONDS = 5.0
BEAT_SECONDS = 5.0
ANSWER_SECONDS = (
    120.0  # a cluster that takes longer is away; a broken connection is noticed at once
)
TAKE_SECONDS = 10.0  # how long the relay waits for news
STOP_SECONDS = 10.0  # for what runs when the engine wants no more
PROBED_MAX = 8  # nodes whose versions are looked at
PROBE_SECONDS = 600.0  # the environment of the work may have to be installed first
CONCURRENCY = 100_000  # calls that the relay answers later: one per job that takes longer


class Unfit(Exception):
    """The cluster answers and cannot do our jobs."""


# -- connecting ------------------------------------------------------------------------------


def connect(to: Connect) -> tuple[Any, Callable[[], Capacity]]:
    """The relay, and what tells the capacity. Raises `Unfit`, or anything else where the cluster
    does not answer."""
    _reach(to.pool.address)
    context = ray.init(
        to.pool.address,
        namespace=NAMESPACE,
        log_to_driver=False,
        configure_logging=False,
        runtime_env=dict(to.pool.runtime_env) or None,
    )
    demands = {"CPU": 1.0, **to.pool.resources}
    dashboard = getattr(context, "dashboard_url", "") or ""
    look = partial(
        capacity_of, demands=demands, dashboard=f"http://{dashboard}" if dashboard else ""
    )
    here = NodeAffinitySchedulingStrategy(ray.get_runtime_context().get_node_id(), soft=False)
    place = {"num_cpus": 0, "max_concurrency": CONCURRENCY, "scheduling_strategy": here}
    relay = ray.remote(Relay).options(**place).remote(to.entry, to.versions, options_of(demands))
    _probe(to, _fitting(ray.nodes(), demands))
    ray.get(relay.ready.remote(), timeout=PROBE_SECONDS)
    return relay, look


def _reach(address: str) -> None:
    """Ray takes long to say that nothing is there, and much text."""
    host, _, port = address.removeprefix("ray://").rpartition(":")
    if host:
        try:
            socket.create_connection((host.strip("[]"), int(port)), REACH_SECONDS).close()
        except OSError as error:
            raise ConnectionError(f"nothing answers there ({error.strerror or error})") from None


def options_of(demands: Mapping[str, float]) -> dict[str, Any]:
    """What a job takes, in the words of Ray."""
    own = {"CPU": "num_cpus", "GPU": "num_gpus", "memory": "memory"}
    rest = {name: amount for name, amount in demands.items() if name not in own}
    return {own[name]: demands[name] for name in own if name in demands} | {"resources": rest}


def capacity_of(*, demands: Mapping[str, float], dashboard: str) -> Capacity:
    nodes = _fitting(ray.nodes(), demands)
    slots = sum(_slots(node["Resources"], demands) for node in nodes)
    return Capacity(
        slots=slots, workers=len(nodes), dashboard=dashboard, version=str(ray.__version__)
    )


def _fitting(nodes: Iterable[Mapping[str, Any]], demands: Mapping[str, float]) -> list[Any]:
    """Nodes that can do a job of ours."""
    return [node for node in nodes if node["Alive"] and _slots(node["Resources"], demands)]


def _slots(has: Mapping[str, float], demands: Mapping[str, float]) -> int:
    fit = [int(has.get(name, 0) / amount) for name, amount in demands.items() if amount > 0]
    return min(fit) if fit else int(has.get("CPU", 0))


# -- versions --------------------------------------------------------------------------------


def _probe(to: Connect, nodes: list[Any]) -> None:
    """Raises `Unfit` where a node has another Python or another version of us."""
    probe = ray.remote(_probe_of(to.entry))
    asked = []
    for node in nodes[:PROBED_MAX] or [None]:
        where: Any = "DEFAULT"
        if node is not None:
            where = NodeAffinitySchedulingStrategy(node["NodeID"], soft=True)
        options = {"name": "anabranch-probe", "num_cpus": 0, "scheduling_strategy": where}
        asked.append(probe.options(**options).remote())
    for found in ray.get(asked, timeout=PROBE_SECONDS):
        who = f"the worker {found['worker']}"
        wrong = absent(who, found["missing"]) if "missing" in found else ""
        if wrong := wrong or misfit(who, found, to.versions):
            raise Unfit(wrong)


def _probe_of(entry: str) -> Callable[[], dict[str, str]]:
    """A function inside a function is sent as code: it also runs where we are not installed."""

    def probe() -> dict[str, str]:
        who = {"worker": f"{ray.util.get_node_ip_address()}/{os.getpid()}"}
        try:
            return {**import_module(entry).probe(), **who}
        except ImportError as error:
            return {**who, "python": platform.python_version(), "missing": str(error)}

    return probe


def refused(error: BaseException) -> Refused:
    """Why there is no connection."""
    if isinstance(error, Unfit):
        return Refused(str(error), True)
    reason = reason_of(error)
    if mismatch := re.search(r"[Vv]ersion mismatch.*", reason):
        return Refused(f"Ray: {mismatch.group()}", True)
    if isinstance(error, ConnectionError):
        return Refused(str(error), False)
    unfit = (ImportError, ValueError, TypeError, ray.exceptions.RuntimeEnvSetupError)
    return Refused(reason, isinstance(error, unfit))


# -- between the engine and the relay --------------------------------------------------------


class Driver:
    """Hands on what both sides say, until one of them is gone."""

    def __init__(
        self,
        relay: Any,
        look: Callable[[], Capacity],
        reply: Callable[[Reply], None],
        outcome_bytes: int = OUTCOME_BYTES,
    ) -> None:
        self._relay = relay
        self._look = look
        self.reply = reply
        self._outcome_bytes = outcome_bytes
        self._submitting: dict[str, asyncio.Task[None]] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._failed: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    async def run(self, requests: asyncio.Queue[Request]) -> None:
        """Returns when the engine wants no more; raises when the cluster does not answer."""
        for part in (self._hear(), self._beat()):
            self._begin(part)
        serving = asyncio.ensure_future(self._serve(requests))
        await asyncio.wait({serving, self._failed}, return_when=asyncio.FIRST_COMPLETED)
        if self._failed.done():
            self._failed.result()

    async def _serve(self, requests: asyncio.Queue[Request]) -> None:
        while not isinstance(request := await requests.get(), Close):
            if isinstance(request, Submit):
                task = self._begin(self._submit(request))
                self._submitting.update(dict.fromkeys(request.tickets, task))
            elif isinstance(request, Cancel):
                self._begin(self._cancel(request))

    async def _submit(self, request: Submit) -> None:
        try:
            await self._relay.submit.remote(request.jobs)
        finally:
            for ticket in request.tickets:
                self._submitting.pop(ticket, None)

    async def _cancel(self, request: Cancel) -> None:
        """The relay must know a ticket before it hears that it is not wanted."""
        known = [self._submitting.get(ticket) for ticket in request.tickets]
        if waiting := [task for task in known if task is not None]:
            await asyncio.wait(waiting)
        await self._relay.cancel.remote(request.number, request.tickets, request.force)

    async def _hear(self) -> None:
        while True:
            said = decode_said(await self._relay.take.remote(TAKE_SECONDS))
            told = [each for each in said if each[0] != "unfit"]
            for message in told_of(map(word_of, told), self._outcome_bytes):
                self.reply(message)
            if len(told) < len(said):  # a node that came later; no job may go there
                raise Unfit(next(each[2] for each in said if each[0] == "unfit"))

    async def _beat(self) -> None:
        while True:
            await asyncio.sleep(BEAT_SECONDS)
            head = asyncio.to_thread(self._look)
            relay = _answer(self._relay.ready.remote())
            capacity, _ = await asyncio.wait_for(asyncio.gather(head, relay), ANSWER_SECONDS)
            self.reply(Beat(capacity))

    def _begin(self, part: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = asyncio.create_task(part)
        self._tasks.add(task)
        task.add_done_callback(self._ended)
        return task

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) and not self._failed.done():
            self._failed.set_exception(error)


async def _answer(ref: Awaitable[Any]) -> Any:
    return await ref


# -- the process -----------------------------------------------------------------------------


def main() -> None:
    engine = Engine()
    first = engine.first()
    restrict_pickles(exceptions_of(ray.exceptions))
    try:
        relay, look = connect(first)
        capacity = look()
    except BaseException as error:
        engine.say_last(refused(error))
    asyncio.run(_run(relay, look, capacity, engine, first.outcome_bytes))


async def _run(
    relay: Any, look: Callable[[], Capacity], capacity: Capacity, engine: Engine, most: int
) -> None:
    requests = engine.requests()
    driver = Driver(relay, look, engine.reply, most)
    driver.reply(Connected(capacity))
    try:
        await driver.run(requests)
    except TimeoutError:
        engine.say_last(Away(f"it has not answered for {ANSWER_SECONDS:.0f} seconds"))
    except Unfit as error:
        engine.say_last(Away(str(error)))
    except BaseException as error:
        engine.say_last(Away(reason_of(error)))
    end_later()
    with suppress(ray.exceptions.RayError):
        await relay.close.remote(STOP_SECONDS)
    ray.shutdown()
    os._exit(0)


if __name__ == "__main__":
    main()
