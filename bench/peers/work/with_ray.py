"""Ray: remote functions on a local cluster; items together as its documentation advises."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import measuring

os.environ["RAY_USAGE_STATS_ENABLED"] = "0"  # it would send figures about itself
os.environ["RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO"] = "0"  # and warns about it otherwise

import ray

BATCH = 1_000


@ray.remote
def nothing(_before: object = None) -> None:
    return None


def give(value: int) -> int:
    return value


give_one = ray.remote(give)


@ray.remote
def give_all(values: range) -> int:
    return sum(give(value) for value in values)


class Ray:
    def _chain(self, steps: int) -> object:
        last = None
        for _ in range(steps):
            last = nothing.remote(last)
        return last

    def one(self) -> None:
        ray.get(self._chain(measuring.STEPS_OF_ONE))

    def many(self, runs: int) -> None:
        ray.get([self._chain(measuring.STEPS_OF_MANY) for _ in range(runs)])

    def items(self, count: int) -> int:
        return sum(ray.get([give_one.remote(value) for value in range(count)]))

    def batches(self, count: int) -> int:
        starts = range(0, count, BATCH)
        parts = [give_all.remote(range(at, min(count, at + BATCH))) for at in starts]
        return sum(ray.get(parts))

    def hello(self) -> None:
        ray.get(nothing.remote())


@contextmanager
def opened(variant: str, folder: Path, address: str) -> Iterator[Ray]:
    ray.init(num_cpus=2, include_dashboard=False, log_to_driver=False, logging_level="ERROR")
    try:
        yield Ray()
    finally:
        ray.shutdown()


if __name__ == "__main__":
    measuring.main(opened)
