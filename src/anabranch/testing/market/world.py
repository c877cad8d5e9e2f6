"""The world: nodes, the network between them, and time.

Every node has an event loop of its own, so that it can be killed between any two steps. Time is
virtual: it passes when a test says so, or while a node that was asked waits for something.
"""

from __future__ import annotations

import asyncio
import shutil
import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from math import ceil
from pathlib import Path
from tempfile import mkdtemp
from typing import Any, NamedTuple
from urllib.parse import parse_qsl, quote, urlsplit

import msgspec

from anabranch.clock import ManualClock
from anabranch.errors import AnabranchError, InputError
from anabranch.market.node.api import Call
from anabranch.market.node.modules.api.run_shapes import CLOSED_RUNS
from anabranch.market.node.node import MakePart
from anabranch.market.node.parts import standard_parts
from anabranch.market.node.ports import PeerTransport, PeerUnreachable
from anabranch.market.passports import instant
from anabranch.testing.market.disk import Died
from anabranch.testing.market.modules import WorldModule
from anabranch.testing.market.nodes import Done, NodeSpec, WorldNode, spec_of

RUNS_PATH = "/v1/enact/arca/runs"
START = "2026-06-10T08:00:00Z"
STEPS_AT_ONCE = 256
STEPS_MAX = 5_000_000  # of one call: a world that does not come to rest is a defect


class Fate(NamedTuple):
    """What becomes of a message on its way: how often it arrives, and after which delays."""

    delays: tuple[float, ...] = (0.0,)  # seconds, one for each time it arrives; none: it is lost
    answered: bool = True  # the answer finds its way back


FINE = Fate()


