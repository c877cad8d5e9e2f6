"""Loops of playbooks, played with one answer per item: the model knows what they come to.

The same playbook is played whole and with an engine that dies at a commit; both must come to what
the model says, so windows, shards and crashes leave no trace in counts, order and sums.
"""

from __future__ import annotations

from random import Random
from typing import Any

import pytest

from anabranch.testing import Played, error, ok
from anabranch.testing.scripted.definitions import compiled
from anabranch.work.port import Task
from seeds import part, seeds

from .loop_model import Case, check_stopped, random_case
from .support import AFTER, AMID, BEFORE, play_and_die

PLAYBOOK = """
apiVersion: noetl.io/v2
kind: Playbook
metadata: {{name: model}}
workflow:
  - step: each
    spec: {spec}
    loop: {{in: {source}, iterator: x{loop_spec}}}
    tool: {{kind: shell, command: "work {{{{ iter.x }}}}"}}
"""


def playbook(case: Case, dice: Random) -> str:
    fanout = dice.random() < 0.5
    policy: list[str] = [
        f"shard_size: {dice.choice(('auto', 1, 3))}",
        f"max_job_retries: {case.retries}",
        f"fail_fast: {str(case.fail_fast).lower()}",
        f"allow_partial: {str(case.allow_partial).lower()}",
        f"tolerated_failures: {case.tolerate}",
        f"tolerated_failure_percentage: {case.percent}",
    ]
    if fanout:
        policy.append(f"max_concurrent: {dice.choice((1, 2, 5))}")
    spec = f"{{loop_mode: {'fanout' if fanout else 'local'}, fanout: {{{', '.join(policy)}}}}}"
    count = len(case.items)
    source = f"{{range: {count}}}" if dice.random() < 0.4 else str(list(range(count)))
    parallel = f", spec: {{mode: parallel, max_in_flight: {dice.choice((2, 4, 20))}}}"
    loop_spec = parallel if not fanout and dice.random() < 0.5 else ""
    return PLAYBOOK.format(spec=spec, source=source, loop_spec=loop_spec)


def answers(case: Case) -> dict[str, Any]:
    def each(task: Task) -> Any:
        item = case.items[task.names["local"]["iter"]["index"]]
        if task.shard.tries < item.fails:
            return error("boom", "it failed", retryable=not item.final)
        return ok(item.value)

    return {"each": each}


def check(case: Case, played: Played) -> None:
    (record,) = played.state.looped.values()
    result = played.step("each").result
    if case.stops_early:
        assert record.status == ("partial" if case.allow_partial else "failed")
        if record.mode == "local":
            check_stopped(case, result["results"], record.succeeded, record.failed)
        return
    good = sum(value is not None for value in case.results)
    assert (record.status, record.succeeded) == (case.status, good)
    assert (record.failed, record.total) == (len(case.items) - good, len(case.items))
    assert played.status == ("failed" if case.status == "failed" else "completed")
    if record.mode == "local":
        assert result["results"] == case.results
        assert result["stats"] == {"total": record.total, "success": good, "failed": record.failed}


@pytest.mark.parametrize("block", range(4))
def test_a_played_loop_comes_to_what_the_model_says_wherever_the_engine_dies(block: int) -> None:
    for seed in part(block, 4, 240):
        dice = Random(f"played {seed}")
        case = random_case(dice, most=12)
        net = compiled(playbook(case, dice))
        try:
            whole, commits = play_and_die(net, answers(case), 0, BEFORE)
            check(case, whole)
            dies_at, place = dice.randint(1, commits), dice.choice((BEFORE, AFTER, AMID))
            crashed, _ = play_and_die(net, answers(case), dies_at, place)
            check(case, crashed)
        except Exception as problem:
            problem.add_note(f"seed {seed}: {case}")
            raise


SEQUENTIAL = """
apiVersion: noetl.io/v2
kind: Playbook
metadata: {{name: model}}
workflow:
  - step: each
    spec: {{fanout: {{shard_size: {size}}}}}
    loop: {{in: {{range: {count}}}, iterator: x}}
    tool: {{kind: shell, command: "work {{{{ iter.x }}}}"}}
"""


@pytest.mark.parametrize("size", ["auto", 1, 3, 100])
def test_a_sequential_loop_begins_nothing_after_its_first_failure(size: str | int) -> None:
    for seed in seeds(40, least=8):
        dice = Random(f"sequential {seed}")
        items = random_case(dice, most=12).items
        case = Case(items, fail_fast=True)
        net = compiled(SEQUENTIAL.format(size=size, count=len(items)))
        played, _ = play_and_die(net, answers(case), 0, BEFORE)
        (record,) = played.state.looped.values()
        failed = int(False in case.fates)
        assert (record.succeeded, record.failed) == (case.begun - failed, failed), case
        assert played.step("each").result["results"] == case.results[: case.begun], case
