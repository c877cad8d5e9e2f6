"""A node of the world: what it is made with, its lives, and how tests talk to it."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Coroutine, Generator, Mapping, Sequence
from pathlib import Path
from random import Random
from typing import Any, Protocol
from urllib.parse import parse_qsl

import msgspec

from anabranch.clock import ManualClock
from anabranch.errors import AnabranchError, InputError
from anabranch.market.identities import SigningKey
from anabranch.market.node.api import OPEN, OPERATOR, Answer, Call, Caller, problem
from anabranch.market.node.errors import NodeError
from anabranch.market.node.modules.api.runs import RUNS
from anabranch.market.node.modules.part import ModulesPart
from anabranch.market.node.node import MakePart, Node
from anabranch.market.node.ports import NodeConfig, PeerTransport
from anabranch.store.memory.store import MemoryStore
from anabranch.testing.market.bodies import read_body
from anabranch.testing.market.disk import Disk
from anabranch.testing.market.modules import LastingModule, MakeModule, WorldModule
from anabranch.testing.virtual.event_loop import VirtualLoop

ROLES = ("node", "participant", "org")

ALL_GRANTS = (
    "artifact.*", "capability.*", "offers.*", "peer.*", "publication.*", "seed.*", "service.*",
    "workflow.*",
)  # fmt: skip
RESTARTS_MAX = 1_000_000  # of a module


class NodeSpec(msgspec.Struct, frozen=True, kw_only=True):
    """How a node of the world begins. A seed has 32 bytes; where there is none it is made from the
    name. `config` has the sections of the node's configuration."""

    name: str
    seeds: Mapping[str, bytes] = {}  # by role: node, participant, org
    config: Mapping[str, Any] = {}
    #: Modules by id; each is made anew with every process of it.
    modules: Mapping[str, MakeModule | LastingModule[Any]] = {}
    grants: tuple[str, ...] = ALL_GRANTS  # what those modules may ask the host for

    def seed(self, role: str) -> bytes:
        return self.seeds.get(role) or hashlib.sha256(f"{self.name}/{role}".encode()).digest()


def spec_of(given: str | Mapping[str, Any] | NodeSpec) -> NodeSpec:
    if isinstance(given, NodeSpec):
        spec = given
    elif isinstance(given, str):
        spec = NodeSpec(name=given)
    else:
        known = NodeSpec.__struct_fields__
        for key in given:
            if key not in known:
                raise InputError(f"a node of the world has no {key!r}, but {', '.join(known)}")
        spec = NodeSpec(**given)
    for role, seed in spec.seeds.items():
        if role not in ROLES:
            raise InputError(f"seeds: there is no role {role!r}, but {', '.join(ROLES)}")
        if not isinstance(seed, bytes) or len(seed) != 32:
            raise InputError(f"seeds.{role} of the node {spec.name!r} must be 32 bytes")
    return spec


class WorldSigner:
    """The keys of a node, from seeds."""

    def __init__(self, spec: NodeSpec) -> None:
        self._node = SigningKey.from_seed(spec.seed("node"))
        self._participant = SigningKey.from_seed(spec.seed("participant"))
        self.node_id = self._node.identity("node")
        self.participant_id = self._participant.identity("participant")
        self.org_id = ""
        if "org" in spec.seeds:
            self.org_id = SigningKey.from_seed(spec.seeds["org"]).identity("org")

    def sign_as_node(self, document: dict[str, Any]) -> dict[str, Any]:
        return self._node.sign(document)

    def sign_as_participant(
        self, document: dict[str, Any], without: tuple[str, ...] = ()
    ) -> dict[str, Any]:
        return self._participant.sign(document, without)


class Answered(msgspec.Struct, frozen=True):
    """What the node answered; unpacks as `status, body = …`."""

    status: int
    body: Any
    headers: Mapping[str, str] = {}

    def __iter__(self) -> Generator[Any, None, None]:
        yield self.status
        yield self.body


class Done:
    """Something that has happened already, for those who await it."""

    def __init__(self, result: Any = None) -> None:
        self.result = result

    def __await__(self) -> Generator[Any, None, Any]:
        yield from ()
        return self.result


class Surroundings(Protocol):
    """What the world is to a node in it."""

    clock: ManualClock
    seeds: tuple[str, ...]
    makers: Callable[[], Sequence[MakePart]]

    def seconds(self) -> float: ...

    def run_until(self, done: Callable[[], bool], seconds: float) -> None: ...

    def rest(self) -> None: ...

    def failed(self, error: BaseException) -> None: ...

    def transport_of(self, node: WorldNode) -> PeerTransport: ...

    def folder_of(self, node: WorldNode) -> Path: ...

    def node_ids(self) -> list[str]: ...