class World:
    def __init__(
        self,
        nodes: Sequence[str | Mapping[str, Any] | NodeSpec] | Mapping[str, Mapping[str, Any]],
        start: str = START,
        *,
        seeds: Sequence[str] | None = None,
        makers: Callable[[], Sequence[MakePart]] = standard_parts,
    ) -> None:
        """`seeds` names the nodes whose directory the others publish to and learn from; the first
        one, if it is not given."""
        self.clock = ManualClock(instant(start, "start"))
        self.makers = makers
        self.defects: list[BaseException] = []
        self._cut: set[frozenset[str]] = set()
        #: Asked for every message between nodes: from, to, the envelope.
        self.fate: Callable[[WorldNode, WorldNode, bytes], Fate] = lambda _from, _to, _data: FINE
        #: Called after every step in which something was written; for laws.
        self.after_commit: Callable[[WorldNode], None] = lambda _node: None
        if isinstance(nodes, Mapping):
            nodes = [{"name": name, **more} for name, more in nodes.items()]
        specs = [spec_of(one) for one in nodes]
        if len({spec.name for spec in specs}) != len(specs):
            raise InputError("two nodes of the world have the same name")
        self._folder = mkdtemp(prefix="anabranch-world-")
        weakref.finalize(self, shutil.rmtree, self._folder, ignore_errors=True)
        self._nodes = {spec.name: WorldNode(self, spec) for spec in specs}
        chosen = [spec.name for spec in specs[:1]] if seeds is None else seeds
        self.seeds = tuple(self._nodes[name].url for name in chosen)
        self._by_id = {one.node_id: one for one in self._nodes.values()}
        for one in self._nodes.values():
            one.start()

    # -- what tests do -----------------------------------------------------------------------

    def __getitem__(self, name: str) -> WorldNode:
        return self._nodes[name]

    def node(self, name: str) -> WorldNode:
        return self._nodes[name]

    def node_ids(self) -> list[str]:
        return [one.node_id for one in self._nodes.values()]

    @property
    def nodes(self) -> Nodes:
        return Nodes(self._nodes)

    def advance(self, seconds: float) -> Done:
        """Let so much time pass, with everything that happens in it."""
        end = self.clock.now() + round(seconds * 1000)
        self._run(lambda: False, end)
        self.clock.advance_to(end)
        return Done()

    def drop(self, a: str | WorldNode, b: str | WorldNode) -> Done:
        """Nothing gets through between these two, in either direction, until `heal`."""
        self._cut.add(self._pair(a, b))
        return Done()

    def heal(self, a: str | WorldNode, b: str | WorldNode) -> Done:
        self._cut.discard(self._pair(a, b))
        return Done()

    def crash(self, node: str | WorldNode, down_seconds: float = 0.0) -> Done:
        """The process of a node is killed, and is started again after so many seconds."""
        one = self._node(node)
        one.kill()
        if down_seconds:
            self.advance(down_seconds)
        one.start()
        return Done()

    def run_workflow(
        self,
        node: str | WorldNode,
        definition: Mapping[str, Any],
        *,
        seconds: float = 600.0,
        **more: Any,
    ) -> Done:
        """Start a run at the Arca of a node, and wait until its host knows the end: the
        `workflow-run-snapshot.v1`. `more` are further fields of the request: `run_id`, `input`."""
        one = self._node(node)
        answer = one.request("POST", RUNS_PATH, {"definition": definition, **more}).result
        if answer.status not in (200, 201):
            raise AnabranchError(f"{answer.status}: {answer.body}", code="world_refused")
        run = str(answer.body["run_id"])
        self.run_until(lambda: one.run_status(run) in CLOSED_RUNS, seconds)
        return Done(one.request("GET", f"/v1/module/workflow/runs/{quote(run, safe='')}").result)

    def crash_module(self, node: str | WorldNode, module: str) -> Done:
        """The process of one module is killed; its node starts it again when it notices."""
        self._node(node).modules[module].kill()
        return Done()

    async def close(self) -> None:
        for one in self._nodes.values():
            if one.node is not None:
                one.stop()

    async def __aenter__(self) -> World:
        return self

    async def __aexit__(self, *_exc: object) -> None:
        await self.close()

    def folder_of(self, node: WorldNode) -> Path:
        """Where its modules write; it outlives the node, too."""
        path = Path(self._folder) / node.name
        path.mkdir(exist_ok=True)
        return path

    # -- time --------------------------------------------------------------------------------

    def seconds(self) -> float:
        return self.clock.now() / 1000

    def run_until(self, done: Callable[[], bool], seconds: float) -> None:
        """Until it is done; virtual time passes where nothing else happens."""
        self._run(done, self.clock.now() + round(seconds * 1000))
        if not done():
            raise AnabranchError(
                f"nothing came of it within {seconds:g} virtual seconds", code="world_time"
            )

    def rest(self) -> None:
        """Let everything happen that needs no time."""
        self._run(lambda: False, self.clock.now())

    def _run(self, done: Callable[[], bool], end: int) -> None:
        for _ in range(STEPS_MAX):
            if done():
                return
            if self._step():
                continue
            at = min((one.loop.next_at() for one in self._processes()), default=float("inf"))
            if at * 1000 > end:
                return
            self.clock.advance_to(max(ceil(at * 1000), self.clock.now() + 1))
        raise AnabranchError("the world does not come to rest", code="world_busy")

    def _step(self) -> bool:
        """What can happen now, node by node; whether anything did."""
        moved = False
        for one in self._processes():
            if one.loop.next_at() > self.seconds():
                continue
            moved = True
            before = one.commits
            try:
                one.loop.run_some(STEPS_AT_ONCE)
            except Died:
                one.kill()
            if isinstance(one, WorldNode) and one.commits != before and one.node is not None:
                self.after_commit(one)
        if self.defects:
            raise self.defects.pop(0)
        return moved

    def _processes(self) -> Iterator[WorldNode | WorldModule]:
        for one in self._nodes.values():
            yield one
            yield from one.modules.values()

    def failed(self, error: BaseException) -> None:
        """What no task has caught is a defect of the node; that it was killed is none."""
        if not isinstance(error, Died):
            self.defects.append(error)

    # -- the network -------------------------------------------------------------------------

    def transport_of(self, node: WorldNode) -> PeerTransport:
        return _Wire(self, node)

    def by_id(self, node_id: str) -> WorldNode | None:
        return self._by_id.get(node_id)

    def at(self, url: str) -> WorldNode | None:
        """Whose URL this is."""
        return next((one for one in self._nodes.values() if url.startswith(one.url)), None)

    def reaches(self, source: WorldNode, target: WorldNode) -> bool:
        return frozenset((source.name, target.name)) not in self._cut

    def _pair(self, a: str | WorldNode, b: str | WorldNode) -> frozenset[str]:
        return frozenset((self._node(a).name, self._node(b).name))

    def _node(self, node: str | WorldNode) -> WorldNode:
        return node if isinstance(node, WorldNode) else self._nodes[node]


