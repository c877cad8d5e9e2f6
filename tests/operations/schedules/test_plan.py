"""What a schedule does at an instant: windows, policies, queues, pauses and backfills."""

from __future__ import annotations

from typing import Any

from msgspec.structs import replace

from anabranch.dialects.schedule import read_schedule
from anabranch.operations.schedules.plan import QUEUE_MAX, Begun, concluded, plan, reconcile
from anabranch.operations.schedules.schedule import (
    Backfill,
    Schedule,
    Target,
    due_of,
    fires_at,
    run_of,
)

MINUTE = 60_000
NOON = 1_794_916_800_000  # a whole minute


def a_schedule(**given: Any) -> Schedule:
    spec = read_schedule({"every": "1m", **given})
    return Schedule(name="s", spec=spec, target=Target(path="p"), next_tick=NOON)


def known_of(schedule: Schedule, *, busy: bool) -> dict[str, bool]:
    return {schedule.running: not busy} if schedule.running else {}


def ticks(schedule: Schedule, now: int, *, busy: bool = False) -> list[int]:
    return [begin.tick for begin in plan(schedule, now, known_of(schedule, busy=busy)).begins]


def done(schedule: Schedule, now: int, *, busy: bool = False) -> Schedule:
    made = plan(schedule, now, known_of(schedule, busy=busy))
    return concluded(schedule, made, {one.run: Begun() for one in made.begins}, now)


def test_a_tick_begins_when_it_is_due_and_not_before() -> None:
    assert ticks(a_schedule(), NOON - 1) == []
    after = done(a_schedule(), NOON)
    assert (after.fired, after.running, after.next_tick) == (1, run_of("s", NOON), NOON + MINUTE)
    assert due_of(after, NOON) == NOON + MINUTE


def test_a_tick_is_late_after_its_window_and_counted() -> None:
    late = a_schedule(catch_up="10m")
    after = done(late, NOON + 12 * MINUTE)
    assert after.skipped["late"] == 2
    assert after.fired == 1
    assert after.last[-1].outcome == "skipped"
    assert after.running == run_of("s", NOON + 2 * MINUTE)


def test_a_late_tick_whose_run_is_there_was_begun_before_a_crash() -> None:
    late = a_schedule(catch_up="10m")
    made = plan(late, NOON + 11 * MINUTE, {})
    begun = {one.run: Begun() for one in made.begins}
    after = concluded(late, made, begun, NOON, found={run_of("s", NOON): True})
    assert "late" not in after.skipped
    assert after.fired == 2


def test_a_run_that_is_over_does_not_hide_one_that_goes_on() -> None:
    """A backfill may have begun the run of a tick before it was due, or after it was missed."""
    busy = replace(a_schedule(catch_up="10m"), running="before")
    first = run_of("s", NOON)
    made = plan(busy, NOON, {"before": False, first: True})
    assert concluded(busy, made, {first: Begun(existed=True)}, NOON).running == "before"
    late = plan(busy, NOON + 10 * MINUTE + 1, {"before": False})
    for finished, running in ((True, "before"), (False, first)):
        assert concluded(busy, late, {}, NOON, found={first: finished}).running == running


def test_a_run_that_a_crash_left_is_no_reason_to_skip_the_next_once_it_has_ended() -> None:
    first = run_of("s", NOON)
    for finished, begun in ((True, [NOON, NOON + MINUTE]), (False, [NOON])):
        made = plan(a_schedule(), NOON + MINUTE, {first: finished})
        assert [begin.tick for begin in made.begins] == begun


def test_skip_begins_the_first_and_leaves_out_what_comes_while_a_run_goes_on() -> None:
    assert ticks(a_schedule(), NOON, busy=True) == [NOON], "no run of it is known"
    running = replace(a_schedule(), running="s-before")
    assert ticks(running, NOON, busy=True) == []
    after = done(running, NOON, busy=True)
    assert after.skipped == {"overlap": 1}
    missed = done(a_schedule(), NOON + 3 * MINUTE)
    assert (missed.fired, missed.skipped) == (1, {"overlap": 3})


def test_queue_begins_one_after_the_other_in_order() -> None:
    one = done(a_schedule(overlap="queue"), NOON + 2 * MINUTE)
    assert (one.fired, one.queued) == (1, (NOON + MINUTE, NOON + 2 * MINUTE))
    assert ticks(one, NOON + 2 * MINUTE, busy=True) == []
    two = done(one, NOON + 2 * MINUTE + 1)
    assert (two.running, two.queued) == (run_of("s", NOON + MINUTE), (NOON + 2 * MINUTE,))
    assert due_of(two, NOON) is not None


def test_a_queue_is_bounded_and_what_does_not_fit_is_counted() -> None:
    full = done(a_schedule(overlap="queue", catch_up="10h"), NOON + 200 * MINUTE)
    assert len(full.queued) == QUEUE_MAX - 1
    assert full.skipped == {"queue_full": 201 - QUEUE_MAX}


