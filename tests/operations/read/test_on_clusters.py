"""Jobs of a pool that a compute cluster does say where they are: at work, in its queue, or here."""

from __future__ import annotations

from typing import Any

import pytest

from anabranch.kernel.explain import Mover, Unfinished
from anabranch.kernel.state import Job, State
from anabranch.operations.read.on_clusters import (
    JobPlace,
    PoolPlace,
    TaskPlace,
    cluster_name,
    placed,
)

NOW = 1_000_000
STATE = State(run="r1")
AT_WORK = Unfinished(
    "job", "2.0", "render", "its work (attempt 3): 30 of 100 done", 1, 2,
    (Mover("", "heavy@dask:x"),),
)  # fmt: skip
SCHEDULED = Unfinished(
    "job", "2.1", "render", "a worker of pool heavy (attempt 2), no longer than its queue_ttl_s",
    1, 2, (Mover("worker", "heavy"),), (), "heavy",
)  # fmt: skip


class Known:
    """An engine with one cluster, for the pool `heavy`, that has these jobs."""

    def __init__(self, *out: tuple[str, TaskPlace], **place: Any) -> None:
        self._out = dict(out)
        given = {"engine": "dask", "address": "dask://hpc:8786", "state": "open", "since": 0}
        self._place = PoolPlace(**{**given, "slots": 4, "workers": 2, "out": 8, **place})

    def pools(self) -> list[str]:
        return ["heavy"]

    def of_pool(self, pool: str) -> PoolPlace | None:
        return self._place if pool == "heavy" else None

    def of_job(self, run: str, job: str) -> TaskPlace | None:
        return self._out.get(job) if run == "r1" else None


def task(worker: str = "", since: int = NOW - 12_400) -> TaskPlace:
    return TaskPlace(pool="heavy", task="render-00ff", since=since, worker=worker)


def told(one: Unfinished, known: Known) -> tuple[str, str]:
    """What it waits for, and who can move it."""
    found, place = placed(STATE, one, known, NOW)
    assert place is not None
    assert place.engine == "dask"
    (mover,) = found.movers
    assert mover.verb == ""  # no `anabranch worker` can do it
    return found.waits_for, mover.target


def test_a_job_at_work_names_the_cluster_its_worker_and_its_task() -> None:
    known = Known(("2.0", task("tcp://10.0.0.5:4321")), dashboard="http://hpc:8787/status")
    assert told(AT_WORK, known) == (
        "its work (attempt 3): 30 of 100 done, on dask at hpc:8786, worker tcp://10.0.0.5:4321, "
        "task render-00ff",
        "dask at hpc:8786",
    )
    _, place = placed(STATE, AT_WORK, known, NOW)
    assert place == JobPlace(
        engine="dask",
        address="dask://hpc:8786",
        state="open",
        dashboard="http://hpc:8787/status",
        task="render-00ff",
        worker="tcp://10.0.0.5:4321",
    )


def test_the_lease_of_the_engine_is_no_limit_of_the_work() -> None:
    known = Known(("2.0", task("w")))
    for until, expected in ((0, None), (5, 5)):
        job = Job("2.0", 2, -1, "render", 3, 1, phase="running", lease=2, until=until)
        found, _ = placed(State(run="r1", jobs={"2.0": job}), AT_WORK, known, NOW)
        assert found.until == expected


def test_a_job_that_no_worker_has_begun_is_in_the_queue_of_the_cluster() -> None:
    assert told(AT_WORK, Known(("2.0", task()))) == (
        "a worker of dask at hpc:8786: task render-00ff is in its queue for 12 s (attempt 3)",
        "dask at hpc:8786",
    )


def test_a_queue_that_does_not_move_says_why() -> None:
    stuck = Known(("2.0", task()), reason="it has free places and begins nothing")
    assert told(AT_WORK, stuck)[0].endswith("(attempt 3); it has free places and begins nothing")
    gone = Known(("2.0", task()), state="away", since=NOW - 3000, reason="no answer")
    assert told(AT_WORK, gone)[0].endswith("; the cluster is away for 3 s: no answer")


@pytest.mark.parametrize(
    ("place", "words"),
    [
        ({}, "room at dask at hpc:8786: it has 8 jobs and does 4 at once"),
        ({"slots": 0, "workers": 0}, "dask at hpc:8786, which has no worker now"),
        (
            {"state": "away", "since": NOW - 3_600_000, "reason": "no answer within 10 s"},
            "dask at hpc:8786, away for 3,600 s: no answer within 10 s",
        ),
        (
            {"state": "unfit", "reason": "its Python is 3.12, here it is 3.11"},
            "dask at hpc:8786, which cannot do it: its Python is 3.12, here it is 3.11",
        ),
        ({"state": "connecting"}, "dask at hpc:8786, which has not answered yet"),
        (
            {"reason": "nothing begins"},
            "room at dask at hpc:8786: it has 8 jobs and does 4 at once; nothing begins",
        ),
    ],
)
def test_a_job_that_is_not_there_yet_says_what_the_cluster_lacks(
    place: dict[str, Any], words: str
) -> None:
    expected = f"{words} (attempt 2), no longer than its queue_ttl_s"
    assert told(SCHEDULED, Known(**place)) == (expected, "dask at hpc:8786")


def test_what_no_cluster_does_stays_as_it_is() -> None:
    gpu = Unfinished("job", "3.0", "cut", "a worker of pool gpu", 1, None, (), (), "gpu")
    step = Unfinished("token", "2.0", "wait", "its wake time", 1)
    for one in (gpu, step):
        assert placed(STATE, one, Known(("2.0", task("w"))), NOW) == (one, None)
    assert placed(State(run="r2"), AT_WORK, Known(("2.0", task("w"))), NOW) == (AT_WORK, None)


@pytest.mark.parametrize(
    ("engine", "address", "name"),
    [
        ("dask", "dask://hpc:8786", "dask at hpc:8786"),
        ("dask", "dask+tls://hpc:8786", "dask at hpc:8786 (tls)"),
        ("ray", "ray://head:10001", "ray at head:10001"),
        ("ray", "ray:head:6379", "ray at head:6379"),
        ("ray", "ray:auto", "ray:auto"),
    ],
)
def test_a_cluster_is_named_as_people_write_its_address(
    engine: str, address: str, name: str
) -> None:
    place = PoolPlace(engine=engine, address=address, state="open", since=0)
    assert cluster_name(place) == name
