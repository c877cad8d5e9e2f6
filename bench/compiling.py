"""S1: definitions through the public names: compiled once, started many times."""

from __future__ import annotations

import asyncio
import gc
import json
import time
from pathlib import Path
from typing import Any

import yaml

from anabranch import Engine
from anabranch.dialects.yaml_reader import LOADER
from anabranch.operations.definitions.prepare import prepare
from bench import world
from bench.chains import many
from bench.rows import Row

RUNS = 2_000
KIND = "nothing_in_place"
_AIMS = {500: 0.150, 5_000: 1.5}


async def s1(folder: Path) -> list[Row]:
    """Runs of 3 steps by `Engine.start` and `Engine.wait`, over those of an engine that is handed
    the compiled definition; then the first compilation of large definitions."""
    mapping = json.loads(world.chain(3, KIND))
    file = folder / "s1.yaml"
    file.write_text(world.chain(3, KIND))
    rows = []
    for name, source in {"a mapping": mapping, "a path": file}.items():
        bare, bare_cpu = await many(folder / f"s1-bare-{name}.db", KIND, RUNS)
        ours, cpu = await _started(folder / f"s1-{name}.db", source)
        words = f"handed the net: {RUNS * 3 / bare:,.0f} steps/s, processor {bare_cpu / cpu:.2f}×"
        rate, ratio = RUNS * 3 / ours, bare / ours
        met = ratio >= 0.9
        rows.append(Row(f"S1 {name} ×{RUNS:,}", rate, "steps/s", words, ratio, "≥ 0.9×", met))
    return rows + _compiled()


async def _started(store: Path, source: Any) -> tuple[float, float]:
    """Seconds by the clock and of the processor."""
    async with Engine(store, toolbox=world.toolbox(), schedules=False) as engine:

        async def one() -> None:
            await engine.wait(await engine.start(source))

        await one()
        gc.collect()
        begin, busy = time.perf_counter(), time.process_time()
        await asyncio.gather(*(one() for _ in range(RUNS)))
        return time.perf_counter() - begin, time.process_time() - busy


def _compiled() -> list[Row]:
    """By the time of the processor, beside that of the parser alone."""
    rows = []
    prepare(_large(3))
    took: dict[int, float] = {}
    for steps, limit in _AIMS.items():
        text = _large(steps)
        gc.collect()
        begin = time.process_time()
        prepare(text)
        took[steps] = time.process_time() - begin
        begin = time.process_time()
        for _ in yaml.parse(text, Loader=LOADER):
            pass
        bare = time.process_time() - begin
        words = f"{bare * 1000:.0f} ms to parse the YAML"
        if steps != 500:
            words += f"; ×{took[steps] / took[500]:.1f} for ten times the steps"
        aim = f"≤ {limit * 1000:,.0f} ms"
        ratio, met = took[steps] / bare, took[steps] <= limit
        rows.append(Row(f"S1 compile {steps:,}", took[steps] * 1000, "ms", words, ratio, aim, met))
    return rows


def _large(steps: int) -> str:
    """Each step with a template of its own and an arc that passes something on, as YAML."""
    lines = [
        *("apiVersion: noetl.io/v2", "kind: Playbook", f"metadata: {{name: large-{steps}}}"),
        *("workload: {name: x}", "workflow:"),
    ]
    for number in range(steps):
        lines += [
            f"  - step: s{number}",
            "    tool:",
            "      kind: noop",
            f'      args: {{name: "{{{{ workload.name }}}} {number}"}}',
        ]
        if number + 1 < steps:
            lines += [
                "    next:",
                "      arcs:",
                f"        - step: s{number + 1}",
                f'          args: {{text: "{{{{ s{number}.status }}}}"}}',
            ]
    return "\n".join(lines) + "\n"
