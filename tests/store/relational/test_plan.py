"""Whatever webhooks have seen of a log, the order of its copy lets each go on where it was."""

from __future__ import annotations

from random import Random

import pytest

from anabranch.store.relational.plan import Cursors, Numbers, Range, plan, unseen
from seeds import seeds

Rows = dict[int, list[int]]  # partition of the target → rows, in their order


@pytest.mark.parametrize("seed", seeds(300))
def test_every_webhook_goes_on_where_it_was(seed: int) -> None:
    """Rows of the source are (partition, number); the target spreads them as it likes."""
    dice = Random(seed)
    count = dice.choice((1, 1, 2, 5))
    ends: Numbers = {each: dice.randint(0, 8) for each in range(count)}
    hooks = [f"h{number}" for number in range(dice.randint(0, 4))]
    cursors = {hook: {each: dice.randint(0, ends[each]) for each in ends} for hook in hooks}
    keeps = dice.random() < 0.5
    partitions = count if keeps else dice.randint(1, 4)
    places = {
        (each, number): each if keeps else dice.randrange(partitions)
        for each in ends
        for number in range(1, ends[each] + 1)
        if dice.random() < 0.9  # the others are purged
    }

    log, behind = _played(plan(cursors, ends, partitions=partitions, keeps=keeps), places)

    assert sorted(row for rows in log.values() for row in rows) == sorted(places)  # each once
    for rows in log.values():
        for partition in ends:
            numbers = [number for each, number in rows if each == partition]
            assert numbers == sorted(numbers)
    rest = unseen(cursors, ends, keeps=keeps)
    for hook in hooks:
        seen = {row for row in places if row[1] <= cursors[hook][row[0]]}
        looked = {
            row
            for row in places
            for one in rest.get(hook, [])
            if row[0] == one.partition and one.after < row[1] <= one.upto
        }
        assert not seen & looked
        assert behind[hook] == seen | looked
        assert not (keeps or count == 1) or not looked  # then nothing needs to be looked at


def test_webhooks_that_are_behind_each_other_in_turn_need_no_look() -> None:
    """As it nearly always is: one is up to date, one is slow, one has just begun."""
    ends = {0: 9, 1: 9, 2: 9}
    cursors = {"now": ends, "slow": {0: 7, 1: 9, 2: 3}, "begun": {0: 0, 1: 0, 2: 0}}
    assert unseen(cursors, ends, keeps=False) == {}


def _played(
    steps: list[Range | Cursors], places: dict[tuple[int, int], int]
) -> tuple[dict[int, list[tuple[int, int]]], dict[str, set[tuple[int, int]]]]:
    """What the target has then, and what is behind the cursors of each webhook there."""
    log: dict[int, list[tuple[int, int]]] = {}
    behind: dict[str, set[tuple[int, int]]] = {}
    for step in steps:
        if isinstance(step, Range):
            for number in range(step.after + 1, step.upto + 1):
                if (row := (step.partition, number)) in places:
                    log.setdefault(places[row], []).append(row)
        else:
            seen = behind.setdefault(step.hook, set())
            for partition in step.partitions:
                seen.update(log.get(partition, []))
    return log, behind
