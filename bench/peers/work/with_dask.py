"""Dask: futures on a local cluster; items together as partitions of a bag."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import dask.bag
import measuring
from distributed import Client, LocalCluster


def nothing(_before: object = None) -> None:
    return None


def give(value: int) -> int:
    return value


class Dask:
    def __init__(self, client: Client) -> None:
        self._client = client

    def _chain(self, steps: int) -> object:
        last = None
        for _ in range(steps):
            last = self._client.submit(nothing, last, pure=False)
        return last

    def one(self) -> None:
        self._client.gather(self._chain(measuring.STEPS_OF_ONE))

    def many(self, runs: int) -> None:
        self._client.gather([self._chain(measuring.STEPS_OF_MANY) for _ in range(runs)])

    def items(self, count: int) -> int:
        given = self._client.map(give, range(count), pure=False)
        return self._client.submit(sum, given, pure=False).result()

    def batches(self, count: int) -> int:
        parts = max(1, min(100, count // 100))
        return int(dask.bag.range(count, npartitions=parts).map(give).sum().compute())

    def hello(self) -> None:
        self._client.submit(nothing, pure=False).result()


@contextmanager
def opened(variant: str, folder: Path, address: str) -> Iterator[Dask]:
    processes = variant == "processes"
    with (
        LocalCluster(
            n_workers=2 if processes else 1,
            threads_per_worker=1 if processes else 2,
            processes=processes,
            dashboard_address=None,
            local_directory=str(folder),
        ) as cluster,
        Client(cluster) as client,
    ):
        yield Dask(client)


if __name__ == "__main__":
    measuring.main(opened)
