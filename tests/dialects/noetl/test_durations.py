"""Durations of tasks can be templates: the same as plain ones, and a fault where they are none."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

import pytest

from anabranch.kernel.values import Answer, failed
from anabranch.testing import play
from anabranch.work.pipeline.pipeline import Pipeline, Services
from anabranch.work.port import Parked, Task

from ..support import HEAD, playbook, problems_of

#: The keys of a task of the kind `noop`, with $ where the duration stands.
TASKS = (
    "timeout: $",
    "timeout_seconds: $",
    "spec: {timeout: $}",
    "retry: {max_attempts: 3, initial_delay: $}",
    "retry: {max_attempts: 3, delay: 1h, max_delay: $}",
    "retry: [{when: true, then: {max_attempts: 3, initial_delay: $}}]",
    "spec: {policy: {rules: [{else: {then: {do: retry, attempts: 3, delay: $}}}]}}",
)
NAMES: Mapping[str, Any] = {"time": "1m30s", "seconds": 90, "iso": "PT1M30S", "odd": "soon"}


class Failing:
    """Fails each time, and remembers for how long it might have taken."""

    def __init__(self) -> None:
        self.limits: list[float | None] = []

    async def perform(self, task: Task) -> Answer:
        self.limits.append(task.timeout_seconds)
        return failed("server_error", "no")


def carry_out(keys: str, time: str) -> tuple[Answer | Parked, list[float | None], list[float]]:
    """How it ends, the limits of its attempts and the pauses between them."""
    work, pauses = Failing(), list[float]()

    async def sleep(seconds: float) -> None:
        pauses.append(seconds)

    compiled = playbook(
        f"workflow:\n  - {{step: a, tool: [{{name: t, kind: noop, {keys.replace('$', time)}}}, "
        "{kind: noop}]}\n"
    )
    assert compiled.net is not None, compiled.problems
    work_of_a = compiled.net.steps["a"].work
    assert work_of_a is not None
    task = Task(
        run="r",
        step="a",
        job="1.0",
        attempt=1,
        key="k",
        kind="pipeline",
        inputs={},
        names={"ctx": {}, "workload": NAMES},
        program=work_of_a.program,
    )
    pipeline = Pipeline(Services(performers={"noop": work}, sleep=sleep))
    return asyncio.run(pipeline.perform(task)), work.limits, pauses


@pytest.mark.parametrize("keys", TASKS)
def test_a_template_gives_what_the_plain_duration_gives(keys: str) -> None:
    plain = carry_out(keys, "90s")
    for name in ("time", "seconds", "iso"):
        assert carry_out(keys, f"'{{{{ workload.{name} }}}}'") == plain
    answer, limits, pauses = carry_out(keys, "'{{ workload.odd }}'")
    assert isinstance(answer, Answer)
    assert answer.fault is not None
    assert (answer.fault.kind, "'soon'" in answer.fault.message) == ("config", True)
    assert (len(limits) <= 1, pauses) == (True, [])


def test_the_parts_of_an_http_timeout_are_worked_out_with_the_inputs() -> None:
    times = "{connect: '{{ workload.time }}', read: 2, total: '{{ workload.seconds }}'}"
    compiled = playbook(
        "workflow:\n  - step: a\n    tool: {kind: http, url: 'https://example.org/', "
        f"timeout: {times}}}\n"
    )
    assert compiled.net is not None, compiled.problems
    work = compiled.net.steps["a"].work
    assert work is not None
    assert work.program is not None
    (task,) = work.program.tasks
    names = {"workload": NAMES}
    assert task.inputs is not None
    assert task.timeout is not None
    assert task.inputs.evaluate(names)["timeout"] == {"connect": "1m30s", "read": 2.0, "total": 90}
    assert task.timeout.evaluate(names) == 90


@pytest.mark.parametrize(
    ("text", "word"),
    [
        ("spec: {timeout: '{{ workload.x }}'}\ntool: {kind: noop}", "timeout"),
        ("spec: {retry: {delay: '{{ workload.x }}'}}\ntool: {kind: noop}", "delay"),
        ("spec: {policy: {lifecycle: {deadline_s: '{{ 1 }}'}}}\ntool: {kind: noop}", "deadline_s"),
    ],
)
def test_what_the_engine_has_to_know_before_a_run_begins_is_no_template(
    text: str, word: str
) -> None:
    (found,) = [one for one in problems_of(text) if one.code == "bad-duration"]
    assert f"`{word}`" in found.message
    assert "has to be known before a run begins" in found.message


def test_a_wait_ends_when_the_time_of_its_template_is_over() -> None:
    played = play(
        f"""{HEAD}workload: {{patience: 1h}}
executor: {{spec: {{on_failure: handled}}}}
workflow:
  - step: wait
    tool: {{kind: wait, event: paid, timeout: "{{{{ workload.patience }}}}"}}
    next: {{arcs: [{{step: late, when: "{{{{ error.kind == 'timeout' }}}}"}}]}}
  - step: late
    tool: {{kind: noop, result: late}}
"""
    )
    assert played.result == "late"
