"""What limits across runs need from a store: who holds a place under which key, and who waits.

A run with limits has a row for each of its keys, from shortly after it is recorded until it has
ended. `admit` decides in one transaction which of those that wait begin, so that servers that share
the store never let in more runs than there are places. A place belongs to an unfinished run: as
soon as its end is durable the place is free, whether or not the row is gone.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Literal, Protocol

import msgspec


class Admission(msgspec.Struct, frozen=True, kw_only=True):
    """A run under one of its keys."""

    run: str
    key: str
    limit: int
    when_full: Literal["queue", "reject", "cancel_oldest"] = "queue"
    priority: int = 0  # of those that wait, the highest goes first; then the one that asked first
    asked_at: int = 0
    admitted_at: int | None = None  # None while it waits


class SurplusRun(msgspec.Struct, frozen=True):
    """A run for which there is no place, by the policy of a limit."""

    run: str
    key: str
    limit: int
    for_run: str = ""  # cancel_oldest: the newer run that takes its place; "": it was refused


class AdmissionTurn(msgspec.Struct, frozen=True):
    """What `admit` has decided."""

    admitted: list[str] = []  # runs that have all their places now, in order
    surplus: list[SurplusRun] = []  # to be cancelled; named again until they have ended


class LimitedKey(msgspec.Struct, frozen=True):
    key: str
    limit: int  # the highest that a run under this key was started with
    holding: int
    waiting: int
    waiting_since: int | None = None


class QueuePlace(msgspec.Struct, frozen=True):
    admission: Admission
    holding: int  # runs that have a place under this key
    place: int  # of one that waits: 1 is the next; 0 where it has its place


class Admissions(Protocol):
    def admit(
        self,
        keys: Collection[str],
        now: int,
        *,
        asked: Sequence[Admission] = (),
        ended: Sequence[str] = (),
        only: Collection[str] | None = None,
    ) -> AdmissionTurn:
        """Write down who `asked`, forget the runs that have `ended`, and give the places under
        these keys (and those of `asked`) to runs that wait: all of it in one transaction.

        With `only` no others are admitted. Asking again changes nothing."""

    def admissions(self, key: str, limit: int = 1000) -> list[Admission]:
        """Unfinished runs under this key: those with a place in the order in which they got it,
        then those that wait, the next one first."""

    def places(self, run: str) -> list[QueuePlace]:
        """Where an unfinished run stands under each of its keys; empty when it has no limits."""

    def limited_keys(self, after: str = "", limit: int = 1000) -> list[LimitedKey]:
        """Keys that unfinished runs have, in order."""

    def admissions_known(self, runs: Sequence[str]) -> set[str]:
        """Those of these runs that have asked. A crash can come before a queued run has."""

    def admitted_and_queued(self, limit: int = 1000) -> list[str]:
        """Runs that have their places and do not know it: whoever decided that has crashed, or is
        about to tell them."""
