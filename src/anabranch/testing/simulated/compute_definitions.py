"""Random definitions for a simulated cluster, each fixed by its dice, and the work in them.

Steps and loops of a pool, one after the other, each with a step that says what it came to. What an
item does follows from its number alone, so that a run comes to the same wherever it is done.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from random import Random
from typing import Any

import msgspec

from anabranch.kernel.values import Answer, failed, succeeded
from anabranch.operations.definitions.prepare import Prepared, prepare
from anabranch.work.kinds.callables import Toolbox
from anabranch.work.port import Task

POOL = "gpu"
TOOL = "labour"


class Traits(msgspec.Struct):
    """What a definition has in it that makes its outcome depend on time or on losses."""

    fails_fast: bool = False
    limits_losses: bool = False
    limits_time: bool = False

    @property
    def certain(self) -> bool:
        """It comes to the same however often jobs are lost, and however long they take."""
        return not (self.fails_fast or self.limits_losses or self.limits_time)


class Story(msgspec.Struct):
    """A definition and how it can be compared."""

    made: Prepared
    traits: Traits


class Labour:
    """The tool that items and steps call; it remembers what it was called for."""

    def __init__(self) -> None:
        self.toolbox = Toolbox()
        self.toolbox.add(TOOL, self.labour)
        self.keys: dict[tuple[str, str, int], set[str]] = {}  # run, step, item → its keys
        self.done: Counter[tuple[str, str, int]] = Counter()
        self._failed_once: set[str] = set()

    async def labour(self, task: Task, n: int, takes: float, sort: str) -> Answer:
        what = (task.run, task.step, n)
        self.keys.setdefault(what, set()).add(task.key)
        self.done[what] += 1
        await asyncio.sleep(takes * (n * 37 % 5))
        if sort == "bad" and n % 7 == 3:
            return failed("broken", f"item {n} is broken", retryable=False)
        if sort == "flaky" and n % 5 == 2 and task.key not in self._failed_once:
            self._failed_once.add(task.key)
            return failed("flaky", f"item {n} is flaky")
        result: Any = "x" * 300 + str(n) if sort == "large" else n * n
        return succeeded(result)


def random_story(dice: Random, toolbox: Toolbox) -> Story:
    """One to three parts, each a step or a loop of the pool."""
    traits = Traits()
    parts = [_part(dice, number, traits) for number in range(dice.randint(1, 3))]
    text = "\n".join(
        ["apiVersion: noetl.io/v10", "kind: Playbook", "metadata: {name: story}", "workflow:"]
        + [line for number, part in enumerate(parts) for line in _linked(part, number, len(parts))]
    )
    return Story(prepare(text, toolbox.signatures()), traits)


def _linked(part: list[str], number: int, count: int) -> list[str]:
    """A part, and the step that says what it came to."""
    after = f"    next: {{arcs: [{{step: part{number + 1}}}]}}" if number + 1 < count else ""
    said = _said(part, number)
    return [
        f"  - step: part{number}",
        *part,
        f"    next: {{arcs: [{{step: said{number}}}]}}",
        f"  - step: said{number}",
        f"    tool: {{kind: noop, result: {said}}}",
        *([after] if after else []),
    ]


def _said(part: list[str], number: int) -> str:
    if not any("loop:" in line for line in part):
        return f'"{{{{ part{number} }}}}"'
    fields = ("status", "succeeded", "failed", "total")
    shown = ", ".join(f'{field}: "{{{{ part{number}.{field} }}}}"' for field in fields)
    return f'{{{shown}, sum: "{{{{ part{number}.shared.sum | default(0) }}}}"}}'


def _part(dice: Random, number: int, traits: Traits) -> list[str]:
    takes = dice.choice((0, 0, 0.2, 1, 4))
    if dice.random() < 0.35:
        limit = ""
        if takes and dice.random() < 0.2:
            traits.limits_time = True
            limit = ", timeout: 3s"
        pool = f"pool: {POOL}" if dice.random() < 0.8 else ""
        inputs = f"args: {{n: {number + 1}, takes: {takes}, sort: plain}}"
        return [f"    tool: {{kind: {TOOL}, {inputs}{limit}}}", f"    spec: {{{pool}}}"]
    return _loop(dice, takes, traits)


def _loop(dice: Random, takes: float, traits: Traits) -> list[str]:
    sort = dice.choice(("plain", "plain", "flaky", "bad", "large"))
    fanout = {
        "shard_size": dice.choice((1, 2, 5, 20)),
        "max_concurrent": dice.choice((1, 2, 4, 30)),
        "reducers": "{sum: sum}",
    }
    if sort == "flaky":
        fanout["max_job_retries"] = 30
    elif dice.random() < 0.2:
        traits.limits_losses = True
        fanout["max_job_retries"] = dice.choice((0, 1))
    if sort == "bad":
        fanout |= dice.choice(({"allow_partial": "true"}, {"tolerated_failures": 3}, {}))
    if sort == "bad" and dice.random() < 0.4:
        traits.fails_fast = True
        fanout["fail_fast"] = "true"
    options = ", ".join(f"{name}: {value}" for name, value in fanout.items())
    rules = (
        "[{when: \"{{ outcome.status == 'error' }}\", then: {do: fail}}, "
        "{else: {then: {do: continue, set_shared: {sum: 1}}}}]"
    )
    inputs = f'args: {{n: "{{{{ iter.n }}}}", takes: {takes}, sort: {sort}}}'
    return [
        f"    spec: {{pool: {POOL}, loop_mode: fanout, fanout: {{{options}}}}}",
        f"    loop: {{in: {_collection(dice)}, iterator: n}}",
        f"    tool: {{kind: {TOOL}, {inputs}, spec: {{policy: {{rules: {rules}}}}}}}",
    ]


def _collection(dice: Random) -> str:
    count = dice.choice((0, 1, 3, 12, 40))
    if dice.random() < 0.7:
        return f"{{range: {count}}}"
    return str(dice.sample(range(60), count))
