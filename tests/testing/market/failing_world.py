"""A world of nodes in which everything fails that can: processes, links, messages.

All of it follows from the seed. Operators and modules send again what was not answered, as real
ones do; what they send has an id.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from random import Random
from typing import Any

import msgspec

from anabranch.errors import AnabranchError
from anabranch.market.node.modules.part import HostCall
from anabranch.testing.market import Answered, Fate, NodeSpec, World, WorldNode
from anabranch.testing.market.disk import Died
from anabranch.testing.market.laws import broken_laws

GONE = (AnabranchError, asyncio.CancelledError)
MODULE = "m"
WAIT_SECONDS = 900  # until what was sent has arrived, with everything that fails on the way
TRIES = 400
NOTE = "note.v1"
CONFIG: Mapping[str, Any] = {
    "orders": {"accept_seconds": 60, "dispute_seconds": 60, "auto_release_seconds": 60},
    "directory": {"sync_ms": 120_000},
    "delivery": {
        "ttl_seconds": 3600.0,
        "acceptors": [{"acceptor_id": "host.notes", "artifact_schema": NOTE}],
        "outbound": [
            {
                "component/id": "*",
                "schema": "*",
                "recipient/selectors": ["node", "participant"],
                "fanout/max-targets": 8,
                "fallback/max-stages": 4,
            }
        ],
    },
}


class Recorded:
    """A module that does nothing of its own accord, and remembers all that it is told."""

    def __init__(self, heard: list[bytes], _host: HostCall) -> None:
        self._heard = heard

    async def handle(
        self, method: str, path: str, headers: Mapping[str, str], body: Any
    ) -> tuple[int, Any]:
        del method, headers
        self._heard.append(msgspec.json.encode(body))
        if path == "/v1/middleware/init":
            return 200, {"schema_version": "v1", "module_id": MODULE}
        return 200, {"status": "ok"}


class FailingWorld:
    """With `faults=False` nothing fails. `heard` is what the module of a node was told."""

    def __init__(self, seed: int, names: list[str], *, faults: bool, laws: bool) -> None:
        self.seed = seed
        self.names = names
        self.faults = faults
        self._chance = Random(f"faults of {seed}")
        self._laws = laws
        self.heard: dict[str, list[bytes]] = {name: [] for name in self.names}
        self.crashes = self.commits = 0
        self._refuge = 0  # while above 0 nothing fails
        self._downs: dict[str, float] = {}
        self.world = World([self._spec(name) for name in self.names])
        for node in self.world.nodes:
            node.on_commit = self._crash_of(node)
        self.world.fate = self._fate
        self.world.after_commit = self._committed

    def _spec(self, name: str) -> NodeSpec:
        heard = self.heard[name]
        return NodeSpec(
            name=name, config=CONFIG, modules={MODULE: lambda host: Recorded(heard, host)}
        )

    # -- what fails --------------------------------------------------------------------------

    @property
    def _fails(self) -> bool:
        return self.faults and not self._refuge

    def _crash_of(self, node: WorldNode) -> Any:
        def committing(when: str, _number: int) -> None:
            self.commits += when == "after"
            if self._fails and self._chance.random() < 0.03:
                self.crashes += 1
                self._downs[node.name] = self._chance.choice((0.0, 0.0, 3.0, 40.0))
                raise Died(9)

        return committing

    def _fate(self, _source: WorldNode, _target: WorldNode, _data: bytes) -> Fate:
        chance = self._chance.random()
        if not self._fails or chance < 0.7:
            return Fate()
        if chance < 0.8:
            return Fate(())
        if chance < 0.88:
            return Fate((0.0, self._chance.choice((0.0, 0.5, 20.0))))
        if chance < 0.95:
            return Fate((self._chance.choice((0.3, 4.0, 45.0)),))
        return Fate((0.0,), answered=False)

    def _committed(self, node: WorldNode) -> None:
        if self._laws:
            wrong = broken_laws(node)
            assert not wrong, f"seed {self.seed}, {node.name}: {wrong}"

    def _revive(self) -> None:
        for _ in range(TRIES):
            down = [one for one in self.world.nodes if one.node is None]
            if not down:
                return
            for one in down:
                wait = self._downs.pop(one.name, 0.0)
                if wait:
                    self.world.advance(wait)
                if one.node is None:
                    try:
                        one.start()
                    except GONE:
                        continue  # it died while it was opened
        raise AssertionError(f"seed {self.seed}: a node does not come up")

    def _disturb(self) -> None:
        """Now and then a link is cut, and healed after a while; or a process is killed."""
        if not self._fails:
            return
        chance = self._chance.random()
        a, b = self._chance.sample(self.names, 2)
        if chance < 0.06:
            self.world.drop(a, b)
        elif chance < 0.14:
            self.world.heal(a, b)
        elif chance < 0.17 and self.world[a].node is not None:
            self.world[a].kill()

    def heal(self) -> None:
        self._refuge += 1
        for a in self.names:
            for b in self.names:
                if a != b:
                    self.world.heal(a, b)
        self._revive()

    # -- what people do ----------------------------------------------------------------------

    def ask(
        self, name: str, method: str, path: str, body: Any = None, as_: str = "operator"
    ) -> Answered:
        """Until the node answers; what modules are answered is remembered."""
        for _ in range(TRIES):
            self._revive()
            node = self.world[name]
            try:
                answered: Answered = _result(node.request(method, path, body, as_=as_))
            except GONE:
                continue
            if answered.status == 503 and not answered.body["code"].startswith("peer_"):
                self.world.advance(1)
                continue
            assert answered.status != 500, (self.seed, path, answered.body)
            if as_ == MODULE:
                self.heard[name].append(msgspec.json.encode(answered.body))
            return answered
        raise AssertionError(f"seed {self.seed}: {name} does not answer {method} {path}")

    def advance(self, seconds: float) -> None:
        end = self.world.clock.now() + round(seconds * 1000)
        while self.world.clock.now() < end:
            self._revive()
            self._disturb()
            left = (end - self.world.clock.now()) / 1000
            if left > 0:
                self.world.advance(min(left, 15.0 if self._fails else left))
        self._revive()

    def wait(self, found: Any, what: str) -> Any:
        """Until something is there. Links that are cut stay so for a minute at most."""
        waited = 0
        while (value := found()) is None:
            if waited >= 60:
                for a in self.names:
                    for b in self.names:
                        if a != b:
                            self.world.heal(a, b)
            assert waited < WAIT_SECONDS, f"seed {self.seed}: {what} did not happen"
            self.advance(5)
            waited += 5
        return value


def _result(done: Any) -> Any:
    """What has happened already needs no loop."""
    try:
        next(done.__await__())
    except StopIteration as stop:
        return stop.value
    raise AssertionError("the world was not done")
