"""`check` warns where the packages that work needs are not installed, and nothing is refused."""

from __future__ import annotations

from typing import Any

import pytest

from anabranch.work.kinds.buckets import places

from ..support import playbook, run, serving, step

PLACE = "s3://store/job"
NEEDING: dict[str, dict[str, Any]] = {
    "upload": step("up", "gcs", data=1, destination="gs://store/a"),
    "type": step("run", "python", script={"uri": "job", "source": {"type": "s3", "bucket": "b"}}),
    "address": step("run", "sqlite", script=PLACE, database=":memory:"),
    "artifact": step("get", "artifact", uri="gs://store/a"),
}


def told(definition: dict[str, Any]) -> tuple[bool, list[str]]:
    async def scenario() -> tuple[bool, list[str]]:
        async with serving() as client:
            checked = await client.post("/definitions/check", {"definition": definition})
            problems = checked.json["problems"]
            return checked.json["ok"], [f"{one['code']} {one['hint']}" for one in problems]

    return run(scenario())


@pytest.mark.parametrize("one", NEEDING.values(), ids=NEEDING)
def test_packages_that_are_missing_are_named_by_their_extra(
    one: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(places, "PACKAGE", "no_such_package_here")
    ok, problems = told(playbook(one))
    assert ok
    assert problems == ["missing-extra pip install 'anabranch[buckets]'"]


def test_where_they_are_installed_or_not_needed_nothing_is_said(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(places, "PACKAGE", "no_such_package_here")
    elsewhere = {**NEEDING["upload"], "spec": {"pool": "cloud"}}
    for one in (elsewhere, step("get", "artifact", uri="/tmp/a"), step("n", script="s3://x/y")):
        _, problems = told(playbook(one))
        assert "missing-extra" not in " ".join(problems)
    monkeypatch.setattr(places, "PACKAGE", "msgspec")
    assert told(playbook(NEEDING["upload"])) == (True, [])
