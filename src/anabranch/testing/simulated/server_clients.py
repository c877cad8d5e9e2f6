"""Clients of simulated servers: they start runs, follow them, decide and write to them.

Each time they ask any server, and go to another one when theirs is gone or does not answer.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Awaitable, Callable
from contextlib import suppress
from random import Random
from typing import Any, Protocol

from anabranch.errors import AnabranchError, LawBroken, MissingRequirements, StoreError
from anabranch.kernel import stimuli as s
from anabranch.kernel.state import State
from anabranch.kernel.values import ContextPatch
from anabranch.runtime.engine import EngineLoop
from anabranch.runtime.messages.codec import write_message
from anabranch.store.access_ports import AuditEntry, RequestRecord
from anabranch.testing.simulated.server_process import SimulatedServer
from anabranch.testing.simulated.workload import GATE, OWNER, SIGNAL, parent

PATIENCE_MS = 4_000
PATCH = "patch-"
#: Nothing was done, so it can be asked for again.
LACKS = MissingRequirements.code
AGAIN = frozenset({"partition_lost", "run_elsewhere", "store_away", LACKS})
#: It is not known whether it was done.
UNKNOWN = frozenset({"engine_closed", "engine_stopped", "no_answer"})
Then = Callable[[Any, AnabranchError | None], None]


class ClientWorld(Protocol):
    dice: Random
    servers: list[SimulatedServer]

    def now(self) -> int: ...

    @property
    def calm(self) -> bool:
        """Nothing goes wrong any more, so whoever waits is told in the end."""
        ...

    def later(self, ms: int, act: Callable[[], None]) -> None: ...

    def broke(self, error: BaseException) -> None: ...

    def state_of(self, run: str) -> State | None:
        """What the log of a run adds up to; None: there is none."""
        ...


class Clients:
    def __init__(self, world: ClientWorld, runs: int) -> None:
        self._world = world
        self._dice = world.dice
        self.runs: set[str] = set()  # acknowledged
        self.waiting = 0  # clients that have yet to see their run end
        self.applied: Counter[str] = Counter()  # patch → how often it was acknowledged
        self.tried: dict[str, str] = {}  # patch → its run
        self.told: dict[str, str] = {}  # signal → its run, once it was acknowledged
        self._patches = 0
        for number in range(runs):
            self.waiting += 1
            chosen = f"chosen-{number}" if self._dice.random() < 0.6 else None
            world.later(self._dice.randint(0, 2_000), lambda chosen=chosen: self._start(chosen))  # type: ignore[misc]

    # -- asking ------------------------------------------------------------------------------

    def _ask(self, question: Callable[[EngineLoop], Awaitable[Any]], then: Then) -> None:
        """`then` is called once; with `no_answer` when the server does not answer in time."""
        server = self._dice.choice(self._world.servers)
        answered = False

        def told(answer: Any, error: AnabranchError | None) -> None:
            nonlocal answered
            if not answered:
                answered = True
                self._world.later(0, lambda: then(answer, error))

        def give_up() -> None:
            hurries = not self._world.calm and self._dice.random() < 0.5
            if not answered and (server.dead or hurries):
                told(None, AnabranchError("gave up", code="no_answer"))
            elif not answered:
                self._world.later(PATIENCE_MS, give_up)

        server.ask(question, told)
        self._world.later(PATIENCE_MS, give_up)

    def _unexpected(self, error: AnabranchError, what: str) -> None:
        self._world.broke(LawBroken(f"{what} was refused: {error.code}: {error.message}"))

    # -- a run from its start to its end ---------------------------------------------------------

    def _start(self, chosen: str | None) -> None:
        def begun(run: Any, error: AnabranchError | None) -> None:
            exists = error is not None and error.code == "run_exists" and chosen is not None
            if exists and self._world.state_of(chosen or "") is not None:
                run, error = chosen, None
            if error is None:
                self._begun(run)
            elif exists or error.code in AGAIN | UNKNOWN:
                self._world.later(self._dice.randint(10, 500), lambda: self._start(chosen))
            else:
                self._unexpected(error, f"the start of {chosen}")

        made = parent()
        self._ask(
            lambda engine: engine.start(made.definition, made.net, run=chosen, labels=OWNER), begun
        )

    def _begun(self, run: str) -> None:
        if self._world.state_of(run) is None:
            self._world.broke(LawBroken(f"the start of {run} was acknowledged and is not there"))
            return
        self.runs.add(run)
        self._follow(run)
        for _ in range(self._dice.randint(0, 4)):
            self._world.later(self._dice.randint(0, 4_000), lambda: self._patch(run))

    def _follow(self, run: str) -> None:
        def ended(seen: Any, error: AnabranchError | None) -> None:
            if error is not None:
                if error.code not in AGAIN | UNKNOWN:
                    self._unexpected(error, f"to follow {run}")
                    return
                self._world.later(self._dice.randint(10, 500), lambda: self._follow(run))
                return
            state = self._world.state_of(run)
            if state is None or not state.finished or seen != state.seq:
                self._world.broke(LawBroken(f"{run} was said to have ended, and has not"))
            self.waiting -= 1
            if self._dice.random() < 0.5:
                self._patch(run)  # too late: it is refused

        self._ask(_read_events(run) if self._dice.random() < 0.5 else _wait(run), ended)

    # -- verbs -------------------------------------------------------------------------------

    def saw(self, run: str) -> None:
        """A run is there, also one whose client has not heard of it: somebody decides for it."""
        for _ in range(self._dice.randint(1, 2)):
            self._world.later(self._dice.randint(0, 2_500), lambda: self._decide(run))
            self._world.later(self._dice.randint(0, 2_500), lambda: self._tell(run))

    def _decide(self, run: str) -> None:
        """Until the gate is decided; more than one may try at once."""
        state = self._world.state_of(run)
        assert state is not None, "it was seen"
        if state.finished or GATE in state.ctx:
            return
        gates = [gate.id for gate in state.gates.values()]
        if not gates:
            coming = any(token.step in ("start", GATE) for token in state.tokens.values())
            if not (coming or state.queued_for_place):
                return
            self._world.later(500, lambda: self._decide(run))
            return

        def decided(_answer: Any, error: AnabranchError | None) -> None:
            if error is not None:  # another was first, or the server is gone
                self._world.later(500, lambda: self._decide(run))

        verdict = s.Decide(gates[0], "fulfil", "bob")
        self._ask(lambda engine: engine.send(run, verdict), decided)

    def _tell(self, run: str) -> None:
        """Send the signal that the run waits for; until that is known, again under the same id."""
        state = self._world.state_of(run)
        if state is None or state.name != parent().net.name:
            return
        other = self._dice.random() < 0.3
        name = f"{run}-other" if other else f"{run}-told"
        said = s.Signal(name, SIGNAL, {"n": 2 if other else 1}, "dee")

        def told(_answer: Any, error: AnabranchError | None) -> None:
            if error is None:
                self.told[name] = run
            elif error.code in AGAIN | UNKNOWN:
                self._world.later(200, send)
            elif error.code not in ("run_finished", "ending"):
                self._unexpected(error, f"{name} to {run}")
            if other and not (error is not None and error.code == LACKS):
                self._tell(run)

        def send() -> None:
            self._ask(lambda engine: engine.send(run, said), told)

        send()

    def _patch(self, run: str) -> None:
        """Written once, or refused; by the API of a server, or from the command line. The line of
        the audit trail is there as often as the patch."""
        self._patches += 1
        name = f"{PATCH}{self._patches}"
        self.tried[name] = run
        patch = s.PatchContext((ContextPatch(name, 1, "sum"),), actor="cat")
        audit = AuditEntry(at=self._world.now(), actor="cat", action="runs.patch", subject=name)
        if self._dice.random() < 0.3:
            store = self._dice.choice(self._world.servers).store
            with suppress(StoreError):  # who has not seen the end of it does not say it again
                store.post(run, write_message(patch, audit), self._world.now())
            return

        def written(_answer: Any, error: AnabranchError | None) -> None:
            if error is None:
                self.applied[name] += 1
            elif error.code in AGAIN:
                self._world.later(200, send)
            elif error.code not in UNKNOWN and error.code != "run_finished":
                self._unexpected(error, f"{name} to {run}")

        def send() -> None:
            self._ask(lambda engine: engine.send(run, patch, RequestRecord(audit=audit)), written)

        send()


def _wait(run: str) -> Callable[[EngineLoop], Awaitable[int]]:
    async def wait(engine: EngineLoop) -> int:
        return (await engine.wait(run)).seq

    return wait


def _read_events(run: str) -> Callable[[EngineLoop], Awaitable[int]]:
    async def read(engine: EngineLoop) -> int:
        last = 0
        async for number, _at, _event in engine.events(run):
            if number != last + 1:
                raise LawBroken(f"event {number} of {run} came after {last}")
            last = number
        return last

    return read