class Nodes(Sequence[WorldNode]):
    """The nodes of a world in their order; also by name."""

    def __init__(self, nodes: Mapping[str, WorldNode]) -> None:
        self._by_name = nodes
        self._in_order = list(nodes.values())

    def __len__(self) -> int:
        return len(self._in_order)

    def __getitem__(self, key: Any) -> Any:
        return self._by_name[key] if isinstance(key, str) else self._in_order[key]


class _Wire:
    """Carries the calls of one node. A link that is cut swallows them; a node that is down refuses
    them."""

    def __init__(self, world: World, source: WorldNode) -> None:
        self._world = world
        self._source = source

    async def send(
        self,
        node_id: str,
        url: str,
        envelope: bytes,
        seconds: float,
        *,
        most: int | None = None,  # noqa: ARG002 - nodes of a world send little
    ) -> bytes:
        target = self._world.by_id(node_id)
        call = Call(
            method="POST",
            path="/peer/messages",
            raw=envelope,
            body=msgspec.json.decode(envelope),
        )
        _, body = await self._carried(target, url or node_id, call, seconds)
        return body

    async def call(self, method: str, url: str, body: bytes, seconds: float) -> tuple[int, bytes]:
        target = self._world.at(url)
        parts = urlsplit(url)
        call = Call(
            method=method,
            path=parts.path,
            query=dict(parse_qsl(parts.query)),
            raw=body,
            body=msgspec.json.decode(body) if body else None,
        )
        return await self._carried(target, url, call, seconds)

    async def close(self) -> None:
        """There is nothing to end."""

    async def _carried(
        self, target: WorldNode | None, where: str, call: Call, seconds: float
    ) -> tuple[int, bytes]:
        world, source = self._world, self._source
        answered: asyncio.Future[tuple[int, bytes]] = source.loop.create_future()
        if target is None or target.node is None or source.node is None:
            raise PeerUnreachable(f"{where} refuses the connection")
        if world.reaches(source, target):
            fate = world.fate(source, target, call.raw)
            for delay in fate.delays:
                target.loop.call_later(
                    delay, self._arrive, target, target.lives, call, answered, fate.answered
                )
        try:
            async with asyncio.timeout(seconds):
                return await answered
        except TimeoutError:
            message = f"{where} did not answer within {seconds:g} s"
            raise PeerUnreachable(message, code="peer_timeout") from None

    def _arrive(self, target: WorldNode, life: int, call: Call, answered: Any, heard: bool) -> None:
        if target.lives != life or target.node is None:
            return  # it was sent to a process that is gone
        task = target.loop.create_task(target.node.handle(call))
        task.add_done_callback(lambda done: self._reply(target, life, done, answered, heard))

    def _reply(self, target: WorldNode, life: int, done: Any, answered: Any, heard: bool) -> None:
        """Back on the loop of the one who asked, if both processes still live and the link is
        up."""
        if done.cancelled() or target.lives != life or target.node is None:
            return
        if (defect := done.exception()) is not None:
            if not isinstance(defect, Died):
                self._world.failed(defect)
            return
        if not heard:
            return
        if not self._world.reaches(target, self._source):
            return
        answer = done.result()
        data = answer.status, msgspec.json.encode(answer.body)

        def settle() -> None:
            if not answered.done():
                answered.set_result(data)

        answered.get_loop().call_soon(settle)
