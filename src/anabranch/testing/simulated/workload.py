"""What simulated servers have to do: runs with everything that crosses a change of owner.

A run forks into plain work, work that fails once and waits for a timer, a decision, a child run, a
sleep that another run may end early, work that ends the sleep of others, a wait for time and one
for a signal; then it joins. Two such runs may be under way at once, and one child. All of it comes
to the same whatever happens on the way.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from random import Random
from typing import Any

import msgspec

from anabranch.kernel import events as e
from anabranch.kernel.jobs import token_of
from anabranch.kernel.values import Answer, ContextPatch, WakeRequest, failed, succeeded
from anabranch.operations.definitions.prepare import Prepared, prepare
from anabranch.work.port import Task

OWNER = {"owner": "ann"}
GATE = "ask"
SIGNAL = "told"
DONE = "done"  # how often work has reported, in the context of its run
NAP_MS = 2_500
IN_CHILD = "start"  # the one step of a child with such work

PARENT = """
apiVersion: noetl.io/v10
kind: Playbook
metadata: {name: parent}
concurrency: {limit: 2}
workflow:
  - step: start
    tool: {kind: noop}
    next:
      spec: {mode: inclusive}
      arcs:
        - {step: work}
        - {step: flaky}
        - {step: ask}
        - {step: kid}
        - {step: nap}
        - {step: poke}
        - {step: rest}
        - {step: hear}
  - {step: work, tool: {kind: effect}, next: {arcs: [{step: meet}]}}
  - step: flaky
    tool: {kind: effect}
    spec: {retry: {attempts: 3, delay: 300ms}}
    next: {arcs: [{step: meet}]}
  - {step: ask, tool: {kind: decision, ask: Go on?}, next: {arcs: [{step: meet}]}}
  - step: kid
    tool: {kind: playbook, path: child, return_result: true}
    next: {arcs: [{step: meet}]}
  - {step: nap, tool: {kind: effect}, next: {arcs: [{step: dream}]}}
  - {step: dream, tool: {kind: effect}, next: {arcs: [{step: meet}]}}
  - {step: poke, tool: {kind: effect}, next: {arcs: [{step: meet}]}}
  - {step: rest, tool: {kind: wait, for: 900ms}, next: {arcs: [{step: meet}]}}
  - step: hear
    tool: {kind: wait, event: told, filter: "{{ signal.payload.n == 1 }}"}
    next: {arcs: [{step: meet}]}
  - {step: meet, spec: {join: all}, tool: {kind: noop}}
"""

CHILD = """
apiVersion: noetl.io/v10
kind: Playbook
metadata: {name: child}
concurrency: {key: all, limit: 1, shared: true}
workflow:
  - {step: start, tool: {kind: effect}, next: {arcs: [{step: after}]}}
  - {step: after, tool: {kind: noop, result: grown}}
"""


@cache
def parent() -> Prepared:
    return prepare(PARENT, ["effect"])


@cache
def child() -> Prepared:
    return prepare(CHILD, ["effect"])


class Effect:
    """Work that reaches outside: `left` is told at the moment at which it does."""

    def __init__(
        self,
        dice: Random,
        left: Callable[[Task], None],
        others: Callable[[], Sequence[str]],
        child_seconds: float = 0.0,
    ) -> None:
        self._dice = dice
        self._child_seconds = child_seconds
        self._left = left
        self._others = others

    async def perform(self, task: Task) -> Answer:
        self._left(task)
        more = self._child_seconds if task.step == IN_CHILD else 0.0
        await asyncio.sleep(self._dice.choice((0.0, 0.05, 0.3, 1.5)) + more)
        if task.step == "flaky" and task.tries < 2:
            return failed("connection", "not the first time")
        answer = succeeded(
            {"step": task.step},
            patches=(ContextPatch(DONE, 1, "sum"),),
            wait_ms=NAP_MS if task.step == "nap" else 0,
        )
        others = [run for run in self._others() if run != task.run]
        if task.step == "poke" and others:
            woken = WakeRequest(self._dice.choice(others), "dream", payload={"by": task.run})
            answer = msgspec.structs.replace(answer, wakes=(woken,))
        return answer


def transitions(run: str, events: Sequence[e.Event]) -> Counter[tuple[Any, ...]]:
    """What happened in a run, without what may differ: times, losses, attempts, who woke whom."""
    steps: dict[int, str] = {}
    seen: Counter[tuple[Any, ...]] = Counter()
    for event in events:
        match event:
            case e.TokenCreated():
                steps[event.token] = event.step
                seen["begins", event.step] += 1
            case e.TokenFinished():
                seen["ends", steps[event.token], event.ending, event.outcome] += 1
            case e.JobReported():
                if event.answer.later_ms:
                    continue  # the store was away
                step = steps[token_of(event.job)]
                result = str(_timeless(event.answer.result)).replace(run, "")
                seen["reports", step, event.answer.status, result] += 1
            case e.GateOpened():
                seen["asks", steps[event.token]] += 1
            case e.GateDecided():
                seen["decides", event.verdict] += 1
            case e.RunFinished():
                seen["finishes", event.status] += 1
            case _:
                pass
    return seen


def _timeless(result: Any) -> Any:
    """Of a wait only what it waited for: when that was may differ."""
    if isinstance(result, Mapping) and "received_at" in result:
        return result["payload"]
    return "waited" if isinstance(result, Mapping) and "waited_seconds" in result else result


def counted(context: Mapping[str, Any]) -> int:
    """How many reports of work have written to the context."""
    return int(context.get(DONE, 0))
