"""A child begins on the server that owns its parent, and is asked for on no other."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import cast

import pytest

from anabranch.clock import SystemClock
from anabranch.errors import AnabranchError
from anabranch.kernel import stimuli as s
from anabranch.operations.definitions.prepare import prepare
from anabranch.runtime.cluster.member import ClusterMember
from anabranch.runtime.engine import EngineLoop
from anabranch.runtime.messages.codec import ELSEWHERE, StartRun, read_answer, write_message
from anabranch.store.memory.cluster import MemoryCluster, MemoryServer, SharedMemory
from anabranch.store.ports import Store

from ..support import asking, engine, run, start, until

KID = prepare(asking())


@asynccontextmanager
async def beside_another() -> AsyncIterator[tuple[SharedMemory, EngineLoop, str, str]]:
    """An engine that owns half of a store; a run id of the other half, and one of this half."""
    shared = SharedMemory(4, SystemClock().now)
    other = MemoryCluster(shared, "other")
    other.join("other", "", 3600.0)
    other.claim(2)
    async with engine(cast(Store, MemoryServer(shared, "this"))) as made:
        await until(lambda: made.member is not None and made.member.owned == 2)
        names = [f"r{number}" for number in range(64)]
        theirs = next(one for one in names if shared.place(one) in other.owned)
        ours = next(one for one in names if shared.place(one) not in other.owned)
        yield shared, made, theirs, ours


@pytest.mark.parametrize("when", ["before it begins", "on the way"])
def test_who_asks_for_a_child_of_a_run_elsewhere_is_sent_to_its_owner(
    when: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its partition was handed over: the id of the child does not say where its parent is."""
    if when == "on the way":
        monkeypatch.setattr(ClusterMember, "would_own", lambda *_given: True)

    async def scenario() -> None:
        async with beside_another() as (shared, made, theirs, ours):
            kid, parent = (theirs, f"{theirs}-p") if when == "on the way" else (ours, theirs)
            with pytest.raises(AnabranchError) as told:
                await made.start(KID.definition, KID.net, run=kid, parent=f"{parent}/1.0#1")
            assert (told.value.code, getattr(told.value, "run", "")) == (ELSEWHERE, parent)
            assert shared.store.unanswered() == []
            assert shared.store.head(kid) is None

    run(scenario())


def test_a_message_that_asks_for_a_child_of_a_run_elsewhere_is_refused_once() -> None:
    """To take it would lose all partitions: the child is written where its parent is."""

    async def scenario() -> None:
        async with beside_another() as (_, made, theirs, ours):
            made.nets.put(KID.definition, KID.net)
            asked = s.Start(run=ours, input={}, parent=f"{theirs}/1.0#1")
            message = StartRun(KID.definition.fingerprint, asked)
            number = made.store.post(ours, write_message(message), 1)
            await until(lambda: (found := made.store.message(number)) and found.answer)
            answered = made.store.message(number)
            assert answered is not None
            assert answered.answer is not None
            assert read_answer(answered.answer).code == ELSEWHERE
            assert made.member is not None
            assert made.member.leases_lost == 0
            assert (await made.wait(await start(made, asking()), standing=True)).seq

    run(scenario())
