"""Rows of one run are damaged: that run is set aside by name, the others do not notice."""

from __future__ import annotations

import logging
from contextlib import closing
from pathlib import Path

import pytest

from anabranch.errors import DamagedRun
from anabranch.kernel import stimuli as s
from anabranch.operations.definitions.prepare import compiler
from anabranch.operations.read.reader import Reader
from anabranch.runtime.messages.codec import read_answer, write_message
from anabranch.runtime.nets import Nets
from anabranch.store.ports import HeadFilter
from anabranch.store.sqlite.store import SqliteStore
from damage import DAMAGES, damage

from .support import Doing, asking, chain, engine, forever, run, start, until


@pytest.mark.parametrize("how", DAMAGES)
def test_a_damaged_run_is_named_and_set_aside_and_the_others_go_on(
    how: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def scenario() -> None:
        path = tmp_path / "store.db"
        with closing(SqliteStore(path)) as store:
            async with engine(store, {"doing": Doing(forever)}) as made:
                bad = await start(made, chain(2, "doing"))
                good = [await start(made, chain(2, "doing")) for _ in range(3)]
        damage(path, bad, how)
        with closing(SqliteStore(path)) as store:
            async with engine(store, {"doing": Doing()}) as made:
                ends = [(await made.wait(one)).status for one in good]
                assert ends == ["completed"] * 3
                with pytest.raises(DamagedRun, match=f"run {bad} is set aside"):
                    await made.wait(bad)
                with pytest.raises(DamagedRun, match=f"run {bad} is set aside"):
                    await made.send(bad, s.Cancel())
                assert list(made._core.broken) == [bad]
        named = [each for each in caplog.records if bad in each.getMessage()]
        assert len(named) == 1  # said once, and not again and again
        assert named[0].levelno == logging.ERROR
        assert named[0].exc_info is None

    run(scenario())


@pytest.mark.parametrize("how", ["truncated row", "snapshot garbage", "head ahead of its log"])
def test_a_damaged_run_that_only_waits_is_set_aside_when_it_is_needed(
    how: str, tmp_path: Path
) -> None:
    async def scenario() -> None:
        path = tmp_path / "store.db"
        with closing(SqliteStore(path)) as store:
            async with engine(store) as made:
                bad = await start(made, asking())
        damage(path, bad, how)
        with closing(SqliteStore(path)) as store:
            async with engine(store, poll_seconds=0.01) as made:
                number = store.post(bad, write_message(s.Cancel("ann")), 1)
                await until(lambda: store.unanswered() == [])
                message = store.message(number)
                assert message is not None
                assert message.answer is not None
                assert f"run {bad} is set aside" in read_answer(message.answer).message
                assert list(made._core.broken) == [bad]

    run(scenario())


@pytest.mark.parametrize("how", DAMAGES)
def test_whoever_looks_at_a_damaged_run_is_told_what_is_wrong(how: str, tmp_path: Path) -> None:
    async def made_run(path: Path) -> tuple[str, str]:
        with closing(SqliteStore(path)) as store:
            async with engine(store) as made:
                bad, good = await start(made, asking()), await start(made, asking())
        return bad, good

    path = tmp_path / "store.db"
    bad, good = run(made_run(path))
    damage(path, bad, how)
    with closing(SqliteStore(path, read_only=True)) as store:
        read = Reader(store, Nets(store, compiler()))
        for look in (read.show, read.explain, read.summary):
            with pytest.raises(DamagedRun, match=f"run {bad} is damaged.*anabranch store check"):
                look(bad)
        assert read.explain(good)["waiting"]
        assert {row["run"] for row in read.runs(HeadFilter())} == {bad, good}
