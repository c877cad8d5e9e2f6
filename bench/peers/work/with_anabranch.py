"""Ours, through the public names only, by the same clocks as the peers."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import measuring

import anabranch


@anabranch.tool("nothing", blocking=False)
def nothing() -> None:
    return None


@anabranch.tool("give", blocking=False)
def give(value: int) -> int:
    return value


def playbook(name: str, workflow: list[dict[str, Any]]) -> dict[str, Any]:
    said = {"apiVersion": "noetl.io/v2", "kind": "Playbook"}
    return {**said, "metadata": {"name": name}, "workflow": workflow}


def chain(steps: int) -> dict[str, Any]:
    workflow: list[dict[str, Any]] = [
        {"step": f"s{number}", "tool": {"kind": "nothing"}} for number in range(steps)
    ]
    for step, after in itertools.pairwise(workflow):
        step["next"] = {"arcs": [{"step": after["step"]}]}
    return playbook("chain", workflow)


def counting(count: int, shard_size: int) -> dict[str, Any]:
    fanout: dict[str, Any] = {"max_concurrent": 64, "reducers": {"total": "sum"}}
    if shard_size:
        fanout["shard_size"] = shard_size
    else:
        fanout["max_concurrent"] = 3
    rule = {"else": {"then": {"do": "continue", "set_shared": {"total": "{{ outcome.result }}"}}}}
    step = {
        "step": "each",
        "spec": {"loop_mode": "fanout", "fanout": fanout},
        "loop": {"in": {"range": [0, count]}, "iterator": "n"},
        "tool": {"kind": "give", "value": "{{ iter.n }}", "spec": {"policy": {"rules": [rule]}}},
    }
    return playbook("count", [step])


ONE, MANY, HELLO = chain(measuring.STEPS_OF_ONE), chain(measuring.STEPS_OF_MANY), chain(1)


class Anabranch:
    def __init__(self, engine: anabranch.Engine, runner: asyncio.Runner) -> None:
        self._engine = engine
        self._runner = runner

    async def _run(self, definition: dict[str, Any]) -> anabranch.RunResult:
        return await self._engine.wait(await self._engine.start(definition))

    def one(self) -> None:
        self._runner.run(self._run(ONE))

    def many(self, runs: int) -> None:
        async def together() -> None:
            await asyncio.gather(*(self._run(MANY) for _ in range(runs)))

        self._runner.run(together())

    def items(self, count: int) -> int:
        return self._count(counting(count, 1))

    def batches(self, count: int) -> int:
        return self._count(counting(count, 0))

    def _count(self, definition: dict[str, Any]) -> int:
        done = self._runner.run(self._run(definition))
        return int(done.result["shared"]["total"])

    def hello(self) -> None:
        self._runner.run(self._run(HELLO))


@contextmanager
def servers(variant: str, folder: Path) -> Iterator[str]:
    if variant != "postgres":
        yield ""
        return
    with measuring.postgres(folder) as uri:
        yield uri


@contextmanager
def opened(variant: str, folder: Path, address: str) -> Iterator[Anabranch]:
    with asyncio.Runner() as runner:
        engine = anabranch.Engine(address or folder / "runs.db")
        runner.run(engine.__aenter__())
        try:
            yield Anabranch(engine, runner)
        finally:
            runner.run(engine.__aexit__(None, None, None))


if __name__ == "__main__":
    measuring.main(opened, servers)
