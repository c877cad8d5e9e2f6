"""Random nets that reach into every corner of the kernel, each fixed by its seed.

A net is grown from blocks (step, chain, choice, fork, barrier, join, loop) that nest. Steps are
made in an order in which every arc but a loop's way back leads forward, and a way back is bounded
by a counter in the context, so that every net can come to its end.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import pairwise
from random import Random

import msgspec
from msgspec.structs import replace

from anabranch.expressions.port import Constant, Expression
from anabranch.net.net import (
    Arc,
    Barrier,
    Branch,
    ConcurrencyLimit,
    Join,
    Net,
    Patch,
    RunPolicy,
    Slot,
    Step,
    WhenFull,
)
from anabranch.testing.random.arca import soliciting, with_room
from anabranch.testing.random.steps import (
    RANDOM_PATCHES,
    RANDOM_WORK,
    Names,
    PythonExpression,
    random_answer,
    random_rule,
    random_step,
)
from anabranch.testing.random.waits import waiting

__all__ = ["RANDOM_PATCHES", "RANDOM_WORK", "random_answer", "random_net"]

_DEPTH_MAX = 5  # blocks inside blocks; joins come to lie up to four deep
_SIZES = (1, 2, 3, 4, 6, 8, 10, 12, 14)  # from here on blocks are single steps


def random_limits(seed: int) -> tuple[ConcurrencyLimit, ...]:
    """One net in eight shares the places of one key with others."""
    dice = Random(f"limits {seed}")
    if dice.random() >= 0.125:
        return ()
    when_full: WhenFull = dice.choice(("queue", "queue", "reject", "cancel_oldest"))
    return (ConcurrencyLimit(dice.choice((1, 1, 2)), Constant("all"), when_full, True),)


def random_net(seed: int) -> Net:
    """The net with that seed; the same seed gives the same net."""
    return _Garden(seed).net()


class _Block(msgspec.Struct):
    """A part of a net: control enters at `first` and leaves at `last`, which has no routes yet."""

    first: str
    last: str


@dataclass(slots=True)
class _Garden:
    seed: int
    dice: Random = field(init=False)
    steps: dict[str, Step] = field(default_factory=dict)
    loops: int = 0
    size: int = field(init=False)

    def __post_init__(self) -> None:
        self.dice = Random(f"net {self.seed}")
        self.size = self.dice.choice(_SIZES)

    def net(self) -> Net:
        entry = self._block(0)
        self._shortcuts()
        final = self._step(plain=True) if self.dice.random() < 0.3 else None
        return Net(
            name=f"random-{self.seed}",
            dialect="random",
            fingerprint=f"random-net-{self.seed}",
            steps=dict(self.steps),
            entry=entry.first,
            final=final,
            policy=with_room(self.seed, self._policy()),
            workload={"seed": self.seed},
            carries_payload=self.dice.random() < 0.5,
            limits=random_limits(self.seed),
        )

    def _policy(self) -> RunPolicy:
        dice = self.dice
        return RunPolicy(
            deadline_ms=dice.randint(30, 600) * 1000 if dice.random() < 0.1 else None,
            no_route_is_error=dice.random() < 0.2,
            on_failure=dice.choice(("fail", "handled", "partial")),
            fail_fast=dice.random() < 0.07,
            held=dice.choice(("wait", "wait", "discard")),
            on_final_failure=dice.choice(("fail", "partial")),
            timeouts_have_own_status=dice.random() < 0.7,
        )

    # -- steps and arcs ----------------------------------------------------------------------

    def _step(self, *, plain: bool = False) -> str:
        name = f"s{len(self.steps) + 1}"
        step = waiting(self.seed, soliciting(self.seed, random_step(self.dice, name)))
        if plain:
            step = replace(step, admission=None)
        self.steps[name] = step
        return name

    def _change(self, name: str, **changes: object) -> None:
        self.steps[name] = replace(self.steps[name], **changes)

    def _route(self, name: str, branch: Branch) -> None:
        """Add a branch; now and then an error goes its own way, to the same target."""
        step = self.steps[name]
        branches = (*step.branches, branch)
        if branch.arcs and branch.outcome is None and self.dice.random() < 0.2:
            detour = Branch("error", arcs=(replace(branch.arcs[0], guard=None),))
            branches = (*step.branches, detour, branch)
        self._change(name, branches=branches)

    def _link(self, source: str, target: str) -> None:
        """A plain arc; sometimes only for some outcomes, sometimes with arguments or payload."""
        outcome = "ok" if self.dice.random() < 0.05 else None
        arc = Arc(target, args=self._args())
        self._route(source, Branch(outcome, arcs=(arc,), carry_payload=self.dice.random() < 0.5))

    def _args(self) -> Expression | None:
        options: tuple[Expression | None, ...] = (
            None,
            Constant({"from": "arc"}),
            PythonExpression("{n: event.result.n}", _n_of_result),
        )
        return self.dice.choices(options, (6, 3, 1))[0]

    # -- blocks ------------------------------------------------------------------------------

    def _block(self, depth: int) -> _Block:
        if depth >= _DEPTH_MAX or len(self.steps) >= self.size:
            return self._single(depth)
        block = self.dice.choice(_BLOCKS if depth else _BLOCKS[2:])
        return block(self, depth)

    def _single(self, _depth: int) -> _Block:
        name = self._step()
        return _Block(name, name)

    def _chain(self, depth: int) -> _Block:
        blocks = [self._block(depth + 1) for _ in range(self.dice.choice((2, 2, 3)))]
        for before, behind in pairwise(blocks):
            self._link(before.last, behind.first)
        return _Block(blocks[0].first, blocks[-1].last)

    def _branches(self, depth: int) -> list[_Block]:
        return [self._block(depth + 1) for _ in range(self.dice.choice((2, 2, 3)))]

    def _choice(self, depth: int) -> _Block:
        opener, blocks = self._step(), self._branches(depth)
        arcs = [Arc(block.first, self._guard(), self._args()) for block in blocks]
        if self.dice.random() < 0.6:
            arcs[-1] = replace(arcs[-1], guard=None)
        self._route(opener, Branch(arcs=tuple(arcs)))
        return self._together(opener, blocks)

    def _fork(self, depth: int) -> _Block:
        opener, blocks = self._step(), self._branches(depth)
        self._route(opener, self._inclusive(blocks))
        return self._together(opener, blocks)

    def _barrier(self, depth: int) -> _Block:
        block = self._fork(depth)
        need = self.dice.choice(("reached", "all"))
        self._change(block.last, barrier=Barrier(need))  # type: ignore[arg-type]
        return block

    def _inclusive(self, blocks: list[_Block]) -> Branch:
        arcs = [Arc(block.first, self._maybe_guard(), self._args()) for block in blocks]
        return Branch(mode="inclusive", arcs=tuple(arcs))

    def _together(self, opener: str, blocks: list[_Block]) -> _Block:
        """The branches meet at one step; some of them may simply end."""
        last = self._step()
        for block in blocks:
            if self.dice.random() < 0.9:
                self._link(block.last, last)
        return _Block(opener, last)

    def _join(self, depth: int) -> _Block:
        opener, blocks = self._step(), self._branches(depth)
        target = self._step(plain=True)
        whens = ("any",) * 6 + ("ok", "ok", "valid", "invalid")
        slots = tuple(Slot(block.last, self.dice.choice(whens)) for block in blocks)
        rule = random_rule(self.dice, len(slots))
        arcs = tuple(Arc(block.first, self._maybe_guard()) for block in blocks)
        branch = Branch(
            self.dice.choice((None,) * 8 + ("valid",)),
            "inclusive",
            arcs,
            Join(target, rule, slots),
            carry_payload=self.dice.random() < 0.7,
        )
        self._route(opener, branch)
        return _Block(opener, target)

    def _loop(self, depth: int) -> _Block:
        body, test = self._block(depth + 1), self._step()
        self.loops += 1
        counter, rounds = f"loop{self.loops}", self.dice.randint(1, 3)
        self._link(body.last, test)
        patches = (*self.steps[test].patches, Patch(counter, Constant(1), "sum"))
        last = self._step()
        again = Arc(
            body.first, PythonExpression(f"ctx.{counter} < {rounds}", _again(counter, rounds))
        )
        self._change(test, patches=patches, branches=(Branch(arcs=(again, Arc(last))),))
        return _Block(body.first, last)

    # -- odds and ends -----------------------------------------------------------------------

    def _shortcuts(self) -> None:
        """A few arcs that leave their block, always forward."""
        names = list(self.steps)
        for _ in range(self.dice.choice((0, 0, 0, 1, 2))):
            here = self.dice.randrange(len(names))
            if here + 1 >= len(names) or not self.steps[names[here]].branches:
                continue
            there = self.dice.randrange(here + 1, len(names))
            *others, branch = self.steps[names[here]].branches
            arc = Arc(names[there], self._guard())
            changed = replace(branch, arcs=(*branch.arcs, arc))
            self._change(names[here], branches=(*others, changed))

    def _maybe_guard(self) -> Expression | None:
        return self._guard() if self.dice.random() < 0.2 else None

    def _guard(self) -> Expression:
        number = self.dice.randint(2, 4)
        options = (
            PythonExpression(f"event.result.n % {number}", _divides(number)),
            PythonExpression("event.ending == 'done'", _is_done),
            PythonExpression("workload.seed % 2", lambda names: names["workload"]["seed"] % 2),
            PythonExpression("args.none", lambda names: names["args"]["none"]),  # raises
        )
        return self.dice.choices(options, (12, 8, 6, 1))[0]


def _n_of_result(names: Names) -> dict[str, object]:
    return {"n": names["event"]["result"]["n"]}


def _divides(number: int) -> Callable[[Names], bool]:
    return lambda names: bool((names["event"]["result"] or {}).get("n", 0) % number)


def _is_done(names: Names) -> bool:
    return bool(names["event"]["ending"] == "done")


def _again(counter: str, rounds: int) -> Callable[[Names], bool]:
    """Only a round that ended well was counted, so only that may be followed by another."""

    def more(names: Names) -> bool:
        done = names["event"]["ending"] == "done"
        return bool(done and names["ctx"].get(counter, 0) < rounds)

    return more


_BLOCKS: tuple[Callable[[_Garden, int], _Block], ...] = (
    _Garden._single,
    _Garden._single,
    _Garden._chain,
    _Garden._chain,
    _Garden._choice,
    _Garden._fork,
    _Garden._barrier,
    _Garden._join,
    _Garden._join,
    _Garden._join,
    _Garden._loop,
)
