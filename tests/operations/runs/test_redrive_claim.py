"""Servers redrive one run, the second at every moment of the first: one of them begins a run, also
where the first ends in the middle.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

from anabranch.errors import InputError, Refused
from anabranch.operations.runs.redrive_claim import HELD_MS, first_redrive
from anabranch.store.memory.store import MemoryStore
from anabranch.testing.store_suite.samples import a_batch, a_commit

from ..interrupted import Interrupted

MOMENTS = 20  # more than a redrive has
NOW = 1_000


class Killed(BaseException):
    """The server ends; nothing that it meant to do afterwards is done."""


class SharedStore(MemoryStore):
    """One that says that several servers share it."""

    cluster: Any = "several"


def redriven(store: Any, new: str, now: int = NOW, *, id_given: bool = False) -> str:
    """The run that was begun, or the code of the refusal."""

    async def work() -> None:
        async with first_redrive(store, "r", new if id_given else None, now):
            await asyncio.to_thread(store.commit, a_batch(a_commit(new, 1, origin="r")))

    try:
        asyncio.run(work())
    except Refused as refusal:
        return refusal.code
    return new


def interrupted(store: MemoryStore, moment: int, meanwhile: Callable[[], None]) -> str:
    """The outcome of the first; "" where it has no such moment."""
    shared = Interrupted(store, moment, meanwhile)
    try:
        outcome = redriven(shared, "first", id_given=True)
    except Killed:
        return "killed"
    return outcome if shared.was_interrupted else ""


def die() -> None:
    raise Killed


def test_of_two_at_once_one_begins_a_run() -> None:
    for moment in range(1, MOMENTS):
        store, told = SharedStore(), list[str]()
        second = partial(redriven, store, "second")
        first = interrupted(store, moment, lambda: told.append(second()))  # noqa: B023 - at once
        if not first:
            break
        (begun,) = store.redrives(["r"])
        assert sorted([first, *told]) == sorted([begun.run, "redriven"]), moment
    assert moment > 4


@pytest.mark.parametrize("same", [False, True], ids=["another", "the same request"])
def test_a_server_that_ends_in_the_middle_keeps_others_waiting_and_not_for_ever(same: bool) -> None:
    for moment in range(1, MOMENTS):
        store = SharedStore()
        if interrupted(store, moment, die) != "killed":
            break
        begun = bool(store.redrives(["r"]))
        if same:  # which looks first whether its run is there
            assert begun or redriven(store, "first", id_given=True) == "first"
        else:
            assert redriven(store, "second", NOW + HELD_MS) == ("redriven" if begun else "second")
        assert len(store.redrives(["r"])) == 1
    assert moment > 4


def test_what_is_refused_gives_the_claim_back() -> None:
    store = SharedStore()

    async def refused() -> None:
        async with first_redrive(store, "r", None, NOW):
            raise InputError("it needs a secret")

    with pytest.raises(InputError):
        asyncio.run(refused())
    assert redriven(store, "second") == "second"
