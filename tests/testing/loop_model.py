"""What a loop means, in as few words as possible; shares nothing with the kernel.

An item fails as often as its script says and then works. It may be tried `1 + retries` times,
unless its failures are final. Nothing is known of time, order, windows or shards. Where those must
not matter, that is all: status, counts, results and sums. Where they do, because the loop stops at
the first failure too many, only what each item may have come to is known; and exactly, where the
items go one after the other and none is tried twice.
"""

from __future__ import annotations

from dataclasses import dataclass
from random import Random


@dataclass(frozen=True)
class Item:
    value: int
    fails: int = 0  # so often, before it works
    final: bool = False  # its failures are of a kind that another try does not help

    def tries(self, retries: int) -> int:
        """How often it goes out."""
        if self.fails == 0 or self.final:
            return 1
        return min(self.fails, retries) + 1

    def works(self, retries: int) -> bool:
        return self.fails == 0 or (not self.final and self.fails <= retries)


@dataclass(frozen=True)
class Case:
    items: tuple[Item, ...]
    retries: int = 0
    tolerate: int = 0
    percent: float = 0.0
    allow_partial: bool = False
    fail_fast: bool = False

    @property
    def allowed(self) -> int:
        return max(self.tolerate, int(len(self.items) * self.percent / 100))

    @property
    def fates(self) -> list[bool]:
        return [item.works(self.retries) for item in self.items]

    @property
    def stops_early(self) -> bool:
        return self.fail_fast and self.fates.count(False) > self.allowed

    @property
    def status(self) -> str:
        failed = self.fates.count(False)
        if not failed:
            return "complete"
        return "partial" if self.allow_partial or failed <= self.allowed else "failed"

    @property
    def results(self) -> list[int | None]:
        pairs = zip(self.items, self.fates, strict=True)
        return [item.value if works else None for item, works in pairs]

    @property
    def total(self) -> int:
        return sum(result for result in self.results if result is not None)

    @property
    def begun(self) -> int:
        """How many items begin, one after the other, when the first failure is one too many."""
        return self.fates.index(False) + 1 if False in self.fates else len(self.items)

    @property
    def tried_again(self) -> int:
        return sum(item.tries(self.retries) - 1 for item in self.items)


def random_case(dice: Random, most: int = 40) -> Case:
    share = dice.choice((0.0, 0.05, 0.2, 0.6))
    items = tuple(
        Item(
            value=dice.randint(-5, 100),
            fails=dice.choice((1, 1, 2, 3, 99)) if dice.random() < share else 0,
            final=dice.random() < 0.2,
        )
        for _ in range(dice.choice((0, 1, 2, dice.randint(3, most), dice.randint(3, most))))
    )
    return Case(
        items,
        retries=dice.choice((0, 0, 1, 2, 3)),
        tolerate=dice.choice((0, 0, 0, 1, 3)),
        percent=dice.choice((0.0, 0.0, 10.0, 50.0, 100.0)),
        allow_partial=dice.random() < 0.4,
        fail_fast=dice.random() < 0.3,
    )


def check_stopped(case: Case, results: list[int | None], succeeded: int, failed: int) -> None:
    """A loop that stopped early: what it did is right, as far as it got."""
    assert failed > case.allowed, "it stopped for a reason"
    assert failed <= case.fates.count(False)
    assert succeeded == sum(result is not None for result in results)
    assert all(
        result is None or result == wanted
        for result, wanted in zip(results, case.results, strict=False)
    )
