"""A server that has no room for one more who waits ends no command that waits."""

from __future__ import annotations

import asyncio
from typing import Any, cast

import pytest

from anabranch.errors import Denied, NotFound
from anabranch.surfaces.cli.backend.http import runs
from anabranch.surfaces.client import Client


class Busy:
    """A server with too many who wait already."""

    def __init__(self) -> None:
        self.asked: list[int] = []

    async def get(self, *_path: str, seconds: int, **_more: Any) -> dict[str, bool]:
        self.asked.append(seconds)
        if seconds:
            raise Denied("50 wait", code="too_many_at_once")
        return {"settled": len(self.asked) > 4}


def test_it_asks_again_without_waiting_there(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runs, "NO_ROOM_SECONDS", 0.0)
    busy = Busy()
    asyncio.run(runs.HttpRunBackend(cast(Client, busy)).settled("r"))
    assert busy.asked == [30, 0, 30, 0, 30, 0]


def test_any_other_refusal_is_told() -> None:
    class Gone(Busy):
        async def get(self, *_path: str, **_more: Any) -> dict[str, bool]:
            raise NotFound("there is no run r")

    with pytest.raises(NotFound):
        asyncio.run(runs.HttpRunBackend(cast(Client, Gone())).settled("r"))