def test_cancel_running_cancels_the_run_before_each() -> None:
    made = plan(
        replace(a_schedule(overlap="cancel_running"), running="old"), NOON + MINUTE, {"old": False}
    )
    assert [begin.tick for begin in made.begins] == [NOON, NOON + MINUTE]
    assert made.cancels == ["old", run_of("s", NOON)]
    alone = plan(replace(a_schedule(overlap="cancel_running"), running="old"), NOON, {"old": True})
    assert alone.cancels == []


def test_jitter_is_the_same_whoever_looks_and_within_its_bound() -> None:
    schedule = a_schedule(jitter="30s")
    delays = [fires_at(schedule, NOON + n * MINUTE) - NOON - n * MINUTE for n in range(200)]
    assert delays == [fires_at(schedule, NOON + n * MINUTE) - NOON - n * MINUTE for n in range(200)]
    assert 0 <= min(delays) < max(delays) < 30_000
    assert len(set(delays)) > 150
    other = replace(schedule, name="t")
    assert fires_at(other, NOON) != fires_at(schedule, NOON)


def test_a_paused_schedule_begins_only_what_is_asked_for() -> None:
    paused = replace(a_schedule(), paused_at=1, asked=(NOON + 5,))
    made = plan(paused, NOON + MINUTE, {})
    assert [begin.kind for begin in made.begins] == ["now"]
    assert due_of(paused, NOON) == NOON
    assert due_of(replace(paused, asked=()), NOON) is None


def test_a_backfill_goes_on_where_it_was_and_counts_what_was_there() -> None:
    total = 250
    asked = Backfill(begin=NOON, end=NOON + total * MINUTE, total=total, at=NOON - 1)
    schedule = replace(a_schedule(), backfill=asked, next_tick=NOON + 1000 * MINUTE)
    seen: list[int] = []
    while schedule.backfill is not None and schedule.backfill.done_at is None:
        made = plan(schedule, NOON, {})
        seen += [begin.tick for begin in made.begins]
        begun = {one.run: Begun(existed=one.tick % 2 == 0) for one in made.begins}
        schedule = concluded(schedule, made, begun, NOON)
    assert seen == [NOON + n * MINUTE for n in range(total)]
    assert schedule.backfill is not None
    assert schedule.backfill.started + schedule.backfill.existing == total


def test_a_refused_tick_is_told_with_its_reason_and_the_next_has_its_turn() -> None:
    schedule = a_schedule()
    made = plan(schedule, NOON, {})
    after = concluded(schedule, made, {made.begins[0].run: Begun(refused="no such path")}, NOON)
    assert after.skipped == {"refused": 1}
    assert (after.last[0].outcome, after.last[0].why) == ("refused", "no such path")
    assert (after.running, after.next_tick) == ("", NOON + MINUTE)


def test_a_tick_that_is_refused_leaves_no_other_out() -> None:
    first, second = run_of("s", NOON), run_of("s", NOON + MINUTE)
    made = plan(a_schedule(), NOON + 3 * MINUTE, {})
    begun = {first: Begun(refused="does not fit"), second: Begun()}
    after = concluded(a_schedule(), reconcile(made, begun), begun, NOON)
    assert (after.skipped, after.next_tick) == ({"refused": 1}, NOON + MINUTE)
    made = plan(after, NOON + 3 * MINUTE, {})
    assert [begin.run for begin in made.begins] == [second]
    after = concluded(after, reconcile(made, begun), begun, NOON)
    made = plan(after, NOON + 3 * MINUTE, {second: False})
    after = concluded(after, reconcile(made, begun), begun, NOON)
    assert (after.skipped, after.fired) == ({"refused": 1, "overlap": 2}, 1)


def test_a_tick_that_is_refused_cancels_nothing() -> None:
    busy = replace(a_schedule(overlap="cancel_running"), running="old")
    made = plan(busy, NOON + 2 * MINUTE, {"old": False})
    first, second, third = (run_of("s", NOON + n * MINUTE) for n in range(3))
    refused, full = Begun(refused="does not fit"), Begun(refused="is full", full=True)
    for outcomes, cancelled in (
        ((refused, refused, refused), []),
        ((refused, Begun(), refused), ["old"]),
        ((Begun(), refused, refused), ["old"]),
        ((Begun(), refused, Begun()), ["old", first]),
        ((refused, full, refused), ["old"]),
    ):
        begun = dict(zip((first, second, third), outcomes, strict=True))
        assert reconcile(made, begun).cancels == cancelled


def test_a_run_before_is_cancelled_also_where_the_next_is_there_already() -> None:
    """A crash came in between, or a store that was away."""
    busy = replace(a_schedule(overlap="cancel_running"), running="old")
    first = run_of("s", NOON)
    assert plan(busy, NOON, {"old": False, first: False}).cancels == ["old"]
    assert plan(busy, NOON, {"old": False, first: True}).cancels == []


def test_a_long_outage_is_worked_off_in_steps() -> None:
    schedule, now, looks = a_schedule(catch_up="10m"), NOON + 5000 * MINUTE, 0
    while schedule.next_tick is not None and schedule.next_tick <= now:
        schedule, looks = done(schedule, now), looks + 1
    assert 5 <= looks <= 7
    assert schedule.skipped["late"] == 4990
