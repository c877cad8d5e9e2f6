"""Celery with a Redis server and one worker of two processes, both begun here.

The settings are those that its guide on optimizing names for many short tasks. `safe` is the
variant that loses nothing: late acknowledgements, and a Redis that writes before it answers.
"""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import measuring
from celery import Celery, chain, chord

ADDRESS = os.environ.get(measuring.ADDRESS, "")
SAFE = "ANABRANCH_BENCH_SAFE"

app = Celery("with_celery", broker=ADDRESS or None, backend=ADDRESS or None)
app.conf.update(
    worker_prefetch_multiplier=128,
    result_expires=3600,
    broker_connection_retry_on_startup=True,
    task_acks_late=bool(os.environ.get(SAFE)),
    task_reject_on_worker_lost=bool(os.environ.get(SAFE)),
)


@app.task
def nothing() -> None:
    return None


@app.task
def give(value: int) -> int:
    return value


@app.task
def total(values: list) -> int:
    return sum(sum(value) if isinstance(value, list) else value for value in values)


class Queue:
    def _chain(self, steps: int) -> object:
        return chain(*(nothing.si() for _ in range(steps))).apply_async()

    def one(self) -> None:
        self._chain(measuring.STEPS_OF_ONE).get()

    def many(self, runs: int) -> None:
        for begun in [self._chain(measuring.STEPS_OF_MANY) for _ in range(runs)]:
            begun.get()

    def items(self, count: int) -> int:
        return chord(give.s(value) for value in range(count))(total.s()).get()

    def batches(self, count: int) -> int:
        parts = give.chunks(zip(range(count)), 1_000).group()
        return chord(parts)(total.s()).get()

    def hello(self) -> None:
        nothing.delay().get()


def redis_command(variant: str, port: int, folder: Path) -> list[str]:
    program = os.environ.get("REDIS_SERVER") or shutil.which("redis-server") or "redis-server"
    command = [program, "--port", str(port), "--bind", "127.0.0.1", "--dir", str(folder)]
    if variant == "safe":
        command += ["--appendonly", "yes", "--appendfsync", "always"]
    return command


@contextmanager
def servers(variant: str, folder: Path) -> Iterator[str]:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    address = f"redis://127.0.0.1:{port}/0"
    environment = {**os.environ, measuring.ADDRESS: address}
    if variant == "safe":
        environment[SAFE] = "yes"
    worker = [sys.executable, "-m", "celery", "-A", "with_celery", "worker", "-c", "2"]
    worker += ["--without-gossip", "--without-mingle", "--without-heartbeat", "-l", "ERROR"]
    redis = subprocess.Popen(redis_command(variant, port, folder), **quiet)
    try:
        _wait_for(port)
        begun = subprocess.Popen(worker, env=environment, cwd=Path(__file__).parent, **quiet)
        try:
            yield address
        finally:
            begun.terminate()
            begun.wait()
    finally:
        redis.terminate()
        redis.wait()


def _wait_for(port: int) -> None:
    for _ in range(500):
        try:
            socket.create_connection(("127.0.0.1", port)).close()
            return
        except OSError:
            time.sleep(0.02)
    raise RuntimeError("no Redis server answered")


@contextmanager
def opened(variant: str, folder: Path, address: str) -> Iterator[Queue]:
    app.conf.update(broker_url=address, result_backend=address)
    yield Queue()


if __name__ == "__main__":
    measuring.main(opened, servers)