class WorldNode:
    """One node, over all its lives. `node` is None while it is down."""

    def __init__(self, world: Surroundings, spec: NodeSpec) -> None:
        self.world = world
        self.spec = spec
        self.name = spec.name
        self.signer = WorldSigner(spec)
        self.node_id = self.signer.node_id
        self.participant_id = self.signer.participant_id
        self.url = f"http://{spec.name}.world"  # known to the network of the world alone
        self.store = MemoryStore()
        self.commits = 0
        #: Told "before" and "after" every commit, with its number; may kill the node.
        self.on_commit: Callable[[str, int], None] = lambda _when, _number: None
        self.lives = 0
        self.node: Node | None = None
        self.loop = self.new_loop()
        self.modules = {
            module: WorldModule(self, world.clock, given) for module, given in spec.modules.items()
        }
        self._disk = Disk(self.store, self._committing)
        self._chance = Random(f"{spec.name}/chance")

    # -- what tests do -----------------------------------------------------------------------

    def request(
        self,
        method: str,
        path: str,
        body: Any = None,
        *,
        as_: str | WorldNode = "operator",
        headers: Mapping[str, str] | None = None,
        seconds: float = 120.0,
    ) -> Done:
        """What the node answers over HTTP; `as_` is `operator`, `open`, `peer` (or a node, which
        is known by what it signs) or the id of a module. Virtual time passes while the node waits,
        up to `seconds`."""
        self._up()
        caller = self._caller(as_)
        path, _, query = path.partition("?")
        call = Call(
            method=method.upper(),
            path=path,
            caller=caller,
            query=dict(reversed(parse_qsl(query, keep_blank_values=True))),  # the first counts
            headers={name.lower(): value for name, value in (headers or {}).items()},
        )
        raw = body if isinstance(body, bytes) else b"" if body is None else _encoded(body)
        answer = self.run(self._handled(call, raw), seconds)
        shown = msgspec.json.decode(msgspec.json.encode(answer.body))
        return Done(Answered(answer.status, shown, dict(answer.headers)))

    async def _handled(self, call: Call, raw: bytes) -> Answer:
        """The body is read as HTTP does it, and refused for the same reasons."""
        node = self._up()
        try:
            most = node.api.admitted(call)
            body = read_body(raw, most) if most else None
        except NodeError as error:
            shown = problem(error.status, error.code, error.message)
            return Answer(status=error.status, body=shown, headers=error.headers)
        return await node.handle(msgspec.structs.replace(call, raw=raw, body=body))

    def run(self, work: Coroutine[Any, Any, Any], seconds: float = 120.0) -> Any:
        """Carry out a coroutine on the loop of this node; returns what it comes to."""
        self._up()
        task = self.loop.create_task(work)
        self.world.run_until(task.done, seconds)
        if task.cancelled():
            raise AnabranchError(f"the node {self.name!r} died meanwhile", code="world_node_died")
        return task.result()

    def run_status(self, run: str) -> str:
        """Of a run of a module, as the host has it; "" where it knows none, or is down."""
        found = self.node.entities.get(RUNS, run) if self.node is not None else None
        return str(found.run["status"]) if found is not None else ""

    @property
    def entities(self) -> Any:
        return self._up().entities

    # -- its lives ---------------------------------------------------------------------------

    def start(self) -> None:
        self.lives += 1
        self.loop = self.new_loop()
        self._disk = Disk(self.store, self._committing)
        self.node = self._made()
        self.run(self.node.open())
        if self.modules:
            self.world.rest()  # modules that need no time are ready

    def kill(self) -> None:
        """Nothing of this life writes or is heard any more; its modules end with it."""
        for module in self.modules.values():
            module.kill()
        self._disk.dead = True
        self.node = None
        self.loop.shut_down()

    def stop(self) -> None:
        """In order."""
        node = self._up()
        self.run(node.close())
        self.kill()

    def _made(self) -> Node:
        executors = [self._executor(module, given) for module, given in self.spec.modules.items()]
        raw = {"modules": executors, **self.spec.config}
        # The nodes of a world are no strangers to each other, unless its author says otherwise.
        raw["offers"] = {"federation": self.world.node_ids(), **raw.get("offers", {})}
        config = NodeConfig(
            name=self.name,
            url=self.url,
            data_dir=str(self.world.folder_of(self)),
            raw=raw,
            seeds=self.world.seeds,
        )
        node = Node(
            self._disk.as_store,
            self.world.clock,
            self.signer,
            config,
            self.world.transport_of(self),
            self.world.makers(),
            random_bytes=self._chance.randbytes,
        )
        for name, module in self.modules.items():
            part = node.context.modules
            assert isinstance(part, ModulesPart)
            part.attach(name, module.hosted_by(part.host_for(name)))
        return node

    def _executor(self, module: str, given: MakeModule | LastingModule[Any]) -> dict[str, Any]:
        """A module that is killed again and again is started again and again."""
        return {
            "id": module,
            "kind": "in_process",
            "grants": list(self.spec.grants),
            "restart_policy": {"max_restarts": RESTARTS_MAX},
            **(given.executor if isinstance(given, LastingModule) else {}),
        }

    def new_loop(self) -> VirtualLoop:
        return VirtualLoop(self.world.seconds, lambda: 0.0, self.world.failed)

    def _committing(self, when: str) -> None:
        self.commits += when == "before"
        self.on_commit(when, self.commits)

    def _up(self) -> Node:
        if self.node is None:
            raise InputError(f"the node {self.name!r} is down")
        return self.node

    def _caller(self, as_: str | WorldNode) -> Caller:
        if isinstance(as_, WorldNode):
            return OPEN
        if as_ == "operator":
            return OPERATOR
        if as_ in ("open", "peer"):
            return OPEN
        return Caller("module", module=as_, actor=as_)


def _encoded(body: Any) -> bytes:
    return msgspec.json.encode(body)
