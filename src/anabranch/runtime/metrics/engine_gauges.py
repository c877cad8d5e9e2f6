"""What an engine has now: the gauges of `/metrics`, read when they are asked for."""

from __future__ import annotations

from collections.abc import Callable

from anabranch.runtime.core import Core
from anabranch.runtime.metrics.registry import Registry, by_label
from anabranch.runtime.outage import StoreOutage


def add_gauges(core: Core, now: Callable[[], int]) -> None:
    """Gauges of this engine; `now` is its clock."""
    job_queues, pools, put = core.job_queues, core.pools, core.engine_metrics.registry.gauge
    put("anabranch_live_runs", "runs in memory", lambda: len(core.live))
    put(
        "anabranch_runs_set_aside",
        "runs that a defect stopped, or that need what this engine has not",
        lambda: len(core.not_touched),
    )
    put("anabranch_inbox", "stimuli that wait for a turn", lambda: core.inbox)
    put("anabranch_timers", "runs with a timer set", lambda: core.timers)
    put(
        "anabranch_timer_overdue_seconds",
        "how late the next timer is by now",
        lambda: core.overdue_ms(now()) / 1000,
    )
    in_use, queued = (
        lambda: by_label(job_queues.in_use()),
        lambda: by_label(job_queues.waiting()),
    )
    put("anabranch_lane_jobs", "jobs at work here, by lane", in_use, ["lane"])
    put("anabranch_lane_queue", "jobs that wait for a place, by lane", queued, ["lane"])

    def waiting() -> list[tuple[tuple[str, ...], float]]:
        return [((name,), pools.waiting(name)) for name in pools.names()]

    def leased() -> list[tuple[tuple[str, ...], float]]:
        held = [lease.pool for _, lease in pools.leases()]
        return [((name,), held.count(name)) for name in pools.names()]

    put("anabranch_pool_queue", "jobs that wait for a worker, by pool", waiting, ["pool"])
    put("anabranch_pool_jobs", "jobs out with workers, by pool", leased, ["pool"])


def add_outage_metrics(outage: StoreOutage, registry: Registry) -> None:
    registry.gauge(
        "anabranch_store_outage_seconds",
        "for how long the store has taken no writes; 0 while it does",
        lambda: outage.seconds,
    )
    registry.gauge(
        "anabranch_store_outages_total",
        "how often the store took no writes for a while",
        lambda: outage.count,
        kind="counter",
    )
