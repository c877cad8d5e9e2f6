"""`simulate`: a definition under random schedules and faults, seed after seed.

    simulate("order.yaml", seeds=200)

Each seed is one run in a hostile world (see `Faults`): the engine crashes around its commits,
reports come twice or late, workers vanish, timers are noticed late, people interfere. After every
event the laws of the kernel are checked, after every crash and at the end the log is replayed and
compared with the live state, and a run that stands still must say for what. The same seed gives the
same run, event by event, so a failure can be repeated.
"""

from __future__ import annotations

import os
import re
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from random import Random
from typing import Any

import msgspec

from anabranch.errors import AnabranchError, InputError
from anabranch.kernel import events as e
from anabranch.kernel import stimuli as s
from anabranch.kernel.quiescence import status_of
from anabranch.kernel.redrive import plan_redrive
from anabranch.net.net import Net
from anabranch.operations.definitions.input_check import require_input
from anabranch.operations.definitions.prepare import Rules
from anabranch.runtime.live_run import history
from anabranch.store.ports import Payloads
from anabranch.testing.scripted.answers import Scripted
from anabranch.testing.scripted.definitions import Definition, compiled
from anabranch.testing.scripted.participants import prepared
from anabranch.testing.scripted.played import PlayedEvent
from anabranch.testing.scripted.script import Script, Scripts
from anabranch.testing.simulated.chaos import Chaos
from anabranch.testing.simulated.faults import Faults
from anabranch.testing.simulated.parties import RUN
from anabranch.testing.simulation import Simulation, SimulationFailed
from anabranch.testing.virtual.world import EPOCH
from anabranch.work.values.json_values import require_json

MakeNet = Callable[[int], Net]


def simulate(
    definition: Definition | MakeNet,
    seeds: int | Iterable[int] = 100,
    *,
    input: Mapping[str, Any] | None = None,  # noqa: A002 - the word every surface uses
    script: Mapping[str, Scripted] | None = None,
    decisions: Mapping[str, Scripted] | None = None,
    patches: Sequence[Mapping[str, Any]] = (),
    faults: Faults | None = None,
    until: float | None = None,
    limit: int = 20_000,
    tools: Iterable[str] = (),
    rules: Rules | None = None,
    on_seed: Callable[[int, Simulation], None] | None = None,
    repeat: Callable[[int], str] | None = None,
) -> Simulation:
    """Run the definition once per seed; raises `SimulationFailed` at the first that finds a defect.

    `seeds` is how many (0, 1, 2, …) or which ones. `definition` is what `play` takes, or a function
    that makes a net from a seed. Steps that are not scripted take up to 30 virtual seconds and now
    and then fail; otherwise `noop` and `python` really run (with all that the code does) and work
    that would reach outside answers `None`. Open gates that are not scripted are decided at random;
    `patches` are context writes that somebody may make while a step waits for admission.

    `rules` are those of an orchestration, as for `play`.

    `until` stops each run after that many virtual seconds. `limit` is the number of events and
    turns after which a run is taken for endless. `on_seed` is called after each seed with the sums
    so far; `repeat` says, for the message of a failure, how to run one seed again.
    """
    plain = not (input or script or decisions or patches or faults)
    plan = _Plan(
        make=_maker(definition, tools, rules),
        given=require_json(input or {}, "the input", root="input"),
        script=script or {},
        decisions=decisions or {},
        patches=patches,
        faults=faults or Faults(),
        until=until,
        limit=limit,
        repeat=repeat or _repeat(definition, plain=plain),
    )
    sums, begun = Simulation(), time.perf_counter()
    for seed in _seeds(seeds):
        plan.run(seed, sums)
        sums.seeds += 1
        sums.wall_seconds = time.perf_counter() - begun
        if on_seed is not None:
            on_seed(seed, sums)
    return sums


