"""A server of the cluster in a process of its own, told what to do by lines of JSON.

`Member` is the handle of the benchmark; `python -m bench.postgres.member ADDRESS LEASE` is the
process: an engine without HTTP, so that what is measured is the engine and the store.
"""

from __future__ import annotations

import asyncio
import gc
import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from anabranch.kernel import stimuli as s
from anabranch.kernel.values import ContextPatch
from anabranch.parts import Parts
from bench import world


class Member:
    def __init__(self, process: subprocess.Popen[str]) -> None:
        self.process = process

    def tell(self, do: str, **given: Any) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps({"do": do, **given}) + "\n")
        self.process.stdin.flush()

    def hear(self) -> Any:
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        if not line:
            raise RuntimeError("a server of the benchmark has ended")
        return json.loads(line)

    def ask(self, do: str, **given: Any) -> Any:
        self.tell(do, **given)
        return self.hear()


@contextmanager
def member(address: str, *, lease: float = 15.0, hang: bool = False) -> Iterator[Member]:
    command = [sys.executable, "-m", "bench.postgres.member", address, str(lease)]
    environment = {**os.environ, **({"ANABRANCH_BENCH_HANG": "yes"} if hang else {})}
    process = subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment
    )
    try:
        yield Member(process)
        if process.poll() is None:
            assert process.stdin is not None
            process.stdin.close()  # it leaves in order
            process.wait(60)
    finally:
        if process.poll() is None:
            process.kill()
        process.wait()
        for pipe in (process.stdin, process.stdout):
            if pipe is not None and not pipe.closed:
                pipe.close()


async def owns(parts: Parts, partitions: int) -> None:
    """Returns when this server owns so many."""
    cluster = parts.engine.store.cluster
    assert cluster is not None
    while len(cluster.owned) != partitions:
        await asyncio.sleep(0.01)


async def _opened(parts: Parts) -> None:
    """Returns when the runs of all partitions it owns are in memory. Before that, runs that begin
    are in those that are."""
    member, cluster = parts.engine.member, parts.engine.store.cluster
    assert member is not None
    assert cluster is not None
    while member.owned != len(cluster.owned):
        await asyncio.sleep(0.01)


async def patch(parts: Parts, run: str, value: float) -> None:
    said = s.PatchContext((ContextPatch("seen", value),))
    await parts.engine.send(run, said)


async def many(parts: Parts, kind: str, runs: int) -> dict[str, float]:
    """Runs of three steps started together."""
    prepared = world.prepared(world.chain(3, kind))

    async def whole() -> None:
        run = await parts.engine.start(prepared.definition, prepared.net)
        await parts.engine.wait(run)

    await asyncio.gather(*(whole() for _ in range(10)))
    gc.collect()
    begin, used = time.perf_counter(), time.process_time()
    await asyncio.gather(*(whole() for _ in range(runs)))
    return {"seconds": time.perf_counter() - begin, "cpu": time.process_time() - used}


async def _gated(parts: Parts) -> str:
    prepared = world.prepared(world.gated())
    run = await parts.engine.start(prepared.definition, prepared.net)
    await parts.engine.wait(run, standing=True)
    return run


async def _patches(parts: Parts, run: str, times: int, pause: float) -> dict[str, list[float]]:
    """How long each took, and the instant at which it was durable."""
    taken, durable = [], []
    for number in range(times):
        await asyncio.sleep(pause)
        begin = time.perf_counter()
        await patch(parts, run, number)
        taken.append(time.perf_counter() - begin)
        durable.append(time.time())
    return {"taken": taken, "durable": durable}


async def _hang(parts: Parts, runs: int) -> list[str]:
    """Runs whose first step does not end."""
    prepared = world.prepared(world.chain(2, "nothing_for_now"))
    await _opened(parts)
    begun = [parts.engine.start(prepared.definition, prepared.net) for _ in range(runs)]
    found = await asyncio.gather(*begun)
    while parts.engine._core.job_queues.at_work < runs:
        await asyncio.sleep(0.01)
    return list(found)


async def _carry_out(parts: Parts, do: str, given: dict[str, Any]) -> Any:
    match do:
        case "own":
            return await owns(parts, **given)
        case "many":
            return await many(parts, **given)
        case "gated":
            return await _gated(parts)
        case "patches":
            return await _patches(parts, **given)
        case "hang":
            return await _hang(parts, **given)
    raise ValueError(do)


async def _serve(address: str, lease: float) -> None:
    async with world.engine(address, jobs_max=20_000, server_lease_seconds=lease) as parts:
        while line := await asyncio.to_thread(sys.stdin.readline):
            told = json.loads(line)
            print(json.dumps(await _carry_out(parts, told.pop("do"), told)), flush=True)


if __name__ == "__main__":
    asyncio.run(_serve(sys.argv[1], float(sys.argv[2])))
