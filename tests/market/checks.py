"""Which documents are checked, and where."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from anabranch.market.documents import checking

HERE, BESIDE = "on the event loop", "beside it"


def watch_checks(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, str]]:
    """The kind of every document that is checked from now on, and where that is done."""
    found: list[tuple[str, str]] = []
    check = checking._check

    def watched(document: Any, kind: str | None, problems: Any) -> str:
        found.append((str(kind), where()))
        return check(document, kind, problems)

    monkeypatch.setattr(checking, "_check", watched)
    return found


def where() -> str:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return BESIDE
    return HERE
