"""Prefect: flows and tasks, with the server that it begins itself, on SQLite.

What it would send elsewhere is turned off, and so are logs, which cost it a third of its time.
"""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import measuring

os.environ.update(
    PREFECT_HOME=str(Path(sys.argv[3]) / "prefect"),
    PREFECT_SERVER_ALLOW_EPHEMERAL_MODE="true",
    PREFECT_SERVER_ANALYTICS_ENABLED="false",
    DO_NOT_TRACK="1",
    PREFECT_LOGGING_TO_API_ENABLED="false",
    PREFECT_LOGGING_LEVEL="CRITICAL",
    PREFECT_CLI_PROMPT="false",
    PREFECT_SERVER_EPHEMERAL_STARTUP_TIMEOUT_SECONDS="120",
)

from prefect import flow, task


@task
async def nothing() -> None:
    return None


@task
def give(value: int) -> int:
    return value


@flow
async def chain(steps: int) -> None:
    for _ in range(steps):
        await nothing()


@flow
def total(count: int) -> int:
    return sum(give.map(range(count)).result())


class Prefect:
    def __init__(self) -> None:
        self._runner = asyncio.Runner()

    def one(self) -> None:
        self._runner.run(chain(measuring.STEPS_OF_ONE))

    def many(self, runs: int) -> None:
        async def together() -> None:
            await asyncio.gather(*(chain(measuring.STEPS_OF_MANY) for _ in range(runs)))

        self._runner.run(together())

    def items(self, count: int) -> int:
        return total(count)

    def hello(self) -> None:
        self._runner.run(chain(1))

    def close(self) -> None:
        self._runner.close()


@contextmanager
def opened(variant: str, folder: Path, address: str) -> Iterator[Prefect]:
    peer = Prefect()
    yield peer
    peer.close()


if __name__ == "__main__":
    measuring.main(opened)
