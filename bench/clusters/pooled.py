"""An engine with a pool on a cluster: `python -m bench.clusters.pooled SCENARIO`.

The scenario is JSON: the URL of the pool, the store, the work, how many items in shards of which
size, the window, how often. Prints `half` when half of the items of a run are over, and at the end
what the quickest run took. A process of its own, so that its memory is that of an engine.
"""

from __future__ import annotations

import asyncio
import json
import sys
import time
from dataclasses import asdict, dataclass
from typing import Any

from anabranch import Engine
from anabranch.work.kinds.callables import default_toolbox
from bench.clusters import tools
from bench.clusters.processes import forget_peak, memory_kib

assert "nothing" in {tool.name for tool in default_toolbox}, tools.__name__

STEP = "each"


@dataclass(frozen=True, slots=True)
class Scenario:
    pool: str
    store: str
    work: str
    items: int
    size: int  # of a shard; 0: automatic
    window: int
    times: int = 3
    watch: bool = False  # count what was out at once, and tell when half is done


@dataclass(frozen=True, slots=True)
class Pooled:
    seconds: float
    cpu: float  # of the engine's process
    shards: int
    events: int
    out_most: int  # shards out at once
    lost: int
    lost_seconds: float  # between the start of a lost attempt and its loss
    peak_kib: int
    grown_kib: int  # from before the run to the most during it


def playbook(scenario: Scenario, items: int) -> str:
    fanout: dict[str, Any] = {"max_concurrent": scenario.window, "keep_results": False}
    if scenario.size:
        fanout["shard_size"] = scenario.size
    step = {
        "step": STEP,
        "spec": {"loop_mode": "fanout", "pool": "heavy", "fanout": fanout},
        "loop": {"in": {"range": items}, "iterator": "n"},
        "tool": {"kind": scenario.work, "value": "{{ iter.n }}"},
    }
    head = {"apiVersion": "noetl.io/v2", "kind": "Playbook", "metadata": {"name": "pooled"}}
    return json.dumps({**head, "workflow": [step]}) + "\n"


async def measured(scenario: Scenario) -> Pooled:
    async with Engine(scenario.store, pools={"heavy": scenario.pool}) as engine:
        await once(engine, scenario, 4 * max(1, scenario.size))  # wakes the workers
        found = [await once(engine, scenario, scenario.items) for _ in range(scenario.times)]
    return min(found, key=lambda one: one.seconds)


async def once(engine: Engine, scenario: Scenario, items: int) -> Pooled:
    text, own = playbook(scenario, items), "self"
    before = memory_kib(own)
    forget_peak(own)
    begin, used = time.perf_counter(), time.process_time()
    run = await engine.start(text)
    telling = asyncio.create_task(tell_half(engine, run, items)) if scenario.watch else None
    done = await engine.wait(run)
    seconds, cpu = time.perf_counter() - begin, time.process_time() - used
    peak = memory_kib(own, peak=True)
    if telling is not None:
        await telling
    ended = done.steps[STEP]["result"]
    if done.status != "completed" or ended["succeeded"] != items:
        raise RuntimeError(f"{done.status}: {ended} {done.problem}")
    counts = await counted(engine, run)
    return Pooled(seconds, cpu, peak_kib=peak, grown_kib=peak - before, **counts)


async def tell_half(engine: Engine, run: str, items: int) -> None:
    """Say it when half of the items are over; the end of the run says so for small ones."""
    over = 0
    async for event in engine.events(run):
        if event.kind == "loop.shard.done":
            over += event.fields["succeeded"]
            if 2 * over >= items:
                print("half", flush=True)
                return


async def counted(engine: Engine, run: str) -> dict[str, Any]:
    """What the log says of the run."""
    events = shards = lost = out_most = 0
    lost_seconds = 0.0
    out: dict[str, int] = {}
    async for event in engine.events(run):
        events += 1
        job = event.fields.get("job", "")
        if event.kind == "loop.shard.started":
            out[job] = event.at
            out_most = max(out_most, len(out))
        elif event.kind == "job.lost" and job in out:
            lost += 1
            lost_seconds += (event.at - out.pop(job)) / 1000
        elif event.kind in ("loop.shard.done", "loop.shard.failed"):
            shards += 1
            out.pop(job, None)
    return {
        "events": events,
        "shards": shards,
        "out_most": out_most,
        "lost": lost,
        "lost_seconds": lost_seconds,
    }


if __name__ == "__main__":
    print(json.dumps(asdict(asyncio.run(measured(Scenario(**json.loads(sys.argv[1])))))))
