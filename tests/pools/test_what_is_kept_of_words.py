"""A cluster may say what it likes: of a ticket so much is kept, the latest and its end too."""

from __future__ import annotations

from typing import Any
from unittest.mock import Mock

from anabranch.cancel import cancel_and_wait
from anabranch.pools.address import read_pool
from anabranch.pools.backend import Finished, Progressed, Started
from anabranch.pools.dask.backend import PROGRESS_KEPT, DaskBackend
from anabranch.pools.dispatch.outcomes import Outcomes
from anabranch.pools.dispatch.tickets import Ticket
from in_loop import in_loop

LAST = Progressed("t", b"999")
END = Finished("t", "w", b"outcome")


@in_loop
async def test_in_the_engine() -> None:
    nothing: Any = Mock()
    outcomes = Outcomes(
        nothing, nothing, nothing, nothing,
        over=nothing, again=nothing, works=nothing, trouble=nothing,
    )  # fmt: skip
    ticket = Ticket("t", nothing, nothing, nothing, since=0, lease_until=0)
    for number in range(1000):
        outcomes.heard(ticket, Progressed("t", b"%d" % number))
    outcomes.heard(ticket, END)
    outcomes.heard(ticket, Progressed("t", b"late"))
    assert list(ticket.words) == [LAST, END]
    assert ticket.speaker is not None
    await cancel_and_wait(ticket.speaker)


@in_loop
async def test_in_the_process_that_is_connected_to_dask() -> None:
    backend = DaskBackend(read_pool("pool", "dask://127.0.0.1:1"))
    begun, other = Started("t", "w", "p"), Progressed("u", b"1")
    backend._tell(begun)
    for number in range(1000):
        backend._tell(Progressed("t", b"%d" % number))
        backend._tell(other)
    backend._tell(END)
    first, *told, end = backend.take_events()
    assert (first, end) == (begun, END)
    assert told.count(other) == PROGRESS_KEPT
    own = [one for one in told if one != other]
    before = [Progressed("t", b"%d" % number) for number in range(PROGRESS_KEPT - 1)]
    assert own == [*before, LAST]
    backend._tell(other)
    assert backend.take_events() == [other]
