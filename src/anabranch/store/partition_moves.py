"""What a commit moves: the numbers of its partitions; and what a server finds out from them about a
commit whose end it did not see."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import NamedTuple

from anabranch.store.cluster_ports import Owned


class Move(NamedTuple):
    epoch: int
    before: int  # the number of the partition
    after: int


def moves_of(
    rows: Iterable[int], answered: Collection[int], owned: Mapping[int, Owned]
) -> dict[int, Move]:
    """`rows` are the partitions of the rows of the log, one for each; `answered` those of the
    messages that are answered. Only the owner of a run does that, so their numbers move as well, by
    one if no row moves them."""
    moved = dict.fromkeys(answered, 0)
    for partition in rows:
        moved[partition] = moved.get(partition, 0) + 1
    return {
        partition: Move(at.epoch, at.number, at.number + max(count, 1))
        for partition, count in moved.items()
        for at in (owned[partition],)
    }


def taken_by_others(
    moves: Mapping[int, tuple[int, int, int]],
    found: Iterable[tuple[int, str | None, int, int]],
    server: str,
) -> list[int]:
    """The partitions that this server owns no more in the epoch it believes in; `found` is
    partition, owner, epoch and number."""
    return [at for at, owner, epoch, _ in found if (owner, epoch) != (server, moves[at][0])]


def happened(
    moves: Mapping[int, tuple[int, int, int]], found: Iterable[tuple[int, str | None, int, int]]
) -> bool:
    """Whether a commit has happened, of a server that owns all of the partitions still: nobody else
    has moved their numbers."""
    numbers = [(number, moves[at][2]) for at, _, _, number in found]
    return bool(numbers) and all(number == after for number, after in numbers)
