"""What a run gathered: the rounds of a step run, its slots and what became of each."""

from __future__ import annotations

from anabranch.kernel.values import failed
from anabranch.net.net import Retry
from anabranch.operations.read.joins import (
    SLOTS_SHOWN,
    GatheredStep,
    gathered_steps,
    waiting_by_token,
)
from anabranch.operations.read.timeline import Timeline
from kernel.driver import Run
from kernel.nets import Fn, fan_net, forks, orchestration

AWAY = failed("unreachable", "no route", retryable=False)


def gathered(run: Run) -> list[GatheredStep]:
    timeline = Timeline()
    for at, event in run.history:
        timeline.see(at, event)
    return gathered_steps(timeline, run.net, run.state, waiting_by_token(run.net, run.state))


def words(step: GatheredStep, number: int = 0) -> dict[str, str]:
    return {slot.label: slot.outcome.word for slot in step.rounds[number].slots}


def test_a_best_of_is_ranked_and_says_by_how_much_the_others_lost() -> None:
    score = Fn(lambda names: names["answer"])
    run = Run(fan_net(["north", "south", "east"], "best_of", select="score", score=score))
    run.done("1.0", 4)
    run.done("1.1", 9)
    (open_,) = gathered(run)
    assert (open_.state, words(open_)["east"]) == ("open", "open")
    run.answer("1.2", AWAY)
    (step,) = gathered(run)
    (only,) = step.rounds
    assert (step.kind, step.rule, step.state) == ("fan", "best of 3", "closed")
    assert only.ranked_by == "highest"
    assert [(slot.label, slot.rank, slot.score) for slot in only.slots] == [
        ("south", 1, 9.0),
        ("north", 2, 4.0),
        ("east", None, None),
    ]
    assert words(step) == {"south": "winner", "north": "lost", "east": "away"}
    assert only.slots[1].outcome.text == "4 is less than 9"


def test_rounds_of_one_step_run_are_together_the_newest_first() -> None:
    run = Run(fan_net(["x", "y"], "any", rounds=Retry(2, 500)))
    run.fails("1.0", retryable=False)
    run.fails("1.1", retryable=False)
    (waiting,) = gathered(run)
    assert waiting.state == "asked again"
    run.tick(1_500)
    run.done("1r1.1", "late but welcome")
    (step,) = gathered(run)
    assert [(one.round, one.verdict) for one in step.rounds] == [(2, "closed"), (1, "impossible")]
    assert step.rounds_max == 2
    assert step.rounds[1].again is not None
    assert words(step)["y"] == "winner"


def test_an_open_join_names_the_tokens_that_can_still_come() -> None:
    run = Run(
        orchestration(
            A1=forks(["G1", "H1"], "J1", mode="all", froms=["G1:valid", "H1:valid"]),
            G1=None,
            H1=None,
            J1=None,
        )
    )
    run.valid("A1")
    run.valid("G1")
    (step,) = gathered(run)
    assert words(step) == {"G1": "in", "H1": "late"}
    assert "at H1" in step.rounds[0].slots[1].outcome.text
    run.invalid("H1")
    (step,) = gathered(run)
    assert (step.state, words(step)["H1"]) == ("impossible", "not filled")
    assert "it came as invalid" in step.rounds[0].slots[1].outcome.text


def test_of_very_many_slots_the_first_are_listed_and_all_are_counted() -> None:
    size = SLOTS_SHOWN + 50
    run = Run(fan_net([f"p{number}" for number in range(size)], "all"))
    run.done("1.0")
    (step,) = gathered(run)
    (only,) = step.rounds
    assert (len(only.slots), only.total) == (SLOTS_SHOWN, size)
    assert {one.outcome: one.count for one in only.counts} == {"in": 1, "open": size - 1}
