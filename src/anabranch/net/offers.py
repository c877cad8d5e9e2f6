"""What the members of a scope can offer to its join, whatever outcomes they come to.

A join closes when enough of its slots are filled. Which can be filled *at once* depends on choices:
a step ends with one outcome, and what another outcome would have spawned never comes about. So for
every step of a scope this keeps the counts of offers that one member standing there can still bring
about, one vector for each way in which things may go, as far as no other way is at least as good
everywhere. Cycles are followed until nothing grows; a count beyond the slots that want it does not
matter, so that ends.

A nested join hands on its target only if it can close itself. That is worked out from the inside
out, beginning with no join that can. All answers err on one side: a join that is said never to
close never does.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

import msgspec

from anabranch.cancel import poll
from anabranch.net.net import Branch, GatherRule, Join, Net, Slot

Vector = tuple[int, ...]
Front = frozenset[Vector]
#: An outcome, and the steps that follow it in the same scope.
Way = tuple[str, tuple[str, ...]]
OutcomesOf = Callable[[str], list[str]]

FRONT_MAX = 48  # more ways than that are taken together: as good as the best of each
SUMS_MAX = 60_000  # a net that takes longer than that gets the benefit of the doubt


class Declared(msgspec.Struct, frozen=True):
    """A join, where it is declared."""

    step: str
    branch: Branch
    join: Join


class Outlook(msgspec.Struct, frozen=True):
    """What can become of one join."""

    declared: Declared
    most: int  # slots that can be filled at once
    fillable: tuple[bool, ...]  # slot by slot, each on its own
    scope: tuple[str, ...]  # the steps its members can come to

    @property
    def needed(self) -> int:
        rule, slots = self.declared.join.rule, len(self.declared.join.slots)
        return slots_needed(rule, sum(self.fillable) if rule.exclude_lost else slots)

    @property
    def possible(self) -> bool:
        return self.most >= self.needed


def slots_needed(rule: GatherRule, slots: int) -> int:
    match rule.mode:
        case "any" | "best_of":
            return 1
        case "quorum":
            return rule.k
        case "all":
            return max(slots - max(rule.tolerate, int(slots * rule.tolerate_percent / 100)), 1)


class Offers:
    """The joins of one net and what can become of them."""

    def __init__(self, net: Net) -> None:
        self._net = net
        self._sums = 0
        self._closing: set[int] = set()  # the joins that can close, by identity
        self.joins = [
            Declared(step.name, branch, branch.join)
            for step in net.steps.values()
            for branch in step.branches
            if branch.join is not None
        ]
        self._asked = _outcomes_asked_for(self.joins)
        self.outlooks = self._from_the_inside_out()

    def _from_the_inside_out(self) -> list[Outlook]:
        """Look until no further join turns out to close; only then has every slot been judged
        with all the targets that can come about."""
        while True:
            outlooks = [self.outlook(declared) for declared in self.joins]
            closing = {id(outlook.declared.join) for outlook in outlooks if outlook.possible}
            if closing <= self._closing:
                return outlooks
            self._closing |= closing

    def outlook(self, declared: Declared, without: tuple[str, str] | None = None) -> Outlook:
        """What can become of this join, perhaps if one step never came to one outcome."""
        poll()
        wanted = _Wanted(declared.join.slots, self._outcomes)
        scope = self._scope([arc.target for arc in declared.branch.arcs])
        fronts = self._fronts(scope, wanted, without)
        total = self._together(fronts, [a.target for a in declared.branch.arcs], wanted)
        if self._sums > SUMS_MAX:
            everything = (True,) * len(declared.join.slots)
            return Outlook(declared, len(everything), everything, tuple(scope))
        most = max((wanted.filled(vector) for vector in total), default=0)
        fillable = tuple(wanted.can_fill(slot, total) for slot in declared.join.slots)
        return Outlook(declared, most, fillable, tuple(scope))

    def outcomes_it_needs(self, outlook: Outlook) -> list[tuple[str, str]]:
        """The outcomes without which the join cannot close, besides those its slots ask for."""
        asked = {(slot.node, slot.when) for slot in outlook.declared.join.slots}
        found = []
        for name in outlook.scope:
            outcomes = [way[0] for way in self._ways(name)]
            for outcome in dict.fromkeys(outcomes) if len(set(outcomes)) > 1 else ():
                pair = (name, outcome)
                if pair not in asked and not self.outlook(outlook.declared, pair).possible:
                    found.append(pair)
        return found

    # -- one scope ---------------------------------------------------------------------------

    def _outcomes(self, name: str) -> list[str]:
        """The outcomes a step can come to; "" is any that nobody asks for."""
        step = self._net.steps[name]
        if step.work is not None and step.work.outcomes:
            return list(step.work.outcomes)
        named = [branch.outcome for branch in step.branches if branch.outcome is not None]
        return list(dict.fromkeys([*named, *self._asked.get(name, ()), ""]))

    def _ways(self, name: str) -> Iterator[Way]:
        step = self._net.steps[name]
        for outcome in self._outcomes(name):
            branch = step.branch_for(outcome)
            if branch is None:
                yield outcome, ()
            elif branch.join is not None:
                closes = id(branch.join) in self._closing
                yield outcome, self._known((branch.join.target,) if closes else ())
            elif branch.mode == "inclusive":
                yield outcome, self._known(arc.target for arc in branch.arcs)
            else:
                for arc in branch.arcs:
                    yield outcome, self._known((arc.target,))

    def _known(self, names: Iterable[str]) -> tuple[str, ...]:
        return tuple(name for name in names if name in self._net.steps)

    def _scope(self, spawns: Iterable[str]) -> list[str]:
        """The steps its members can come to, those further along first."""
        found: dict[str, bool] = {}
        frontier = list(self._known(spawns))
        while frontier:
            name = frontier.pop()
            if name not in found:
                found[name] = True
                frontier += [target for _, targets in self._ways(name) for target in targets]
        return list(reversed(found))

    def _fronts(
        self, scope: Sequence[str], wanted: _Wanted, without: tuple[str, str] | None
    ) -> dict[str, Front]:
        fronts: dict[str, Front] = dict.fromkeys(scope, frozenset({wanted.nothing}))
        ways = {
            name: [way for way in self._ways(name) if (name, way[0]) != without] for name in scope
        }
        grown = True
        while grown and self._sums <= SUMS_MAX:
            grown = False
            for name in scope:
                better = set(fronts[name])
                for outcome, targets in ways[name]:
                    own = wanted.offer(name, outcome)
                    following = self._together(fronts, targets, wanted)
                    better |= {wanted.capped(vector, own) for vector in following}
                front = _best(better)
                if front != fronts[name]:
                    fronts[name], grown = front, True
        return fronts

    def _together(
        self, fronts: Mapping[str, Front], names: Sequence[str], wanted: _Wanted
    ) -> Front:
        """What several members bring about: every way of each with every way of the others."""
        nothing: Front = frozenset({wanted.nothing})
        total = nothing
        for name in names:
            if total == nothing:
                total = fronts.get(name, nothing)
            elif fronts.get(name, nothing) != nothing and self._sums <= SUMS_MAX:
                self._sums += len(total) * len(fronts[name])
                total = _best({wanted.capped(a, b) for a in total for b in fronts[name]})
        return total


class _Wanted:
    """The offers that some slot of a join wants: (node, outcome), and how many matter."""

    def __init__(self, slots: Sequence[Slot], outcomes_of: OutcomesOf) -> None:
        self._slots = slots
        self._place: dict[tuple[str, str], int] = {}
        caps: list[int] = []
        for node in dict.fromkeys(slot.node for slot in slots):
            for outcome in outcomes_of(node):
                fits = [s for s in slots if s.node == node and s.when in (outcome, "any")]
                if fits:
                    self._place[node, outcome] = len(caps)
                    caps.append(len(fits))
        self._caps = tuple(caps)
        self.nothing: Vector = (0,) * len(caps)

    def offer(self, node: str, outcome: str) -> Vector:
        place = self._place.get((node, outcome))
        return tuple(int(n == place) for n in range(len(self._caps)))

    def capped(self, a: Vector, b: Vector) -> Vector:
        return tuple(min(x + y, cap) for x, y, cap in zip(a, b, self._caps, strict=True))

    def filled(self, vector: Vector) -> int:
        """How many slots these offers fill; one that asks for an outcome before one that does
        not, which is never worse."""
        total = 0
        for node in dict.fromkeys(slot.node for slot in self._slots):
            whens = [slot.when for slot in self._slots if slot.node == node]
            spare = 0
            for (name, outcome), place in self._place.items():
                if name == node:
                    picky = min(vector[place], whens.count(outcome))
                    total += picky
                    spare += vector[place] - picky
            total += min(spare, whens.count("any"))
        return total

    def can_fill(self, slot: Slot, front: Front) -> bool:
        places = [
            place
            for (node, outcome), place in self._place.items()
            if node == slot.node and slot.when in (outcome, "any")
        ]
        return any(vector[place] for vector in front for place in places)


def _outcomes_asked_for(joins: Iterable[Declared]) -> dict[str, list[str]]:
    asked: dict[str, list[str]] = {}
    for declared in joins:
        for slot in declared.join.slots:
            if slot.when != "any":
                asked.setdefault(slot.node, []).append(slot.when)
    return asked


def _best(vectors: set[Vector]) -> Front:
    """Without those that another one is as good as everywhere."""
    if len(vectors) == 1:
        return frozenset(vectors)
    kept: list[Vector] = []
    for vector in sorted(vectors, key=sum, reverse=True):
        if not any(all(x <= y for x, y in zip(vector, other, strict=True)) for other in kept):
            kept.append(vector)
    if len(kept) > FRONT_MAX:
        return frozenset({tuple(max(column) for column in zip(*kept, strict=True))})
    return frozenset(kept)
