"""What the roles of stories make is the same for the same order, kept once, and pointed at."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest

from anabranch.surfaces.stories import roles
from anabranch.surfaces.stories.facts import FILE, Facts
from anabranch.surfaces.stories.story009 import POINTER_BYTES_MAX

GIVEN: dict[str, dict[str, Any]] = {
    "text/summarise": {"text": "a b c d e f g h i j k"},
    "text/research": {"subject": "rivers", "words": 400},
    "image/illustrate": {"subject": "rivers", "draft": "sha256:d"},
    "text/review": {"draft": "sha256:d"},
    "site/publish": {"draft": "sha256:d", "image": "sha256:i", "review": "sha256:r"},
    "workflow/announce": {"event": "workflow.completed", "run": "run:1", "post": "sha256:p"},
}


@pytest.mark.parametrize("service", roles.TASKS)
def test_the_same_order_has_the_same_result_and_one_fact(
    service: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ORBIPLEX_MIDDLEWARE_HOME", str(tmp_path))
    task = {"service_type": service}
    first, again = roles.work(GIVEN[service], task), roles.work(GIVEN[service], task)
    assert first == again
    if service != "text/summarise":
        facts = Facts(tmp_path / FILE)
        assert facts.content(first["record_id"]) is not None
        assert len(facts.all()) == 1
        assert len(msgspec.json.encode(first)) < POINTER_BYTES_MAX


def test_a_summary_is_the_first_words() -> None:
    assert roles.summarise({"text": "a b c"}) == {"summary": "a b c", "words": 3}


def test_nothing_is_published_without_all_its_parts() -> None:
    done = roles.publish({"draft": "d", "image": "i", "review": "r"})
    assert done["verification"] == {"status": "fulfilled"}
    missing = roles.publish({"draft": "d", "image": None, "review": "r"})
    assert missing["verification"] == {"status": "not_fulfilled", "missing": ["image"]}


def test_a_reviewer_who_rejects_does_everything_else_as_usual() -> None:
    review = {"service_type": "text/review"}
    assert roles.rejecting(GIVEN["text/review"], review)["review"] == {"status": "rejected"}
    assert roles.work(GIVEN["text/review"], review)["review"] == {"status": "accepted"}
    publish = {"service_type": "site/publish"}
    given = GIVEN["site/publish"]
    assert roles.rejecting(given, publish) == roles.work(given, publish)


def test_a_fact_that_a_crash_cut_off_is_kept_again(tmp_path: Path) -> None:
    file = tmp_path / FILE
    one = Facts(file).keep({"a": 1})
    whole = file.read_bytes()
    Facts(file).keep({"b": 2})
    file.write_bytes(file.read_bytes()[:-3])
    facts = Facts(file)
    assert facts.all() == [{"a": 1}]
    assert file.read_bytes() == whole
    assert facts.keep({"b": 2}) != one
    assert Facts(file).all() == [{"a": 1}, {"b": 2}]
