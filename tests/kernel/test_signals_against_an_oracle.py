"""Random signals and waits against a model that knows nothing of the kernel.

The model is two lists: what is kept, in order of arrival, and who waits, in order of beginning.
After every act both must agree on who took what, what is kept, what has expired and who timed out.
"""

from __future__ import annotations

from random import Random
from typing import Any, NamedTuple

import pytest

from anabranch.errors import InputError, Refused
from anabranch.expressions.port import Expression
from anabranch.kernel import stimuli as s
from anabranch.kernel.values import Wait
from anabranch.net.net import WaitRule, Work
from seeds import part

from .driver import Run
from .nets import Fn, Wrong, net, router, step

SEEDS = 400
NAMES = ("paid", "sent")


class Kept(NamedTuple):
    id: str
    name: str
    n: int
    expires: int  # 0 is never


class Waiter(NamedTuple):
    step: str
    event: str
    accepts: str
    until: int  # 0 is for ever


class Model:
    def __init__(self) -> None:
        self.kept: list[Kept] = []
        self.waits: list[Waiter] = []
        self.taken: dict[str, str] = {}  # step → the id of its signal
        self.expired: set[str] = set()
        self.timed_out: set[str] = set()
        self.known: dict[str, tuple[str, int]] = {}
        self.open = False  # the context

    def fits(self, wait: Waiter, signal: Kept) -> bool:
        if wait.event != signal.name:
            return False
        return {"all": True, "even": signal.n % 2 == 0, "open": self.open, "wrong": False}[
            wait.accepts
        ]

    def settle(self) -> None:
        for signal in list(self.kept):
            wait = next((wait for wait in self.waits if self.fits(wait, signal)), None)
            if wait is not None:
                self.kept.remove(signal)
                self.waits.remove(wait)
                self.taken[wait.step] = signal.id

    def passes(self, now: int) -> None:
        """By instant; of one instant signals expire before waits end, as timers come by kind."""
        due = [(one.expires, 0, one.id) for one in self.kept if 0 < one.expires <= now]
        due += [(one.until, 1, one.step) for one in self.waits if 0 < one.until <= now]
        for _, kind, name in sorted(due):
            if kind:
                self.waits = [one for one in self.waits if one.step != name]
                self.timed_out.add(name)
            else:
                self.kept = [one for one in self.kept if one.id != name]
                self.expired.add(name)


FILTERS: dict[str, Expression | None] = {
    "all": None,
    "even": Fn(lambda names: names["signal"]["payload"] % 2 == 0, "even"),
    "open": Fn(lambda names: names["ctx"].get("open", False), "open"),
    "wrong": Wrong(),
}


class Game:
    """One run with many waits beside one another, and its model."""

    def __init__(self, seed: int) -> None:
        self.dice = dice = Random(f"signals {seed}")
        self.model = Model()
        self.rules = {
            f"s{number}": (dice.choice(NAMES), dice.choice(list(FILTERS)))
            for number in range(dice.randint(1, 12))
        }
        steps = [
            step(name, work=Work("wait", label="w", wait=WaitRule(event, FILTERS[accepts])))
            for name, (event, accepts) in self.rules.items()
        ]
        self.run = Run(net(router("begin", "stay", *self.rules), step("stay"), *steps), 1_000)
        self.unbegun = list(self.rules)
        self.sent = 0

    def play(self) -> None:
        for _ in range(self.dice.randint(5, 60)):
            if self.run.state.finished:
                break
            act = self.dice.choice((self.begins, self.begins, self.sends, self.sends, self.time))
            if self.dice.random() < 0.05:
                act = self.opens
            act()
            self.agree()

    def begins(self) -> None:
        if not self.unbegun:
            return
        name = self.unbegun.pop(self.dice.randrange(len(self.unbegun)))
        event, accepts = self.rules[name]
        limit = self.dice.choice((0, 0, 5, 50))
        job = self.run.begin(name)
        self.model.waits.append(Waiter(name, event, accepts, self.run.at + limit if limit else 0))
        memory = {"at": 1} if self.dice.random() < 0.3 else None
        park = s.JobPark(job.id, 1, limit_ms=limit, memory=memory, wait=Wait(event, "w"))
        self.run.send(park)
        self.model.settle()

    def sends(self) -> None:
        repeats = self.sent and self.dice.random() < 0.2
        number = self.dice.randint(1, self.sent) if repeats else self.sent + 1
        self.sent = max(self.sent, number)
        name, n = self.dice.choice(NAMES), self.dice.randrange(4)
        ttl = self.dice.choice((0, 0, 5, 50))
        signal, model = s.Signal(f"id-{number}", name, n, ttl_ms=ttl), self.model
        waited_for = {event for event, _ in self.rules.values()}
        known = model.known.get(signal.id)
        refused = known not in (None, (name, n)) or name not in waited_for
        try:
            self.run.send(signal)
        except (Refused, InputError):
            assert refused
            return
        assert not refused
        if known is None:
            model.known[signal.id] = (name, n)
            model.kept.append(Kept(signal.id, name, n, self.run.at + ttl if ttl else 0))
            model.settle()

    def time(self) -> None:
        at = self.run.at + self.dice.choice((1, 3, 10, 60))
        self.run.tick(at)
        self.model.passes(at)

    def opens(self) -> None:
        self.run.patch(open=True)
        self.model.open = True
        self.model.settle()

    def agree(self) -> None:
        state, model = self.run.state, self.model
        taken = {p.step: name for name, p in state.past_signals.items() if p.status == "taken"}
        expired = {name for name, p in state.past_signals.items() if p.status == "expired"}
        waits = [job.step for job in state.jobs.values() if job.wait is not None]
        assert taken == model.taken
        assert expired == model.expired
        assert list(state.signals) == [one.id for one in model.kept]
        assert sorted(waits) == sorted(one.step for one in model.waits)
        failed = {name for name in self.rules if self._timed_out(name)}
        assert failed == model.timed_out

    def _timed_out(self, name: str) -> bool:
        jobs = [job for job in self.run.state.jobs.values() if job.step == name]
        heard: Any = jobs[0].heard if jobs else None
        return self.run.statuses(name) == ["failed"] or (
            heard is not None and heard.status == "error"
        )


@pytest.mark.parametrize("block", range(2))
def test_signals_and_waits_do_what_two_lists_do(block: int) -> None:
    for seed in part(block, 2, SEEDS):
        game = Game(seed)
        try:
            game.play()
        except Exception as problem:
            problem.add_note(f"repeat with Game({seed}).play()")
            raise


def test_the_games_reach_every_corner() -> None:
    games = [Game(seed) for seed in range(60)]
    for game in games:
        game.play()
    assert any(game.model.taken for game in games)
    assert any(game.model.expired for game in games)
    assert any(game.model.timed_out for game in games)
    assert any(game.model.kept and game.model.waits for game in games)
    assert any(len(game.model.taken) > 3 for game in games)