class _Plan(msgspec.Struct, frozen=True):
    """What is the same for every seed."""

    make: MakeNet
    given: Mapping[str, Any]
    script: Mapping[str, Scripted]
    decisions: Mapping[str, Scripted]
    patches: Sequence[Mapping[str, Any]]
    faults: Faults
    until: float | None
    limit: int
    repeat: Callable[[int], str]

    def run(self, seed: int, sums: Simulation) -> None:
        net, dice = self.make(seed), Random(f"world {seed}")
        require_input(net, self.given, extra=True)
        world = self._world(net, dice)
        self._through(world, s.Start(run=RUN, input=self.given), seed)
        ended = world.audit.state.status
        redrives = ended not in ("", "completed") and world.strikes("redrive")
        _add(sums, world)
        if not redrives:
            return
        plan = plan_redrive(net, history(world.store.read(RUN)))
        again = self._world(net, dice)
        _copy_payloads(plan.reuse, world.store, again.store)
        start = s.Start(run=RUN, input=self.given, origin="origin", **plan.start_fields)
        self._through(again, start, seed)
        _add(sums, again)

    def _world(self, net: Net, dice: Random) -> Chaos:
        answers = Script(net, prepared(net, self.script))
        scripts = Scripts(answers, Script(net, self.decisions, "decisions"))
        return Chaos(net, scripts, dice=dice, faults=self.faults, patches=self.patches)

    def _through(self, world: Chaos, start: s.Start, seed: int) -> None:
        try:
            world.run_to_the_end(start, self.limit, self.until)
        except Exception as defect:
            raise _failure(world, seed, defect, self.repeat(seed)) from defect
        world.scripts.answers.check_names(world.audit.state.steps)


def _seeds(seeds: int | Iterable[int]) -> Iterable[int]:
    if isinstance(seeds, bool) or (isinstance(seeds, int) and seeds < 1):
        raise InputError(f"seeds is how many seeds to run, or which ones, not {seeds!r}")
    return range(seeds) if isinstance(seeds, int) else seeds


def _maker(definition: Definition | MakeNet, tools: Iterable[str], rules: Rules | None) -> MakeNet:
    if callable(definition):
        return definition
    net = compiled(definition, tools, rules)
    return lambda _seed: net


def _repeat(definition: Definition | MakeNet, *, plain: bool) -> Callable[[int], str]:
    """How to say "this seed again": a command where one suffices, else the call."""
    more = "" if plain else ", …the same arguments"
    if isinstance(definition, str) and "\n" not in definition and len(definition) < 200:
        return lambda seed: (
            f"anabranch simulate {definition} --seed {seed}"
            if plain
            else f"simulate({definition!r}, seeds=[{seed}]{more})"
        )
    if isinstance(definition, os.PathLike):
        return _repeat(os.fspath(definition), plain=plain)
    name = getattr(definition, "__name__", "definition")
    return lambda seed: f"simulate({name}, seeds=[{seed}]{more})"


def _copy_payloads(answers: object, old: Payloads, new: Payloads) -> None:
    """What the answers refer to; a redriven run really lives in the store of its origin."""
    for sha256 in re.findall(rb"anabranch:sha256:([0-9a-f]{64})", msgspec.json.encode(answers)):
        content = old.payload(sha256.decode())
        if content is not None:
            new.put_payload(sha256.decode(), content)


def _add(sums: Simulation, world: Chaos) -> None:
    sums.events += sum(audit.state.seq for audit in world.audits.values())
    sums.turns += world.moves
    sums.virtual_seconds += world.virtual_seconds
    sums.faults.update(world.tally)
    sums.statuses[status_of(world.audit.state)] += 1


def _failure(world: Chaos, seed: int, defect: Exception, repeat: str) -> SimulationFailed:
    what = str(defect) or repr(defect)
    if not isinstance(defect, AnabranchError):
        what = f"{type(defect).__name__}: {what}"
    recent = [_shown(*each) for each in world.recent]
    faults = ", ".join(f"{name} {count}" for name, count in world.tally.items())
    return SimulationFailed(seed, what, repeat, recent, faults)


def _shown(run: str, seq: int, at: int, event: e.Event) -> PlayedEvent:
    fields = e.fields_of(event)
    if run != RUN:
        fields = {"run": run, **fields}  # of a child run
    return PlayedEvent(seq, (at - EPOCH) / 1000, e.kind_of(event), fields)
