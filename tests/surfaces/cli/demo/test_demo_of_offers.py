"""The scene of the demo in which eight providers compete for an order."""

from __future__ import annotations

import argparse
import asyncio
import shutil
from pathlib import Path

import pytest

from anabranch.operations.definitions.prepare import compiler
from anabranch.operations.read.reader import Reader
from anabranch.runtime.nets import Nets
from anabranch.store.sqlite.store import SqliteStore
from anabranch.surfaces.cli.demo import demo


@pytest.mark.slow
def test_the_cheapest_who_answers_gets_the_order_and_everybody_is_accounted_for(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    stage = demo.Presenter(tmp_path, argparse.Namespace(fast=True, json=False))
    stage.facts["ok"] = True
    shutil.copy(demo.SCENES / "offers.yaml", tmp_path)
    asyncio.run(demo._offers(stage))
    assert stage.facts["ok"]
    store = SqliteStore(tmp_path / "demo.db", read_only=True)
    try:
        records = Reader(store, Nets(store, compiler())).dispatches("offers1")
    finally:
        store.close()
    found = [
        (each.record.step_id, each.record.target, each.record.status, each.outcome, each.selected)
        for each in records
    ]
    assert found == [
        ("solicit", "alba", "responded", "usable", False),
        ("solicit", "bora", "responded", "usable", True),
        ("solicit", "cirro", "responded", "usable", False),
        ("solicit", "delta", "cancelled", "unreachable", False),
        ("solicit", "eco", "responded", "negative", False),
        ("solicit", "foehn", "responded", "negative", False),
        ("solicit", "garua", "responded", "negative", False),
        ("solicit", "halo", "responded", "negative", False),
        ("order", "bora", "responded", "usable", True),
    ]
    shown = capsys.readouterr().out
    for words in ("chosen", "no score", "disconnected", "not_json", "no_offer_available"):
        assert words in shown


def test_a_scene_that_takes_long_says_what_it_waits_for(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(demo, "LONG_SECONDS", 0.001)
    monkeypatch.setattr("os.getloadavg", lambda: (99.0, 99.0, 99.0))
    stage = demo.Presenter(tmp_path, argparse.Namespace(fast=True, json=False))

    async def scene() -> None:
        async with stage.waiting("the tide"):
            while "the tide" not in (shown := capsys.readouterr().out):
                await asyncio.sleep(0.001)
        assert "waiting for the tide" in shown
        assert "99 at work" in shown

    asyncio.run(scene())
