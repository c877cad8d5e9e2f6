"""The cluster without us: `python -m bench.clusters.alone ENGINE ADDRESS WORK ITEMS SIZE`.

With a SIZE of 0 every item is a task of the cluster, else a batch of so many is. Prints what it
took as JSON, the quickest of `TIMES`; a first round, which is not counted, wakes the workers.
"""

from __future__ import annotations

import json
import logging
import sys
import time
from collections.abc import Callable
from typing import Any

from bench.clusters import tools

TIMES = 3


def batches(items: int, size: int) -> list[tuple[int, int]]:
    return [(first, min(first + size, items)) for first in range(0, items, size)]


def on_dask(address: str, work: str, items: int, size: int) -> dict[str, float]:
    import distributed

    connect: Any = distributed.Client  # it has no types
    with connect(address) as client:

        def each() -> None:
            client.gather(client.map(tools.WORK[work], range(items), pure=False))

        def batched() -> None:
            firsts, stops = zip(*batches(items, size), strict=True)
            names = [work] * len(firsts)
            client.gather(client.map(tools.batch, names, firsts, stops, pure=False))

        client.gather(client.map(tools.batch, [work] * 4, [0] * 4, [1] * 4, pure=False))
        return quickest(batched if size else each)


def on_ray(address: str, work: str, items: int, size: int) -> dict[str, float]:
    import ray

    ray.init(address=address, logging_level=logging.ERROR, log_to_driver=False)
    one, batch = ray.remote(tools.one), ray.remote(tools.batch)

    def each() -> None:
        ray.get([one.remote(work, value) for value in range(items)])

    def batched() -> None:
        ray.get([batch.remote(work, *part) for part in batches(items, size)])

    ray.get([batch.remote(work, 0, 1) for _ in range(4)])
    found = quickest(batched if size else each)
    ray.shutdown()
    return found


def quickest(go: Callable[[], None]) -> dict[str, float]:
    taken = []
    for _ in range(TIMES):
        begin, used = time.perf_counter(), time.process_time()
        go()
        taken.append((time.perf_counter() - begin, time.process_time() - used))
    seconds, cpu = min(taken)
    return {"seconds": seconds, "cpu": cpu}


ENGINES: dict[str, Callable[[str, str, int, int], dict[str, Any]]] = {
    "dask": on_dask,
    "ray": on_ray,
}


if __name__ == "__main__":
    engine, address, work = sys.argv[1:4]
    print(json.dumps(ENGINES[engine](address, work, int(sys.argv[4]), int(sys.argv[5]))))
