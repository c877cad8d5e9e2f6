"""What was recorded before a field was there means what it meant then."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from anabranch.kernel import events as e

OLDER: dict[str, list[Any]] = {
    "gate.decided": ["gate-1", "fulfil", "ann"],
    "task.judged": [1, True, "external_decision"],
    "token.timed": [1, 5],
    "job.discharged": ["1.0", "stopped"],
}


@pytest.mark.parametrize("kind", OLDER)
def test_an_event_without_the_newer_fields_is_read_with_their_defaults(kind: str) -> None:
    event = msgspec.json.decode(msgspec.json.encode([kind, *OLDER[kind]]), type=e.Event)
    assert e.kind_of(event) == kind
    assert not any(getattr(event, name, None) for name in ("override", "hurry", "reason"))
