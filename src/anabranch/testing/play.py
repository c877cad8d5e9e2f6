"""`play`: run a definition in memory, in virtual time, with scripted answers.

    played = play("order.yaml", {"sku": "A-1"}, script={
        "reserve": [error("timeout"), ok({"held": True})],
        "charge": after(30, ok({"paid": 12.5})),
        "notify": never(),
    })
    assert played.status == "completed"
    assert played.step("reserve").runs == 1

It drives the same core as the engine, so what is played is what runs; only the clock, the store and
the outside world are replaced. A timeout of an hour takes no time at all.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import count
from random import Random
from typing import Any

from anabranch.errors import AnabranchError, InputError
from anabranch.kernel import stimuli as s
from anabranch.kernel.explain import explain
from anabranch.kernel.state import State
from anabranch.kernel.summary import summarise
from anabranch.kernel.values import ContextPatch
from anabranch.operations.definitions.input_check import require_input
from anabranch.operations.definitions.prepare import Rules
from anabranch.operations.read.event_view import EventView
from anabranch.operations.read.waiting import worded
from anabranch.runtime.live_run import history
from anabranch.runtime.values.payloads import resolve
from anabranch.testing.scripted.answers import Scripted
from anabranch.testing.scripted.definitions import Definition, compiled
from anabranch.testing.scripted.participants import prepared
from anabranch.testing.scripted.played import Played, PlayedEvent
from anabranch.testing.scripted.script import Script, Scripts
from anabranch.testing.virtual.post import Letter
from anabranch.testing.virtual.world import EPOCH, World
from anabranch.work.values.json_values import require_json

RUN = "play"


def play(
    definition: Definition,
    input: Mapping[str, Any] | None = None,  # noqa: A002 - the word every surface uses
    start: str | None = None,
    script: Mapping[str, Scripted] | None = None,
    concurrency: int | None = None,
    seed: int = 0,
    *,
    decisions: Mapping[str, Scripted] | None = None,
    patches: Mapping[float, Mapping[str, Any]] | None = None,
    signals: Mapping[float, Mapping[str, Any]] | None = None,
    cancel_at: float | None = None,
    limit: int = 100_000,
    tools: Iterable[str] = (),
    rules: Rules | None = None,
    labels: Mapping[str, str] | None = None,
) -> Played:
    """Run `definition` to its end, or until nothing can move it any more.

    `script` maps step names to an answer or a list of answers, used in execution order, the last
    one repeating (see `testing/scripted/answers.py`). The job of a fan-out slot looks for its label
    first, then for its step; so participants are scripted by their id. Capabilities are scripted by
    theirs: for a search the participants it finds, for a decision source its reply. What is not
    scripted: `noop` and `python` really run, taking no virtual time; a decision stays open; a
    search finds every participant of the script; anything that would reach outside answers `None`
    and is listed in `Played.unscripted`.

    `start` begins at another step than the definition says. `concurrency` is how many jobs run at
    once; the others stay scheduled. `seed` fixes the order of things that happen at the same
    instant; 0 is the order in which they came up.

    `decisions` answers gates by step name: `ok(evidence)` fulfils, `error(…, reason)` rejects,
    `after` takes its time. A decision that is the whole step may stand in `script` as well. The
    last answer repeats for the gates of other step runs, not when the same gate opens again.
    `patches` writes to the context at virtual seconds, `{30: {"approved": True}}`; `signals` sends
    signals, payload by name, `{60: {"paid": {"order": 7}}}`; `cancel_at` cancels the run. A `wait`
    that is not scripted waits: an hour takes no time at all. `limit` is the number of events after
    which an endless loop is assumed. `tools` names kinds of work that are not registered in this
    process.

    `rules` are those of an orchestration (a folder, a bundle, or a mapping by alias or address).
    A step that is not scripted evaluates its rule if its text is there and needs no network.
    `labels` are those of the run: `owner` and `max_gas` mean something to an orchestration.

    Raises `DefinitionError` for a definition that cannot run and `InputError` for a script or an
    input that does not fit it.
    """
    net = compiled(definition, tools, rules)
    _check_numbers(concurrency, limit)
    theatre = Theatre(
        net,
        Scripts(
            Script(net, prepared(net, script or {})), Script(net, decisions or {}, "decisions")
        ),
        dice=Random(seed) if seed else None,
        concurrency=concurrency,
    )
    theatre.announce(patches or {}, cancel_at)
    theatre.signal(signals or {})
    given = require_json(input or {}, "the input", root="input")
    require_input(net, given, extra=True)
    theatre.begin(s.Start(run=RUN, input=given, step=start, labels=labels or {}))
    return theatre.perform(limit)


class Theatre(World):
    """The world of a play: nothing goes wrong that was not scripted."""

    def announce(self, patches: Mapping[float, Mapping[str, Any]], cancel_at: float | None) -> None:
        """What people will do at fixed times."""
        for seconds, values in patches.items():
            values = require_json(dict(values), "the patch", root="patch")
            changes = tuple(ContextPatch(key, value) for key, value in values.items())
            self._at(seconds, s.PatchContext(changes, "play"))
        if cancel_at is not None:
            self._at(cancel_at, s.Cancel("play", "cancelled by the play"))

    def signal(self, signals: Mapping[float, Mapping[str, Any]]) -> None:
        """Signals that will arrive at fixed times, those of one moment in the order given."""
        numbers = count(1)
        for seconds, sent in signals.items():
            if not isinstance(sent, Mapping):
                raise InputError("the signals of a moment are a mapping from names to payloads")
            for name, payload in sent.items():
                payload = require_json(payload, "the payload", root="payload")
                self._at(seconds, s.Signal(f"signal-{next(numbers)}", name, payload, "play"))

    def _at(self, seconds: float, stimulus: s.Stimulus) -> None:
        if isinstance(seconds, bool) or not isinstance(seconds, int | float) or not seconds >= 0:
            raise InputError(f"a moment is a number of seconds from 0 up, not {seconds!r}")
        letter = Letter(RUN, stimulus, asks=True, must=True)
        self.post.send(EPOCH + round(seconds * 1000), letter)

    def perform(self, limit: int) -> Played:
        while self.final is None:
            self.turn()
            self._guard(limit)
            if self.final is None and not self.core.busy and not self.advance():
                break
        state = self.final or self.core.run(RUN).state
        self.scripts.answers.check_names(state.steps)
        self.scripts.decisions.check_names(state.steps)
        return self._played(state)

    def _guard(self, limit: int) -> None:
        live = self.core.live.get(RUN)
        if live is None or live.state.seq <= limit:
            return
        state = live.state
        busiest = max(state.steps, key=lambda name: state.steps[name].runs)
        raise AnabranchError(
            f"the play was stopped after {state.seq:,} events, {self._seconds():g} virtual seconds "
            f"in: step {busiest!r} has run {state.steps[busiest].runs:,} times. A loop without an "
            f"end? If not, play(…, limit=…) allows more than {limit:,} events",
            code="limit",
        )

    # -- the result --------------------------------------------------------------------------

    def _seconds(self) -> float:
        return (self.clock.now() - EPOCH) / 1000

    def _played(self, state: State) -> Played:
        summary = summarise(self.net, state)
        for place in (summary, *summary["steps"].values()):
            place["result"] = resolve(place["result"], self.store.payload)
        status = "waiting" if summary["status"] == "running" else summary["status"]
        return Played(
            run=state.run,
            status=status,
            result=summary["result"],
            steps=summary["steps"],
            joins=summary["joins"],
            events=self._events(),
            seconds=self._seconds(),
            problem=summary["problem"],
            waiting=[worded(one) for one in explain(self.net, state)],
            unscripted=sorted(self.unscripted),
            state=state,
            session=summary.get("session"),
            _known=tuple(self.net.steps),
        )

    def _events(self) -> list[PlayedEvent]:
        shown = EventView(RUN, self.net.private)
        records = [shown.record(at, event) for at, event in history(self.store.read(RUN))]
        return [
            PlayedEvent(record.seq, (record.at - EPOCH) / 1000, record.kind, record.fields)
            for record in records
        ]


def _check_numbers(concurrency: int | None, limit: int) -> None:
    for name, value in (("concurrency", concurrency), ("limit", limit)):
        if value is not None and (isinstance(value, bool) or value < 1):
            raise InputError(f"{name} must be a whole number above zero, not {value!r}")
