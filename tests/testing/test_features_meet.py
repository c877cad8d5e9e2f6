"""Where features meet, the answer is that of the plain oracle: everything inline, one item a shard,
no crash, nothing done twice. Texts are random (`features.py`), each seed is a test of several."""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Any

import pytest

from anabranch.kernel import stimuli as s
from anabranch.kernel.redrive import plan_redrive
from anabranch.runtime.live_run import history
from anabranch.runtime.values.payloads import resolve
from anabranch.testing import error, ok
from anabranch.testing.play import RUN
from anabranch.testing.scripted.definitions import compiled
from anabranch.testing.scripted.played import Played
from anabranch.testing.scripted.script import Script, Scripts
from anabranch.work.port import Task
from seeds import SHARE, part

from .features import Text, random_text
from .support import AFTER, AMID, BEFORE, DyingTheatre

SEEDS, PARTS = 1_000 if SHARE < 1 else 20_000, 20  # of which a test run takes a part
EVENTS_MAX = 200_000


def answer(task: Task) -> Any:
    """Work whose outcome follows from its input alone."""
    rows = list(task.inputs["rows"])
    return ok({"rows": [row + 7 for row in rows], "count": len(rows)})


def failing_now_and_then(dice: Random) -> Callable[[Task], Any]:
    """The same work, of which some fails at its first try."""
    seen: set[str] = set()

    def tried(task: Task) -> Any:
        if task.key not in seen and dice.random() < 0.3:
            seen.add(task.key)
            return error("call", "once more", retryable=True)
        seen.add(task.key)
        return answer(task)

    return tried


def stage_for(text: Text, shard_size: Any, inline_bytes: int, **scripts: Any) -> DyingTheatre:
    """A play of one text, run in one of many ways."""
    net = compiled(text.source(shard_size, scripts.get("kept")), tools=["call"])
    kind = type("Stage", (DyingTheatre,), {"inline_bytes_max": inline_bytes})
    script = {**text.script(answer), **scripts.get("script", {})}
    decisions = dict.fromkeys(text.decisions, scripts.get("verdict") or ok("yes"))
    decisions |= scripts.get("decisions", {})
    made: DyingTheatre = kind(
        net, Scripts(Script(net, script), Script(net, decisions, "decisions"))
    )
    return made


def played(
    text: Text,
    *,
    inline_bytes: int = 10_000_000,
    shard_size: Any = None,
    dies_at: int = 0,
    place: str = BEFORE,
    **scripts: Any,
) -> tuple[Played, DyingTheatre]:
    stage = stage_for(text, shard_size, inline_bytes, **scripts)
    stage.dies_at, stage.place = dies_at, place
    stage.begin(s.Start(run=RUN))
    return stage.perform(EVENTS_MAX), stage


def outcome(play: Played, stage: DyingTheatre) -> dict[str, Any]:
    """All that a reader can see of a run in the end."""
    return {
        "status": play.status,
        "result": play.result,
        "steps": {
            name: (step["status"], step["runs"], _plain(step["result"]))
            for name, step in play.steps.items()
        },
        "context": resolve(play.state.ctx, stage.store.payload),
        "problem": play.problem,
    }


def _plain(value: Any) -> Any:
    """Without the ids of loops, which say nothing about what they came to."""
    if isinstance(value, dict):
        return {key: _plain(each) for key, each in value.items() if key not in ("loop_id", "refs")}
    return value


@pytest.mark.slow
@pytest.mark.parametrize("number", range(PARTS))
def test_size_and_shards_and_a_crash_and_a_redrive_change_nothing(number: int) -> None:
    for seed in part(number, PARTS, SEEDS):
        text = random_text(seed)
        wanted = outcome(*played(text, shard_size=1))
        assert wanted["status"] == "completed", (seed, wanted["problem"])
        size_and_shards_and_a_crash_change_nothing(text, seed, wanted)
        if text.flaky:
            items_that_are_tried_again_change_nothing(text, seed, wanted)
        if text.brittle:
            a_redrive_comes_to_what_a_run_without_the_failure_comes_to(text, seed, wanted)


def size_and_shards_and_a_crash_change_nothing(text: Text, seed: int, wanted: Any) -> None:
    dice = Random(seed)
    limit, size = dice.choice((1, 60, 700)), dice.choice((None, 2, 7, 1000))
    found, stage = played(text, inline_bytes=limit, shard_size=size)
    assert outcome(found, stage) == wanted, f"seed {seed}: inline {limit}, shards of {size}"
    kept = dice.choice((1, 60, 700))
    found_by_policy = played(text, shard_size=size, kept=kept)
    assert outcome(*found_by_policy) == wanted, f"seed {seed}: kept above {kept}, shards of {size}"
    dies_at = dice.randint(1, max(1, stage.commits))
    place = dice.choice((BEFORE, AFTER, AMID))
    died = played(text, inline_bytes=limit, shard_size=size, dies_at=dies_at, place=place)
    assert outcome(*died) == wanted, f"seed {seed}: died {place} {dies_at}, inline {limit}"


def items_that_are_tried_again_change_nothing(text: Text, seed: int, wanted: Any) -> None:
    dice = Random(seed)
    size = dice.choice((None, 1, 2, 7, 1000))
    script = {f"{name}/t": failing_now_and_then(dice) for name in text.flaky}
    found = played(text, shard_size=size, script=script)
    assert outcome(*found) == wanted, f"seed {seed}: tried again, shards of {size}"


def a_redrive_comes_to_what_a_run_without_the_failure_comes_to(
    text: Text, seed: int, wanted: Any
) -> None:
    dice = Random(seed)
    fails, limit = dice.choice(text.brittle), dice.choice((1, 700, 10_000_000))
    _, stage = played(text, script={fails: error("call", "not yet")}, inline_bytes=limit)
    again = redriven(text, stage, limit)
    assert outcome(*again) == wanted, f"seed {seed}: {fails} failed, inline {limit}"


def redriven(text: Text, before: DyingTheatre, inline_bytes: int) -> tuple[Played, DyingTheatre]:
    """The run once more, with what may be reused of the first."""
    stage = stage_for(text, None, inline_bytes)
    for sha256, content in before.store._payloads.items():
        stage.store.put_payload(sha256, content)
    assert before.final is not None
    reuse = plan_redrive(stage.net, history(before.store.read(RUN))).reuse
    stage.begin(s.Start(run=RUN, input=before.final.workload, origin="before", reuse=reuse))
    return stage.perform(EVENTS_MAX), stage


def test_a_rejection_goes_on_nowhere_and_says_so() -> None:
    seen = 0
    for seed in range(100):
        text = random_text(seed)
        if not text.decisions:
            continue
        seen += 1
        found, _ = played(text, verdict=error("rejected", "no"), inline_bytes=60)
        assert found.status == "failed", seed
        first = found.steps[next(name for name in found.steps if name in text.decisions)]
        assert first["status"] == "failed"
        assert found.problem is not None
        assert "rejected" in found.problem["message"]
    assert seen > 15
