"""A cluster may say what it likes: of a ticket so much is kept, the latest and its end too."""

from __future__ import annotations

from typing import Any
from unittest.mock import Mock

from anabranch.cancel import cancel_and_wait
from anabranch.kernel import events as e
from anabranch.kernel import stimuli as s
from anabranch.operations.workers.leases import LeaseClaim
from anabranch.operations.workers.worker_api import LATE_LETTERS
from anabranch.pools.address import read_pool
from anabranch.pools.assignment import Missing, ValuesPlace
from anabranch.pools.backend import Finished, Progressed, Started
from anabranch.pools.dask.backend import PROGRESS_KEPT, DaskBackend
from anabranch.pools.dispatch.outcomes import Outcomes
from anabranch.pools.dispatch.tickets import Ticket
from anabranch.pools.driver.wire import NAME_MAX, said_of, word_of
from anabranch.pools.values.packing import JobPacker
from anabranch.work.values.payloads import hash_of
from in_loop import in_loop
from operations.workers.test_claims import events_of
from surfaces.worker.support import playbook, serving

SECRET = "s3cret-that-nobody-guesses"
PRIVATE = playbook(
    """
  - step: far
    spec: {pool: gpu}
    tool: {kind: python, args: {p: "{{ workload.password }}"}, code: "result = 1"}
""",
    inputs="{password: {secret: true, required: true}}",
)
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


def test_of_names_and_of_what_a_process_asks_for() -> None:
    long = "w" * 1_000_000
    for word in (Started("t", long, long), Finished("t", long, b"outcome")):
        said = word_of(said_of(word))
        assert isinstance(said, Started | Finished)
        assert len(said.worker) == NAME_MAX
        assert len(getattr(said, "process", "p")) <= NAME_MAX
    nothing: Any = Mock()
    packer = JobPacker(nothing, ValuesPlace())
    known = hash_of(b"part")
    assert packer.lacks(Missing(parts=[long, known, ""], process=long)) == [known]
    assert list(packer._known._bits) == ["w" * NAME_MAX]


@in_loop
async def test_of_a_late_answer_in_the_log_of_a_run() -> None:
    """It was written down as it came: a frame of 256 MB, with the secrets that it told."""
    async with serving() as server:
        name = await server.start(PRIVATE, password=SECRET)
        (task,) = (await server.claim(wait_seconds=20))["tasks"]
        await server.good(task, "release")
        out = LeaseClaim(name, task["job"], 1, "w1")
        for outcome in ("o" * 1_000_000, f"my {SECRET}"):
            server.parts.pools.late(out, "w" * 1_000_000, outcome)
        await server.parts.engine.send(name, s.Cancel())
        first, second = events_of(server, name, e.JobLate)
    assert (len(first.worker), len(first.outcome)) == (LATE_LETTERS, LATE_LETTERS)
    assert second.outcome == "my ***"
