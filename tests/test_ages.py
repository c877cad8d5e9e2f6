"""Ages as people write them, and the setting that says how long runs are kept."""

from __future__ import annotations

from typing import get_args

import pytest

from anabranch.ages import DAY_MS, ENDED, age_ms, kept_ages
from anabranch.errors import InputError
from anabranch.literals import RunStatus
from anabranch.settings import from_environment


@pytest.mark.parametrize(
    ("text", "milliseconds"),
    [("30d", 30 * DAY_MS), ("12h", DAY_MS // 2), ("1.5m", 90_000), ("2 w", 14 * DAY_MS)],
)
def test_ages_are_written_with_a_unit(text: str, milliseconds: int) -> None:
    assert age_ms(text) == milliseconds


@pytest.mark.parametrize("text", ["", "30", "d", "-1d", "1y", "1d2h", "9999999999d"])
def test_an_age_that_is_none_is_refused(text: str) -> None:
    with pytest.raises(InputError, match="30d, 12h or 90m"):
        age_ms(text)


def test_every_status_that_a_run_ends_with_can_be_named() -> None:
    assert {*ENDED, "queued", "running", "waiting", "paused"} == set(get_args(RunStatus))


@pytest.mark.parametrize(
    ("text", "days"),
    [
        ("", {}),
        ("completed=30d", {"completed": 30}),
        (" completed=30d,failed=1w , ", {"completed": 30, "failed": 7}),
        ("all=2d failed=never", dict.fromkeys([s for s in ENDED if s != "failed"], 2)),
        ("failed=9d all=2d", {**dict.fromkeys(ENDED, 2), "failed": 9}),
        ("all=never", {}),
    ],
)
def test_ages_are_set_by_status(text: str, days: dict[str, int]) -> None:
    assert kept_ages(text) == {status: number * DAY_MS for status, number in days.items()}


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("30d", "'30d' is no status with an age: write \"completed=30d failed=90d\""),
        ("completed=", "'completed=' is no status with an age"),
        ("complete=30d", "no run ends as 'complete'; did you mean completed?"),
        ("waiting=30d", "no run ends as 'waiting'; runs end as completed, failed"),
        ("failed=soon", "failed is kept for an age as 30d, 12h or 90m, or never, not 'soon'"),
        ("failed=0d", "failed must be kept for longer than 0d"),
        ("failed=1d all=2d failed=3d", "keep_runs names failed twice"),
    ],
)
def test_what_cannot_be_kept_so_is_refused_with_the_name_of_the_setting(
    text: str, told: str
) -> None:
    with pytest.raises(InputError) as caught:
        kept_ages(text)
    assert caught.value.message.startswith("keep_runs")
    assert told in caught.value.message
    with pytest.raises(InputError, match=r"^ANABRANCH_KEEP_RUNS"):
        from_environment({"ANABRANCH_KEEP_RUNS": text})
