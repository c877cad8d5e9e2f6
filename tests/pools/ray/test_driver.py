"""What Ray's errors and numbers mean to a pool, without a cluster."""

from __future__ import annotations

import warnings
from typing import Any

import msgspec
import pytest

from anabranch.pools.address import read_pool
from anabranch.pools.backend import BackendAway, Capacity
from anabranch.pools.driver.wire import (
    LENGTH_BYTES,
    Cancel,
    Close,
    Connected,
    Refused,
    Submit,
    Told,
    framed,
    length_of,
    reply_of,
    request_of,
)
from anabranch.pools.ray.backend import RayBackend
from in_loop import in_loop

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # of the library
    pytest.importorskip("ray")
    from ray import exceptions

    from anabranch.pools.ray import driver, worker


@pytest.mark.parametrize(
    ("error", "end", "words"),
    [
        (exceptions.WorkerCrashedError(), "lost by its worker", "the worker w/1 died"),
        (exceptions.NodeDiedError("the node 10.0.0.3"), "lost by its worker", "10.0.0.3"),
        (exceptions.OutOfMemoryError("it had 31 GB"), "lost by its worker", "it had 31 GB"),
        (exceptions.ObjectLostError("0" * 56, "", ""), "lost by its worker", "died"),
        (exceptions.RaySystemError("strange"), "lost by its worker", "strange"),
        (exceptions.TaskCancelledError(), "lost", "cancelled on the cluster"),
        (None, "lost", "cancelled on the cluster"),
        (exceptions.RuntimeEnvSetupError("no pip"), "unusable", "no pip"),
        (exceptions.TaskUnschedulableError("no GPU"), "unusable", "no GPU"),
        (exceptions.ObjectStoreFullError("full"), "unusable", "full"),
        (exceptions.OutOfDiskError("full"), "unusable", "full"),
        (exceptions.RayTaskError("f", "trace", ValueError("odd")), "unusable", "ValueError: odd"),
        (
            exceptions.RayTaskError("f", "trace", ModuleNotFoundError("No module named 'x'")),
            "unfit",
            "No module named 'x'",
        ),
    ],
)
def test_what_became_of_a_job_is_told_from_the_error_of_ray(
    error: Exception | None, end: str, words: str
) -> None:
    kind, ticket, reason, *by_worker = worker.end_of("t", "w/1", error)
    assert kind + " by its worker" * (by_worker == [True]) == end
    assert ticket == "t"
    assert words in reason


def test_a_job_that_was_ended_by_force_is_lost_whatever_ray_says() -> None:
    for error in (exceptions.TaskCancelledError(), exceptions.WorkerCrashedError(), None):
        _, _, reason, by_worker = worker.end_of("t", "w/1", error, forced=True)
        assert "by force" in reason
        assert by_worker


def test_a_reason_is_one_line_without_colours_and_not_too_long() -> None:
    reason = worker.reason_of(RuntimeError("\x1b[36mmany\n\n  lines\x1b[0m" + "x" * 9000))
    assert reason.startswith("RuntimeError: many linesxxx")
    assert len(reason) == worker.REASON_MAX


@pytest.mark.parametrize(
    ("error", "unfit", "words"),
    [
        (ConnectionError("nobody is there"), False, "nobody is there"),
        (TimeoutError("late"), False, "late"),
        (RuntimeError("Version mismatch: theirs is older"), True, "theirs is older"),
        (ValueError("runtime_env is wrong"), True, "runtime_env is wrong"),
        (ModuleNotFoundError("No module named 'grpc'"), True, "grpc"),
        (exceptions.RuntimeEnvSetupError("no pip"), True, "no pip"),
        (driver.Unfit("the worker w/1 has Python 2"), True, "Python 2"),
    ],
)
def test_a_cluster_is_away_or_unfit_by_the_error_of_ray(
    error: Exception, unfit: bool, words: str
) -> None:
    said = driver.refused(error)
    assert said.unfit is unfit
    assert words in said.reason


NODES: list[dict[str, Any]] = [
    {"Alive": True, "Resources": {"CPU": 8.0, "GPU": 2.0, "disk": 1.0}},
    {"Alive": True, "Resources": {"CPU": 3.0}},
    {"Alive": True, "Resources": {"memory": 1e9}},  # a head that does no work
    {"Alive": False, "Resources": {"CPU": 64.0, "GPU": 64.0}},
]


@pytest.mark.parametrize(
    ("demands", "slots", "workers"),
    [
        ({"CPU": 1.0}, 11, 2),
        ({"CPU": 2.0}, 5, 2),
        ({"CPU": 0.5}, 22, 2),
        ({"CPU": 1.0, "GPU": 1.0}, 2, 1),
        ({"CPU": 1.0, "disk": 0.25}, 4, 1),
        ({"CPU": 0.0, "GPU": 0.5}, 4, 1),
        ({"CPU": 0.0}, 11, 2),
        ({"CPU": 1.0, "TPU": 1.0}, 0, 0),
    ],
)
def test_slots_are_the_jobs_that_fit_on_the_nodes(
    monkeypatch: pytest.MonkeyPatch, demands: dict[str, float], slots: int, workers: int
) -> None:
    monkeypatch.setattr("ray.nodes", lambda: NODES)
    found = driver.capacity_of(demands=demands, dashboard="")
    assert (found.slots, found.workers) == (slots, workers)


def test_resources_are_given_to_ray_in_its_own_words() -> None:
    assert driver.options_of({"CPU": 2.0, "GPU": 0.5, "memory": 1e9, "disk": 1.0}) == {
        "num_cpus": 2.0,
        "num_gpus": 0.5,
        "memory": 1e9,
        "resources": {"disk": 1.0},
    }


def test_messages_are_the_same_on_the_other_side() -> None:
    for request in (Submit([("t", b"\0" * 1000)]), Cancel(7, ["a", "b"], True), Close()):
        frame = framed(request)
        assert length_of(frame[:LENGTH_BYTES]) == len(frame) - LENGTH_BYTES
        assert request_of(frame[LENGTH_BYTES:]) == request
    capacity = Capacity(slots=2, workers=1, dashboard="http://127.0.0.1:8265")
    told = Told([("finished", "t", "w", b"\xff"), ("lost", "t", "why", True)])
    for reply in (Connected(capacity), Refused("why", True), told):
        assert reply_of(framed(reply)[LENGTH_BYTES:]) == reply
    with pytest.raises(msgspec.DecodeError):
        reply_of(framed(Close())[LENGTH_BYTES:])


@in_loop
async def test_nobody_at_the_address_is_away_and_nothing_is_left_running() -> None:
    backend = RayBackend(read_pool("pool", "ray:127.0.0.2:1"))
    with pytest.raises(BackendAway, match=r"ray:127\.0\.0\.2:1: nothing answers there"):
        await backend.open()
    with pytest.raises(BackendAway, match="not connected"):
        await backend.submit("t", b"")
    await backend.cancel(["t"])
    await backend.close()
    assert backend.driver_pid == 0
