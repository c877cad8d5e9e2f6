"""A search that finds nobody says why: which book, which passports, and what is wrong with them."""

from __future__ import annotations

import json
from typing import Any

import pytest

import anabranch
from anabranch.work.participants.port import ParticipantQuery

from .support import CAPABILITY, directory, participant, passport

OLD: dict[str, Any] = {"issued_at": "2025-01-01T00:00:00Z", "expires_at": "2026-01-01T00:00:00Z"}
SOLD: dict[str, Any] = {
    "service_types": ["sold"],
    "labels": {"region": "eu"},
    "function": lambda _request: 1,
}


def why(passports: list[Any], **query: Any) -> str:
    found = directory(passports=passports)
    asked = ParticipantQuery(**{"resolve": "capability", "capability_id": CAPABILITY, **query})
    assert found.find(asked) == []
    return found.why_nobody(asked)


def test_passports_that_are_all_expired_are_counted_and_dated() -> None:
    said = why([passport(number, **OLD) for number in (2, 3, 4)])
    assert f"3 passports for {CAPABILITY!r} found, all expired on 2026-01-01" in said
    later: dict[str, Any] = {**OLD, "expires_at": "2026-01-15T00:00:00Z"}
    said = why([passport(2, **OLD), passport(3, **later)])
    assert "2 passports" in said
    assert "all expired, the last on 2026-01-15" in said


def test_passports_that_do_not_count_for_several_reasons_are_told_apart() -> None:
    early: dict[str, Any] = {"issued_at": "2026-06-01T00:00:00Z"}
    said = why([passport(2, **OLD), passport(3, **OLD), passport(4, **early)])
    assert "3 passports" in said
    assert "2 expired" in said
    assert "1 not valid yet" in said


def test_no_passport_for_the_capability_is_not_the_same_as_no_passport_at_all() -> None:
    assert "no passport for 'offer-catalog' was found, but 1 for others" in why(
        [passport(2, capability_id="other")]
    )
    assert "no passport was found" in why([])


def test_a_filter_that_fits_nobody_is_named() -> None:
    said = why([passport(2)], filter={"region": "eu"})
    assert "1 valid passport" in said
    assert "region" in said


def ran(target: Any, book: Any = None) -> str:
    wanted = target.get("task_type", "quote")
    one = {"step_id": "s", "service_type": wanted, "target": target, "fan_in": {}}
    text = json.dumps({"workflow_id": "w", "plan": {"steps": [one]}})
    result = anabranch.run(text, participants=book)
    assert result.status == "failed"
    assert result.problem is not None
    return str(result.problem)


@pytest.mark.parametrize(
    "target",
    [
        {"resolve": "task_type", "task_type": "quote"},
        {"resolve": "static", "participants": ["ann", "bob"]},
        {"resolve": "capability", "capability_id": "c"},
    ],
)
def test_a_start_without_a_book_says_that_there_is_none_and_how_to_give_one(target: Any) -> None:
    with pytest.raises(anabranch.DefinitionError) as refused:
        ran(target)
    said = str(refused.value)
    assert "no book of participants" in said
    assert "--participants" in said


def test_a_service_that_nobody_offers_is_named_with_what_was_meant() -> None:
    said = ran({"resolve": "task_type", "task_type": "solt"}, {"participants": {"ann": SOLD}})
    assert "no participant in the book" in said
    assert "did you mean 'sold'?" in said
    target = {"resolve": "task_type", "task_type": "sold", "filter": {"region": "us"}}
    assert "1 in the book" in ran(target, {"participants": {"ann": SOLD}})


def test_the_reason_is_the_problem_of_the_run() -> None:
    book = {
        "participants": {},
        "directory": {"passports": [passport(2, **OLD)], "issuers": [participant(1)]},
    }
    said = ran({"resolve": "capability", "capability_id": CAPABILITY}, book)
    assert "expired on 2026-01-01" in said
    assert "no_targets" in said
