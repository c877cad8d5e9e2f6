"""What a step reads and writes of what its run shares: the context and the results of steps.

An expression may say which paths it reads (`reads`, see `expressions.port`). One that does not say
is taken to read everything. Arguments and payload are not in here: they come with the token.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from functools import lru_cache
from typing import Any

import msgspec

from anabranch.net.net import Net, Step
from anabranch.net.program import Rule, TaskSpec, Write
from anabranch.net.reach import Held, reachability

#: Under these names a language shows the context, and under those the results of steps. Any other
#: name may be a key of the one or a step of the other.
CONTEXT_NAMES = frozenset({"ctx", "vars"})
RESULT_NAMES = frozenset({"steps", "results"})
#: Under these it shows which run this is; the number of a run is that of its redrives, too.
RUN_NAMES = frozenset({"run", "run_id", "job"})
KEYCHAIN = "keychain"
_QUOTED = re.compile(r"'[^'\\]*'|\"[^\"\\]*\"")


class Reads(msgspec.Struct, frozen=True):
    """Keys of the context and names of steps; None stands for all of them."""

    ctx: frozenset[str] | None = frozenset()
    results: frozenset[str] | None = frozenset()
    names_run: bool = False  # as far as it is known


EVERYTHING = Reads(None, None)


class StepAccess(msgspec.Struct, frozen=True):
    """What a step run depends on beyond its token, and what it may leave in the context."""

    work: Reads  # whether and how it runs: admission, inputs, slots, items, decision
    routes: Reads  # what follows: its writes, the guards and arguments of its arcs
    writes: frozenset[str]  # context keys, where they are known

    @property
    def feeds_itself(self) -> bool:
        """What one item of its loop writes, another may read."""
        return bool(self.writes) if self.work.ctx is None else bool(self.writes & self.work.ctx)


class NetAccess:
    """The steps of one net."""

    def __init__(self, net: Net) -> None:
        self.steps = {name: _access(step) for name, step in net.steps.items()}
        self._reach = reachability(net).anywhere

    def may_follow(self, step: str) -> tuple[frozenset[str], frozenset[str]]:
        """The steps that may run once this one has, itself included, and the keys they write."""
        steps = self._reach[step]
        return steps, frozenset(key for each in steps for key in self.steps[each].writes)


@lru_cache(maxsize=128)
def _computed(held: Held) -> NetAccess:
    return NetAccess(held.net)


def access(net: Net) -> NetAccess:
    """What the steps of this net read and write, computed at the first call."""
    return _computed(Held(net))


def _access(step: Step) -> StepAccess:
    routing = (step.patches, step.locals, step.branches)
    work = _reads((step.admission, step.work, step.fan, step.loop, step.decision))
    if step.decision is not None and step.decision.when is None:
        work = Reads(None, work.results, work.names_run)  # whoever decides is shown the context
    if step.work is not None and step.work.names_run:
        work = Reads(work.ctx, work.results, names_run=True)
    return StepAccess(work, _reads(routing), frozenset(_writes(step)))


def _reads(parts: Any) -> Reads:
    ctx, results = set[str](), set[str]()
    all_ctx = all_results = names_run = False
    for expression in expressions_in(parts):
        paths: Iterable[tuple[str, ...]] | None = getattr(expression, "reads", None)
        if paths is None:
            return EVERYTHING
        for root, *rest in paths:
            if root in CONTEXT_NAMES:
                ctx.update(rest[:1])
                all_ctx = all_ctx or not rest
            elif root in RESULT_NAMES:
                results.update(rest[:1])
                all_results = all_results or not rest
            else:
                ctx.add(root)
                results.add(root)
                names_run = names_run or root in RUN_NAMES
    return Reads(
        None if all_ctx else frozenset(ctx), None if all_results else frozenset(results), names_run
    )


def keychain_names(parts: Any) -> tuple[frozenset[str], bool]:
    """The names that these parts of a net look up in the keychain, and whether there may be more:
    names that are worked out."""
    names, more = set[str](), False
    for expression in expressions_in(parts):
        paths: Iterable[tuple[str, ...]] | None = getattr(expression, "reads", None)
        for root, *rest in paths or ():
            if root == KEYCHAIN:
                names.update(map(str, rest[:1]))
                more = more or not rest
        more = more or paths is None
    return frozenset(names), more


def reads_keychain(parts: Any) -> bool:
    names, more = keychain_names(parts)
    return more or bool(names)


def expressions_in(value: Any) -> Iterator[Any]:
    """The expressions in a part of a net. What a dialect keeps to itself is given only inputs."""
    if hasattr(value, "evaluate"):
        yield value
    else:
        for part in _parts(value):
            yield from expressions_in(part)


def texts_in(value: Any) -> Iterator[str]:
    """The texts that somebody has written as values: in data, or in quotes in a template. Names of
    steps and keys are none."""
    if isinstance(value, str):
        yield value
    elif hasattr(value, "evaluate"):
        whole = [getattr(value, part, None) for part in ("value", "structure", "inner")]
        if any(part is not None for part in whole):
            yield from texts_in(whole)
        else:
            yield from (text[1:-1] for text in _QUOTED.findall(getattr(value, "text", "")))
    elif isinstance(value, Mapping):
        yield from texts_in(list(value.values()))
    elif isinstance(value, list | tuple):
        for part in value:
            yield from texts_in(part)


def _parts(value: Any) -> Iterable[Any]:
    if isinstance(value, Mapping):
        return value.values()
    if isinstance(value, list | tuple):
        return value
    if isinstance(value, msgspec.Struct) and type(value).__module__.startswith("anabranch.net."):
        return msgspec.structs.astuple(value)
    return ()


def _writes(step: Step) -> Iterator[str]:
    yield from (patch.key for patch in step.patches)
    for branch in step.branches:
        yield from (patch.key for arc in branch.arcs for patch in arc.patches)
    yield from _written(step.work.program if step.work is not None else None)


def _written(value: Any) -> Iterator[str]:
    """Keys that a program writes. What its items share is written too, when its loop ends."""
    if isinstance(value, TaskSpec | Rule):
        made: tuple[Write, ...] = (*value.set_ctx, *value.set_shared)
        yield from (write.key for write in made)
    if not hasattr(value, "evaluate"):
        for part in _parts(value):
            yield from _written(part)
